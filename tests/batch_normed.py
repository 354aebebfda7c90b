"""A small classifier with batch norm: images normalised, GELU, normalised again, averaged, and a linear layer."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit import nn
from tinyvit.nn.head import MapPool

SHAPE, CLASSES = (3, 5, 4), 4


class NormedCache(NamedTuple):
    norm1: Any
    act: Any
    norm2: Any
    act2: Any
    pool: Any
    fc: Any


class Normed(nn.Module):
    def __init__(self, dtype="float64", seed=0):
        self.norm1 = nn.BatchNorm2d(SHAPE[0])
        self.norm2 = nn.BatchNorm2d(SHAPE[0], eps=1e-3, momentum=0.3)
        self.pool = MapPool()
        self.fc = nn.Linear(SHAPE[0], CLASSES)
        self.materialize(dtype=dtype)
        generator = np.random.default_rng(seed)
        for parameter in self.parameters():
            parameter.data = generator.standard_normal(parameter.shape)

    def forward(self, x, ctx=None):
        x, c_norm1 = self.norm1(x, ctx)
        x, c_act = F.gelu(x)
        x, c_norm2 = self.norm2(x, ctx)
        x, c_act2 = F.gelu(x)
        x, c_pool = self.pool(x, ctx)
        logits, c_fc = self.fc(x, ctx)
        return logits, NormedCache(c_norm1, c_act, c_norm2, c_act2, c_pool, c_fc)

    def backward(self, dlogits, cache):
        dx = self.fc.backward(dlogits, cache.fc)
        dx = self.pool.backward(dx, cache.pool)
        dx = F.gelu_backward(dx, cache.act2)
        dx = self.norm2.backward(dx, cache.norm2)
        dx = F.gelu_backward(dx, cache.act)
        return self.norm1.backward(dx, cache.norm1)


def batch(size, seed=0, dtype="float64"):
    """Images whose mean and scale differ from channel to channel and from sample to sample, and labels."""
    generator = np.random.default_rng(seed)
    images = generator.standard_normal((size, *SHAPE)) * generator.uniform(0.5, 3, (size, SHAPE[0], 1, 1))
    return (images + generator.standard_normal((size, SHAPE[0], 1, 1))).astype(dtype), np.arange(size) % CLASSES
