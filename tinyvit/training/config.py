"""All that is needed to repeat a run, as dataclasses; the command line is made from them."""

import json
from dataclasses import asdict, dataclass, field, is_dataclass
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from tinyvit.backend import check_device
from tinyvit.data import Augmentation as AugmentConfig
from tinyvit.data.images import RESAMPLE
from tinyvit.functional.levels import LEVELS
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models import ViTConfig, build
from tinyvit.nn.precision import PRECISIONS, check_precision
from tinyvit.optim import SCHEDULES
from tinyvit.training.freezing import frozen_parts
from tinyvit.training.init_config import InitConfig

DATASETS = ("digits", "cifar10", "cifar100", "folder")
OPTIMIZERS = ("adamw", "adam", "sgd", "adagrad", "muon")


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer, its schedule, and what it makes small."""

    name: Literal["adamw", "adam", "sgd", "adagrad", "muon"] = "adamw"
    """Which optimizer."""
    lr: float = 1e-3
    """Peak learning rate."""
    adam_lr: float = 1e-3
    """Peak learning rate of what Muon leaves to AdamW: all but the matrices of the blocks."""
    weight_decay: float = 0.05
    """Weight decay of the matrices; Adam, unlike AdamW, has none."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the moments of Adam and AdamW."""
    momentum: float = 0.9
    """Momentum of SGD; Muon's is 0.95."""
    nesterov: bool = False
    """Whether SGD looks ahead, as Nesterov does."""
    schedule: Literal["constant", "linear", "cosine", "one-cycle"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup: float = 0.1
    """Share of all steps in which the learning rate rises to its peak."""
    layer_decay: float = 1.0
    """What the learning rate is multiplied with from each block to the one before it."""
    clip_norm: float | None = 1.0
    """Global norm that gradients are clipped to; None clips nothing."""
    accumulate: int = 1
    """Parts that a batch goes through in one after the other, to save memory."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is evaluated and saved; None keeps none."""
    label_smoothing: float = 0.0
    """Probability that is spread evenly over all classes."""
    keep_patches: float = 1.0
    """Share of the patches that each step sees while fewer are seen: half of them take half of the time."""
    keep_until: float = 0.5
    """Share of all steps after which all patches are seen."""
    small_sizes: tuple[int, ...] = ()
    """Sides of the images while the model trains on smaller ones, one size after the other."""
    small_until: tuple[float, ...] = ()
    """Shares of all steps up to which the images have these sizes; after the last one they have their own."""

    def __post_init__(self):
        require(self.name in OPTIMIZERS, f"optim.name has to be one of {', '.join(OPTIMIZERS)}", self.name)
        require(0 < self.lr < float("inf"), "optim.lr has to be positive", self.lr)
        require(0 < self.adam_lr < float("inf"), "optim.adam-lr has to be positive", self.adam_lr)
        require(0 <= self.weight_decay < float("inf"), "optim.weight-decay has to be at least 0", self.weight_decay)
        require(len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas), "optim.betas are from 0 to 1", self.betas)
        require(0 <= self.momentum < 1, "optim.momentum is at least 0 and below 1", self.momentum)
        require(self.schedule in SCHEDULES, f"optim.schedule has to be one of {', '.join(SCHEDULES)}", self.schedule)
        require(0 <= self.warmup <= 1, "optim.warmup is a share from 0 to 1", self.warmup)
        require(0 < self.layer_decay <= 1, "optim.layer-decay is above 0 and at most 1", self.layer_decay)
        require(self.clip_norm is None or self.clip_norm > 0, "optim.clip-norm has to be positive", self.clip_norm)
        require(self.accumulate >= 1, "optim.accumulate has to be at least 1", self.accumulate)
        require(self.ema is None or 0 < self.ema < 1, "optim.ema is between 0 and 1", self.ema)
        require(0 <= self.label_smoothing < 1, "optim.label-smoothing is from 0 to 1", self.label_smoothing)
        require(0 < self.keep_patches <= 1, "optim.keep-patches is above 0 and at most 1", self.keep_patches)
        require(0 <= self.keep_until <= 1, "optim.keep-until is a share from 0 to 1", self.keep_until)
        require(
            len(self.small_sizes) == len(self.small_until),
            f"optim.small-until needs a share for each of the {len(self.small_sizes)} optim.small-sizes",
            self.small_until,
        )
        require(
            list(self.small_until) == sorted(self.small_until) and all(0 <= u <= 1 for u in self.small_until),
            "optim.small-until are shares from 0 to 1 in ascending order", self.small_until,
        )  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    dataset: Literal["digits", "cifar10", "cifar100", "folder"]
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
    """Folder or archive with the data; by default CIFAR is downloaded, and the digits are built in."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name, in this order; none named are all."""
    images: int | None = None
    """Train on so many images, equally many of each class, drawn by the seed; by default on all."""
    resize_images: bool = False
    """Whether images of another size than the model's are made to fit it."""
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"] = "bicubic"
    """How images are made to fit, those of a folder and those of another size: Pillow's names."""
    crop: float | None = 1.0
    """What is cut out of the middle of a folder's images: this share after the shorter side was made to fit; None cuts
    nothing and stretches images, as --resize-images then does, too."""
    mean: tuple[float, ...] = ()
    """Mean of each channel that images are normalised with, as a fraction of full scale; by default the data set's."""
    std: tuple[float, ...] = ()
    """Standard deviation of each channel likewise."""
    validation: float = 0.0
    """Share of the training images that is set aside and evaluated in place of the test images, for tuning."""
    device: str = "auto"
    """Where to train: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    precision: Literal["float32", "float64", "tf32", "bfloat16", "float16"] = "float32"
    """What is computed in. The last three are for GPUs, where they are several times as fast; weights stay float32."""
    threads: int | None = None
    """CPU threads; by default TINYVIT_THREADS, or as many as there are cores. More than that take turns."""
    recompute: bool = False
    """Whether to keep only each block's input for the backward and compute the rest again: less memory, more time."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed: by their plain text, by NumPy's kernels, or by those of the extra `fast`; by default
    TINYVIT_KERNELS, or the best that is installed."""
    evaluate_every: int = 1
    """Epochs from one evaluation to the next; the last epoch is always evaluated."""
    save_minutes: float = 2.0
    """Minutes after which a checkpoint is saved in the middle of an epoch; one is saved after each evaluation too."""
    tensorboard: bool = False
    """Whether to log to the run folder for TensorBoard (the extra `tensorboard`)."""
    freeze: str | None = None
    """What is left as it is: embed (patches, class token, positions), a number of blocks with the embedding, or trunk
    (all but the head)."""
    init: InitConfig = field(default_factory=InitConfig)
    """The weights to start from."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The optimizer."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """The augmentation."""

    def __post_init__(self):
        for name, known in (("dataset", DATASETS), ("precision", PRECISIONS)):
            got = getattr(self, name)
            require(got in known, f"{name} has to be one of {', '.join(known)}", repr(got))
        check_device(self.device)
        check_precision(self.precision, self.device)
        require(self.kernels in (None, *LEVELS), f"kernels has to be one of {', '.join(LEVELS)}", repr(self.kernels))
        for name in ("out", "data_dir"):
            require(getattr(self, name) != "", f"{name.replace('_', '-')} has to be a path", "nothing")
        require(self.epochs >= 1, "epochs has to be at least 1", self.epochs)
        require(self.batch_size >= 1, "batch-size has to be at least 1", self.batch_size)
        require(self.seed >= 0, "seed has to be at least 0", self.seed)
        require(0 <= self.validation < 1, "validation is a share from 0 to below 1", self.validation)
        require(self.images is None or self.images >= 1, "images has to be at least 1", self.images)
        require(self.threads is None or self.threads >= 1, "threads has to be at least 1", self.threads)
        for name in ("mean", "std"):
            values, channels = getattr(self, name), self.model.in_chans
            require(
                len(values) in (0, channels) and all(abs(value) < float("inf") for value in values),
                f"{name} is a number for each of {channels} channels", values,
            )  # fmt: skip
        require(self.resample in RESAMPLE, f"resample has to be one of {', '.join(RESAMPLE)}", repr(self.resample))
        require(
            self.crop is None or 0 < self.crop <= 1, "crop has to be above 0 and at most 1, or None", self.crop
        )  # fmt: skip
        require(
            self.dataset == "folder" or self.crop in (1, None),
            f"crop is of a folder's images; for {self.dataset} it is 1, or None to stretch them",
            self.crop,
        )  # fmt: skip
        require(len(self.mean) == len(self.std), "mean and std have to be given together", (self.mean, self.std))
        require(all(std > 0 for std in self.std), "std has to be positive", self.std)
        require(self.init.run != "", "init.run has to be a path", "nothing")
        if self.freeze is not None:
            frozen_parts(self.freeze, build(self.model, device="meta"))  # raises for what there isn't
        require(self.evaluate_every >= 1, "evaluate-every has to be at least 1", self.evaluate_every)
        require(self.save_minutes >= 0, "save-minutes has to be at least 0", self.save_minutes)
        require(
            self.model.positions != "rope" or self.optim.keep_patches == 1,
            "optim.keep-patches has to be 1 for positions 'rope', which are known by their place in the row",
            self.optim.keep_patches,
        )
        for side in self.optim.small_sizes:
            height, width = as_pair(self.model.img_size)
            require(0 < side <= min(height, width), f"optim.small-sizes are at most {min(height, width)}", side)
            grid_of((side, side), as_pair(self.model.patch_size))
        require(
            not self.optim.small_sizes or self.model.dynamic_img_size,
            "optim.small-sizes need tinyvit train's --model.dynamic-img-size", self.model.dynamic_img_size,
        )  # fmt: skip


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
    if origin in (UnionType, Union):  # what int | None is, and what Literal["a"] | None is
        return any(_fits(value, part) for part in parts)
    if origin is tuple and parts[-1] is Ellipsis:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)
