"""`tinyvit.load`: a trained model by its path, wherever it was trained, or by its name."""

from tinyvit import interop
from tinyvit.backend import choose_device, expect_memory
from tinyvit.models import build
from tinyvit.training.run_folder import locate_run
from tinyvit.training.trained import load_trained

RUN_FILES = ("preprocessing.json", "model.json")  # that no other folder has


def load(path, *, best=False, device="cpu", num_heads=None, img_size=None, mean=None, std=None):
    """The trained model at `path`, ready to be called: `logits, cache = model(images)`.

    path        a run of `tinyvit train`, `finetune` or `import`, or its model.safetensors; a folder of Hugging Face or
                timm, with its config.json; a .safetensors under timm's names, or the original release's .npz; or the
                name of a model that comes with tinyvit, such as "cifar10-cpu", unless something else is at that path
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
        trained.model.why_no_classes = trained.why_no_classes
        return attach_preprocessing(trained.model, trained.preprocessing)
    if best:
        raise ValueError(f"{path} is not a run of tinyvit, which alone has best weights; leave out best")
    weights = interop.load(path, **given)
    expect_memory(sum(array.nbytes for array in weights.state.values()), f"{path} needs")
    dtype = "float64" if any(array.dtype == "float64" for array in weights.state.values()) else "float32"
    model = build(weights.config, dtype=dtype, device=choose_device(device)[0])
    model.load_state_dict(weights.state)
    return attach_preprocessing(model, weights.preprocessing, weights.notes)


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
