"""Train a learner's own ViT with the package's training loop, which is imported only then."""

import tempfile
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from tinyvit.exercises.calling import learners_line
from tinyvit.exercises.checking import Report, check, format_answer, message_text

FUNCTIONS = "vit", "vit_backward"


@dataclass(frozen=True)
class OwnTraining(Report):
    """The result of `train`, a report on "vit"; true if the functions were right and were trained to the end.

    accuracy, seconds                   of the learner's model on the test images, and its training
    package_accuracy, package_seconds   of the package's own model of that shape, trained alike
    """

    name: str = field(repr=False)
    accuracy: float | None = None
    seconds: float | None = None
    package_accuracy: float | None = None
    package_seconds: float | None = None


class BrokenFunction(Exception):
    """A learner's function is wrong, or failed in the middle of a training; the message says where."""


class LineDisplay:
    """Prints a line for each evaluation of a training, in place of `tinyvit.training.display.Display`."""

    def __init__(self, whose):
        self.whose = whose

    def start(self, trainer, path):
        config = trainer.config
        print(f"{self.whose}: {config.epochs} epochs of {len(trainer.loader)} steps on {config.dataset}")

    def epoch(self, row):
        print(f"  epoch {row['epoch']:3d}  loss {row['train_loss']:.3f}  test accuracy {row['test_accuracy']:.2%}")

    def ignore(self, *arguments):
        pass

    step = finish = ignore
    warn = staticmethod(print)


def train(mine, data="digits", epochs=None, seed=0, data_dir=None, compare=True, images=None):
    """Train the learner's `vit` and `vit_backward`, print how they compare with the package, return `OwnTraining`.

    mine       a module, class or namespace with the functions `vit(images, parameters, depth, num_heads, eps)` and
               `vit_backward(dy, images, parameters, depth, num_heads, eps)`, as `describe("vit")` says; in a notebook
               `types.SimpleNamespace(vit=my_vit, vit_backward=my_vit_backward)`. They get float32 here
    data       "digits" (under a minute), or "cifar10": begin with images=5000, epochs=2, which take a minute
    epochs     passes over the training images; by default 40, or 11 for CIFAR-10
    data_dir   where CIFAR-10 is; by default it is downloaded
    compare    whether to train the package's own model of that shape, too
    images     how many of the training images, equally many of each class; by default all

    First both functions are checked as exercises: a wrong gradient is named, and nothing is trained. Then they take the
    place of the forward and backward of the package's model, in its training loop: the same first weights, batches,
    optimizer, schedule and evaluation.

    Raises ValueError for unknown data, and TypeError if `mine` lacks one of the functions.
    """
    lacking = [name for name in FUNCTIONS if not callable(getattr(mine, name, None))]
    if lacking:
        raise TypeError(
            f"train: expected a module or namespace with the functions vit and vit_backward, and it has no "
            f"{' and no '.join(lacking)}; types.SimpleNamespace(vit=…, vit_backward=…) makes one"
        )
    config = config_for(data, epochs, seed, data_dir, images)
    try:
        if not all([check(name, getattr(mine, name)) for name in FUNCTIONS]):
            raise BrokenFunction("Nothing was trained: mend these functions first, then call train again.")
        own = run_training(config, "your ViT", mine)
    except BrokenFunction as problem:
        return print_result(OwnTraining("vit", False, str(problem)))
    accuracy, seconds = own["test_accuracy"], own["seconds"]
    figures = {"accuracy": accuracy, "seconds": seconds}
    if "interrupted" in own:
        return print_result(OwnTraining("vit", False, f"Stopped after {own['epochs']} epochs.", **figures))
    answer = f"Your ViT: {accuracy:.2%} of the test images right, after {seconds:.0f} seconds of training."
    if not compare:
        return print_result(OwnTraining("vit", True, answer, **figures))
    package = run_training(config, "the package's ViT")
    answer += f" {comparison_text(own, package)}"
    figures |= {"package_accuracy": package["test_accuracy"], "package_seconds": package["seconds"]}
    return print_result(OwnTraining("vit", True, answer, **figures))


