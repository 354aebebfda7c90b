"""tinyvit export"""

import json
from dataclasses import dataclass, replace
from shlex import quote
from typing import Literal

from tinyvit.cli.parsing import Run, parse
from tinyvit.files import free_place
from tinyvit.interop import Weights, save
from tinyvit.interop.saving import check_path
from tinyvit.text import printable
from tinyvit.training.signals import exit_on_signals
from tinyvit.training.trained import load_trained

WITH_POOLER = ("ViTModel", "DeiTModel", "VivitModel")


@dataclass(frozen=True)
class ExportOptions:
    """Export a trained model: to timm, to Hugging Face's Transformers, to readers of the original release's .npz, or
    as an ONNX graph to onnxruntime and others. A model that doesn't fit a format is refused, with the reason."""

    run: Run
    """The folder of a run."""
    out: str
    """The folder (huggingface, timm) or the file (.npz, .onnx), which must not be there yet."""
    format: Literal["huggingface", "timm", "npz", "onnx"]
    """For whom."""
    best: bool = False
    """Export the weights with the best evaluation, not the last ones."""


HOW_TO_LOAD = {
    "huggingface": "transformers.{model}.from_pretrained({path!r}{more}), AutoImageProcessor.from_pretrained({path!r})",
    "timm": "timm.create_model({local!r}, pretrained=True)",
    "npz": "numpy.load({path!r}), or tinyvit import {quoted}{size} --out RUN",
    "onnx": "onnxruntime.InferenceSession({path!r}).run(None, {{'images': images}})",
}


def export(rest):
    """tinyvit export RUN --format FORMAT --out PATH"""
    options = parse(ExportOptions, rest, "tinyvit export")
    check_path(options.out, options.format)
    out = free_place(options.out)
    trained = load_trained(options.run, "cpu", options.best)
    config, prepared = trained.model.config, trained.preprocessing
    if not getattr(config, "num_classes", 0):  # of a task without classes, the model has no head
        prepared = replace(prepared, classes=())
    weights = Weights(config, trained.model.state_dict(), prepared)
    with exit_on_signals():
        save(weights, out, options.format)
    model = more = size = ""
    if options.format == "huggingface":
        (model,) = json.loads((out / "config.json").read_text())["architectures"]
        # Without that argument Transformers adds a pooler of random numbers to a model that has none.
        more = "" if getattr(config, "head_hidden", None) or model not in WITH_POOLER else ", add_pooling_layer=False"
    if options.format == "npz":
        print("note: the names of the classes and how images are prepared have no place in an .npz")
        rows, columns = config.grid  # without an image size, a square grid is assumed
        size = "" if rows == columns else " --img-size {} {}".format(*prepared.img_size)
    print(f"written to {printable(out)}: {trained.model.num_parameters():,} parameters")
    print("load it:", printable(HOW_TO_LOAD[options.format].format(
        path=str(out), model=model, more=more, quoted=quote(str(out)), size=size, local=f"local-dir:{out}"
    )))  # fmt: skip
