"""What a training makes small: functions (model, images, targets, ctx) -> (loss, backward, metrics)."""

from functools import partial

from tinyvit import functional as F
from tinyvit.backend import array_module
from tinyvit.models.vit import require_classes
from tinyvit.training.freezing import forward_above


def classification(label_smoothing=0.0, keep=1.0, frozen=0):
    """The objective of a classifier: cross-entropy, with the accuracy as a metric.

    keep   the share of an image's patches that the blocks get to see, others at every step: a step on half of them
           takes half of the time. Liu et al. 2022, "PatchDropout: economizing vision transformers using patch dropout"
    frozen how many parts of a ViT are frozen, from the images on: the backward ends above them. With keep < 1 it goes
           all the way, and gives them no gradients all the same
    """
    return partial(_classification, label_smoothing, keep, frozen)


def _classification(label_smoothing, keep, frozen, model, images, targets, ctx):
    require_classes(model)
    if keep < 1:
        logits, backward_model = forward_of_some(model, images, ctx, keep)
    elif frozen:
        logits, backward_model = forward_above(model, images, ctx, frozen)
    else:
        logits, backward_model = forward_of_all(model, images, ctx)
    loss, loss_cache = F.cross_entropy(logits, targets, label_smoothing)

    def backward(dloss=1.0):
        return backward_model(F.cross_entropy_backward(dloss, loss_cache))

    labels, scores = targets if targets.ndim == 1 else targets.argmax(1), F.cast(logits, loss.dtype)
    return loss, backward, {"accuracy": (scores.argmax(1) == labels).mean(dtype=loss.dtype)}


def forward_of_all(model, images, ctx):
    """The model's logits, and its backward."""
    logits, cache = model(images, ctx)
    return logits, lambda dlogits: model.backward(dlogits, cache)


def forward_of_some(model, images, ctx, keep):
    """The logits from a random choice of patches, and the backward; the model's parts do the work."""
    tokens, c_embed = model.embed(images, ctx)                             # (B, N+1, D)
    tokens, c_take = F.take_tokens(tokens, some_patches(tokens, keep, ctx.key_for("keep")))
    tokens, c_encode = model.encode(tokens, ctx)
    features, c_pool = model.pool(tokens, ctx)
    logits, c_head = model.head(features, ctx)

    def backward(dlogits):
        dfeatures = model.head.backward(dlogits, c_head)
        dtokens = model.pool.backward(dfeatures, c_pool)
        dtokens = model.encode.backward(dtokens, c_encode)
        return model.embed.backward(F.take_tokens_backward(dtokens, c_take), c_embed)

    return logits, backward


def some_patches(tokens, keep, key):
    """Indices (B, n+1) of the class token and of n = keep · N patches of each sample, drawn without repetition."""
    xp = array_module(tokens)
    B, N = len(tokens), tokens.shape[1] - 1
    order = key.uniform((B, N), xp).argsort(1)
    chosen = 1 + order[:, : max(1, round(keep * N))]
    return xp.concatenate([xp.zeros((B, 1), chosen.dtype), chosen], axis=1)
