"""Forward passes over a data set, a batch at a time and each batch in parts by several threads."""

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.data import Loader
from tinyvit.models.architecture import Architecture
from tinyvit.models.summary import widest_output
from tinyvit.training.distributed import shared_by
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.threads import map_threads, rows_in, slices, threads_for

FORWARD_BYTES = 1 << 29    # that the forward of an evaluation may take, as far as its batch decides it
OUTPUTS_PER_FORWARD = 3.5  # memory of a forward, in arrays as large as its largest output


def forwards(model, dataset):
    """(images, targets) of a `Dataset`, in order, as many at a time as `evaluation_batch` says."""
    return Loader(dataset, evaluation_batch(model), dtype=model.dtype.name, device=model.device).epoch()


def in_parts(function, model, images, threads=None):
    """function(images) of a batch, arrays with one row per image, computed in parts by several threads.

    NumPy's overflow warnings are off; the caller checks for NaN and infinity.

    Inside `Ranks.sharing` each rank computes its part of the batch, and all get all of it.
    """
    ranks = shared_by.get()
    with freed_memory_kept(), model.storage.compute_scope(), np.errstate(all="ignore"):
        own = images if ranks is None else images[ranks.part(len(images)).where]
        count = threads_for(own, threads)
        parts = [own[row] for part in slices(len(own), count) for row in rows_in(model, own, part)]
        found = map_threads(function, parts, count, model.storage.device)
        if ranks is not None:
            found = [rows for part in ranks.results(found) for rows in part]
        return array_module(found[0]).concatenate(found)


def sum_over(images, function):
    """function(images, where) of a batch, a sum over the images at the slice `where`: of all of them.

    Inside `Ranks.sharing` each rank computes its part of the batch, and all get the sum.
    """
    ranks = shared_by.get()
    if ranks is None:
        return function(images, slice(0, len(images)))
    where = ranks.part(len(images)).where
    return sum(ranks.results(function(images, where) if where.stop > where.start else 0))


def evaluation_batch(model, most=256):
    """Images that are evaluated at a time: a power of two that depends on the model's shape and on nothing else, so
    that a loss has the same digits on every machine, and takes no more memory than training on a few images does."""
    if not isinstance(model, Architecture):
        return most
    images = min(most, FORWARD_BYTES // round(OUTPUTS_PER_FORWARD * 4 * widest_output(model)))
    return 1 << max(0, images.bit_length() - 1)
