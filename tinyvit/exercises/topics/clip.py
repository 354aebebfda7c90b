"""Words into vectors, images and texts in one space, and classes by their prompts."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def unit(random, *shape):
    return F.l2_normalise(random.standard_normal(shape))[0]


def embedding_inputs(random, B, T, V, D):
    index = random.integers(0, V - 1, (B, T))  # the last word never stands in a text
    index[0, :2] = 1                           # and one stands twice in one
    return random.standard_normal((B, T, D)), index, V


def similarity_inputs(random, B, K, D):
    return random.standard_normal((B, K)), unit(random, B, D), unit(random, K, D), float(random.uniform(0.5, 1))


def zero_shot_inputs(random, B, K, P, D):
    return unit(random, B, D), unit(random, K, P, D)


EMBEDDING = Exercise(
    "embedding_backward",
    "The gradient of a table (V, D) of which the row index[b, t] was taken for word t of text b.",
    {"dy": "(B, T, D), the gradient of the rows that were taken", "index": "(B, T), ints", "count": "V"},
    {"dweight": "(V, D)"},
    right=lambda dy, index, count: F.embedding_backward(
        dy, F.embedding(np.zeros((count, dy.shape[-1])), index)[1]
    ),
    shown=(F.embedding, F.embedding_backward),
    inputs=embedding_inputs,
    sizes=({"B": 2, "T": 3, "V": 5, "D": 4}, {"B": 1, "T": 4, "V": 6, "D": 2}),
)
SIMILARITY = Exercise(
    "similarity_backward",
    "The gradients of logits = exp(s) · images textsᵀ with respect to the images, the texts and the number s.",
    {"dy": "(B, K), the gradient of the logits", "images": "(B, D)", "texts": "(K, D)", "scale": "s"},
    {"dimages": "(B, D)", "dtexts": "(K, D)", "dscale": "a number"},
    right=lambda dy, images, texts, scale: F.similarity_backward(
        dy, F.similarity(images, texts, np.array(scale))[1]
    ),
    shown=(F.similarity, F.similarity_backward),
    inputs=similarity_inputs,
    sizes=({"B": 2, "K": 3, "D": 4}, {"B": 1, "K": 2, "D": 3}),
)
LOSS = Exercise(
    "contrastive_loss_backward",
    "The gradient of the logits (B, B) for the mean of two cross-entropies: of each row, and of each column, both with "
    "the diagonal as the right answer.",
    {"logits": "(B, B)"},
    {"dlogits": "(B, B)"},
    right=lambda logits: F.contrastive_loss_backward(1.0, F.contrastive_loss(logits)[1]),
    shown=(F.contrastive_loss, F.contrastive_loss_backward),
    inputs=lambda random, N: (2 * random.standard_normal((N, N)),),
    sizes=({"N": 4}, {"N": 3}),
)
ZERO_SHOT = Exercise(
    "zero_shot",
    "The cosine of every image with every class, which is the direction of the mean of its P prompts' vectors.",
    {"images": "(B, D), each of length 1", "prompts": "(K, P, D), each of length 1"},
    {"cosines": "(B, K)"},
    right=lambda images, prompts: images @ F.l2_normalise(prompts.mean(1))[0].T,
    shown=(F.l2_normalise, F.similarity),
    inputs=zero_shot_inputs,
    sizes=({"B": 2, "K": 4, "P": 3, "D": 5}, {"B": 1, "K": 2, "P": 4, "D": 6}),
)
EXERCISES = EMBEDDING, SIMILARITY, LOSS, ZERO_SHOT

EMBEDDING.edit("the last of equal words wins", "A word that stands in several places gets the sum of all of them; "
    "dweight[index] += dy adds the last one only.", ("np.add.at(rows, index, dy)", "rows[index] = dy"))
EMBEDDING.edit("a mean over the places of a word", "The gradients of all places of a word add up: a sum, no mean.",
    ("return rows", "return rows / np.maximum(1, np.bincount(index.ravel(), minlength=count))[:, None]"))
EMBEDDING.edit("the first text alone", "Words of all texts share the table: sum over the batch, too.",
    ("index, dy)", "index[0], dy[0])"))
EMBEDDING.edit("a mean over the texts", "Each place adds its gradient to its word's row; nothing is divided by B.",
    ("return rows", "return rows / len(dy)"))

SIMILARITY.edit("the factor exp(s) is missing", "The cosines are multiplied by exp(s), and so are their gradients.",
    ("np.exp(scale) * dy", "dy"))
SIMILARITY.edit("multiplied by s", "The cosines are multiplied by exp(s), not by s.",
    ("np.exp(scale) * dy", "scale * dy"))
SIMILARITY.edit("dscale without exp(s)", "d exp(s)/ds is exp(s): dscale is the sum of dy times the logits.",
    ("np.exp(scale) * images", "images"))
SIMILARITY.edit("dscale is a mean", "One number s was used for all B·K logits: their gradients add up.",
    ("logits).sum", "logits).mean"))

LOSS.edit("rows alone", "Each text is to find its image, too: add the cross-entropy of the columns.",
    ("p + q - 2 *", "p -"), ("(2 * len", "(len"))
LOSS.edit("columns alone", "Each image is to find its text, too: add the cross-entropy of the rows.",
    ("p + q - 2 *", "q -"), ("(2 * len", "(len"))
LOSS.edit("a sum of both, not their mean", "The loss is half of the sum of both cross-entropies.", ("(2 * len", "(len"))
LOSS.edit("a sum over the pairs, not a mean", "Both cross-entropies are means over B pairs.",
    ("(2 * len(logits))", "2"))
LOSS.edit("the target is taken off once", "Each of the two cross-entropies has the target 1 on the diagonal.",
    ("2 * np.eye", "np.eye"))
LOSS.edit("the columns' softmax is turned", "softmax of the columns has to be turned back: entry (i, j) belongs to "
    "text j's belief in image i.", ("+ q", "+ q.T"))
LOSS.edit("a sign", "The loss falls where a pair comes nearer: belief less target.", ("return (", "return -("))

ZERO_SHOT.edit("the mean isn't of length 1", "The mean of vectors of length 1 is shorter: divide it by ‖mean‖.",
    (" / np.sqrt((classes * classes).sum(1, keepdims=True))", ""))
ZERO_SHOT.edit("the best prompt of each class", "A class is the mean of its prompts, not the best of them.",
    "return np.einsum('bd,kpd->bkp', images, prompts).max(-1)")
ZERO_SHOT.edit("the first prompt alone", "The mean is over all P prompts of a class.",
    ("prompts.mean(1)", "prompts[:, 0]"))
ZERO_SHOT.edit("divided by the squared length", "For a vector of length 1 the mean is divided by ‖mean‖, the root of "
    "the sum of its squares.", ("np.sqrt", ""))
