"""The output of a training: a live bar in a terminal, and a line per epoch everywhere."""

import contextlib
import sys

from tinyvit.backend import gpu
from tinyvit.levels import without_numba
from tinyvit.models.architecture import size_read
from tinyvit.text import printable, say
from tinyvit.training.threads import concurrent_threads

# The fields of a model's configuration that are printed, where it has them.
SHAPE = {"patch_size": "patch {}", "embed_dim": "{} wide", "depth": "{} deep", "num_heads": "{} heads"}


WHY = {  # --precision auto took this one on a GPU
    "bfloat16": "its tensor cores have it",
    "float16": "it has no bfloat16",
    "float32": "it has no tensor cores",
}

# The ratios of the presets' steps in notebooks/guide/speed.md.
FASTER = "numba is not installed; with it a step is 1.2 to 1.8 times as fast: pip install 'tinyvit[fast]'"


class Display:
    """Prints lines to stdout, and draws the bar on stderr if that is a terminal."""

    bar = None

    def start(self, trainer, path):
        from tinyvit.progress import tqdm

        self.task, config, split, steps = trainer.task, trainer.config, trainer.split, len(trainer.loader)
        device, reason, threads = trainer.device, trainer.why_not_gpu, concurrent_threads(trainer.threads)
        ranks = trainer.ranks
        size = size_read(config.model)
        size = "their own sizes" if callable(size) else "{}×{}".format(*size)
        frames = getattr(config.model, "frames", None)
        shown = "images" if frames is None else f"videos of {frames} frames"
        shape = [text.format(vars(config.model)[name]) for name, text in SHAPE.items() if name in vars(config.model)]
        hints = [self.task.hint()] + [FASTER] * (device == "cpu" and without_numba())
        self.widths = {name: max(10, len(self.task.heading(name))) for name in self.task.columns}
        self.print(
            f"{config.dataset}: {len(split.train):,} training and {len(split.test):,} {self.task.part} {shown} "
            f"of {size}, {len(split.train.classes)} classes\n"
            f"{config.architecture}, {config.task}: "
            f"{', '.join([f'{trainer.model.num_parameters():,} parameters', *shape])}\n"
            f"{config.epochs} epoch{'s' * (config.epochs > 1)} of {steps} step{'s' * (steps != 1)}, "
            f"{config.precision}, on {device}"
            + (f", {gpu(device)['gpu']}" if device != "cpu" else "")
            + (f" ({config.precision} by auto: {WHY[config.precision]})" if device != "cpu" and trainer.is_auto else "")
            + (f" with up to {threads} thread{'s' * (threads != 1)}" if device == "cpu" else "")
            + (f" in each of {ranks.size} ranks, joined by {ranks.link.name}" if ranks.size > 1 else "")
            + f", kernels {trainer.kernels}"
            + (f" (no GPU: {reason})" if reason else "")
            + (f"\n{launches(trainer)}" if device != "cpu" else "")
            + f"\nrun folder: {printable(path)}\n"
            + "".join(f"note: {hint}\n" for hint in hints if hint and not (trainer.step or self.bar))
            + (f"going on after step {trainer.step:,} of {trainer.total_steps:,}\n" if trainer.step else "")
            + "\n  epoch   "
            + "   ".join(f"{self.task.heading(name):>{width}}" for name, width in self.widths.items())
            + "    time"
        )
        for row in trainer.history:
            self.epoch(row)
        edges = trainer.loader.edges
        self.bar = tqdm(
            total=config.epochs * edges[-1],
            initial=trainer.epoch * edges[-1] + edges[trainer.batch],
            unit=" images",
            unit_scale=True,
            disable=not sys.stderr.isatty(),
            leave=False,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f} % |{bar}| {desc}{rate_fmt}, {remaining} left",
        )
        self.epochs = config.epochs

    def step(self, epoch, images, result):
        with contextlib.suppress(OSError):
            if not self.bar.update(images):
                return  # it isn't drawn after each step, and reading a loss off a GPU waits for it
            figures = {"loss": f"{float(result.loss):.3f}"}
            for name in self.task.metrics:
                value = float(result.metrics[name])
                figures[name] = f"{100 * value:.0f} %" if name in self.task.shares else f"{value:.3f}"
            text = ", ".join(f"{name} {value}" for name, value in figures.items())
            self.bar.set_description_str(f"epoch {epoch + 1}/{self.epochs}, {text}, ")

    def epoch(self, row):
        with contextlib.suppress(OSError), self.aside():
            figures = "   ".join(f"{self.task.format_score(name, row[name]):>{w}}" for name, w in self.widths.items())
            self.print(f"{row['epoch']:>7}   {figures}   {clock(row['seconds']):>5}")

    def aside(self):
        """Inside this a line may be printed: the bar is out of the way."""
        return contextlib.nullcontext() if self.bar is None else self.bar.external_write_mode(sys.stdout)

    def finish(self, summary, path, task):
        if self.bar:
            with contextlib.suppress(OSError):
                self.bar.close()
        if "interrupted" in summary:
            rows = [("stopped", f"after {summary['epochs']} epochs and {summary['steps']} steps, weights saved")]
            commands = [("go on with", f"tinyvit train --resume {path}")]
        else:
            rows = [(name.replace("_", " "), task.format_score(name, summary[name])) for name in task.scores]
            rows += [("epochs", summary["epochs"])]
            commands = [("evaluate with", f"tinyvit evaluate {path}")]
            if task.classifies and summary.get("architecture") == "vit":
                commands += [("look inside with", f"tinyvit inspect {path} --html")]
        if summary["skipped_steps"]:
            rows += [("skipped steps", f"{summary['skipped_steps']}, whose loss or gradient was NaN or infinite")]
        rows += [
            ("time", f"{clock(summary['seconds'])} (minutes:seconds)"),
            ("waiting for data", f"{100 * summary['data_wait']:.1f} %"),
            ("parameters", f"{summary['parameters']:,}"),
            ("run folder", path),
            *commands,
        ]
        self.print("\n" + table(rows))

    def warn(self, text):
        """Print a warning on stderr."""
        say(f"tinyvit: warning: {text}")

    def print(self, text):
        """Print if possible: a training goes on when its terminal is closed or its log's disk is full."""
        with contextlib.suppress(OSError):
            print(text, flush=True)


class SilentDisplay:
    """A display that shows nothing: that of all ranks but the first."""

    def __getattr__(self, name):
        return lambda *arguments: None


def launches(trainer):
    """How the steps of a training on a GPU are launched, and why so."""
    if trainer.graphs:
        return "each step is captured once and then replayed as a CUDA graph, which takes the host the least time"
    reason = f"a CUDA graph {trainer.why_no_graph}" if trainer.why_no_graph else "--cuda-graph is False"
    return f"the kernels of each step are launched one by one: {reason}"


def table(rows):
    """Rows of (name, value) as lines with the values below each other, all of them `printable`."""
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}   {value}" for name, value in rows)


def percent(share):
    """A share from 0 to 1, or a dash for None and NaN."""
    return f"{100 * share:.2f} %" if share is not None and share == share else "–"


def clock(seconds):
    """Seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
