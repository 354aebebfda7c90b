"""One step of Muon on the matrices in a stretch of parameters, in place."""

from typing import NamedTuple

from tinyvit.arrays import array_module
from tinyvit.dispatch import operation
from tinyvit.functional.flat import require_alike

# a σ + b σ³ + c σ⁵ is so steep at 0 that five iterations bring every σ from 0.0015 to 1 into [0.68, 1.21]. A less steep
# polynomial would converge to 1, which takes longer and trains no better.
NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315
EPS = 1e-7  # added to the norm of what is orthogonalised, so that zero stays zero


class Matrix(NamedTuple):
    """A matrix in flat arrays, row by row: its place there, and how it is trained."""

    start: int
    rows: int
    columns: int
    lr_scale: float = 1.0  # what the learning rate is multiplied with
    decay: bool = True     # whether weight decay applies

    @property
    def size(self):
        return self.rows * self.columns

    @property
    def stretch(self):
        """The factor of an orthogonal step, √max(1, rows/columns)."""
        return max(1.0, self.rows / self.columns) ** 0.5

    def of(self, flat):
        """The matrix in one of the arrays: a view."""
        return flat[self.start : self.start + self.size].reshape(self.rows, self.columns)


@operation(arrays="theta g m", in_place="theta m")
def muon_step(theta, g, m, matrices, lr, momentum, nesterov, iterations, weight_decay, where=True):
    """A step of Muon along the gradient g for every `Matrix` in the flat arrays θ, g and m, no two of which overlap:

        m ← μ m + (1 − μ) g     u = (1 − μ) g + μ m     θ ← (1 − lr · weight_decay) θ − lr √max(1, rows/columns) O(u)

    O is `orthogonalise`; without `nesterov`, u is m. θ and m change in place, and nothing is returned.
    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".

    where   False changes nothing; a boolean scalar on a GPU decides there
    """
    require_alike(muon_step, theta=theta, g=g, m=m)
    require_inside(matrices, theta)
    if where is False:
        return
    before = [] if where is True else [(array, array.copy()) for array in (theta, m)]
    for alike in by_shape(matrices):
        directions = [direction(matrix.of(g), matrix.of(m), momentum, nesterov) for matrix in alike]
        stack = orthogonalise(array_module(theta).stack(directions), iterations)
        for matrix, step in zip(alike, stack):
            rate, x = lr * matrix.lr_scale, matrix.of(theta)
            x *= 1 - rate * (weight_decay if matrix.decay else 0.0)
            x -= rate * matrix.stretch * step
    for array, old in before:
        array_module(array).copyto(array, old, where=~where)


def direction(g, m, momentum, nesterov):
    """Update the momentum m of one matrix; returns u."""
    m *= momentum
    m += (1 - momentum) * g
    return (1 - momentum) * g + momentum * m if nesterov else m


def orthogonalise(g, iterations=5):
    """Approximately U Vᵀ for matrices g = U S Vᵀ (..., rows, columns): g with all singular values near 1.

    X = g / ‖g‖, then repeatedly X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X: Newton–Schulz iterations, which need only matrix
    products and change only the singular values, each by the same polynomial. After five, those that were above
    0.0015 ‖g‖ are between 0.68 and 1.21, and smaller ones 485 times as large as they were in X.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
    """
    a, b, c = NEWTON_SCHULZ
    tall = g.shape[-2] > g.shape[-1]
    x = array_module(g).ascontiguousarray(g.mT if tall else g)       # X Xᵀ is then the smaller product
    x = x / ((x * x).sum((-2, -1), keepdims=True) ** 0.5 + EPS)
    for _ in range(iterations):
        gram = x @ x.mT
        polynomial = gram @ gram
        polynomial *= c
        gram *= b
        polynomial += gram
        change = polynomial @ x
        x *= a
        x += change
    return x.mT if tall else x


def by_shape(matrices):
    """The matrices in lists of one shape."""
    alike = {}
    for matrix in matrices:
        alike.setdefault((matrix.rows, matrix.columns), []).append(matrix)
    return alike.values()


def require_inside(matrices, flat):
    """Raise ValueError unless an array is flat and has room for the matrices."""
    end = max((matrix.start + matrix.size for matrix in matrices), default=0)
    if flat.ndim != 1 or end > flat.size or any(matrix.start < 0 for matrix in matrices):
        raise ValueError(f"muon_step: expected flat arrays of {end} numbers or more, got theta {flat.shape}")
