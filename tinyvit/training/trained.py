"""A trained model, with what it needs to be used, from the folder of its run."""

from dataclasses import replace
from typing import NamedTuple

from tinyvit import data
from tinyvit.backend import choose_device
from tinyvit.models import ViT
from tinyvit.models.vit import as_pair
from tinyvit.training.config import TrainConfig
from tinyvit.training.preprocessing import Preprocessing
from tinyvit.training.run_folder import RunFolder


class Trained(NamedTuple):
    folder: RunFolder
    config: TrainConfig
    model: ViT
    preprocessing: Preprocessing | None  # None for a run that was made before runs kept it


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
    device, _ = choose_device(device)
    state = folder.checkpoints.best() if best else folder.load_model()
    model = ViT(config.model, dtype=config.precision, device=device)
    try:
        model.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{folder.model}: {error}") from error
    return Trained(folder, config, model, preprocessing)


def load_data(trained, data_dir=None):
    """The data set (a Split) of a run, from `data_dir` or where it was trained with."""
    config = trained.config
    where = data_dir or config.data_dir
    return data.load(config.dataset, where, config.model.img_size, config.model.in_chans)


def load_test_set(trained, data_dir=None):
    """The test images of a run's data set, normalised as the training images were."""
    test, prepared = load_data(trained, data_dir).test, trained.preprocessing
    if len(test.classes) != trained.config.model.num_classes:
        raise ValueError(
            f"the data set has {len(test.classes)} classes, but the model {trained.config.model.num_classes}"
        )
    if prepared is None:
        return test
    if test.classes != prepared.classes:
        raise ValueError(f"the data set has the classes {list(test.classes)}, but the model {list(prepared.classes)}")
    return replace(test, mean=prepared.mean, std=prepared.std)
