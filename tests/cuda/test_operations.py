"""Every operation on the device, in every dtype, against the reference implementation on the CPU."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import BOUND, DTYPE, EPSILON, LOW, as_right_as_the_reference, assert_close, numbers, to, turned

import tinyvit
from tinyvit import Key
from tinyvit import functional as F
from tinyvit.bench.gpu_report import comparison
from tinyvit.functional.layernorm import LayerNormCache
from tinyvit.kernels.cuda import layernorm


@pytest.mark.parametrize("dtype", [*EPSILON, "float64"])  # the last by the reference implementations
def test_all_operations_are_those_of_numpy(cupy, dtype):
    rows = list(comparison.operations("cuda:0", dtype))
    assert len(rows) > 71 and not [row for row in rows if not row["error"] <= BOUND.get(dtype, 1e-6)]


# Of each operation with kernels: its arrays, for rows (B, N) of D numbers, how many of them are of the dtype that is
# tested, and its options.
SHAPES = {
    "gelu": lambda B, N, D: ([(B, N, D)], 1),
    "gelu_tanh": lambda B, N, D: ([(B, N, D)], 1),
    "linear": lambda B, N, D: ([(B, N, D), (N + 7, D), (N + 7,)], 2),
    "layernorm": lambda B, N, D: ([(B, N, D), (D,), (D,)], 1),
    "dropout": lambda B, N, D: ([(B, N, D)], 1, 0.3, Key(N)),
    "drop_path": lambda B, N, D: ([(B, N, D)], 1, 0.3, Key(N)),
    "add_positions": lambda B, N, D: ([(B, N, D), (1, N, D)], 1),
    "prepend_token": lambda B, N, D: ([(B, N, D), (1, 1, D)], 1),
    "insert_tokens": lambda B, N, D: ([(B, N, D), (1, 3, D)], 1, N // 2),
}


def case_of(name, B, N, D, dtype, seed=0):
    shapes, low, *options = SHAPES[name](B, N, D)
    kinds = [dtype if i < low else "float32" for i in range(len(shapes))]
    arrays = [numbers(*shape, dtype=kind, seed=seed + i) for i, (shape, kind) in enumerate(zip(shapes, kinds))]
    return getattr(F, name), arrays, low, dtype, *options


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("name", SHAPES)
@given(
    B=st.integers(0, 4), N=st.integers(1, 7), D=st.integers(5, 40) | st.sampled_from([192, 264]),
    seed=st.integers(0, 99), lie=st.sampled_from([lambda x: x, turned]),
)  # fmt: skip
def test_kernels_are_right_for_all_sizes_and_memory_orders(cupy, dtype, name, B, N, D, seed, lie):
    as_right_as_the_reference(cupy, *case_of(name, B, N, D, dtype, seed), lie=lie)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("D", [120, 248, 384, 504, 768, 1000, 1001, 1032, 1101, 2056])
@pytest.mark.parametrize("name", ["layernorm", "linear"])
def test_long_rows_and_blocks_of_many_rows_are_right(cupy, name, D, dtype):
    with mock.patch.multiple(layernorm, MOST_FORWARD=2, MOST_BACKWARD=2):
        as_right_as_the_reference(cupy, *case_of(name, 3, 9, D, dtype))


@pytest.mark.parametrize("name", SHAPES)
def test_what_does_not_fit_is_refused_and_other_dtypes_take_the_reference_or_are_refused(cupy, name):
    operation, arrays, _, _, *options = case_of(name, 2, 3, 6, "float32")
    if len(arrays) > 1:
        with pytest.raises(ValueError, match=f"({name}|layernorm): expected"):
            operation(*(to(cupy, x) for x in arrays[:-1]), to(cupy, np.ones((5, 5))), *options)
        y, cache = operation(*(to(cupy, x) for x in arrays[:-1]), cupy.asarray(arrays[-1]), *options)
        expected = operation.reference(*arrays, *options)[0]
        for got, want in zip(y if isinstance(y, tuple) else (y,), expected if isinstance(y, tuple) else (expected,)):
            assert_close(got, want, "float32")
    y, cache = operation(*(to(cupy, x) for x in arrays), *options)
    if name not in ("dropout", "drop_path", "add_positions", "prepend_token", "insert_tokens"):
        dy = tuple(x.astype("float16") for x in y) if isinstance(y, tuple) else y.astype("float16")
        with pytest.raises(ValueError, match="expected dy in float32, like x|no kernel for .*float16.* together"):
            operation.backward(dy, cache)


# -- layer norm -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("D", [64, 1500])
def test_a_large_mean_costs_no_more_digits_than_it_has_to(cupy, D):
    x = (1e4 + np.random.default_rng(0).standard_normal((50, D))).astype("float32").astype("float64")
    weight, bias, dy = np.ones(D), np.zeros(D), numbers(50, D)
    y, cache = F.layernorm(to(cupy, x), to(cupy, weight), to(cupy, bias))
    expected, c = F.layernorm.reference(x, weight, bias)
    np.testing.assert_allclose(y.get(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(cache.xhat.get(), expected, rtol=0, atol=2e-6)
    dx, *_ = F.layernorm_backward(to(cupy, dy), cache)
    np.testing.assert_allclose(dx.get(), F.layernorm_backward.reference(dy, c)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("D", [1, 768, 1100])
def test_rows_of_one_number_give_the_bias_and_no_gradient(cupy, D):
    x = np.repeat(np.random.default_rng(0).uniform(1e4, 1e6, (30, 1)), D, 1)
    y, cache = F.layernorm(to(cupy, x), to(cupy, np.ones(D)), to(cupy, np.full(D, 2.0)), 1e-12)
    np.testing.assert_array_equal(y.get(), 2)
    assert abs(F.layernorm_backward(y, cache)[0].get()).max() <= 1


def test_rows_beyond_the_kernels_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    with mock.patch.object(layernorm, "LONGEST", 8):
        y, cache = F.layernorm(*(to(cupy, numbers(*shape)) for shape in ((3, 9), (9,), (9,))))
        assert type(cache) is LayerNormCache and y.shape == (3, 9)
        assert F.layernorm_backward(y, cache)[0].shape == (3, 9)
        with pytest.raises(ValueError, match="layernorm: no kernel for bfloat16.* compute in float32"):
            F.layernorm(to(cupy, numbers(3, 9), "bfloat16"), to(cupy, np.ones(9)), to(cupy, np.ones(9)))


# -- dropout ----------------------------------------------------------------------------------------------------------

DROPS = pytest.mark.parametrize("drop", [F.dropout, F.drop_path], ids=lambda drop: drop.__name__)


@DROPS
@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=st.lists(st.integers(0, 9) | st.just(16), min_size=1, max_size=3).map(tuple), first=st.integers(0, 2**40))
def test_dropout_drops_what_the_reference_drops_bit_for_bit(cupy, drop, dtype, shape, first):
    x, key = numbers(*shape, dtype=dtype), Key(3, 4, sample=first)
    y, cache = drop(to(cupy, x, dtype), 0.3, key)
    expected, c = drop.reference(x.astype("float32"), 0.3, key)
    np.testing.assert_array_equal(cache.mask.get(), c.mask)
    np.testing.assert_array_equal(y.get(), to(cupy, expected, dtype).get())
    part, _ = drop(to(cupy, x[1:], dtype), 0.3, key.skip(1))  # of a batch that was split
    np.testing.assert_array_equal(part.get(), y.get()[1:])


@DROPS
def test_nothing_to_drop_changes_nothing_and_gradients_in_float64_take_the_reference(cupy, drop):
    x = numbers(8, 6)
    for arguments in ((0.0, Key(0)), (0.5, None)):
        there = to(cupy, x, "bfloat16")
        y, cache = drop(there, *arguments)
        assert y is there and cache.mask is None and drop.backward(there, cache) is there
    with pytest.raises(ValueError, match="the rate of dropout must be at least 0 and below 1, got 1"):
        drop(to(cupy, x, "bfloat16"), 1, Key(0))
    dx = drop.backward(cupy.asarray(x), drop(to(cupy, x), 0.5, 1)[1])
    assert dx.dtype == "float64"
    np.testing.assert_array_equal(dx.get(), drop.backward.reference(x, drop.reference(x, 0.5, 1)[1]))


# -- what runs in float32 between two casts ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", LOW)
def test_operations_that_only_move_numbers_change_none(cupy, dtype):
    x = numbers(2, 3, 4, 6, dtype=dtype)
    patches, cache = F.patchify(to(cupy, x, dtype), 2)
    np.testing.assert_array_equal(patches.get().astype("float64"), F.patchify.reference(x, 2)[0])
    for images in (F.patchify_backward(patches, cache), F.unpatchify(patches, 2, (4, 6))[0]):
        np.testing.assert_array_equal(images.get().astype("float64"), x)
    tokens, cache = F.take_tokens(patches, cupy.asarray(np.array([[2, 0], [5, 1]])))
    assert tokens.dtype == F.take_tokens_backward(tokens, cache).dtype == DTYPE[dtype]
    for operation, options in ((F.max_pool2d, (2,)), (F.to_windows, (2, 1))):
        y, _ = operation(to(cupy, x, dtype), *options)
        np.testing.assert_array_equal(y.get().astype("float64"), operation.reference(x, *options)[0])


@pytest.mark.parametrize("dtype", LOW)
def test_the_reference_refuses_low_precision_by_name(cupy, dtype):
    x = numbers(1, 1, 4, 4)
    for array, library in ((to(cupy, x, dtype), "cupy"), (x.astype(DTYPE[dtype]), "numpy")):
        said = f"rope: no kernel for {dtype} arrays of {library} at the level 'reference'"
        with tinyvit.reference(), pytest.raises(ValueError, match=said):
            F.rope(array, (2, 2))
