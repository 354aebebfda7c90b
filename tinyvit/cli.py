"""The command line: one function a command; parsing is left to tyro."""

import contextlib
import io
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import Literal

USAGE = """usage: tinyvit COMMAND …

  train PRESET [OPTIONS]   train a ViT; presets: {presets}
  evaluate RUN             accuracy and loss of a trained model on the test images
  summary MODEL            layer by layer: shapes, parameters, multiply-adds, memory
  gradcheck [MODEL]        check every hand-written gradient
  COMMAND --help           the options of a command
"""


class BadInput(ValueError):
    """What the user typed can't be understood."""


def main(argv=None):
    """Run a command; ends the process with status 2 and one line on stderr where the input is wrong."""
    argv = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without × or ─ shows ? instead
    try:
        status = run(argv)
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        print("tinyvit: interrupted", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(130)  # sys.exit would wait for threads that are still computing
    except BrokenPipeError:  # the reader of our output has gone; nothing more is for anyone to read
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as error:
        refuse(f"out of memory; take a smaller model or --batch-size ({error})")
    except (ValueError, OSError, OverflowError) as error:
        refuse(str(error))


def refuse(message):
    """One line on stderr, and exit status 2."""
    print("tinyvit: error:", " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


def run(argv):
    """Run a command and return its exit status."""
    command, *rest = argv or ["--help"]
    if command in ("-h", "--help"):
        from tinyvit.training.presets import PRESETS

        print(USAGE.format(presets=", ".join(PRESETS)), end="")
        return 0
    if command == "--version":
        import tinyvit

        print(f"tinyvit {tinyvit.__version__}")
        return 0
    if command not in COMMANDS:
        raise BadInput(f"unknown command {command!r}; expected one of {', '.join(COMMANDS)}")
    return COMMANDS[command](rest) or 0


def parse(config, rest, prog, default=None):
    """Options as a dataclass; tyro's boxed errors become one line."""
    import tyro

    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.cli(config, default=default, args=rest, prog=prog)
    except SystemExit as error:
        if error.code in (0, None):
            raise
        raise BadInput(one_line(messages.getvalue(), prog)) from None


def one_line(box, prog):
    """The first paragraph of one of tyro's error boxes."""
    rows = [line.strip("│╭╮╰╯|+ ") for line in box.splitlines()[1:]]
    rows = ["" if set(row) <= set("─-") else row for row in rows]  # the rules between paragraphs
    message = []
    for row in rows:
        if not row and message:
            break
        message.append(row)
    hint = next((rows[i + 1].split()[0] for i, row in enumerate(rows[:-1]) if "meant" in row), None)
    close = f"; did you mean {hint}?" if hint else ""
    text = " ".join(filter(None, message))
    text = re.sub(r"^Error parsing (TrainConfig|optim|augment|model): ", "", text)  # the message names the field itself
    return f"{text}{close} (options: {prog} --help)"


# -- the commands ---------------------------------------------------------------------------------------------------


def train(rest):
    """tinyvit train PRESET [--field value …]"""
    from tinyvit.training import TrainConfig, preset
    from tinyvit.training import train as run_training
    from tinyvit.training.presets import PRESETS

    name, options = positional(rest, f"a preset ({', '.join(PRESETS)}) first: tinyvit train PRESET …")
    if name is None:
        listing = "\n".join(f"  {name}" for name in PRESETS)
        print(f"usage: tinyvit train PRESET [OPTIONS]\n\npresets:\n{listing}\n\noptions: tinyvit train PRESET --help")
        return 0
    config = parse(TrainConfig, options, f"tinyvit train {name}", default=preset(name))
    summary = run_training(config, name=name)
    return summary.get("interrupted", 0)


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
    from tinyvit.training.run_folder import RunFolder, load_tensors

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


@dataclass(frozen=True)
class SummaryOptions:
    """A model layer by layer. Multiply-adds count the matrix products of a forward; activations are what its
    backward needs, in float32."""

    batch_size: int = 1
    """Images in a batch."""
    img_size: int | None = None
    """Side of the images; by default the model's."""
    num_classes: int | None = None
    """Classes; by default the model's."""


def summary(rest):
    """tinyvit summary MODEL"""
    name, rest = positional(rest, "a model first: tinyvit summary MODEL …")
    options = parse(SummaryOptions, rest, "tinyvit summary MODEL")

    from tinyvit.models import create_model
    from tinyvit.models.summary import format_summary, summarize

    fields = {"img_size": options.img_size, "num_classes": options.num_classes}
    model = create_model(name, device="meta", **{k: v for k, v in fields.items() if v is not None})
    print(format_summary(summarize(model, options.batch_size)))


@dataclass(frozen=True)
class GradcheckOptions:
    """Compare every hand-written gradient with the complex step and with central differences, in float64."""

    directions: int = 20
    """Random directions through all parameters and the input of the model."""
    batch_size: int = 2
    """Images that the model is checked with."""
    seed: int = 0
    """Seed of the random inputs."""


def gradcheck(rest):
    """tinyvit gradcheck [MODEL]; status 1 if a gradient is wrong."""
    name, rest = positional(rest, "", default="(small)")
    options = parse(GradcheckOptions, rest, "tinyvit gradcheck [MODEL]")
    for option in ("directions", "batch_size"):
        if getattr(options, option) < 1:
            raise BadInput(f"{option.replace('_', '-')} has to be at least 1, got {getattr(options, option)}")
    if options.seed < 0:
        raise BadInput(f"seed has to be at least 0, got {options.seed}")

    import numpy as np

    from tinyvit.gradcheck import BOUNDS, MODEL_BOUNDS, check, check_model, operation_cases
    from tinyvit.models import create_model

    model = small_model() if name == "(small)" else create_model(name)
    shape = (options.batch_size, *model.embed.image_shape)
    images = np.random.default_rng(options.seed).standard_normal(shape)

    def checks():
        for operation, *case in operation_cases(options.seed):
            yield operation, BOUNDS, lambda method, case=case: check(*case, method, seed=options.seed)
        title = f"ViT {'' if name == '(small)' else name + ' '}({model.num_parameters():,} parameters)"
        yield title, MODEL_BOUNDS, lambda method: check_model(
            model, images, method=method, directions=options.directions, seed=options.seed
        )

    width = max(24, len(name) + 28)  # the widest line is the model's
    print(f"{'gradient of':<{width}}  {'complex step':>13}  {'central diff.':>13}  {'time':>7}")
    wrong = []
    for title, bounds, run_check in checks():
        started = time.perf_counter()
        reports = {method: run_check(method) for method in ("complex", "central")}
        right = all(report.max_error < bounds[method] for method, report in reports.items())
        wrong += [] if right else [(title, reports)]
        errors = "  ".join(f"{report.max_error:>13.1e}" for report in reports.values())
        print(f"{title:<{width}}  {errors}  {time.perf_counter() - started:5.1f} s  {'right' if right else 'WRONG'}")
    print(
        "\nlargest |backward − derivative| / max(1, |derivative|); "
        f"right is below {BOUNDS['complex']:.0e} and {BOUNDS['central']:.0e} "
        f"(the whole model: {MODEL_BOUNDS['complex']:.0e} and {MODEL_BOUNDS['central']:.0e})"
    )
    for title, reports in wrong:
        print(f"\n{title}", *reports.values(), sep="\n")
    return 1 if wrong else 0


def small_model():
    """A ViT with distinct sizes everywhere, so that no two axes can be mixed up unnoticed."""
    from tinyvit.models import ViT, ViTConfig

    return ViT(ViTConfig((8, 12), (4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=3, num_heads=3))


def positional(rest, expected, default=None):
    """Split off a command's first argument, which no option precedes; --help is left for the parser."""
    if rest and (not rest[0].startswith("-") or rest[0] == "-"):
        return rest[0], rest[1:]
    if default is None and not ({"-h", "--help"} & set(rest)):
        raise BadInput(f"expected {expected}, got {' '.join(rest) or 'nothing'}")
    return default, rest


COMMANDS = {"train": train, "evaluate": evaluate, "summary": summary, "gradcheck": gradcheck}
