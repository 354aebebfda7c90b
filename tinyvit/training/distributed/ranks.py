"""The processes of a training: one alone, or several ranks that train one model together."""

import atexit
import os
import socket
import time
import traceback
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tinyvit.backend import choose_device
from tinyvit.launcher import started_in_parallel
from tinyvit.training.display import Silent
from tinyvit.training.distributed import mpi
from tinyvit.training.distributed.agreement import agreed, check_same_training
from tinyvit.training.distributed.devices import bus, card_of, check_cards
from tinyvit.training.distributed.gradients import Reduction
from tinyvit.training.distributed.guardian import Guardian
from tinyvit.training.distributed.nccl import Nccl
from tinyvit.training.distributed.watch import LEAD, JobEnded, Watch
from tinyvit.training.threads import limit_cores

_sharing = ContextVar("tinyvit.ranks", default=None)  # the Ranks that share the forwards of an evaluation


class Part(NamedTuple):
    """What a rank computes of the batch of a step.

    where    its samples
    samples  of the whole batch
    """

    ranks: Any
    where: slice
    samples: int


class Alone:
    """A training in one process."""

    rank, size, leads = 0, 1, True
    clock = staticmethod(time.perf_counter)
    kind = None

    def gather(self, value):
        """The values of all ranks, in their order."""
        return [value]

    def first(self, function, *arguments):
        """What the function returns in the first rank, in all of them; an error there is raised in all."""
        return function(*arguments)

    def shown(self, display):
        """The display that this rank shows."""
        return display

    def held(self, holding):
        """The context manager `holding` in the first rank alone; an error as it begins is raised in all."""
        return holding

    def check_same(self, trainer):
        """Raise ValueError unless all ranks are about to train the same."""

    def begin(self, folder):
        """The training begins, whose run is in `folder`."""

    def part(self, samples):
        """The `Part` of a batch that this rank computes; None for the whole."""

    def stop(self, stop):
        """The same `Stop`, which is true in all ranks as soon as it is in one."""
        return stop

    def share(self, amount, device):
        """What this rank may take of the memory that a device has; None is unknown."""
        return amount

    def device(self, device):
        """(the device of this rank, the reason if "auto" fell back on the CPU, else None)."""
        return choose_device(device)

    @contextmanager
    def sharing(self):
        """Inside this the ranks share every forward of `inference.in_parts`, and each gets the whole result."""
        yield


ALONE = Alone()


class AgreedStop:
    """A `Stop` that is true in all ranks at the same place, as soon as the signal of one has come to all."""

    def __init__(self, stop, ranks):
        self.own, self.ranks = stop, ranks
        ranks.own_stop, ranks.stopped_by = stop, None

    def __bool__(self):
        return self.signal is not None

    @property
    def signal(self):
        return self.ranks.stopped_by

    @property
    def exit_status(self):
        return 128 + self.signal


