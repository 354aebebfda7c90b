"""tinyvit evaluate"""

import json
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import parse, positional


@dataclass(frozen=True)
class EvaluateOptions:
    """Accuracy and loss of a trained model on the test images of its data set."""

    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute: auto takes a GPU if one works."""
    threads: int | None = None
    """CPU threads."""
    json: bool = False
    """Print one JSON object instead of a table."""


def evaluate(rest):
    """tinyvit evaluate RUN"""
    run_path, rest = positional(rest, "a run folder first: tinyvit evaluate RUN …")
    options = parse(EvaluateOptions, rest, "tinyvit evaluate RUN")

    import numpy as np

    from tinyvit import data
    from tinyvit.backend import choose_device
    from tinyvit.models import ViT
    from tinyvit.training import evaluate as run_evaluation
    from tinyvit.training.display import table
    from tinyvit.training.files import load_tensors
    from tinyvit.training.run_folder import RunFolder

    folder = RunFolder(run_path)
    config = folder.read_config()
    device, _ = choose_device(options.device)
    state = load_tensors(folder.model)
    model = ViT(config.model, dtype=config.precision, device=device)
    try:
        model.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{folder.model}: {error}") from error
    split = data.load(config.dataset, options.data_dir or config.data_dir)
    scores = run_evaluation(model, split.test, options.threads)
    if not np.isfinite(scores["loss"]):
        raise ValueError(f"{folder.model} holds weights that are no numbers: the loss is {scores['loss']}")
    result = {
        "test_accuracy": scores["accuracy"],
        "test_loss": scores["loss"],
        "images": len(split.test),
        "parameters": model.num_parameters(),
        "dataset": config.dataset,
    }
    if options.json:
        print(json.dumps(result, allow_nan=False))
    else:
        print(
            table(
                [
                    ("test accuracy", f"{100 * result['test_accuracy']:.2f} %"),
                    ("test loss", f"{result['test_loss']:.4f}"),
                    ("test images", f"{result['images']:,} of {config.dataset}"),
                    ("parameters", f"{result['parameters']:,}"),
                ]
            )
        )
