import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import ViT, ViTConfig, optim
from tinyvit.optim import optimizers

lrs = st.floats(1e-4, 0.1)
betas = st.tuples(st.floats(0, 0.99), st.floats(0, 0.9999))
decays = st.floats(0, 0.5)
step_counts = st.integers(1, 4)
ALL = {
    "Adam": lambda model: optim.Adam(model),
    "AdamW": lambda model: optim.AdamW(model, weight_decay=0.1),
    "SGD": lambda model: optim.SGD(model, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adagrad": lambda model: optim.Adagrad(model, weight_decay=0.1),
    "Muon": lambda model: optim.Muon(model, weight_decay=0.1),
}
each_optimizer = pytest.mark.parametrize("make", ALL.values(), ids=ALL)


def small_model(seed=0, dtype="float64"):
    """A ViT with random weights in every parameter."""
    config = ViTConfig(img_size=4, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2)
    return redrawn(ViT(config, dtype=dtype), seed, std=1.0)


def gradients(model, steps, seed=0):
    """By parameter, what a model's gradients are in each of a few steps."""
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal((steps, *p.shape)) for name, p in model.named_parameters()}


def take_steps(model, optimizer, gradients):
    for step in range(len(gradients["cls_token"])):
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name][step]
        optimizer.step()


def adam(theta, gradients, lr, betas, eps=1e-8, weight_decay=0.0):
    """Kingma & Ba 2015, algorithm 1, line by line; with weight decay, Loshchilov & Hutter 2019, algorithm 2."""
    beta1, beta2 = betas
    m = v = 0
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        theta = theta - lr * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * theta)
    return theta


def sgd(theta, gradients, lr, momentum, nesterov, weight_decay):
    """Sutskever et al. 2013, as PyTorch has it."""
    b = 0
    for g in gradients:
        g = g + weight_decay * theta
        b = momentum * b + g
        theta = theta - lr * (g + momentum * b if nesterov else b)
    return theta


def adagrad(theta, gradients, lr, eps=1e-10, weight_decay=0.0):
    """Duchi et al. 2011."""
    s = 0
    for g in gradients:
        g = g + weight_decay * theta
        s = s + g**2
        theta = theta - lr * g / (np.sqrt(s) + eps)
    return theta


def assert_follows(paper, optimizer, model, steps, seed, weight_decay=0.0, **options):
    """Step a model and, beside it, each of its parameters by the paper; weight decay goes to what has `decay`."""
    g = gradients(model, steps, seed)
    expected = {
        name: paper(p.data.copy(), g[name], **options, weight_decay=weight_decay if p.decay else 0.0)
        for name, p in model.named_parameters()
    }
    take_steps(model, optimizer, g)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.data, expected[name], rtol=1e-11, atol=1e-12, err_msg=name)


@given(lr=lrs, betas=betas, steps=step_counts, seed=seeds())
def test_adam_is_algorithm_1_of_the_paper(lr, betas, steps, seed):
    model = small_model()
    assert_follows(adam, optim.Adam(model, lr, betas), model, steps, seed, lr=lr, betas=betas)


@given(lr=lrs, betas=betas, decay=decays, steps=step_counts, seed=seeds())
def test_adamw_is_algorithm_2_of_the_paper(lr, betas, decay, steps, seed):
    model = small_model()
    optimizer = optim.AdamW(model, lr, betas, weight_decay=decay)
    assert_follows(adam, optimizer, model, steps, seed, decay, lr=lr, betas=betas)


@given(lr=lrs, momentum=st.floats(0, 0.99), nesterov=st.booleans(), decay=decays, steps=step_counts, seed=seeds())
def test_sgd_is_pytorchs(lr, momentum, nesterov, decay, steps, seed):
    model = small_model()
    options = dict(lr=lr, momentum=momentum, nesterov=nesterov)
    assert_follows(sgd, optim.SGD(model, **options, weight_decay=decay), model, steps, seed, decay, **options)


@given(lr=lrs, decay=decays, steps=step_counts, seed=seeds())
def test_adagrad_is_the_papers(lr, decay, steps, seed):
    model = small_model()
    assert_follows(adagrad, optim.Adagrad(model, lr, weight_decay=decay), model, steps, seed, decay, lr=lr)


@each_optimizer
def test_float32_agrees_with_float64(make):
    single, double = small_model(dtype="float32"), small_model()
    for model in (single, double):
        take_steps(model, make(model), gradients(model, 4))
    for got, expected in zip(single.parameters(), double.parameters()):
        assert got.data.dtype == "float32"
        np.testing.assert_allclose(got.data, expected.data, rtol=1e-5, atol=1e-6)


def test_without_a_gradient_adamw_only_shrinks_what_has_decay():
    model = small_model()
    before = model.state_dict()
    model.zero_grad()
    optim.AdamW(model, lr=0.1, weight_decay=0.5).step()
    shrunk = {name for name, p in model.named_parameters() if (p.data != before[name]).any()}
    assert shrunk == {name for name, p in model.named_parameters() if p.decay}
    assert shrunk == {name for name in before if name.endswith(".weight") and "norm" not in name}
    for name in shrunk:
        np.testing.assert_allclose(model.state_dict()[name], 0.95 * before[name], rtol=1e-15)


