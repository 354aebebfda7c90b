"""The configuration of a run, as dataclasses; the command line is made from them."""

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, get_type_hints

from tinyvit.backend import check_device
from tinyvit.data import Augmentation as AugmentConfig
from tinyvit.data.dataset import Resample
from tinyvit.functional.patches import as_pair
from tinyvit.models import build, config_class
from tinyvit.models.architecture import size_read
from tinyvit.models.registry import ARCHITECTURES
from tinyvit.nn.precision import check_precision
from tinyvit.text import list_names
from tinyvit.training.tasks import task_class
from tinyvit.validation import (
    Count,
    Finite,
    NotNegative,
    Positive,
    PositiveInt,
    PositiveShare,
    Range,
    Rate,
    Share,
    require,
    validate,
)


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer, its schedule and its loss."""

    name: Literal["adamw", "adam", "sgd", "adagrad", "muon"] = "adamw"
    """The optimizer's name."""
    lr: Positive = 1e-3
    """Peak learning rate."""
    adam_lr: Positive = 1e-3
    """Peak learning rate of AdamW beside Muon, for everything but the matrices of the blocks."""
    filter_lr: Positive | None = None
    """Peak learning rate of Muon for the filters of convolutions; by default that of the matrices."""
    weight_decay: NotNegative = 0.05
    """Weight decay of the weight matrices; unlike AdamW, Adam has none."""
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    """Decay rates of the moments of Adam and AdamW."""
    momentum: Rate = 0.9
    """Momentum of SGD; Muon's is 0.95."""
    nesterov: bool = False
    """Whether SGD uses Nesterov momentum."""
    schedule: Literal["constant", "linear", "cosine", "one-cycle"] = "cosine"
    """How the learning rate falls after the warm-up."""
    warmup: Share = 0.1
    """Share of all steps in which the learning rate rises to its peak."""
    layer_decay: PositiveShare = 1.0
    """Factor by which each block's learning rate is smaller than the next block's."""
    clip_norm: Positive | None = 1.0
    """Largest global norm of the gradients, above which they are scaled down; None never clips."""
    clip_each: Positive | None = None
    """Largest norm of each parameter's own gradient, likewise, before the global norm is taken; None never clips."""
    accumulate: PositiveInt = 1
    """Number of parts that a batch is split into, computed one after the other to save memory."""
    ema: Annotated[float, Range(0, 1, above=True, below=True, words="a number above 0 and below 1")] | None = None
    """Decay of the moving average of the weights, which is evaluated and saved instead; None keeps no average."""
    label_smoothing: Rate = 0.0
    """Label smoothing: the probability that the target spreads evenly over all classes."""
    keep_patches: PositiveShare = 1.0
    """Share of the patches that a classifier sees at first; with half of them a step takes half the time."""
    keep_until: Share = 0.5
    """Share of all steps after which it sees all patches."""
    small_sizes: tuple[PositiveInt, ...] = ()
    """Smaller image sizes to train on first, one after the other."""
    small_until: tuple[Share, ...] = ()
    """Share of all steps at which each of these sizes ends; after the last the images have their full size."""

    def __post_init__(self):
        validate(self, "optim.")
        sizes, until = self.small_sizes, self.small_until
        require(len(sizes) == len(until), f"optim.small-until must have a share for each of {len(sizes)} sizes", until)
        require(list(until) == sorted(until), "optim.small-until must be in ascending order", until)


