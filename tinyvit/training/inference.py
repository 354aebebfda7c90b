"""Forward passes over a data set, a batch at a time and each batch in parts by several threads."""

from contextlib import contextmanager
from math import prod
from typing import NamedTuple

from tinyvit.backend import Array, array_module, total_memory
from tinyvit.data import Loader
from tinyvit.models.architecture import Architecture
from tinyvit.models.summary import measured_parts, widest_output
from tinyvit.training.distributed import sharing
from tinyvit.training.memory import available_memory, freed_memory_kept
from tinyvit.training.memory_needs import OutOfMemory, is_lack_of_memory, readable, what_there_is
from tinyvit.training.threads import map_threads, slices, threads_for

INFERENCE = 1 << 29  # bytes that the forward of an evaluation may take, as far as its batch decides it
FORWARD = 3.5  # memory of a forward, in arrays as large as its largest output
OF_TASK = 4.2  # the same for a task's own module around the model
MAX_IMAGES = 2048  # in a forward on a GPU, which has more than enough work for each launch then
MAX_BYTES = 1 << 31  # of memory of a forward on a GPU
MEMORY_SHARE = 1 / 32  # of a GPU's memory that a forward may take


class Forward(NamedTuple):
    """Images for one forward, their targets, and which of them are an evaluation batch: a list of slices."""

    images: Array
    targets: Array
    batches: list


def forwards(model, dataset, needed=0):
    """The images of a `Dataset`, in order and in few forwards, each a `Forward`: on a CPU an evaluation batch each.

    needed   as for `task_batch`

    What is summed over each of the batches has the same digits whatever the size of a forward: the outputs for an image
    don't depend on those beside it, except that cuBLAS may choose another algorithm for a product with more rows.
    """
    count = evaluation_batch(model)
    for images, targets in loaded(model, dataset, task_batch(model, needed)):
        edges = range(0, len(targets), count)
        yield Forward(images, targets, [slice(first, min(first + count, len(targets))) for first in edges])


def loaded(model, dataset, count):
    return Loader(dataset, count, dtype=model.dtype.name, device=model.device).epoch()


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
    has more work; else one. It depends on the model and on what memory the GPU has, free or not, so that cuBLAS takes
    the same algorithms in every run. All ranks that share the forward get the same number.
    """
    count = evaluation_batch(model)
    if model.device == "cpu" or not isinstance(model, Architecture):
        return count
    ranks, memory = sharing(), min(MAX_BYTES, int(MEMORY_SHARE * total_memory(model.device)))
    images = min(MAX_IMAGES, memory // computed_bytes(model))
    if ranks is not None:
        images = min(ranks.gather(images))
    return max(1, images // count) * count


def task_batch(model, needed=0):
    """Images in one forward of a task's own module around the model: fewer than of the model if it takes more memory.

    needed   bytes that it takes for an image; 0 where that is the model alone
    """
    count, images = evaluation_batch(model), forward_batch(model)
    if needed and images > count:
        images = int(images * min(1, computed_bytes(model) / needed)) // count * count
    return max(count, images)


def bytes_of_task(model, widest, images):
    """Bytes for `task_batch` of a module around the model.

    widest   numbers for an image of the largest array that it makes outside of the model
    images   arrays as large as the image, in float32, that it also holds
    """
    image = 4 * prod(measured_parts(model)[0].input_shape)
    itemsize = model.storage.compute_dtype.itemsize
    number = max(itemsize, (4 + itemsize) / 2)  # bytes: in low precision, too, some of the arrays are float32
    return round(OF_TASK * number * max(widest, widest_output(model))) + images * image


def computed_bytes(model):
    """Bytes that the forward of an image takes in the dtype that the model computes in."""
    return forward_bytes(model, model.storage.compute_dtype.itemsize)


def memory_of_forward(model, most, needed=0):
    """Bytes that a forward of an evaluation of `most` images takes; 0 if unknown. `needed` as for `task_batch`."""
    if not isinstance(model, Architecture):
        return 0
    return min(most, task_batch(model, needed)) * max(needed, computed_bytes(model))


@contextmanager
def memory_to_evaluate(model, most=None, needed=0):
    """Raise OutOfMemory if a model surely can't be evaluated with the memory that there is, or where that turns out.

    most     images at a time; by default as many as `forwards` takes
    needed   as for `task_batch`
    """
    if not isinstance(model, Architecture):
        yield
        return
    images, device = task_batch(model, needed) if most is None else evaluation_batch(model, most), model.device
    total = images * max(needed, computed_bytes(model))
    free = available_memory(device)
    message = (
        f"too little memory: to evaluate {images} images at a time takes about {readable(total)}, and "
        f"{what_there_is(free, device)}; "
        f"end other programs, or {'raise the limit' if device == 'cpu' else 'take --device cpu'}"
    )
    if free is not None and total / 2 > free:
        raise OutOfMemory(message)
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        raise OutOfMemory(message) from error
