"""What a training makes small: functions (model, images, targets, ctx) -> (loss, backward, metrics)."""

from functools import partial

from tinyvit import functional as F
from tinyvit.models.architecture import require_classes


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
        (logits, cache), backward_model = model.forward_some(images, keep, ctx), model.backward_some
    elif frozen:
        (logits, cache), backward_model = model.forward_above(images, frozen, ctx), model.backward_above
    else:
        (logits, cache), backward_model = model(images, ctx), model.backward
    loss, loss_cache = F.cross_entropy(logits, targets, label_smoothing)

    def backward(dloss=1.0):
        return backward_model(F.cross_entropy_backward(dloss, loss_cache), cache)

    labels, scores = targets if targets.ndim == 1 else targets.argmax(1), F.cast(logits, loss.dtype)
    return loss, backward, {"accuracy": (scores.argmax(1) == labels).mean(dtype=loss.dtype)}