@dataclass(frozen=True)
class InitConfig:
    """The weights that a training starts from; they are drawn by the seed if no run is named."""

    whiten: bool = False
    """Whether the filters that read the images start as those that whiten the patches of the training images: their
    principal components, each divided by its standard deviation. In short trainings that saves a third of the time."""

    run: str | None = None
    """Run folder, or the name of a model that comes with tinyvit, whose weights the model starts from, all but the
    head's. The folder is needed until the first checkpoint."""
    best: bool = False
    """Whether to take the run's best weights instead of its last."""
    resize_positions: Literal["bilinear", "bicubic", "zoom"] = "bicubic"
    """How positions, sines and cosines too, are resized for images of another size when the training begins: as Hugging
    Face's ViT does it (bicubic), or the paper's code (zoom). The forward resizes for other sizes by
    model.resize_positions."""
    inflate: Literal["central", "average"] = "central"
    """How a model of videos takes over the filters of one of images: as those of the frame in the middle of a tubelet,
    or spread evenly over its frames."""
    sha256: str | None = None
    """SHA256 of these weights, as a safetensors file; noted when they are first read, and others are refused."""

    def __post_init__(self):
        validate(self, "init.")
        if self.whiten and self.run:
            raise ValueError("init.whiten is for weights that are drawn by the seed, not for those of init.run")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options common to `tinyvit train` and `tinyvit finetune`."""

    out: str | None = None
    """Folder for the run, by default in runs/, with a number after its name if that is taken. tinyvit train --resume
    FOLDER goes on with a run that was stopped."""
    seed: Count = 0
    """Seed for everything random: weights, chosen images, order, augmentation, dropout."""
    epochs: PositiveInt = 10
    """Passes over the training images."""
    batch_size: PositiveInt = 128
    """Images per step."""
    data_dir: str | None = None
    """Folder or archive with the data; by default CIFAR is downloaded, and the digits are built in."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name, in this order; by default all."""
    images: PositiveInt | None = None
    """Train on this many images, equally many of each class, drawn by the seed; by default on all."""
    validation: Rate = 0.0
    """Share of the training images that is set aside and evaluated in place of the test images, for tuning."""
    device: str = "auto"
    """The device to train on: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    precision: Literal["auto", "float32", "float64", "tf32", "bfloat16", "float16"] = "auto"
    """Number format. The last three are for GPUs, where they are several times as fast; weights stay float32. auto is
    bfloat16 on a GPU that has it, float16 on one with tensor cores that hasn't, and float32 elsewhere."""
    threads: PositiveInt | None = None
    """CPU threads; by default TINYVIT_THREADS, or as many as there are cores. More than that take turns."""
    distributed: Literal["auto", "mpi", "nccl", "none"] = "auto"
    """How several processes train one model: auto notices mpiexec and srun, and adds up gradients by NCCL on GPUs and
    by MPI elsewhere; mpi and nccl say so outright; none trains in each process by itself."""
    recompute: bool = False
    """Whether to keep only each block's input for the backward and recompute the rest: less memory, more time."""
    cuda_graph: bool | Literal["auto"] = "auto"
    """Whether to capture a step's launches on a GPU once and to start them together from then on, as a CUDA graph: the
    same bits, and the host has little to do; memory of a step and of an evaluation are held at the same time. auto does
    so wherever the steps can be captured."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed: by their reference implementation, by NumPy's kernels, or by those of the extra
    `fast`; by default TINYVIT_KERNELS, or the best that is installed."""
    evaluate_every: PositiveInt = 1
    """Epochs from one evaluation to the next; the last epoch is always evaluated."""
    save_minutes: NotNegative = 2.0
    """Minutes after which a checkpoint is saved in the middle of an epoch; one is saved after each evaluation too."""
    tensorboard: bool = False
    """Whether to log to the run folder for TensorBoard (the extra `tensorboard`)."""
    freeze: str | None = None
    """Parts that are not trained: embed (the model's first part), a number of blocks with the embedding, or trunk (all
    but the head)."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """The optimizer."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """The augmentation."""


def check_device_options(config, device, ranks=1, kernels=None):
    """Raise ValueError for a `TrainConfig` that asks for NCCL on the CPU, or for CUDA graphs of steps which can't be
    captured."""
    if config.distributed == "nccl" and device == "cpu":
        raise ValueError("--distributed nccl needs a GPU for each rank, and this training is on the CPU; take mpi")
    if config.cuda_graph is True and (reason := why_no_graph(config, device, ranks, kernels)):
        raise ValueError(f"--cuda-graph {reason}")


def why_no_graph(config, device, ranks=1, kernels=None):
    """Why the steps of a training can't be replayed as CUDA graphs, or None if nothing is known to be in the way."""
    refused = {
        "needs a GPU, and this training is on the CPU": device == "cpu",
        f"is for one process, and this training has {ranks}, which exchange gradients in each step": ranks > 1,
        f"is not for the task {config.task!r}, whose steps can't be captured": not task_class(config.task).static,
        "is not for --kernels reference, as CuPy's own products can't be captured": kernels == "reference",
        "is not for float64, as CuPy's own products can't be captured": config.precision == "float64",
        "is not for optim.small-sizes, as resizing positions can't be captured": config.optim.small_sizes,
        "is not for model.row-tokens, as each batch has other sizes of images": callable(size_read(config.model)),
    }
    return next((reason for reason, holds in refused.items() if holds), None)


