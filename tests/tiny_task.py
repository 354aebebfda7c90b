"""A task unknown to the package: it needs no labels, mixes the samples of a batch, keeps a teacher, trains a
module around the configured model, and has an option of its own. Importing this file registers "brightness".

A projection z of the model's output learns how much brighter an image is than the mean of its batch, and stays near a
teacher's: L = ½ mean (z − (b − mean b))² + ½ mean (z − t)². Lower is better. In several processes each has some of the
batch's images and gathers the brightness b of all of them.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tinyvit import functional as F
from tinyvit import nn
from tinyvit.arrays import array_module
from tinyvit.backend import to_device
from tinyvit.models import build
from tinyvit.training.inference import forwards
from tinyvit.training.tasks import Task, register
from tinyvit.validation import Rate, validate


@dataclass(frozen=True)
class BrightnessOptions:
    """The teacher."""

    decay: Rate = 0.9
    """How much of the teacher is left after a step."""

    def __post_init__(self):
        validate(self, "objective.")


class ProjectedCache(NamedTuple):
    model: Any
    projection: Any


class Projected(nn.Module):
    """A model and a linear layer on its output: images to (B, 1)."""

    def __init__(self, config, seed, device, precision):
        self.model = build(config, device="meta")
        self.projection = nn.Linear(config.num_classes, 1, weight_init=nn.init.normal(0.5))
        self.materialize(seed, device=device, precision=precision)

    def forward(self, images, ctx=None):
        y, c_model = self.model(images, ctx)
        z, c_projection = self.projection(y, ctx)
        return z, ProjectedCache(c_model, c_projection)

    def backward(self, dz, cache):
        return self.model.backward(self.projection.backward(dz, cache.projection), cache.model)


@register("brightness")
class Brightness(Task):
    options = BrightnessOptions
    metrics = ("gap",)
    mixes_samples = gathers = True

    def build(self, seed=0, device="cpu", precision=None):
        return Projected(self.config.model, seed, device, precision)

    def backbone(self, model):
        return model.model

    def begin(self, model, total_steps, dataset):
        super().begin(model, total_steps, dataset)
        self.teacher = self.build(device=model.device, precision=model.precision)
        self.teacher.load_state_dict(model.state_dict())

    def loss(self, model, batch, ctx):
        z, cache = model(batch["images"], ctx)                                 # (B, 1)
        off = z - brightness(batch["images"], ctx and ctx.join)
        apart = z - self.teacher(batch["images"])[0]
        gap = (off * off).mean()

        def backward(dloss=1.0):
            return model.backward((off + apart) * (dloss / len(z)), cache)

        return 0.5 * (gap + (apart * apart).mean()), backward, {"gap": gap}, nn.buffer_updates(cache)

    def after_step(self, model, step, applied):
        old, decay = self.teacher.storage.data, self.config.objective.decay
        old[...] = array_module(old).where(applied, decay * old + (1 - decay) * model.storage.data, old)

    def state(self):
        return self.teacher.state_dict()

    def load_state(self, tensors):
        self.teacher.load_state_dict(tensors)

    @property
    def headline(self):
        return f"{self.part}_gap"

    def evaluate(self, model, dataset, threads=None, stop=None):
        outputs = []
        for images, _ in forwards(model, dataset):
            if stop:
                return None
            outputs.append(model(images)[0])
        images = to_device(dataset.normalise(dataset.images), model.device)
        off = array_module(images).concatenate(outputs) - brightness(images)
        return {self.headline: float((off * off).mean())}


def brightness(images, join=None):
    """How much brighter each image is than the mean of all, (B, 1); `join` as for `F.gather_batch`."""
    own = images.mean((1, 2, 3))[:, None]
    everyone, _ = F.gather_batch(own, join)
    return own - everyone.mean()
