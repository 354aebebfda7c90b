"""Exchanges between ranks by MPI."""

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import to_numpy

MISSING = (
    "{} needs mpi4py, which can't be used here: {}; install it with an MPI (python -m pip install mpi4py mpich, or "
    "mpi4py beside the MPI that mpiexec or srun belongs to), or give --distributed none"
)


def load(why):
    """mpi4py's `MPI`, which it initialises for calls from several threads; ValueError if it or an MPI is missing."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        reason = "it isn't installed" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]
        raise ValueError(MISSING.format(why, reason)) from error
    return MPI


class Mpi:
    """The ranks of MPI's world, and sums and exchanges between them: all ranks make the same calls in the same order.

    machine   the first rank on the same machine
    place     the number of this rank among those on its machine, of which there are `local`
    """

    name = "MPI"

    def __init__(self, MPI):
        self.MPI, self.world, self.ends = MPI, MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.world.rank, self.world.size
        self.here = self.world.Split_type(MPI.COMM_TYPE_SHARED)
        self.machine, self.place, self.local = self.here.bcast(self.rank), self.here.rank, self.here.size

    def gather(self, value):
        """The values of all ranks, in their order: anything that can be pickled."""
        return self.world.allgather(value)

    results = gather  # also of values with arrays, which come to the current device

    def add_up(self, array):
        """Replace an array by the sum of those of all ranks. One on a GPU goes by way of the host."""
        host = array if array_module(array) is np else to_numpy(array)
        self.world.Allreduce(self.MPI.IN_PLACE, host)
        if host is not array:
            array[...] = array_module(array).asarray(host)
