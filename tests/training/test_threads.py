import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from tinyvit.training import threads as threads_module
from tinyvit.training.threads import map_threads, slices, thread_count


@pytest.fixture
def cores_are(monkeypatch):
    """Makes tinyvit believe that this process may use the given number of cores."""
    return lambda count: monkeypatch.setattr(threads_module, "cores", lambda: count)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@given(length=st.integers(1, 200), parts=st.integers(1, 50))
def test_slices_cut_a_length_into_nearly_equal_ranges_none_of_them_empty(length, parts):
    cut = slices(length, parts)
    sizes = [piece.stop - piece.start for piece in cut]
    assert [i for piece in cut for i in range(length)[piece]] == list(range(length))
    assert len(cut) == min(length, parts) and all(sizes) and max(sizes) - min(sizes) <= 1


def test_thread_count_is_the_argument_else_the_environment_else_the_number_of_cores(monkeypatch, cores_are):
    cores_are(8)
    monkeypatch.setenv("TINYVIT_THREADS", "5")
    assert thread_count(3) == 3
    assert thread_count() == 5
    monkeypatch.setenv("TINYVIT_THREADS", "")
    assert thread_count() == 8


@pytest.mark.parametrize("asked", ["0", "-2", "two", "1.5"])
def test_an_invalid_number_of_threads_is_refused_with_the_given_value(monkeypatch, asked):
    monkeypatch.setenv("TINYVIT_THREADS", asked)
    with pytest.raises(ValueError, match=f"threads from 1 to 4,096 in TINYVIT_THREADS, got '{asked}'"):
        thread_count()


@given(pieces=st.lists(st.integers(), max_size=8), threads=st.integers(1, 4))
def test_map_threads_keeps_the_order(pieces, threads):
    assert map_threads(lambda piece: 2 * piece, iter(pieces), threads) == [2 * piece for piece in pieces]


def test_pieces_run_at_the_same_time(cores_are):
    cores_are(3)
    meeting = threading.Barrier(3, timeout=10)
    assert sorted(map_threads(lambda piece: meeting.wait(), range(3), 3)) == [0, 1, 2]


@pytest.mark.parametrize("available", [1, 2])
def test_no_more_pieces_run_at_the_same_time_than_there_are_cores(cores_are, available):
    cores_are(available)
    running, most, lock = set(), [], threading.Lock()

    def run(piece):
        with lock:
            running.add(piece)
            most.append(len(running))
        time.sleep(0.02)
        with lock:
            running.remove(piece)
        return piece

    assert map_threads(run, range(6), 6) == list(range(6))
    assert max(most) <= available


def test_threads_inherit_the_settings_of_the_caller():
    setting = ContextVar("setting", default="outside")
    setting.set("inside")
    assert map_threads(lambda piece: setting.get(), range(3), 3) == ["inside"] * 3


def test_two_pieces_have_single_threaded_matrix_products_and_one_piece_all_threads(cores_are):
    cores_are(2)
    with threadpool_limits(2, user_api="blas"):
        assert [map_threads(lambda piece: blas_threads(), range(n), 2) for n in (2, 1)] == [[{1}, {1}], [{2}]]
        assert blas_threads() == {2}


def test_the_first_error_is_raised_once_no_piece_is_running_any_more(cores_are):
    cores_are(4)
    finished = []

    def run(piece):
        if piece < 2:
            raise ArithmeticError(f"piece {piece}")
        time.sleep(0.2)
        finished.append(piece)

    with pytest.raises(ArithmeticError, match="piece 0"):
        map_threads(run, range(4), 4)
    assert sorted(finished) == [2, 3]


def test_nested_calls_run_in_the_calling_thread():
    def split(start):
        return sum(map_threads(lambda i: start + i, range(3), 2))

    assert map_threads(split, [10, 20, 30, 40], 2) == [33, 63, 93, 123]


IN_A_THREAD = """
import sys, threading
import numpy as np
from threadpoolctl import threadpool_limits
from tinyvit import ViT, ViTConfig, optim
from tinyvit.training import train_step

def bits(threads):
    model = ViT(ViTConfig(depth=2, embed_dim=128, num_heads=4))
    draw, optimizer = np.random.default_rng(0), optim.AdamW(model)
    images, labels = draw.standard_normal((16, 3, 32, 32), "float32"), draw.integers(0, 10, 16)
    for _ in range(2):
        train_step(model, optimizer, images, labels, threads=threads)
    found.append(model.storage.data.tobytes())

found = []
for threads in (1, 2):
    with threadpool_limits(2):  # the main thread is the first to set it
        pass
    bits(threads)
    threadpool_limits(2)  # and keeps it
    others = [threading.Thread(target=bits, args=(threads,)) for _ in range(3)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
print(len(found), len(set(found[:4])), len(set(found[4:])))
"""


@pytest.mark.end_to_end
def test_a_step_has_the_same_bits_in_any_thread_and_beside_others():
    done = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["8", "1", "1"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.end_to_end
def test_a_process_that_is_forked_after_work_in_threads_has_threads_of_its_own():
    code = """
import os, signal, time
from tinyvit.training.threads import map_threads
map_threads(time.sleep, 4 * [0.05], 2)  # so that two threads are there
if os.fork() == 0:
    signal.alarm(10)
    os._exit(map_threads(time.sleep, 4 * [0.05], 2) != 4 * [None])
assert os.wait()[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
