from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, create_model, gradcheck
from tinyvit import functional as F
from tinyvit.models import SwinConfig, build
from tinyvit.models.swin import SwinBlock
from tinyvit.nn.relative_attention import windows_apart, windows_side_by_side

SMALL = dict(in_chans=2, num_classes=3, embed_dim=4, num_heads=(1, 2), depths=(2, 2), mlp_ratio=2.0)


@st.composite
def swins(draw):
    """A small Swin for images of any size, of which windows and merging may need padding."""
    patch, window = draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), draw(st.integers(1, 4))
    size = tuple(side * draw(st.integers(2, 7)) for side in patch)
    config = SwinConfig(img_size=size, patch_size=patch, window_size=window, qkv_bias=draw(st.booleans()), **SMALL)
    return redrawn(build(config, dtype="float64"), draw(seeds()))


@given(model=swins(), size=st.integers(1, 2), seed=seeds())
def test_gradients_of_any_swin_match_the_complex_step(model, size, seed):
    images = np.random.default_rng(seed).standard_normal((size, *model.image_shape))
    report = gradcheck.check_model(model, images, redraw=False, directions=3)
    assert report.max_error < 1e-9, report


def test_heads_of_windows_side_by_side_are_those_of_each_window():
    x = np.random.default_rng(0).standard_normal((2 * 3, 5, 3 * 4 * 7))        # 2 samples of 3 windows, 4 heads
    together = windows_side_by_side(x, 3, 3)
    for part, apart in zip(F.split_heads(together, 3 * 4)[0], F.split_heads(x, 4)[0], strict=True):
        np.testing.assert_array_equal(part, apart.reshape(2, 3 * 4, 5, 7))
        assert np.shares_memory(part, together)
    np.testing.assert_array_equal(windows_apart(together, 3, 3), x)


def block(window=4, shifted=True, dim=4):
    """A Swin block with random weights, in float64."""
    block = SwinBlock(dim, 2, window, shifted, 8, qkv_bias=True, norm_eps=1e-5, drop_path=0.0)
    return redrawn(block.materialize(dtype="float64"))


def seen(block, maps, row, column):
    """Where (H, W) the output at a place depends on the input."""
    y, cache = block(maps)
    dy = np.zeros_like(y)
    dy[0, :, row, column] = np.random.default_rng(0).standard_normal(y.shape[1])
    with block.gradients_into(block.new_gradients()):
        return (block.backward(dy, cache)[0] != 0).any(0)


@pytest.mark.parametrize("window, shifted", [(4, False), (4, True), (3, True), (2, True)])
def test_a_token_depends_on_those_of_its_own_region_of_its_window_alone(window, shifted):
    maps = np.random.default_rng(0).standard_normal((1, 4, 12, 12))
    module, shift = block(window, shifted), window // 2 if shifted else 0
    numbers = (np.arange(12) - shift) // window                  # of the window; tokens before the shift have one apart
    for row, column in np.ndindex(12, 12):
        expected = (numbers == numbers[row])[:, None] & (numbers == numbers[column])
        np.testing.assert_array_equal(seen(module, maps, row, column), expected)


