"""The emulator catches errors that a GPU would not report."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pretend_cupy
import pytest
from emulated_cuda.emulator import Order
from numbers_of import numbers, to

from tinyvit.kernels.cuda.source import read

pytestmark = pytest.mark.cuda
KERNEL = 'extern "C" __global__ void kernel(const float *x, float *y, long long size) {{ int t = threadIdx.x; {} }}'
FRAGMENTS = """extern "C" __global__ void kernel(const TYPE *a, const TYPE *b, float *d) {
    unsigned int of_a[4], of_b[2];
    float sums[4];
    for (int i = 0; i < 4; i++) of_a[i] = ((const unsigned int *)a)[threadIdx.x * 4 + i];
    for (int i = 0; i < 2; i++) of_b[i] = ((const unsigned int *)b)[threadIdx.x * 2 + i];
    for (int i = 0; i < 4; i++) sums[i] = d[threadIdx.x * 4 + i];
    multiply_fragments(sums, of_a, of_b, TYPE{});
    for (int i = 0; i < 4; i++) d[threadIdx.x * 4 + i] = sums[i];
}"""


def run(body, block=64, grid=1, x=None, size=None):
    """Run a kernel with this body on 64 numbers; returns what it wrote."""
    cupy = pretend_cupy.cupy
    x = np.arange(64, dtype="float32") if x is None else x
    y = cupy.zeros(x.shape, "float32")
    module = cupy.RawModule(code="\n".join([read("nvidia.cuh"), read("common.cuh"), KERNEL.format(body)]))
    arguments = cupy.asarray(x), y, np.int64(x.size if size is None else size)
    module.get_function("kernel")((grid,), (block,), arguments)
    return y.get()


REVERSED = "__shared__ float s[64]; s[t] = x[t]; {} y[t] = s[63 - t];"


def test_threads_see_each_others_numbers_after_a_barrier(any_order):
    np.testing.assert_array_equal(run(REVERSED.format("__syncthreads();")), np.arange(64)[::-1])


def test_a_missing_barrier_makes_the_result_depend_on_the_order_of_the_threads(any_order):
    with pytest.raises(AssertionError, match="kernel: the order of the threads changes the result"):
        run(REVERSED.format(""))


def test_a_missing_barrier_between_two_uses_of_shared_memory_is_found(any_order):
    twice = "__shared__ float s[64]; for (int i = 0; i < 2; i++) {{ s[t] = i; __syncthreads(); y[t] += s[63 - t]; {} }}"
    run(twice.format("__syncthreads();"))
    with pytest.raises(AssertionError, match="the order of the threads changes the result"):
        run(twice.format(""))


def test_two_blocks_that_write_to_one_place_are_found(any_order):
    run("y[t] = x[t] + blockIdx.x;")
    with pytest.raises(AssertionError, match="the order of the threads changes the result"):
        run("y[t] = x[t] + blockIdx.x;", grid=2)


def test_the_default_order_of_the_threads_is_restored():
    assert Order.seeds == (0,)


@pytest.mark.parametrize("place", ["-1", "size", "size + 20"])
def test_writes_before_or_after_an_array_are_found(place):
    with pytest.raises(AssertionError, match="something was written before or after an array"):
        run(f"if (t == 0) y[{place}] = 1.0f;")


def test_unwritten_shared_memory_is_nan():
    assert np.isnan(run("__shared__ float s[64]; if (t < 32) s[t] = 0.0f; __syncthreads(); y[t] = s[t];")[32:]).all()


def test_shared_memory_does_not_outlive_a_block():
    y = run("__shared__ float s[64]; if (blockIdx.x == 0) s[t] = 0.0f; y[t] = s[t];", grid=2)
    assert np.isnan(y).all()


def test_unwritten_device_memory_is_nan():
    assert np.isnan(pretend_cupy.cupy.empty((3,), "float32").get()).all()


@pytest.mark.parametrize("body, sum_of", [
    ("y[t] = warp_sum(x[t]);", lambda x: np.repeat(x.reshape(2, 32).sum(1), 32)),
    ("y[t] = warp_max(x[t]);", lambda x: np.repeat(x.reshape(2, 32).max(1), 32)),
    ("y[t] = block_sum(x[t]); y[t] += block_sum(x[t]);", lambda x: np.full(64, 2 * x.sum())),
    ("y[t] = block_max(-x[t]);", lambda x: np.full(64, -x.min())),
])  # fmt: skip
def test_sums_and_maxima_over_a_warp_and_a_block_are_right(any_order, body, sum_of):
    x = np.float32(np.random.default_rng(0).integers(-99, 99, 64))
    np.testing.assert_array_equal(run(body, x=x), sum_of(x))


def test_wrong_arguments_are_refused():
    cupy = pretend_cupy.cupy
    code = "\n".join([read("nvidia.cuh"), read("common.cuh"), KERNEL.format("y[t] = x[t];")])
    kernel, x = cupy.RawModule(code=code).get_function("kernel"), cupy.zeros((1,), "float32")
    with pytest.raises(AssertionError, match="3 parameters, 2 arguments"):
        kernel((1,), (1,), (x, x))
    with pytest.raises(AssertionError, match="expected i8"):
        kernel((1,), (1,), (x, x, np.float32(1)))
    with pytest.raises(AssertionError, match="expected an array"):
        kernel((1,), (1,), (x, np.int64(1), np.int64(1)))
    with pytest.raises(AssertionError, match="can't be launched"):
        kernel((1, 65536), (1,), (x, x, np.int64(1)))
    with pytest.raises(AssertionError, match="no kernel 'other'"):
        cupy.RawModule(code=code).get_function("other")


@pytest.mark.parametrize("body", [
    "if (t < 16) __syncthreads(); else __syncwarp(); y[t] = 1.0f;",
    "if (t < 16) return; y[t] = warp_sum(x[t]);",
    "if (t % 2) y[t] = __shfl_xor_sync(ALL, x[t], 1); else __syncthreads();",
    "y[t] = __shfl_xor_sync(0xffffu, x[t], 1);",
])  # fmt: skip
def test_a_barrier_or_a_shuffle_that_not_all_threads_reach_ends_the_process_with_a_message(body):
    program = f"import sys; sys.path[:0] = {sys.path!r}; import test_emulator; test_emulator.run({body!r})"
    folder = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode < 0
    assert "emulated CUDA: " in done.stderr and "block 0 0 0, thread" in done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_thread_has_the_numbers_of_a_product_of_fragments_that_it_should(any_order, dtype):
    """A warp multiplies (16 × 16) (16 × 8) and adds to (16 × 8), each number where PTX's manual has it."""
    cupy, a, b = pretend_cupy.cupy, numbers(16, 16, dtype=dtype), numbers(16, 8, dtype=dtype, seed=1)
    code = "\n".join([read("nvidia.cuh"), read("common.cuh"), FRAGMENTS.replace("TYPE", dtype)])
    lane = np.arange(32)[:, None]
    group, pair = lane // 4, lane % 4 * 2 + np.arange(2)
    of_a = np.stack([a[group + row, pair + k] for k in (0, 8) for row in (0, 8)], axis=1)    # (32, 4, 2)
    of_b = np.stack([b[pair + k, group] for k in (0, 8)], axis=1)                            # (32, 2, 2)
    d = cupy.ones((32, 4), "float32")
    cupy.RawModule(code=code).get_function("kernel")((1,), (32,), (to(cupy, of_a, dtype), to(cupy, of_b, dtype), d))
    expected = 1 + a @ b
    of_d = np.concatenate([expected[group + row, pair] for row in (0, 8)], axis=1)
    np.testing.assert_allclose(d.get(), of_d, rtol=1e-6, atol=1e-5)
