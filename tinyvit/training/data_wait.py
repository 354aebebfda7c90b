"""How much of its time a training spends waiting for data."""

import time


class DataWait:
    """Adds up, over the epoch at hand and over the whole training, the seconds from asking for a batch to having it,
    and the seconds of the steps in between.

    What is not training counts as neither: evaluation, and the checkpoint saved after it. A training that goes on from
    a checkpoint goes on from the seconds in it; steps that were lost after it, and are taken once more, count once.
    On a GPU a batch is had as soon as its computation is queued: the share is that of the host's time, and most of it
    passes while the GPU computes what was queued before.
    """

    def __init__(self, epoch=(0.0, 0.0), training=(0.0, 0.0), clock=time.perf_counter):
        self.in_epoch, self.in_training, self.clock = list(epoch), list(training), clock

    def watch(self, batches):
        """The same batches, while the time before and after each is taken."""
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
        """Begin to add up anew for the next epoch."""
        self.in_epoch = [0.0, 0.0]

    @property
    def of_epoch(self):
        """The share (0 to 1) of the epoch at hand that was waited; 0 before its first step."""
        return share(*self.in_epoch)

    @property
    def of_training(self):
        """The share (0 to 1) of all epochs so far that was waited."""
        return share(*self.in_training)

    def state(self):
        """What `DataWait(**state)` goes on from."""
        return {"epoch": list(self.in_epoch), "training": list(self.in_training)}


def share(waited, worked):
    return waited / (waited + worked) if waited + worked > 0 else 0.0
