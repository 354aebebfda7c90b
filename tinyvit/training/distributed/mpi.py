"""Exchanges between ranks by MPI. Nothing here blocks: every wait looks whether the job still goes on, and gives its
core away to whoever computes."""

import ctypes
import os
import pickle
import time
from contextlib import suppress
from itertools import pairwise

import numpy as np

from tinyvit.backend import array_module, current, to_device, to_numpy

INLINE = 1016       # bytes of a value that travel with its length
SPIN = 100e-6       # seconds in which a wait doesn't sleep
LONGEST_SLEEP = 1e-3

MISSING = (
    "{} needs mpi4py, which can't be used here: {}; install it with an MPI (python -m pip install mpi4py mpich, or "
    "mpi4py beside the MPI that mpiexec or srun belongs to), or give --distributed none"
)


def load(why):
    """mpi4py's `MPI`, initialised for calls from several threads; ValueError if it or an MPI is missing."""
    try:
        import mpi4py

        mpi4py.rc.finalize = False  # where a rank has failed, that would wait for it
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        reason = "it isn't installed" if isinstance(error, ModuleNotFoundError) else str(error).splitlines()[0]
        raise ValueError(MISSING.format(why, reason)) from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise ValueError(
            "the MPI that mpi4py uses can't be called from several threads (MPI_THREAD_MULTIPLE); take another one"
        )
    return MPI


class Mpi:
    """The ranks of MPI's world, and sums and exchanges between them.

    Each kind of exchange has a communicator of its own, in which all ranks make the same calls in the same order:
    `control` by the main thread, `joins` by the parts of a step, `sums` of gradients as they become ready.

    watch   what `wait` asks whether the job goes on: `watch.check()` raises if it doesn't
    """

    name = "MPI"

    def __init__(self, MPI, watch):
        world = MPI.COMM_WORLD
        self.MPI, self.watch, self.world = MPI, watch, world
        self.rank, self.size = world.rank, world.size
        self.control, self.joins, self.sums = (world.Dup() for _ in range(3))

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, request):
        """Wait until a request is complete; raises what `watch.check` does if it never will be."""
        began, pause = time.perf_counter(), 0.0
        while not request.Test():
            if time.perf_counter() - began < SPIN:
                os.sched_yield()
                continue
            self.watch.waiting = True
            self.watch.check()
            pause = min(pause + 20e-6, LONGEST_SLEEP)
            time.sleep(pause)
        self.watch.waiting = False

    # -- values ----------------------------------------------------------------------------------------------------

    def gather(self, value, comm=None):
        """The values of all ranks, in their order: anything that can be pickled; arrays come as NumPy's."""
        comm = self.control if comm is None else comm
        content = pickle.dumps(value, protocol=5)
        own = np.zeros(8 + INLINE, "uint8")
        own[:8] = np.array([len(content)], "int64").view("uint8")
        if len(content) <= INLINE:
            own[8 : 8 + len(content)] = np.frombuffer(content, "uint8")
        heads = np.empty((self.size, 8 + INLINE), "uint8")
        self.wait(comm.Iallgather(own, heads))
        lengths = heads[:, :8].copy().view("int64")[:, 0]
        if lengths.max() <= INLINE:
            return [pickle.loads(head[8 : 8 + length].tobytes()) for head, length in zip(heads, lengths)]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        whole = np.empty(starts[-1], "uint8")
        mine = np.frombuffer(content, "uint8")
        counts = [int(length) for length in lengths], [int(start) for start in starts[:-1]]
        self.wait(comm.Iallgatherv([mine, self.MPI.BYTE], [whole, counts, self.MPI.BYTE]))
        return [pickle.loads(whole[a:b].tobytes()) for a, b in pairwise(starts)]

    def join(self, values):
        """The values of all ranks of an exchange between the parts of a step; arrays stay on their device."""
        device = device_in(values)
        found = self.gather(values if device is None else on_host(values), self.joins)
        return found if device is None else on_device(found, device)

    def results(self, value):
        """The same for the results of a step, by the main thread."""
        device = device_in(value)
        found = self.gather(value if device is None else on_host(value))
        return found if device is None else on_device(found, device)

    # -- sums ------------------------------------------------------------------------------------------------------

    def begin_sum(self, own, total):
        """Begin to add up the arrays `own` of all ranks into `total`, which may be the same one; a `Pending`."""
        if array_module(own) is np:
            source = self.MPI.IN_PLACE if own is total else own
            return Pending(self, self.sums.Iallreduce(source, total))
        if self.reaches_gpus:
            array_module(own).cuda.get_current_stream().synchronize()  # MPI knows nothing of what is queued
            source = self.MPI.IN_PLACE if own is total else own
            return Pending(self, self.sums.Iallreduce(source, total))
        host = to_numpy(own)
        return Pending(self, self.sums.Iallreduce(self.MPI.IN_PLACE, host), host, total)

    @property
    def reaches_gpus(self):
        """Whether this MPI reads and writes the memory of GPUs; where it doesn't, arrays go through the host."""
        with suppress(OSError, AttributeError):  # an MPI that can't say so can't do it
            return bool(ctypes.CDLL(self.MPI.__file__).MPIX_Query_cuda_support())
        return False

    def close(self):
        for comm in (self.control, self.joins, self.sums):
            comm.Free()


class Pending:
    """A sum that is on its way."""

    def __init__(self, mpi, request, host=None, total=None):
        self.mpi, self.request, self.host, self.total = mpi, request, host, total

    def poke(self):
        """Let MPI get on with it; it does so only inside calls."""
        return self.request.Test()

    def finish(self):
        self.mpi.wait(self.request)
        if self.host is not None:
            self.total[...] = array_module(self.total).asarray(self.host)


def device_in(value):
    """The device of the first array on a GPU in nested tuples, lists and dicts; None if there is none."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(device_in, value)), None)
    on_gpu = type(value).__module__.partition(".")[0] == "cupy" and hasattr(value, "dtype")
    return f"cuda:{value.device.id}" if on_gpu else None


def changed(value, function):
    """Nested tuples, lists and dicts with `function` of each array in them."""
    if isinstance(value, dict):
        return {name: changed(item, function) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(changed(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(changed(item, function) for item in value)
    return function(value) if hasattr(value, "dtype") else value


def on_host(value):
    return changed(value, to_numpy)


def on_device(value, device):
    with current(device):
        return changed(value, lambda array: to_device(np.asarray(array), device))