@each_optimizer
def test_frozen_parameters_and_their_moments_stay(make):
    model = small_model()
    optimizer = make(model)
    take_steps(model, optimizer, gradients(model, 2))
    frozen = model.freeze("blocks.*.attn.*") + model.freeze("cls_token")
    arrays = [model.storage.data, *optimizer.state]
    before = [array.copy() for array in arrays]
    take_steps(model, optimizer, gradients(model, 2, seed=1))
    for name, p in model.named_parameters():
        where = slice(p.offset, p.offset + p.size)
        stayed = [(array[where] == old[where]).all() for array, old in zip(arrays, before)]
        if name in frozen:
            assert all(stayed), name
        else:  # the weights and, of the state, whatever the optimizer uses for them: Muon's matrices have no v
            assert not stayed[0] and not stayed[1], name


@each_optimizer
@given(scale=st.floats(0, 10))
def test_lr_scale_multiplies_the_learning_rate_of_one_parameter(make, scale):
    scaled, other = small_model(), small_model()
    optimizer, other_optimizer = make(scaled), make(other)
    dict(scaled.named_parameters())["pos_embed"].lr_scale = scale
    other_optimizer.lr *= scale
    g = gradients(scaled, 1)
    reference = small_model()
    take_steps(scaled, optimizer, g)
    take_steps(other, other_optimizer, g)
    take_steps(reference, make(reference), g)
    for (name, got), expected, unscaled in zip(scaled.named_parameters(), other.parameters(), reference.parameters()):
        np.testing.assert_array_equal(got.data, (expected if name == "pos_embed" else unscaled).data)


@each_optimizer
def test_the_padding_between_parameters_stays_zero(make):
    model = small_model()
    padding = np.ones(model.storage.size, bool)
    for p in model.parameters():
        padding[p.offset : p.offset + p.size] = False
    optimizer = make(model)
    take_steps(model, optimizer, gradients(model, 3))
    assert padding.any() and not any(array[padding].any() for array in (model.storage.data, *optimizer.state))


@each_optimizer
@pytest.mark.parametrize("chunk", [1, 7, 64, 10**9])
def test_a_sweep_in_chunks_equals_a_sweep_over_the_whole_array(make, chunk, monkeypatch):
    whole, chunked = small_model(), small_model()
    take_steps(whole, make(whole), gradients(whole, 3))
    monkeypatch.setattr(optimizers, "CHUNK_ENTRIES", chunk)
    take_steps(chunked, make(chunked), gradients(chunked, 3))
    np.testing.assert_array_equal(chunked.storage.data, whole.storage.data)


@each_optimizer
def test_a_restored_optimizer_continues_bit_for_bit(make):
    model = small_model()
    optimizer = make(model)
    take_steps(model, optimizer, gradients(model, 3))
    weights, state = model.state_dict(), optimizer.state_dict()            # copies
    take_steps(model, optimizer, gradients(model, 3, seed=1))
    restored = small_model(seed=1)
    restored.load_state_dict(weights)
    restored_optimizer = make(restored)
    restored_optimizer.load_state_dict(state)
    take_steps(restored, restored_optimizer, gradients(restored, 3, seed=1))
    np.testing.assert_array_equal(restored.storage.data, model.storage.data)


@pytest.mark.parametrize(
    "misfit", [lambda state: {}, lambda state: state | {"b": state["m"]}, lambda state: state | {"m": state["m"][:-1]}],
    ids=["missing", "unexpected", "misshapen"],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(misfit):
    model = small_model()
    optimizer = optim.AdamW(model)
    take_steps(model, optimizer, gradients(model, 1))
    assert optimizer.t == 1 and isinstance(optimizer.t, int) == (model.device == "cpu")
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match="the state doesn't fit AdamW: expected"):
        optimizer.load_state_dict(misfit({name: array + 1 for name, array in before.items()}))
    for name, array in optimizer.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(("make", "message"), [
    (lambda model: optim.Adam(model, lr=-1), "learning rate .*got -1"),
    (lambda model: optim.AdamW(model, weight_decay=-0.1), r"weight decay .*got -0\.1"),
    (lambda model: optim.Adam(model, betas=(1.0, 0.9)), r"betas .*got \(1\.0, 0\.9\)"),
    (lambda model: optim.AdamW(model, eps=0), "eps above 0 in float32, got 0"),
    (lambda model: optim.Muon(model, eps=0.0), r"eps above 0 in float32, got 0\.0"),
    (lambda model: optim.Adagrad(model, eps=0), "eps above 0 in float32, got 0"),
    (lambda model: optim.SGD(model, 0.1, momentum=1.0), r"momentum .*got 1\.0"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_the_given_value(make, message):
    with pytest.raises(ValueError, match=message):
        make(small_model())
