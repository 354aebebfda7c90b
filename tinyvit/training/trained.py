"""A trained model from the folder of its run, and data sets prepared as it reads them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

import tinyvit
from tinyvit import data
from tinyvit.backend import choose_device
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.files import create, read_text, write_with_manifest
from tinyvit.functional.patches import as_pair
from tinyvit.models import architecture_name
from tinyvit.models.architecture import HEADLESS, Architecture, image_shape, size_read
from tinyvit.models.registry import ARCHITECTURES
from tinyvit.nn import Module
from tinyvit.nn.precision import MASTER, is_available
from tinyvit.tensors import write_tensors
from tinyvit.training.config import TrainConfig, to_json
from tinyvit.training.datasets import as_configured, chosen_images, load_classes, require_channels
from tinyvit.training.run_folder import RunFolder, locate_run
from tinyvit.training.tasks import Task, task_class
from tinyvit.validation import require


class Trained(NamedTuple):
    folder: RunFolder
    config: TrainConfig
    model: Architecture             # the configured model
    preprocessing: Preprocessing
    why_not_gpu: str | None = None  # the reason, where a GPU was looked for and the model is on the CPU
    task: Task | None = None
    learner: Module | None = None   # what the task trained: the model, or a module that has it as a part

    @property
    def why_no_classes(self):
        """Why its outputs are not the logits of classes; None for a classifier."""
        if not self.task.classifies:
            return f"the task {self.config.task!r} isn't classification"
        return None if getattr(self.config.model, "num_classes", 0) else HEADLESS


def load_trained(path, device="auto", best=False):
    """The model of a run, on a device; ValueError, naming the file, if something is missing or doesn't fit.

    path   the folder of the run, or the name of a model that comes with tinyvit, as `locate_run` takes it
    best   the weights whose evaluation was the best, not the last ones
    """
    folder = RunFolder(locate_run(path))
    config = folder.read_config()
    task = task_class(config.task)(config, "test")
    if not folder.preprocessing.is_file():
        raise ValueError(f"{folder.preprocessing} is missing; finish the run with tinyvit train --resume {folder.path}")
    preprocessing = Preprocessing.from_json(read_text(folder.preprocessing), folder.preprocessing)
    size = size_read(config.model)
    preprocessing = replace(preprocessing, size_of=size if callable(size) else None)
    reads, says = image_shape(config.model), preprocessing.shape
    if task.needs_classes:
        reads, says = (*reads, config.model.num_classes), (*says, len(preprocessing.classes))
    if says != reads:
        raise ValueError(
            f"{folder.preprocessing} is of another model: it says {says}, and config.json {reads} "
            "(channels, image size, classes)"
        )
    device, why_not_gpu = choose_device(device)
    state = folder.checkpoints.best() if best else folder.load_model()
    # What was trained in a precision that this device hasn't got has float32 weights, and runs in float32.
    precision = config.precision if is_available(config.precision, device) else MASTER[config.precision]
    try:
        task.build(device="meta").check_state(state)  # before memory is taken for what doesn't fit
        learner = task.build(device=device, precision=precision)
        learner.load_state_dict(state)
    except ValueError as error:
        named = f"architecture {config.architecture!r}, task {config.task!r}"
        raise ValueError(f"{folder.model}: {error} (config.json names {named})") from error
    return Trained(folder, config, task.backbone(learner), preprocessing, why_not_gpu, task, learner)


def save_trained(path, weights, precision, origin, tokenizer=None):
    """Make the folder of a run of a model that was trained elsewhere; ValueError if there is something at `path`.

    weights     the `Weights` of `interop`
    precision   to compute in
    origin      where the weights come from, for imported.json
    tokenizer   the bytes of the tokenizer.json that goes with them, or None
    """
    architecture = architecture_name(weights.config)
    task = ARCHITECTURES[architecture][0].task
    config = TrainConfig("folder", weights.config, architecture, task, precision=precision)
    versions = {"tinyvit": tinyvit.__version__, "numpy": np.__version__}
    with create(path) as place:
        place.mkdir()
        folder = RunFolder(place)
        write_tensors(folder.model, weights.state)
        if tokenizer is not None:
            folder.write(folder.tokenizer, tokenizer)
        write_with_manifest(folder.model_manifest, {folder.model.name: folder.model})
        folder.write_json(folder.imported, origin | {"notes": list(weights.notes), "versions": versions})
        folder.write(folder.preprocessing, weights.preprocessing.to_json().encode())
        folder.write(folder.config, to_json(config).encode())


def require_classifier(trained):
    """Raise ValueError, naming other commands, for a model that isn't a classifier."""
    if trained.why_no_classes:
        own = f"{trained.task.command}, " if trained.task.command else ""
        evaluate = "" if trained.task.classifies else "evaluate, "
        raise ValueError(
            f"{trained.folder.path}: {trained.why_no_classes}; tinyvit {own}{evaluate}features, inspect (not --html), "
            "knn and probe-linear work with it"
        )


