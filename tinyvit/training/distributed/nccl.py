"""Sums and exchanges between GPUs by NCCL, through CuPy. Nothing here waits for a GPU.

MPI brings the ranks together, and carries what the host knows: which arrays there are, and how large.
"""

import numpy as np

from tinyvit.backend import current, library
from tinyvit.training.distributed.mpi import changed

TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64"}


class Nccl:
    """The ranks of an `Mpi`, whose arrays are on a GPU each.

    Sums run in a stream of their own, beside the backward that goes on.
    """

    name = "NCCL"

    def __init__(self, mpi, device):
        self.mpi, self.device, self.rank, self.size = mpi, device, mpi.rank, mpi.size
        self.watch, self.MPI = mpi.watch, mpi.MPI
        self.cupy = library(device)
        self.nccl = self.cupy.cuda.nccl
        if not self.nccl.available:
            raise ValueError(
                "CuPy finds no NCCL; install it (python -m pip install nvidia-nccl-cu12, or -cu13), or give "
                "--distributed mpi"
            )
        with current(device):
            number = mpi.gather(self.nccl.get_unique_id() if self.rank == 0 else None)[0]
            self.communicator = self.nccl.NcclCommunicator(self.size, number, self.rank)
            self.stream = self.cupy.cuda.Stream(non_blocking=True)

    def gather(self, value):
        """The values of all ranks, without arrays on a GPU."""
        return self.mpi.gather(value)

    def begin_sum(self, own, total):
        """Begin to add up the arrays `own` of all ranks into `total`, which may be the same one; a `Queued`."""
        kind = getattr(self.nccl, TYPES[own.dtype.name])
        self.stream.wait_event(self.cupy.cuda.get_current_stream().record())
        to = self.stream.ptr
        self.communicator.allReduce(own.data.ptr, total.data.ptr, own.size, kind, self.nccl.NCCL_SUM, to)
        return Queued(self)

    def join(self, value):
        """The values of all ranks, nested tuples, lists and dicts, whose arrays stay on their devices."""
        return self.exchange(value, self.mpi.joins)

    def results(self, value):
        return self.exchange(value, self.mpi.control)

    def exchange(self, value, comm):
        """The values of all ranks: their arrays' bytes by NCCL, everything else by MPI."""
        arrays = []

        def taken_out(array):
            if type(array).__module__.partition(".")[0] != "cupy":
                return array
            arrays.append(array)
            return Place(len(arrays) - 1, array.shape, array.dtype.str)

        skeletons = self.mpi.gather(changed(value, taken_out), comm)
        sizes = [sum(place.nbytes for place in places_in(skeleton)) for skeleton in skeletons]
        xp, largest = self.cupy, max(1, *sizes)
        with current(self.device):
            own, found = xp.zeros(largest, "uint8"), xp.empty((self.size, largest), "uint8")
            start = 0
            for array in arrays:
                raw = xp.ascontiguousarray(array).reshape(-1).view("uint8")
                own[start : start + raw.size] = raw
                start += -(-raw.size // ALIGNED) * ALIGNED
            here = xp.cuda.get_current_stream()
            self.stream.wait_event(here.record())
            self.communicator.allGather(own.data.ptr, found.data.ptr, largest, self.nccl.NCCL_UINT8, self.stream.ptr)
            here.wait_event(self.stream.record())
            return [filled(skeleton, found[rank]) for rank, skeleton in enumerate(skeletons)]


ALIGNED = 16  # bytes, at whose multiples arrays begin


class Place:
    """Where an array was in a value."""

    def __init__(self, number, shape, dtype):
        self.number, self.shape, self.type = number, shape, dtype

    @property
    def size(self):
        return int(np.prod(self.shape)) * np.dtype(self.type).itemsize

    @property
    def nbytes(self):
        return -(-self.size // ALIGNED) * ALIGNED


def places_in(skeleton):
    """The places in a value whose arrays were taken out, in order."""
    if isinstance(skeleton, Place):
        return [skeleton]
    items = skeleton.values() if isinstance(skeleton, dict) else skeleton if isinstance(skeleton, (tuple, list)) else ()
    return [place for item in items for place in places_in(item)]


def filled(skeleton, row):
    """The value, with its arrays put back from their bytes."""
    starts = np.cumsum([0, *(place.nbytes for place in places_in(skeleton))])

    def array(place):
        start = int(starts[place.number])
        return row[start : start + place.size].view(place.type).reshape(place.shape)

    return put_back(skeleton, array)


def put_back(value, array):
    if isinstance(value, Place):
        return array(value)
    if isinstance(value, dict):
        return {name: put_back(item, array) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(put_back(item, array) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(put_back(item, array) for item in value)
    return value


class Queued:
    """A sum that is queued on the GPU."""

    def __init__(self, nccl):
        self.nccl, self.done = nccl, nccl.stream.record()

    def poke(self):
        """Nothing: the GPU gets on with it by itself."""

    def finish(self):
        """Have what follows on this GPU wait for it; the host doesn't."""
        self.nccl.cupy.cuda.get_current_stream().wait_event(self.done)
