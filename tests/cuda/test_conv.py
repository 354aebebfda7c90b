from contextlib import nullcontext
from unittest import mock

import numpy as np
import pretend_cupy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.kernels.cuda import conv, depthwise, implicit_conv
from tinyvit.kernels.cuda.source import watching

BOUND = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # DESIGN.md's, of the largest number
PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
# How small the pieces of the work are: all images, some of them, some rows of one, a single row.
PIECES = [dict(LEAST=1 << 22, MOST=1 << 24), dict(LEAST=900, MOST=900), dict(LEAST=90, MOST=90), dict(LEAST=1, MOST=1)]


@st.composite
def convolutions(draw):
    """The shapes of x, weight and perhaps bias, and the options; groups 1, 2 or as many as channels."""
    groups, each, filters = (draw(st.integers(1, 3)) for _ in range(3))
    kernel, stride = draw(PAIRS), draw(PAIRS)
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    image = [max(1, k - 2 * p) + draw(st.integers(0, 7)) for k, p in zip(kernel, padding)]
    shapes = (draw(st.integers(1, 3)), groups * each, *image), (groups * filters, each, *kernel), (groups * filters,)
    return shapes[: draw(st.integers(2, 3))], {"stride": stride, "padding": padding, "groups": groups}


def close(got, expected, dtype):
    assert got.shape == expected.shape
    np.testing.assert_allclose(
        got.get().astype("float64"), expected, rtol=0, atol=BOUND[dtype] * abs(expected).max(initial=1e-3)
    )


def arrays_of(shapes, dtype, seed=0):
    kinds = (dtype, dtype, "float32")
    return [numbers(*shape, dtype=kind, seed=seed + i) for i, (shape, kind) in enumerate(zip(shapes, kinds))]


def as_right_as_the_reference(cupy, shapes, options, dtype, seed=0):
    arrays = arrays_of(shapes, dtype, seed)
    y, cache = F.conv2d(*(to(cupy, a, kind) for a, kind in zip(arrays, (dtype, dtype, "float32"))), **options)
    expected, c = F.conv2d.reference(*arrays, **options)
    dy = numbers(*expected.shape, dtype=dtype, seed=seed + 9)
    gradients, wanted = F.conv2d_backward(to(cupy, dy, dtype), cache), F.conv2d_backward.reference(dy, c)
    assert y.dtype == gradients[0].dtype == dtype and all(g.dtype == "float32" for g in gradients[1:])
    close(y, expected, dtype)
    close(gradients[0], wanted[0], dtype)
    for got, want in zip(gradients[1:], wanted[1:], strict=True):
        close(got, want, "float32")
    return arrays, dy, cache, gradients


@pytest.mark.parametrize("dtype", EPSILON)
@given(drawn=convolutions(), seed=st.integers(0, 99), sizes=st.sampled_from(PIECES), wide=st.sampled_from([1, 32]))
def test_convolutions_and_their_backward_are_those_of_the_reference(cupy, dtype, drawn, seed, sizes, wide):
    with mock.patch.multiple(conv, **sizes, WIDE=wide), mock.patch.object(implicit_conv, "MOST_FILTERS", 0):
        as_right_as_the_reference(cupy, *drawn, dtype, seed)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@given(drawn=convolutions(), seed=st.integers(0, 99), share=st.sampled_from([33, 64, 1024]))
def test_on_tensor_cores_they_are_those_of_the_reference(cupy, dtype, drawn, seed, share):
    with mock.patch.object(implicit_conv, "SHARE", share), mock.patch.object(conv, "WIDE", 1 << 30):
        as_right_as_the_reference(cupy, *drawn, dtype, seed)


@pytest.mark.parametrize("shapes, options", [
    (((2, 70, 5, 6), (65, 70, 3, 3), (65,)), dict(padding=1)),
    (((1, 34, 7, 6), (136, 17, 2, 3)), dict(padding=(0, 2), stride=2, groups=2)),
])  # fmt: skip
def test_tensor_cores_add_up_many_channels_and_blocks(cupy, shapes, options):
    as_right_as_the_reference(cupy, shapes, options, "bfloat16")


