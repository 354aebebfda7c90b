import copy
import pickle
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_for, redrawn, seeds, vits

from tinyvit import Context, Key, ViT, ViTConfig, nn, optim
from tinyvit import functional as F

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3)


@pytest.fixture
def model():
    return redrawn(ViT(CONFIG, dtype="float64"))


def images(seed=0, count=4):
    return np.random.default_rng(seed).standard_normal((count, 2, 8, 8))


def gradients(model, batches):
    """All gradients after backwards through the given batches, one after the other."""
    model.zero_grad()
    for x in batches:
        y, cache = model(x)
        model.backward(np.cos(5 * y), cache)
    return model.storage.grad.copy()


# -- calls and gradients ------------------------------------------------------------------------------------------


@given(model=vits(), seed=seeds(), sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_a_module_called_twice_accumulates_both_gradients(model, seed, sizes):
    first, second = (images_for(model, seed + i, size) for i, size in enumerate(sizes))
    expected = gradients(model, [first]) + gradients(model, [second])
    np.testing.assert_allclose(gradients(model, [first, second]), expected, atol=1e-11)


@given(model=vits(), seed=seeds())
def test_evaluation_between_forward_and_backward_changes_nothing(model, seed):
    x, other = images_for(model, seed, 2), images_for(model, seed + 1, 3)
    expected = gradients(model, [x])
    model.zero_grad()
    y, cache = model(x)
    model.predict(other)
    model(other)
    model.backward(np.cos(5 * y), cache)
    np.testing.assert_array_equal(model.storage.grad, expected)


@given(model=vits(), seed=seeds(), last_first=st.booleans())
def test_forward_forward_backward_backward_is_right(model, seed, last_first):
    batches = [images_for(model, seed + i, 2 + i) for i in range(2)]
    expected = gradients(model, batches)
    model.zero_grad()
    calls = [model(x) for x in batches]
    for y, cache in reversed(calls) if last_first else calls:
        model.backward(np.cos(5 * y), cache)
    np.testing.assert_allclose(model.storage.grad, expected, atol=1e-11)


@given(model=vits(), seed=seeds(), own_buffers=st.booleans(), count=st.integers(2, 6))
def test_two_threads_on_halves_of_a_batch_give_the_gradients_of_the_whole(model, seed, own_buffers, count):
    x = images_for(model, seed, count)
    expected = gradients(model, [x])
    model.zero_grad()
    buffers = [model.new_gradients(), model.new_gradients()]

    def work(half, buffer):
        for sample in half:  # several small calls, so that the threads do meet
            y, cache = model(sample[None])
            with model.gradients_into(buffer) if own_buffers else nullcontext():
                model.backward(np.cos(5 * y), cache)

    threads = [threading.Thread(target=work, args=pair) for pair in zip((x[: count // 2], x[count // 2 :]), buffers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(model.storage.grad + sum(buffers), expected, atol=1e-11)
    assert own_buffers == (not model.storage.grad.any())


def test_a_shared_module_gets_the_gradients_of_both_its_uses():
    class Twice(nn.Module):
        def __init__(self):
            self.first = nn.Linear(4, 4)
            self.second = self.first

        def forward(self, x, ctx=None):
            x, c1 = self.first(x, ctx)
            y, c2 = self.second(x, ctx)
            return y, (c1, c2)

        def backward(self, dy, cache):
            return self.first.backward(self.second.backward(dy, cache[1]), cache[0])

    module = Twice().materialize(dtype="float64")
    assert [name for name, _ in module.named_parameters()] == ["first.weight", "first.bias"]
    x, W = np.random.default_rng(0).standard_normal((3, 4)), module.first.weight.data
    y, cache = module(x)
    module.backward(np.ones_like(y), cache)
    expected = np.ones((4, 3)) @ (x @ W.T) + (np.ones((3, 4)) @ W).T @ x
    np.testing.assert_allclose(module.first.weight.grad, expected, atol=1e-13)


def test_the_images_and_the_incoming_gradient_are_only_read(model):
    x, dy = images(), np.ones((4, 5))
    x.flags.writeable = dy.flags.writeable = False
    _, cache = model(x)
    model.backward(dy, cache)


# -- freezing -----------------------------------------------------------------------------------------------------


@given(model=vits(), seed=seeds())
def test_the_gradient_of_a_frozen_parameter_stays_untouched(model, seed):
    x, generator = images_for(model, seed, 2), np.random.default_rng(seed)
    gradients(model, [x])
    expected = {name: parameter.grad.copy() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for name, parameter in model.named_parameters():
        if generator.random() < 0.5:
            model.freeze(name)
            parameter.grad = np.full(parameter.shape, 7.0)
    y, cache = model(x)
    model.backward(np.cos(5 * y), cache)
    for name, parameter in model.named_parameters():
        if parameter.trainable:
            np.testing.assert_array_equal(parameter.grad, expected[name])
        else:
            assert (parameter.grad == 7).all()


@pytest.mark.parametrize("positions", ["learned", "learned_2d"])
def test_every_single_parameter_can_be_frozen_without_changing_the_others(positions):
    model = redrawn(ViT(ViTConfig(8, 4, 2, 5, 12, 1, 3, positions=positions, head_hidden=6), dtype="float64"))
    expected = dict_of_gradients(model)
    for name, parameter in model.named_parameters():
        model.freeze(name)
        got = dict_of_gradients(model)
        assert not got.pop(name).any()
        for other, gradient in got.items():
            np.testing.assert_array_equal(gradient, expected[other])
        model.unfreeze(name)
        assert parameter.trainable


def dict_of_gradients(model):
    gradients(model, [images()])
    return {name: parameter.grad.copy() for name, parameter in model.named_parameters()}


def test_a_frozen_weight_costs_no_matrix_product(model, monkeypatch):
    seen = []
    original = F.linear_backward

    def noting(dy, cache, into, **options):
        seen.append(into)
        return original(dy, cache, into, **options)

    monkeypatch.setattr(F, "linear_backward", noting)
    model.freeze("*.weight")
    gradients(model, [images()])
    assert seen and all(into[0] is False for into in seen)  # and with False, no product: see test_linear


def test_freezing_returns_the_names_and_refuses_a_pattern_that_matches_none(model):
    assert model.freeze("head.*") == ["head.weight", "head.bias"]
    assert model.num_parameters() - model.num_parameters(trainable_only=True) == 65
    assert model.unfreeze("head.w*") == ["head.weight"]
    with pytest.raises(ValueError, match=r"no parameter matches 'heads\.\*'; there are: cls_token"):
        model.freeze("heads.*")


def test_freezing_takes_a_part_a_list_and_pytorchs_requires_grad(model):
    assert model.freeze("head") == model.freeze("head.*")
    frozen = ["blocks.0.norm1.weight", "blocks.0.norm1.bias", "cls_token", "pos_embed", "patch_embed.proj.weight"]
    assert model.freeze(["blocks.0.norm1", "embed"]) == [*frozen, "patch_embed.proj.bias"]
    assert model.encode.freeze("blocks.1") == model.unfreeze("blocks.1.*")
    with pytest.raises(ValueError, match="no parameter matches 'trunk'"):
        model.unfreeze(["head", "trunk"])
    assert not model.head.weight.requires_grad
    model.head.weight.requires_grad = True
    assert model.head.weight.trainable
    with pytest.raises(AttributeError, match=r'Linear has no requires_grad: freeze\("blocks'):
        model.head.requires_grad = False


@pytest.mark.parametrize(("type_it", "right"), [
    (lambda model: model.eval(), r"ViT has no eval: .*Context\(training=True"),
    (lambda model: model.save("x"), r"tinyvit\.save\(model, PATH\)"),
    (lambda model: model.forward_features, r"model\.features\(images, layer\)"),
    (lambda model: model.head.double(), r'Linear has no double: model\.to\(dtype="float64"\)'),
    (lambda model: optim.SGD(model, 0.1).zero_grad(), r"SGD has no zero_grad: model\.zero_grad\(\)"),
    (lambda model: model.storage_of, "'ViT' object has no attribute 'storage_of'"),
    (lambda model: F.cross_entropy(np.zeros((1, 2)), [0])[0].backward(), r"model\.backward\(dlogits, cache\)"),
])  # fmt: skip
def test_what_a_user_of_pytorch_or_timm_types_is_answered_by_what_it_is_here(model, type_it, right):
    with pytest.raises(AttributeError, match=right):
        type_it(model)
    with pytest.raises(TypeError, match=r"training is no argument: .*Context\(training=True, key=Key\(0\)\)"):
        model(images(), training=True)
    with pytest.raises(TypeError, match=r"expected a configuration, as in ViT\(ViTConfig\(img_size=32\)\)"):
        ViT(img_size=32)


# -- weights in and out -------------------------------------------------------------------------------------------


def test_state_dict_copies_and_load_state_dict_restores(model):
    state = model.state_dict()
    expected, _ = model(images())
    for parameter in model.parameters():
        parameter.data = np.zeros(parameter.shape)
    assert any(array.any() for array in state.values())
    model.load_state_dict(state)
    np.testing.assert_array_equal(model(images())[0], expected)


def test_load_state_dict_lists_everything_that_is_wrong_in_one_error_and_changes_nothing(model):
    before, state = model.state_dict(), model.state_dict()
    for array in state.values():
        array += 1
    del state["norm.weight"], state["head.bias"]
    state["extra"], state["cls_token"] = np.ones(2), np.ones((1, 12))
    message = (
        r"missing: norm.weight, head.bias; unexpected: extra; "
        r"misshapen: cls_token \(expected \(1, 1, 12\), got \(1, 12\)\)"
    )
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(state)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_load_state_dict_that_is_not_strict_returns_what_did_not_fit(model):
    state = model.state_dict()
    del state["norm.weight"]
    state["extra"] = np.ones(2)
    assert model.load_state_dict(state, strict=False) == (["norm.weight"], ["extra"])
    with pytest.raises(ValueError, match="misshapen: norm.bias"):
        model.load_state_dict({"norm.bias": np.ones(1)}, strict=False)


@pytest.mark.parametrize("value", [np.full(5, "a"), np.full(5, 1j), np.arange(5), np.full(5, None)])
def test_arrays_of_other_than_real_numbers_are_not_loaded_and_nothing_changes(model, value):
    before, state = model.state_dict(), {name: array + 1 for name, array in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"expected floating-point numbers for float64 parameters, got head\.bias"):
        model.load_state_dict(state | {"head.bias": value})
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_copy_shares_no_memory(model):
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not np.shares_memory(other.storage.data, model.storage.data)
        np.testing.assert_array_equal(other(images())[0], model(images())[0])
        other.blocks[0].norm1.weight.data += 1
        assert (other(images())[0] != model(images())[0]).any()


def test_to_moves_between_dtypes_and_keeps_the_numbers(model):
    expected, _ = model(images())
    single = copy.deepcopy(model).to(dtype="float32")
    assert single.dtype == "float32" and single(images())[0].dtype == "float32"
    np.testing.assert_allclose(single(images())[0], expected, atol=1e-5)
    assert copy.deepcopy(model).to(dtype="complex128")(images())[0].dtype == "complex128"


# -- initial values, contexts, observers -------------------------------------------------------------------------


@given(seed=seeds())
def test_the_same_seed_gives_the_same_model_and_another_seed_another(seed):
    first, second, other = ViT(CONFIG, seed), ViT(CONFIG, seed), ViT(CONFIG, seed + 1)
    np.testing.assert_array_equal(first.storage.data, second.storage.data)
    assert (first.blocks[0].attn.qkv.weight.data != other.blocks[0].attn.qkv.weight.data).all()


def test_the_dtype_changes_only_the_rounding_of_the_initial_values():
    single, double = ViT(CONFIG, 3), ViT(CONFIG, 3, dtype="float64")
    for (name, a), (_, b) in zip(single.named_parameters(), double.named_parameters()):
        np.testing.assert_array_equal(a.data, b.data.astype("float32"), err_msg=name)


def test_a_context_can_be_given_by_name_or_position_and_can_drop_caches(model):
    for logits, cache in (model(images(), Context(keep_caches=False)), model(images(), ctx=Context(keep_caches=False))):
        assert cache is None
        np.testing.assert_array_equal(logits, model(images())[0])


def test_dropout_is_active_in_training_only():
    model = redrawn(ViT(ViTConfig(8, 4, 2, 5, 12, 2, 3, drop_rate=0.3, attn_drop_rate=0.3, drop_path_rate=0.3)))
    x, key = images().astype("float32"), Key(0)
    plain, _ = model(x)
    np.testing.assert_array_equal(model(x, Context(training=False, key=key))[0], plain)
    first, _ = model(x, Context(training=True, key=key))
    assert (first != plain).any()
    np.testing.assert_array_equal(model(x, Context(training=True, key=key))[0], first)
    assert (model(x, Context(training=True, key=Key(0, step=1)))[0] != first).any()


def test_training_with_dropout_but_without_a_key_is_refused():
    dropping, plain = (redrawn(ViT(ViTConfig(8, 4, 2, 5, 12, 2, 3, drop_rate=rate))) for rate in (0.1, 0.0))
    with pytest.raises(ValueError, match="pos_drop: training with dropout needs a key"):
        dropping(images(), Context(training=True))
    plain(images(), Context(training=True))


def test_a_context_takes_a_key_and_no_seed():
    with pytest.raises(ValueError, match=r"key: expected a Key, such as Key\(seed\), got 5"):
        Context(training=True, key=5)


def test_each_layer_draws_its_own_masks():
    layer = nn.Dropout(0.5)
    x = np.ones((64, 8))
    ctx = Context(training=True, key=Key(0))
    layer.path = "a"
    first, _ = layer(x, ctx)
    layer.path = "b"
    assert (layer(x, ctx)[0] != first).any()


def test_calling_a_module_without_memory_is_refused():
    with pytest.raises(ValueError, match=r"parameter weight \(3, 2\) is declared but has no memory"):
        nn.Linear(2, 3).materialize(device="meta")(np.ones((1, 2)))


@pytest.mark.parametrize("dtype", ["float16", "int32", "nonsense", "bfloat16"])
def test_an_unknown_dtype_is_named(dtype):
    with pytest.raises(ValueError, match=f"unknown dtype '{dtype}'; expected one of float32, float64, complex128"):
        ViT(CONFIG, dtype=dtype)


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match="unknown device 'tpu'; expected one of auto, cpu, cuda, or cuda:0"):
        ViT(CONFIG, device="tpu")
