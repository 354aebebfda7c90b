import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, images_and_patch, laid_out, seeds

from tinyvit.data.mixing import cutmix, mixup, one_hot, random_box

K = 5
shares = st.floats(0, 1)


@st.composite
def batches(draw):
    """Images (B, C, H, W) and targets (B, K) of one dtype, read-only."""
    dtype = draw(DTYPES)
    x, _ = draw(images_and_patch(dtype=dtype))
    targets = one_hot(np.random.default_rng(draw(seeds())).integers(0, K, len(x)), K, dtype)
    return x, laid_out(targets, "contiguous")


@given(labels=st.lists(st.integers(0, K - 1), min_size=1), dtype=DTYPES)
def test_one_hot_has_a_1_at_the_label_and_0_elsewhere(labels, dtype):
    targets = one_hot(np.array(labels), K, dtype)
    assert targets.dtype == dtype
    np.testing.assert_array_equal(targets, np.eye(K)[labels])


@given(batch=batches(), share=shares)
def test_mixup_is_a_convex_combination_of_images_and_of_targets(batch, share):
    for x, mixed in zip(batch, mixup(*batch, share)):
        assert mixed.dtype == x.dtype
        for i in range(len(x)):
            expected = share * x[i].astype(float) + (1 - share) * x[len(x) - 1 - i].astype(float)
            np.testing.assert_allclose(mixed[i], expected, rtol=1e-6, atol=1e-6)


@st.composite
def boxes(draw, H, W):
    (top, bottom), (left, right) = (sorted(draw(st.tuples(*[st.integers(0, side)] * 2))) for side in (H, W))
    return top, bottom, left, right


@given(batch=batches(), data=st.data())
def test_cutmix_takes_the_box_from_the_partner_and_weighs_targets_by_pixels(batch, data):
    x, targets = batch
    box = top, bottom, left, right = data.draw(boxes(*x.shape[2:]))
    mixed, mixed_targets = cutmix(x, targets, box)
    assert (mixed.dtype, mixed_targets.dtype) == (x.dtype, targets.dtype)
    inside = np.zeros(x.shape[2:], bool)
    inside[top:bottom, left:right] = True
    for i in range(len(x)):
        partner = len(x) - 1 - i
        np.testing.assert_array_equal(mixed[i], np.where(inside, x[partner], x[i]))
        own = 1 - inside.mean()
        np.testing.assert_allclose(mixed_targets[i], own * targets[i] + (1 - own) * targets[partner], atol=1e-6)


@given(seed=seeds(), share=shares, H=st.integers(1, 40), W=st.integers(1, 40))
def test_a_box_lies_within_the_image_and_is_never_larger_than_requested(seed, share, H, W):
    top, bottom, left, right = random_box(np.random.default_rng(seed), share, H, W)
    assert 0 <= top <= bottom <= H and 0 <= left <= right <= W
    assert (bottom - top) * (right - left) <= (1 - share) * H * W + 1e-9


def test_boxes_inside_the_image_have_the_requested_area():
    generator = np.random.default_rng(0)
    top, bottom, left, right = np.array([random_box(generator, 0.75, 40, 20) for _ in range(500)]).T
    whole = (top > 0) & (bottom < 40) & (left > 0) & (right < 20)
    assert set(bottom[whole] - top[whole]) == {20} and set(right[whole] - left[whole]) == {10}
    assert set(top) == set(range(30))  # middles from 0 to 39
