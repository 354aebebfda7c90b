"""Ranks on GPUs that add up gradients by NCCL: on the stand-in for CuPy, with one for NCCL, a thread for each rank."""

import ctypes
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pretend_cupy
import pytest
from batch_normed import Normed, batch

from tinyvit import Context, Key, optim
from tinyvit.cli.model_options import computing
from tinyvit.training import distributed, train_step
from tinyvit.training.distributed import nccl
from tinyvit.training.distributed.ranks import Ranks, check_cards

pytestmark = pytest.mark.cuda
RANKS = 2


class Table:
    """Where the ranks, threads of this process, put values for each other."""

    def __init__(self):
        self.barrier, self.values = threading.Barrier(RANKS), [None] * RANKS

    def exchange(self, rank, value):
        self.values[rank] = value
        self.barrier.wait(30)
        found = list(self.values)
        self.barrier.wait(30)
        return found


def at(pointer, count, dtype):
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype)


class NcclCommunicator:
    """cupy.cuda.nccl.NcclCommunicator, on arrays that lie in the memory of this process."""

    def __init__(self, ndev, commId, rank):
        assert ndev == RANKS
        self.table, self.rank = commId, rank

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        assert op == "sum"
        found = self.table.exchange(self.rank, at(sendbuf, count, datatype).copy())
        at(recvbuf, count, datatype)[:] = sum(found[1:], start=found[0])

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        found = self.table.exchange(self.rank, at(sendbuf, count, datatype).copy())
        at(recvbuf, RANKS * count, datatype)[:] = np.concatenate(found)


class Host:
    """A stand-in for `Mpi` with the attributes that `Nccl` uses."""

    def __init__(self, rank, table):
        self.rank, self.size, self.table = rank, RANKS, table

    def gather(self, value):
        return self.table.exchange(self.rank, value)


@pytest.fixture
def cupy(pretended):
    """The stand-in alone: on a GPU these calls are NCCL's, and need as many cards as ranks."""
    return pretended


@pytest.fixture
def in_ranks(cupy, monkeypatch):
    """A function that runs function(link) in two ranks, and returns both results."""
    tables = Table(), Table()
    stand_in = SimpleNamespace(
        available=True, get_unique_id=lambda: tables[1], NcclCommunicator=NcclCommunicator, NCCL_SUM="sum",
        NCCL_FLOAT32="float32", NCCL_FLOAT64="float64", NCCL_UINT8="uint8",
    )  # fmt: skip
    monkeypatch.setattr(pretend_cupy.cupy.cuda, "nccl", stand_in, raising=False)

    def run(function):
        with ThreadPoolExecutor(RANKS) as pool:
            return list(pool.map(lambda rank: function(nccl.Nccl(Host(rank, tables[0]), "cuda:0")), range(RANKS)))

    return run


def test_sums_and_values_of_uneven_shapes_come_to_all_ranks_in_order(cupy, in_ranks):
    def exchange(link):
        own, total = (cupy.asarray(np.arange(5.0) + link.rank) for _ in range(2))
        link.add_up(total)
        value = {"rows": cupy.asarray(np.full((2 + link.rank, 3), link.rank, "float32")), "count": (link.rank, own[:3])}
        return total.get(), [(v["rows"].get(), v["count"][0], v["count"][1].get()) for v in link.results(value)]

    for total, found in in_ranks(exchange):
        np.testing.assert_array_equal(total, 2 * np.arange(5.0) + 1)
        for rank, (rows, count, numbers) in enumerate(found):
            np.testing.assert_array_equal(rows, np.full((2 + rank, 3), rank, "float32"))
            np.testing.assert_array_equal(numbers, np.arange(3.0) + rank)
            assert count == rank


def test_two_ranks_train_what_one_trains_with_batch_norm_and_nothing_waits(cupy, in_ranks):
    images, labels = batch(7)

    def trained(part_of):
        model = Normed()
        model.to(device="cuda:0", dtype="float64")
        optimizer, found = optim.SGD(model, 0.1), []
        for step in range(4):
            part = part_of(len(images))
            where = slice(0, len(images)) if part is None else part.where
            own, ctx = (cupy.asarray(x[where]) for x in (images, labels)), Context(True, Key(0, step).skip(where.start))
            found.append(train_step(model, optimizer, *own, ctx, clip_norm=0.5, part=part).loss.get())
        return {name: array.get() for name, array in model.state_dict().items()} | {"losses": np.array(found)}

    expected = trained(lambda samples: None)
    for got in in_ranks(lambda link: trained(Ranks(link).part)):
        for name, array in expected.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-10, atol=1e-12, err_msg=name)


def test_two_ranks_on_one_card_are_refused_and_so_is_a_rank_without(cupy):
    names = ["rank 0", "rank 1"]
    for first, second in ((("a", "01"), ("b", "01")), (("a", None), ("a", None))):
        check_cards([first, second], names)
    with pytest.raises(ValueError, match="2 ranks share 1 GPU, and each needs its own"):
        check_cards([("a", "01"), ("a", "01")], names)
    with pytest.raises(ValueError, match="rank 0 found a GPU and rank 1 none"):
        check_cards([("a", "01"), ("b", None)], names)


def test_an_evaluation_moves_the_model_of_each_rank_to_a_card_of_its_own(cupy, monkeypatch):
    ranks = SimpleNamespace(
        size=2, device=lambda device: ("cuda:1", None), gather=lambda value: [value, value], sharing=nullcontext
    )  # fmt: skip
    monkeypatch.setattr(pretend_cupy.Device, "count", 2)
    monkeypatch.setattr(distributed, "join_ranks", lambda: nullcontext(ranks))
    learner = Normed()
    learner.to(device="cuda:0")
    trained = SimpleNamespace(model=learner, learner=learner, why_not_gpu=None)
    options = SimpleNamespace(device="auto", kernels=None)
    with computing(trained, options):
        assert learner.device == "cuda:1"


def test_cupy_has_these_calls_of_nccl(real):
    from cupy.cuda import nccl as real_nccl

    assert real_nccl.available, "these tests need NCCL: python -m pip install nvidia-nccl-cu12"
    for name in ("NCCL_SUM", "NCCL_FLOAT32", "NCCL_FLOAT64", "NCCL_UINT8", "get_unique_id"):
        assert hasattr(real_nccl, name)
    for name in ("allReduce", "allGather"):
        line = getattr(real_nccl.NcclCommunicator, name).__doc__.splitlines()[0]
        known = [argument.split()[-1] for argument in line.partition("(")[2].strip(")").split(", ")]
        assert known == list(inspect.signature(getattr(NcclCommunicator, name)).parameters)
