import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.nn import Linear
from tinyvit.optim import clip_by_each_norm, clip_by_global_norm, global_norm

max_norms = st.floats(1e-3, 1e3)


def linear_with_gradients(seed, scale=1.0, dtype="float64"):
    """A layer whose two gradients are random numbers."""
    layer = Linear(5, 7).materialize(dtype=dtype)
    for parameter in layer.parameters():
        parameter.grad = scale * np.random.default_rng(seed).standard_normal(parameter.shape)
    return layer


def flat_gradients(layer):
    return np.concatenate([p.grad.ravel() for p in layer.parameters() if p.trainable])


@given(seed=seeds(), scale=st.floats(0, 1e6))
def test_global_norm_is_the_norm_of_all_gradients_concatenated(seed, scale):
    layer = linear_with_gradients(seed, scale)
    np.testing.assert_allclose(global_norm(layer), np.linalg.norm(flat_gradients(layer)), rtol=1e-13)


def test_frozen_parameters_do_not_count():
    layer = linear_with_gradients(0)
    layer.freeze("bias")
    np.testing.assert_allclose(global_norm(layer), np.linalg.norm(layer.weight.grad), rtol=1e-13)


@given(seed=seeds(), scale=st.floats(0, 1e3), max_norm=max_norms)
def test_clipping_shortens_to_max_norm_in_the_same_direction_and_returns_the_norm_before(seed, scale, max_norm):
    layer = linear_with_gradients(seed, scale)
    before = flat_gradients(layer)
    norm = np.linalg.norm(before)
    np.testing.assert_allclose(clip_by_global_norm(layer, max_norm), norm, rtol=1e-13)
    np.testing.assert_allclose(flat_gradients(layer), before * min(1, max_norm / max(norm, 1e-300)), rtol=1e-13)


@pytest.mark.parametrize("max_norm", [1e300, float("inf")])
def test_clipping_to_more_than_any_float32_only_measures(max_norm):
    layer = linear_with_gradients(0, dtype="float32")
    before = flat_gradients(layer)
    assert clip_by_global_norm(layer, max_norm) == global_norm(layer)
    np.testing.assert_array_equal(flat_gradients(layer), before)


@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_each_norm])
def test_clipping_leaves_the_gradients_of_frozen_parameters_alone(clip):
    layer = linear_with_gradients(0)
    layer.freeze("bias")
    layer.bias.grad = np.full(layer.bias.shape, 7.0)
    clip(layer, 1e-3)
    assert (layer.bias.grad == 7).all()
    np.testing.assert_allclose(global_norm(layer), 1e-3)


@given(seed=seeds(), max_norm=max_norms)
def test_clipping_keeps_float32(seed, max_norm):
    layer = linear_with_gradients(seed, dtype="float32")
    assert clip_by_global_norm(layer, max_norm).dtype == layer.weight.grad.dtype == "float32"
    assert global_norm(layer) <= max_norm * (1 + 1e-6)


@pytest.mark.parametrize("max_norm", [0, -1.5, float("nan")])
@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_each_norm])
def test_a_norm_that_is_not_positive_is_refused_and_changes_nothing(clip, max_norm):
    layer = linear_with_gradients(0)
    before = flat_gradients(layer)
    with pytest.raises(ValueError, match=f"positive norm to clip to, got {max_norm}"):
        clip(layer, max_norm)
    np.testing.assert_array_equal(flat_gradients(layer), before)


@given(seed=seeds(), scale=st.floats(0, 1e3), max_norm=max_norms)
def test_each_gradient_is_shortened_by_its_own_norm_and_the_global_one_returned(seed, scale, max_norm):
    layer = linear_with_gradients(seed, scale)
    before = [parameter.grad.copy() for parameter in layer.parameters()]
    norm = np.linalg.norm(flat_gradients(layer))
    np.testing.assert_allclose(clip_by_each_norm(layer, max_norm), norm, rtol=1e-13)
    for parameter, grad in zip(layer.parameters(), before):
        own = np.linalg.norm(grad)
        np.testing.assert_allclose(parameter.grad, grad * min(1, max_norm / max(own, 1e-300)), rtol=1e-13)
