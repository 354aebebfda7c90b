"""Fine-tuning: a training that begins with the weights of another run, on other images.

Dosovitskiy et al. 2021, section 3.2: the pre-trained head is removed, and a zero-initialised linear layer takes its
place; positions are interpolated where the images are larger.
"""

from dataclasses import dataclass, replace
from typing import Literal

from tinyvit.files import digest
from tinyvit.functional.patches import as_pair
from tinyvit.models.architecture import differences, size_read
from tinyvit.tensors import tensor_bytes
from tinyvit.training.config import InitConfig, OptimConfig, RunOptions, TrainConfig
from tinyvit.training.trained import crop_of_cut_images, load_trained
from tinyvit.validation import PositiveInt

# SGD with momentum 0.9, a cosine, no weight decay, gradients clipped to norm 1: Dosovitskiy et al. 2021, appendix B.1.1
# and table 4. The rate and the number of epochs are measured: on 1,000 images of five classes of CIFAR-10, after four
# epochs of cifar10-cpu on the other five, judged by 2,500 training images held out, 10 epochs give 69.3, 70.7 and
# 71.1 % at rates 0.01, 0.03 and 0.1, with the least loss at 0.03; 20 epochs give 70.6 %, and a loss of 1.13 in place of
# 0.82.
OPTIM = OptimConfig(name="sgd", lr=0.03, momentum=0.9, weight_decay=0.0, schedule="cosine", warmup=0.1, clip_norm=1.0)
BATCH_SIZE = 64
EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(RunOptions):
    """Train the model of a run further, on other images: its weights, and a new linear head that starts at zero. Images
    are resized to the size that it reads. The result is a run like any other."""

    data: Literal["digits", "moving-digits", "coloured-digits", "cifar10", "cifar100", "folder"]
    """The data set."""
    img_size: int | tuple[int, int] | None = None
    """Side of the images in pixels, or height and width, if not that of RUN; a multiple of its patches'."""
    resize_positions: Literal["bilinear", "bicubic", "zoom"] = "bicubic"
    """How positions, sines and cosines too, are resized for another img-size: as Hugging Face's ViT does it (bicubic),
    or the paper's code (zoom)."""
    best: bool = False
    """Take the best weights of RUN, and not its last ones."""
    epochs: PositiveInt = EPOCHS
    """Passes over the training images."""
    batch_size: PositiveInt = BATCH_SIZE
    """Images per step."""
    optim: OptimConfig = OPTIM
    """The optimizer; by default the paper's recipe."""


def finetune_config(run, dataset, *, img_size=None, best=False, resize_positions="bicubic", **fields):
    """The `TrainConfig` that fine-tunes the model of a run: `train(finetune_config(RUN, "cifar10"), OUT)`.

    The model is the run's, with a new linear head that starts at zero and has a logit for each class of the data; a
    hidden layer of the old head is dropped. Images are made as large as it reads as those that it was trained on were,
    resampled and, in a folder, cropped likewise, and normalised with the same mean and std.

    run                the folder of a finished or an imported run
    dataset            "digits", "moving-digits", "coloured-digits", "cifar10", "cifar100" or "folder"
    img_size           of the images, if not the run's; positions are then resized by `resize_positions`, which is also
                       how the new model resizes them in its forward, if it has `dynamic_img_size`
    best               takes the run's best weights, not its last ones
    fields             all other fields of `TrainConfig`: optim, epochs and batch_size, by default those of a recipe of
                       this file, classes, images, freeze, augment, seed, …

    Raises ValueError for a run that can't be read, and for what a TrainConfig refuses.
    """
    source = load_trained(run, "cpu", best)
    model, known = source.config.model, source.preprocessing
    changes = {
        "img_size": model.img_size if img_size is None else img_size, "head_hidden": None,
        "num_classes": max(1, getattr(model, "num_classes", 1)),  # the trainer asks the data how many
        "resize_positions": resize_positions,
    }  # fmt: skip
    model = replace(model, **{name: value for name, value in changes.items() if name in model.__dataclass_fields__})
    crop = known.crop if dataset == "folder" else crop_of_cut_images(known.crop)
    prepared = {"mean": known.mean, "std": known.std, "resample": known.resample, "crop": crop}
    init = InitConfig(run=str(run), best=best, resize_positions=resize_positions)
    resize_images = not callable(size_read(model))
    recipe = {"optim": OPTIM, "epochs": EPOCHS, "batch_size": BATCH_SIZE, "resize_images": resize_images}
    return TrainConfig(dataset, model, source.config.architecture, init=init, **(recipe | prepared | fields))


def take_over(model, init):
    """Copy the weights that an `InitConfig` names into a model; returns the InitConfig with their SHA256.

    Raises ValueError for a run that can't be read, for weights other than those of the SHA256 that it states already,
    and for a model of another architecture or shape.
    """
    source = load_trained(init.run, "cpu", init.best)
    state, shape = source.model.state_dict(), source.config.model
    found = digest(tensor_bytes(state))
    if init.sha256 not in (None, found):
        raise ValueError(
            f"{init.run} holds other weights than those that this training began with (SHA256 {found}, not "
            f"{init.sha256}); start a new run"
        )
    if type(source.model) is not type(model):
        try:
            if as_pair(shape.img_size) != as_pair(model.config.img_size):
                source = source._replace(model=source.model.at_img_size(model.config.img_size, init.resize_positions))
            model.load_state_dict(model.state_from(source.model, init.inflate))
        except ValueError as error:
            raise ValueError(f"{init.run}: {error}") from error
        return replace(init, sha256=found)
    if differing := differences(shape, model.config):
        raise ValueError(f"the weights of {init.run} don't fit the model: they are for {'; '.join(differing)}")
    if as_pair(shape.img_size) != as_pair(model.config.img_size):
        state = source.model.at_img_size(model.config.img_size, init.resize_positions).state_dict()
    _, head = source.model.parts()[-1]
    read_by_head = {parameter.name for parameter in head.parameters()}
    trunk = {name: array for name, array in state.items() if name not in read_by_head}
    model.load_state_dict({**model.state_dict(), **trunk})
    return replace(init, sha256=found)
