"""A benchmark of almost no work, for tests of how it is measured."""

from tinyvit import ViTConfig
from tinyvit.bench.cases import AttentionCase, ConvCase, ModelCase
from tinyvit.bench.run import Settings

CONFIG = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2)
TRAIN = ModelCase("small", "train", 3, CONFIG)
INFER = ModelCase("infer", "infer", 3, CONFIG)
ATTENTION = AttentionCase("heads", 2, tokens=5, heads=2, head_dim=4)
CONV = ConvCase("filters", 3, side=5, in_chans=4, out_chans=6, stride=2, groups=2)


def small_settings(**fields):
    """Two rounds of one step, tinyvit alone."""
    defaults = dict(cases=(TRAIN,), levels=("numpy",), threads=1, rounds=2, torch=False, turn=1e-9, pause=0.0)
    return Settings(**defaults | fields)
