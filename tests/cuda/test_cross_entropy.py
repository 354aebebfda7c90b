import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 40) | st.sampled_from([100, 1000, 1024, 1025, 1300]))
SMOOTHING = st.sampled_from([0.0, 0.1, 1.0])


def as_right_as_the_reference(cupy, logits, targets, given, smoothing, dtype, dy=1.0):
    loss, cache = F.cross_entropy(to(cupy, logits, dtype), given, smoothing)
    expected, c = F.cross_entropy.reference(logits, targets, smoothing)
    assert loss.shape == () and loss.dtype == cache.probs.dtype == "float32"
    np.testing.assert_allclose(loss.get(), expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(cache.probs.get(), c.probs, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(cache.targets.get(), c.targets, rtol=1e-6)
    dlogits = F.cross_entropy_backward(dy, cache)
    assert dlogits.dtype == dtype
    wanted = F.cross_entropy_backward.reference(float(dy), c)
    np.testing.assert_allclose(
        dlogits.get().astype("float64"), wanted, rtol=EPSILON[dtype] + 1e-6,
        atol=2e-6 * float(dy) / len(logits) + (2.0**-25 if dtype == "float16" else 0),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, seed=st.integers(0, 99), smoothing=SMOOTHING, of=st.sampled_from(["uint8", "int32", "int64"]))
def test_loss_and_gradient_of_labels_are_those_of_the_reference(cupy, dtype, shape, seed, smoothing, of):
    labels = np.random.default_rng(seed).integers(0, min(shape[1], 256), shape[0]).astype(of)
    logits = numbers(*shape, dtype=dtype, seed=seed, scale=3)
    as_right_as_the_reference(cupy, logits, labels, cupy.asarray(labels), smoothing, dtype)


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, seed=st.integers(0, 99), smoothing=SMOOTHING, of=st.sampled_from(["float32", "float64"]))
def test_loss_and_gradient_of_probabilities_are_those_of_the_reference(cupy, dtype, shape, seed, smoothing, of):
    # They need not sum to 1, and some of them are 0.
    targets = np.random.default_rng(seed).choice([0.0, 0.25, 0.5, 1.0], shape).astype(of)
    logits = numbers(*shape, dtype=dtype, seed=seed)
    as_right_as_the_reference(cupy, logits, targets.astype("float64"), cupy.asarray(targets), smoothing, dtype)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("dy", [3.0, 3, 65536.0])
def test_a_loss_may_be_scaled_by_a_number_and_by_one_on_the_device(cupy, dtype, dy):
    logits, labels = numbers(300, 10, dtype=dtype), np.arange(300) % 10
    as_right_as_the_reference(cupy, logits, labels, labels, 0.1, dtype, dy)
    _, cache = F.cross_entropy(to(cupy, logits, dtype), labels, 0.1)
    expected = F.cross_entropy_backward(dy, cache).get()
    for scale in (cupy.asarray(np.float32(dy)), cupy.asarray(np.float64(dy))):
        assert scale.shape == ()
        np.testing.assert_array_equal(F.cross_entropy_backward(scale, cache).get(), expected)


def test_improbable_classes_without_target_probability_add_nothing_to_the_loss(cupy):
    logits = np.array([[1e4, -1e4, 0.0], [-np.inf, 1.0, 1.0]])
    targets = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    loss, cache = F.cross_entropy(to(cupy, logits), to(cupy, targets))
    np.testing.assert_allclose(loss.get(), np.log(2) / 2, rtol=1e-6)
    np.testing.assert_allclose(F.cross_entropy_backward(1.0, cache).get(), np.zeros((2, 3)), atol=1e-7)


@pytest.mark.parametrize("label", [-1, 5, 2**40, -(2**62)])
def test_a_label_out_of_range_gives_no_loss_and_reads_no_memory(cupy, label):
    loss, cache = F.cross_entropy(to(cupy, numbers(2, 5)), cupy.asarray(np.array([label, label])))
    assert loss.get() == 0 and not F.cross_entropy_backward(1.0, cache).get().any()


def test_mismatched_shapes_are_refused_as_in_the_reference(cupy):
    logits = to(cupy, numbers(3, 4), "bfloat16")
    with pytest.raises(ValueError, match=r"cross_entropy: expected targets as ints \(3,\) or probabilities \(3, 4\)"):
        F.cross_entropy(logits, np.zeros(4, int))
    with pytest.raises(ValueError, match="cross_entropy: expected logits .* of at least one sample"):
        F.cross_entropy(logits[:0], np.zeros(0, int))
    with pytest.raises(ValueError, match="label_smoothing must be from 0 to 1, got 2"):
        F.cross_entropy(logits, np.zeros(3, int), 2)
    _, cache = F.cross_entropy(logits, np.zeros(3, int))
    with pytest.raises(ValueError, match=r"cross_entropy_backward: expected dy \(\), the shape of the result, got"):
        F.cross_entropy_backward(to(cupy, np.ones(1)), cache)


def test_arrays_in_any_memory_order_are_read_correctly(cupy):
    logits, targets = numbers(4, 6), np.random.default_rng(0).dirichlet(np.ones(6), 4)
    loss, _ = F.cross_entropy(to(cupy, logits.T.copy()).T, to(cupy, targets.T.copy()).T)
    np.testing.assert_allclose(loss.get(), F.cross_entropy.reference(logits, targets)[0], rtol=1e-6)


@pytest.mark.parametrize("K", [10, 1100])
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, K):
    _, cache = F.cross_entropy(to(cupy, numbers(300, K)), np.arange(300) % 10)
    F.cross_entropy_backward(1.0, cache)
