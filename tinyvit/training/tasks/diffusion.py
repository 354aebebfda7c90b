"""Diffusion: a model learns which noise was put into an image, and so to make images out of noise.

Ho et al. 2020, "Denoising diffusion probabilistic models"; Peebles & Xie 2023, "Scalable diffusion models with
transformers".
"""

from dataclasses import dataclass

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import constant, device_of
from tinyvit.functional.diffusion import Schedule
from tinyvit.keys import Key
from tinyvit.training.tasks.task import Options, Task, register
from tinyvit.validation import PositiveInt


@dataclass(frozen=True)
class DiffusionOptions(Options):
    """How noise grows."""

    schedule: Schedule = "linear"
    """How much noise is added at each step: evenly more, or by a cosine."""
    timesteps: PositiveInt = 1000
    """Steps from an image to noise (T)."""


@register("diffusion")
class Diffusion(Task):
    """Mean squared error of the noise that was put into an image, at a random time. Lower is better.

    A model with learn_sigma learns its variance, too: `functional.variational_bound` is added to the loss, through
    which nothing but the variance gets a gradient (Nichol & Dhariwal 2021, section 3.1).
    """

    options = DiffusionOptions
    needs_classes = static = True
    command = "sample"
    evaluation_keys = tuple(Key(0, number) for number in range(4))  # each with other noise
    only = {  # noqa: RUF012 (only read); images are of one class
        "architecture": "dit", "augment.mixup": 0, "augment.cutmix": 0, "optim.keep_patches": 1,
        "optim.label_smoothing": 0,
    }  # fmt: skip

    def __init__(self, config, part=None):
        super().__init__(config, part)
        o = config.objective
        self.levels, self.tables = F.noise_levels(o.schedule, o.timesteps), {}
        self.metrics = ("error", "bits") if config.model.learn_sigma else ()

    # -- a step ----------------------------------------------------------------------------------------------------

    def batch(self, images, targets, key):
        xp, T = array_module(images), len(self.levels)
        t = (key.at("diffusion.t").uniform((len(images), 1), xp)[:, 0] * T).astype("int64")
        noise = key.at("diffusion.noise").normal(images.shape, xp, images.dtype)
        return {"images": images, "labels": targets, "t": xp.minimum(t, T - 1), "noise": noise}

    def loss(self, model, batch, ctx):
        if not self.config.model.learn_sigma:
            return super().loss(model, batch, ctx)
        images, t, noise = batch["images"], batch["t"], batch["noise"]
        level = self.table(self.levels, images)[t]
        noisy, _ = F.add_noise(images, noise, level)
        output, cache = model(noisy, ctx, t=t, labels=batch["labels"])
        C, xp = images.shape[1], array_module(images)
        error, c_error = F.mean_squared_error(output[:, :C], noise)
        bits, c_bits = self.bits(output, images, noisy, t, level)

        def backward(dloss=1.0):
            dnoise, dv = F.mean_squared_error_backward(dloss, c_error), F.variational_bound_backward(dloss, c_bits)
            return model.backward(xp.concatenate([dnoise, dv], axis=1), cache)

        return error + bits, backward, {"error": error, "bits": bits}

    def bits(self, output, images, noisy, t, level):
        """`variational_bound` of the second half of the output, with the mean that its first half gives."""
        xp, C, levels = array_module(images), images.shape[1], self.levels
        earlier = np.concatenate([[1.0], levels[:-1]])
        variance, beta = F.variance_back(levels, earlier), 1 - levels / earlier
        # β̃ of the first step is 0; its logarithm is taken to be that of the second.
        least = np.log(np.concatenate([variance[1:2] if len(levels) > 1 else beta[:1], variance[1:]]))
        least, most, weight = (self.table(x, images)[t] for x in (least, np.log(beta), earlier**0.5 * beta))
        per_sample = (-1, 1, 1, 1)
        noise, level = detach(output[:, :C], images.dtype), level.reshape(per_sample)
        image = (noisy - ((1 - level) ** 0.5).astype(images.dtype) * noise) * (level**-0.5).astype(images.dtype)
        gap = (weight.reshape(per_sample) / (1 - level)).astype(images.dtype) * (images - image)
        low, high, half = self.pixels(images)
        ends = xp.stack([images < low + half, images > high - half])
        return F.variational_bound(output[:, C:], gap, least, most, t == 0, half, ends)

    def pixels(self, images):
        """The normalised values of the darkest and the brightest pixel, and half of the distance between two levels."""
        mean, std = (self.table(np.array(x)[:, None, None], images) for x in (self.train.mean, self.train.std))
        return tuple(x.astype(images.dtype) for x in (-mean / std, (1 - mean) / std, 0.5 / self.train.scale / std))

    def table(self, values, images):
        """An array of constants where the images are, float64; brought there once."""
        key = values.tobytes(), values.shape, device_of(images)
        if key not in self.tables:
            self.tables[key] = constant(values.copy(), device_of(images), "float64")
        return self.tables[key]

    # -- evaluation ------------------------------------------------------------------------------------------------

    def predictions(self, model, batch, ctx):
        """The guesses of the noise, the noise, and the model's cache."""
        images, t, noise = batch["images"], batch["t"], batch["noise"]
        noisy, _ = F.add_noise(images, noise, self.table(self.levels, images)[t])
        output, cache = model(noisy, ctx, t=t, labels=batch["labels"])
        return output[:, : images.shape[1]], noise, cache


def detach(x, dtype):
    """`x` as numbers through which no gradient goes: a complex step in it is dropped, too."""
    return F.cast(x.real if x.dtype.kind == "c" else x, dtype)
