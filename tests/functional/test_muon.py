import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.functional.muon import Matrix, muon_step, orthogonalise

sides = st.integers(1, 9)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def with_singular_values(values, rows, columns, seed=0):
    """U diag(values) Vᵀ with random orthogonal U and V."""
    u, v = np.linalg.qr(normal(seed, rows, rows))[0], np.linalg.qr(normal(seed + 1, columns, columns))[0]
    return u[:, : len(values)] * values @ v[:, : len(values)].T


def polynomial(sigma, iterations=5):
    """The polynomial of the iterations, applied to a singular value."""
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(iterations):
        sigma = a * sigma + b * sigma**3 + c * sigma**5
    return sigma


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(64, 128), (128, 64), (100, 200), (16, 16)])
def test_the_singular_values_of_a_random_matrix_end_near_1(shape, dtype):
    got = orthogonalise(normal(0, *shape).astype(dtype))
    values = np.linalg.svd(got, compute_uv=False)
    assert got.dtype == dtype and values.min() > 0.6 and values.max() < 1.3


@given(values=st.lists(st.floats(0.05, 20), min_size=1, max_size=5), rows=st.integers(5, 9), columns=st.integers(5, 9))
def test_singular_values_change_by_the_polynomial_and_singular_vectors_stay(values, rows, columns):
    values = np.array(values)
    expected = with_singular_values(polynomial(values / np.linalg.norm(values)), rows, columns)
    np.testing.assert_allclose(orthogonalise(with_singular_values(values, rows, columns)), expected, atol=1e-5)


def test_five_iterations_bring_every_singular_value_above_a_666th_into_the_range():
    ends = polynomial(np.geomspace(0.0015, 1, 100_001))
    assert 0.67 < ends.min() < 0.69 and 1.2 < ends.max() < 1.21


@given(rows=sides, columns=sides, seed=seeds())
def test_transposing_and_rotating_commute_with_it(rows, columns, seed):
    g, q = normal(seed, rows, columns), np.linalg.qr(normal(seed, rows, rows))[0]
    expected = orthogonalise(g)
    np.testing.assert_allclose(orthogonalise(g.T), expected.T, atol=1e-12)
    np.testing.assert_allclose(orthogonalise(q @ g), q @ expected, atol=1e-12)


@given(rows=sides, columns=sides, seed=seeds(), scale=st.floats(1e-2, 1e6))
def test_the_norm_of_a_matrix_does_not_matter(rows, columns, seed, scale):
    g = normal(seed, rows, columns)
    g /= np.linalg.norm(g)
    # ε shortens x by 1e-7/‖g‖, and the iterations make of that at most the largest slope of the polynomial, 485.
    np.testing.assert_allclose(orthogonalise(scale * g), orthogonalise(g), atol=485 * 1e-7 / min(1, scale))


@given(count=st.integers(1, 4), rows=sides, columns=sides, seed=seeds())
def test_matrices_in_a_stack_are_orthogonalised_independently(count, rows, columns, seed):
    stack = normal(seed, count, rows, columns)
    stack.flags.writeable = False
    np.testing.assert_allclose(orthogonalise(stack), [orthogonalise(g) for g in stack], atol=1e-12)


def test_zero_stays_zero():
    assert not orthogonalise(np.zeros((2, 3, 4), "float32")).any()


# -- the step -------------------------------------------------------------------------------------------------------

SHAPES = (5, 3), (2, 7), (5, 3), (4, 4)


def placed(shapes, gap=2, **options):
    """Matrices of these shapes, one after the other in an array with gaps, and its length."""
    found, at = [], gap
    for shape in shapes:
        found.append(Matrix(at, *shape, **options))
        at += found[-1].size + gap
    return tuple(found), at


@pytest.mark.parametrize("nesterov", [True, False])
@given(seed=seeds())
def test_every_matrix_takes_the_step_of_the_formula_and_what_lies_between_stays(nesterov, seed):
    matrices, size = placed(SHAPES)
    matrices = (matrices[0]._replace(lr_scale=0.3), *matrices[1:3], matrices[3]._replace(decay=False))
    theta, g, m = normal(seed, 3, size)
    expected = theta.copy(), m.copy()
    for start, rows, columns, lr_scale, decay in matrices:
        x, b = (array[start : start + rows * columns].reshape(rows, columns) for array in expected)
        dx = g[start : start + rows * columns].reshape(rows, columns)
        b[...] = 0.9 * b + 0.1 * dx
        u = 0.1 * dx + 0.9 * b if nesterov else b
        rate = 0.2 * lr_scale
        x[...] = (1 - rate * 0.5 * decay) * x - rate * max(1, rows / columns) ** 0.5 * orthogonalise(u, 4)
    g.flags.writeable = False
    assert muon_step(theta, g, m, matrices, 0.2, 0.9, nesterov, 4, 0.5) is None
    np.testing.assert_allclose(theta, expected[0], atol=1e-12)
    np.testing.assert_allclose(m, expected[1], atol=1e-12)


def test_a_step_that_is_left_out_changes_nothing():
    matrices, size = placed(SHAPES)
    theta, g, m = normal(0, 3, size)
    before = theta.copy(), m.copy()
    for where in (False, np.zeros((), bool)):
        muon_step(theta, g, m, matrices, 0.2, 0.9, True, 5, 0.5, where)
        np.testing.assert_array_equal((theta, m), before)


@pytest.mark.parametrize(("matrices", "shape"), [
    (placed(SHAPES)[0], (placed(SHAPES)[1] - 3,)),
    ((Matrix(-1, 2, 3),), (20,)),
    ((Matrix(0, 2, 3),), (4, 5)),
])  # fmt: skip
def test_matrices_that_are_not_in_the_arrays_are_refused(matrices, shape):
    arrays = normal(0, 3, *shape)
    before = arrays.copy()
    with pytest.raises(ValueError, match="muon_step: expected flat arrays of .* numbers or more, got theta"):
        muon_step(*arrays, matrices, 0.2, 0.9, True, 5, 0.5)
    np.testing.assert_array_equal(arrays, before)
