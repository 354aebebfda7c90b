"""Several processes, the ranks, that train one model together."""

import os
import socket
import sys
import time
import traceback
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

from tinyvit.backend import choose_device, library
from tinyvit.launcher import rank_and_size
from tinyvit.nn.buffers import BufferUpdate
from tinyvit.training.distributed import SINGLE_PROCESS, SingleProcess, mpi, shared_by
from tinyvit.training.distributed.nccl import Nccl
from tinyvit.training.signals import Stop
from tinyvit.training.threads import limit_cores

ERROR_GRACE_SECONDS = 3.0  # in which the errors of several ranks count as one
LEAD_SECONDS = 3.0    # that the first rank has to say what is wrong before the others leave, which may end all of them


class Part(NamedTuple):
    """The part of a step's batch that a rank computes.

    where    its samples
    samples  of the whole batch
    """

    ranks: Any
    where: slice
    samples: int


class Ranks(SingleProcess):
    """Several processes that train one model together, each a part of every batch.

    link    how they exchange arrays: an `Mpi`, or an `Nccl` where these are on GPUs
    names   of the ranks, for messages: "rank 1 (process 77 on host)"

    Every `gather` also sends each rank's signal and the first one's clock, so that all ranks decide alike.
    """

    def __init__(self, link, how="auto"):
        self.mpi, self.link, self.how = link, link, how
        self.rank, self.size, self.leads = link.rank, link.size, link.rank == 0
        self.own_stop, self.agreed_stop, self.time = Stop(), Stop(), 0.0
        self.names = self.gather(f"rank {self.rank} (process {os.getpid()} on {socket.gethostname()})")

    def gather(self, value):
        return self.note(self.link.gather((self.own_stop.signal, time.perf_counter(), value)))

    def results(self, value):
        """The values of all ranks, whose arrays stay on their device."""
        return self.note(self.link.results((self.own_stop.signal, time.perf_counter(), value)))

    def note(self, found):
        """Record the signals and the first clock of `found`, and return its values."""
        if not self.agreed_stop:
            self.agreed_stop.signal = next((signal for signal, _, _ in found if signal is not None), None)
        self.time = found[0][1]
        return [value for _, _, value in found]

    def clock(self):
        return self.time

    def first(self, function, *arguments):
        found = None
        if self.leads:
            try:
                found = function(*arguments), None
            except Exception as error:
                found = None, error
        result, error = self.gather(found)[0]
        if error is not None:
            raise error
        return result

    @contextmanager
    def hold(self, holding):
        with ExitStack() as stack:
            self.first(lambda: stack.enter_context(holding) and None)
            yield

    def part(self, samples):
        return Part(self, slice(samples * self.rank // self.size, samples * (self.rank + 1) // self.size), samples)

    def stop(self, stop):
        self.own_stop, self.agreed_stop = stop, Stop()
        return self.agreed_stop

    def share(self, amount, device):
        return amount if amount is None or device != "cpu" else amount // self.mpi.local

    def device(self, device):
        """Each rank of a machine takes another of the GPUs that it sees, unless one was asked for by its number; where
        the launcher shows each a GPU of its own, that is its first. Arrays are then exchanged where they are: by NCCL
        between GPUs, unless MPI was asked for."""
        (found, reason), address = choose_device(device), None
        if found != "cpu":
            runtime = library("cuda").cuda.runtime
            if device in ("auto", "cuda"):
                found = f"cuda:{self.mpi.place % runtime.getDeviceCount()}"
            address = runtime.deviceGetPCIBusId(int(found[5:]))  # the same in every process
        check_cards(self.gather((self.mpi.machine, address)), self.names)
        if found != "cpu" and self.how != "mpi" and not isinstance(self.link, Nccl):
            self.link = Nccl(self.link, found)
        return found, reason

    @contextmanager
    def sharing(self):
        """Inside this the ranks share every forward of `inference.in_parts`, and each gets the whole result."""
        token = shared_by.set(self)
        try:
            yield
        finally:
            shared_by.reset(token)

    # -- for train_step and Meeting --------------------------------------------------------------------------------

    def add_up(self, model, results):
        """Add up the model's gradients over all ranks; returns the results of the parts of the batch in all of them."""
        self.link.add_up(model.storage.gradients())
        modules = [module for _, module in model.named_modules()]
        numbers = {id(module): number for number, module in enumerate(modules)}
        sent = [part._replace(updates=[(numbers[id(m)], values) for m, values in part.updates]) for part in results]
        return [
            part._replace(updates=[BufferUpdate(modules[number], values) for number, values in part.updates])
            for parts in self.results(sent)
            for part in parts
        ]

    def join(self, values):
        """The values of the parts of a batch in all ranks, in order, from those of this one."""
        return [value for values in self.link.results(values) for value in values]


def check_cards(found, names):
    """Raise ValueError if two ranks compute on the same card, or some on a card and some on the CPU.

    found   (machine, address of the card or None) of every rank
    """
    addresses = [address for _, address in found]
    if None not in addresses and len(set(found)) < len(found):
        raise ValueError(
            f"{len(found)} ranks share {len(set(found))} GPU{'s' * (len(set(found)) > 1)}, and each needs its own; "
            "start as many ranks as there are GPUs, give --device cpu, or with Slurm --gpus-per-task 1"
        )
    if None in addresses and any(addresses):
        with_one = next(name for name, address in zip(names, addresses) if address)
        raise ValueError(
            f"{with_one} found a GPU and {names[addresses.index(None)]} none; give --device cpu, or start ranks where "
            "there are GPUs"
        )


# -- beginning and end ----------------------------------------------------------------------------------------------

@contextmanager
def join_ranks(how):
    """The `Ranks` as `join_ranks` says, or `SINGLE_PROCESS`, until all ranks leave together."""
    ranks = connect(how)
    if ranks is SINGLE_PROCESS:
        yield ranks
        return
    limit_cores(cores(ranks.mpi))
    try:
        error = None
        try:
            yield ranks
        except BaseException as raised:
            error = raised
        leave(ranks, error)
    finally:
        limit_cores(None)


@cache
def connect(how):
    """The `Ranks` as `join_ranks` says, or `SINGLE_PROCESS`."""
    rank, size = rank_and_size()
    try:
        MPI = mpi.load(f"training in the {size} processes that mpiexec or srun started" if size > 1 else
                       f"--distributed {how}")  # fmt: skip
        if MPI.COMM_WORLD.size != size:
            raise ValueError(
                f"{size} processes were started together, but MPI finds {MPI.COMM_WORLD.size}: the mpiexec or srun "
                "that started them belongs to another MPI than mpi4py's, "
                f"{MPI.Get_library_version().splitlines()[0].strip()}; start them with that one's mpiexec"
            )
    except ValueError:
        if rank > 0:
            time.sleep(LEAD_SECONDS)
        raise
    return SINGLE_PROCESS if size == 1 else Ranks(mpi.Mpi(MPI), how)


def cores(mpi):
    """How many cores this rank may use: all ranks on a machine share them, or only itself if the launcher bound it."""
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return max(1, len(own) // mpi.here.allgather(own).count(own))


def leave(ranks, error):
    """Wait until all ranks have come to their end, and raise the error of any. Where one has an error, and others go
    on without it, it says so and ends all of them."""
    arrived, deadline = ranks.mpi.ends.Ibarrier(), time.monotonic() + ERROR_GRACE_SECONDS
    while not arrived.Test():
        if error is not None and time.monotonic() > deadline:
            if not isinstance(error, EXPECTED):
                traceback.print_exception(error, file=sys.__stderr__)
            print(f"tinyvit: error: {ranks.names[ranks.rank]}: {describe(error)}", file=sys.__stderr__, flush=True)
            time.sleep(0.5)  # the launcher passes the line on, and then MPI's own
            ranks.mpi.MPI.COMM_WORLD.Abort(2)
        time.sleep(0.01)
    texts = ranks.mpi.gather(error and describe(error))
    if error is not None:
        raise error
    for name, text in zip(ranks.names, texts):
        if text is not None:
            raise ValueError(f"{name}: {text}")


EXPECTED = ValueError, MemoryError, OSError, OverflowError, KeyboardInterrupt, SystemExit


def describe(error):
    """An error in a line."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    return str(error) if isinstance(error, EXPECTED) else f"{type(error).__name__}: {error}"
