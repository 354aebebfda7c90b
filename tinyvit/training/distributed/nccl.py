"""Sums and exchanges between GPUs by NCCL, through CuPy. Nothing here waits for a GPU.

MPI brings the ranks together, and carries what the host knows: which arrays there are, and how large.
"""

import io
import pickle

import numpy as np

from tinyvit.backend import current, library

TYPES = {"float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64"}
ALIGNMENT_BYTES = 16  # arrays begin at multiples of it


class Nccl:
    """The ranks of an `Mpi`, whose arrays are on a GPU each."""

    name = "NCCL"

    def __init__(self, mpi, device):
        self.mpi, self.device, self.rank, self.size = mpi, device, mpi.rank, mpi.size
        self.gather, self.cupy = mpi.gather, library(device)
        self.nccl = self.cupy.cuda.nccl
        if not self.nccl.available:
            raise ValueError("CuPy finds no NCCL; install nvidia-nccl-cu12 or -cu13, or give --distributed mpi")
        with current(device):
            number = mpi.gather(self.nccl.get_unique_id() if self.rank == 0 else None)[0]
            self.communicator = self.nccl.NcclCommunicator(self.size, number, self.rank)

    def add_up(self, array):
        """Replace an array by the sum of those of all ranks."""
        kind, place = getattr(self.nccl, TYPES[array.dtype.name]), array.data.ptr
        stream = self.cupy.cuda.get_current_stream().ptr
        self.communicator.allReduce(place, place, array.size, kind, self.nccl.NCCL_SUM, stream)

    def results(self, value):
        """The values of all ranks, whose arrays stay on GPUs: their bytes go by NCCL, everything else by MPI."""
        content = io.BytesIO()
        packer = Packer(content, 5)
        packer.arrays = []
        packer.dump(value)
        found, xp = self.gather((content.getvalue(), sum(map(aligned_bytes, packer.arrays)))), self.cupy
        largest = max(1, *(size for _, size in found))
        with current(self.device):
            own, rows = xp.zeros(largest, "uint8"), xp.empty((self.size, largest), "uint8")
            start = 0
            for array in packer.arrays:
                own[start : start + array.nbytes] = xp.ascontiguousarray(array).reshape(-1).view("uint8")
                start += aligned_bytes(array)
            stream = xp.cuda.get_current_stream().ptr
            self.communicator.allGather(own.data.ptr, rows.data.ptr, largest, self.nccl.NCCL_UINT8, stream)
        return [unpack(content, row) for (content, _), row in zip(found, rows)]


def aligned_bytes(array):
    """Bytes from where an array begins to where the next one does."""
    return -(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Packer(pickle.Pickler):
    """A pickler that leaves out `arrays` on a GPU."""

    def persistent_id(self, value):
        if type(value).__module__.partition(".")[0] != "cupy" or not hasattr(value, "dtype"):
            return None
        self.arrays.append(value)
        return value.shape, value.dtype.str


def unpack(content, row):
    """The value that a `Packer` has pickled, with its arrays from their bytes in `row`."""
    unpickler, start = pickle.Unpickler(io.BytesIO(content)), 0

    def array(about):
        nonlocal start
        shape, dtype = about
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        found = row[start : start + size].view(dtype).reshape(shape)
        start += aligned_bytes(found)
        return found

    unpickler.persistent_load = array
    return unpickler.load()
