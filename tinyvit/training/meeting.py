"""Where the threads of a step exchange values: each part of a batch normalised as the whole batch."""

from threading import Barrier, BrokenBarrierError

ENDED = object()  # in place of a value, from a part that exchanges no more


class LeftAlone(RuntimeError):
    """A part of the batch waits for the value of another one, which has ended."""


class Meeting:
    """The exchanges between the parts of a batch, each part in a thread of its own.

    All parts must make the same calls in the same order. What each gets is in the order of the parts, so that what is
    computed from it has the same bits in every part and every run.

    across   the `Ranks` whose parts are in the batch, too; None: there are no others
    """

    def __init__(self, parts, across=None):
        self.values, self.across, self.found = [None] * parts, across, None
        self.barrier = Barrier(parts, self.complete)

    def join(self, part):
        """The function value -> values of all parts, for part number `part`."""

        def exchange(value):
            self.values[part] = value
            try:
                self.barrier.wait()
            except BrokenBarrierError as error:
                raise LeftAlone(
                    "a part of the batch ended while another waited for its statistics; an objective must call the "
                    "model equally often for every part"
                ) from error
            return self.found  # nobody completes the next exchange before all parts have taken this

        return exchange

    def complete(self):
        """Called in one of the parts once the values of all are there: add those of other ranks."""
        ended = [value is ENDED for value in self.values]
        if any(ended) and not all(ended):
            raise BrokenBarrierError
        self.found = self.values.copy() if self.across is None or any(ended) else self.across.join(self.values)

    def attended(self, function):
        """`function` of a part's number, which then waits for the end of the other parts."""

        def run(part):
            try:
                result = function(part)
            except BaseException:
                self.barrier.abort()  # nobody waits for it any longer
                raise
            self.join(part)(ENDED)
            return result

        return run


def mixes_samples(model, ctx):
    """Whether what the model gives for a sample depends on the others of its batch, as in training with batch norm."""
    if ctx is None or not ctx.training:
        return False
    return any([module.mixes_samples for module in model.walk().modules])
