"""How well a model does on a data set."""

from math import log

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import array_module, to_numpy
from tinyvit.data import Loader
from tinyvit.models.architecture import require_classes
from tinyvit.nn import Context
from tinyvit.training.memory import keep_freed_memory
from tinyvit.training.memory_needs import evaluation_batch
from tinyvit.training.threads import map_threads, slices, threads_for


def evaluate(model, dataset, threads=None, tta=False, stop=None):
    """Accuracy (0 to 1) and mean cross-entropy of a model on a `Dataset`: {"accuracy": …, "loss": …}.

    None if `stop` became true on the way.
    """
    loss = correct = 0
    for images, targets in batches(model, dataset):
        if stop:
            return None
        logits = classify(model, images, threads, tta)
        with model.storage.on_device():
            loss = loss + F.cross_entropy(logits, targets)[0] * len(targets)
            correct = correct + (logits.argmax(1) == targets).sum()
    return {"accuracy": float(correct) / len(dataset), "loss": float(loss) / len(dataset)}


def logits_of(model, dataset, threads=None, tta=False):
    """The logits (n, K) of all images of a `Dataset`, as a NumPy array; with `tta`, as `classify` says."""
    return np.concatenate([to_numpy(classify(model, images, threads, tta)) for images, _ in batches(model, dataset)])


def batches(model, dataset):
    """As many images at a time as an evaluation of the model takes, which the threads share."""
    return Loader(dataset, evaluation_batch(model), dtype=model.dtype.name, device=model.device).epoch()


def classify(model, images, threads=None, tta=False):
    """The logits (B, K) of a batch, in the dtype of the model's parameters, computed in parts by several threads.

    With `tta` (test-time augmentation) they are log((p + p′)/2), the probabilities averaged over each image and its
    mirror image. The mean of probabilities, not of their logarithms: one view that is sure of the wrong class can't
    veto what the other sees. As −log is convex, the loss is at most the mean of the two views' losses.

    On a CPU the process keeps the memory that this takes for the next time.
    """
    require_classes(model)
    xp = array_module(images)

    def logits_of_part(part):
        return F.cast(model(part, Context(keep_caches=False))[0], model.dtype)

    def run(part):
        logits = logits_of_part(part)
        if not tta:
            return logits
        mirrored = logits_of_part(part[:, :, :, ::-1])
        return xp.logaddexp(log_softmax(logits), log_softmax(mirrored)) - log(2)

    return in_parts(run, model, images, threads)


def in_parts(function, model, images, threads=None):
    """`function` of a batch of images, which gives arrays with a row an image, computed in parts by several threads."""
    keep_freed_memory()
    count = threads_for(images, threads)
    with model.storage.compute_scope():
        parts = [images[part] for part in slices(len(images), count)]
        return array_module(images).concatenate(map_threads(function, parts, count, model.storage.device))


def log_softmax(logits):
    """log pᵢ = zᵢ − log Σⱼ exp(zⱼ), without overflow."""
    xp = array_module(logits)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
