"""Where the threads of a step exchange values: each part of a batch normalised as the whole batch."""

from collections import defaultdict
from threading import Condition


class LeftAlone(RuntimeError):
    """A part of the batch waits for the value of another one, which has ended."""


class Meeting:
    """The exchanges between the parts of a batch, each part in a thread of its own.

    All parts must make the same calls in the same order. What each gets is in the order of the parts, so that what is
    computed from it has the same bits in every part and every run.
    """

    def __init__(self, parts):
        self.parts, self.changed, self.ended = parts, Condition(), False
        self.values = defaultdict(dict)  # number of the exchange -> part -> value

    def join(self, part):
        """The function value -> values of all parts, for part number `part`."""
        numbers = iter(range(1 << 62))
        return lambda value: self.exchange(next(numbers), part, value)

    def exchange(self, number, part, value):
        """The values that all parts gave to the exchange of this number, as soon as they are there."""
        with self.changed:
            values = self.values[number]
            values[part] = value
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ended or len(values) == self.parts)
            if len(values) < self.parts:
                raise LeftAlone(
                    "a part of the batch ended while another waited for its statistics; an objective must call the "
                    "model equally often for every part"
                )
            return [values[i] for i in range(self.parts)]

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
    return any(module.mixes_samples for _, module in model.named_modules())
