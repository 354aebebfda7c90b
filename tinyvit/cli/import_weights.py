"""tinyvit import"""

from dataclasses import dataclass
from shlex import quote
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.data.tokenizers import from_vocabulary_and_merges
from tinyvit.files import free_place
from tinyvit.functional.patches import as_pair
from tinyvit.interop import open_source
from tinyvit.interop.folder import file_in, read_json
from tinyvit.models import architecture_name, build
from tinyvit.text import printable
from tinyvit.training.signals import exit_on_signals
from tinyvit.training.trained import save_trained


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
        is_clip = architecture_name(weights.config) == "clip"
        tokenizer = tokenizer_in(source.path) if is_clip and not weights.config.vocabulary else None
        origin = source.origin() | {"given": {name: value for name, value in given.items() if value is not None}}
        with exit_on_signals():
            save_trained(out, weights, weights.precision, origin, tokenizer)
        for note in weights.notes:
            print(f"note: {note}")
        print(describe(source.mapping.format, weights))
        run, classes = printable(quote(str(out))), weights.config.num_classes
        what = f"predict {run} IMAGE…" if classes else f"features {run} IMAGE… --out FEATURES.npy"
        if is_clip:
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
