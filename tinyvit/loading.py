"""`tinyvit.load`: a trained model by its path, wherever it was trained, or by its name; `tinyvit.save`: a model into a
run folder."""

from tinyvit import interop
from tinyvit.backend import choose_device, expect_memory
from tinyvit.interop.folder import CONFIG, read_json
from tinyvit.interop.names import check_weights
from tinyvit.models import build
from tinyvit.nn.tree import is_module
from tinyvit.training.run_folder import locate_run
from tinyvit.training.trained import load_trained, save_trained

RUN_FILES = ("preprocessing.json", "model.json")  # that no other folder has


def load(path, *, best=False, device="cpu", num_heads=None, img_size=None, mean=None, std=None):
    """The trained model at `path`, ready to be called: `logits, cache = model(images)`.

    path        a run of `tinyvit train`, `finetune`, `import` or `tinyvit.save`, or its model.safetensors; a folder of
                Hugging Face or timm, with its config.json, or the model.safetensors in it; a .safetensors under timm's
                names, or the original release's .npz; or the name of a model that comes with tinyvit, such as
                "cifar10-cpu", unless something else is at that path
    best        the weights with the best evaluation instead of the last ones; of a run only
    device      "cpu", "cuda", "cuda:1", …, or "auto" for a GPU if there is one

    num_heads, img_size, mean, std   what a foreign folder or file doesn't say, as for `tinyvit.interop.load`

    The model is of its own architecture's class, and has besides:

    model.predict(images)   class probabilities (B, K); images may be what Pillow opens, see `Architecture.predict`
    model.classes           the names of the classes, in the order of the logits
    model.preprocessing     how images become the model's input, a `tinyvit.data.preprocessing.Preprocessing`
    model.notes             what the source didn't say and was assumed, a sentence each

    Nothing in a file is ever run: pickles are refused. Raises ValueError, naming the file, for what is missing or
    damaged, is no model, or is of an architecture that tinyvit doesn't have.
    """
    path = locate_run(path)
    run = run_of(path)
    given = {"num_heads": num_heads, "img_size": img_size, "mean": mean, "std": std}
    named = [name for name, value in given.items() if value is not None]
    if run is not None:
        if named:
            raise ValueError(f"{run} is a run, which says all that is needed; leave out {', '.join(named)}")
        trained = load_trained(run, device, best)
        trained.model.why_no_classes = None if trained.task.labels_pixels else trained.why_no_classes
        notes = (read_json(run, trained.folder.imported.name) or {}).get("notes", ())
        return attach_preprocessing(trained.model, trained.preprocessing, notes)
    if best:
        raise ValueError(f"{path} is not a run of tinyvit, which alone has best weights; leave out best")
    if path.name == "model.safetensors" and not named and (path.parent / CONFIG).is_file():
        path = path.parent
    weights = interop.load(path, **given)
    expect_memory(sum(array.nbytes for array in weights.state.values()), f"{path} needs")
    model = build(weights.config, dtype=weights.precision, device=choose_device(device)[0])
    model.load_state_dict(weights.state)
    return attach_preprocessing(model, weights.preprocessing, weights.notes)


def save(model, path, *, classes=None, mean=None, std=None):
    """Write a model to the new folder `path`, a run that `tinyvit.load(path)` and the command line read: its weights,
    bit for bit, its configuration and precision, and how images are prepared.

    model       of any registered architecture, on any device
    classes     the names of the classes, in the order of the logits
    mean, std   that images were normalised with, (pixels/255 − mean) / std: of each channel, or one number for all

    What isn't given is that of `model.preprocessing`; if it has none, the classes are "0", "1", …, and mean and std are
    0.5, which the loaded model's `notes` say. Raises ValueError if there is something at `path`, for weights that don't
    fit the model's configuration or are NaN or infinite, and for other numbers of classes and channels than its own.
    """
    if not is_module(model):
        raise TypeError(f"expected a model, as in tinyvit.save(model, PATH), got {type(model).__name__}")
    weights = interop.weights_of(model, classes, mean, std)
    check_weights(weights)
    save_trained(path, weights, model.precision, {"format": "tinyvit"})


def run_of(path):
    """The folder of the run that a path is of: the path itself, or the folder around its model.safetensors; else
    None. ValueError for another file of a run, and for its folder of checkpoints."""
    if path.is_dir() and (is_run(path) or path.name != "checkpoints"):
        return path if is_run(path) else None
    for folder in (path.parent, path.parent.parent):
        if path.exists() and is_run(folder):
            if path != folder / "model.safetensors":
                raise ValueError(f"{path} is part of a run; pass its folder {folder}, with best=True for its best")
            return folder
    return None


def is_run(folder):
    """Whether a folder is a run of tinyvit, perhaps a damaged one."""
    return any((folder / name).exists() for name in RUN_FILES)


def attach_preprocessing(model, preprocessing, notes=()):
    """The model, with how its images are prepared and what was assumed."""
    model.preprocessing, model.notes = preprocessing, tuple(notes)
    return model
