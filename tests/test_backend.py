import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pretend_cupy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from strategies import seeds

from tinyvit import Key, backend, keys


@given(seed=st.integers(0, 2**70), step=st.integers(0, 2**40), sample=st.integers(0, 2**40))
def test_the_same_key_gives_the_same_numbers_and_each_sample_has_its_own(seed, step, sample):
    key = Key(seed, step, "blocks.0", sample)
    rows = key.uniform((4, 3, 5))
    np.testing.assert_array_equal(key.uniform((4, 3, 5)), rows)
    for i in range(4):
        np.testing.assert_array_equal(key.skip(i).uniform((1, 3, 5))[0], rows[i])
    assert len(np.unique(rows)) == rows.size


def test_uniform_numbers_are_uniform_and_normal_ones_normal_and_those_of_the_sample():
    x = Key(1).uniform((400, 500))
    assert x.dtype == "float32" and x.min() >= 0 and x.max() < 1 and kstest(x.ravel(), "uniform").pvalue > 0.001
    key = Key(1, 2, "noise")
    found = key.normal((200, 5, 100), dtype="float64")
    assert kstest(found.ravel(), "norm").pvalue > 0.01
    np.testing.assert_array_equal(key.skip(50).normal((7, 5, 100), dtype="float64"), found[50:57])
    np.testing.assert_allclose(key.normal((200, 5, 100)), found, rtol=1e-6)
    assert np.isfinite(found).all() and (found != Key(1, 3, "noise").normal(found.shape, dtype="float64")).all()


@given(seed=seeds())
def test_any_part_of_a_key_changes_its_numbers(seed):
    keys = [Key(seed), Key(seed + 1), Key(seed, step=1), Key(seed, path="a"), Key(seed, sample=1)]
    first = [key.uniform((1, 4)).tobytes() for key in keys]
    assert len(set(first)) == len(keys)
    assert len({key.at("x").generator().bytes(8) for key in keys[:3]}) == 3


def test_splitmix64_gives_its_published_numbers():
    """The first outputs for the seed 1234567, as printed by the reference implementation in C."""
    counters = np.uint64(1234567) + np.arange(1, 6, dtype="uint64") * np.uint64(keys.GOLDEN_GAMMA)
    assert keys._mix64(counters).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


# -- devices ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch):
    """A stand-in for CuPy with two GPUs that tests may break."""
    cupy = ModuleType("cupy")
    vars(cupy).update(vars(pretend_cupy.cupy))
    cupy.cuda = SimpleNamespace(**vars(cupy.cuda))
    cupy.cuda.runtime = SimpleNamespace(**vars(cupy.cuda.runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(pretend_cupy.Device, "count", 2)
    return cupy


def test_cuda_is_the_current_gpu_and_auto_takes_it(gpus):
    assert [backend.choose_device(name) for name in ("auto", "cuda", "cuda:1", "cpu")] == [
        ("cuda:0", None), ("cuda:0", None), ("cuda:1", None), ("cpu", None)
    ]  # fmt: skip
    with gpus.cuda.Device(1):
        assert backend.as_device("cuda") == "cuda:1" and backend.as_device("cuda:0") == "cuda:0"
    assert backend.library("cuda:1") is gpus and backend.library("cpu") is np


def test_a_missing_gpu_is_refused_with_the_available_ones(gpus):
    with pytest.raises(ValueError, match="'cuda:7' can't be used: there are 2 GPUs, cuda:0 to cuda:1; use"):
        backend.as_device("cuda:7")
    pretend_cupy.Device.count = 1
    with pytest.raises(ValueError, match="'cuda:1' can't be used: there is 1 GPU, cuda:0"):
        backend.as_device("cuda:1")


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:-1", "cuda:01", "CUDA", "", "cuda:1.0", None, 0])
def test_an_unknown_device_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"unknown device {name!r}; expected one of auto, cpu, cuda, or cuda:0"):
        backend.choose_device(name)


def error(text, kind=RuntimeError):
    return Mock(side_effect=kind(text))


BROKEN = {
    "there is no NVIDIA GPU (": ("getDeviceCount", error("cudaErrorNoDevice: no CUDA-capable device is detected")),
    "there is no NVIDIA driver, or it is too old": ("getDeviceCount", error("cudaErrorInsufficientDriver: CUDA")),
    "CuPy can't compute (RuntimeError: initialization error)": ("getDeviceCount", error("initialization error")),
    "a library of CUDA is missing (pip install 'tinyvit[cuda12]'": ("ones", error('finding "libnvrtc": No such file')),
    "CUDA's headers are missing (pip": ("ones", error("cannot open source file \"cuda_fp16.h\"")),
    "its memory is full (Out": ("ones", error("Out of memory allocating 512 bytes", pretend_cupy.OutOfMemoryError)),
    "CuPy can't compute (RuntimeError: CUBLAS_STATUS": ("__matmul__", error("CUBLAS_STATUS_ALLOC_FAILED")),
    "it gave a wrong result for a 2×2 product": ("__matmul__", lambda self, other: self),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_what_a_gpu_lacks_is_reported_and_only_auto_falls_back(gpus, monkeypatch, reason):
    what, how = BROKEN[reason]
    place = {"ones": gpus, "__matmul__": pretend_cupy.ndarray}.get(what, gpus.cuda.runtime)
    monkeypatch.setattr(place, what, how)
    device, said = backend.choose_device("auto")
    assert device == "cpu" and said.startswith(reason)
    with pytest.raises(ValueError) as refused:
        backend.choose_device("cuda")
    assert str(refused.value) == f"device 'cuda' can't be used: {said}; use device 'cpu'"


def test_without_cupy_the_reason_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it then raises, as if it weren't installed
    assert backend.choose_device("auto")[1].startswith("CuPy isn't installed (pip install 'tinyvit[cuda12]'")


def test_a_cupy_that_cannot_be_imported_is_reported_in_one_line_without_warnings(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text(
        "import warnings\nwarnings.warn('two of me')\n"
        "raise ImportError('\\n=====\\nlibcuda.so.1: no such file\\n=====')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert backend.why_no_gpu().endswith("brings it) (ImportError: libcuda.so.1: no such file)")


def test_an_array_that_is_on_a_device_already_is_not_copied(gpus):
    x = backend.to_device(np.ones(3), "cuda:1")
    assert backend.to_device(x, "cuda:1") is x
    assert backend.to_device(backend.to_numpy(x), "cpu").sum() == 3


def test_a_scope_has_its_own_values_and_those_around_it_until_it_ends():
    with pytest.raises(RuntimeError), backend.set_scope(products="tf32"), backend.set_scope(owner=1):
        assert backend.scope() == ("tf32", 1)
        raise RuntimeError
    assert backend.scope() == ("float32", None)
