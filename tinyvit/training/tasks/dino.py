"""DINO: a ViT that learns to say the same of an image's parts as its teacher, its own moving average, of the whole.

Caron et al. 2021, "Emerging properties in self-supervised vision transformers".
"""

from dataclasses import dataclass, replace
from math import cos, log, pi
from typing import Annotated

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import constant, device_of, to_device, to_numpy
from tinyvit.data import views
from tinyvit.functional.patches import as_pair
from tinyvit.models.dino import Dino
from tinyvit.models.vit_config import without_classes
from tinyvit.training.feature_classifiers import nearest_neighbours
from tinyvit.training.features import features
from tinyvit.training.tasks.task import Options, Task, register
from tinyvit.validation import (
    Count,
    NotNegative,
    Positive,
    PositiveInt,
    PositiveShare,
    Range,
    Rate,
    Share,
    require,
)

MAX_LABELLED_IMAGES = 10_000  # training images among which the nearest neighbours are looked for
COLLAPSED = 0.02   # less information than this share of log K about an image is a collapse


@dataclass(frozen=True)
class DinoOptions(Options):
    """The views, the head, and the teacher."""

    small_crops: Count = 4
    """Small crops of each image, besides the two large ones."""
    small_side: PositiveInt | None = None
    """Side of the small crops in pixels, a multiple of the patches'; by default half of the image's."""
    scales: tuple[PositiveShare, PositiveShare, PositiveShare] = (0.1, 0.4, 1.0)
    """Shares of the image's area: small crops cover the first to the second, large ones that to the third."""
    colour: Share = 0.4
    """How far brightness and contrast change; saturation changes half as much."""
    prototypes: PositiveInt = 1024
    """Outputs of the head (K)."""
    hidden: PositiveInt = 512
    """Width of the head's hidden layers."""
    bottleneck: PositiveInt = 128
    """Width of the vectors that are compared with the prototypes."""
    temperature: Positive = 0.1
    """Temperature of the student's probabilities."""
    teacher_temperatures: tuple[Positive, Positive] = (0.04, 0.04)
    """Temperature of the teacher's at the first step, and from the end of the learning rate's warm-up on."""
    centring: bool = True
    """Whether the mean of the teacher's logits is taken off them."""
    centre_momentum: Rate = 0.9
    """Decay of that mean, a moving average."""
    momentum: Annotated[float, Range(0, 1)] = 0.996
    """Decay of the teacher, a moving average of the student, at the first step; it rises to 1 by half a cosine."""
    final_weight_decay: NotNegative = 0.4
    """Weight decay of the last step, reached from optim.weight-decay by half a cosine."""
    frozen_last: Share = 0.01
    """Share of the steps, the first ones, in which the head's last layer stays as it is."""

    def __post_init__(self):
        super().__post_init__()
        require(list(self.scales) == sorted(self.scales), "objective.scales must be in ascending order", self.scales)


