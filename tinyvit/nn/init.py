"""Initial values: functions (generator, shape) -> array, as in the paper's code."""

from functools import partial

import numpy as np


def zeros(generator, shape):
    return np.zeros(shape)


def ones(generator, shape):
    return np.ones(shape)


def constant(values):
    """The given array."""
    return partial(_constant, values)


def normal(std):
    """N(0, std²)."""
    return partial(_normal, std)


def xavier_uniform(fan_in, fan_out):
    """Uniform on ±√(6 / (fan_in + fan_out)). Glorot & Bengio 2010, eq. 16."""
    return partial(_uniform, (6 / (fan_in + fan_out)) ** 0.5)


def lecun_normal(fan_in):
    """A normal distribution truncated at two standard deviations, with variance 1 / fan_in after that.

    LeCun et al. 1998, "Efficient backprop", section 4.6.
    """
    return partial(_truncated_normal, fan_in**-0.5 / TRUNCATED_STD)


# The standard deviation of N(0, 1) truncated at ±2: √(1 − 4φ(2) / (2Φ(2) − 1)).
TRUNCATED_STD = 0.87962566103423978


# Module-level functions, not closures, so that a model can be pickled.


def _constant(values, generator, shape):
    return values


def _normal(std, generator, shape):
    return std * generator.standard_normal(shape)


def _uniform(limit, generator, shape):
    return generator.uniform(-limit, limit, shape)


def _truncated_normal(std, generator, shape):
    values = generator.standard_normal(shape)
    while (outside := np.abs(values) > 2).any():
        values[outside] = generator.standard_normal(int(outside.sum()))
    return std * values
