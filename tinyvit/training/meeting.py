"""The exchange of values between the threads of a step, so that batch norm normalises each part as the whole batch."""

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
        self.values, self.ranks, self.found, self.ended = [None] * parts, ranks, None, []
        self.barrier = Barrier(parts, self.complete)

    def join(self, part):
        """The function value -> values of all parts, for part number `part`."""

        def exchange(value):
            self.values[part] = value
            self.wait()
            return self.found  # nobody completes the next exchange before all parts have taken this

        return exchange

    def wait(self):
        """Wait until all parts have contributed a value, or all have ended."""
        try:
            self.barrier.wait()
        except BrokenBarrierError as error:
            raise BrokenExchange(
                "a part of the batch ended while another waited for its statistics; an objective must call the model "
                "equally often for every part"
            ) from error

    def complete(self):
        """Called in one of the parts once all of them wait: add the values of other ranks."""
        if 0 < len(self.ended) < len(self.values):
            raise BrokenBarrierError
        if not self.ended:
            self.found = self.values.copy() if self.ranks is None else self.ranks.join(self.values)

    def signal_end_after(self, function):
        """`function` of a part, which then waits for the end of the other parts."""

        def run(*arguments):
            try:
                result = function(*arguments)
            except BaseException:
                self.barrier.abort()  # nobody waits for it any longer
                raise
            self.ended.append(None)
            self.wait()
            return result

        return run


def mixes_samples(model, ctx):
    """Whether what the model gives for a sample depends on the others of its batch, as in training with batch norm."""
    if ctx is None or not ctx.training:
        return False
    return any([module.mixes_samples for module in model.walk().modules])
