"""What a person sees while a model trains: a live bar in a terminal, a line an epoch everywhere."""

import contextlib
import sys
import time

from tinyvit.backend import gpu
from tinyvit.functional.patches import as_pair
from tinyvit.text import printable
from tinyvit.training.threads import at_once

COLUMNS = "  epoch   train loss   train acc.  {part:>5} loss  {part:>5} acc.    time"

BETWEEN_UPDATES = 0.2  # seconds: reading a loss off a GPU waits for it, so not every step does


class Display:
    """Prints to stdout what should last, and draws the bar on stderr if that is a terminal."""

    bar = None

    def start(self, trainer, path):
        from tqdm import tqdm

        self.part = trainer.part
        config, split, total_steps, steps = trainer.config, trainer.split, trainer.total_steps, len(trainer.loader)
        device, reason, threads = trainer.device, trainer.why_not_gpu, at_once(trainer.threads)
        c = config.model
        height, width = as_pair(c.img_size)
        self.print(
            f"{config.dataset}: {len(split.train):,} training and {len(split.test):,} "
            f"{trainer.part} images "
            f"of {height}×{width}, {len(split.train.classes)} classes\n"
            f"ViT: {trainer.model.num_parameters():,} parameters, patch {c.patch_size}, {c.embed_dim} wide, "
            f"{c.depth} deep, {c.num_heads} heads\n"
            f"{config.epochs} epoch{'s' * (config.epochs > 1)} of {steps} step{'s' * (steps != 1)}, "
            f"{config.precision}, on {device}"
            + (f", {gpu(device)['gpu']}" if device != "cpu" else "")
            + (f" with up to {threads} thread{'s' * (threads != 1)}" if device == "cpu" else "")
            + f", kernels {trainer.kernels}"
            + (f" (no GPU: {reason})" if reason else "")
            + f"\nrun folder: {path}\n"
            + (f"going on after step {trainer.step:,} of {total_steps:,}\n" if trainer.step else "")
            + "\n"
            + COLUMNS.format(part="test" if trainer.part == "test" else "valid.")
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
        self.epochs, self.shown = config.epochs, 0.0

    def step(self, epoch, images, result):
        with contextlib.suppress(OSError):
            self.draw(epoch, images, result)

    def draw(self, epoch, images, result):
        self.bar.update(images)
        now = time.monotonic()
        if not self.bar.disable and now - self.shown > BETWEEN_UPDATES:
            self.shown = now
            loss, accuracy = float(result.loss), 100 * float(result.metrics["accuracy"])
            self.bar.set_description_str(
                f"epoch {epoch + 1}/{self.epochs}, loss {loss:.3f}, accuracy {accuracy:.0f} %, ", refresh=False
            )

    def epoch(self, row):
        with contextlib.suppress(OSError), self.aside():
            loss, accuracy = row[f"{self.part}_loss"], row[f"{self.part}_accuracy"]
            self.print(
                f"{row['epoch']:>7}   {number(row['train_loss']):>10}   {percent(row['train_accuracy']):>10}"
                f"   {number(loss):>9}   {percent(accuracy):>9}   {clock(row['seconds']):>5}"
            )

    def aside(self):
        """Inside this a line may be printed: the bar is out of the way."""
        return contextlib.nullcontext() if self.bar is None else self.bar.external_write_mode(sys.stdout)

    def finish(self, summary, path):
        if self.bar is not None:
            with contextlib.suppress(OSError):
                self.bar.close()
        if "interrupted" in summary:
            rows = [("stopped", f"after {summary['epochs']} epochs and {summary['steps']} steps, weights saved")]
        else:
            part = "test" if "test_accuracy" in summary else "validation"
            rows = [
                (f"{part} accuracy", percent(summary[f"{part}_accuracy"])),
                (f"{part} loss", number(summary[f"{part}_loss"])),
                ("epochs", f"{summary['epochs']}"),
            ]
        if summary["skipped_steps"]:
            rows += [("steps left out", f"{summary['skipped_steps']}, whose loss or gradient was no finite number")]
        rows += [
            ("time", f"{clock(summary['seconds'])} (minutes:seconds)"),
            *([("waiting for data", f"{100 * summary['data_wait']:.1f} %")] if "data_wait" in summary else []),
            ("parameters", f"{summary['parameters']:,}"),
            ("run folder", str(path)),
            ("go on with", f"tinyvit train --resume {path}")
            if "interrupted" in summary
            else ("evaluate with", f"tinyvit evaluate {path}"),
        ]
        self.print("\n" + table(rows))

    def warn(self, text):
        """Say on stderr what went wrong without stopping anything."""
        with contextlib.suppress(OSError):
            print(f"tinyvit: warning: {text}", file=sys.stderr, flush=True)

    def print(self, text):
        """Print, as long as that is possible: a training goes on when its terminal is closed or its log's disk full."""
        with contextlib.suppress(OSError):
            print(text, flush=True)


def table(rows):
    """Rows of (name, value) as lines with the values below each other, all of them `printable`."""
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}   {value}" for name, value in rows)


def number(loss):
    """A loss, or a dash where there is none."""
    return "–" if loss is None else f"{loss:.4f}" if loss < 1e4 else f"{loss:.2e}"


def percent(share):
    """A share from 0 to 1, or a dash where there is none."""
    return "–" if share is None else f"{100 * share:.2f} %"


def clock(seconds):
    """Seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
