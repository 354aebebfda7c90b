"""One step of training, from zeroed gradients to moved parameters."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tinyvit.arrays import array_module
from tinyvit.nn.buffers import check_returned, commit, mean_updates
from tinyvit.optim import clip_by_each_norm, clip_by_global_norm, global_norm
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.parts import BatchParts
from tinyvit.training.tasks import classification


class StepResult(NamedTuple):
    """The result of a step; scalars stay on the model's device, so that nothing waits for a GPU."""

    loss: Any        # the mean over the batch, before the step
    grad_norm: Any   # of all gradients together, before clipping
    metrics: dict    # the objective's other figures, such as the accuracy, averaged over the batch
    applied: Any     # False if the step was skipped, as the loss or the norm is NaN or infinite
    overflowed: Any = False  # skipped in float16; the loss is then scaled less, and the next step may pass


class PartResult(NamedTuple):
    """The result of an objective for a microbatch."""

    share: float   # of the batch
    loss: Any
    metrics: dict = {}  # noqa: RUF012 (only read)
    updates: list = ()  # of buffers


class CaptureError(ValueError):
    """A step that `replay` can't capture."""


def train_step(
    model, optimizer, images, targets, ctx=None, *, objective=None, clip_norm=None, clip_each=None, accumulate=1,
    threads=None, part=None, replay=None,
):
    """Compute the gradients of the mean loss over the batch, clip them, each parameter's to `clip_each` and then all
    together to `clip_norm`, and take one step of the optimizer.

    If the loss or the gradient is NaN or infinite, no step is taken: nothing changes but the gradients. On a CPU the
    process keeps the memory of a step for the next one. On a GPU nothing waits for it, and a model that computes in
    float16 has its loss scaled by the optimizer's `loss_scale`. An interrupt inside it (Ctrl-C) may leave weights that
    have stepped and an optimizer that hasn't: then go on from saved weights and a saved optimizer.

    images       (B, C, H, W) with `targets` (B, …), or lists; or the whole batch, a mapping of named arrays (B, …)
    ctx          a key without a step, `Key(seed)`, is given the optimizer's, so that every step draws other masks
    objective    (model, images, targets, ctx), or (model, batch, ctx) for named arrays, -> (loss, backward),
                 (loss, backward, metrics) or (loss, backward, metrics, updates). `loss` is a mean over the samples it
                 gets, `backward(dloss)` adds dloss times its gradient to the model's gradients, `updates` is
                 `nn.buffer_updates(cache)`: committed once, if the step is taken. By default `classification()`. An
                 objective whose attribute `mixes_samples` is true (a contrastive one) gets the whole batch.
                 `model.backward` returns None here, as nothing needs the gradient of the images; in an objective that
                 does, call it inside `model.gradients_into(model.new_gradients())`
    accumulate   parts that the batch goes through in, one after the other, to save memory. A model with batch norm
                 needs the whole batch for its statistics: it takes one part, and nothing is saved
    threads      parts that it goes through in at the same time; by default as many as there are cores, if the batch is
                 large enough for that. The gradients are summed in a fixed order: the result is bit-equal from run
                 to run for the same number, and equal up to rounding for any other; batch norm, too, takes the
                 statistics of the whole batch. Of more parts than there are cores only as many run at once, with batch
                 norm all of them
    part         the `distributed.ranks.Part` of the batch that this is, where other ranks have the rest: gradients,
                 loss and metrics are those of all of it. An objective that mixes samples then must gather what it
                 needs of them, by `F.gather_batch(x, ctx.join)`
    replay       on a GPU, (function, batch, ctx) -> result in place of function(batch, ctx), such as `run` of
                 `cuda_graph.StepGraphs`, for all but the optimizer's part of the step. Between two steps only the
                 numbers in the model may then change, and not what is frozen. Not where other ranks have a part

    Raises ValueError for an empty batch, arrays of different lengths, another model's optimizer, a model that is frozen
    as a whole, and accumulate > 1 for an objective that mixes samples.
    """
    if optimizer.model is not model:
        raise ValueError("the optimizer was made for another model")
    if not any(parameter.trainable for parameter in model.walk().parameters):
        raise ValueError('there is nothing to train: all parameters are frozen; model.unfreeze("head") trains the head')
    ctx, loss_scale = with_step(ctx, optimizer), optimizer.loss_scale
    parts = BatchParts(model, objective, images, targets, ctx, accumulate, threads, part)
    objective = classification() if objective is None else objective

    def gradients(batch, ctx):  # a CUDA graph replays this function
        buffers, scale = model.storage.grads.take(len(parts.slices)), 1 if loss_scale is None else loss_scale.scale
        microbatches = [parts.microbatches(number, batch, ctx) for number in range(len(buffers))]
        with parts.workers() as map_parts:  # forward, loss and backward of each part
            results = list(map_parts(partial(add_gradients, model, objective, scale), buffers, microbatches))
        results = parts.add_up(buffers, results)
        if loss_scale is not None:
            loss_scale.unscale(model.storage.gradients())
        norm = clip(model, clip_each, clip_norm)
        loss, metrics, updates = means(results)
        xp = array_module(norm)
        return StepResult(loss, norm, metrics, xp.isfinite(loss) & xp.isfinite(norm)), updates

    with freed_memory_kept(), model.storage.compute_scope():
        if replay is None:
            result, updates = gradients(parts.batch, ctx)
        else:
            result, updates = replay(gradients, parts.batch, ctx)
            result = copy_result(result)
        if optimizer.next_step == 0 and ctx is not None and ctx.training and not updates:
            check_returned(model)
        optimizer.step(where=result.applied)
        commit(updates, result.applied)
        return result if loss_scale is None else result._replace(overflowed=loss_scale.update(result.applied))


