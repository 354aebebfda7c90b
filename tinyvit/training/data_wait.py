"""The share of its time that a training waits for data."""

import time


class DataWait:
    """Adds up the seconds waited for batches and the seconds of the steps between them, of an epoch and in all.

    Evaluation, and the checkpoint saved after it, count as neither. A resumed training goes on from the seconds in its
    checkpoint, so steps that were lost after it and are repeated count once. On a GPU a batch is there as soon as its
    computation is queued: the share is that of the host's time.
    """

    def __init__(self, epoch=(0.0, 0.0), training=(0.0, 0.0), clock=time.perf_counter):
        self.in_epoch, self.in_training, self.clock = list(epoch), list(training), clock

    def watch(self, batches):
        """The same batches; the time before and after each is added."""
        asked = self.clock()
        for batch in batches:
            had = self.clock()
            self.add(0, had - asked)
            yield batch
            asked = self.clock()
            self.add(1, asked - had)
        self.add(0, self.clock() - asked)

    def add(self, place, seconds):
        for total in (self.in_epoch, self.in_training):
            total[place] += seconds

    def end_epoch(self):
        """Begin the next epoch."""
        self.in_epoch = [0.0, 0.0]

    @property
    def of_epoch(self):
        """Share (0 to 1) of this epoch's time that was spent waiting; 0 before its first step."""
        return share(*self.in_epoch)

    @property
    def of_training(self):
        """Share (0 to 1) of the time of all epochs so far that was spent waiting."""
        return share(*self.in_training)

    def state(self):
        """Keyword arguments of a `DataWait` that goes on from here."""
        return {"epoch": list(self.in_epoch), "training": list(self.in_training)}


def share(waited, worked):
    return waited / (waited + worked) if waited + worked > 0 else 0.0
