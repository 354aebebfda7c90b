import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@st.composite
def videos_and_tubelet(draw, dtype="float64"):
    """Videos (B, C, T, H, W), and a tubelet (S, P, Q) that tiles them."""
    B, C, t, h, w, s, p, q = (draw(st.integers(1, 3)) for _ in range(8))
    (x,) = draw(normals((B, C, t * s, h * p, w * q), dtype=dtype))
    return x, (s, p, q)


@st.composite
def frames_of_tokens(draw, dtype="float64"):
    """Tokens (B, t·n, D), and t."""
    B, t, n, D = (draw(st.integers(1, 4)) for _ in range(4))
    (x,) = draw(normals((B, t * n, D), dtype=dtype))
    return x, t


@given(drawn=videos_and_tubelet(dtype=None))
def test_tubelets_and_back_are_the_identity(drawn):
    x, tubelet = drawn
    cut, _ = F.tubelets(x, tubelet)
    back, _ = F.from_tubelets(cut, tubelet, x.shape[2:])
    np.testing.assert_array_equal(back, x)
    again, _ = F.tubelets(back, tubelet)
    np.testing.assert_array_equal(again, cut)


@given(drawn=videos_and_tubelet())
def test_tubelets_come_frame_after_frame_and_then_row_by_row(drawn):
    x, (s, p, q) = drawn
    cut, _ = F.tubelets(x, (s, p, q))
    B, _, T, H, W = x.shape
    grid = T // s, H // p, W // q
    for number, (t, i, j) in enumerate(np.ndindex(grid)):
        tubelet = x[:, :, t * s : (t + 1) * s, i * p : (i + 1) * p, j * q : (j + 1) * q]
        np.testing.assert_array_equal(cut[:, number], tubelet.reshape(B, -1))


@given(drawn=videos_and_tubelet())
def test_of_one_frame_each_they_are_the_patches_of_the_frames(drawn):
    x, (_, p, q) = drawn
    cut, _ = F.tubelets(x, (1, p, q))
    frames = [F.patchify(x[:, :, t], (p, q))[0] for t in range(x.shape[2])]
    np.testing.assert_array_equal(cut, np.concatenate(frames, axis=1))


@given(drawn=videos_and_tubelet(), seed=seeds())
def test_the_gradient_of_tubelets_goes_back_to_its_pixels(drawn, seed):
    x, tubelet = drawn
    report = gradcheck.check(F.tubelets, F.tubelets_backward, (x, tubelet), directions=3, seed=seed)
    assert report.max_error < 1e-10, report
    cut, cache = F.tubelets(x, tubelet)
    np.testing.assert_array_equal(F.tubelets_backward(cut, cache), x)


@given(drawn=videos_and_tubelet(), seed=seeds())
def test_the_gradient_of_videos_goes_back_to_their_tubelets(drawn, seed):
    x, tubelet = drawn
    cut, _ = F.tubelets(x, tubelet)
    report = gradcheck.check(
        F.from_tubelets, F.from_tubelets_backward, (cut, tubelet, x.shape[2:]), directions=3, seed=seed
    )
    assert report.max_error < 1e-10, report


@given(drawn=frames_of_tokens(dtype=None))
def test_frames_that_are_split_and_joined_are_as_they_were(drawn):
    x, t = drawn
    apart, c_split = F.split_frames(x, t)
    together, c_join = F.join_frames(apart, t)
    np.testing.assert_array_equal(together, x)
    np.testing.assert_array_equal(F.join_frames_backward(x, c_join), apart)
    np.testing.assert_array_equal(F.split_frames_backward(apart, c_split), x)


@given(drawn=frames_of_tokens())
def test_frame_k_of_sample_b_is_row_k_after_those_of_the_samples_before(drawn):
    x, t = drawn
    apart, _ = F.split_frames(x, t)
    n = x.shape[1] // t
    for b, k in np.ndindex(len(x), t):
        np.testing.assert_array_equal(apart[b * t + k], x[b, k * n : (k + 1) * n])


def test_a_tubelet_that_does_not_tile_the_video_is_refused_with_the_size_that_would_do():
    expected = "a video of 5×8×8 (frames, height, width) is not a multiple of the tubelet 2×4×4; take one of 6×8×8"
    with pytest.raises(ValueError, match=re.escape(expected)):
        F.tubelets(np.zeros((1, 1, 5, 8, 8)), (2, 4, 4))


@pytest.mark.parametrize("call, message", [
    (lambda: F.tubelets(np.zeros((1, 4, 8, 8)), (2, 4, 4)), "expected videos (B, C, T, H, W), got (1, 4, 8, 8)"),
    (lambda: F.tubelets(np.zeros((1, 1, 4, 8, 8)), 4),
     "expected a size as (frames, height, width), positive ints, got 4"),
    (lambda: F.from_tubelets(np.zeros((1, 4, 8)), (1, 2, 2), (2, 4, 4)),
     "4 tubelets of 8 numbers don't make a video of 2×4×4"),
    (lambda: F.from_tubelets(np.zeros((4, 8)), (1, 2, 2), (1, 4, 4)), "expected tubelets (B, N, C·S·P·Q), got (4, 8)"),
    (lambda: F.split_frames(np.zeros((2, 5, 3)), 2),
     "split_frames: expected x (B, frames·n, D), got (2, 5, 3) and frames 2"),
    (lambda: F.join_frames(np.zeros((3, 5, 3)), 2),
     "join_frames: expected x (B·frames, n, D), got (3, 5, 3) and frames 2"),
    (lambda: F.join_frames(np.zeros((3, 5, 3)), True), "and frames True"),
])  # fmt: skip
def test_other_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@given(grid=st.tuples(*[st.integers(1, 4)] * 3), prefix=st.integers(0, 2))
def test_fixed_positions_are_sines_and_cosines_of_column_row_and_frame(grid, prefix):
    table = F.sincos_3d(grid, 12, prefix)
    assert table.shape == (1, prefix + np.prod(grid), 12) and not table[:, :prefix].any()
    plane = F.sincos_2d(grid[1:], 8, 0)                    # its halves are of 4 numbers, too
    of_frame = table[0, prefix:].reshape(grid[0], -1, 12)
    for t in range(grid[0]):
        np.testing.assert_array_equal(of_frame[t, :, :8], plane[0])
        assert (of_frame[t, :, 8:] == of_frame[t, 0, 8:]).all()
    assert len({tuple(row) for row in table[0, prefix:]}) == np.prod(grid)


def test_fixed_positions_need_a_width_divisible_by_six():
    with pytest.raises(ValueError, match="expected a width divisible by 6, got 8"):
        F.sincos_3d((2, 2, 2), 8)
