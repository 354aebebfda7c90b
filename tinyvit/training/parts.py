"""The parts of a batch: one for each rank, cut into one for each thread, cut into microbatches that follow one another.

No module knows of them: each part has its own gradient buffer, and the context has the random stream of its samples.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

from tinyvit.arrays import array_module
from tinyvit.backend import to_device
from tinyvit.nn import Context
from tinyvit.training.meeting import Meeting, mixes_samples
from tinyvit.training.threads import map_threads, rows_in, slices, thread_state, threads_for, workers


class BatchParts:
    """How a batch is split; `train_step` describes the arguments.

    batch     its arrays by name
    slices    of the parts that are computed at the same time
    meeting   the `Meeting` in which they exchange statistics, or None
    """

    def __init__(self, model, objective, images, targets, ctx, accumulate, threads, part):
        if accumulate < 1:
            raise ValueError(f"expected to accumulate over at least 1 part, got {accumulate}")
        self.model, self.by_name = model, isinstance(images, Mapping)
        self.batch = named_arrays(images, targets, objective, model.device)
        size = batch_size(self.batch)
        self.samples, self.ranks = (size, None) if part is None else (part.samples, part.ranks)
        whole = has_flag(objective, "mixes_samples")
        normed = mixes_samples(model, ctx) or has_flag(objective, "exchanges")
        if whole and accumulate > 1:
            raise ValueError(f"the objective mixes samples, so accumulate must be 1, got {accumulate}")
        if normed:  # all parts exchange statistics or counts, so they are computed at the same time
            accumulate, whole = 1, whole or thread_state.in_worker
        self.accumulate = accumulate
        self.threads = threads_for(max(self.batch.values(), key=lambda array: array.size), threads)
        self.slices = slices(size, 1 if whole else self.threads)  # one part, too, gets all threads for its products
        exchanges = (whole or normed) and (len(self.slices) > 1 or self.ranks is not None)
        self.meeting = Meeting(len(self.slices), self.ranks) if exchanges else None

    def workers(self):
        """Inside this, a function like `map` that computes the parts, as many at the same time as there are cores."""
        return workers(len(self.slices), self.threads, self.model.device, self.meeting)

    def microbatches(self, number, batch, ctx):
        """(arguments of the objective, share of the batch) for each microbatch of part number `number`."""
        where, images = self.slices[number], next(iter(batch.values()))
        if self.meeting is not None:
            ctx = replace(ctx or Context(), join=partial(self.meeting.exchange, number))
        parts = slices(where.stop - where.start, self.accumulate, where.start)
        for piece in chain.from_iterable(rows_in(self.model, images, part) for part in parts):
            arrays = {name: array[piece] for name, array in batch.items()}
            moved = ctx if ctx is None or ctx.key is None else replace(ctx, key=ctx.key.skip(piece.start))
            arguments = [arrays] if self.by_name else arrays.values()
            yield (*arguments, moved), (piece.stop - piece.start) / self.samples

    def add_up(self, buffers, results):
        """Sum the gradients of all parts, in order, into the model's own; returns the results of their microbatches.

        results   a list for each part
        """
        first, *others = buffers

        def run(where):
            for other in others:
                first[where] += other[where]

        if others:
            map_threads(run, slices(len(first), self.threads), self.threads)
        results = [result for part in results for result in part]
        return results if self.ranks is None else self.ranks.add_up(self.model, results)


def named_arrays(images, targets, objective, device):
    """The batch as a dict of named arrays, those of a list on the device; ValueError if a dict comes with
    targets or without an objective."""
    if not isinstance(images, Mapping):
        images = images if hasattr(images, "dtype") else to_device(images, device)
        return {"images": images, "targets": array_module(images).asarray(targets)}
    if targets is not None:
        raise ValueError("expected targets=None beside a batch of named arrays, which holds all there is")
    if objective is None:
        raise ValueError("a batch of named arrays needs an objective: (model, batch, ctx) -> (loss, backward)")
    return {name: array_module(array).asarray(array) for name, array in images.items()}


def batch_size(batch):
    """The number of samples in a batch of named arrays; raises ValueError for none, and for arrays that disagree."""
    lengths = {name: len(array) for name, array in batch.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"expected arrays with one entry per sample, and at least one sample, got {found or 'none'}")
    return next(iter(lengths.values()))


def has_flag(objective, name):
    """Whether an objective has this attribute set: itself, or the task whose method it is."""
    return any(getattr(owner, name, False) for owner in (objective, getattr(objective, "__self__", None)))
