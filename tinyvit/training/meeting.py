"""The exchange of values between the threads of a step, so that batch norm normalises each part as the whole batch."""

from contextlib import suppress
from threading import Barrier, BrokenBarrierError


class BrokenExchange(RuntimeError):
    """Another part of the batch ended before contributing its value."""


class Meeting:
    """The exchanges between the parts of a batch, each part in a thread of its own.

    All parts must make the same calls in the same order. What each gets is in the order of the parts, so that what is
    computed from it has the same bits in every part and every run.

    ranks   that have other parts of the batch, a `Ranks`; None: there are no others
    """

    def __init__(self, parts, ranks=None):
        self.values, self.ranks, self.found = [None] * parts, ranks, None
        self.barrier = Barrier(parts, self.collect)

    def collect(self):
        """Gather the values, once all parts have contributed theirs."""
        self.found = self.values.copy() if self.ranks is None else self.ranks.join(self.values)

    def exchange(self, part, value):
        """Contribute the value of part number `part`, wait for the others, and return the values of all parts.

        Raises BrokenExchange if another part has ended.
        """
        before, self.values[part] = self.found, value
        with suppress(BrokenBarrierError):  # which is also raised where all have come, and one has ended since
            self.barrier.wait()
        if self.found is before:
            raise BrokenExchange("a part has ended; an objective must call the model equally often for every part")
        return self.found  # nobody completes the next exchange before all parts have taken this

    def signal_end_after(self, function):
        """Wrap the function of a part so that other parts stop waiting when it ends."""

        def run(*arguments):
            try:
                return function(*arguments)
            finally:
                self.barrier.abort()

        return run


def mixes_samples(model, ctx):
    """Whether what the model gives for a sample depends on the others of its batch, as in training with batch norm."""
    if ctx is None or not ctx.training:
        return False
    return any([module.mixes_samples for module in model.walk().modules])
