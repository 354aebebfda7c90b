"""The benchmark's cases, tiny."""

from tinyvit import ViTConfig
from tinyvit.bench.cases import Case, Filters, Heads
from tinyvit.bench.run import run

CONFIG = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2)
TRAIN = Case("small", "train", 3, CONFIG)
INFER = Case("infer", "infer", 3, CONFIG)
ATTENTION = Case("heads", "attention", 2, Heads(tokens=5, heads=2, head_dim=4))
CONV = Case("filters", "conv", 3, Filters(side=5, channels=4, filters=6, stride=2, groups=2))


def small_run(cases=(TRAIN,), levels=("numpy",), **options):
    """The results of two rounds of one step, in a single thread."""
    return list(run(cases, levels, 1, 2, turn=1e-9, **options))
