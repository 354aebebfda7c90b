"""A trained model, with what it needs to be used, from the folder of its run."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tinyvit import data
from tinyvit.backend import choose_device
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.models import build
from tinyvit.models.architecture import Architecture, require_classes
from tinyvit.nn.precision import MASTER
from tinyvit.training.config import TrainConfig
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.setup import as_configured, load_classes


class Trained(NamedTuple):
    folder: RunFolder
    config: TrainConfig
    model: Architecture
    preprocessing: Preprocessing | None  # None for a run that was made before runs kept it
    why_not_gpu: str | None = None       # the reason, where a GPU was looked for and the model is on the CPU


def load_trained(path, device="auto", best=False):
    """The model of a run, on a device; ValueError, naming the file, if something is missing or doesn't fit.

    best   the weights whose evaluation was the best on the way, not the last ones
    """
    folder = RunFolder(path)
    config = folder.read_config()
    preprocessing = None
    if folder.preprocessing.is_file():
        text = folder.preprocessing.read_text(encoding="utf-8", errors="replace")
        preprocessing = Preprocessing.from_json(text, folder.preprocessing)
        reads = (config.model.in_chans, as_pair(config.model.img_size), config.model.num_classes)
        says = (preprocessing.channels, preprocessing.img_size, len(preprocessing.classes))
        if says != reads:
            raise ValueError(
                f"{folder.preprocessing} is of another model: it says {says}, and config.json {reads} "
                "(channels, image size, classes)"
            )
    device, why_not_gpu = choose_device(device)
    state = folder.checkpoints.best() if best else folder.load_model()
    # What was trained in a GPU's own precision has float32 weights, and runs in float32 on a CPU.
    precision = MASTER[config.precision] if device == "cpu" else config.precision
    model = build(config.model, device=device, precision=precision)
    try:
        model.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{folder.model}: {error}") from error
    return Trained(folder, config, model, preprocessing, why_not_gpu)


def load_classifier(path, device="auto", best=False):
    """What `load_trained` gives; ValueError, too, for a model without a head, which has no classes."""
    trained = load_trained(path, device, best)
    try:
        require_classes(trained.model)
    except ValueError as error:
        raise ValueError(f"{trained.folder.path}: {error}") from error
    return trained


def load_data(trained, data_dir=None):
    """The data set (a Split) of a run with the run's classes, from `data_dir` or where it was trained with."""
    split = load_classes(trained.config, data_dir, **resizing(trained.preprocessing))
    return data.Split(*(as_configured(dataset, trained.config) for dataset in split))


def resizing(preprocessing):
    """How a run's image files become the size that its model reads, as arguments of `data.load`."""
    return {} if preprocessing is None else {"resample": preprocessing.resample, "crop": preprocessing.crop}


def load_test_set(trained, data_dir=None):
    """The test images of a run's data set, normalised as the training images were.

    A folder for a model that was trained elsewhere may have some of its classes, under their names or their numbers.
    """
    prepared = trained.preprocessing
    test = load_classes(trained.config, data_dir, **resizing(prepared)).test
    if trained.folder.imported.is_file() and prepared is not None:
        test = renumbered(test, prepared.classes)
    test = as_configured(test, trained.config)
    if len(test.classes) != trained.config.model.num_classes:
        raise ValueError(
            f"the data set has {len(test.classes)} classes, but the model {trained.config.model.num_classes}"
        )
    if prepared is None:
        return test
    if test.classes != prepared.classes:
        raise ValueError(f"the data set has the classes {list(test.classes)}, but the model {list(prepared.classes)}")
    return replace(test, mean=prepared.mean, std=prepared.std)


def renumbered(dataset, classes):
    """A `Dataset` with the labels of `classes`, which its own are some of: by their names, or by their numbers where no
    class has that name. Raises ValueError, with its name, for one that is neither."""
    numbers = {name: number for number, name in enumerate(classes)}
    by_number = {str(number): number for number in range(len(classes))}
    unknown = [name for name in dataset.classes if name not in numbers and name not in by_number]
    if unknown:
        raise ValueError(
            f"the model has no class {unknown[0]!r} ({len(unknown)} of {len(dataset.classes)} folders have names that "
            f"are no class of it); name them as its classes are, {classes[0]!r} and so on, or by their numbers from 0"
        )
    mapped = [numbers.get(name, by_number.get(name)) for name in dataset.classes]
    if len(set(mapped)) < len(mapped):
        raise ValueError(f"two of the folders {', '.join(dataset.classes)} stand for the same class")
    return replace(dataset, labels=np.array(mapped)[dataset.labels], classes=tuple(classes))
