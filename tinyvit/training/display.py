"""What a person sees while a model trains: a live bar in a terminal, a line an epoch everywhere."""

import contextlib
import sys
import time

from tqdm import tqdm

from tinyvit.models.vit import as_pair

COLUMNS = "  epoch   train loss   train acc.   test loss   test acc.    time"

BETWEEN_UPDATES = 0.2  # seconds: reading a loss off a GPU waits for it, so not every step does


class Display:
    """Prints to stdout what should last, and draws the bar on stderr if that is a terminal."""

    def start(self, config, model, split, path, device, reason, threads, total_steps):
        c = config.model
        height, width = as_pair(c.img_size)
        self.print(
            f"{config.dataset}: {len(split.train):,} training and {len(split.test):,} test images "
            f"of {height}×{width}, {len(split.train.classes)} classes\n"
            f"ViT: {model.num_parameters():,} parameters, patch {c.patch_size}, {c.embed_dim} wide, {c.depth} deep, "
            f"{c.num_heads} heads\n"
            f"{config.epochs} epoch{'s' * (config.epochs > 1)} of {total_steps // config.epochs} steps, "
            f"{config.precision}, on {device}"
            + (f" with up to {threads} thread{'s' * (threads != 1)}" if device == "cpu" else "")
            + (f" (no GPU: {reason})" if reason else "")
            + f"\nrun folder: {path}\n\n{COLUMNS}"
        )
        self.bar = tqdm(
            total=total_steps * min(config.batch_size, len(split.train)),
            unit=" images",
            unit_scale=True,
            disable=not sys.stderr.isatty(),
            leave=False,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f} % |{bar}| {desc}{rate_fmt}, {remaining} left",
        )
        self.epochs, self.shown = config.epochs, 0.0

    def step(self, epoch, images, result):
        self.bar.update(images)
        now = time.monotonic()
        if not self.bar.disable and now - self.shown > BETWEEN_UPDATES:
            self.shown = now
            loss, accuracy = float(result.loss), 100 * float(result.metrics["accuracy"])
            self.bar.set_description_str(
                f"epoch {epoch + 1}/{self.epochs}, loss {loss:.3f}, accuracy {accuracy:.0f} %, ", refresh=False
            )

    def epoch(self, row):
        with tqdm.external_write_mode(sys.stdout):
            self.print(
                f"{row['epoch']:>7}   {row['train_loss']:>10.4f}   {100 * row['train_accuracy']:>8.2f} %"
                f"   {row['test_loss']:>9.4f}   {100 * row['test_accuracy']:>7.2f} %   {clock(row['seconds']):>5}"
            )

    def finish(self, summary, path):
        self.bar.close()
        if "interrupted" in summary:
            rows = [("stopped", f"after {summary['epochs']} epochs and {summary['steps']} steps, weights saved")]
        else:
            rows = [
                ("test accuracy", f"{100 * summary['test_accuracy']:.2f} %"),
                ("test loss", f"{summary['test_loss']:.4f}"),
                ("epochs", f"{summary['epochs']}"),
            ]
        rows += [
            ("time", f"{clock(summary['seconds'])} (minutes:seconds)"),
            ("parameters", f"{summary['parameters']:,}"),
            ("run folder", str(path)),
            ("evaluate with", f"tinyvit evaluate {path}"),
        ]
        self.print("\n" + table(rows))

    def print(self, text):
        """Print, as long as somebody reads: a training goes on when its output's reader has gone."""
        with contextlib.suppress(BrokenPipeError):
            print(text, flush=True)


def table(rows):
    """Rows of (name, value) as lines with the values below each other."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}   {value}" for name, value in rows)


def clock(seconds):
    """Seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
