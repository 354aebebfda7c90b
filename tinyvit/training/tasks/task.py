"""The protocol of tasks, and the registry of their names.

A task is one file in this package: a subclass of `Task` with `@register`. It is imported when it is named, which
`NAMES` makes possible; nothing else changes.
"""

from dataclasses import dataclass
from functools import partial
from math import isfinite
from operator import attrgetter
from typing import NamedTuple

from tinyvit import functional as F
from tinyvit.keys import Key
from tinyvit.models import build
from tinyvit.nn import Context
from tinyvit.registry import Registry
from tinyvit.training.inference import forwards, sum_over
from tinyvit.validation import require, validate

NAMES = ("classification", "clip", "diffusion", "dino", "distillation", "mae", "masked-patches", "segmentation")
TASKS = Registry("task", {name: f"tinyvit.training.tasks.{name.replace('-', '_')}" for name in NAMES})

register, task_class = TASKS.register, TASKS.find  # @register("classification"); its class

@dataclass(frozen=True)
class Options:
    """The options of a task, none here; a task's own are a subclass."""

    def __post_init__(self):
        validate(self, "objective.")


class NotFinite(ValueError):
    """A figure or a logit is NaN or infinite: the weights are damaged or diverged."""


class Report(NamedTuple):
    """The output of `tinyvit evaluate`.

    figures   by name, as JSON
    rows      (name, text) of the table for a person
    text      what follows the table
    """

    figures: dict
    rows: list
    text: str = ""


