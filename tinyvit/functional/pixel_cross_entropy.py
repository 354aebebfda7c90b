"""The loss of a model that gives every pixel a class."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import IGNORED, Array, array_module, as_loss
from tinyvit.dispatch import backward_of, operation


class PixelCrossEntropyCache(NamedTuple):
    excess: Array  # (B, K, H, W)  probabilities less what was wanted, 0 where a pixel is ignored
    scale: Array   # 1 / the number of pixels that count


@operation(any_dtype="labels")
def pixel_cross_entropy(logits, labels, ignore=IGNORED, count=None):
    """The mean of −log softmax(logits)_label over the pixels whose label isn't `ignore`, a scalar.

    logits   (B, K, H, W)
    labels   ints (B, H, W) from 0 to K−1, or `ignore`
    count    what the sum over these pixels is divided by; by default their number. A part of a batch divides by its
             share of those in the whole batch: the mean of its parts is then the batch's, unequal as their numbers are

    Without a pixel that counts, the loss and all gradients are 0. Derived in notebooks/22; Long et al. 2015, "Fully
    convolutional networks for semantic segmentation", section 4. Raises ValueError for shapes that don't fit, and for
    labels out of range if they are in host memory.
    """
    if logits.ndim != 4 or labels.dtype.kind not in "iu" or labels.shape != (len(logits), *logits.shape[2:]):
        raise ValueError(
            "pixel_cross_entropy: expected logits (B, K, H, W) and labels as ints (B, H, W), got "
            f"{logits.shape} and {labels.dtype} {labels.shape}"
        )
    xp = array_module(logits)
    K = logits.shape[1]
    counted = labels != ignore
    if xp is np and counted.any():
        known = labels[counted]
        least, most = known.min(), known.max()
        if least < 0 or most >= K:
            raise ValueError(
                f"pixel_cross_entropy: expected labels from 0 to {K - 1} or {ignore}, got {least} to {most}"
            )
    count = xp.asarray(counted.sum() if count is None else count)
    scale = (1 / xp.where(count > 0, count, 1)).astype(logits.real.dtype)
    targets = (labels[:, None] == xp.arange(K)[:, None, None]) & counted[:, None]              # (B, K, H, W)
    shifted = logits - logits.real.max(1, keepdims=True)
    log_probs = shifted - xp.log(xp.exp(shifted).sum(1, keepdims=True))
    loss = -xp.where(targets, log_probs, 0).sum() * scale
    excess = xp.where(counted[:, None], xp.exp(log_probs), 0) - targets
    return as_loss(loss), PixelCrossEntropyCache(excess, scale)


@backward_of(pixel_cross_entropy, result=lambda cache: ())
def pixel_cross_entropy_backward(dy, cache):
    """dlogits = dy (p − t) / count: what was predicted less what was wanted, where a pixel counts."""
    return cache.excess * (dy * cache.scale)
