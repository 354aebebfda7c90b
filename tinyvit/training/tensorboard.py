"""A run's metrics by epoch for TensorBoard, beside the JSON lines that are always written."""

import time
from contextlib import contextmanager
from numbers import Real

PARTS = ("train", "validation", "test")
FLUSH_SECONDS = 1  # after which a row is on the disk


def summary_writer():
    """tensorboardX's SummaryWriter; ValueError if it is not installed."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard logging needs tensorboardX, which is not installed; install the extra tensorboard "
            "(python -m pip install -e '.[tensorboard]'), or train without it: metrics.jsonl has the same numbers"
        ) from error
    return SummaryWriter


@contextmanager
def tensorboard(folder, history=()):
    """A function that writes a row of metrics as scalars into event files in `folder`, at row["step"]; `train_loss` is
    shown as loss/train, beside loss/test.

    history   rows that are written first. What was written there before is hidden: a killed process's file may end
              anywhere, and a resumed run shows one curve
    """
    # A file is named after the second; without a suffix, a second run within it would overwrite the first one's.
    options = {"flush_secs": FLUSH_SECONDS, "filename_suffix": f".{time.time_ns()}"}
    with summary_writer()(str(folder), purge_step=1, **options) as writer:

        def add(row):
            for name, value in row.items():
                if name not in ("epoch", "step") and isinstance(value, Real):
                    part, _, what = name.partition("_")
                    writer.add_scalar(f"{what}/{part}" if part in PARTS else name, float(value), row["step"])

        for row in history:
            add(row)
        yield add
