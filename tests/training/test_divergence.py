import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import Context, Key, ViT, ViTConfig, optim
from tinyvit.training import PRESETS, classification, train_step
from tinyvit.training.divergence import MAX_SKIPPED_STEPS, STEPS_PER_READ, Faults, explain, where_first
from tinyvit.training.tasks.classification import Classification

CONFIG = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
IMAGES = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype("float32")
LABELS = np.arange(4) % 3
BROKEN = np.where(np.arange(64).reshape(8, 8) == 9, np.float32(np.nan), IMAGES)
OPTIMIZERS = [optim.SGD, optim.Adagrad, optim.Adam, optim.AdamW, optim.Muon]


def batch(images):
    return {"images": images, "targets": LABELS}


loss = Classification(PRESETS["digits"]).loss


def bits(model, *parts):
    states = [{name: np.asarray(x).tobytes() for name, x in part.state_dict().items()} for part in parts]
    return model.storage.data.tobytes(), states


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_without_a_finite_loss_changes_nothing(make, clip_norm, threads):
    model = ViT(CONFIG)
    optimizer, average = make(model, 1e-2), optim.EMA(model, 0.9)
    assert train_step(model, optimizer, IMAGES, LABELS, clip_norm=clip_norm, threads=threads).applied
    before = bits(model, optimizer, average)
    result = train_step(model, optimizer, BROKEN, LABELS, clip_norm=clip_norm, threads=threads)
    average.update(result.applied)
    assert not result.applied and not np.isfinite(result.loss)
    assert bits(model, optimizer, average) == before
    assert train_step(model, optimizer, IMAGES, LABELS, clip_norm=clip_norm, threads=threads).applied
    assert bits(model, optimizer, average) != before


def test_a_step_without_a_finite_gradient_changes_nothing_even_if_the_loss_is_finite():
    def objective(model, images, targets, ctx):
        loss, backward, metrics = classification()(model, images, targets, ctx)
        return loss, lambda dloss: backward(dloss * float("inf")), metrics

    model = ViT(CONFIG)
    optimizer = optim.AdamW(model)
    before = bits(model, optimizer)
    result = train_step(model, optimizer, IMAGES, LABELS, objective=objective)
    assert np.isfinite(result.loss) and not result.applied
    assert bits(model, optimizer) == before


def step(applied):
    return SimpleNamespace(applied=np.bool_(applied), overflowed=False)


@given(st.lists(st.booleans(), max_size=40))
def test_faults_count_every_step_left_out_and_end_at_so_many_in_a_row(applied):
    faults = Faults()
    ended = [faults.saw(step(each)) for each in applied]
    assert faults.skipped == applied.count(False)
    text = "".join("x" if each else "." for each in applied)
    assert ended == ["." * MAX_SKIPPED_STEPS in text[: i + 1] for i in range(len(text))]


def test_a_streak_that_ended_between_two_checks_is_seen_at_the_next_one(monkeypatch):
    """As on a GPU, where the count is read only from time to time."""

    class Elsewhere:
        maximum, __name__ = staticmethod(np.maximum), "cupy"

    monkeypatch.setattr("tinyvit.training.divergence.array_module", lambda x: Elsewhere)
    faults = Faults()
    ended = [faults.saw(step(not 5 <= i < 5 + MAX_SKIPPED_STEPS)) for i in range(STEPS_PER_READ)]
    assert ended == [False] * (STEPS_PER_READ - 1) + [True]


def test_counting_continues_from_the_saved_state():
    faults = Faults(skipped=30, streak=MAX_SKIPPED_STEPS - 1)
    assert faults.saw(step(False)) and faults.skipped == 31


def poisoned(path, attribute="weight"):
    """A model with one huge finite weight that makes later values overflow."""
    model = ViT(CONFIG)
    dict(model.named_parameters())[f"{path}.{attribute}"].data[...] = 3e38
    return model


@pytest.mark.parametrize(("model", "images", "found"), [
    (poisoned("blocks.1.mlp.fc1"), IMAGES, r"the output of blocks\.1\.mlp\.fc1 is the first"),
    (poisoned("blocks.0.norm1"), IMAGES, r"the output of blocks\.0\.(norm1|attn)"),
    (poisoned("patch_embed.proj"), IMAGES, r"the output of patch_embed\.proj"),
    (ViT(CONFIG), BROKEN, "the images are the first"),
])  # fmt: skip
def test_the_first_layer_with_nan_or_infinity_is_named(model, images, found):
    ctx = Context(training=True, key=Key(0, 1))
    assert re.search(found, where_first(model, batch(images), ctx, loss))


def test_a_weight_that_is_nan_is_named_before_any_layer():
    model = ViT(CONFIG)
    dict(model.named_parameters())["blocks.1.attn.qkv.bias"].data[3] = np.nan
    found = where_first(model, batch(IMAGES), None, loss)
    assert found == "the weights of blocks.1.attn.qkv.bias are the first that are not"


def test_a_gradient_is_named_if_every_value_is_finite():
    model = ViT(replace(CONFIG, norm_eps=1e-38))  # tokens that are all alike are divided by 1e-19
    parameters = dict(model.named_parameters())
    model.storage.data[:] = 0
    parameters["norm.weight"].data[...] = 1
    parameters["head.weight"].data[...] = 1e21 * np.random.default_rng(0).standard_normal((3, 8))
    found = where_first(model, batch(IMAGES), None, loss)
    assert found == "the gradient from norm is the first that is not"


def test_the_advice_names_layer_learning_rate_and_precision():
    model = poisoned("blocks.1.mlp.fc1")
    config = PRESETS["digits"]
    text = explain(model, batch(IMAGES), None, loss, 0.25, config)
    assert re.search(r"10 steps in a row .* blocks\.1\.mlp\.fc1 .* rate was 0\.25, the precision float32", text)
    assert "--precision float64" in text and "clip-norm" not in text  # it is clipped already
    other = replace(config, optim=replace(config.optim, name="muon", clip_norm=None))
    text = explain(ViT(CONFIG, dtype="float64"), batch(BROKEN), None, loss, 0.25, other)
    assert "--precision" not in text and text.endswith("optim.adam-lr, a longer optim.warmup or optim.clip-norm 1")
