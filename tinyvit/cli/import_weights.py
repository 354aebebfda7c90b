"""tinyvit import"""

from dataclasses import dataclass
from shlex import quote
from typing import Annotated

import numpy as np
from tyro.conf import Positional, arg

import tinyvit
from tinyvit.data.tokenizers import from_vocabulary_and_merges
from tinyvit.files import create, free_place
from tinyvit.functional.patches import as_pair
from tinyvit.interop import open_source
from tinyvit.interop.folder import file_in, read_json
from tinyvit.models import architecture_name, build
from tinyvit.models.registry import ARCHITECTURES
from tinyvit.tensors import write_tensors
from tinyvit.text import printable
from tinyvit.training import TrainConfig
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.signals import exit_on_signals


@dataclass(frozen=True)
class Import:
    """Make a run of weights that were trained elsewhere. SOURCE is a timm .safetensors, or a folder with it and timm's
    config.json; a Hugging Face folder with config.json, model.safetensors and preprocessor_config.json; or the original
    release's .npz. Nothing in it is ever run: PyTorch's pickles are refused."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """The weights."""
    out: str
    """Folder for the run, which must not be there yet."""
    num_heads: int | None = None
    """Attention heads, where the source doesn't say it: timm's .safetensors alone."""
    img_size: int | tuple[int, int] | None = None
    """Side of the images, or height and width, where the source doesn't say it: timm's .safetensors and .npz alone."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel or of all, as a share of full light, in place of the one that the source says."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, likewise."""

    def __call__(self):
        out = free_place(self.out)
        source = open_source(self.source)
        given = {name: getattr(self, name) for name in ("num_heads", "img_size", "mean", "std")}
        weights = source.read(**given)
        # Weights that were saved in float64 stay float64.
        precision = "float64" if any(array.dtype == "float64" for array in weights.state.values()) else "float32"
        architecture = architecture_name(weights.config)
        task = ARCHITECTURES[architecture][0].task
        config = TrainConfig("folder", weights.config, architecture, task, precision=precision)
        tokenizer = tokenizer_in(source.path) if task == "clip" and not weights.config.vocabulary else None
        versions = {"tinyvit": tinyvit.__version__, "numpy": np.__version__}
        origin = {**source.origin(), "given": {name: value for name, value in given.items() if value is not None},
                  "notes": list(weights.notes), "versions": versions}  # fmt: skip
        with exit_on_signals(), create(out) as place:
            place.mkdir()
            folder = RunFolder(place)
            write_tensors(folder.model, weights.state)
            if tokenizer is not None:
                folder.write(folder.tokenizer, tokenizer)
            folder.write_imported(config, weights.preprocessing, origin)
        for note in weights.notes:
            print(f"note: {note}")
        print(describe(source.mapping.format, weights))
        run, classes = printable(quote(str(out))), weights.config.num_classes
        what = f"predict {run} IMAGE…" if classes else f"features {run} IMAGE… --out FEATURES.npy"
        if task == "clip":
            what = f'match {run} IMAGE… --text "a photo of a cat" --text "a photo of a dog"'
            if tokenizer is None and not weights.config.vocabulary:
                print("note: there is no tokenizer.json, which match needs; put it into the run folder")
        print(f"written to {printable(out)}: tinyvit {what}")


def describe(form, weights):
    """One line that describes the imported weights."""
    config = weights.config
    count = build(config, device="meta").num_parameters()
    height, width = as_pair(config.img_size)
    classes = f"{config.num_classes:,} classes" if config.num_classes else "no head"
    frames = getattr(config, "frames", None)
    shown = "images" if frames is None else f"videos of {frames} frames"
    if hasattr(config, "context_length"):
        classes = f"texts of up to {config.context_length} tokens"
    return f"read as {form}: {count:,} parameters, {shown} of {height}×{width}, {classes}"


def tokenizer_in(path):
    """The bytes of the tokenizer.json in a folder of weights, made of vocab.json and merges.txt in an older one; None
    if it has neither. Raises ValueError for a file that can't be read, and for a link that leads out of the folder."""
    if read_json(path, "tokenizer.json") is not None:
        return file_in(path, "tokenizer.json").read_bytes()
    if not all((path / name).exists() for name in ("vocab.json", "merges.txt")):
        return None
    pieces = from_vocabulary_and_merges(file_in(path, "vocab.json"), file_in(path, "merges.txt"))
    return pieces.to_str(pretty=True).encode()
