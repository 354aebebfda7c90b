"""Positions for another grid of patches."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson


def sides(random, old, new):
    return old, new


def inputs(random, R, K, r, k, D):
    return random.standard_normal((R, K, D)), random.standard_normal((R, r)), random.standard_normal((K, k))


@exercise(
    sides, ({"old": 8, "new": 12}, {"old": 7, "new": 3}),
    traps=(Case("a single patch", lambda random: (1, 3)), Case("as many patches as before", lambda random: (4, 4))),
)
def bicubic(old, new):
    """Bicubic interpolation along one axis as a matrix (Keys 1981, a = −0.75): centres lie in the middle of their
    patches, and beyond the edge the outermost patch is repeated.

      old  patches along the axis
      new  patches after resizing

    returns
      W  (new, old), rows adding up to 1
    """
    a, rows, matrix = -0.75, np.arange(new), np.zeros((new, old))
    places = (np.arange(new) + 0.5) * old / new - 0.5
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(places) + offset
        t = abs(places - neighbours)
        near = (a + 2) * t**3 - (a + 3) * t**2 + 1
        far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
        columns = np.clip(neighbours, 0, old - 1).astype(int)
        matrix[rows, columns] += np.where(t <= 1, near, far)
    return matrix


lesson(bicubic, """
Package: tinyvit.functional.interpolation.cell_centres, tinyvit.functional.interpolation.bicubic

Hints:
  Where does the centre of a new patch lie, counted in old patches? Which four old ones are near it?
  For each of four offsets −1 to 2: a distance, a weight by a cubic, added to the column of that neighbour.
  x = (j + ½) n/n′ − ½; (a+2)|t|³ − (a+3)t² + 1 up to 1, a|t|³ − 5a t² + 8a|t| − 4a up to 2; columns clipped.

Mistakes:
  a is −0.5
    That is Keys' own choice; use PyTorch's, −0.75.
    `-0.75` → `-0.5`
  a is +0.75
    a = −0.75 makes the weights negative from 1 to 2; it is Keys' parameter with its sign.
    `-0.75` → `0.75`
  near the edge, the last weight replaces those before
    The outermost patch gets the weights of all missing ones: += and not =. NumPy's W[rows, columns] += w adds only
    once for repeated indices; add one offset after the other, or use np.add.at.
    `+= np.where` → `= np.where`
  the weights are linear
    max(0, 1 − |t|) has a corner at each patch; use cubics.
    `np.where(t <= 1, near, far)` → `np.maximum(0, 1 - t)`
  the weights are linear, and the corners aligned
    Use cubics, and x = (j + ½) n/n′ − ½.
    `np.where(t <= 1, near, far)` → `np.maximum(0, 1 - t)`
    `(np.arange(new) + 0.5) * old / new - 0.5` → `np.linspace(0, old - 1, new)`
  what lies beyond the edge is dropped
    The rows don't add up to 1: the outermost patch gets these weights.
    `np.where(t <= 1, near, far)` → `np.where(t <= 1, near, far) * (columns == neighbours)`
  near the edge, weights are divided by their sum
    Add the missing weights to the outermost patch.
    `np.where(t <= 1, near, far)` → `np.where(t <= 1, near, far) * (columns == neighbours)`
    `return matrix` → `return matrix / matrix.sum(1, keepdims=True)`
  centres without their half
    A patch's centre lies half a patch after its edge: (j + ½) n/n′ − ½.
    `(np.arange(new) + 0.5) * old / new - 0.5` → `np.arange(new) * old / new`
  the last half is not taken off
    Place 0 is the centre of patch 0: (j + ½) n/n′ − ½.
    ` / new - 0.5` → ` / new`
  the corners are aligned
    Centres are: patch j of n′ has its own at (j + ½)/n′ of the image.
    `(np.arange(new) + 0.5) * old / new - 0.5` → `np.linspace(0, old - 1, new)`
  the way back
    Rows are new patches, columns old ones; this is the matrix from new to old.
    `old, new = new, old`
""")


@exercise(
    inputs, ({"R": 3, "K": 5, "r": 4, "k": 7, "D": 2}, {"R": 6, "K": 2, "r": 3, "k": 4, "D": 5}),
    equal={"R": 4, "K": 4, "r": 4, "k": 4, "D": 3},
)
def resize_backward(dy, down, across):
    """The gradient with respect to x of y[R, K] = Σ down[R, r] across[K, k] x[r, k], an interpolation summed over r,
    k.

      dy      (R, K, D): rows, columns of the new grid
      down    (R, r)
      across  (K, k)

    returns
      dx  (r, k, D)
    """
    return np.einsum("Rr,Kk,RKd->rkd", down, across, dy)


lesson(resize_backward, """
Package: tinyvit.functional.positions.resize_positions_backward

Hints:
  x[r, k] stands in every y[R, K]. With which factor?
  The same two matrices, with the sum over the other index of each.
  dx[r, k] = Σ over R and K of down[R, r] across[K, k] dy[R, K].

Mistakes:
  the inverse
    The gradient does not invert the forward: it uses the transposed matrices.
    `down, across = np.linalg.pinv(down).T, np.linalg.pinv(across).T`
  only down
    The gradient goes back through both matrices.
    `"Rr,Kk,RKd->rkd", down, across, dy` → `"Rr,RKd->rKd", down, dy`
  only across
    The gradient goes back through both matrices.
    `"Rr,Kk,RKd->rkd", down, across, dy` → `"Kk,RKd->Rkd", across, dy`
  divided by the sums of the columns
    Just transpose the matrices: their rows need not add up to 1.
    `down, across = down / down.sum(0), across / across.sum(0)`
  down is not transposed
    y takes row R of down, and dx sums over R: a column of it.
    `down = down.T`
  across is not transposed
    y takes row K of across, and dx sums over K: a column of it.
    `across = across.T`
  neither matrix is transposed
    That is the forward: the backward sums over the other index.
    `down, across = down.T, across.T`
  down and across exchanged
    down belongs to the first axis, the rows.
    `down, across = across, down`
""")
