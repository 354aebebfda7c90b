"""tinyvit export"""

import json
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from tinyvit.cli.parsing import Run
from tinyvit.files import free_place
from tinyvit.interop import save
from tinyvit.interop.saving import check_path
from tinyvit.text import printable
from tinyvit.training.signals import exit_on_signals
from tinyvit.training.trained import load_trained

WITH_POOLER = ("ViTModel", "DeiTModel", "VivitModel")


@dataclass(frozen=True)
class Export:
    """Export a trained model: to timm, to Hugging Face's Transformers, to readers of the original release's .npz, or
    as an ONNX graph to onnxruntime and others. A model that doesn't fit a format is refused, with the reason."""

    run: Run
    """The folder of a run."""
    out: str
    """The folder (huggingface, timm) or the file (.npz, .onnx), which must not be there yet."""
    format: Literal["huggingface", "timm", "npz", "onnx"]
    """The library or file format to export to."""
    best: bool = False
    """Export the weights with the best evaluation, not the last ones."""

    def __call__(self):
        check_path(self.out, self.format)
        out = free_place(self.out)
        trained = load_trained(self.run, "cpu", self.best)
        config = trained.model.config
        trained.model.preprocessing = trained.preprocessing
        with exit_on_signals():
            save(trained.model, out, self.format)
        model = more = size = ""
        if self.format == "huggingface":
            (model,) = json.loads((out / "config.json").read_text())["architectures"]
            # Without that argument Transformers adds a pooler of random numbers to a model that has none.
            if model in WITH_POOLER and not getattr(config, "head_hidden", None):
                more = ", add_pooling_layer=False"
        if self.format == "npz":
            print("note: the names of the classes and how images are prepared have no place in an .npz")
            rows, columns = config.grid  # without an image size, a square grid is assumed
            size = "" if rows == columns else " --img-size {} {}".format(*trained.preprocessing.img_size)
        path = repr(str(out))
        how = {
            "huggingface":
                f"transformers.{model}.from_pretrained({path}{more}), AutoImageProcessor.from_pretrained({path})",
            "timm": f"timm.create_model({f'local-dir:{out}'!r}, pretrained=True)",
            "npz": f"numpy.load({path}), or tinyvit import {quote(str(out))}{size} --out RUN",
            "onnx": f"onnxruntime.InferenceSession({path}).run(None, {{'images': images}})",
        }  # fmt: skip
        print(f"written to {printable(out)}: {trained.model.num_parameters():,} parameters")
        print("load it:", printable(how[self.format]))
