"""Evaluation in forwards of many batches, as a GPU has them."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pretend_cublas
import pretend_cupy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import ViT, ViTConfig, backend
from tinyvit.data import Dataset
from tinyvit.models import ResNetConfig, build
from tinyvit.training import PRESETS, TrainConfig, evaluate, features, inference
from tinyvit.training.inference import computed_bytes, evaluation_batch, forward_batch, forwards, task_batch
from tinyvit.training.tasks import diffusion, task_class
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions
from tinyvit.training.tasks.masked_patches import MaskedPatchesOptions

pytestmark = pytest.mark.cuda
SHAPE = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=16, depth=1, num_heads=2)
CONVNET = ResNetConfig(img_size=8, in_chans=1, num_classes=3, depths=(1,), width=8)
PATCHES = replace(SHAPE, patch_size=2, num_classes=10, positions="sincos_2d")
DIT = PRESETS["dit-digits"]
TASKS = {
    "diffusion": replace(DIT, model=replace(DIT.model, embed_dim=16, depth=1, num_heads=2), device="cuda"),
    **{name: TrainConfig("digits", task=name.partition(",")[0], model=PATCHES, objective=options, device="cuda")
       for name, options in {
           "mae": MaskedAutoencoderOptions(decoder_dim=8, decoder_depth=1, decoder_heads=2),
           "mae, wide decoder": MaskedAutoencoderOptions(decoder_dim=32, decoder_depth=1, normalise=False),
           "masked-patches": MaskedPatchesOptions(),
           "masked-patches, colours": MaskedPatchesOptions(target="colour"),
       }.items()},
}  # fmt: skip


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    for name, module in pretend_cupy.MODULES.items():
        monkeypatch.setitem(pretend_cupy.sys.modules, name, module)
    backend.as_device("cuda")


def noise(size, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 1, 8, 8)).astype("uint8")
    return Dataset(images, generator.integers(0, 3, size), ("cat", "dog", "cow"), (0.5,), (0.25,))


def random_model(config, precision, seed):
    model, generator = build(config, device="cuda", precision=precision), np.random.default_rng(seed)
    for parameter in model.parameters():
        parameter.data = generator.standard_normal(parameter.shape)
    return model


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
    model, dataset = random_model(config, precision, seed), noise(size, seed)
    sizes, (scores, *rows) = figures(model, dataset, tta, large)
    _, (expected_scores, *expected_rows) = figures(model, dataset, tta, 1)
    assert sizes[:-1] == [max(8, large // 8 * 8)] * (len(sizes) - 1) and sum(sizes) == size
    assert scores == expected_scores
    for got, expected in zip(rows, expected_rows):
        np.testing.assert_array_equal(got, expected)


def scores_and_sizes(task, model, dataset, large):
    """The scores of a task, and how many images each of its forwards has."""
    batch, sizes = task.batch, []

    def counted(images, *arguments):
        sizes.append(len(images))
        return batch(images, *arguments)

    backbone = task.backbone(model)
    with mock.patch.multiple(inference, MAX_IMAGES=large, INFERENCE=8 * inference.forward_bytes(backbone)):
        assert evaluation_batch(backbone) == 8
        count = task_batch(backbone, task.evaluation_bytes(model))
        with mock.patch.object(task, "batch", counted):
            return task.evaluate(model, dataset), sizes, count


@pytest.mark.full
@mock.patch.object(pretend_cublas, "product", pretend_cublas.product_term_by_term)
@given(name=st.sampled_from([*TASKS]), precision=st.sampled_from(["float32", "bfloat16"]), size=st.integers(1, 40),
       large=st.integers(1, 100), seed=seeds())  # fmt: skip
def test_so_do_the_scores_of_tasks_with_a_module_of_their_own(name, precision, size, large, seed):
    config, dataset = TASKS[name], noise(size, seed)
    task = task_class(config.task)(config)
    model = redrawn(task.build(device="cuda", precision=precision), seed)
    scores, sizes, count = scores_and_sizes(task, model, dataset, large)
    expected, *_ = scores_and_sizes(task, model, dataset, 1)
    rounds = diffusion.ROUNDS if name == "diffusion" else 1
    assert sizes == [min(count, size - first) for first in range(0, size, count) for _ in range(rounds)]
    assert scores == expected


@given(needed=st.integers(0, 1 << 20), precision=st.sampled_from(["float32", "bfloat16"]), large=st.integers(1, 4096))
def test_a_tasks_forward_takes_whole_batches_and_no_more_memory_than_the_models(needed, precision, large):
    model = ViT(SHAPE, device="cuda", precision=precision)
    with mock.patch.multiple(inference, MAX_IMAGES=large):
        count, images, most = evaluation_batch(model), task_batch(model, needed), forward_batch(model)
        memory = most * computed_bytes(model)
        assert images % count == 0 and count <= images <= most
        assert images == count or images * needed <= memory
        assert images == most or (images + count) * needed > memory
        for size in (1, images, 10 * images):
            planned = min(size, images) * max(needed, computed_bytes(model))
            assert inference.memory_of_forward(model, size, needed) == planned


@given(size=st.integers(1, 50), large=st.integers(1, 80))
def test_the_batches_of_all_forwards_are_those_of_the_evaluation(size, large):
    model, dataset = ViT(SHAPE, device="cuda"), noise(size)
    with mock.patch.multiple(inference, MAX_IMAGES=large, INFERENCE=8 * inference.forward_bytes(model)):
        cut = [(images[part], targets[part]) for images, targets, parts in forwards(model, dataset) for part in parts]
        for got, expected in zip(cut, inference.loaded(model, dataset, 8), strict=True):
            for one, other in zip(got, expected):
                np.testing.assert_array_equal(one.get(), other.get())


def with_memory(size):
    """A patch: the GPU has this many bytes."""
    return mock.patch.object(inference, "total_memory", lambda device: size)


@given(size=st.integers(0, 1 << 40), more=st.integers(0, 1 << 40), precision=st.sampled_from(["float32", "bfloat16"]))
def test_a_forward_takes_whole_batches_and_little_of_the_memory(size, more, precision):
    model = ViT(SHAPE, device="cuda", precision=precision)
    count = evaluation_batch(model)
    with with_memory(size):
        images = forward_batch(model)
    assert images % count == 0 and count <= images <= 2048
    assert images == count or images * computed_bytes(model) <= size / 32
    assert images == 2048 or (images + count) * computed_bytes(model) > size / 32
    with with_memory(size + more):
        assert images <= forward_batch(model)


def test_a_large_model_takes_no_more_than_two_gigabytes():
    model = ViT(ViTConfig(img_size=224, patch_size=16, in_chans=3, embed_dim=192, depth=1, num_heads=3), device="cuda")
    with with_memory(1 << 40):
        count, images = evaluation_batch(model), forward_batch(model)
    assert count < images < 2048 and images * computed_bytes(model) <= 1 << 31


def test_what_else_is_in_the_memory_makes_no_difference():
    model = ViT(SHAPE, device="cuda")
    before = forward_batch(model)
    with mock.patch.object(pretend_cupy.Pool, "used", pretend_cupy.Pool.limit - 1):
        assert backend.free_memory("cuda:0") == 1 and forward_batch(model) == before


def test_ranks_that_share_a_forward_take_what_the_one_with_the_least_memory_can(monkeypatch):
    class Ranks:
        def gather(self, images):
            return [images, 700]

    model = ViT(SHAPE, device="cuda")
    assert forward_batch(model) == 2048
    monkeypatch.setattr(inference, "sharing", Ranks)
    assert forward_batch(model) == 512
