"""Forward passes over a data set, a batch at a time and each batch in parts by several threads."""

from contextlib import contextmanager
from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.data import Loader
from tinyvit.models.architecture import Architecture
from tinyvit.models.summary import widest_output
from tinyvit.training.distributed import sharing
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.memory_needs import OutOfMemory, is_lack_of_memory
from tinyvit.training.threads import map_threads, slices, threads_for

INFERENCE = 1 << 29  # bytes that the forward of an evaluation may take, as far as its batch decides it
FORWARD = 3.5  # memory of a forward, in arrays as large as its largest output
MAX_IMAGES = 2048  # in a forward on a GPU, which has more than enough work for each launch then
MAX_BYTES = 1 << 30  # of memory of a forward on a GPU


class Forward(NamedTuple):
    """Images for one forward, their targets, and which of them are an evaluation batch: a list of slices."""

    images: Array
    targets: Array
    batches: list


def forwards(model, dataset):
    """The images of a `Dataset`, in order and in few forwards, each a `Forward`: on a CPU an evaluation batch each.

    What is summed over each of the batches has the same digits whatever the size of a forward: the outputs for an image
    don't depend on those beside it, except that cuBLAS may choose another algorithm for a product with more rows.
    """
    count = evaluation_batch(model)
    loader = Loader(dataset, forward_batch(model), dtype=model.dtype.name, device=model.device)
    for images, targets in loader.epoch():
        edges = range(0, len(targets), count)
        yield Forward(images, targets, [slice(first, min(first + count, len(targets))) for first in edges])


def in_parts(function, model, images, threads=None):
    """function(images) of a batch, arrays with one row per image, computed in parts by several threads.

    Inside `Ranks.sharing` each rank computes its part of the batch, and all get all of it.
    """
    ranks, xp = sharing(), array_module(images)
    with freed_memory_kept(), model.storage.compute_scope():
        if ranks is None:
            return in_threads(function, model, images, threads)
        own = images[ranks.part(len(images)).where]  # of a few images there may be none for this rank
        found = ranks.results(in_threads(function, model, own, threads) if len(own) else None)
        return xp.concatenate([rows for rows in found if rows is not None])


def in_threads(function, model, images, threads):
    count = threads_for(images, threads)
    parts = [images[part] for part in slices(len(images), count)]
    return array_module(images).concatenate(map_threads(function, parts, count, model.storage.device))


def sum_over(images, function):
    """function(images, where) of a batch, a sum over the images at the slice `where`: of all of them.

    Inside `Ranks.sharing` each rank computes its part of the batch, and all get the sum.
    """
    ranks = sharing()
    if ranks is None:
        return function(images, slice(0, len(images)))
    where = ranks.part(len(images)).where
    return sum(ranks.results(function(images, where) if where.stop > where.start else 0))


def sums_over(images, batches, function):
    """For each of the `batches`, slices of the images of a forward, the sum over its images: a list.

    function(where, batches) returns a list of them for the images at the slice `where`; its `batches` are slices of
    these images alone. Inside `Ranks.sharing` it gets a batch at a time: each rank computes its part, and all get the
    sum.
    """
    if sharing() is None:
        return function(slice(0, len(images)), batches)

    def of_part(batch, part):
        return function(slice(batch.start + part.start, batch.start + part.stop), [slice(0, part.stop - part.start)])[0]

    return [sum_over(images[batch], lambda _, part, batch=batch: of_part(batch, part)) for batch in batches]


def forward_bytes(model, bytes_per_number=4):
    """Bytes that the forward of an image takes, about, where nothing is kept for a backward."""
    return round(FORWARD * bytes_per_number * widest_output(model))


def evaluation_batch(model, most=256):
    """Images that are evaluated at a time: a power of two that depends on the model's shape and on nothing else, so
    that a loss has the same digits on every machine, and takes no more memory than training on a few images does."""
    if not isinstance(model, Architecture):
        return most
    images = min(most, INFERENCE // forward_bytes(model))
    return 1 << max(0, images.bit_length() - 1)


def forward_batch(model):
    """Images in one forward of an evaluation: of a small model on a GPU several evaluation batches, so that a launch
    has more work; else one. It depends on the model alone, so that cuBLAS takes the same algorithms in every run."""
    count = evaluation_batch(model)
    if model.device == "cpu" or not isinstance(model, Architecture):
        return count
    images = min(MAX_IMAGES, MAX_BYTES // computed_bytes(model))
    return max(1, images // count) * count


def computed_bytes(model):
    """Bytes that the forward of an image takes in the dtype that the model computes in."""
    return forward_bytes(model, model.storage.compute_dtype.itemsize)


def memory_of_forward(model, most):
    """Bytes that a forward of an evaluation of at most `most` images takes; 0 if unknown."""
    return min(most, forward_batch(model)) * computed_bytes(model) if isinstance(model, Architecture) else 0


@contextmanager
def memory_to_evaluate(model, most=None):
    """Raise OutOfMemory, with what helps, where memory runs out while a model is evaluated.

    most   images at a time; by default as many as `forwards` takes
    """
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        images = forward_batch(model) if most is None else evaluation_batch(model, most)
        raise OutOfMemory(
            f"too little memory to evaluate {images} images at a time; end other programs, or "
            f"{'raise the limit' if model.device == 'cpu' else 'take --device cpu'}"
        ) from error
