"""Evaluation in forwards of many batches, as a GPU has them."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pretend_cublas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import ViT, ViTConfig
from tinyvit.data import Dataset, Loader
from tinyvit.models import ResNetConfig, build
from tinyvit.training import PRESETS, TrainConfig, evaluate, features, inference
from tinyvit.training.inference import computed_bytes, evaluation_batch, forward_batch, forwards
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions
from tinyvit.training.tasks.masked_patches import MaskedPatchesOptions

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("pretended")]
SHAPE = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=16, depth=1, num_heads=2)
CONVNET = ResNetConfig(img_size=8, in_chans=1, num_classes=3, depths=(1,), width=8)
PATCHES = replace(SHAPE, patch_size=2, num_classes=10, positions="sincos_2d")
DIT = PRESETS["dit-digits"]
TASKS = {
    "diffusion": replace(DIT, model=replace(DIT.model, embed_dim=16, depth=1, num_heads=2), device="cuda"),
    **{name: TrainConfig("digits", task=name.partition(",")[0], model=PATCHES, objective=options, device="cuda")
       for name, options in {
           "mae": MaskedAutoencoderOptions(decoder_dim=8, decoder_depth=1, decoder_heads=2),
           "masked-patches": MaskedPatchesOptions(),
       }.items()},
}  # fmt: skip


def noise(size, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 1, 8, 8)).astype("uint8")
    return Dataset(images, generator.integers(0, 3, size), ("cat", "dog", "cow"), (0.5,), (0.25,))


def figures(model, dataset, tta, large):
    with mock.patch.multiple(inference, MAX_IMAGES=large, INFERENCE=8 * inference.forward_bytes(model)):
        assert evaluation_batch(model) == 8
        sizes = [len(forward.images) for forward in forwards(model, dataset)]
        found = evaluate(model, dataset, tta=tta), logits_of(model, dataset, tta=tta), features(model, dataset)
    return sizes, found


@mock.patch.object(pretend_cublas, "product", pretend_cublas.product_term_by_term)
@given(config=st.sampled_from([SHAPE, CONVNET]), precision=st.sampled_from(["float32", "bfloat16"]),
       size=st.integers(1, 50), large=st.integers(1, 80), tta=st.booleans(), seed=seeds())  # fmt: skip
def test_the_figures_have_the_same_bits_for_every_size_of_a_forward(config, precision, size, large, tta, seed):
    model, dataset = redrawn(build(config, device="cuda", precision=precision), seed, std=1), noise(size, seed)
    sizes, (scores, *rows) = figures(model, dataset, tta, large)
    _, (expected_scores, *expected_rows) = figures(model, dataset, tta, 1)
    assert sizes[:-1] == [max(8, large // 8 * 8)] * (len(sizes) - 1) and sum(sizes) == size
    assert scores == expected_scores
    for got, expected in zip(rows, expected_rows):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.full
@mock.patch.object(pretend_cublas, "product", pretend_cublas.product_term_by_term)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", TASKS)
def test_so_do_the_scores_of_tasks_with_a_module_of_their_own(name, precision):
    task, scores = task_class(TASKS[name].task)(TASKS[name]), []
    model = redrawn(task.build(device="cuda", precision=precision))
    for large in (1, 24, 100):
        memory = 8 * inference.forward_bytes(task.backbone(model))
        with mock.patch.multiple(inference, MAX_IMAGES=large, INFERENCE=memory):
            scores.append(task.evaluate(model, noise(40)))
    assert scores[0] == scores[1] == scores[2]


@given(size=st.integers(1, 50), large=st.integers(1, 80))
def test_the_batches_of_all_forwards_are_those_of_the_evaluation(size, large):
    model, dataset = ViT(SHAPE, device="cuda"), noise(size)
    with mock.patch.multiple(inference, MAX_IMAGES=large, INFERENCE=8 * inference.forward_bytes(model)):
        cut = [(images[part], targets[part]) for images, targets, parts in forwards(model, dataset) for part in parts]
        for got, expected in zip(cut, Loader(dataset, 8, device="cuda:0").epoch(), strict=True):
            for one, other in zip(got, expected):
                np.testing.assert_array_equal(one.get(), other.get())


@given(width=st.integers(1, 64), precision=st.sampled_from(["float32", "bfloat16"]))
def test_a_forward_takes_whole_batches_and_no_more_than_a_gigabyte(width, precision):
    config = replace(SHAPE, img_size=64, patch_size=2, embed_dim=2 * width)
    model = build(config, device="cuda", precision=precision)
    count, images, most = evaluation_batch(model), forward_batch(model), 1 << 30
    assert images % count == 0 and count <= images <= 2048
    assert images == count or images * computed_bytes(model) <= most
    assert images == 2048 or (images + count) * computed_bytes(model) > most
