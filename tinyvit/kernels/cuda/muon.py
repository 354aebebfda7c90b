"""Muon's step on all matrices at once: four kernels of ours around the matrix products of each shape.

An iteration is X ← (a I + b G + c G²) X with G = X Xᵀ: one pass over the small matrices, and none over X.
On an H200 a step of cifar10 (batch 1,024, bfloat16, as a CUDA graph) takes 11.7 ms, and 18.7 without these kernels.
"""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.backend import device_of
from tinyvit.functional.flat import require_alike
from tinyvit.functional.muon import EPS, NEWTON_SCHULZ, by_shape, muon_step, require_inside
from tinyvit.kernels.cuda.products import multiply_batches
from tinyvit.kernels.cuda.source import Source, blocks, pack_of

SOURCE = Source("muon.cu", [{"PACK": 1}, {"PACK": 4}])
BLOCK, CHUNK = 256, 4096  # threads, and entries that they share, as muon.cu has it
TYPE = [(name, "i8") for name in ("start", "place", "size", "side")] + [("rate", "f4"), ("decay", "f4")]


class Plan(NamedTuple):
    """How matrices lie in the arrays of the directions: those of one shape, which are multiplied at once, together."""

    table: Array   # a `Matrix` of muon.cu for each, on the device
    grid: tuple    # of blocks: a column for each chunk of the largest, a row for each matrix
    shapes: tuple  # (count, rows, columns) of each stack, in order
    size: int      # of all matrices
    width: int     # divides where each begins and its length


def muon_step_cuda(theta, g, m, matrices, lr, momentum, nesterov, iterations, weight_decay, where=True):
    require_alike(muon_step, theta=theta, g=g, m=m)
    require_inside(matrices, theta)
    arrays = (theta, g, m)
    flat = all(array.dtype == "float32" and array.flags.c_contiguous for array in arrays)
    if where is False or not flat or not matrices:
        options = lr, momentum, nesterov, iterations, weight_decay, where
        return muon_step.reference(*arrays, matrices, *options)
    where = None if where is True else where
    xp = array_module(theta)
    plan = plan_of(xp, device_of(theta), tuple(matrices))
    x, y, square = (xp.empty(plan.size, "float32") for _ in range(3))
    sums = xp.empty(plan.grid[::-1], "float32")
    pack = pack_of(plan.width, *arrays)
    beta, one_minus_beta = float(momentum), float(1 - momentum)
    weights_of_direction = (one_minus_beta, beta) if nesterov else (0.0, 1.0)  # of the gradient and its mean

    def launch(name, *arguments):
        SOURCE.launch(name, plan.grid, BLOCK, *arguments, PACK=pack)

    launch("muon_momentum", g, m, sums, plan.table, where, beta, one_minus_beta, *weights_of_direction)
    launch("muon_direction", g, m, sums, x, plan.table, where, *weights_of_direction, EPS)
    squares, current, following = (views(array, plan.shapes) for array in (square, x, y))
    for _ in range(iterations):
        # The memory of `following` is free until the last product of the iteration.
        for (stack, _), (_, gram), (_, squared) in zip(current, following, squares):
            multiply_batches(stack, stack.mT, out=gram)
            multiply_batches(gram, gram, out=squared)
        launch("muon_polynomial", y, square, plan.table, where, *NEWTON_SCHULZ)
        for (stack, _), (result, _), (_, polynomial) in zip(current, following, squares):
            multiply_batches(polynomial, stack, out=result)
        x, y, current, following = y, x, following, current
    launch("muon_update", theta, x, plan.table, where, float(lr), float(lr * weight_decay))


muon_step.register(("cupy", "float32"), muon_step_cuda)


def views(flat, shapes):
    """For each shape in an array of directions, its matrices with the shorter side first, and room for as many squares
    of that side: their own memory."""
    found, place = [], 0
    for count, rows, columns in shapes:
        side, size = min(rows, columns), rows * columns
        stack = flat[place : place + count * size].reshape(count, size)
        squares = stack[:, : side * side].reshape(count, side, side)
        stack = stack.reshape(count, rows, columns)
        found.append((stack.mT if rows > columns else stack, squares))
        place += count * size
    return found


@lru_cache(maxsize=16)  # where the same matrices recur, as in every step, nothing is uploaded
def plan_of(xp, device, matrices):
    stacks = by_shape(matrices)
    entries, size, width = [], 0, 0
    for matrix in (matrix for alike in stacks for matrix in alike):
        side, rate = min(matrix.rows, matrix.columns), matrix.lr_scale
        entries.append((matrix.start, size, matrix.size, side, rate * matrix.stretch, rate * matrix.decay))
        size += matrix.size
        width = gcd(width, matrix.start, matrix.size)
    grid = blocks(max(entry[2] for entry in entries), CHUNK), len(entries)
    shapes = tuple((len(alike), alike[0].rows, alike[0].columns) for alike in stacks)
    return Plan(xp.asarray(np.array(entries, TYPE).view("int64")), grid, shapes, size, width)