def tokenizer_of(trained):
    """The tokenizer of a run whose model reads texts.

    Raises ValueError for a run whose model doesn't, and for one that was imported without a tokenizer.
    """
    from tinyvit.data.tokenizers import BytePairTokenizer, WordTokenizer

    model, folder = trained.config.model, trained.folder
    if trained.config.architecture != "clip":
        raise ValueError(
            f"{folder.path} is of a {trained.config.architecture}, which reads no texts; expected a run of a CLIP, of "
            "tinyvit train clip-digits or of tinyvit import"
        )
    if model.vocabulary:
        return WordTokenizer(model.vocabulary, model.context_length)
    if not folder.tokenizer.is_file():
        raise ValueError(
            f"{folder.tokenizer} is missing, which makes tokens of texts; put the tokenizer.json there that belongs to "
            "the weights, or import them again from a folder that has it"
        )
    return BytePairTokenizer(folder.tokenizer, model.context_length, model.vocab_size)


# -- data sets as it reads them ----------------------------------------------------------------------------------------


def load_data(trained, data_dir=None):
    """The data set (a Split) of a run with the run's classes, from `data_dir` or where it was trained with."""
    split = load_classes(trained.config, data_dir, **resizing(trained.preprocessing))
    return data.Split(*(as_configured(dataset, trained.config) for dataset in split))


def resizing(preprocessing):
    """How a run's image files are resized to the size that its model reads, as arguments of `data.load`."""
    return {"resample": preprocessing.resample, "crop": preprocessing.crop}


def load_for_evaluation(trained, data_dir=None):
    """The test images of a run's data set, normalised as the training images were, and the training images that the run
    learned from, as a Split; in place of the latter None, unless the task's evaluation needs them.

    A folder for a model that was trained elsewhere may have some of its classes, under their names or their numbers.
    """
    config, prepared = trained.config, trained.preprocessing
    split = load_classes(config, data_dir, **resizing(prepared))
    test, needed = as_configured(split.test, config), trained.task.needs_training_set
    train = as_configured(chosen_images(split, config).train, config) if needed else None
    if trained.folder.imported.is_file() and not trained.why_no_classes:
        test = renumber_labels(test, prepared.classes)
    if not trained.why_no_classes and test.classes != prepared.classes:
        raise ValueError(f"the data set has the classes {list(test.classes)}, but the model {list(prepared.classes)}")
    return data.Split(train, replace(test, mean=prepared.mean, std=prepared.std))


def renumber_labels(dataset, classes):
    """A `Dataset` with the labels of the model's `classes`: by the names of its own, or by their numbers where no class
    has that name. Raises ValueError, with its name, for one that is neither."""
    numbers = {name: number for number, name in enumerate(classes)}
    by_number = {str(number): number for number in range(len(classes))}
    unknown = [name for name in dataset.classes if name not in numbers and name not in by_number]
    if unknown:
        raise ValueError(
            f"the model has no class {unknown[0]!r} ({len(unknown)} of {len(dataset.classes)} folders have names that "
            f"are not among its classes); name them like its classes ({classes[0]!r}, …) or by their numbers from 0"
        )
    mapped = [numbers.get(name, by_number.get(name)) for name in dataset.classes]
    if len(set(mapped)) < len(mapped):
        raise ValueError(f"two of the folders {', '.join(dataset.classes)} stand for the same class")
    return replace(dataset, labels=np.array(mapped)[dataset.labels], classes=tuple(classes))


def load_prepared_data(trained, dataset=None, data_dir=None, classes=(), images=None, seed=0):
    """A data set (a Split), whatever its classes, with its images prepared as those of a run were.

    trained           what `load_trained` gives
    dataset           by name; by default the run's own, of which, without `classes`, it has those trained on
    classes, images   some of the classes, and of the training images, as `data.choose` takes them

    Images of another size are resized to the one that the model reads, by `data.resize_dataset`, and normalised by the
    run's own mean and std. Raises ValueError for images with other channels.
    """
    own, model, prepared = trained.config, trained.config.model, trained.preprocessing
    if dataset is None:
        dataset, classes = own.dataset, classes or own.classes
    if dataset == own.dataset:
        data_dir = data_dir or own.data_dir
    size = as_pair(model.img_size)
    split = data.load(dataset, data_dir, size, model.in_chans, prepared.frames, **resizing(prepared))
    require(split.train.labels.ndim == 1, "expected data with a label for each image; name others by --data", dataset)
    split = data.choose(split, classes or None, images, seed)
    require_channels(split.train, model.in_chans, dataset)
    parts = (replace(part, mean=prepared.mean, std=prepared.std) for part in split)
    crop = crop_of_cut_images(prepared.crop)
    return data.Split(*(data.resize_dataset(part, size, prepared.resample, crop) for part in parts))


def crop_of_cut_images(crop):
    """The crop for images of a fixed size, such as CIFAR's, from a run's: they are shown whole, unless they were
    stretched."""
    return None if crop is None else 1.0