def print_result(result):
    print(format_answer(result.answer))
    return result


def comparison_text(own, package):
    """A sentence about two summaries."""
    if "interrupted" in package:
        return "The training of the package's model was stopped."
    ratio, gain = own["seconds"] / package["seconds"], own["test_accuracy"] - package["test_accuracy"]
    nearly = " The gradients are the same but for rounding." if abs(gain) < 0.02 else ""
    return (
        f"The package's own model, trained alike: {package['test_accuracy']:.2%} after {package['seconds']:.0f} "
        f"seconds.{nearly} Yours took {ratio:.1f} times as long as it."
    )


def config_for(data, epochs, seed, data_dir, images=None):
    """The preset of a data set, with a model as the exercise `vit` has it: class token, learned positions, no dropout.
    Its patches are larger than the preset's, since a learner's plain NumPy takes longer for each token.

    One thread, since a learner's functions may keep notes of their own between calls.
    """
    from tinyvit.training.config import InitConfig
    from tinyvit.training.presets import preset

    presets = {"digits": ("digits", 40, 10, 4), "cifar10": ("cifar10-cpu", 11, 1, 8)}
    if data not in presets:
        raise ValueError(f"train: expected the data 'digits' or 'cifar10', got {data!r}")
    name, usual, every, patch = presets[data]
    config = preset(name)
    model = replace(
        config.model, patch_size=patch, global_pool="token", positions="learned", dynamic_img_size=False,
        drop_rate=0.0, drop_path_rate=0.0,
    )  # fmt: skip
    if data == "cifar10":  # the preset's model takes plain NumPy hours
        model = replace(model, embed_dim=64, depth=4)
    return replace(
        config, model=model, optim=replace(config.optim, small_sizes=(), small_until=()), init=InitConfig(),
        device="cpu", threads=1, epochs=usual if epochs is None else epochs, evaluate_every=every, seed=seed,
        data_dir=data_dir, images=images,
    )  # fmt: skip


def run_training(config, whose, mine=None):
    """The summary of a training in a folder that is deleted afterwards; with `mine` of the learner's functions."""
    from tinyvit.training.divergence import Diverged
    from tinyvit.training.loop import run
    from tinyvit.training.run_folder import RunFolder
    from tinyvit.training.trainer import Trainer

    trainer = Trainer(config)
    if mine is not None:
        hand_over(trainer.model, mine)
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        with folder.start(trainer.config):
            try:
                return run(trainer, folder, LineDisplay(whose))
            except Diverged as error:
                raise BrokenFunction(str(error)) from error


def hand_over(model, mine):
    """Let a model compute with the learner's functions: its forward and backward are all that a training calls."""
    model.forward = partial(forward, model, mine.vit)
    model.backward = partial(backward, model, mine.vit_backward)


def forward(model, vit, images, ctx=None):
    """The logits by the learner's `vit`, from the model's parameters."""
    parameters = {name: parameter.data for name, parameter in model.named_parameters()}
    logits = call_function(vit, images, parameters, *model_sizes(model))
    return np.asarray(logits, model.dtype), (images, parameters)


def backward(model, vit_backward, dlogits, cache):
    """Add the gradients by the learner's `vit_backward` to the model's."""
    dimages, gradients = call_function(vit_backward, dlogits, *cache, *model_sizes(model))
    with model.storage.grads.adding():
        for name, parameter in model.named_parameters():
            into = parameter.grad
            into += gradients[name]
    return dimages


def model_sizes(model):
    return model.config.depth, model.config.num_heads, model.config.norm_eps


def call_function(function, *arguments):
    """The value that the learner's function returns; raises BrokenFunction if it fails."""
    try:
        return function(*arguments)
    except Exception as error:
        at = learners_line(traceback.extract_tb(error.__traceback__))
        raise BrokenFunction(
            f"Your function raised {type(error).__name__} in the training{at and f', in {at}'}: {message_text(error)}"
        ) from error
