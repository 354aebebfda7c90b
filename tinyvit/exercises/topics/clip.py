"""Texts as tokens, images and texts in one space, and classes by their prompts."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal
from tinyvit.exercises.topics.distillation import log_softmax
from tinyvit.exercises.topics.softmax import softmax


def unit(random, *shape):
    x = random.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def embedding_inputs(random, B, T, V, D):
    index = random.integers(0, V - 1, (B, T))  # the last word never stands in a text
    index[0, :2] = 1                           # and one stands twice in one
    return random.standard_normal((B, T, D)), index, V


def similarity_inputs(random, B, K, D):
    return random.standard_normal((B, K)), unit(random, B, D), unit(random, K, D), float(random.uniform(0.5, 1))


def pairs_inputs(random, N):
    logits = 2 * random.standard_normal((N, N))
    return (logits,)


def zero_shot_inputs(random, B, K, P, D):
    return unit(random, B, D), unit(random, K, P, D)


@exercise(embedding_inputs, "B T V D")
def embedding_backward(dy, index, count):
    """The gradient of a table (V, D) of which the row index[b, t] was taken for word t of text b.

      dy     (B, T, D), the gradient of the rows that were taken
      index  (B, T), ints
      count  V

    returns
      dweight  (V, D)
    """
    rows = np.zeros((count, dy.shape[-1]))
    np.add.at(rows, index, dy)
    return rows


@exercise(similarity_inputs, "B K D scale:0")
def similarity_backward(dy, images, texts, scale):
    """The gradients of logits = exp(s) · images textsᵀ with respect to the images, the texts and the number s.

      dy      (B, K), the gradient of the logits
      images  (B, D)
      texts   (K, D)
      scale   s

    returns
      dimages  (B, D)
      dtexts   (K, D)
      dscale   a number
    """
    logits = np.exp(scale) * images @ texts.T
    return np.exp(scale) * dy @ texts, np.exp(scale) * dy.T @ images, (dy * logits).sum()


@exercise(normal("BHNd", "BHNd", "BHNe"), "B H N d e")
def causal_attention(q, k, v):
    """Attention of a text: token i averages the values of tokens 0 to i alone, by the softmax of its scores with them,
    scaled by 1/√d.

      q  (B, H, N, d)
      k  (B, H, N, d)
      v  (B, H, N, e)

    returns
      heads  (B, H, N, e)
    """
    scores = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    place = np.arange(q.shape[2])
    seen = np.where(place[:, None] >= place, scores, -np.inf)
    return softmax(seen) @ v


@exercise(pairs_inputs, "N")
def contrastive_loss(logits):
    """The mean of two cross-entropies, of each row and of each column of the logits, both with the diagonal as the
    right answer: image i belongs to text i (Radford et al. 2021, figure 3).

      logits  (B, B), an image a row and a text a column

    returns
      loss  a number
    """
    of_rows = -np.diag(log_softmax(logits)).mean()
    of_columns = -np.diag(log_softmax(logits.T)).mean()
    return (of_rows + of_columns) / 2


@exercise(pairs_inputs, "N")
def contrastive_loss_backward(logits):
    """The gradient of the logits (B, B) for the mean of two cross-entropies: of each row, and of each column, both
    with the diagonal as the right answer.

      logits  (B, B)

    returns
      dlogits  (B, B)
    """
    rows = np.exp(logits - logits.max(1, keepdims=True))
    columns = np.exp(logits - logits.max(0, keepdims=True))
    p, q = rows / rows.sum(1, keepdims=True), columns / columns.sum(0, keepdims=True)
    return (p + q - 2 * np.eye(len(logits))) / (2 * len(logits))


@exercise(zero_shot_inputs, "B K P D", "")
def zero_shot(images, prompts):
    """The cosine of every image with every class, which is the direction of the mean of its P prompts' vectors.

      images   (B, D), each of length 1
      prompts  (K, P, D), each of length 1

    returns
      cosines  (B, K)
    """
    classes = prompts.mean(1)
    classes = classes / np.sqrt((classes * classes).sum(1, keepdims=True))
    return images @ classes.T