def check_served(architecture, task):
    """Raise ValueError for an architecture that can't serve a task."""
    cls, config = ARCHITECTURES.find(architecture)
    served = not task.classifies or cls.task == "classification"
    reason = None if served else cls.why_no_classes or f"it is for the task {cls.task!r}"
    if task.needs_classes and "num_classes" not in config.__dataclass_fields__:
        reason = reason or "it has no num_classes"
    if reason:
        raise ValueError(f"the architecture {architecture!r} can't serve the task {task.name!r}: {reason}")


@dataclass(frozen=True)
class TrainConfig(RunOptions):
    """A training run."""

    dataset: Literal[
        "digits", "moving-digits", "coloured-digits", "segment-digits", "sized-digits", "cifar10", "cifar100", "folder"
    ]
    """The data set."""
    model: Any
    """The shape of the model: the configuration of its architecture."""
    architecture: str = "vit"
    """The model's architecture; for another one than the preset's, the options of the model have its own defaults."""
    task: str = "classification"
    """The task that the model learns."""
    objective: Any = None
    """The task's own options; by default its defaults."""
    resize_images: bool = False
    """Whether to resize images whose size isn't the model's."""
    resample: Resample = "bicubic"
    """How images are resized, by Pillow's names."""
    crop: PositiveShare | None = 1.0
    """Share that a centre crop keeps of a folder's images, after the shorter side was resized to fit; None stretches
    images instead of cropping them, as --resize-images then does, too."""
    mean: tuple[Finite, ...] = ()
    """Mean of each channel for normalisation, as a fraction of full scale; by default the data set's."""
    std: tuple[Positive, ...] = ()
    """Standard deviation of each channel for normalisation, likewise."""
    init: InitConfig = field(default_factory=InitConfig)
    """The weights to start from."""

    def __post_init__(self):
        task = task_class(self.task)
        if self.objective is None:
            object.__setattr__(self, "objective", task.options())
        validate(self, "")
        check_device(self.device)
        check_precision(self.precision, self.device)
        check_device_options(self, self.device)
        self.check_model(task)
        self.check_images()

    def check_model(self, task):
        """Raise ValueError for a model or options of another class, and for a task that the model can't serve."""
        for name, expected in (("model", config_class(self.architecture)), ("objective", task.options)):
            found = type(getattr(self, name))
            if found is not expected:
                owner = f"architecture {self.architecture!r}" if name == "model" else f"task {self.task!r}"
                raise ValueError(f"{name} must be a {expected.__name__} for the {owner}, got a {found.__name__}")
        check_served(self.architecture, task)
        task.check(self)
        if self.freeze is not None:
            from tinyvit.training.freezing import frozen_parts

            frozen_parts(self.freeze, build(self.model, device="meta"))

    def check_images(self):
        """Raise ValueError for a size or a preprocessing of images that doesn't fit the model or the data set."""
        channels, smallest = self.model.in_chans, min(as_pair(self.model.img_size))
        for name in ("mean", "std"):
            values = getattr(self, name)
            require(len(values) in (0, channels), f"{name} must be a number for each of {channels} channels", values)
        require(len(self.mean) == len(self.std), "mean and std must be given together", (self.mean, self.std))
        require(
            self.dataset == "folder" or self.crop in (1, None),
            f"crop is for the images of a folder; for {self.dataset} it must be 1, or None to stretch them", self.crop,
        )  # fmt: skip
        if callable(size_read(self.model)):
            require(self.task == "classification", "model.row-tokens is for the task 'classification'", self.task)
            require(not self.resize_images, "resize-images is not for model.row-tokens, which keeps images at their "
                    "own size; take --model.row-tokens None", self.resize_images)  # fmt: skip
            mixed = self.augment.mixup, self.augment.cutmix
            require(not any(mixed), "augment.mixup and augment.cutmix must be 0 with model.row-tokens, as images of "
                    "several sizes can't be mixed", mixed)  # fmt: skip
        for side in self.optim.small_sizes:
            require(side <= smallest, f"optim.small-sizes must be at most {smallest}", side)
            replace(self.model, img_size=side)  # raises for a size that can't be built
        if self.optim.small_sizes and not getattr(self.model, "dynamic_img_size", False):
            raise ValueError("optim.small-sizes needs a model for images of any size; add --model.dynamic-img-size")


