"""A run's metrics for TensorBoard, beside the JSON lines that are always written."""

import time
from numbers import Real

PARTS = ("train", "validation", "test")
FLUSH_SECONDS = 1  # after which a row is on the disk


class TensorBoard:
    """Writes rows of metrics as scalars into event files in `folder`; to be closed, or used in a `with`.

    step   how many steps were taken before; a resumed run thereby hides what was written after them by
           the process that died, and shows one curve

    Raises ValueError if tensorboardX is not installed.
    """

    def __init__(self, folder, step=0):
        # A file is named after the second; without a suffix, a second run within it would overwrite the first one's.
        self.writer = summary_writer()(
            str(folder), purge_step=step + 1, flush_secs=FLUSH_SECONDS, filename_suffix=f".{time.time_ns()}"
        )

    def add(self, row):
        """Write every number of a row at row["step"]; `train_loss` is shown as loss/train, beside loss/test."""
        for name, value in row.items():
            if name not in ("epoch", "step") and isinstance(value, Real):
                part, _, what = name.partition("_")
                self.writer.add_scalar(f"{what}/{part}" if part in PARTS else name, float(value), row["step"])

    def close(self):
        """Write what is left and close the file."""
        self.writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def summary_writer():
    """tensorboardX's SummaryWriter; raises ValueError, which says how to install it, if it isn't there."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard logging needs tensorboardX, which is not installed; install the extra tensorboard "
            "(python -m pip install -e '.[tensorboard]'), or train without it: metrics.jsonl has the same numbers"
        ) from error
    return SummaryWriter
