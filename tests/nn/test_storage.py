import copy
import pickle
import weakref
from itertools import pairwise

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig, nn

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3)


@pytest.fixture
def model():
    return ViT(CONFIG)


def test_all_parameters_and_gradients_are_views_into_one_array_each(model):
    for parameter in model.parameters():
        assert np.shares_memory(parameter.data, model.storage.data)
        assert np.shares_memory(parameter.grad, model.storage.grad)
        parameter.grad = np.full(parameter.shape, 2.0)
    assert (model.storage.grad != 0).sum() == model.num_parameters()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_every_view_starts_on_a_256_byte_boundary_of_memory(dtype):
    model = ViT(CONFIG, dtype=dtype)
    for parameter in model.parameters():
        assert parameter.data.ctypes.data % 256 == parameter.grad.ctypes.data % 256 == 0


def test_gradients_take_no_memory_before_they_are_needed(model):
    assert model.storage.grad is None
    model.predict(np.ones((1, 2, 8, 8), "float32"))
    assert model.storage.grad is None
    model.zero_grad()
    assert model.storage.grad.shape == model.storage.data.shape


def test_segments_join_neighbouring_parameters_that_are_treated_alike(model):
    segments = model.storage.segments()
    assert segments[0].where.start == 0 and segments[-1].where.stop == model.storage.size
    for a, b in pairwise(segments):
        assert a.where.stop == b.where.start and a[1:] != b[1:]
    for parameter in model.parameters():
        (segment,) = [s for s in segments if s.where.start <= parameter.offset < s.where.stop]
        assert segment[1:] == (parameter.trainable, parameter.decay, parameter.lr_scale)
    model.blocks[0].mlp.fc1.weight.lr_scale = 0.5
    assert len(model.storage.segments()) == len(segments) + 2


def test_weight_decay_makes_two_segments_however_many_layers_there_are(model):
    assert [segment.decay for segment in model.storage.segments()] == [True, False]
    assert sorted(model.storage.parameters, key=id) == sorted(model.parameters(), key=id)


def test_segments_leave_out_the_excluded_parameters(model):
    left_out = {model.blocks[0].mlp.fc1.weight, model.head.weight}
    segments = model.storage.segments(left_out)
    for parameter in model.parameters():
        found = [s for s in segments if s.where.start <= parameter.offset < s.where.stop]
        assert len(found) == (parameter not in left_out)
    assert not model.storage.segments(set(model.parameters()))


def test_weight_decay_applies_to_matrices_but_not_to_norms_biases_tokens_or_positions(model):
    decayed = {name for name, parameter in model.named_parameters() if parameter.decay}
    assert decayed == {
        "patch_embed.proj.weight",
        "head.weight",
        *(f"blocks.{i}.{part}.weight" for i in (0, 1) for part in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")),
    }


def test_assigning_copies_into_the_view_and_refuses_another_shape(model):
    weight = model.head.weight
    weight.data += 1
    weight.data = weight.data * 2
    assert np.shares_memory(weight.data, model.storage.data) and (weight.data == 2).all()
    with pytest.raises(ValueError, match=r"head.weight: expected \(5, 12\), got \(12,\)"):
        weight.data = np.ones(12)
    with pytest.raises(ValueError, match=r"head.weight: expected \(5, 12\), got \(\)"):
        weight.grad = 0.0
    for value in (np.full((5, 12), "a"), np.full((5, 12), None)):
        with pytest.raises(ValueError, match=f"head.weight: expected numbers, got {value.dtype}"):
            weight.data = value
    with pytest.raises(ValueError, match=r"head.weight: expected \(5, 12\), got None"):
        weight.grad = None
    with pytest.raises(ValueError, match=r"head.weight: expected real numbers, got complex128; take their \.real"):
        weight.data = np.ones((5, 12)) * 1j


def test_a_buffer_is_saved_but_not_learned():
    model = ViT(ViTConfig(8, 4, 2, 5, 12, 1, 3, positions="sincos_2d"))
    assert "pos_embed" in model.state_dict()
    assert "pos_embed" not in dict(model.named_parameters())
    assert [name for name, _ in model.named_buffers()] == ["pos_embed"]
    assert isinstance(dict(model.named_buffers())["pos_embed"], nn.Buffer)


def test_gradients_can_be_sent_elsewhere(model):
    buffer = model.new_gradients()
    y, cache = model(np.ones((1, 2, 8, 8), "float32"))
    with model.gradients_into(buffer):
        model.backward(np.ones_like(y), cache)
        assert np.shares_memory(model.head.bias.grad, buffer)
    assert buffer.any() and not model.storage.gradients().any()


def test_a_step_inside_gradients_into_uses_the_models_own_buffers(model):
    with model.gradients_into(model.new_gradients()) as buffer:
        assert np.shares_memory(model.storage.grads.take(2)[0], model.storage.grad)
    assert not buffer.any()


def test_a_gradient_buffer_of_another_shape_is_refused(model):
    with pytest.raises(ValueError, match="expected a gradient buffer"), model.gradients_into(np.zeros(3)):
        pass


def assert_views_are_current(model):
    """Every way to a parameter or a gradient leads into the arrays that the storage has now."""
    storage = model.storage
    for parameter in model.parameters():
        for view, flat in ((parameter.data, storage.data), (parameter.grad, storage.gradients())):
            assert view is parameter.view(flat)  # made once
            own = flat[parameter.offset : parameter.offset + parameter.size]
            assert view.shape == parameter.shape and np.shares_memory(view, own)
            own[:] = parameter.offset
            assert (view == parameter.offset).all()
        assert parameter.value is parameter.data


@pytest.mark.parametrize("change", [
    lambda model: model.to("float64"),
    lambda model: model.to(),
    lambda model: model.materialize(seed=3),
    lambda model: model.load_state_dict(ViT(CONFIG, seed=5).state_dict()) and model,
    copy.deepcopy,
    lambda model: pickle.loads(pickle.dumps(model)),
    lambda model: pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model)))),
], ids=["to a dtype", "to", "materialize", "load", "deepcopy", "pickle", "pickle twice"])  # fmt: skip
def test_no_view_outlives_the_array_that_it_was_made_of(model, change):
    assert_views_are_current(model)
    before, flat = model, model.storage.data.copy()
    model = change(model)
    assert_views_are_current(model)
    if model is not before:
        assert_views_are_current(before)
        model.storage.data[:] = 7
        np.testing.assert_array_equal(before.storage.data, flat)


def test_a_part_that_moves_into_another_storage_has_views_of_that_one():
    model, other = ViT(CONFIG), ViT(CONFIG, seed=1)
    assert_views_are_current(model)
    model.head = other.head
    model.to()
    assert_views_are_current(model)
    assert not np.shares_memory(model.head.weight.data, other.storage.data)


def test_views_of_arrays_that_the_storage_does_not_keep_are_not_kept(model):
    buffer = model.new_gradients()
    alive = weakref.ref(buffer)
    with model.gradients_into(buffer):
        assert np.shares_memory(model.head.weight.grad, buffer)
    del buffer
    assert alive() is None


def test_a_storage_has_one_pickled_copy_of_its_numbers(model):
    empty = len(pickle.dumps(model))
    for parameter in model.parameters():
        assert parameter.data is not None
    assert len(pickle.dumps(model)) == empty
