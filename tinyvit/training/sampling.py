"""Images out of noise, by a model that was trained by the task `diffusion`.

Ho et al. 2020, "Denoising diffusion probabilistic models"; Song et al. 2021, "Denoising diffusion implicit models".
"""

from typing import NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.keys import Key
from tinyvit.nn import Context
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.threads import map_threads, thread_count

PART = {"cpu": 16, "gpu": 256}  # images that are made together, always as many: each then has the same digits however
#                                 many are asked for, and on any number of threads


class Samples(NamedTuple):
    """The result of `sample`."""

    images: np.ndarray  # (n, C, H, W), normalised as the model's
    steps: np.ndarray   # (S, n, C, H, W): those on the way that were asked for, from noise to the images


def times(timesteps, steps):
    """`steps` times, of which the first is T − 1, in descending order to 0 (one step: T − 1 alone).

    Raises ValueError for less than 1 and for more than there are.
    """
    if not 1 <= steps <= timesteps:
        raise ValueError(f"expected 1 to {timesteps:,} steps, at most as many as in the training, got {steps:,}")
    return np.linspace(timesteps - 1, 0, steps).round().astype("int64")


def sample(
    model,
    levels,
    labels,
    *,
    steps=50,
    guidance=1.0,
    method="ddim",
    seed=0,
    limits=None,
    threads=None,
    keep=0,
    progress=None,
):
    """Images (n, C, H, W) of the classes `labels` (n,), as the model reads them, and some of what they were before.

    levels     ᾱ (T,) that the model was trained with: `functional.noise_levels`
    steps      from noise to an image; evenly chosen from the T
    guidance   how often the class counts: 1 is the model's own word, 0 no class, and above 1 the images are clearer and
               more alike: `functional.guided_noise`. Anything but 1 takes two forwards a step
    method     "ddim" draws the first noise alone, "ddpm" more at each step
    seed       of all noise. An image depends on it, on its own class and on its place among the labels, and on nothing
               else: not on the other images, nor on threads
    limits     (least, most) value of a pixel, floats or arrays (C, 1, 1), to which each guess is clipped; or None
    keep       how many of the states on the way to return; the last is the result
    progress   called, from any thread, after each step of up to 16 images (on a GPU, 256) with how many they are

    Raises ValueError for classes and numbers that don't fit, and if a result isn't finite.
    """
    labels = np.asarray(labels)
    check(model, labels, guidance)
    order, part = times(len(levels), steps), PART["cpu" if model.device == "cpu" else "gpu"]
    # An image that is asked for alone is made in a full part, too: a product's digits depend on how many rows it has.
    rows = -(-len(labels) // part) * part
    padded = np.resize(labels, rows)
    kept = np.unique(np.linspace(0, steps, keep).round().astype(int)) if keep else ()

    def of_part(first):
        own = to_device(padded[first : first + part], model.device)
        return way_back(
            model,
            levels,
            own,
            order,
            guidance,
            method,
            Key(seed).skip(first),
            limits,
            kept,
            lambda: progress and progress(max(0, min(part, len(labels) - first))),
        )

    parts = range(0, rows, part)
    threads = min(thread_count(threads), len(parts))  # or a BLAS would take more for a single part
    with freed_memory_kept(), np.errstate(all="ignore"):
        found = map_threads(of_part, parts, threads, model.storage.device)
    images, states = zip(*found)
    images = np.concatenate(images)[: len(labels)]
    states = np.concatenate(states, 1)[:, : len(labels)]
    if not np.isfinite(images).all():
        raise ValueError("the images are NaN or infinite: the weights are damaged or diverged")
    return Samples(images, states)


def way_back(model, levels, labels, order, guidance, method, key, limits, kept, stepped):
    """(images, states): NumPy arrays of a part; `kept` says after how many steps a state is kept."""
    with model.storage.compute_scope():
        shape = (len(labels), *model.image_shape)
        xp = array_module(labels)
        x = key.at("sample.start").normal(shape, xp, model.dtype.name)
        if limits is not None:
            limits = [to_device(np.asarray(limit, x.dtype), model.device) for limit in limits]
        states = [to_numpy(x)] if 0 in kept else []
        for number, (t, later) in enumerate(zip(order, [*order[1:], None])):
            level, previous = float(levels[t]), 1.0 if later is None else float(levels[later])
            noise, v = predict_noise(model, x, int(t), labels, guidance)
            if method == "ddim":
                x = F.step_back(x, noise, level, previous, limits)
            else:
                least = F.variance_back(level, previous)
                x = F.step_back(x, noise, level, previous, limits, least)
                if later is not None:
                    z = Key(key.seed, number, "sample.noise", key.sample).normal(shape, xp, x.dtype)
                    x = x + deviation(v, least, 1 - level / previous) * z
            if number + 1 in kept:
                states.append(to_numpy(x))
            stepped()
        return to_numpy(x), np.stack(states) if states else np.empty((0, *shape), x.dtype)


def predict_noise(model, x, t, labels, guidance):
    """(noise, v) at a time t that all images share; v, of the variance, is None where the model doesn't say it."""
    xp, C = array_module(x), x.shape[1]
    without = xp.zeros(labels.shape, labels.dtype) + model.config.num_classes
    several = guidance not in (0, 1)
    if several:
        x, labels = xp.concatenate([x, x]), xp.concatenate([labels, without])
    elif guidance == 0:
        labels = without
    t = xp.zeros(labels.shape, "int64") + t
    output = F.cast(model(x, Context(keep_caches=False), t=t, labels=labels)[0], x.dtype)
    noise, v = output[:, :C], output[:, C:] if output.shape[1] > C else None
    if several:
        half = len(x) // 2
        noise, v = F.guided_noise(noise[:half], noise[half:], guidance), None if v is None else v[:half]
    return noise, v


def deviation(v, least, most):
    """σ of a step back with noise: by v between the variances `least` and `most`, or the least where there is no v."""
    if v is None:
        return least**0.5
    xp = array_module(v)
    share = 0.5 * (v + 1)
    return xp.exp(0.5 * (share * float(np.log(most)) + (1 - share) * float(np.log(least))))


def check(model, labels, guidance):
    """Raise ValueError for arguments of `sample` that don't fit."""
    config = model.config
    if labels.min() < 0 or labels.max() >= config.num_classes:
        raise ValueError(
            f"expected classes from 0 to {config.num_classes - 1}, got {labels.min()} to {labels.max()}"
        )
    if not 0 <= guidance < float("inf"):
        raise ValueError(f"expected a guidance of at least 0, got {guidance}")
    if guidance != 1 and not config.label_dropout:
        raise ValueError(
            f"guidance {guidance:g} needs a model that was trained with label dropout, which this one wasn't "
            "(model.label-dropout is 0); take guidance 1, or train it again with --model.label-dropout 0.1"
        )