def test_a_grid_that_the_windows_do_not_divide_is_padded_and_padding_is_no_part_of_the_result():
    maps = np.random.default_rng(0).standard_normal((1, 4, 10, 7))
    for row, column in ((0, 0), (9, 6), (5, 3)):
        found = seen(block(4, False), maps, row, column)
        expected = (np.arange(10) // 4 == row // 4)[:, None] & (np.arange(7) // 4 == column // 4)
        np.testing.assert_array_equal(found, expected)


@given(seed=seeds(), by=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_a_block_is_equivariant_to_shifts_by_whole_windows(seed, by):
    """Cyclic shifts, in a block that isn't shifted: masks and padding are at the edges of the grid."""
    maps = np.random.default_rng(seed).standard_normal((2, 4, 12, 12))
    module, by = block(4, shifted=False), tuple(4 * times for times in by)
    y = module(np.roll(maps, by, (2, 3)))[0]
    np.testing.assert_allclose(y, np.roll(module(maps)[0], by, (2, 3)), rtol=1e-10, atol=1e-12)


def test_a_window_as_large_as_the_grid_is_not_shifted():
    maps = np.random.default_rng(0).standard_normal((2, 4, 4, 4))
    shifted, other = block(4, True), block(4, False)
    np.testing.assert_array_equal(shifted(maps)[0], other(maps)[0])
    assert seen(shifted, maps[:1], 0, 0).all()


def test_feature_maps_halve_their_side_and_double_their_width_from_stage_to_stage():
    model = create_model("swin_small_32", embed_dim=8)
    images = np.random.default_rng(0).standard_normal((2, 3, 32, 32), "float32")
    shapes = [model.features(images, layer).shape[1:] for layer in range(model.depth + 1)]
    assert shapes == [(8, 16, 16)] * 3 + [(16, 8, 8)] * 3 + [(32, 4, 4)] * 3
    assert [name for name, _ in model.parts()][3:5] == ["layers.1.downsample", "layers.1.blocks.0"]
    assert model.features(images).shape == (2, 32)


def test_images_of_other_sizes_are_read_with_the_same_weights():
    model = redrawn(build(SwinConfig(img_size=16, window_size=4, **SMALL), dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 2, 22, 18))
    np.testing.assert_array_equal(model.at_img_size((22, 18))(images)[0], model(images)[0])
    with pytest.raises(ValueError, match="image size 21×18 is not a multiple of the patch size 2×2"):
        model(np.zeros((2, 2, 21, 18)))


def test_a_model_for_smaller_images_gives_the_same_logits_and_one_for_larger_ones_has_stretched_tables():
    model = redrawn(build(SwinConfig(img_size=16, window_size=4, **SMALL), dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 2, 8, 8))
    smaller = model.at_img_size(8)                                             # a grid of 4×4, then 2×2
    assert smaller.trunk.layers[1].blocks[0].attn.sides == (2, 2)
    np.testing.assert_allclose(smaller(images)[0], model(images)[0], rtol=1e-12)
    again = smaller.at_img_size(16).trunk.layers[1].blocks[0].attn
    before = smaller.trunk.layers[1].blocks[0].attn.relative_position_bias_table.data.reshape(3, 3, 2)
    table = again.relative_position_bias_table.data.reshape(7, 7, 2)
    np.testing.assert_allclose(table[::6, ::6], before[::2, ::2], atol=1e-15)
    np.testing.assert_allclose(table[3, 3], before[1, 1], atol=1e-15)
    np.testing.assert_allclose(table[3, 0::3], before[1], atol=1e-15)


@pytest.mark.parametrize("options", [dict(recompute=True), dict(keep_caches=False)], ids=str)
def test_recomputed_blocks_and_dropped_caches_change_no_bit(options):
    model = redrawn(build(SwinConfig(img_size=16, drop_path_rate=0.5, **SMALL)))
    images = np.random.default_rng(0).standard_normal((4, 2, 16, 16), "float32")
    expected, cache = model(images, Context(training=True, key=Key(0)))
    got, other = model(images, Context(training=True, key=Key(0), **options))
    np.testing.assert_array_equal(got, expected)
    if "recompute" in options:
        dimages = model.backward(np.ones_like(got), cache)
        np.testing.assert_array_equal(model.backward(np.ones_like(got), other), dimages)


@pytest.mark.parametrize("fields, message", [
    (dict(depths=()), "depths must name the blocks of at least one stage"),
    (dict(num_heads=(1,)), r"got \(2, 2\) and \(1,\)"),
    (dict(num_heads=(1, 3)), "the width 8 of stage 1 is not divisible by its 3 heads"),
    (dict(window_size=0), "window_size"),
    (dict(img_size=15), "image size 15×15 is not a multiple of the patch size 2×2"),
    (dict(mlp_ratio=0.1), "mlp_ratio 0.1 leaves the MLP of width 4 no hidden layer"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(SwinConfig(img_size=16, **SMALL), **fields)
