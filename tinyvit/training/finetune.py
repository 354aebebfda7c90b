"""Fine-tuning: a training that begins with the weights of another run, on other images."""

from dataclasses import dataclass, field, replace
from typing import Literal

from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.init_config import InitConfig
from tinyvit.training.prepared import as_whole
from tinyvit.training.trained import load_trained

# SGD with momentum 0.9, a cosine, no weight decay, gradients clipped to norm 1: Dosovitskiy et al. 2021, appendix B.1.1
# and table 4. The rate and the number of epochs are measured: on 1,000 images of five classes of CIFAR-10, after four
# epochs of cifar10-cpu on the other five, judged by 2,500 training images held out, 10 epochs give 69.3, 70.7 and
# 71.1 % at rates 0.01, 0.03 and 0.1, with the least loss at 0.03; 20 epochs give 70.6 %, and a loss of 1.13 in place of
# 0.82.
OPTIM = OptimConfig(name="sgd", lr=0.03, momentum=0.9, weight_decay=0.0, schedule="cosine", warmup=0.1, clip_norm=1.0)
BATCH_SIZE = 64
EPOCHS = 10


@dataclass(frozen=True)
class FinetuneOptions:
    """Train the model of a run further, on other images: its weights, and a new linear head that starts at zero. Images
    are made as large as it reads. The result is a run like any other."""

    data: Literal["digits", "cifar10", "cifar100", "folder"]
    """What is learned."""
    data_dir: str | None = None
    """Folder or archive with the data; by default CIFAR is downloaded, and the digits are built in."""
    classes: tuple[str, ...] = ()
    """Only these classes of the data, by name, in this order; none named are all."""
    images: int | None = None
    """Train on so many images, equally many of each class, drawn by the seed; by default on all."""
    img_size: int | tuple[int, int] | None = None
    """Side of the images in pixels, or height and width, if not that of RUN; a multiple of its patches'."""
    resize_positions: Literal["bilinear", "bicubic", "zoom"] = "bicubic"
    """How positions, sines and cosines too, are resized for another img-size: as Hugging Face's ViT does it (bicubic),
    or the paper's code (zoom)."""
    freeze: str | None = None
    """What is left as it is: embed (patches, class token, positions), a number of blocks with the embedding, or trunk
    (all but the head)."""
    best: bool = False
    """Take the weights of RUN that did best on the way, and not its last ones."""
    out: str | None = None
    """Folder for the new run; by default runs/DATA-finetuned, with a number behind it if that is taken."""
    seed: int = 0
    """Seed of everything random: which images, their order, augmentation, dropout."""
    epochs: int = EPOCHS
    """Passes over the training images."""
    batch_size: int = BATCH_SIZE
    """Images in a step."""
    validation: float = 0.0
    """Share of the training images that is set aside and evaluated in place of the test images, for tuning."""
    device: str = "auto"
    """Where to train: cpu, cuda for a GPU, cuda:1 for the second of several; auto takes a GPU if one works."""
    precision: Literal["float32", "float64", "tf32", "bfloat16", "float16"] = "float32"
    """What is computed in. The last three are for GPUs; weights stay float32."""
    threads: int | None = None
    """CPU threads; by default TINYVIT_THREADS, or as many as there are cores."""
    recompute: bool = False
    """Whether to keep only each block's input for the backward and compute the rest again: less memory, more time."""
    kernels: Literal["reference", "numpy", "fast"] | None = None
    """How operations are computed; by default TINYVIT_KERNELS, or the best that is installed."""
    evaluate_every: int = 1
    """Epochs from one evaluation to the next; the last epoch is always evaluated."""
    save_minutes: float = 2.0
    """Minutes after which a checkpoint is saved in the middle of an epoch; one is saved after each evaluation too."""
    tensorboard: bool = False
    """Whether to log to the run folder for TensorBoard (the extra `tensorboard`)."""
    optim: OptimConfig = OPTIM
    """The optimizer; by default the paper's recipe."""
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    """The augmentation."""


def finetune_config(
    run, dataset, *, img_size=None, best=False, resize_positions="bicubic", optim=OPTIM, epochs=EPOCHS,
    batch_size=BATCH_SIZE, **fields,
):  # fmt: skip
    """The `TrainConfig` that fine-tunes the model of a run: `train(finetune_config(RUN, "cifar10"), OUT)`.

    The model is the run's, with a new linear head that starts at zero and has a logit for each class of the data; a
    hidden layer of the old head is dropped. Images are made as large as it reads as those that it was trained on were,
    resampled and, in a folder, cropped likewise, and normalised with the same mean and std.

    run                the folder of a finished or an imported run
    dataset            "digits", "cifar10", "cifar100" or "folder"
    img_size           of the images, if not the run's; positions are then resized by `resize_positions`, which is also
                       how the new model resizes them in its forward, if it has `dynamic_img_size`
    best               takes the run's weights that did best on the way, not its last ones
    optim, epochs, …   and all other fields of `TrainConfig`: classes, images, freeze, augment, seed, …

    Raises ValueError for a run that can't be read, and for what a TrainConfig refuses.
    """
    source = load_trained(run, "cpu", best)
    model, known = source.config.model, source.preprocessing
    model = replace(
        model, img_size=model.img_size if img_size is None else img_size, head_hidden=None,
        num_classes=max(1, model.num_classes),  # the trainer asks the data how many
        resize_positions=resize_positions,
    )  # fmt: skip
    prepared = {} if known is None else {"mean": known.mean, "std": known.std, "resample": known.resample}
    if known is not None:
        prepared["crop"] = known.crop if dataset == "folder" else as_whole(known.crop)
    init = InitConfig(run=str(run), best=best, resize_positions=resize_positions)
    return TrainConfig(
        dataset, model, init=init, optim=optim, epochs=epochs, batch_size=batch_size,
        **{"resize_images": True, **prepared, **fields},
    )  # fmt: skip