def test_without_tensor_cores_the_columns_are_multiplied_by_cublas(cupy, monkeypatch):
    monkeypatch.setattr(implicit_conv, "has_tensor_cores", lambda x: False)
    assert launches_of(cupy, "3×3", "bfloat16") == launches_of(cupy, "3×3", "float32")


CASES = {
    "3×3": (((2, 5, 9, 11), (4, 5, 3, 3), (4,)), dict(padding=1)),
    "3×3, stride 2": (((3, 4, 9, 8), (6, 4, 3, 3)), dict(padding=1, stride=2)),
    "7×7, stride 2": (((1, 3, 21, 20), (4, 3, 7, 7)), dict(padding=3, stride=2)),
    "1×1": (((3, 6, 7, 5), (4, 6, 1, 1), (4,)), {}),
    "1×1 in groups": (((3, 6, 7, 5), (4, 3, 1, 1), (4,)), dict(groups=2)),
    "1×1, few pixels": (((5, 6, 2, 3), (4, 6, 1, 1)), {}),
    "1×1, stride 3": (((2, 6, 7, 8), (4, 6, 1, 1)), dict(stride=3)),
    "4 groups": (((2, 8, 6, 7), (12, 2, 3, 3), (12,)), dict(padding=1, groups=4)),
    "depthwise": (((3, 4, 9, 10), (4, 1, 3, 3), (4,)), dict(padding=1, groups=4)),
    "two filters a channel": (((2, 3, 20, 17), (6, 1, 5, 4)), dict(padding=(2, 1), stride=(1, 3), groups=3)),
}


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_filters_are_added_into_the_given_arrays_or_left_out(cupy, case, dtype):
    shapes, options = CASES[case]
    _, dy, cache, (dx, *alone) = as_right_as_the_reference(cupy, shapes, options, dtype)
    into = [cupy.ones(gradient.shape, "float32") for gradient in alone]
    again, *added = F.conv2d_backward(to(cupy, dy, dtype), cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    for got, goal, gradient in zip(added, into, alone, strict=True):
        assert got is goal
        np.testing.assert_allclose(got.get(), 1 + gradient.get(), rtol=0, atol=1e-5 * abs(gradient.get()).max())
    frozen, *nothing = F.conv2d_backward(to(cupy, dy, dtype), cache, into=[False] * len(alone))
    np.testing.assert_array_equal(frozen.get(), dx.get())
    assert nothing == [None] * len(alone)
    unwanted, *same = F.conv2d_backward(to(cupy, dy, dtype), cache, inputs=False)
    assert unwanted is None
    for got, gradient in zip(same, alone, strict=True):
        np.testing.assert_array_equal(got.get(), gradient.get())


@pytest.mark.parametrize("case", ["3×3, stride 2", "1×1", "4 groups", "depthwise"])
def test_arrays_may_have_any_memory_order(cupy, case):
    shapes, options = CASES[case]
    arrays, dy, _, gradients = as_right_as_the_reference(cupy, shapes, options, "float32")
    turned = [to(cupy, np.ascontiguousarray(a.T)).T for a in arrays]
    y, cache = F.conv2d(*turned, **options)
    close(y, F.conv2d.reference(*arrays, **options)[0], "float32")
    goal = to(cupy, np.zeros(arrays[1].T.shape)).T
    again = F.conv2d_backward(to(cupy, np.ascontiguousarray(dy.T)).T, cache, into=(goal, None)[: len(arrays) - 1])
    for got, want in zip(again, gradients, strict=True):
        close(got, want.get(), "float32")


def test_what_a_depthwise_block_adds_up_makes_up_the_whole(cupy, monkeypatch):
    monkeypatch.setattr(depthwise, "SHARE", 300)
    for case in ("depthwise", "two filters a channel"):
        as_right_as_the_reference(cupy, *CASES[case], "float32")


@pytest.mark.parametrize("case, forward, backward", [
    ("3×3", ["conv_fill", "product", "conv_move"],
     ["conv_move", "conv_fill", "product", "product", "conv_gather", "channel_sums", "channel_totals"]),
    ("3×3, in bfloat16", ["implicit_conv_forward"],
     ["implicit_conv_dx", "implicit_conv_dweight", "column_sums", "channel_sums", "channel_totals"]),
    ("1×1", ["products", "conv_move"],
     ["products", "conv_move", "conv_fill", "product", "channel_sums", "channel_totals"]),
    ("4 groups", ["conv_fill", "products", "conv_move"],
     ["conv_move", "conv_fill", "products", "products", "conv_gather", "channel_sums", "channel_totals"]),
    ("depthwise", ["depthwise_forward"],
     ["depthwise_dx", "depthwise_dweight", "column_sums", "channel_sums", "channel_totals"]),
])  # fmt: skip
def test_a_small_batch_takes_these_launches_and_waits_for_none(cupy, case, forward, backward):
    case, _, dtype = case.partition(", in ")
    assert launches_of(cupy, case, dtype or "float32") == (forward, backward)


def launches_of(cupy, case, dtype):
    """Names of all launches of a convolution, and of its backward; fails if they wait."""
    (shapes, options), launches = CASES[case], []

    def around(name, arrays):
        launches.append(name)
        return nullcontext()

    arrays = [to(cupy, a, kind) for a, kind in zip(arrays_of(shapes, dtype), (dtype, dtype, "float32"))]
    into = [cupy.ones(a.shape, "float32") for a in arrays[1:]]
    with watching(around), pretend_cupy.nothing_waits():
        y, cache = F.conv2d(*arrays, **options)
        half = len(launches)
        F.conv2d_backward(y, cache, into=into)
    return launches[:half], launches[half:]


def test_an_empty_batch_has_an_empty_result_and_zero_gradients(cupy):
    for case, dtype in (("3×3", "bfloat16"), ("1×1", "float32"), ("depthwise", "float32")):
        shapes, options = CASES[case]
        x, weight, bias = arrays_of(shapes, dtype)
        y, cache = F.conv2d(to(cupy, x[:0], dtype), to(cupy, weight, dtype), to(cupy, bias), **options)
        dx, dweight, dbias = F.conv2d_backward(y, cache)
        assert y.shape[0] == 0 and dx.shape == (0, *x.shape[1:])
        assert not dweight.get().any() and not dbias.get().any()


def test_mixed_dtypes_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    x, weight, bias = arrays_of(*CASES["3×3"][:1], "float32")
    y, cache = F.conv2d(to(cupy, x), cupy.asarray(weight))
    assert y.dtype == "float64"
    assert F.conv2d_backward(y, cache)[0].dtype == "float64"
    with pytest.raises(ValueError, match="conv2d: no kernel for bfloat16, float32 together in these shapes; compute"):
        F.conv2d(to(cupy, x, "bfloat16"), to(cupy, weight))
    with pytest.raises(ValueError, match="conv2d: no kernel for float16 together in these shapes; compute in float32"):
        F.conv2d(*(to(cupy, array, "float16") for array in (x, weight, bias)))
    y, cache = F.conv2d(to(cupy, x), to(cupy, weight))
    with pytest.raises(ValueError, match="conv2d_backward: no kernel for bfloat16, float32 together"):
        F.conv2d_backward(y.astype(DTYPE["bfloat16"]), cache)


def test_what_does_not_fit_is_refused_as_in_the_reference(cupy):
    x, weight, _ = arrays_of(*CASES["3×3"][:1], "float32")
    with pytest.raises(ValueError, match="conv2d: expected a kernel that fits the padded images 2×11, got 3×3"):
        F.conv2d(to(cupy, x[:, :, :2], "float16"), to(cupy, weight, "float16"))


@pytest.mark.parametrize("case, dtype", [
    ("3×3, stride 2", "float32"), ("depthwise", "float32"), ("3×3, stride 2", "float16"),
])  # fmt: skip
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, case, dtype, monkeypatch):
    monkeypatch.setattr(depthwise, "SHARE", 40)
    monkeypatch.setattr(implicit_conv, "SHARE", 40)
    shapes, options = CASES[case]
    kinds = (dtype, dtype, "float32")
    y, cache = F.conv2d(*(to(cupy, a, kind) for a, kind in zip(arrays_of(shapes, dtype), kinds)), **options)
    F.conv2d_backward(y, cache)
