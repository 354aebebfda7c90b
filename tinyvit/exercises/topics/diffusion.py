"""Noise put into images, a step back, and what a condition does to tokens."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def noise_inputs(random, B, C, H, W):
    images = random.standard_normal((2, B, C, H, W))
    return *images, random.uniform(0.1, 0.9, B)


def step_inputs(random, B, C, H, W):
    level, previous = (float(share) for share in np.sort(random.uniform(0.1, 0.9, 2)))
    return *random.standard_normal((2, B, C, H, W)), level, previous


def modulate_inputs(random, B, N, D):
    return *random.standard_normal((2, B, N, D)), random.standard_normal((B, D))


def labels_inputs(random, B, K, D):
    return random.standard_normal((B, D)), random.integers(0, K, B), K


IMAGES = ({"B": 2, "C": 1, "H": 3, "W": 2}, {"B": 3, "C": 2, "H": 2, "W": 2})
TOKENS = ({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5})


@exercise(noise_inputs, IMAGES)
def add_noise(x, noise, level):
    """Images with noise in them: √ᾱ of the image and √(1 − ᾱ) of the noise, with a level ᾱ for each image.

      x      (B, C, H, W)
      noise  (B, C, H, W)
      level  (B,), ᾱ from 0 to 1

    returns
      y  (B, C, H, W)
    """
    level = level.reshape(-1, 1, 1, 1)
    return np.sqrt(level) * x + np.sqrt(1 - level) * noise


lesson(add_noise, """
Package: tinyvit.functional.diffusion.add_noise, tinyvit.functional.diffusion.add_noise_backward

Hints:
  What should the variance of the result be, if image and noise have the variance 1?
  The shares of the variance, ᾱ and 1 − ᾱ, add up to 1. Which factors give them?
  √ᾱ x + √(1 − ᾱ) ε; the level (B,) needs three more axes: level[:, None, None, None].

Mistakes:
  the level without its root
    ᾱ is a share of the variance; what is multiplied is its root.
    `np.sqrt` → ``
  the noise as it is
    The variance must stay 1: the noise has what the image lacks, 1 − ᾱ.
    `np.sqrt(1 - level) * ` → ``
  image and noise exchanged
    ᾱ is what is left of the image.
    `level = 1 - level`
  1 − √ᾱ in place of √(1 − ᾱ)
    The variances add up to 1, ᾱ and 1 − ᾱ; the root comes last.
    `np.sqrt(1 - level)` → `(1 - np.sqrt(level))`
""")


@exercise(step_inputs, IMAGES)
def ddim_step(x, noise, level, previous):
    """A step back of DDIM: take the noise out of x, at the level ᾱ, and put the same noise into the image that is
    left, at the level ᾱ′ of the step before.

      x         (B, C, H, W)
      noise     (B, C, H, W), what the model has found
      level     ᾱ
      previous  ᾱ′

    returns
      y  (B, C, H, W)
    """
    image = (x - np.sqrt(1 - level) * noise) / np.sqrt(level)
    return np.sqrt(previous) * image + np.sqrt(1 - previous) * noise


lesson(ddim_step, """
Package: tinyvit.functional.diffusion.step_back, tinyvit.functional.diffusion.denoise

Hints:
  In x there is √ᾱ of an image and √(1 − ᾱ) of the noise. Which image is left if the noise is known?
  Then do what add_noise does, with the same noise and the level ᾱ′.
  image = (x − √(1 − ᾱ) ε) / √ᾱ, and √ᾱ′ image + √(1 − ᾱ′) ε.

Mistakes:
  the image is returned without noise
    At the level ᾱ′ there is still noise in it: √(1 − ᾱ′) of it.
    `np.sqrt(previous) * image + np.sqrt(1 - previous) * noise` → `image`
  not divided by √ᾱ
    What is left when the noise is taken out is √ᾱ times the image.
    ` / np.sqrt(level)` → ``
  the levels exchanged
    The noise is taken out at the level ᾱ, and put in again at ᾱ′.
    `level, previous = previous, level`
  the noise of the level ᾱ stays
    At the level ᾱ′ the noise has the factor √(1 − ᾱ′).
    `1 - previous` → `1 - level`
