import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_for, redrawn, seeds, vits

from tinyvit import ViT, ViTConfig
from tinyvit.optim import EMA, ema

CONFIG = ViTConfig(img_size=4, patch_size=2, num_classes=3, embed_dim=8, depth=1, num_heads=2, positions="sincos_2d")
decays = st.floats(0, 0.9999)


def small_model(dtype="float64", seed=0):
    """A ViT with random weights, and with a buffer."""
    return redrawn(ViT(CONFIG, dtype=dtype), seed)


def averaged(model, average, seeds):
    """The flat weights that the model went through, the average updated after each."""
    weights = [model.storage.data.copy()]
    for seed in seeds:
        redrawn(model, seed)
        average.update()
        weights.append(model.storage.data.copy())
    return weights


@given(model=vits(), decay=decays, warmup=st.booleans(), steps=st.integers(1, 5))
def test_the_average_of_constant_weights_is_these_weights_bit_for_bit(model, decay, warmup, steps):
    average = EMA(model, decay, warmup)
    for _ in range(steps):
        average.update()
    np.testing.assert_array_equal(average.average, model.storage.data)


@given(decay=decays, warmup=st.booleans(), steps=st.lists(seeds(), max_size=12))
def test_every_weight_counts_by_a_power_of_the_decay_which_grows_from_a_tenth_in_the_warm_up(decay, warmup, steps):
    model = small_model()
    average = EMA(model, decay, warmup)
    expected, *later = averaged(model, average, steps)
    for t, theta in enumerate(later):
        d = min(decay, (1 + t) / (10 + t)) if warmup else decay
        expected = d * expected + (1 - d) * theta
    np.testing.assert_allclose(average.average, expected, rtol=1e-12, atol=1e-12)
    assert average.t == len(later)


@pytest.mark.parametrize("chunk", [1, 100, 10**9])
def test_chunks_change_nothing(chunk, monkeypatch):
    models = small_model("float32"), small_model("float32")
    averages = [EMA(model) for model in models]
    averaged(models[0], averages[0], range(3))
    monkeypatch.setattr(ema, "CHUNK_ENTRIES", chunk)
    averaged(models[1], averages[1], range(3))
    np.testing.assert_array_equal(averages[1].average, averages[0].average)
    assert averages[0].average.dtype == "float32"


@given(model=vits(), seed=seeds())
def test_applied_gives_the_model_the_average_and_then_its_own_weights_back_bit_for_bit(model, seed):
    average = EMA(model, 0.9)
    averaged(model, average, [seed, seed + 1])
    own, mean, images = model.state_dict(), average.average.copy(), images_for(model, seed, 2)
    logits = model(images)[0]
    with average.apply() as same:
        assert same is model
        np.testing.assert_array_equal(model.storage.data, mean)
        assert (model(images)[0] != logits).any()
    np.testing.assert_array_equal(model(images)[0], logits)
    np.testing.assert_array_equal(average.average, mean)
    for name, array in model.state_dict().items():
        assert array.tobytes() == own[name].tobytes(), name


def test_after_an_exception_the_model_has_its_own_weights_too():
    model = small_model("float32")
    average = EMA(model)
    averaged(model, average, [1])
    own, mean = model.storage.data.copy(), average.average.copy()
    with pytest.raises(KeyboardInterrupt), average.apply():
        model.storage.data[:] = np.nan
        raise KeyboardInterrupt
    np.testing.assert_array_equal(model.storage.data, own)
    np.testing.assert_array_equal(average.average, mean)


def test_buffers_stay_as_they_are():
    model = small_model()
    average = EMA(model, 0.5)
    ((_, buffer),) = model.named_buffers()
    buffer.data = buffer.data + 1
    before = buffer.data.copy()
    averaged(model, average, [1])
    with average.apply():
        np.testing.assert_array_equal(buffer.data, before)
    np.testing.assert_array_equal(buffer.data, before)


@pytest.mark.parametrize("warmup", [True, False])
def test_a_restored_average_continues_bit_for_bit(warmup):
    model, other = small_model(), small_model(seed=5)
    average, restored = EMA(model, 0.9, warmup), EMA(other, 0.9, warmup)
    averaged(model, average, range(3))
    state = average.state_dict()
    restored.load_state_dict(state)
    for m, a in ((model, average), (other, restored)):
        averaged(m, a, range(3, 6))
    np.testing.assert_array_equal(restored.average, average.average)
    assert restored.t == average.t == 6
    assert state["t"] == 3 and (state["average"] != average.average).any()  # the state was a copy


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_decay_outside_0_to_1_is_refused(decay):
    with pytest.raises(ValueError, match=f"decay of at least 0 and below 1, got {decay}"):
        EMA(small_model(), decay)


def test_the_average_of_a_model_that_was_moved_is_refused():
    model = small_model()
    average = EMA(model)
    model.to(dtype="float32")
    with pytest.raises(ValueError, match=r"moved to another storage; call rebind\(\) on its EMA"):
        average.update()
    with pytest.raises(ValueError, match=r"call rebind\(\) on its EMA"), average.apply():
        pass
