"""A small classifier with batch norm: images normalised, GELU, normalised again, averaged, and a linear layer."""

from types import SimpleNamespace

import numpy as np
from strategies import redrawn

from tinyvit import functional as F
from tinyvit import nn
from tinyvit.models.architecture import Architecture
from tinyvit.nn.chain import Operation

SHAPE, CLASSES = (3, 5, 4), 4


class Normed(Architecture):
    def __init__(self, dtype="float64", seed=0):
        self.config = SimpleNamespace(img_size=SHAPE[1:], in_chans=SHAPE[0], num_classes=CLASSES)
        self.norm1 = nn.BatchNorm2d(SHAPE[0])
        self.norm2 = nn.BatchNorm2d(SHAPE[0], eps=1e-3, momentum=0.3)
        self.gelu, self.pool = Operation(F.gelu), Operation(F.global_avg_pool2d)
        self.fc = nn.Linear(SHAPE[0], CLASSES)
        redrawn(self.materialize(dtype=dtype), seed, std=1)

    def parts(self):
        names = "norm1", "gelu", "norm2", "gelu", "pool", "fc"
        return [(name, getattr(self, name)) for name in names]


def batch(size, seed=0, dtype="float64"):
    """Images whose mean and scale differ from channel to channel and from sample to sample, and labels."""
    generator = np.random.default_rng(seed)
    images = generator.standard_normal((size, *SHAPE)) * generator.uniform(0.5, 3, (size, SHAPE[0], 1, 1))
    return (images + generator.standard_normal((size, SHAPE[0], 1, 1))).astype(dtype), np.arange(size) % CLASSES
