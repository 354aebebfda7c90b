"""The emulator catches errors that a GPU would not report."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pretend_cupy
import pytest

from tinyvit.kernels.cuda.source import read

pytestmark = pytest.mark.cuda
KERNEL = 'extern "C" __global__ void kernel(const float *x, float *y, long long size) {{ int t = threadIdx.x; {} }}'


def run(body, grid=1):
    """Run a kernel with this body on 64 numbers; returns what it wrote."""
    cupy = pretend_cupy.cupy
    x = np.arange(64, dtype="float32")
    y = cupy.zeros(x.shape, "float32")
    module = cupy.RawModule(code="\n".join([read("nvidia.cuh"), read("common.cuh"), KERNEL.format(body)]))
    arguments = cupy.asarray(x), y, np.int64(x.size)
    module.get_function("kernel")((grid,), (64,), arguments)
    return y.get()


REVERSED = "__shared__ float s[64]; s[t] = x[t]; {} y[t] = s[63 - t];"


def test_threads_see_each_others_numbers_after_a_barrier():
    np.testing.assert_array_equal(run(REVERSED.format("__syncthreads();")), np.arange(64)[::-1])


def test_a_missing_barrier_or_two_writes_to_one_place_make_the_result_depend_on_the_order():
    for body, grid in ((REVERSED.format(""), 1), ("y[t] = x[t] + blockIdx.x;", 2)):
        with pytest.raises(AssertionError, match="kernel: the order of the threads changes the result"):
            run(body, grid=grid)


@pytest.mark.parametrize("place", ["-1", "size", "size + 20"])
def test_writes_before_or_after_an_array_are_found(place):
    with pytest.raises(AssertionError, match="something was written before or after an array"):
        run(f"if (t == 0) y[{place}] = 1.0f;")


def test_unwritten_shared_memory_is_nan():
    assert np.isnan(run("__shared__ float s[64]; if (t < 32) s[t] = 0.0f; __syncthreads(); y[t] = s[t];")[32:]).all()


@pytest.mark.parametrize("body", [
    "if (t < 16) __syncthreads(); else __syncwarp(); y[t] = 1.0f;",
    "if (t < 16) return; y[t] = warp_sum(x[t]);",
    "if (t % 2) y[t] = __shfl_xor_sync(ALL, x[t], 1); else __syncthreads();",
    "y[t] = __shfl_xor_sync(0xffffu, x[t], 1);",
    "float c[4] = {}; unsigned int a[4] = {}; if (t < 16) multiply_half(c, a, 0, 0); y[t] = c[0];",
    "alignas(16) __shared__ float s[64]; unsigned int a[4]; load_matrices(a, s + 1); y[t] = a[0];",
    "unsigned int a[4]; load_matrices(a, x); y[t] = a[0];",
])  # fmt: skip
def test_a_barrier_or_an_exchange_that_the_gpu_would_not_survive_ends_the_process_with_a_message(body):
    program = f"import sys; sys.path[:0] = {sys.path!r}; import test_emulator; test_emulator.run({body!r})"
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode < 0
    assert "emulated CUDA: " in done.stderr and "block 0 0 0, thread" in done.stderr
