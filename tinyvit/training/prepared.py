"""Any data set as a trained model reads it."""

from dataclasses import replace

from tinyvit import data
from tinyvit.functional.patches import as_pair
from tinyvit.training.setup import described
from tinyvit.training.trained import resizing


def load_prepared_data(trained, dataset=None, data_dir=None, classes=(), images=None, seed=0):
    """A data set (a Split), whatever its classes, with its images prepared as those of a run were.

    trained           what `load_trained` gives
    dataset           by name; by default the run's own, of which, without `classes`, it has those trained on
    classes, images   some of the classes, and of the training images, as `data.choose` takes them

    Images of another size are resized to the one that the model reads, by `data.resized`, and normalised by the run's
    own mean and std. Raises ValueError for images with other channels.
    """
    own, model, prepared = trained.config, trained.config.model, trained.preprocessing
    if dataset is None and own.dataset == "folder" and not (data_dir or own.data_dir):
        raise ValueError(
            f"{trained.folder.path} says nothing of where its images lie: give a data set by --data NAME, or a folder "
            "of images by --data-dir"
        )
    if dataset is None:
        dataset, classes = own.dataset, classes or own.classes
    if dataset == own.dataset:
        data_dir = data_dir or own.data_dir
    elif prepared is None:
        raise ValueError(
            f"{trained.folder.path} has no preprocessing.json, being of an earlier version, so no other data set than "
            f"its own ({own.dataset}) can be prepared for it; train it again"
        )
    size = as_pair(model.img_size)
    split = data.load(dataset, data_dir, size, model.in_chans, **resizing(prepared))
    split = data.choose(split, classes or None, images, seed)
    channels = split.train.images.shape[1]
    if channels != model.in_chans:
        raise ValueError(
            f"the model reads images with {described(model.in_chans)}, and those of {dataset} have "
            f"{described(channels)}"
        )
    if prepared is None:
        return split
    parts = (replace(part, mean=prepared.mean, std=prepared.std) for part in split)
    crop = as_whole(prepared.crop)
    return data.Split(*(data.resized(part, size, prepared.resample, crop) for part in parts))


def as_whole(crop):
    """What becomes of a run's crop where images are cut out already, as those of CIFAR: they are shown whole, unless
    they were stretched."""
    return None if crop is None else 1.0
