import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    B=st.integers(1, 20), K=st.integers(1, 40) | st.sampled_from([100, 1000, 1025]), seed=st.integers(0, 99),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]), of=st.sampled_from(["uint8", "int64", "float32", "float64"]),
    dy=st.sampled_from([1.0, 3, 1024.0]),
)  # fmt: skip
def test_loss_and_gradient_are_those_of_the_reference(cupy, dtype, B, K, seed, smoothing, of, dy):
    generator = np.random.default_rng(seed)
    labels, some = generator.integers(0, min(K, 256), B), generator.choice([0.0, 0.5, 1.0, 4.0], (B, K)) / K
    # Probabilities that needn't sum to 1, but so small that gradients fit into float16.
    targets = (some if "float" in of else labels).astype(of)
    logits = numbers(B, K, dtype=dtype, seed=seed, scale=3)
    loss, cache = F.cross_entropy(to(cupy, logits, dtype), cupy.asarray(targets), smoothing)
    expected, c = F.cross_entropy.reference(logits, targets.astype("float64") if "float" in of else targets, smoothing)
    assert loss.shape == () and loss.dtype == cache.probs.dtype == "float32"
    np.testing.assert_allclose(loss.get(), expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(cache.probs.get(), c.probs, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(cache.targets.get(), c.targets, rtol=1e-6)
    wanted = F.cross_entropy_backward.reference(float(dy), c)
    tiny = 2e-6 * dy / B + (2.0**-25 if dtype == "float16" else 0)
    for scale in (dy, cupy.asarray(np.float32(dy)), cupy.asarray(np.float64(dy))):
        dlogits = F.cross_entropy_backward(scale, cache)
        assert dlogits.dtype == dtype
        np.testing.assert_allclose(dlogits.get().astype("float64"), wanted, rtol=EPSILON[dtype] + 1e-6, atol=tiny)


def test_improbable_classes_without_target_probability_add_nothing_to_the_loss(cupy):
    logits = np.array([[1e4, -1e4, 0.0], [-np.inf, 1.0, 1.0]])
    targets = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    loss, cache = F.cross_entropy(to(cupy, logits.T.copy()).T, to(cupy, targets.T.copy()).T)
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
    _, cache = F.cross_entropy(logits, np.zeros(3, int))
    with pytest.raises(ValueError, match=r"cross_entropy_backward: expected dy \(\), the shape of the result, got"):
        F.cross_entropy_backward(to(cupy, np.ones(1)), cache)
