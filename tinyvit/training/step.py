"""One step of training, from zeroed gradients to moved parameters."""

from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from tinyvit.backend import array_module
from tinyvit.models import ViT
from tinyvit.optim import clip_by_global_norm, global_norm
from tinyvit.training.memory import keep_freed_memory
from tinyvit.training.memory_needs import ARGUMENTS, explained, is_lack_of_memory, step_at_hand
from tinyvit.training.objectives import classification
from tinyvit.training.threads import map_parts, map_threads, slices, threads_for


class StepResult(NamedTuple):
    """What a step reports; scalars on the model's device, so that nothing waits for a GPU."""

    loss: Any        # the mean over the batch, before the step
    grad_norm: Any   # of all gradients together, before clipping
    metrics: dict    # what else the objective reported, such as the accuracy, averaged over the batch
    applied: Any     # whether the step was taken: not if the loss or the norm is no finite number
    overflowed: Any = False  # whether it wasn't, but will go better: in float16, where the loss is now scaled less


def train_step(
    model, optimizer, images, targets, ctx=None, *, objective=None, clip_norm=None, accumulate=1, threads=None
):
    """Gradients of the mean loss over the batch, clipped to `clip_norm`, and one step of the optimizer.

    If the loss or the gradient is no finite number, no step is taken: nothing changes but the gradients. On a CPU the
    process keeps the memory of a step for the next one. On a GPU nothing waits for it, and a model that computes in
    float16 has its loss scaled by the optimizer's `loss_scale`.

    objective    (model, images, targets, ctx) -> (loss, backward), or (loss, backward, metrics); `loss` is a mean
                 over the samples it gets, and `backward(dloss)` adds dloss times its gradient to the model's
                 gradients. By default `classification()`: cross-entropy. An objective that mixes samples
                 (a contrastive one) needs threads=1 and accumulate=1, since it only sees a part otherwise
    accumulate   parts that the batch goes through in, one after the other, to save memory
    threads      parts that it goes through in at the same time; by default as many as there are cores, if the batch is
                 large enough for that. The gradients are summed in a fixed order: the result is bit-equal from run
                 to run for the same number, and equal up to rounding for any other. Of more parts than there are cores
                 only as many run at once, and there is a warning

    Raises ValueError for an empty batch, a number of targets that doesn't fit, or another model's optimizer;
    OutOfMemory, a MemoryError that says what would fit, where there is too little memory for a ViT's step.
    """
    samples = len(images)
    if samples == 0 or len(targets) != samples:
        raise ValueError(f"expected as many targets as images, at least one, got {len(targets)} and {samples}")
    if optimizer.model is not model:
        raise ValueError("the optimizer was made for another model")
    if accumulate < 1:
        raise ValueError(f"expected to accumulate over at least 1 part, got {accumulate}")
    keep_freed_memory()
    objective = classification() if objective is None else objective
    with model.storage.at_work():
        return step_at_work(model, optimizer, images, targets, ctx, objective, clip_norm, accumulate, threads)


def step_at_work(model, optimizer, images, targets, ctx, objective, clip_norm, accumulate, threads):
    """`train_step`, on the model's device and in its precision."""
    samples, storage, scale = len(images), model.storage, optimizer.loss_scale
    targets = array_module(images).asarray(targets)
    threads = threads_for(images, threads)
    parts = slices(samples, threads)
    buffers = storage.gradient_buffers(len(parts))

    def run(part):
        buffer, where = part
        buffer[:] = 0
        results = []
        with storage.gradients_into(buffer):
            for piece in slices(where.stop - where.start, accumulate):
                piece = slice(where.start + piece.start, where.start + piece.stop)
                share = (piece.stop - piece.start) / samples
                piece_ctx = ctx
                if ctx is not None and ctx.key is not None:
                    piece_ctx = replace(ctx, key=ctx.key.skip(piece.start))
                loss, backward, *metrics = objective(model, images[piece], targets[piece], piece_ctx)
                backward(share if scale is None else share * scale.scale)
                del backward  # and the caches in it, before the next piece's forward
                results.append((share, loss, metrics[0] if metrics else {}))
        return results

    try:
        results = list(chain.from_iterable(map_parts(run, zip(buffers, parts), threads, storage.device)))
    except Exception as error:
        if not (isinstance(model, ViT) and is_lack_of_memory(error)):
            raise
        step = step_at_hand(model, optimizer, samples, threads, accumulate, getattr(ctx, "recompute", False))
        raise explained(step, ARGUMENTS, error) from error
    add_up(buffers, threads)
    if scale is not None:
        scale.unscale(storage.gradients())
    norm = global_norm(model) if clip_norm is None else clip_by_global_norm(model, clip_norm)
    loss = sum(share * loss for share, loss, _ in results)
    metrics = {name: sum(share * metrics[name] for share, _, metrics in results) for name in results[0][2]}
    xp = array_module(norm)
    applied = xp.isfinite(loss) & xp.isfinite(norm)
    optimizer.step(where=applied)
    return StepResult(loss, norm, metrics, applied, False if scale is None else scale.update(applied))


def add_up(buffers, threads):
    """Add all gradient buffers to the first, in order."""
    first, *others = buffers

    def run(where):
        for other in others:
            first[where] += other[where]

    if others:
        map_threads(run, slices(len(first), threads), threads)