class Ranks(Alone):
    """Several processes that train one model together, each a part of every batch.

    link    how they exchange: an `Mpi`, or an `Nccl` where the gradients are on GPUs
    watch   a `Watch`

    With every value that `gather` exchanges go the signal that has come to a rank, and the first one's clock: what is
    decided by them is decided alike by all.
    """

    def __init__(self, link, watch, how="auto"):
        self.link, self.watch, self.how = link, watch, how
        self.rank, self.size, self.leads = link.rank, link.size, link.rank == 0
        self.own_stop = self.stopped_by = None
        self.time, self.reductions = 0.0, WeakKeyDictionary()
        hosts = self.gather((host(), affinity()))
        here = [own for name, own in hosts if name == hosts[self.rank][0]]
        self.local, self.place = len(here), [name for name, _ in hosts[: self.rank]].count(host())
        # Each core is shared by the ranks that may use it: all of them, or one if the launcher has bound them.
        self.cores = max(1, int(sum(1 / sum(core in own for own in here) for core in affinity()) + 1e-6))

    @property
    def kind(self):
        return self.link.name

    def gather(self, value):
        return self.noted(self.link.gather((*self.notes(), value)))

    def notes(self):
        signal = None if self.own_stop is None else self.own_stop.signal
        return signal and int(signal), time.perf_counter()

    def noted(self, found):
        """The values of `found`, of which the signals and the first clock are noted."""
        self.watch.got_further()
        if self.stopped_by is None:
            self.stopped_by = next((signal for signal, _, _ in found if signal is not None), None)
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
            raise agreed(error)
        return result

    def shown(self, display):
        return display if self.leads else Silent()

    @contextmanager
    def held(self, holding):
        with ExitStack() as stack:
            self.first(lambda: stack.enter_context(holding) and None)
            yield

    def check_same(self, trainer):
        check_same_training(self, trainer)

    def begin(self, folder):
        self.watch.advise(f"go on from the last checkpoint with tinyvit train --resume {folder.path}")
        self.watch.doing = "training"

    def part(self, samples):
        return Part(self, slice(samples * self.rank // self.size, samples * (self.rank + 1) // self.size), samples)

    def stop(self, stop):
        return AgreedStop(stop, self)

    def share(self, amount, device):
        return amount if amount is None or device != "cpu" else amount // self.local

    def device(self, device):
        found, reason = choose_device(device)
        if found != "cpu" and device in ("auto", "cuda"):
            found = card_of(self.place)
        self.computes_on(found)
        return found, reason

    def computes_on(self, device):
        """Exchange arrays where they are: by NCCL between GPUs, unless MPI was asked for."""
        check_cards(self.gather((host(), device, None if device == "cpu" else bus(device))), self.watch.names)
        if device != "cpu" and self.how != "mpi" and not isinstance(self.link, Nccl):
            self.link = Nccl(self.link, device)

    @contextmanager
    def sharing(self):
        token = _sharing.set(self)
        try:
            yield
        finally:
            _sharing.reset(token)

    def reduction(self, model):
        """The `Reduction` of a model's gradients, the same in every step."""
        if self.reductions.get(model) is None or self.reductions[model].storage is not model.storage:
            self.reductions[model] = Reduction(self, model)
        return self.reductions[model]

    # -- for Reduction and Meeting ---------------------------------------------------------------------------------

    def begin_sum(self, own, total):
        return self.link.begin_sum(own, total)

    def got_further(self):
        self.watch.got_further()

    def results(self, value):
        return self.noted(self.link.results((*self.notes(), value)))

    def join(self, values):
        """The values of the parts of a batch in all ranks, in order, from those of this one."""
        return [value for values in self.link.join(values) for value in values]


def sharing():
    """The `Ranks` that share what is computed here, or None."""
    return _sharing.get()


def host():
    """What tells machines apart: a name alone may stand for several, in containers."""
    with suppress(OSError):
        return f"{socket.gethostname()} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    return socket.gethostname()


def affinity():
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


# -- beginning and end ----------------------------------------------------------------------------------------------

_joined = _current = None  # the Ranks of this process once it has found the others, and those of `launched`


@contextmanager
def launched(how="auto"):
    """The `Ranks` of this process, or `ALONE`.

    how   "auto" joins the others if mpiexec or srun has started several; "mpi", "nccl" or "none" as said

    Inside another `launched` it gives the same. An error that not all ranks have raised ends the job. Raises ValueError
    where MPI is missing or doesn't find the others.
    """
    global _current
    if _current is not None:
        yield _current
        return
    ranks = _current = joined(how)
    try:
        if ranks is not ALONE:
            limit_cores(ranks.cores)
        yield ranks
    except BaseException as error:
        if ranks is not ALONE and not getattr(error, "agreed", False):
            leave(ranks, error)
        raise
    finally:
        limit_cores(None)
        _current = None


def joined(how):
    """The `Ranks` as `launched` says."""
    global _joined
    rank, size = started_in_parallel()
    if how == "none" or (how == "auto" and size == 1):
        return ALONE
    if _joined is None:
        why = f"training in the {size} processes that mpiexec or srun started" if size > 1 else f"--distributed {how}"
        guardian = Guardian(rank, size) if size > 1 else None
        try:
            MPI = mpi.load(why)
        except ValueError:
            guardian and guardian.leave()
            raise
        found = MPI.COMM_WORLD.size
        if found != size:
            guardian and guardian.leave()
            if rank > 0:
                time.sleep(LEAD)  # the first one says it
            raise ValueError(
                f"{size} processes were started together, but MPI finds {found}: the mpiexec or srun that started them "
                f"belongs to another MPI than mpi4py's, {MPI.Get_library_version().splitlines()[0].strip()}; start "
                "them with that one's mpiexec"
            )
        if size == 1:
            return ALONE
        watch = Watch(MPI, MPI.COMM_WORLD, guardian)
        _joined = Ranks(mpi.Mpi(MPI, watch), watch, how)
        atexit.register(end)
    return _joined


def leave(ranks, error):
    """End the job after an error in this rank. The first rank raises what all of them end with, the others exit."""
    global _joined
    text, status = f"{error}", 2
    if isinstance(error, KeyboardInterrupt | SystemExit):
        ranks.watch.guardian.leave()
        return
    if not isinstance(error, ValueError | MemoryError | OSError | OverflowError):
        text, status = f"{type(error).__name__}: {error}", 1
        if not ranks.leads:
            os.write(ranks.watch.stderr, traceback.format_exc().encode())
    ended = ranks.watch.ended if isinstance(error, JobEnded) else ranks.watch.fail(text, status)
    ranks.watch.guardian.leave()
    if ended[2]:
        ranks.watch.ended, error.agreed = None, True
        if ended[0] == text:
            return
        raise agreed(JobEnded(ended[0])) from error
    _joined = None  # MPI isn't finalised: it would wait for what never comes
    if not ranks.leads:
        time.sleep(LEAD)  # the launcher ends the others with the first one that leaves
        os._exit(ended[1])
    ranks.watch.stopping.set()
    error.agreed = True
    if ended[0] != text or isinstance(error, JobEnded):
        advice = f"; {ranks.watch.advice}" if ranks.watch.advice else ""
        raise agreed(JobEnded(ended[0] + advice)) from error


def end():
    """Leave MPI with all ranks, when this process ends."""
    if _joined is not None:
        _joined.watch.doing = "ending"
        try:
            _joined.link.gather(None)
        except JobEnded:  # another rank has failed, where this one had nothing more to do
            time.sleep(3 * LEAD)  # meanwhile the watch ends this process; without MPI's end it must not be the first
        _joined.watch.guardian.ending()
        _joined.watch.stop()
        _joined.link.gather(None)
        _joined.watch.close()
        _joined.link.MPI.Finalize()
        _joined.watch.guardian.end()