@register("dino")
class SelfDistillation(Task):
    """The cross-entropy of the student's prototypes for one view of an image with the teacher's for another.

    The teacher sees the two large crops, the student these and the small ones: `functional.dino_loss`. No labels are
    used in training. Evaluated is the teacher: the share of test images that are classified correctly by the nearest
    neighbours of their features among training images; and two figures that show a collapse, shares of log K. The
    entropy of an image's prototypes, near 100 % if they are all the same; and how far all prototypes are used, the
    entropy of the mean over the images, near 0 if it is one alone. Their difference is what is said about an image.

    What is evaluated, exported and fine-tuned is the teacher's ViT, without a head.
    """

    options = DinoOptions
    metrics, score_names = ("entropy",), ("knn", "entropy", "usage")
    headings, shares = {"knn": "k-NN", "usage": "used"}, frozenset(score_names)
    higher_is_better = True
    needs_training_set = True
    # The teacher is a moving average already.
    only = {"architecture": "vit", "optim.ema": None, "freeze": None, "optim.keep_patches": 1}  # noqa: RUF012

    def __init__(self, config, part=None):
        super().__init__(config, part)
        self.teacher_temperature = config.objective.teacher_temperatures[1]

    @classmethod
    def check(cls, config):
        super().check(config)
        o, patch = config.objective, as_pair(config.model.patch_size)
        require(config.model.dynamic_img_size or not o.small_crops,
                "small crops need a model for images of any size, --model.dynamic-img-size", False)  # fmt: skip
        for size in (as_pair(config.model.img_size), *((side, side) for side in config.optim.small_sizes)):
            require(size[0] == size[1], "the task 'dino' needs square images", size)
            if o.small_crops:
                side = small_side(o, size)
                require(side <= size[0], f"objective.small-side must be at most the images' {size[0]}", side)
                require(side % patch[0] == 0 and side % patch[1] == 0,
                        f"objective.small-side must be a multiple of the patches' sides {patch}", side)  # fmt: skip

    @classmethod
    def preset_changes(cls, architecture, model, optim):
        model = replace(model, dynamic_img_size=True) if architecture == "vit" else model
        return {"model": model, "optim": replace(optim, ema=None)}

    def build(self, seed=0, device="cpu", precision=None):
        o = self.config.objective
        head = o.prototypes, o.hidden, o.bottleneck
        return Dino(without_classes(self.config.model), *head, o.centring, o.centre_momentum, seed, device=device,
                    precision=precision)  # fmt: skip

    def backbone(self, model):
        return model.teacher.backbone

    # -- a step ----------------------------------------------------------------------------------------------------

    def begin(self, model, total_steps, dataset):
        super().begin(model, total_steps, dataset)
        with model.storage.on_device():
            for theirs, own in model.pairs():  # both start alike: with the weights of another run, if there is one
                own.data[...] = theirs.data
                own.lr_scale = theirs.lr_scale

    def before_step(self, model, optimizer, step):
        o, optim = self.config.objective, self.config.optim
        first, last = o.teacher_temperatures
        rising = min(1, step / max(1, round(optim.warmup * self.total_steps)))
        self.teacher_temperature = first + (last - first) * rising
        optimizer.weight_decay = half_cosine(optim.weight_decay, o.final_weight_decay, step, self.total_steps)
        model.student.head.last.weight.trainable = step >= o.frozen_last * self.total_steps

    def batch(self, images, targets, key):
        o, (B, channels, *size) = self.config.objective, images.shape
        data, device = self.train, device_of(images)
        mean, std = (constant(np.array(x)[:, None, None] * 255, device, images.dtype) for x in (data.mean, data.std))
        levels = images * std + mean
        smallest, middle, largest = o.scales
        made = {"large": (2, size[0], middle, largest)}
        if o.small_crops:
            made["small"] = (o.small_crops, small_side(o, size), smallest, middle)
        for name, (count, side, low, high) in made.items():
            uniform = key.at(f"views.{name}").uniform((B, count, 11))
            crops = views.resized_crops(levels, views.random_boxes(uniform[..., :4], low, high),
                                        uniform[..., 4] < 0.5, side)  # fmt: skip
            second = np.tile(np.arange(count) == 1, B) & (name == "large")
            crops = views.recolour(crops.reshape(B * count, channels, side, side), uniform[..., 5:].reshape(-1, 6),
                                   o.colour, second)  # fmt: skip
            made[name] = ((crops - mean) / std).reshape(B, count, channels, side, side)
        return made

    def loss(self, model, batch, ctx):
        o = self.config.objective
        targets, theirs = model.targets(batch["large"], self.teacher_temperature)
        logits, cache = model.student(list(batch.values()), ctx)
        loss, c_loss = F.dino_loss(logits, targets, o.temperature)

        def backward(dloss=1.0):
            return model.student.backward(F.dino_loss_backward(dloss, c_loss), cache)

        metrics = {"entropy": entropy(targets).mean(dtype=loss.dtype)}
        return loss, backward, metrics, [model.new_centre(theirs)]

    def after_step(self, model, step, applied):
        model.move_teacher(half_cosine(self.config.objective.momentum, 1, step, self.total_steps), applied)

    # -- evaluation ------------------------------------------------------------------------------------------------

    def evaluate(self, model, dataset, threads=None, stop=None):
        backbone, found, labelled = self.backbone(model), [], self.train
        if len(labelled) > MAX_LABELLED_IMAGES:
            labelled = labelled.subset(np.random.default_rng(0).permutation(len(labelled))[:MAX_LABELLED_IMAGES])
        for part in (labelled, dataset):
            if stop:
                return None
            found.append((features(backbone, part, threads=threads), part.labels))
        knn = nearest_neighbours(*found, k=min(20, len(labelled)))
        with model.storage.on_device():
            logits, _ = model.teacher.head(to_device(found[1][0], model.device))
            probs, _ = F.softmax((F.cast(logits, model.dtype) - model.centre.data) * (1 / self.teacher_temperature))
            figures = entropy(probs).mean(), entropy(probs.mean(0))
        return dict(zip(self.scores, (knn.accuracy, *(float(to_numpy(figure)) for figure in figures))))

    def hint(self):
        if self.config.init.run is None:
            return ("from random weights DINO takes far longer to learn than from those of another run, such as one of "
                    "cifar10-mae (--init.run RUN)")  # fmt: skip
        return None

    def warning(self, scores):
        """The name of a collapse, where the teacher says the same of all images; else None."""
        _, own, used = (scores[name] for name in self.scores)
        if used - own > COLLAPSED:
            return None
        kind = "the uniform distribution" if own > 0.9 else "one prototype" if used < 0.1 else "one distribution"
        return (
            f"collapse to {kind}: the teacher says the same of every image (entropy of an image's prototypes "
            f"{self.format_score(self.scores[1], own)} of log K, of their mean "
            f"{self.format_score(self.scores[2], used)})"
        )


def small_side(options, size):
    """The side of the small crops of images of a size (H, W)."""
    return size[0] // 2 if options.small_side is None else options.small_side


def half_cosine(first, last, step, total):
    """From `first` at step 0 to `last` after `total` steps, by half a cosine."""
    return last + (first - last) * 0.5 * (1 + cos(pi * step / max(1, total)))


def entropy(probs):
    """−Σ p log p / log K of probabilities (..., K): from 0, where one is certain, to 1, where all are equal."""
    xp = array_module(probs)
    tiny = xp.finfo(probs.dtype).tiny
    return -(probs * xp.log(xp.maximum(probs, tiny))).sum(-1) / max(log(probs.shape[-1]), 1e-12)
