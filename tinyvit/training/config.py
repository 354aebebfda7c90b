"""All that is needed to repeat a run, as dataclasses; the command line is made from them."""

import json
from dataclasses import asdict, dataclass, field, is_dataclass
from types import UnionType
from typing import Literal, get_args, get_origin, get_type_hints

from tinyvit.models import ViTConfig
from tinyvit.optim import SCHEDULES


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedule."""

    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.05
    """Weight decay of the matrices."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW's moments."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup: float = 0.1
    """Share of all steps in which the learning rate rises to its peak."""
    clip_norm: float | None = 1.0
    """Global norm that gradients are clipped to; None clips nothing."""
    label_smoothing: float = 0.0
    """Probability that is spread evenly over all classes."""

    def __post_init__(self):
        require(0 < self.lr < float("inf"), "optim.lr has to be positive", self.lr)
        require(0 <= self.weight_decay < float("inf"), "optim.weight_decay has to be at least 0", self.weight_decay)
        require(len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas), "optim.betas are from 0 to 1", self.betas)
        require(self.schedule in SCHEDULES, f"optim.schedule has to be one of {', '.join(SCHEDULES)}", self.schedule)
        require(0 <= self.warmup <= 1, "optim.warmup is a share from 0 to 1", self.warmup)
        require(self.clip_norm is None or self.clip_norm > 0, "optim.clip_norm has to be positive", self.clip_norm)
        require(0 <= self.label_smoothing < 1, "optim.label_smoothing is from 0 to 1", self.label_smoothing)


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes to the training images."""

    crop: int = 0
    """Pixels by which an image is shifted at most, in each direction."""
    flip: bool = False
    """Whether half of the images are mirrored left to right."""

    def __post_init__(self):
        require(self.crop >= 0, "augment.crop has to be at least 0", self.crop)


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    dataset: Literal["digits", "cifar10", "folder"]
    """What is learned."""
    model: ViTConfig
    """The shape of the model."""
    out: str | None = None
    """Folder for the run; by default runs/PRESET, with a number behind it if that is taken."""
    seed: int = 0
    """Seed of everything random: weights, order, augmentation, dropout."""
    epochs: int = 10
    """Passes over the training images."""
    batch_size: int = 128
    """Images in a step."""
    data_dir: str | None = None
    """Folder or archive with the data; the digits are built in."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: auto takes a GPU if one works."""
    precision: Literal["float32", "float64"] = "float32"
    """Number format of weights and activations."""
    threads: int | None = None
    """CPU threads; by default TINYVIT_THREADS, or as many as there are cores."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The optimizer."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """The augmentation."""

    def __post_init__(self):
        require(self.epochs >= 1, "epochs has to be at least 1", self.epochs)
        require(self.batch_size >= 1, "batch-size has to be at least 1", self.batch_size)
        require(self.seed >= 0, "seed has to be at least 0", self.seed)
        require(self.threads is None or self.threads >= 1, "threads has to be at least 1", self.threads)


def require(holds, expected, got):
    if not holds:
        raise ValueError(f"{expected}, got {got}")


def to_json(config):
    """A configuration as JSON text."""
    return json.dumps(asdict(config), indent=2) + "\n"


def from_json(text, source):
    """A TrainConfig from its JSON text; ValueError, naming `source`, if the text isn't one."""
    try:
        return _build(TrainConfig, json.loads(text))
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a tinyvit configuration: {error}") from error


def _build(cls, values):
    """A dataclass from what JSON holds: tuples are lists there, and nothing has kept to its type."""
    if not isinstance(values, dict):
        raise ValueError(f"expected the fields of {cls.__name__}, got {values!r}")
    hints = get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"unknown fields {', '.join(unknown)}")
    built = {}
    for name, value in values.items():
        if is_dataclass(hints[name]):
            value = _build(hints[name], value)
        value = tuple(value) if isinstance(value, list) else value
        if not _fits(value, hints[name]):
            raise ValueError(f"{name} can't be {value!r}")
        built[name] = value
    return cls(**built)


def _fits(value, hint):
    """Whether a value is of an annotated type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in parts
    if origin is UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)
