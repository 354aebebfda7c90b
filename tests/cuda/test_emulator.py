"""The emulator catches errors that a GPU would not report."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pretend_cupy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, numbers

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


# a (16, 16), b (16, 8) and c (16, 8), one after the other; every lane loads its fragments as the PTX ISA's figures say.
PRODUCT = """extern "C" __global__ void product(const unsigned short *x, const float *c, float *y) {
    const unsigned short *a = x, *b = x + 256;
    int lane = threadIdx.x, group = lane >> 2, thread = lane % 4;
    unsigned int of_a[4], of_b[2];
    float of_c[4];
    for (int i = 0; i < 8; i++) {
        int row = (i < 2 || (4 <= i && i < 6)) ? group : group + 8, column = thread * 2 + (i & 1) + (i < 4 ? 0 : 8);
        if (i % 2 == 0) of_a[i / 2] = 0;
        of_a[i / 2] |= (unsigned int)a[row * 16 + column] << 16 * (i % 2);
    }
    for (int i = 0; i < 4; i++) {
        int row = thread * 2 + (i & 1) + (i < 2 ? 0 : 8), column = group;
        if (i % 2 == 0) of_b[i / 2] = 0;
        of_b[i / 2] |= (unsigned int)b[row * 8 + column] << 16 * (i % 2);
    }
    for (int i = 0; i < 4; i++) of_c[i] = c[(i < 2 ? group : group + 8) * 8 + thread * 2 + (i & 1)];
    FUNCTION(of_c, of_a, of_b[0], of_b[1]);
    for (int i = 0; i < 4; i++) y[(i < 2 ? group : group + 8) * 8 + thread * 2 + (i & 1)] = of_c[i];
}"""

LOADED = """extern "C" __global__ void loaded(const unsigned short *x, unsigned int *y) {
    alignas(16) __shared__ unsigned short s[32 * 8];
    for (int i = threadIdx.x; i < 32 * 8; i += 32) s[i] = x[i];
    __syncthreads();
    unsigned int of_lane[4];
    FUNCTION(of_lane, s + 8 * threadIdx.x);
    for (int i = 0; i < 4; i++) y[i * 32 + threadIdx.x] = of_lane[i];
}"""


def function_of(code, name, function):
    text = "\n".join([read("nvidia.cuh"), read("common.cuh"), code.replace("FUNCTION", function)])
    return pretend_cupy.cupy.RawModule(code=text).get_function(name)


@pytest.mark.parametrize("dtype, function", [("bfloat16", "multiply_bfloat16"), ("float16", "multiply_half")])
@given(seed=st.integers(0, 999))
def test_a_product_on_tensor_cores_is_the_matrix_product(dtype, function, seed):
    a, b = numbers(16, 16, dtype=dtype, seed=seed), numbers(16, 8, dtype=dtype, seed=seed + 1)
    c, cupy = numbers(16, 8, seed=seed + 2), pretend_cupy.cupy
    x = np.concatenate([a.ravel(), b.ravel()]).astype(DTYPE[dtype]).view("uint16")
    y = cupy.empty((16, 8), "float32")
    arguments = cupy.asarray(x), cupy.asarray(c.astype("float32")), y
    function_of(PRODUCT, "product", function)((1,), (32,), arguments)
    np.testing.assert_allclose(y.get(), c + a @ b, rtol=0, atol=16 * 16 * 2.0**-23)


@pytest.mark.parametrize("function", ["load_matrices", "load_transposed_matrices"])
def test_matrices_are_loaded_into_the_lanes_that_multiply_them(function):
    x, cupy = np.random.default_rng(0).permutation(256).astype("uint16").reshape(4, 8, 8), pretend_cupy.cupy
    y = cupy.empty((4, 32), "uint32")
    function_of(LOADED, "loaded", function)((1,), (32,), (cupy.asarray(x), y))
    rows = x if function == "load_matrices" else x.mT
    lanes = rows.reshape(4, 32, 2)  # lane 4g + t has columns 2t and 2t + 1 of row g
    np.testing.assert_array_equal(y.get(), lanes[..., 0] + (lanes[..., 1].astype("uint32") << 16))


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
