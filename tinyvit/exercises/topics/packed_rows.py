"""Rows into which images of several sizes are packed: rotary positions, attention within bounds, tokens reordered."""

import numpy as np

from tinyvit.exercises.exercise import exercise, require_fit
from tinyvit.exercises.topics.softmax import softmax, softmax_backward


def rope_inputs(random, B, H, N, d):
    positions = random.integers(0, 9, (N, 2))
    x = random.standard_normal((B, H, N, d))
    theta = round(float(random.uniform(20, 200)), 1)
    return x, positions, theta


def row_inputs(random, B, H, N, d, e, count):
    require_fit(count <= N)
    places = np.arange(1, N)
    inner = sorted(random.choice(places, count - 1, replace=False).tolist())
    x = random.standard_normal((B, H, N, 2 * d + e))
    return *np.split(x, (d, 2 * d), -1), (0, *inner, N)


def order_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), random.permutation(N)


@exercise(rope_inputs, "B H N d=8,12,4")
def rope_halves(x, positions, theta):
    """Turn pairs of numbers of every token, (a, b) to (a cos φ − b sin φ, a sin φ + b cos φ). Number i of the first
    half is paired with number i of the second. With ωₖ = θ^(−k/(d/4)), the angles φ are row · ωₖ for the first d/4
    pairs and column · ωₖ for the rest.

      x          (B, H, N, d), d a multiple of 4
      positions  (N, 2), row and column of each token
      theta      θ, a number

    returns
      y  (B, H, N, d)
    """
    quarter = x.shape[-1] // 4
    frequencies = theta ** -(np.arange(quarter) / quarter)
    by_row = positions[:, :1] * frequencies
    by_column = positions[:, 1:] * frequencies
    angles = np.concatenate([by_row, by_column], -1)                           # (N, d/2)
    cos = np.cos(angles)
    sin = np.sin(angles)
    a = x[..., : 2 * quarter]
    b = x[..., 2 * quarter :]
    first = a * cos - b * sin
    second = a * sin + b * cos
    return np.concatenate([first, second], -1)


@exercise(forward=rope_halves)
def rope_halves_backward(dy, positions, theta):
    """The gradient of x, whose pairs rope_halves turned.

      dy         (B, H, N, d), the gradient of the result, d a multiple of 4
      positions  (N, 2), row and column of each token
      theta      θ, a number

    returns
      dx  (B, H, N, d)
    """
    return rope_halves(dy, -positions, theta)


@exercise(row_inputs, "B H N=11,13 d e count=4,3,1")
def packed_attention(q, k, v, bounds):
    """Scaled dot-product attention, scale 1/√d, in which a token sees those of its own image alone: the images of a row
    follow each other, and image i has the tokens from bounds[i] up to bounds[i + 1] without that one.

      q       (B, H, N, d)
      k       (B, H, N, d)
      v       (B, H, N, e)
      bounds  (0, …, N), ascending

    returns
      heads  (B, H, N, e)
    """
    image = np.searchsorted(bounds, np.arange(q.shape[-2]), "right")           # (N,)  the number of each token's image
    same = image[:, None] == image
    products = q @ k.mT * q.shape[-1] ** -0.5
    scores = np.where(same, products, -np.inf)
    probs = softmax(scores)
    return probs @ v


@exercise(forward=packed_attention)
def packed_attention_backward(dy, q, k, v, bounds):
    """The gradients of packed_attention.

      dy      (B, H, N, e), the gradient of the heads
      q       (B, H, N, d)
      k       (B, H, N, d)
      v       (B, H, N, e)
      bounds  (0, …, N), ascending

    returns
      dq  (B, H, N, d)
      dk  (B, H, N, d)
      dv  (B, H, N, e)
    """
    scale = q.shape[-1] ** -0.5
    image = np.searchsorted(bounds, np.arange(q.shape[-2]), "right")           # (N,)
    same = image[:, None] == image
    products = q @ k.mT * scale
    scores = np.where(same, products, -np.inf)
    probs = softmax(scores)
    dv = probs.mT @ dy
    dprobs = dy @ v.mT
    dscores = softmax_backward(dprobs, scores) * scale
    dq = dscores @ k
    dk = dscores.mT @ q
    return dq, dk, dv


@exercise(order_inputs, "B N=7,8,1 D")
def reorder_tokens(x, order):
    """The tokens in another order, such as window by window: place i of the result gets token number order[i].

      x      (B, N, D)
      order  (N,), each number from 0 to N − 1 once

    returns
      y  (B, N, D)
    """
    return x[:, order]


@exercise(forward=reorder_tokens)
def reorder_tokens_backward(dy, order):
    """The gradient of tokens that reorder_tokens put in another order: back in the first one.

      dy     (B, N, D), the gradient of the result
      order  (N,), each number from 0 to N − 1 once

    returns
      dx  (B, N, D)
    """
    return dy[:, np.argsort(order)]
