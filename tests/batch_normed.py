"""A small classifier with batch norm: images normalised, GELU, normalised again, averaged, and a linear layer."""

from types import SimpleNamespace

import numpy as np
from strategies import redrawn

from tinyvit import functional as F
from tinyvit import nn
from tinyvit.models.architecture import Architecture
from tinyvit.nn.head import MapPool

SHAPE, CLASSES = (3, 5, 4), 4


class Gelu(nn.Module):
    def forward(self, x, ctx=None):
        return F.gelu(x)

    def backward(self, dy, cache):
        return F.gelu_backward(dy, cache)


class Normed(Architecture):
    def __init__(self, dtype="float64", seed=0):
        self.config = SimpleNamespace(img_size=SHAPE[1:], in_chans=SHAPE[0], num_classes=CLASSES)
        self.norm1 = nn.BatchNorm2d(SHAPE[0])
        self.norm2 = nn.BatchNorm2d(SHAPE[0], eps=1e-3, momentum=0.3)
        self.gelu, self.pool, self.fc = Gelu(), MapPool(), nn.Linear(SHAPE[0], CLASSES)
        redrawn(self.materialize(dtype=dtype), seed, std=1)

    def parts(self):
        names = "norm1", "gelu", "norm2", "gelu", "pool", "fc"
        return [(name, getattr(self, name)) for name in names]


def batch(size, seed=0, dtype="float64"):
    """Images whose mean and scale differ from channel to channel and from sample to sample, and labels."""
    generator = np.random.default_rng(seed)
    images = generator.standard_normal((size, *SHAPE)) * generator.uniform(0.5, 3, (size, SHAPE[0], 1, 1))
    return (images + generator.standard_normal((size, SHAPE[0], 1, 1))).astype(dtype), np.arange(size) % CLASSES