""")


@exercise(modulate_inputs, TOKENS)
def modulate_backward(dy, x, gain):
    """The gradients of y = x (1 + gain) + offset, where offset and gain (B, D) are the same for all tokens of a
    sample.

      dy    (B, N, D), the gradient of y
      x     (B, N, D)
      gain  (B, D)

    returns
      dx       (B, N, D)
      doffset  (B, D)
      dgain    (B, D)
    """
    return dy * (1 + gain[:, None]), dy.sum(1), (dy * x).sum(1)


lesson(modulate_backward, """
Package: tinyvit.functional.modulation.modulate, tinyvit.functional.modulation.modulate_backward

Hints:
  How many tokens use one number of the gain?
  dx is a product; doffset and dgain are sums over the tokens of a sample.
  dx = dy (1 + gain[:, None]), doffset = Σ dy and dgain = Σ dy x over axis 1.

Mistakes:
  the 1 is missing
    x is multiplied by 1 + gain: with the gain 0 it stays as it is.
    `1 + ` → ``
  doffset is a mean over the tokens
    All tokens have the same offset: their gradients add up.
    `dy.sum` → `dy.mean`
  dgain without x
    The gain multiplies x.
    `(dy * x)` → `dy`
  dgain is a mean over the tokens
    All tokens have the same gain: their gradients add up.
    `x).sum` → `x).mean`
""")


@exercise(modulate_inputs, TOKENS)
def add_gated_backward(dy, branch, gate):
    """The gradients of y = x + gate · branch, where the gate (B, D) is the same for all tokens of a sample.

      dy      (B, N, D), the gradient of y
      branch  (B, N, D)
      gate    (B, D)

    returns
      dx       (B, N, D)
      dbranch  (B, N, D)
      dgate    (B, D)
    """
    return dy, dy * gate[:, None], (dy * branch).sum(1)


lesson(add_gated_backward, """
Package: tinyvit.functional.modulation.add_gated, tinyvit.functional.modulation.add_gated_backward

Hints:
  Which of the three is multiplied with nothing?
  dx is dy; the branch and the gate are factors of each other.
  dbranch = gate[:, None] · dy, dgate = Σ dy · branch over axis 1.

Mistakes:
  the gate on both ways
    x goes past the branch, without a gate.
    `return dy,` → `return dy * gate[:, None],`
  the branch without its gate
    The branch is multiplied by the gate, and so is its gradient.
    `, dy * gate[:, None]` → `, dy`
  dgate is a mean over the tokens
    All tokens of a sample have the same gate: their gradients add up.
    `sum` → `mean`
  dgate without the branch
    The gate multiplies the branch.
    `(dy * branch)` → `dy`
""")


@exercise(labels_inputs, ({"B": 6, "K": 3, "D": 2}, {"B": 7, "K": 4, "D": 3}))
def embed_labels_backward(dy, labels, count):
    """The gradient of a table (K, D) out of which sample b took row labels[b].

      dy      (B, D), the gradient of the rows that were taken
      labels  (B,), ints from 0 to K − 1
      count   K

    returns
      dweight  (K, D)
    """
    dweight = np.zeros((count, dy.shape[1]))
    for b, label in enumerate(labels):
        dweight[label] += dy[b]
    return dweight


lesson(embed_labels_backward, """
Package: tinyvit.functional.conditions.embed_labels, tinyvit.functional.conditions.embed_labels_backward

Hints:
  What is the gradient of a row that three samples have used? And of one that none has?
  Add each sample's gradient to the row of its label.
  Row k gets Σ dy[b] over all b with labels[b] = k (NumPy's add.at); a row that nobody used stays 0.

Mistakes:
  the last sample of a class wins
    Samples of one class took the same row: their gradients add up.
    `+=` → `=`
  a mean over the samples of a class
    Samples of one class took the same row: a sum, not a mean.
    `+= dy[b]` → `+= dy[b] / (labels == label).sum()`
  the first sample of a class wins
    Samples of one class took the same row: their gradients add up.
    `dy, labels = dy[::-1], labels[::-1]`
    `+=` → `=`
  a mean over the batch
    Each sample adds its gradient to its row; nothing is divided by B.
    `+= dy[b]` → `+= dy[b] / len(dy)`
""")