def add_gradients(model, objective, scale, buffer, microbatches):
    """Run forward, loss and backward of a part of the batch; returns a `PartResult` for each of its microbatches.

    scale          of the loss
    buffer         which then holds the part's share of the gradients of the batch's mean loss
    microbatches   (arguments of the objective, share of the batch), one after the other
    """
    results = []
    buffer[:] = 0
    with model.storage.grads.into(buffer, model.image_layer):
        for arguments, share in microbatches:
            loss, backward, *more = objective(model, *arguments)
            if getattr(loss, "shape", ()) != ():
                raise ValueError(f"expected the loss as one number, a mean over the samples, got {loss.shape}")
            backward(share * scale)
            del backward  # and the caches in it, before the next forward
            results.append(PartResult(share, loss, *more))
    return results


def means(results):
    """(loss, metrics, updates of buffers), each a mean over the batch, from the results of its parts."""
    shares = [part.share for part in results]
    loss = mean(shares, [part.loss for part in results])
    metrics = {name: mean(shares, [part.metrics[name] for part in results]) for name in results[0].metrics}
    return loss, metrics, mean_updates((part.share, part.updates) for part in results)


def mean(shares, values):
    """Σ share · value; nothing is computed of one value with the whole share."""
    return values[0] if shares == [1] else sum(share * value for share, value in zip(shares, values))


def clip(model, each, together):
    """Clip the gradients, each parameter's and then all together; returns their global norm before that."""
    norms = [] if each is None else [clip_by_each_norm(model, each)]
    if together is not None:
        norms.append(clip_by_global_norm(model, together))
    return norms[0] if norms else global_norm(model)


def copy_result(result):
    """Copy a result, whose arrays the next replay of a graph would overwrite."""
    metrics = {name: value.copy() for name, value in result.metrics.items()}
    return StepResult(result.loss.copy(), result.grad_norm.copy(), metrics, result.applied.copy())


def with_step(ctx, optimizer):
    """The context, its key with the optimizer's step if it has none of its own."""
    if ctx is None or ctx.key is None or ctx.key.step is not None:
        return ctx
    return replace(ctx, key=replace(ctx.key, step=optimizer.next_step))
