"""Buffers that a forward updates, committed once a step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_statistics import norms, squares, vit_with_running_norm

from tinyvit import Context, Key, optim
from tinyvit.training import train_step

parts = st.integers(1, 3)
batch_sizes = st.integers(1, 7)


def random_batch(size):
    generator = np.random.default_rng(0)
    return generator.standard_normal((size, 2, 4, 4)), generator.integers(0, 3, size)


def step_with_buffers(threads=1, accumulate=1, recompute=False, size=7, images=None):
    model = vit_with_running_norm()
    batch = random_batch(size) if images is None else (images, np.zeros(len(images), int))
    ctx, split = Context(training=True, key=Key(0), recompute=recompute), dict(threads=threads, accumulate=accumulate)
    result = train_step(model, optim.SGD(model, 0.1), *batch, ctx, objective=squares, **split)
    return model, result


@given(size=batch_sizes, threads=parts, accumulate=parts, recompute=st.booleans())
def test_buffers_are_committed_once_a_step_and_alike_however_the_batch_is_split(size, threads, accumulate, recompute):
    whole, _ = step_with_buffers(size=size)
    model, _ = step_with_buffers(threads, accumulate, recompute, size)
    assert [norm.commits for norm in norms(model)] == [1] * 4
    for (name, got), expected in zip(model.state_dict().items(), whole.state_dict().values()):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_skipped_step_commits_no_buffer(threads):
    images = random_batch(6)[0]
    images[5, 0, 0, 0] = np.nan
    before = vit_with_running_norm().state_dict()
    with np.errstate(invalid="ignore"):
        model, result = step_with_buffers(threads, images=images)
    assert not result.applied
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
