"""Images and texts in one space: their similarities, and the loss that pulls each pair together."""

from math import log
from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.softmax import log_softmax

LARGEST_LOGIT_SCALE = log(100)  # similarities are multiplied by 100 at most


class SimilarityCache(NamedTuple):
    images: Array  # (B, D)
    texts: Array   # (K, D)
    logits: Array  # (B, K)
    factor: Array  # exp(logit_scale)
    free: Array    # whether logit_scale is below its bound
    shape: tuple   # of logit_scale


@operation(arrays="images texts logit_scale")
def similarity(images, texts, logit_scale):
    """The cosine of every image (B, D) with every text (K, D), vectors of length 1, times e^s: logits (B, K).

        logits = exp(min(s, ln 100)) · images textsᵀ

    logit_scale   s, one learned number; e^−s is the temperature of the softmax that follows. The bound keeps the loss
                  from multiplying cosines by more than 100; beyond it s gets no gradient. See `models.clip.Clip` for
                  how a training keeps s between 0 and ln 100

    Radford et al. 2021, "Learning transferable visual models from natural language supervision", figure 3 and section
    2.5. Derived in notebooks/17.
    """
    if images.ndim != 2 or texts.ndim != 2 or images.shape[1] != texts.shape[1] or logit_scale.size != 1:
        raise ValueError(
            "similarity: expected images (B, D), texts (K, D) and one number as logit_scale, got "
            f"{images.shape}, {texts.shape} and {logit_scale.shape}"
        )
    xp, s = array_module(images), logit_scale.reshape(())
    free = s.real <= LARGEST_LOGIT_SCALE
    factor = xp.exp(xp.where(free, s, LARGEST_LOGIT_SCALE)).astype(logit_scale.dtype, copy=False)
    logits = (images @ texts.T) * factor
    return logits, SimilarityCache(images, texts, logits, factor, free, logit_scale.shape)


@backward_of(similarity, result=lambda cache: cache.logits.shape, parameters=lambda cache: [cache.shape])
def similarity_backward(dy, cache):
    """dimages = e^s dy texts, dtexts = e^s dyᵀ images, ds = Σ dy logits, as the derivative of e^s is e^s."""
    images, texts, logits, factor, free, shape = cache
    dcosines = dy * factor
    dscale = array_module(dy).where(free, (dy * logits).sum(), 0).astype(dy.dtype, copy=False)
    return dcosines @ texts, dcosines.T @ images, dscale.reshape(shape)


class ContrastiveLossCache(NamedTuple):
    of_texts: Array   # (B, B)  each image's probabilities of the texts, a row
    of_images: Array  # (B, B)  each text's probabilities of the images, a column
    targets: Array    # (B, B)  what both should be


@operation(any_dtype="alike")
def contrastive_loss(logits, alike=None):
    """How badly each image finds its own text among all texts of the batch, and each text its image, a scalar:

        L = −1/(2B) Σᵢⱼ tᵢⱼ (log softmaxⱼ(zᵢⱼ) + log softmaxᵢ(zᵢⱼ))   the mean of both cross-entropies

    logits   (B, B), image i and text i being a pair
    alike    (B, B), whether texts i and j are equal: with n equal texts, each is right for each of their images, and
             tᵢⱼ = 1/n. By default no two are, and t is the identity

    Radford et al. 2021, figure 3; Zhang et al. 2020, "Contrastive learning of medical visual representations", eq. 3.
    Derived in notebooks/17.
    """
    if logits.ndim != 2 or logits.shape[0] != logits.shape[1] or not logits.size:
        raise ValueError(f"contrastive_loss: expected logits (B, B) of at least one pair, got {logits.shape}")
    xp, B = array_module(logits), len(logits)
    alike = xp.arange(B)[:, None] == xp.arange(B) if alike is None else alike
    if alike.shape != logits.shape:
        raise ValueError(f"contrastive_loss: expected alike {logits.shape}, got {alike.shape}")
    targets = (alike / alike.sum(1, keepdims=True)).astype(logits.real.dtype)
    log_texts, log_images = log_softmax(logits), log_softmax(logits.T).T
    loss = (targets * (log_texts + log_images)).sum() * (-0.5 / B)
    return loss, ContrastiveLossCache(xp.exp(log_texts), xp.exp(log_images), targets)


@backward_of(contrastive_loss, result=lambda cache: ())
def contrastive_loss_backward(dy, cache):
    """dz = dy/(2B) (p + q − 2 t): belief less target, once along the rows and once along the columns."""
    of_texts, of_images, targets = cache
    return (of_texts + of_images - 2 * targets) * (dy * (0.5 / len(of_texts)))
