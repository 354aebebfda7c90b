"""Noise put into images, a step back, and what a condition does to tokens."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal


def noise_inputs(random, B, C, H, W):
    images = random.standard_normal((2, B, C, H, W))
    return *images, random.uniform(0.1, 0.9, B)


def step_inputs(random, B, C, H, W):
    level, previous = (float(share) for share in np.sort(random.uniform(0.1, 0.9, 2)))
    return *random.standard_normal((2, B, C, H, W)), level, previous


def labels_inputs(random, B, K, D):
    labels = random.integers(0, K - 1, B)  # the last class never occurs
    labels[-2:] = 0                        # and one occurs twice
    return random.standard_normal((B, D)), labels, K



@exercise(noise_inputs, "B C H W")
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


@exercise(step_inputs, "B C H W level:1 previous:1")
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


@exercise(normal("BND", "BND", "BD"), "B N D")
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


@exercise(normal("BND", "BND", "BD"), "B N D")
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


@exercise(labels_inputs, "K B D")
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
