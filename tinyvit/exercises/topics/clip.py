"""Words into vectors, images and texts in one space, and classes by their prompts."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def unit(random, *shape):
    x = random.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def embedding_inputs(random, B, T, V, D):
    index = random.integers(0, V - 1, (B, T))  # the last word never stands in a text
    index[0, :2] = 1                           # and one stands twice in one
    return random.standard_normal((B, T, D)), index, V


def similarity_inputs(random, B, K, D):
    return random.standard_normal((B, K)), unit(random, B, D), unit(random, K, D), float(random.uniform(0.5, 1))


def zero_shot_inputs(random, B, K, P, D):
    return unit(random, B, D), unit(random, K, P, D)


@exercise(embedding_inputs, ({"B": 2, "T": 3, "V": 5, "D": 4}, {"B": 1, "T": 4, "V": 6, "D": 2}))
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


lesson(embedding_backward, """
Package: tinyvit.functional.embedding.embedding, tinyvit.functional.embedding.embedding_backward

Hints:
  At which places of the texts was vector v of the table taken?
  All places where word v stands, in any text; their gradients add up.
  dweight[index[b, t]] += dy[b, t] for all b and t (NumPy's add.at); words that stand nowhere get zero.

Mistakes:
  the last of equal words wins
    A word that stands in several places gets the sum of all of them; dweight[index] += dy adds the last one only.
    `np.add.at(rows, index, dy)` → `rows[index] = dy`
  a mean over the places of a word
    The gradients of all places of a word add up: a sum, no mean.
    `return rows` → `return rows / np.maximum(1, np.bincount(index.ravel(), minlength=count))[:, None]`
  the first text alone
    Words of all texts share the table: sum over the batch, too.
    `index, dy)` → `index[0], dy[0])`
  a mean over the texts
    Each place adds its gradient to its word's row; nothing is divided by B.
    `return rows` → `return rows / len(dy)`
""")


@exercise(similarity_inputs, ({"B": 2, "K": 3, "D": 4}, {"B": 1, "K": 2, "D": 3}))
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


lesson(similarity_backward, """
Package: tinyvit.functional.contrastive.similarity, tinyvit.functional.contrastive.similarity_backward

Hints:
  What are the gradients of a product of two matrices? And of exp(s)?
  dy and exp(s) come before the products; what s gets is one number for all logits.
  dimages = exp(s) dy texts, dtexts = exp(s) dyᵀ images, dscale = Σ dy · logits.

Mistakes:
  the factor exp(s) is missing
    The cosines are multiplied by exp(s), and so are their gradients.
    `np.exp(scale) * dy` → `dy`
  multiplied by s
    The cosines are multiplied by exp(s), not by s.
    `np.exp(scale) * dy` → `scale * dy`
  dscale without exp(s)
    d exp(s)/ds is exp(s): dscale is the sum of dy times the logits.
    `np.exp(scale) * images` → `images`
  dscale is a mean
    One number s was used for all B·K logits: their gradients add up.
    `logits).sum` → `logits).mean`
""")


@exercise(lambda random, N: (2 * random.standard_normal((N, N)),), ({"N": 4}, {"N": 3}))
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


lesson(contrastive_loss_backward, """
Package: tinyvit.functional.contrastive.contrastive_loss, tinyvit.functional.contrastive.contrastive_loss_backward

Hints:
  What is the gradient of one cross-entropy with a label? What is the label of row i, what of column j?
  Belief less target for the rows, with a softmax along each row; the same for the columns; then the mean.
  dlogits = (p + q − 2 I) / (2B), p the softmax of the rows and q that of the columns.

Mistakes:
  rows alone
    Each text is to find its image, too: add the cross-entropy of the columns.
    `p + q - 2 *` → `p -`
    `(2 * len` → `(len`
  columns alone
    Each image is to find its text, too: add the cross-entropy of the rows.
    `p + q - 2 *` → `q -`
    `(2 * len` → `(len`
  a sum of both, not their mean
    The loss is half of the sum of both cross-entropies.
    `(2 * len` → `(len`
  a sum over the pairs, not a mean
    Both cross-entropies are means over B pairs.
    `(2 * len(logits))` → `2`
  the target is taken off once
    Each of the two cross-entropies has the target 1 on the diagonal.
    `2 * np.eye` → `np.eye`
  the columns' softmax is turned
    softmax of the columns has to be turned back: entry (i, j) belongs to text j's belief in image i.
    `+ q` → `+ q.T`
  a sign
    The loss falls where a pair comes nearer: belief less target.
    `return (` → `return -(`
""")


@exercise(zero_shot_inputs, ({"B": 2, "K": 4, "P": 3, "D": 5}, {"B": 1, "K": 2, "P": 4, "D": 6}))
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


lesson(zero_shot, """
Package: tinyvit.functional.dino.l2_normalise, tinyvit.functional.contrastive.similarity

Hints:
  How long is the mean of several vectors of length 1?
  Take the mean over the prompts, bring it to length 1, then one matrix product with the images.
  images @ (m / ‖m‖)ᵀ with m[k] the mean over p of prompts[k, p].

Mistakes:
  the mean isn't of length 1
    The mean of vectors of length 1 is shorter: divide it by ‖mean‖.
    ` / np.sqrt((classes * classes).sum(1, keepdims=True))` → ``
  the best prompt of each class
    A class is the mean of its prompts, not the best of them.
    `return np.einsum('bd,kpd->bkp', images, prompts).max(-1)`
  the first prompt alone
    The mean is over all P prompts of a class.
    `prompts.mean(1)` → `prompts[:, 0]`
  divided by the squared length
    For a vector of length 1 the mean is divided by ‖mean‖, the root of the sum of its squares.
    `np.sqrt` → ``
""")
