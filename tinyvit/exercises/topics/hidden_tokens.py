"""Tokens put back in their places, with a mask token in the gaps, and the loss of what was hidden."""

import numpy as np

from tinyvit.exercises.exercise import exercise, require_fit


def inputs(random, B, D, N, n):
    require_fit(n <= N)
    x, token = random.standard_normal((B, n, D)), random.standard_normal((1, 1, D))
    return x, token, random.random((B, N)).argsort(1)[:, :n], N


def loss_inputs(random, B, N, D, n):
    require_fit(n <= N)
    fewer = np.arange(B)[:, None] % 2 * (n < N)                                # in every second sample
    hidden = (random.random((B, N)).argsort(1) < n - fewer) * 1.0
    return *random.standard_normal((2, B, N, D)), hidden


@exercise(inputs, "B D N=7,8 n=5,3,N,0")
def place_tokens(x, token, index, count):
    """Each sample's tokens at the places `index` says, among `count` of them, and the mask token everywhere else.

      x      (B, n, D)
      token  (1, 1, D), the mask token
      index  (B, n), places from 0 to count − 1
      count  N

    returns
      y  (B, N, D)
    """
    filled = np.repeat(np.repeat(token, count, 1), len(x), 0)
    filled[np.arange(len(x))[:, None], index] = x
    return filled


@exercise(forward=place_tokens)
def place_tokens_backward(dy, index):
    """The gradients of tokens x (B, n, D) that were put at the places `index` says, and of the mask token, which is in
    all other places.

      dy     (B, N, D), the gradient of the result
      index  (B, n)

    returns
      dx      (B, n, D)
      dtoken  (1, 1, D)
    """
    rows = np.arange(len(dy))[:, None]
    others = dy.copy()
    others[rows, index] = 0
    return dy[rows, index], others.sum((0, 1), keepdims=True)


@exercise(loss_inputs, "B N=7,8 D=10,9 n=5,3,N", "patches")
def mae_loss(pixels, patches, hidden):
    """The loss of a masked autoencoder on normalised pixels (He et al. 2022, section 3): the mean over the hidden
    patches of the mean of (pixel − target)². The targets of a patch are its own numbers, less their mean, divided by
    √(σ² + 10⁻⁶), where σ² is the sum of squared differences from the mean, divided by D − 1.

      pixels   (B, N, D), the decoder's
      patches  (B, N, D), of the image
      hidden   (B, N), 1 for a hidden patch, else 0

    returns
      loss  a number
    """
    centred = patches - patches.mean(-1, keepdims=True)
    squares = (centred * centred).sum(-1, keepdims=True)
    variance = squares / (patches.shape[-1] - 1)
    targets = centred / np.sqrt(variance + 1e-6)
    errors = ((pixels - targets) ** 2).mean(-1)                                # (B, N)
    return (errors * hidden).sum() / hidden.sum()
