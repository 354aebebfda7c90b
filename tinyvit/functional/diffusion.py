"""Noise that is put into images step by step, and the step back.

An image after t steps is x_t = √ᾱₜ x + √(1 − ᾱₜ) ε with ε ~ N(0, 1): ᾱ falls from almost 1 to almost 0.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation

Schedule = Literal["linear", "cosine"]
MAX_BETA = 0.999  # the largest β: more would leave nothing of an image in a single step


def noise_levels(schedule, steps):
    """ᾱ (T,), float64: how much of the image's variance is left after each of T steps, ᾱₜ = Π (1 − β_s) over s ≤ t.

        linear   β rises evenly from 1e-4 to 0.02, both times 1000/T. Ho et al. 2020, "Denoising diffusion probabilistic
                 models", section 4
        cosine   ᾱₜ = f(t + 1) / f(0), f(t) = cos²((t/T + 0.008) / 1.008 · π/2). Nichol & Dhariwal 2021, "Improved
                 denoising diffusion probabilistic models", eq. 17

    No β is above 0.999. Derived in notebooks/18. Raises ValueError for an unknown schedule and for less than a step.
    """
    if schedule not in get_args(Schedule):
        raise ValueError(f"noise_levels: expected a schedule of {', '.join(get_args(Schedule))}, got {schedule!r}")
    if steps < 1:
        raise ValueError(f"noise_levels: expected at least 1 step, got {steps}")
    if schedule == "linear":
        betas = np.linspace(1e-4, 0.02, steps) * (1000 / steps)
    else:
        f = np.cos((np.arange(steps + 1) / steps + 0.008) / 1.008 * np.pi / 2) ** 2
        betas = 1 - f[1:] / f[:-1]
    return np.cumprod(1 - np.minimum(betas, MAX_BETA))


class AddNoiseCache(NamedTuple):
    signal: Array  # (B, 1, …)  √ᾱ
    shape: tuple   # of the images


@operation(any_dtype="noise level")
def add_noise(x, noise, level):
    """x_t = √ᾱ x + √(1 − ᾱ) ε, for images x and noise ε (B, …) and a level ᾱ (B,) for each; x alone gets a gradient.

    Ho et al. 2020, "Denoising diffusion probabilistic models", eq. 4. Derived in notebooks/18.
    """
    if not x.ndim or noise.shape != x.shape or level.shape != x.shape[:1]:
        raise ValueError(
            f"add_noise: expected x and noise (B, …) and a level (B,), got {x.shape}, {noise.shape} and {level.shape}"
        )
    level = level.reshape(-1, *[1] * (x.ndim - 1))
    signal, sigma = (((share**0.5).astype(x.real.dtype)) for share in (level, 1 - level))
    return signal * x + sigma * noise.astype(x.dtype, copy=False), AddNoiseCache(signal, x.shape)


@backward_of(add_noise, result=lambda cache: cache.shape)
def add_noise_backward(dy, cache):
    """dx = √ᾱ dy: what is left of the image is all that it counts for."""
    return cache.signal * dy


def guided_noise(with_class, without, guidance):
    """The noise ε̃ = ε(∅) + w (ε(y) − ε(∅)) that is taken away in the place of ε(y): the class counts w times.

    Ho & Salimans 2022, "Classifier-free diffusion guidance", eq. 6 with w = 1 + their w. Derived in notebooks/18.
    """
    return without + guidance * (with_class - without)


def denoise(x, noise, level, limits=None):
    """The image x̂ = (x_t − √(1 − ᾱ) ε) / √ᾱ that is left if the noise `noise` (B, …) is taken out of `x` (B, …).

    level    ᾱ, a float
    limits   (least, most) value of a pixel, floats or arrays that broadcast, or None
    """
    image = (x - (1 - level) ** 0.5 * noise) * level**-0.5
    return image if limits is None else array_module(x).clip(image, *limits)


def step_back(x, noise, level, previous, limits=None, variance=0.0):
    """The mean of the images one step earlier, with ᾱ′ = `previous` in the place of ᾱ = `level`; floats both:

        x′ = √ᾱ′ x̂ + √(1 − ᾱ′ − σ²) ε̂    ε̂ = (x − √ᾱ x̂) / √(1 − ᾱ)

    x̂ is the image that `denoise` returns, and ε̂ the noise that is left then. With the variance σ² = 0 this is a step of
    DDIM; with `variance_back` it is the mean of DDPM's, to which noise σ z is added. Song et al. 2021, "Denoising
    diffusion implicit models", eq. 12; Ho et al. 2020, eq. 7. Derived in notebooks/18.
    """
    image = denoise(x, noise, level, limits)
    if limits is not None:  # an image within the limits is the result of another noise
        noise = (x - level**0.5 * image) * (1 - level) ** -0.5
    return previous**0.5 * image + max(0.0, 1 - previous - variance) ** 0.5 * noise


def variance_back(level, previous):
    """β̃ = (1 − ᾱ′) / (1 − ᾱ) · β with β = 1 − ᾱ / ᾱ′: the variance of x_{t−1} where x_t and the image are known.

    Ho et al. 2020, "Denoising diffusion probabilistic models", eq. 7.
    """
    return (1 - previous) / (1 - level) * (1 - level / previous)
