"""What a trainer is made of, from its configuration."""

from dataclasses import replace
from functools import partial

from tinyvit import data, optim
from tinyvit.files import expanded
from tinyvit.functional.patches import as_pair
from tinyvit.training.threads import map_threads


def with_absolute_paths(config):
    """A TrainConfig whose data and weights are found from any folder."""
    run, data_dir = (
        None if path is None else str(expanded(path).resolve()) for path in (config.init.run, config.data_dir)
    )
    return replace(config, data_dir=data_dir, init=replace(config.init, run=run))


def load_split(config):
    """The images to train on and to evaluate. What is set aside for tuning depends on no seed, nor on how many of the
    rest are trained on."""
    split = load_classes(config)
    split = data.hold_out(split, config.validation, seed=0) if config.validation else split
    split = data.choose(split, images=config.images, seed=config.seed)
    return data.Split(*(as_configured(dataset, config) for dataset in split))


def load_classes(config, data_dir=None, **resizing):
    """The data set (a Split) that a TrainConfig names, with the classes that it names, from `data_dir` or its own.

    resizing   resample and crop, as for `data.load`; by default the TrainConfig's
    """
    c, where = config.model, data_dir or config.data_dir
    resizing = {"resample": config.resample, "crop": config.crop} | resizing
    split = data.load(config.dataset, where, img_size=as_pair(c.img_size), channels=c.in_chans, **resizing)
    return data.choose(split, config.classes or None)


def as_configured(dataset, config):
    """A data set with images of the size and the mean and std that a TrainConfig asks for."""
    if config.mean:
        require_channels(dataset, config.model)
        dataset = replace(dataset, mean=config.mean, std=config.std)
    if not config.resize_images:
        return dataset
    return data.resized(dataset, as_pair(config.model.img_size), config.resample, config.crop)


def require_channels(dataset, model):
    """Raise ValueError unless images have as many channels as the model reads."""
    if dataset.images.shape[1] != model.in_chans:
        raise ValueError(
            f"the model reads images with {described(model.in_chans)}, but the data set's have "
            f"{described(dataset.images.shape[1])}"
        )


def described(channels):
    return f"{channels} channel{'s' * (channels != 1)}"


def make_optimizer(model, o, threads):
    """The optimizer of an `OptimConfig`."""
    if o.name == "sgd":
        return optim.SGD(model, o.lr, o.momentum, o.nesterov, o.weight_decay)
    if o.name == "adagrad":
        return optim.Adagrad(model, o.lr, weight_decay=o.weight_decay)
    if o.name == "adam":
        return optim.Adam(model, o.lr, o.betas)
    if o.name == "muon":
        return optim.Muon(
            model, o.lr, weight_decay=o.weight_decay, adam_lr=o.adam_lr, betas=o.betas,
            map_pieces=partial(map_threads, threads=threads, device=model.device),
        )  # fmt: skip
    return optim.AdamW(model, o.lr, o.betas, weight_decay=o.weight_decay)


def check_fit(config, dataset):
    """Raise ValueError unless the model can read the images and name the classes, and a crop leaves some of them."""
    model, crop = config.model, config.augment.crop
    shape = (model.in_chans, *as_pair(model.img_size))
    if dataset.images.shape[1:] != shape:
        raise ValueError(
            f"the model reads images {shape}, but the data set's are {dataset.images.shape[1:]} "
            "(channels, height, width); set --model.in-chans and --model.img-size, or --resize-images"
        )
    if crop >= min(shape[1:]):
        raise ValueError(f"augment.crop shifts images of {shape[1]}×{shape[2]} by up to {crop} pixels; take fewer")
    if model.num_classes != len(dataset.classes):
        raise ValueError(
            f"the model has {model.num_classes} classes, but the data set has {len(dataset.classes)}; "
            "set --model.num-classes"
        )
