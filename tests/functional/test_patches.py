import numpy as np
import pytest
from hypothesis import given
from strategies import images_and_patch

from tinyvit import functional as F
from tinyvit import gradcheck


@given(images_and_patch())
def test_patchify_gradients_match_the_complex_step(case):
    x, patch = case
    report = gradcheck.check(F.patchify, F.patchify_backward, (x, patch), directions=3)
    assert report.max_error < 1e-10, report


@given(images_and_patch())
def test_unpatchify_is_the_inverse_of_patchify(case):
    x, patch = case
    tokens, _ = F.patchify(x, patch)
    images, cache = F.unpatchify(tokens, patch, x.shape[2:])
    np.testing.assert_array_equal(images, x)
    np.testing.assert_array_equal(F.unpatchify_backward(x, cache), tokens)


@given(images_and_patch())
def test_a_patch_is_cut_from_its_place_in_the_order_channel_row_column(case):
    x, (p, q) = case
    tokens, _ = F.patchify(x, (p, q))
    columns = x.shape[3] // q
    for n in range(tokens.shape[1]):
        i, j = divmod(n, columns)
        window = x[:, :, i * p : (i + 1) * p, j * q : (j + 1) * q]
        np.testing.assert_array_equal(tokens[:, n], window.reshape(len(x), -1))


def test_unpatchify_takes_a_square_grid_where_no_size_is_given():
    x = np.arange(2 * 3 * 8 * 12.0).reshape(2, 3, 8, 12)
    tokens, _ = F.patchify(x, (4, 6))
    np.testing.assert_array_equal(F.unpatchify(tokens, (4, 6))[0], x)


def test_an_int_is_a_square_patch():
    x = np.arange(2 * 3 * 8 * 12.0).reshape(2, 3, 8, 12)
    np.testing.assert_array_equal(F.patchify(x, 4)[0], F.patchify(x, (4, 4))[0])


def test_an_image_that_is_not_a_multiple_of_the_patch_is_refused_with_a_size_that_fits():
    with pytest.raises(ValueError, match="30×30 is not a multiple of the patch size 4×4; pad or resize to 32×32"):
        F.patchify(np.ones((1, 3, 30, 30)), 4)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 1, 3, 8, 8), (8,)])
def test_patchify_names_the_shape_it_expects(shape):
    with pytest.raises(ValueError, match=r"expected images \(B, C, H, W\), got"):
        F.patchify(np.ones(shape), 4)


@pytest.mark.parametrize("patch", [0, -4, (4,), (4, 4, 4), (2.5, 2)])
def test_an_invalid_patch_size_is_refused(patch):
    with pytest.raises(ValueError, match="expected a size"):
        F.patchify(np.ones((1, 3, 8, 8)), patch)


@pytest.mark.parametrize(
    "shape, size", [((1, 6, 12), None), ((1, 4, 13), (4, 4)), ((1, 5, 12), (4, 4)), ((4, 12), None)]
)
def test_unpatchify_refuses_patches_that_do_not_form_an_image(shape, size):
    with pytest.raises(ValueError, match="unpatchify"):
        F.unpatchify(np.ones(shape), 2, size)
