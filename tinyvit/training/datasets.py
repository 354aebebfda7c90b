"""The data set that a configuration names."""

import os
from dataclasses import replace

from tinyvit import data
from tinyvit.files import expand_path
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import image_shape, size_read
from tinyvit.training.run_folder import locate_run
from tinyvit.training.tasks import task_class


def with_absolute_paths(config):
    """A TrainConfig whose data and weights are found from any folder."""

    def absolute(path, locate=locate_run):
        return None if path is None else os.path.realpath(locate(path))

    named = {name: absolute(getattr(config.objective, name)) for name in task_class(config.task).paths}
    return replace(
        config, data_dir=absolute(config.data_dir, expand_path),
        init=replace(config.init, run=absolute(config.init.run)), objective=replace(config.objective, **named),
    )  # fmt: skip


def load_split(config):
    """The images to train on and to evaluate, a Split."""
    return data.Split(*(as_configured(dataset, config) for dataset in chosen_images(load_classes(config), config)))


def chosen_images(split, config):
    """A Split with the images that a TrainConfig chooses of a data set: `config.images` to train on, and what is set
    aside for tuning, if anything is, which depends on no seed, nor on how many of the rest are trained on."""
    split = data.hold_out(split, config.validation, seed=0) if config.validation else split
    return data.choose(split, images=config.images, seed=config.seed)


def load_classes(config, data_dir=None, **resizing):
    """The data set (a Split) that a TrainConfig names, with the classes that it names, from `data_dir` or its own.

    resizing   resample and crop, as for `data.load`; by default the TrainConfig's
    """
    c, where = config.model, data_dir or config.data_dir
    resizing = {"resample": config.resample, "crop": config.crop} | resizing
    resizing["masks"] = task_class(config.task).labels_pixels
    frames = getattr(c, "frames", None)
    split = data.load(config.dataset, where, size_read(c), c.in_chans, frames, **resizing)
    return data.choose(split, config.classes or None)


def as_configured(dataset, config):
    """A data set with images of the size and the mean and std that a TrainConfig asks for."""
    if config.mean:
        require_channels(dataset, config.model.in_chans, "the data set")
        dataset = replace(dataset, mean=config.mean, std=config.std)
    if not config.resize_images:
        return dataset
    return data.resize_dataset(dataset, as_pair(config.model.img_size), config.resample, config.crop)


def require_channels(dataset, channels, name):
    """Raise ValueError unless images have as many channels as the model reads."""
    found = len(dataset.images[0])
    if found != channels:
        raise ValueError(f"the model reads {channels}-channel images, got {found}-channel ones in {name}")


def check_fit(config, dataset):
    """Raise ValueError unless the model can read the images and name the classes, and a crop leaves some of them."""
    model, crop = config.model, config.augment.crop
    shape, found = image_shape(model), dataset.images[0].shape
    if dataset.images.ndim == 1 and callable(size_read(model)):
        for image in dataset.images:
            model.grid_of(image.shape[1:])
        found = (*found[:1], *shape[1:])
    elif dataset.images.ndim == 1:
        raise ValueError("the data set's images have several sizes; take --architecture qwen_vision and "
                         "--model.row-tokens, or --resize-images")  # fmt: skip
    if found != shape:
        raise ValueError(
            f"the model reads {'images' if len(shape) == 3 else 'videos'} {shape}, but the data set's are {found} "
            "(channels, frames of videos, height, width); set --model.in-chans, --model.img-size or --model.frames, or "
            "take --resize-images or another model: --architecture vit reads images, --architecture vivit videos"
        )
    if len(shape) == 4 and config.augment.policy != "none":
        raise ValueError(f"augment.policy is for images; for videos it must be 'none', got {config.augment.policy!r}")
    labels, of_pixels = dataset.labels.ndim > 1, task_class(config.task).labels_pixels
    if of_pixels is not None and labels != of_pixels:
        kinds = [f"a label for each {'pixel' if kind else 'image'}" for kind in (of_pixels, labels)]
        raise ValueError(f"the task {config.task!r} needs {kinds[0]}, but the data set has {kinds[1]}; take another "
                         "data set or another --task")  # fmt: skip
    if crop >= min(shape[-2:]):
        raise ValueError(f"augment.crop shifts images of {shape[-2]}×{shape[-1]} by up to {crop} pixels; take fewer")
    if task_class(config.task).needs_classes and model.num_classes != len(dataset.classes):
        own, known = model.num_classes, len(dataset.classes)
        raise ValueError(f"the model has {own} classes, but the data set has {known}; take --model.num-classes {known}")