# -- from JSON, and for another architecture or task -------------------------------------------------------------------


def to_json(config):
    """A configuration as JSON text: what is learned first."""
    values = asdict(config)
    first = {name: values.pop(name) for name in ("architecture", "task", "dataset", "model", "objective")}
    return json.dumps(first | values, indent=2) + "\n"


def from_json(text, source):
    """A TrainConfig from its JSON text; ValueError, naming `source`, if the text isn't one."""
    try:
        values = json.loads(text)
        require(isinstance(values, dict), "expected the fields of a TrainConfig", values)
        return from_values(values)
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{source} is not a tinyvit configuration: {error}") from error


def from_values(values):
    """A TrainConfig from its fields, those of `model`, `objective` and others in a dict each, as JSON has them."""
    names = values.get("architecture", "vit"), values.get("task", "classification")
    require(all(isinstance(name, str) for name in names), "architecture and task must be names", names)
    classes = {"model": config_class(names[0]), "objective": task_class(names[1]).options}
    known = {name: from_dict(cls, values[name]) for name, cls in classes.items() if name in values}
    return from_dict(TrainConfig, values | known)


def from_dict(cls, values):
    """A dataclass from parsed JSON, where tuples are lists and any value may have another type."""
    require(isinstance(values, dict), f"expected the fields of {cls.__name__}", values)
    hints = get_type_hints(cls)
    if unknown := sorted(set(values) - set(hints)):
        raise ValueError(f"unknown fields {list_names(unknown)} of {cls.__name__}")
    return cls(**{
        name: from_dict(hints[name], value) if is_dataclass(hints[name]) else value for name, value in values.items()
    })  # fmt: skip


def switch(config, architecture=None, task=None):
    """A configuration for another architecture or task, with its own defaults, fitted to the same images and classes.

    A schedule of smaller images goes if the architecture reads images of one size only, and what the task can't be
    trained with is replaced.
    """
    changes = {}
    if architecture not in (None, config.architecture):
        shape = {name: getattr(config.model, name, None) for name in ("img_size", "in_chans", "num_classes", "frames")}
        cls = config_class(architecture)
        check_served(architecture, task_class(task or config.task))
        known = {field.name for field in fields(cls)}
        model = cls(**{name: value for name, value in shape.items() if name in known and value is not None})
        changes |= {"architecture": architecture, "model": model}
        if config.optim.small_sizes and not getattr(model, "dynamic_img_size", False):
            changes["optim"] = replace(config.optim, small_sizes=(), small_until=())
    if task not in (None, config.task):
        found = {name: changes.get(name, getattr(config, name)) for name in ("architecture", "model", "optim")}
        changes |= {"task": task, "objective": task_class(task).options(), **task_class(task).preset_changes(**found)}
    return replace(config, **changes) if changes else config
