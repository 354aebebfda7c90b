from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import numbers, to
from strategies import redrawn

from tinyvit import ViT, ViTConfig, optim
from tinyvit.functional.muon import Matrix, muon_step
from tinyvit.kernels.cuda.source import watching

SIDES = st.integers(1, 9) | st.sampled_from([4, 8, 12])
BOUND = 1e-5  # of DESIGN.md, section 6; the entries of what is orthogonal are at most 1.21


@st.composite
def placed(draw):
    """Matrices, some of one shape and some one after the other, and the length of an array that holds them."""
    shapes, found, at = draw(st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=3)), [], 0
    even = draw(st.booleans())
    for rows, columns in draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=6)):
        rows, at = 2 * rows if even else rows, at + draw(st.sampled_from([0, 0, 4] if even else [0, 1, 4]))
        columns = 2 * columns if even else columns
        found.append(Matrix(at, rows, columns, draw(st.sampled_from([1.0, 0.3])), draw(st.booleans())))
        at += found[-1].size
    return tuple(found), at + 3


def arrays_of(size, seed=0):
    """θ, g, m as float64, the gradient larger."""
    theta, g, m = numbers(3, size, seed=seed)
    return [theta, np.float32(30 * g).astype("float64"), m]


def step(cupy, arrays, matrices, start=0, nesterov=True, iterations=5, lie=lambda x: x, **options):
    """θ and m after a step on the device, and after a step of the reference implementation in float64."""
    device = [lie(to(cupy, np.concatenate([np.zeros(start), array]))[start:]) for array in arrays]
    expected = [array.copy() for array in arrays]
    settings = matrices, 0.3, 0.9, nesterov, iterations, 0.5
    muon_step(*device, *settings, **options)
    muon_step.reference(*expected, *settings)
    return [device[i].get() for i in (0, 2)], [expected[i] for i in (0, 2)]


def assert_close(got, expected, matrices):
    """Everything within the bound; what belongs to no matrix is as it was."""
    for array, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(array, wanted, rtol=BOUND, atol=BOUND)
    outside = np.ones(len(got[0]), bool)
    for matrix in matrices:
        outside[matrix.start : matrix.start + matrix.size] = False
    for array, wanted in zip(got, expected, strict=True):
        np.testing.assert_array_equal(array[outside], np.float32(wanted[outside]))


@pytest.mark.parametrize("nesterov", [True, False])
@given(case=placed(), start=st.integers(0, 4), iterations=st.integers(0, 5), seed=st.integers(0, 99))
def test_a_step_is_that_of_the_reference(cupy, nesterov, case, start, iterations, seed):
    matrices, size = case
    assert_close(*step(cupy, arrays_of(size, seed), matrices, start, nesterov, iterations), matrices)


@pytest.mark.parametrize("shape", [(81, 63), (2, 530_000)])
def test_a_matrix_of_many_chunks_is_right(cupy, shape):
    """More than a block has threads, in the last case."""
    matrices = Matrix(0, *shape), Matrix(shape[0] * shape[1], 3, 4)
    size = matrices[1].start + 12
    (_, g, m), none = arrays_of(size), np.zeros(size)
    (got, mean), (expected, wanted) = step(cupy, (none, g, m), matrices, iterations=2)
    for part in (slice(matrices[1].start), slice(matrices[1].start, None)):
        np.testing.assert_allclose(got[part], expected[part], rtol=0, atol=BOUND * abs(expected[part]).max())
    np.testing.assert_allclose(mean, wanted, rtol=BOUND, atol=BOUND)


@pytest.mark.parametrize("bad", [1.0, np.nan])
def test_a_boolean_on_the_device_decides_whether_the_step_is_taken(cupy, bad):
    matrices = Matrix(1, 4, 6), Matrix(25, 4, 6), Matrix(49, 9, 2)
    theta, g, m = arrays_of(70)
    for where in (cupy.asarray(np.bool_(False)), False):
        left, _ = step(cupy, (theta, bad * g, m), matrices, where=where)
        for got, before in zip(left, (theta, m), strict=True):
            np.testing.assert_array_equal(got, np.float32(before))
    assert_close(*step(cupy, (theta, g, m), matrices, where=cupy.asarray(np.bool_(True))), matrices)
    assert_close(*step(cupy, arrays_of(70), matrices, lie=lambda x: cupy.stack([x, x], 1)[:, 0]), matrices)


# -- the optimizer ----------------------------------------------------------------------------------------------------

VIT = ViTConfig(img_size=8, patch_size=4, embed_dim=12, depth=3, num_heads=2, mlp_ratio=2.0)


def test_a_step_takes_few_launches_however_many_matrices_there_are_and_uploads_nothing_again(cupy, monkeypatch):
    model = redrawn(ViT(VIT, device="cuda"))
    next(p for p in model.parameters() if p.ndim == 2).lr_scale = 0.3
    optimizer = optim.Muon(model)
    names, applied = [], cupy.asarray(np.array(True))
    optimizer.step(where=applied)
    monkeypatch.setattr(cupy, "asarray", None)

    @contextmanager
    def noted(name, arrays):
        names.append(name)
        yield

    with watching(noted):
        optimizer.step(where=applied)
    shapes = 3  # queries, keys, values and projections; the two layers of the MLP
    assert names.count("products") == 5 * 3 * shapes
    assert sum(name.startswith("muon") for name in names) == 8
    assert set(names) == {"products", "adam_step"} | {name for name in names if name.startswith("muon")}
