"""Where the threads of a step exchange values: each part of a batch normalised as the whole batch."""

from collections import defaultdict
from math import inf
from threading import Condition


class LeftAlone(RuntimeError):
    """A part of the batch waits for the value of another one, which has ended."""


class Meeting:
    """The exchanges between the parts of a batch, each part in a thread of its own.

    All parts must make the same calls in the same order. What each gets is in the order of the parts, so that what is
    computed from it has the same bits in every part and every run.

    across   the `Ranks` whose parts are in the batch, too; None: there are no others
    """

    def __init__(self, parts, across=None):
        self.parts, self.across, self.changed, self.ended = parts, across, Condition(), False
        self.values = defaultdict(dict)  # number of the exchange -> part -> value
        self.found = {}  # number of the exchange -> the values of all parts

    def join(self, part):
        """The function value -> values of all parts, for part number `part`."""
        numbers = iter(range(1 << 62))
        return lambda value: self.exchange(next(numbers), part, value)

    def exchange(self, number, part, value):
        """The values that all parts gave to the exchange of this number, as soon as they are there."""
        with self.changed:
            values = self.values[number]
            values[part] = value
            last = len(values) == self.parts
        if last:  # which nobody else is waited for: those of other ranks come without the lock
            self.complete(number, [values[i] for i in range(self.parts)])
        with self.changed:
            self.changed.wait_for(lambda: number in self.found or (self.ended and len(values) < self.parts))
            if number not in self.found:
                raise LeftAlone(
                    "a part of the batch ended while another waited for its statistics; an objective must call the "
                    "model equally often for every part"
                )
            return self.found[number]

    def complete(self, number, values):
        """The values of all parts here are there: add those of other ranks, and tell all."""
        try:
            found = values if self.across is None else self.across.join(values)
        except BaseException:
            values.clear()
            with self.changed:
                self.parts = inf  # no exchange is complete any more
            self.end()
            raise
        with self.changed:
            self.found[number] = found
            self.changed.notify_all()

    def end(self):
        """A part has ended: whoever waits for more of it than it gave raises LeftAlone."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def attended(self, function):
        """`function`, after which its part has ended."""

        def run(piece):
            try:
                return function(piece)
            finally:
                self.end()

        return run


def mixes_samples(model, ctx):
    """Whether what the model gives for a sample depends on the others of its batch, as in training with batch norm."""
    if ctx is None or not ctx.training:
        return False
    return any([module.mixes_samples for module in model.walk().modules])
