"""The benchmark's cases, tiny."""

from tinyvit import ViTConfig
from tinyvit.bench.cases import Case, Filters, Heads
from tinyvit.bench.run import Settings

CONFIG = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2)
TRAIN = Case("small", "train", 3, CONFIG)
INFER = Case("infer", "infer", 3, CONFIG)
ATTENTION = Case("heads", "attention", 2, Heads(tokens=5, heads=2, head_dim=4))
CONV = Case("filters", "conv", 3, Filters(side=5, channels=4, filters=6, stride=2, groups=2))


def small_settings(**fields):
    """Two rounds of one step, tinyvit alone."""
    defaults = dict(cases=(TRAIN,), levels=("numpy",), threads=1, rounds=2, torch=False, turn=1e-9, pause=0.0)
    return Settings(**defaults | fields)
