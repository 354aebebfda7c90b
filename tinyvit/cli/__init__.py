"""The command line: one file a command, which is imported when it is called; parsing is left to tyro."""

import contextlib
import os
import sys
import warnings
from functools import partial
from importlib import import_module

from tinyvit.launcher import rank_and_size
from tinyvit.levels import check_environment
from tinyvit.text import did_you_mean, say

USAGE = """usage: tinyvit COMMAND …

  train PRESET [OPTIONS]   train a ViT; presets: {presets}
  finetune RUN --data NAME train a trained model further, on other images; with --img-size, on larger ones
  evaluate RUN             accuracy of a trained model on the test images, class by class
  predict RUN IMAGE…       classify images of your own, or each of their pixels
  compare RUN RUN…         settings that differ, results and curves of several trainings side by side
  match RUN IMAGE… --text "…" --text "…"
                           which text an image is most like, by a trained CLIP
  sample RUN --class 7     generate images of a class with a trained diffusion model
  inspect RUN              pictures of where a trained model looks, what it has learned, and what it gets wrong,
                           or, with --html, a page in which one steps through it
  features RUN IMAGE…      the features of images that its head reads, as a .npy file with one row per image
  probe-linear RUN         how well a linear classifier tells classes apart by its features, layer by layer
  knn RUN                  the same by the nearest neighbours among the training images
  import SOURCE --out RUN  make a run of weights of timm, of Hugging Face or of the original release
  export RUN --format FORMAT --out PATH
                           export a model: huggingface, timm, npz (the original's) or onnx
  notebooks [DIR]          copy the notebooks that explain all of it to a folder of your own
  exercises                list the exercises, with their notebooks and levels
  exercises check FILE NAME
                           check one exercise in a script or notebook of your own
  exercises grade FILE…    grade the exercises in learners' scripts and notebooks, or in folders of them
  exercises export --nbgrader DIR
                           write the exercises as assignments for nbgrader
  data NAME                fetch a data set, or take over a copy of it: cifar10, cifar100; digits, moving-digits,
                           coloured-digits, segment-digits and sized-digits are built in
  summary [MODEL]          layer by layer: shapes, parameters, multiply-adds, memory; or that of a run: summary RUN;
                           without one, or for a pattern such as "swin*", the models by name
  gradcheck [MODEL]        check every hand-written gradient
  bench                    how fast training, inference and attention are here, beside PyTorch
  COMMAND --help           the options of a command
"""

COMMANDS = {  # name: file, and in it a dataclass of the options, which is called; of train a function of the arguments
    "train": "train.train", "finetune": "finetune.Finetune", "evaluate": "evaluate.Evaluate",
    "predict": "predict.Predict", "match": "match.Match", "sample": "sample.Sample", "inspect": "inspect.Inspect",
    "compare": "compare.Compare", "features": "features.Features", "probe-linear": "features.ProbeLinear",
    "knn": "features.Knn", "import": "import_weights.Import", "export": "export.Export",
    "notebooks": "notebooks.Notebooks",
    "exercises": "exercises.Table", "exercises check": "exercises.Check", "exercises grade": "exercises.Grade",
    "exercises export": "exercises.Export", "data": "data.Data",
    "summary": "summary.Summary", "gradcheck": "gradcheck.Gradcheck", "bench": "bench.Bench",
}  # fmt: skip


notes = []  # lines for stderr at the end of a command that succeeds


def main(argv=None):
    """Run a command; ends the process with status 2 and one line on stderr where the input is wrong."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115
    argv = sys.argv[1:] if argv is None else list(argv)
    notes.clear()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without × or ─ shows ? instead
    try:
        with warnings_as_lines(), together(argv):
            status = command_of(argv)() or 0
        if status == 0:
            sys.stdout.flush()  # output that can't be written is an error, unless there is a worse one
            for note in notes:
                say(f"tinyvit: {note}")
        leave(status)
    except KeyboardInterrupt:
        print("tinyvit: interrupted", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(130)  # sys.exit would wait for threads that are still computing
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (MemoryError, OSError, ValueError, OverflowError) as error:
        say(f"tinyvit: error: {error_line(error)}")
        leave(2)


def error_line(error):
    """The error message as one line for the user."""
    if isinstance(error, MemoryError):
        told = str(error).startswith("too little memory")  # with what would fit
        why = f" ({error})" if str(error) else ""
        return str(error) if told else f"out of memory; take a smaller model, or fewer images at a time{why}"
    if isinstance(error, OSError):
        if error.filename:
            return f"{error.filename} can't be used: {error.strerror}"
        return f"the output can't be written: {error.strerror}" if error.errno else str(error)
    return str(error)


def together(argv):
    """The context of all processes that mpiexec or srun has started, unless each works by itself: they report an error
    once, and end together. All but the first print nothing."""
    rank, size = rank_and_size()
    if size == 1:
        return contextlib.nullcontext()
    from tinyvit.cli.parsing import option

    distributed = option(argv, "--distributed") or "auto"
    if distributed == "none":
        return contextlib.nullcontext()
    if rank > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    from tinyvit.training.distributed import join_ranks

    return join_ranks(distributed)


@contextlib.contextmanager
def warnings_as_lines():
    """Inside this a warning to the user is one line on stderr, once, without its place in the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: say(f"tinyvit: warning: {message}")
        yield


def leave(status):
    """End the process with this status, even if its last output can't be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # or Python would retry, and end with another status
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


def command_of(argv):
    """The function without arguments that runs a command; it returns the exit status, or None for success."""
    if argv[:1] == ["exercises"] and not "".join(argv[1:2]).startswith("-"):  # a command in two words
        argv = [" ".join(argv[:2]), *argv[2:]]
    command, *rest = argv or ["--help"]
    if command in ("-h", "--help"):
        from tinyvit.training.presets import PRESETS

        return partial(print, USAGE.format(presets=", ".join(PRESETS)), end="")
    if command == "--version":
        import tinyvit

        return partial(print, f"tinyvit {tinyvit.__version__}")
    if command not in COMMANDS:
        known = [name for name in COMMANDS if (" " in name) == (" " in command)]
        raise ValueError(f"unknown command {command!r}; {did_you_mean(command, known)}")
    check_environment()
    file, name = COMMANDS[command].split(".")
    found = getattr(import_module(f"tinyvit.cli.{file}"), name)
    if command == "train":  # whose options depend on the preset
        return partial(found, rest)
    from tinyvit.cli.parsing import parse

    return parse(found, rest, f"tinyvit {command}")
