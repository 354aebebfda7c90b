import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, ViT, ViTConfig, optim
from tinyvit import functional as F
from tinyvit.training import classification, train_step

parts = st.integers(1, 3)
batch_sizes = st.integers(1, 7)
DROPPING = dict(drop_rate=0.3, attn_drop_rate=0.2, drop_path_rate=0.4)


def random_vit(**fields):
    """A small float64 ViT with random weights in every parameter, the head's too."""
    shape = dict(img_size=4, patch_size=2, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)
    return redrawn(ViT(ViTConfig(**shape | fields), dtype="float64"), std=0.3)


def random_batch(size=5, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((size, 2, 4, 4)), generator.integers(0, 3, size)


def step(batch, ctx=None, fields=DROPPING, **options):
    """One step of a new model; returns what it reported, the gradients and the weights after it."""
    model = random_vit(**fields)
    result = train_step(model, optim.SGD(model, 0.1), *batch, ctx, **options)
    return result, model.storage.grad.copy(), model.storage.data.copy()


def assert_agree(got, expected, tolerance=1e-12):
    (result, *arrays), (expected_result, *expected_arrays) = got, expected
    assert result.metrics.keys() == expected_result.metrics.keys()
    values = [[r.loss, r.grad_norm, *r.metrics.values()] for r in (result, expected_result)]
    for x, y in zip([values[0], *arrays], [values[1], *expected_arrays]):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def dropping(seed):
    return Context(training=True, key=Key(seed, step=3))


def squared(model, images, targets, ctx):
    """A custom objective: the mean square of the logits."""
    logits, cache = model(images, ctx)

    def backward(dloss):
        model.backward(dloss * 2 * logits / len(logits), cache)

    return (logits**2).sum(1).mean(), backward


def squared_with_metrics(model, images, targets, ctx):
    return *squared(model, images, targets, ctx), {"brightness": images.mean(), "size": float(len(images))}


@given(size=batch_sizes, seed=seeds(), smoothing=st.sampled_from([0.0, 0.1]))
def test_a_step_equals_doing_it_by_hand(size, seed, smoothing):
    images, targets = random_batch(size, seed)
    model, by_hand = random_vit(), random_vit()
    optimizer, other_optimizer = optim.AdamW(model), optim.AdamW(by_hand)
    objective = classification(smoothing)
    for _ in range(2):
        result = train_step(model, optimizer, images, targets, objective=objective, threads=1)
        by_hand.zero_grad()
        logits, cache = by_hand(images)
        loss, loss_cache = F.cross_entropy(logits, targets, smoothing)
        by_hand.backward(F.cross_entropy_backward(1.0, loss_cache), cache)
        other_optimizer.step()
        np.testing.assert_allclose(result.loss, loss, rtol=1e-13)
        np.testing.assert_allclose(result.grad_norm, np.linalg.norm(by_hand.storage.grad), rtol=1e-12)
        assert result.metrics == {"accuracy": pytest.approx((logits.argmax(1) == targets).mean(), rel=1e-14)}
        np.testing.assert_allclose(model.storage.data, by_hand.storage.data, rtol=1e-12, atol=1e-12)


@given(size=batch_sizes, seed=seeds(), threads=parts, accumulate=parts)
def test_threads_and_accumulation_change_nothing_not_even_the_dropout_masks(size, seed, threads, accumulate):
    batch, ctx = random_batch(size, seed), dropping(seed)
    whole = step(batch, ctx, threads=1)
    assert_agree(step(batch, ctx, threads=threads, accumulate=accumulate), whole)


@given(size=batch_sizes, seed=seeds(), threads=parts, accumulate=parts)
def test_recomputation_gives_the_same_bits_with_any_threads_and_accumulation(size, seed, threads, accumulate):
    batch, split = random_batch(size, seed), dict(threads=threads, accumulate=accumulate)
    got, expected = (step(batch, replace(dropping(seed), recompute=again), **split) for again in (True, False))
    assert_agree(got, expected, tolerance=0)


@given(seed=seeds())
def test_another_key_draws_other_masks_and_no_key_none(seed):
    batch = random_batch()
    losses = {float(step(batch, ctx, threads=1)[0].loss) for ctx in (None, dropping(seed), dropping(seed + 1))}
    assert len(losses) == 3
    assert step(batch, threads=1)[0].loss == step(batch, fields={}, threads=1)[0].loss


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_number_of_threads_gives_the_same_bits_every_time_and_on_any_number_of_cores(monkeypatch, threads):
    batch, ctx = random_batch(7), dropping(0)
    first = step(batch, ctx, threads=threads)
    for cores in (1, 2, 2, 2, 8):
        monkeypatch.setattr("tinyvit.training.threads.cores", lambda cores=cores: cores)
        assert_agree(step(batch, ctx, threads=threads), first, tolerance=0)


def test_the_caches_of_one_part_are_freed_before_the_forward_of_the_next():
    alive = []

    def watched(model, images, targets, ctx):
        assert not [cache for cache in alive if cache() is not None]
        loss, backward, metrics = classification()(model, images, targets, ctx)
        alive.append(weakref.ref(backward))
        return loss, backward, metrics

    step(random_batch(7), objective=watched, accumulate=3, threads=1)
    assert len(alive) == 3


@given(size=batch_sizes, seed=seeds(), threads=parts, accumulate=parts)
def test_a_custom_objective_is_averaged_over_the_batch(size, seed, threads, accumulate):
    images, targets = random_batch(size, seed)
    model = random_vit()
    logits, cache = model(images)
    model.zero_grad()
    model.backward(2 * logits / size, cache)
    split = dict(threads=threads, accumulate=accumulate)
    result, gradients, _ = step((images, targets), objective=squared_with_metrics, **split)
    np.testing.assert_allclose(result.loss, (logits**2).sum() / size, rtol=1e-12)
    np.testing.assert_allclose(gradients, model.storage.grad, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.metrics["brightness"], images.mean(), rtol=1e-12)


@given(clip_norm=st.floats(1e-3, 10), threads=parts)
def test_gradients_are_clipped_and_the_norm_before_that_is_reported(clip_norm, threads):
    free, gradients, _ = step(random_batch(), threads=threads)
    clipped, clipped_gradients, _ = step(random_batch(), threads=threads, clip_norm=clip_norm)
    np.testing.assert_allclose(clipped.grad_norm, free.grad_norm, rtol=1e-12)
    np.testing.assert_allclose(clipped_gradients, gradients * min(1, clip_norm / free.grad_norm), rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_stale_gradients_are_cleared(threads):
    batch, model = random_batch(), random_vit(**DROPPING)
    for buffer in model.storage.grads.take(threads):
        buffer[:] = 7
    train_step(model, optim.SGD(model, 0.1), *batch, threads=threads)
    np.testing.assert_array_equal(model.storage.grad, step(batch, threads=threads)[1])


def test_another_models_optimizer_is_refused():
    with pytest.raises(ValueError, match="the optimizer was made for another model"):
        train_step(random_vit(), optim.SGD(random_vit(), 0.1), *random_batch())


def test_images_and_targets_may_be_lists():
    images, targets = random_batch()
    for lists in ((images, targets.tolist()), (images.tolist(), targets.tolist())):
        assert_agree(step(lists), step((images, targets)), tolerance=0)


@pytest.mark.parametrize(("change", "message"), [
    ({"images": np.zeros((0, 2, 4, 4)), "targets": np.zeros(0, int)}, "at least one sample, got images 0"),
    ({"targets": np.zeros(3, int)}, "one entry per sample, and at least one sample, got images 5, targets 3"),
    ({"images": np.zeros((5, 1, 4, 4))}, r"expected images \(B, 2, 4, 4\), got \(\d, 1, 4, 4\)"),
    ({"targets": np.array([0, 1, 2, 3, 0])}, "labels from 0 to 2, got . to 3"),
    ({"accumulate": 0}, "accumulate over at least 1 part, got 0"),
    ({"threads": 0}, "threads from 1 to 4,096, got 0"),
    ({"clip_norm": -1.0}, r"positive norm to clip to, got -1\.0"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_the_given_value_and_move_nothing(change, message):
    images, targets = random_batch()
    model = random_vit()
    before = model.storage.data.copy()
    arguments = dict(images=images, targets=targets) | change
    with pytest.raises(ValueError, match=message):
        train_step(model, optim.AdamW(model), **arguments)
    np.testing.assert_array_equal(model.storage.data, before)


# -- batches of named arrays --------------------------------------------------------------------------------------


def by_name(model, batch, ctx):
    return classification()(model, batch["images"], batch["labels"], ctx)


@given(size=batch_sizes, seed=seeds(), threads=parts, accumulate=parts)
def test_a_batch_of_named_arrays_gives_the_bits_of_images_and_targets(size, seed, threads, accumulate):
    images, targets = random_batch(size, seed)
    split = dict(threads=threads, accumulate=accumulate)
    named = {"labels": targets, "images": images}
    assert_agree(
        step((named, None), dropping(seed), objective=by_name, **split),
        step((images, targets), dropping(seed), **split),
        tolerance=0,
    )


def mixing(model, batch, ctx):
    """A loss that mixes samples: the variance of the logits over the batch."""
    logits, cache = model(batch["images"], ctx)
    centred = logits - logits.mean(0)
    return (centred**2).mean(), lambda dloss: model.backward(dloss * 2 * centred / centred.size, cache), {}


mixing.mixes_samples = True


class Task:
    mixes_samples = True

    def loss(self, model, batch, ctx):
        return mixing(model, batch, ctx)


@given(size=batch_sizes, seed=seeds(), threads=parts)
def test_an_objective_that_mixes_samples_gets_the_whole_batch_with_any_threads(size, seed, threads):
    batch = {"images": random_batch(size, seed)[0]}
    alone = step((batch, None), objective=mixing, threads=1)
    for objective in (mixing, Task().loss):
        assert_agree(step((batch, None), objective=objective, threads=threads), alone)


@pytest.mark.parametrize("objective", [mixing, Task().loss])
def test_an_objective_that_mixes_samples_refuses_accumulation(objective):
    with pytest.raises(ValueError, match="the objective mixes samples, so accumulate must be 1, got 2"):
        step(({"images": random_batch()[0]}, None), objective=objective, accumulate=2)


@pytest.mark.parametrize(("batch", "targets", "objective", "message"), [
    ({"images": np.zeros((5, 2, 4, 4)), "labels": np.zeros(3, int)}, None, by_name, "got images 5, labels 3"),
    ({}, None, by_name, "at least one sample, got none"),
    ({"images": np.zeros((5, 2, 4, 4))}, np.zeros(5, int), by_name, "expected targets=None beside"),
    ({"images": np.zeros((5, 2, 4, 4))}, None, None, "a batch of named arrays needs an objective"),
])  # fmt: skip
def test_mismatched_named_arrays_are_refused(batch, targets, objective, message):
    with pytest.raises(ValueError, match=message):
        step((batch, targets), objective=objective)


# -- random numbers -----------------------------------------------------------------------------------------------


def losses(count, ctx, optimizer=None):
    model = random_vit(**DROPPING)
    optimizer = optimizer or optim.SGD(model, 0.0)
    optimizer.model, optimizer.storage = model, model.storage
    return [float(train_step(model, optimizer, *random_batch(), ctx).loss) for _ in range(count)], optimizer


def test_a_context_draws_other_masks_at_every_step_and_the_same_after_a_resume():
    ctx = Context(training=True, key=Key(0))
    whole, _ = losses(3, ctx)
    assert len(set(whole)) == 3
    assert whole == [losses(1, Context(training=True, key=Key(0, step)))[0][0] for step in range(3)]
    _, half = losses(1, ctx)
    resumed = optim.SGD(half.model, 0.0)
    resumed.load_state_dict(half.state_dict())
    assert losses(2, ctx, resumed)[0] == whole[1:]


def test_a_model_that_is_frozen_as_a_whole_has_nothing_to_train():
    model = random_vit()
    model.freeze()
    with pytest.raises(ValueError, match=r"nothing to train: all parameters are frozen; model.unfreeze"):
        train_step(model, optim.SGD(model, 0.1), *random_batch())