class Task:
    """Defines the loss, the batch and the evaluation; made for one training or evaluation from its `TrainConfig`.

    part               what is evaluated: "test", or by default "validation" if images are set aside for that
    frozen             how many parts of the model, from the images on, are frozen
    total_steps        of the training, set by `begin`
    train              the `Dataset` that it learns from, set by `begin`; or has learned from, set before `evaluate` if
                       that needs it

    name               in the registry
    options            the dataclass of its own options, `config.objective`, `--objective.NAME` on the command line
    paths              names of those options that are runs, or None
    metrics            names of what `loss` reports, besides the loss
    score_names        names of what `evaluate` gives, without "test_"; the first is the headline's
    headings, shares   how figures are shown: short headings by name, and which names are shares, shown in percent
    higher_is_better   whether more of the headline is better
    mixes_samples      whether a sample's loss depends on the others: a batch is then never split
    exchanges          whether the parts of a batch exchange values in `loss`, by `ctx.join`; all are then computed at
                       the same time, and optim.accumulate does nothing
    gathers            whether its loss then gets what it needs of other ranks' samples by `F.gather_batch`
    needs_training_set whether `evaluate` needs the images that the model learned from, as `train`
    needs_classes      whether the model must have as many classes as the data set
    classifies         whether the model's output are the logits of classes
    labels_pixels      whether it learns from a label for each pixel, and not for each image; None: from neither
    static             whether `loss`, for batches of one shape, launches the same on a GPU at every step, or at those
                       that `graph_of` says: a CUDA graph can then replay it
    command            the command that is made for its models, where there is one
    evaluation_keys    of the draws with which each image is evaluated, such as which of its patches are hidden
    only               what fields of a `TrainConfig`, by their names, must be for this task
    """

    name = None
    options, paths = Options, ()
    metrics, score_names = (), ("loss",)
    headings, shares = {}, frozenset()
    higher_is_better = False
    mixes_samples = gathers = exchanges = False
    needs_training_set = needs_classes = False
    classifies = labels_pixels = False
    static = False
    command = None
    evaluation_keys = (Key(0),)
    only = {}  # noqa: RUF012 (only read)

    def __init__(self, config, part=None):
        self.config, self.frozen, self.total_steps, self.train = config, 0, 0, None
        self.part = part or ("validation" if config.validation else "test")

    # -- the model -------------------------------------------------------------------------------------------------

    @classmethod
    def check(cls, config):
        """Raise ValueError for a `TrainConfig` that can't be trained, such as one whose architecture can't serve."""
        for name, value in (cls.only | ({"optim.accumulate": 1} if cls.mixes_samples else {})).items():
            text, found = "none" if value is None else value, attrgetter(name)(config)
            require(found == value, f"{name.replace('_', '-')} must be {text} for the task {cls.name!r}", found)

    @classmethod
    def preset_changes(cls, architecture, model, optim):
        """The fields of a preset for another task that this one can't be trained with, and what takes their place."""
        return {}

    def build(self, seed=0, device="cpu", precision=None):
        """The module that learns: the configured model, or several under one module."""
        return build(self.config.model, seed, device=device, precision=precision)

    def backbone(self, model):
        """The configured model in what `build` made: features are read from it, and it is exported."""
        return model

    # -- a step ----------------------------------------------------------------------------------------------------

    def begin(self, model, total_steps, dataset):
        """Called once, before the first step and before `load_state`, with the `Dataset` to train on."""
        self.total_steps, self.train = total_steps, dataset

    def before_step(self, model, optimizer, step):
        """Called before step number `step`, from 0, to set what changes from step to step besides the learning rate."""

    def batch(self, images, targets, key):
        """The named arrays (B, …), on the device, that a step learns from.

        targets   labels (B,), or (B, K) probabilities where the augmentation mixes images
        key       the step's random stream, a `Key`
        """
        return {"images": images}

    def loss(self, model, batch, ctx):
        """(loss, backward, metrics), or (loss, backward, metrics, updates), as `train_step` wants them.

        updates   `nn.buffer_updates(cache)`, if the model updates buffers in training

        By default the mean error of the `predictions`.
        """
        predicted, targets, cache = self.predictions(model, batch, ctx)
        loss, error_backward = self.error(predicted, targets)

        def backward(dloss=1.0):
            return model.backward(error_backward(dloss), cache)

        return loss, backward, {}

    def graph_of(self, step):
        """Which of several CUDA graphs replays step number `step`, where `static` is true: any hashable value."""

    def after_step(self, model, step, applied):
        """Called after step number `step`, from 0; `applied`, on the device, is False if the step was skipped."""

    def state(self):
        """The state that checkpoints keep besides the model and the optimizer: arrays by name."""
        return {}

    def load_state(self, tensors):
        """Restore what `state` returned."""

    # -- evaluation ------------------------------------------------------------------------------------------------

    @property
    def headline(self):
        """The name of the figure that decides which weights are the best."""
        return f"{self.part}_{self.score_names[0]}"

    @property
    def scores(self):
        """The names of the figures that `evaluate` gives, the headline first. A name is "part_figure"."""
        return self.headline, *(f"{self.part}_{name}" for name in self.score_names[1:])

    @property
    def columns(self):
        """The figures that are shown of an epoch."""
        return ["train_loss", *(f"train_{name}" for name in self.metrics), *reversed(self.scores)]

    def evaluate(self, model, dataset, threads=None, stop=None):
        """The `scores` of a model on a `Dataset`, by name; None if `stop` became true meanwhile.

        By default the mean error of the `predictions` for all images, each with the draws of the `evaluation_keys`.
        """
        total = seen = 0
        for images, labels in forwards(self.backbone(model), dataset):
            for key in self.evaluation_keys:
                if stop:
                    return None
                error = sum_over(images, partial(self.error_of, model, labels, key.skip(seen)))
                total = total + error / len(self.evaluation_keys)
            seen += len(images)
        return {self.headline: float(total) / seen}

    def predictions(self, model, batch, ctx):
        """The predictions of the model for a batch, the targets, and the model's cache."""
        raise NotImplementedError(f"the task {self.name!r} has no predictions")

    def error(self, predicted, targets):
        """(the mean error of predictions, the function dloss -> dpredicted): of squares, unless a task has another."""
        error, cache = F.mean_squared_error(predicted, targets)
        return error, lambda dloss: F.mean_squared_error_backward(dloss, cache)

    def error_of(self, model, labels, key, images, where):
        """The sum of the errors of images[where], as `sum_over` wants it."""
        with model.storage.on_device():
            batch = self.batch(images[where], labels[where], key.skip(where.start))
            predicted, targets, _ = self.predictions(model, batch, Context(keep_caches=False))
            return self.error(predicted, targets)[0] * (where.stop - where.start)

    def hint(self):
        """Advice that is printed before the training starts, a sentence, or None."""

    def warning(self, scores):
        """A sentence that says what is wrong with a model that has these `scores`, or None."""

    def reconstruct(self, model, images):
        """Images (B, C, H, W), as the model reads them, twice: with patches hidden, and with guesses in their places.

        Raises ValueError for a task whose model has no decoder.
        """
        raise ValueError(f"the task {self.name!r} trains no decoder that could reconstruct images")

    def report(self, model, dataset, threads=None, tta=False, confusion=None):
        """The `Report` of a model on a `Dataset`; ValueError for what this task doesn't have."""
        for option, value in (("--tta", tta), ("--confusion", confusion)):
            if value:
                raise ValueError(f"{option} needs a classifier, and the task of this run is {self.name!r}")
        scores = {name: float(score) for name, score in self.evaluate(model, dataset, threads).items()}
        for name, value in scores.items():
            if not isfinite(value):
                raise NotFinite(f"{name} is NaN or infinite: the weights are damaged or diverged")
        rows = [(name.replace("_", " "), self.format_score(name, scores[name])) for name in self.scores]
        warning = self.warning(scores)
        return Report(scores, rows, "" if warning is None else f"\n\n{warning}")

    def is_share(self, name):
        """Whether a figure, as "test_accuracy", is a share from 0 to 1."""
        return name.partition("_")[2] in self.shares

    def format_score(self, name, value):
        """A figure as text; a dash where there is none."""
        if value is None:
            return "–"
        if self.is_share(name):
            return f"{100 * value:.2f} %"
        return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.2e}"

    def heading(self, name):
        """The heading of a figure's column."""
        part, _, figure = name.partition("_")
        return f"{'valid.' if part == 'validation' else part} {self.headings.get(figure, figure)}"
