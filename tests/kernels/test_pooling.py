import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit import functional as F

POOLINGS = pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])


@st.composite
def pooled(draw):
    """x (B, C, H, W), float32 of few different values, in any memory order, and the options of a pooling."""
    kernel, stride = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    padding = tuple(draw(st.integers(0, side // 2)) for side in kernel)
    image = [max(1, k - 2 * p) + draw(st.integers(0, 4)) for k, p in zip(kernel, padding)]
    generator = np.random.default_rng(draw(seeds()))
    x = generator.integers(-3, 4, (draw(st.integers(1, 3)), draw(st.integers(1, 3)), *image)).astype("float32")
    x[generator.random(x.shape) < draw(st.sampled_from([0, 0.1]))] = draw(st.sampled_from([np.nan, -np.inf, np.inf]))
    return laid_out(x, draw(st.sampled_from(LAYOUTS))), {"kernel_size": kernel, "stride": stride, "padding": padding}


@pytest.mark.filterwarnings("ignore:invalid value")
@POOLINGS
@given(drawn=pooled(), seed=seeds())
def test_the_kernel_gives_what_the_reference_gives(pool, drawn, seed):
    x, options = drawn
    (y, cache), (expected, reference) = pool(x, **options), pool.reference(x, **options)
    np.testing.assert_allclose(y, expected, rtol=1e-6, strict=True)
    assert cache.windows == reference.windows
    if pool is F.max_pool2d:
        np.testing.assert_array_equal(cache.place, reference.place, strict=True)
    dy = np.random.default_rng(seed).standard_normal(y.shape).astype("float32")
    dx = pool.backward.reference(dy, reference)
    np.testing.assert_allclose(pool.backward(dy, cache), dx, rtol=1e-5, atol=1e-6, strict=True)


@POOLINGS
def test_an_empty_batch_stays_empty(pool):
    y, cache = pool(np.ones((0, 2, 4, 4), "float32"), 2)
    assert y.shape == (0, 2, 2, 2) and pool.backward(y, cache).shape == (0, 2, 4, 4)
