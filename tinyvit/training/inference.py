"""Forward passes over a data set, a batch at a time and each batch in parts by several threads."""

from tinyvit.backend import array_module
from tinyvit.data import Loader
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.memory_needs import evaluation_batch
from tinyvit.training.threads import map_threads, slices, threads_for


def batches(model, dataset):
    """The batches of a `Dataset`, in order, as large as the evaluation of the model takes them."""
    return Loader(dataset, evaluation_batch(model), dtype=model.dtype.name, device=model.device).epoch()


def in_parts(function, model, images, threads=None):
    """function(images) of a batch, arrays with one row per image, computed in parts by several threads."""
    count = threads_for(images, threads)
    with freed_memory_kept(), model.storage.compute_scope():
        parts = [images[part] for part in slices(len(images), count)]
        return array_module(images).concatenate(map_threads(function, parts, count, model.storage.device))


def log_softmax(logits):
    """log pᵢ = zᵢ − log Σⱼ exp(zⱼ), without overflow."""
    xp = array_module(logits)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
