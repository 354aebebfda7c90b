from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import functional as F
from tinyvit import gradcheck
from tinyvit.models import QwenVisionConfig, build
from tinyvit.models.summary import summarize
from tinyvit.optim import SGD
from tinyvit.training import train_step

SMALL = QwenVisionConfig(img_size=(8, 12), patch_size=2, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2,
                         mlp_hidden=6, window_size=8, full_attention=(1,), out_dim=5)  # fmt: skip


@st.composite
def encoders(draw):
    """A small encoder that merges nothing or 2×2 tokens, in windows of one unit and more."""
    config = replace(SMALL, merge_size=draw(st.integers(1, 2)), tubelet_frames=draw(st.integers(1, 2)),
                     window_size=draw(st.integers(4, 9)), full_attention=draw(st.sampled_from([(), (1,), (0, 1)])),
                     num_classes=draw(st.sampled_from([0, 3])))  # fmt: skip
    return redrawn(build(config, dtype="float64"), draw(seeds()))


SIZES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=5)  # in units


def images_of(model, sizes, seed=0):
    """Random images with these (rows, columns) of units."""
    generator, unit = np.random.default_rng(seed), model.config.unit
    return [generator.standard_normal((2, rows * unit, columns * unit)) for rows, columns in sizes]


def outputs_and_gradients(model, images, dy):
    """The output, the gradients of the images, and those of the parameters by name."""
    y, cache = model(images)
    model.zero_grad()
    dimages = model.backward(dy, cache)
    return y, dimages, {name: parameter.grad.copy() for name, parameter in model.named_parameters()}


@given(model=encoders(), sizes=SIZES, seed=seeds())
def test_images_in_one_row_give_what_each_gives_alone_and_so_do_all_gradients(model, sizes, seed):
    images = images_of(model, sizes, seed)
    dy = np.random.default_rng(seed).standard_normal((len(images), model.config.num_classes or 5))
    y, dimages, gradients = outputs_and_gradients(model, images, dy)
    alone = [outputs_and_gradients(model, image[None], row[None]) for image, row in zip(images, dy)]
    for got, dgot, tokens, (want, dwant, _), image in zip(y, dimages, model.encode(images), alone, images, strict=True):
        np.testing.assert_allclose(got, want[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dgot, dwant[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(tokens, model.encode(image[None])[0], rtol=1e-12, atol=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, sum(found[name] for *_, found in alone), rtol=1e-11, atol=1e-12)


@given(sizes=SIZES, most=st.integers(100, 150))
def test_rows_hold_every_image_once_in_order_and_no_more_tokens_than_asked_for(sizes, most):
    model = build(replace(SMALL, row_tokens=most), device="meta")
    images = images_of(model, sizes)
    rows = [images[row] for row in model.rows(images)]
    assert [id(image) for row in rows for image in row] == [*map(id, images)]
    tokens = [sum(image[0].size // 4 for image in row) for row in rows]
    assert max(tokens) <= most
    assert all(count + after[0][0].size // 4 > most for count, after in zip(tokens, rows[1:]))


@given(model=encoders(), size=st.integers(1, 2), seed=seeds())
def test_gradients_of_any_encoder_match_the_complex_step(model, size, seed):
    images = np.random.default_rng(seed).standard_normal((size, *model.image_shape))
    report = gradcheck.check_model(model, images, redraw=False, directions=2)
    assert report.max_error < 1e-9, report


def test_windows_of_a_grid_of_6_by_10_follow_each_other_and_are_smaller_at_the_edges():
    row = replace(SMALL, img_size=(12, 20)).row_of([(12, 20), (4, 4)])
    assert [*np.argsort(row.restore)] == [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14, 15]
    assert row.windows == (0, 16, 32, 40, 48, 56, 60, 64) and row.images == (0, 60, 64) and row.merged == (0, 15, 16)
    np.testing.assert_array_equal(row.order[:8], [0, 1, 10, 11, 2, 3, 12, 13])  # the first two units
    np.testing.assert_array_equal(row.positions[:4], [[0, 0], [0, 1], [1, 0], [1, 1]])
    assert sorted(row.order) == [*range(64)]


@pytest.mark.parametrize("full_attention, units_seen", [((), 4), ((1,), 15)])
def test_no_token_sees_another_image_and_without_full_attention_none_another_window(full_attention, units_seen):
    model = redrawn(build(replace(SMALL, full_attention=full_attention), dtype="float64"))
    images, parts = images_of(model, [(2, 2), (3, 5), (1, 3)]), model.parts()[:-2]
    tokens, caches = model.forward_parts(images, parts)
    dtokens = np.zeros_like(tokens)
    dtokens[0, 4] = 1                                      # the second image's first
    gradients = model.backward_parts(dtokens, parts, caches)
    assert [np.count_nonzero(gradient) for gradient in gradients] == [0, units_seen * 2 * 4 * 4, 0]


def test_multiply_adds_are_counted_within_windows_and_images():
    config = replace(SMALL, img_size=16, window_size=8)    # 64 patches, 4 windows of 16
    heads = [row.multiply_adds for row in summarize(build(config, device="meta")) if row.kind == "PackedAttention"]
    assert heads == [2 * 8 * 64 * 16, 2 * 8 * 64 * 64]


@pytest.mark.parametrize("images, message", [
    ([np.ones((2, 8, 8)), np.ones((2, 10, 7))], r"image size 10×7 is not a multiple of .* = 4; resize to 8×8"),
    ([np.ones((3, 8, 8))], r"expected images \(B, 2, 8, 12\), got \(1, 3, 8, 8\)"),
    ([], r"a list of at least one array \(C, H, W\), got \[\]"),
    (["photo.jpg"], r"a list of at least one array \(C, H, W\), got \['str'\]"),
])  # fmt: skip
def test_images_that_do_not_fit_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        build(SMALL)(images)


@pytest.mark.parametrize("fields, message", [
    ({"embed_dim": 12}, "embed_dim 12 must be 2 heads with a multiple of 4 numbers"),
    ({"window_size": 3}, "window_size 3 must be at least patch_size · merge_size = 4"),
    ({"row_tokens": 23}, "an image of 8×12 pixels has 24 patches, and a row at most 23; make images smaller, or rows"),
    ({"full_attention": (2,)}, r"full_attention must name blocks from 0 to 1, got \(2,\)"),
])  # fmt: skip
def test_shapes_that_can_not_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **fields)


@pytest.mark.parametrize("row_tokens", [None, 40])
@pytest.mark.parametrize("options", [dict(threads=2), dict(accumulate=3, threads=1)])
def test_a_training_step_weighs_images_however_they_are_split_into_rows(options, row_tokens):
    model = redrawn(build(replace(SMALL, row_tokens=row_tokens), dtype="float64"))
    images, labels = images_of(model, [(2, 3), (1, 1), (5, 2), (1, 4)]), np.array([0, 2, 1, 1])
    _, _, expected = outputs_and_gradients(
        model, images, F.cross_entropy_backward(1.0, F.cross_entropy(model(images)[0], labels)[1])
    )
    train_step(model, SGD(model, lr=0.1), np.fromiter(images, object, 4), labels, **options)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.grad, expected[name], rtol=1e-11, atol=1e-12)
