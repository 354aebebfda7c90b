from functools import partial

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import ViT, ViTConfig, probe
from tinyvit import functional as F

RANDOM = np.random.default_rng(0)
IMAGES, FILTERS = RANDOM.standard_normal((3, 2, 8, 12)), RANDOM.standard_normal((5, 2, 3, 3))


def wrapped_conv(images, stride=1):
    """A convolution of images that go on at the other side."""
    around = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), "wrap")
    return F.conv2d(around, FILTERS, stride=stride)[0]


def tokens_as_maps(model, images):
    """The patches of the last block's output as maps (B, D, rows, columns)."""
    tokens = model.features(images, layer=model.depth)[:, model.num_prefix_tokens :]
    return tokens.transpose(0, 2, 1).reshape(len(images), -1, *model.grid_of(images))


@pytest.mark.parametrize("shift", [(0, 1), (3, -2), (8, 5)])
def test_a_convolution_without_edges_moves_with_the_image(shift):
    assert probe.equivariance_error(wrapped_conv, IMAGES, shift).max() < 1e-14


def test_padding_with_zeros_is_seen_at_the_edges_alone():
    conv = partial(F.conv2d, weight=FILTERS, padding=1)
    edges, inside = (probe.equivariance_error(lambda x: conv(x)[0], IMAGES, (0, 1), margin) for margin in (0, 1))
    assert edges.min() > 0.1 and np.isnan(inside).sum() == 0
    # The image's own edge moves into the maps: it is one position further in than the margin.
    two_in = probe.equivariance_error(lambda x: conv(x)[0], IMAGES, (0, 1), 2)
    assert two_in.max() < 1e-14 < inside.min()


def test_a_stride_moves_with_the_image_by_its_multiples_only():
    strided = partial(wrapped_conv, stride=2)
    assert probe.equivariance_error(strided, IMAGES, (2, -4)).max() < 1e-14
    with pytest.raises(ValueError, match=r"multiples of 2×2 pixels, .* of 4×6 maps, got \(1, 0\)"):
        probe.equivariance_error(strided, IMAGES, (1, 0))


def test_a_vit_without_positions_moves_with_the_image_by_whole_patches_and_with_positions_it_does_not():
    images = RANDOM.standard_normal((2, 1, 8, 8))
    for positions, equivariant in (("none", True), ("learned", False), ("sincos_2d", False)):
        config = ViTConfig(8, 2, in_chans=1, embed_dim=12, depth=2, num_heads=3, positions=positions)
        model = redrawn(ViT(config, dtype="float64"))
        found = probe.equivariance_error(partial(tokens_as_maps, model), images, (2, -4))
        assert (found < 1e-12).all() if equivariant else (found > 1e-3).all()


def test_what_has_no_places_is_to_stay_as_it_is():
    assert (probe.equivariance_error(lambda x: x.mean((2, 3)), IMAGES, (1, 3)) < 1e-14).all()
    first_column = probe.equivariance_error(lambda x: x[..., 0].reshape(3, -1), IMAGES, (0, 1))
    before, after = IMAGES[..., 0].reshape(3, -1), IMAGES[..., -1].reshape(3, -1)
    expected = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
    np.testing.assert_allclose(first_column, expected, rtol=1e-12)
