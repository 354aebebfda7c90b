"""Distillation: a classifier that learns from the labels and from a trained teacher.

Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention", section 4.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_device
from tinyvit.files import digest
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import require_classes
from tinyvit.nn import buffer_updates
from tinyvit.tensors import tensor_bytes
from tinyvit.training.tasks.classification import Classification, classify
from tinyvit.training.tasks.task import Options, register
from tinyvit.training.trained import load_trained, require_classifier
from tinyvit.validation import Range, Share


@dataclass(frozen=True)
class DistillationOptions(Options):
    """The teacher, and how much the student learns from it."""

    teacher: str | None = None
    """Run folder of the teacher, or the name of a model that comes with tinyvit: a classifier of the same classes. Its
    last weights are taken and stay as they are."""
    kind: Literal["hard", "soft"] = "hard"
    """The target that the teacher gives: hard, the class that it predicts; soft, its probabilities."""
    share: Share = 0.5
    """Share λ of the loss that comes from the teacher; the rest comes from the labels."""
    temperature: Annotated[float, Range(0, 1000, above=True, words="a number above 0 and at most 1,000")] = 3.0
    """Temperature τ of the probabilities, for kind soft."""


@register("distillation")
class Distillation(Classification):
    """Cross-entropy with the labels and, of the head on the distillation token, with a teacher:

        hard   L = (1 − λ) CE(z_cls, y) + λ CE(z_dist, argmax z_t)                       eq. 3
        soft   L = (1 − λ) CE(z_cls, y) + λ τ²/K KL(softmax(z_t / τ) ‖ softmax(z_dist / τ))  eq. 2

    with the mean over the K classes as in the paper's code, see `functional.distillation`. A model with one head learns
    both by it. The teacher sees what the student sees, mixed images included, as it normalises them.
    optim.label-smoothing is for the labels alone.
    """

    options, paths = DistillationOptions, ("teacher",)
    metrics = ("accuracy", "agreement")
    headings, shares = {"accuracy": "acc.", "agreement": "as teacher"}, frozenset({"accuracy", "agreement"})

    only = {"optim.keep_patches": 1}  # noqa: RUF012 (only read)

    def begin(self, model, total_steps, dataset):
        super().begin(model, total_steps, dataset)
        self.teacher, self.renormalise, self.sha256 = load_teacher(self.config, dataset, model.device)

    def batch(self, images, targets, key):
        factor, offset = self.renormalise
        seen = (images * factor + offset).astype(images.dtype)
        logits = classify(self.teacher, F.cast(seen, self.teacher.dtype), self.config.threads)
        return {"images": images, "targets": targets, "teacher": logits}

    def loss(self, model, batch, ctx):
        o, targets, theirs = self.config.objective, batch["targets"], batch["teacher"]
        require_classes(model)
        two = hasattr(model, "logits_by_head")
        logits, cache = model.logits_by_head(batch["images"], ctx) if two else model(batch["images"], ctx)
        cls, dist = logits if two else (logits, logits)
        predicted = theirs.argmax(1)
        by_labels, c_labels = F.cross_entropy(cls, targets, self.config.optim.label_smoothing)
        if o.kind == "hard":
            by_teacher, c_teacher = F.cross_entropy(dist, predicted)
        else:
            by_teacher, c_teacher = F.distillation(dist, theirs, o.temperature)

        def backward(dloss=1.0):
            dcls = F.cross_entropy_backward((1 - o.share) * dloss, c_labels)
            of_teacher = F.cross_entropy_backward if o.kind == "hard" else F.distillation_backward
            ddist = of_teacher(o.share * dloss, c_teacher)
            return model.backward((dcls, ddist) if two else dcls + ddist, cache)

        loss = (1 - o.share) * by_labels + o.share * by_teacher
        labels, scores = targets if targets.ndim == 1 else targets.argmax(1), F.cast(cls + dist, loss.dtype)
        chosen = scores.argmax(1)
        metrics = {"accuracy": (chosen == labels).mean(dtype=loss.dtype),
                   "agreement": (chosen == predicted).mean(dtype=loss.dtype)}  # fmt: skip
        return loss, backward, metrics, buffer_updates(cache)

    def state(self):
        """The SHA256 of the teacher's weights, so that a training goes on with the teacher that it began with."""
        return {"teacher_sha256": np.frombuffer(bytes.fromhex(self.sha256), "uint8").astype("float32")}

    def load_state(self, tensors):
        found = bytes(tensors["teacher_sha256"].astype("uint8")).hex()
        if found != self.sha256:
            raise ValueError(
                f"{self.config.objective.teacher} holds other weights than those that this training began with (SHA256 "
                f"{self.sha256}, not {found}); bring them back, or start a new run"
            )


def load_teacher(config, dataset, device):
    """The teacher of a TrainConfig, the factor and the offset, (C, 1, 1) each, by which its images differ from the
    student's, and the SHA256 of its weights.

    Raises ValueError for a run that can't be read, that isn't a classifier of the data set's classes, or that can't
    read the student's images.
    """
    path = config.objective.teacher
    if path is None:
        raise ValueError("distillation needs a teacher: give the folder of a trained run by --objective.teacher")
    trained = load_trained(path, device)
    require_classifier(trained)
    teacher, known = trained.model, trained.preprocessing
    if known.classes != dataset.classes:
        raise ValueError(
            f"the teacher in {path} tells other classes apart: {list(known.classes)}, and the data set has "
            f"{list(dataset.classes)}"
        )
    sizes = as_pair(config.model.img_size), *((side, side) for side in config.optim.small_sizes)
    for shape in ((config.model.in_chans, *size) for size in sizes):
        try:
            classify(teacher, to_device(np.zeros((1, *shape), teacher.dtype), device), 1)
        except ValueError as error:
            raise ValueError(
                f"the teacher in {path} can't read the student's images {shape} (channels, height, width): {error}"
            ) from error
    # What is normalised for the student is so for the teacher by (x σ + μ − μ_t) / σ_t.
    mean, std, their_mean, their_std = (
        np.asarray(values, "float64")[:, None, None] for values in (dataset.mean, dataset.std, known.mean, known.std)
    )
    factors = std / their_std, (mean - their_mean) / their_std
    renormalise = tuple(to_device(x.astype(teacher.dtype), device) for x in factors)
    return teacher, renormalise, digest(tensor_bytes(teacher.state_dict()))
