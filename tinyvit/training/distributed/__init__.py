"""A training in one process, or in several that train one model: MPI on CPUs, NCCL between GPUs.

`ranks`, which several processes need, is imported only then.
"""

import time
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from tinyvit.backend import choose_device
from tinyvit.launcher import rank_and_size

shared_by = ContextVar("tinyvit.ranks", default=None)  # the Ranks that share forwards here, or None


class SingleProcess:
    """A training in one process."""

    rank, size, leads = 0, 1, True
    clock, sharing = staticmethod(time.perf_counter), staticmethod(nullcontext)

    def gather(self, value):
        """The values of all ranks, in their order."""
        return [value]

    def first(self, function, *arguments):
        """Call the function in the first rank alone; all return its result, or raise its error."""
        return function(*arguments)

    def hold(self, holding):
        """The context manager `holding` in the first rank alone; an error as it begins is raised in all."""
        return holding

    def part(self, samples):
        """The `Part` of a batch that this rank computes; None for the whole."""

    def stop(self, stop):
        """A `Stop` that is true in all ranks as soon as this one is true in any."""
        return stop

    def share(self, amount, device):
        """Bytes that this rank may take of a device's available memory; None if that is unknown."""
        return amount

    def device(self, device):
        """(the device of this rank, the reason if "auto" fell back on the CPU, else None)."""
        return choose_device(device)


SINGLE_PROCESS = SingleProcess()


_current = None  # the Ranks of `join_ranks`


@contextmanager
def join_ranks(how="auto"):
    """The `Ranks` of this process, or `SINGLE_PROCESS`.

    how   "auto" joins the others if mpiexec or srun has started several; "mpi", "nccl" or "none" as said

    Inside another `join_ranks` it gives the same. All ranks leave together; an error that not all come to ends the job.
    Raises ValueError where MPI is missing or doesn't find the others.
    """
    global _current
    if _current is not None:
        yield _current
        return
    joining = nullcontext(SINGLE_PROCESS)
    if how != "none" and (how != "auto" or rank_and_size()[1] > 1):
        from tinyvit.training.distributed.ranks import join_ranks

        joining = join_ranks(how)
    try:
        with joining as _current:
            yield _current
    finally:
        _current = None
