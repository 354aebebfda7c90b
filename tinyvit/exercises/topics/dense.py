"""The operations of models that give each pixel a class."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise, normal, visible_eps
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.softmax import softmax


@exercise(normal("BCHW", "COPQ", "O"), "B C H W O P Q", equal="B=3 C=3 H=3 W=3 O=3 P=3 Q=3")
def conv_transpose2d(x, weight, bias):
    """Make a square of P×Q pixels of each place of feature maps: y[b, o, P i + u, Q j + v] = bias[o] + Σ x[b, c, i, j]
    · weight[c, o, u, v] over c.

      x       (B, C, H, W)
      weight  (C, O, P, Q)
      bias    (O,)

    returns
      y  (B, O, P H, Q W)
    """
    B, _, H, W = x.shape
    _, filters, P, Q = weight.shape
    squares = np.einsum("bcij,couv->boiujv", x, weight)
    shape = B, filters, H * P, W * Q
    y = squares.reshape(shape)
    return y + bias[:, None, None]


@exercise(forward=conv_transpose2d)
def conv_transpose2d_backward(dy, x, weight):
    """The gradients of a transposed convolution whose squares don't overlap: y[b, o, P i + u, Q j + v] = bias[o] + Σ
    x[b, c, i, j] · weight[c, o, u, v] over c.

      dy      (B, O, P H, Q W), the gradient of y
      x       (B, C, H, W)
      weight  (C, O, P, Q)

    returns
      dx       (B, C, H, W)
      dweight  (C, O, P, Q)
      dbias    (O,)
    """
    B, _, H, W = x.shape
    _, filters, P, Q = weight.shape
    dsquares = dy.reshape(B, filters, H, P, W, Q)
    dx = np.einsum("boiujv,couv->bcij", dsquares, weight)
    dweight = np.einsum("boiujv,bcij->couv", dsquares, x)
    dbias = dy.sum((0, 2, 3))
    return dx, dweight, dbias


def maps(random, B, C, H, W):
    noise = random.standard_normal((B, C, H, W))
    x = 0.5 + 2 * noise
    weight = 1 + random.standard_normal(C)
    bias = random.standard_normal(C)
    return x, weight, bias, visible_eps(random)


@exercise(maps, "B C H W")
def layernorm2d(x, weight, bias, eps):
    """A layer norm of feature maps: at each place the C channels get mean 0 and variance 1 (ε is added to the
    variance), and each channel is then scaled by its weight and shifted by its bias.

      x       (B, C, H, W)
      weight  (C,)
      bias    (C,)
      eps     ε, a number

    returns
      y  (B, C, H, W)
    """
    rows = x.transpose(0, 2, 3, 1)
    y = layernorm(rows, weight, bias, eps)
    return y.transpose(0, 3, 1, 2)


@exercise(forward=layernorm2d)
def layernorm2d_backward(dy, x, weight, eps):
    """The gradients of a layer norm of feature maps, over the C channels of each place.

      dy      (B, C, H, W), the gradient of y
      x       (B, C, H, W)
      weight  (C,)
      eps     ε, a number

    returns
      dx       (B, C, H, W)
      dweight  (C,)
      dbias    (C,)
    """
    rows = x.transpose(0, 2, 3, 1)
    drows = dy.transpose(0, 2, 3, 1)
    dx, dweight, dbias = layernorm_backward(drows, rows, weight, eps)
    dx = dx.transpose(0, 3, 1, 2)
    return dx, dweight, dbias


def maps_and_size(random, B, C, H, W, h, w):
    x = random.standard_normal((B, C, H, W))
    return x, (h, w)


def bilinear(old, new):
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    places = np.clip(centres, 0, old - 1)
    cells = np.arange(old)
    distances = abs(places[:, None] - cells)
    return np.maximum(0, 1 - distances)


@exercise(maps_and_size, "B C H W h w")
def resize_bilinear(x, size):
    """Feature maps in another size, linear between the centres of the pixels and constant beyond the outermost ones:
    Y = A X Bᵀ. The centre of new pixel j of n lies at (j + ½) m / n − ½ among the m old ones, counted from 0.

      x     (B, C, H, W)
      size  (H', W')

    returns
      y  (B, C, H', W')
    """
    down = bilinear(x.shape[2], size[0])
    across = bilinear(x.shape[3], size[1])
    return down @ x @ across.T


@exercise(forward=resize_bilinear)
def resize_bilinear_backward(dy, x):
    """The gradient of `resize_bilinear` with respect to the maps x.

      dy  (B, C, H', W'), the gradient of y
      x   (B, C, H, W), of which only the shape matters

    returns
      dx  (B, C, H, W)
    """
    H, W = x.shape[2:]
    down = bilinear(H, dy.shape[2])
    across = bilinear(W, dy.shape[3])
    return down.T @ dy @ across


def labelled(random, B, K, H, W, ignored=0.3):
    ignore = int(random.integers(K, 256))
    labels = random.integers(0, K, (B, H, W))
    drawn = random.random(labels.shape)
    labels[drawn < ignored] = ignore
    logits = random.standard_normal((B, K, H, W))
    return logits, labels, ignore


NONE = Case(
    "all pixels ignored",
    lambda random: labelled(random, 3, 4, 5, 7, 1.0),
    hint=("0/0?", "No pixel counts here, so the mean has no terms: divide by at least 1."),
)


@exercise(labelled, "B K H W", extra=(NONE,))
def pixel_cross_entropy(logits, labels, ignore):
    """The mean of −log softmax(logits)[label] over the pixels whose label isn't `ignore`, of all images together; 0 if
    there are none.

      logits  (B, K, H, W)
      labels  (B, H, W), ints from 0 to K − 1, or ignore
      ignore  an int, at least K

    returns
      loss  a number
    """
    counted = labels != ignore
    largest = logits.max(1, keepdims=True)
    shifted = logits - largest
    total = np.exp(shifted).sum(1, keepdims=True)
    log_probs = shifted - np.log(total)
    K = logits.shape[1]
    classes = np.arange(K)
    targets = 1.0 * (labels[:, None] == classes[:, None, None])
    count = max(1, counted.sum())
    return -(targets * log_probs).sum() / count


@exercise(forward=pixel_cross_entropy)
def pixel_cross_entropy_backward(dy, logits, labels, ignore):
    """The gradient of `pixel_cross_entropy`; zeros where a pixel is ignored.

      dy      a number, the gradient of the loss
      logits  (B, K, H, W)
      labels  (B, H, W), ints from 0 to K − 1, or ignore
      ignore  an int, at least K

    returns
      dlogits  (B, K, H, W)
    """
    counted = labels != ignore
    K = logits.shape[1]
    classes = np.arange(K)
    targets = 1.0 * (labels[:, None] == classes[:, None, None])
    rows = logits.transpose(0, 2, 3, 1)
    probs = softmax(rows)
    probs = probs.transpose(0, 3, 1, 2)
    excess = (probs - targets) * counted[:, None]
    count = max(1, counted.sum())
    return dy * excess / count
