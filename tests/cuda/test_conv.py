from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, as_right_as_the_reference, numbers, to, turned

from tinyvit import functional as F
from tinyvit.kernels.cuda import conv, depthwise

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
CASES = {
    "3×3": (((2, 5, 9, 11), (4, 5, 3, 3), (4,)), dict(padding=1)),
    "7×7, stride 2": (((1, 3, 21, 20), (4, 3, 7, 7)), dict(padding=3, stride=2)),
    "1×1": (((3, 6, 7, 5), (4, 6, 1, 1), (4,)), {}),
    "1×1 in groups": (((3, 6, 7, 5), (4, 3, 1, 1), (4,)), dict(groups=2)),
    "1×1, few pixels": (((5, 6, 2, 3), (4, 6, 1, 1)), {}),
    "4 groups": (((2, 8, 6, 7), (12, 2, 3, 3), (12,)), dict(padding=1, groups=4)),
    "depthwise": (((3, 4, 9, 10), (4, 1, 3, 3), (4,)), dict(padding=1, groups=4)),
    "two filters a channel": (((2, 3, 20, 17), (6, 1, 5, 4)), dict(padding=(2, 1), stride=(1, 3), groups=3)),
}


@st.composite
def convolutions(draw):
    """The shapes of x, weight and perhaps bias, and the options; groups 1, 2 or as many as channels."""
    groups, each, filters = (draw(st.integers(1, 3)) for _ in range(3))
    kernel, stride = draw(PAIRS), draw(PAIRS)
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    image = [max(1, k - 2 * p) + draw(st.integers(0, 7)) for k, p in zip(kernel, padding)]
    shapes = (draw(st.integers(0, 3)), groups * each, *image), (groups * filters, each, *kernel), (groups * filters,)
    return shapes[: draw(st.integers(2, 3))], {"stride": stride, "padding": padding, "groups": groups}


def checked(cupy, shapes, options, dtype, lie=lambda x: x, seed=0):
    kinds = (dtype, dtype, "float32")
    arrays = [numbers(*shape, dtype=kind, seed=seed + i) for i, (shape, kind) in enumerate(zip(shapes, kinds))]
    return arrays, as_right_as_the_reference(cupy, F.conv2d, arrays, 2, dtype, **options, lie=lie)


@pytest.mark.parametrize("dtype", EPSILON)
@given(drawn=convolutions(), seed=st.integers(0, 99), most=st.sampled_from([1 << 24, 900, 1]),
       wide=st.sampled_from([1, 32]))  # fmt: skip
def test_convolutions_and_their_backward_are_those_of_the_reference(cupy, dtype, drawn, seed, most, wide):
    limits = mock.patch.multiple(conv, MIN_COLUMN_NUMBERS=most, MAX_COLUMN_NUMBERS=most, MIN_WIDE_PIXELS=wide)
    with limits, mock.patch.object(depthwise, "SHARE", 300):
        checked(cupy, *drawn, dtype, seed=seed)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("case", CASES)
def test_every_kind_is_right_in_any_memory_order_and_a_gradient_that_is_not_wanted_is_left_out(cupy, case, dtype):
    checked(cupy, *CASES[case], dtype, turned)
    _, (y, cache, (_, *parameters)) = checked(cupy, *CASES[case], dtype)
    unwanted, *same = F.conv2d_backward(y, cache, inputs=False)
    assert unwanted is None and [x.shape for x in same] == [x.shape for x in parameters]


def test_mixed_dtypes_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    x, weight = numbers(2, 5, 9, 11), numbers(4, 5, 3, 3)
    y, cache = F.conv2d(to(cupy, x), cupy.asarray(weight))
    assert y.dtype == F.conv2d_backward(y, cache)[0].dtype == "float64"
    with pytest.raises(ValueError, match="conv2d: no kernel for bfloat16, float32 together in these shapes; compute"):
        F.conv2d(to(cupy, x, "bfloat16"), to(cupy, weight))
    y, cache = F.conv2d(to(cupy, x), to(cupy, weight))
    with pytest.raises(ValueError, match="conv2d_backward: no kernel for bfloat16, float32 together"):
        F.conv2d_backward(y.astype(DTYPE["bfloat16"]), cache)
    with pytest.raises(ValueError, match="conv2d: expected a kernel that fits the padded images 2×11, got 3×3"):
        F.conv2d(to(cupy, x[:, :, :2]), to(cupy, weight))
