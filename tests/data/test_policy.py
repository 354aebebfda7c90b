import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key
from tinyvit.data import colour, geometry, policy
from tinyvit.data.policy import COLOUR, GEOMETRY, OPERATIONS, Choices

MANY = 14 * 600


def pictures(seed, B=3, C=3, H=16, W=17, scale=255):
    """Read-only random pixels from 0 to `scale`."""
    x = np.random.default_rng(seed).integers(0, scale + 1, (B, C, H, W)).astype("float32")
    x.flags.writeable = False
    return x


def all_do(name, amount, B=3):
    """Choices with the same operation for every image."""
    return Choices(np.full((B, 1), OPERATIONS.index(name)), np.full((B, 1), float(amount)))


def applied(x, choices, scale=255.0):
    moved = geometry.resample(x, policy.matrices(choices, *x.shape[2:]))
    return policy.recolour(moved, choices, scale)


def trivial(seed, B=MANY):
    return policy.trivial(B, Key(seed))


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"autocontrast", "equalize"}))
@given(seed=seeds(), C=st.sampled_from([1, 3]), scale=st.sampled_from([16, 255]))
def test_every_operation_at_zero_strength_changes_nothing(name, seed, C, scale):
    x = pictures(seed, C=C, scale=scale)
    np.testing.assert_allclose(applied(x, all_do(name, 0), scale), x, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("name", "amount", "function"), [
    ("brightness", 0.5, lambda x: colour.brightness(x, np.full(3, 1.5, "float32"))),
    ("contrast", -0.5, lambda x: colour.contrast(x, np.full(3, 0.5, "float32"))),
    ("saturation", 0.9, lambda x: colour.saturation(x, np.full(3, 1.9, "float32"))),
    ("sharpness", -0.9, lambda x: colour.sharpness(x, np.full(3, 0.1, "float32"))),
    ("posterize", 5.8, lambda x: colour.posterize(x, np.full(3, 2))),
    ("solarize", 200, lambda x: colour.solarize(x, np.full(3, 56.0))),
    ("autocontrast", 0, colour.autocontrast),
    ("equalize", 0, colour.equalize),
    ("rotate", 30, lambda x: geometry.resample(x, geometry.rotate(np.full(3, 30.0)))),
    ("shear_x", 0.3, lambda x: geometry.resample(x, geometry.shear_x(np.full(3, 0.3)))),
    ("shear_y", 0.3, lambda x: geometry.resample(x, geometry.shear_y(np.full(3, 0.3)))),
    ("translate_x", 2 / 17, lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 2)))[..., 2:]),
    ("translate_y", -3 / 16, lambda x: np.pad(x, ((0, 0), (0, 0), (3, 0), (0, 0)))[:, :, :-3]),
])  # fmt: skip
def test_every_operation_is_the_function_of_its_name(name, amount, function):
    x = pictures(1)
    np.testing.assert_allclose(applied(x, all_do(name, amount)), function(x), atol=1e-3)


@given(seed=seeds())
def test_operations_are_applied_in_the_order_of_the_choices(seed):
    x = pictures(seed)
    brightness, solarize = (OPERATIONS.index(name) for name in ("brightness", "solarize"))
    both = Choices(np.array([[brightness, solarize]] * 3), np.array([[0.5, 128.0]] * 3))
    one_by_one = applied(applied(x, all_do("brightness", 0.5)), all_do("solarize", 128))
    np.testing.assert_array_equal(applied(x, both), one_by_one)
    rotate, shear_x = (OPERATIONS.index(name) for name in ("rotate", "shear_x"))
    turns = Choices(np.array([[rotate, shear_x]] * 3), np.array([[20, 0.2]] * 3))
    product = geometry.rotate(np.full(3, 20.0)) @ geometry.shear_x(np.full(3, 0.2))
    np.testing.assert_allclose(policy.matrices(turns, 16, 17), product)


def test_all_operations_are_equally_likely():
    for choices in (trivial(0), policy.rand(MANY // 2, Key(0), 2, 9)):
        counts = np.bincount(choices.operation.reshape(-1), minlength=14)
        assert abs(counts - 600).max() < 5 * 600**0.5


def amounts(choices, name):
    return choices.amount[choices.operation == OPERATIONS.index(name)]


@pytest.mark.parametrize(("name", "spec"), (COLOUR | GEOMETRY).items())
def test_trivial_augment_draws_thirty_one_strengths_of_either_sign(name, spec):
    steps = amounts(trivial(1), name) / (spec.trivial or 1) * 30
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)
    expected = {0} if not spec.trivial else set(range(-30 if spec.signed else 0, 31))
    assert set(steps.round().astype(int)) == expected


@pytest.mark.parametrize(("name", "spec"), (COLOUR | GEOMETRY).items())
@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_rand_augment_has_one_strength_of_either_sign(name, spec, magnitude):
    seen = amounts(policy.rand(MANY, Key(1), 1, magnitude), name)
    np.testing.assert_allclose(abs(seen), spec.rand * magnitude / 30)
    if magnitude and spec.rand:
        assert set(np.sign(seen)) == ({-1, 1} if spec.signed else {1})


def test_rand_augment_draws_its_operations_independently():
    first, second = policy.rand(MANY, Key(2), 2, 9).operation.T
    assert abs((first == second).mean() - 1 / 14) < 5 * (1 / 14 / MANY) ** 0.5
