"""One step of training, from zeroed gradients to moved parameters."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from tinyvit.arrays import array_module
from tinyvit.backend import to_device
from tinyvit.nn import Context
from tinyvit.nn.buffers import check_returned, commit, mean_updates
from tinyvit.optim import clip_by_each_norm, clip_by_global_norm, global_norm
from tinyvit.training import meeting
from tinyvit.training.memory import freed_memory_kept
from tinyvit.training.tasks import classification
from tinyvit.training.threads import busy, map_threads, slices, threads_for


class StepResult(NamedTuple):
    """The result of a step; scalars stay on the model's device, so that nothing waits for a GPU."""

    loss: Any        # the mean over the batch, before the step
    grad_norm: Any   # of all gradients together, before clipping
    metrics: dict    # the objective's other figures, such as the accuracy, averaged over the batch
    applied: Any     # False if the step was skipped, as the loss or the norm is NaN or infinite
    overflowed: Any = False  # skipped in float16; the loss is then scaled less, and the next step may pass


class Gradients(NamedTuple):
    """The figures of a step after its backward, before the optimizer."""

    loss: Any
    norm: Any
    metrics: dict
    finite: Any    # whether loss and norm are
    updates: list  # of buffers

    def copied(self):
        """The same figures in arrays of their own."""
        metrics = {name: value.copy() for name, value in self.metrics.items()}
        return Gradients(self.loss.copy(), self.norm.copy(), metrics, self.finite.copy(), self.updates)


class PartResult(NamedTuple):
    """The result of an objective for a part of the batch."""

    share: float   # of the batch
    loss: Any
    metrics: dict = {}  # noqa: RUF012 (only read)
    updates: list = ()


def train_step(
    model, optimizer, images, targets, ctx=None, *, objective=None, clip_norm=None, clip_each=None, accumulate=1,
    threads=None, part=None, replay=None,
):
    """Gradients of the mean loss over the batch, each parameter's clipped to `clip_each` and then all together to
    `clip_norm`, and one step of the optimizer.

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
                 statistics of the whole batch. Of more parts than there are cores only as many run at once (with batch
                 norm all of them), and there is a warning
    part         which part of the batch this is, a `distributed.Part`, where other ranks have the rest: gradients, loss
                 and metrics are those of all of it. An objective that mixes samples then must gather what it needs of
                 them, by `F.gather_batch(x, ctx.join)`
    replay       on a GPU, (function, batch, ctx) -> result in place of function(batch, ctx), such as `run` of
                 `cuda_graph.StepGraphs`, for all but the optimizer's part of the step. Between two steps only the
                 numbers in the model may then change, and not what is frozen. Not where other ranks have a part

    Raises ValueError for an empty batch, arrays of different lengths, another model's optimizer, and accumulate > 1 for
    an objective that mixes samples.
    """
    if accumulate < 1:
        raise ValueError(f"expected to accumulate over at least 1 part, got {accumulate}")
    if optimizer.model is not model:
        raise ValueError("the optimizer was made for another model")
    batch = named_arrays(images, targets, objective, model.device)
    own = batch_size(batch)
    samples, ranks = (own, None) if part is None else (part.samples, part.ranks)
    objective = classification() if objective is None else objective
    owners = objective, getattr(objective, "__self__", None)  # itself, or the task whose method it is
    in_one_piece = any(getattr(owner, "mixes_samples", False) for owner in owners)
    if in_one_piece and accumulate > 1:
        raise ValueError(f"the objective mixes samples, so accumulate must be 1, got {accumulate}")
    meets = meeting.mixes_samples(model, ctx)
    if meets:
        accumulate, in_one_piece = 1, in_one_piece or busy()
    meets = meets or (in_one_piece and ranks is not None)
    storage, scale = model.storage, optimizer.loss_scale
    with freed_memory_kept(), storage.compute_scope():
        threads = threads_for(max(batch.values(), key=lambda array: array.size), threads)
        parts = slices(own, 1 if in_one_piece else threads)  # one piece, too, gets all threads for its products
        met = meeting.Meeting(len(parts), ranks) if meets and (len(parts) > 1 or ranks is not None) else None
        buffers = storage.grads.take(len(parts))
        ctx = with_step(ctx, optimizer)

        def loss_of(arrays, ctx):
            return objective(model, *([arrays] if isinstance(images, Mapping) else arrays.values()), ctx)

        gradients = gradients_by(
            model, loss_of, samples, parts, buffers, accumulate, threads, met, ranks, scale, clip_each, clip_norm
        )
        found = gradients(batch, ctx) if replay is None else replay(gradients, batch, ctx).copied()
        loss, norm, metrics, applied, updates = found
        if optimizer.next_step == 0 and ctx is not None and ctx.training and not updates:
            check_returned(model)
        optimizer.step(where=applied)
        commit(updates, applied)
        return StepResult(loss, norm, metrics, applied, False if scale is None else scale.update(applied))


def gradients_by(
    model, loss_of, samples, parts, buffers, accumulate, threads, met, ranks, loss_scale, clip_each, clip_norm
):  # fmt: skip
    """The function (named arrays, ctx) -> `Gradients` of the mean loss over a batch: computed part by part, added up
    and clipped.

    loss_of     (named arrays, ctx) -> (loss, backward, …)
    samples     of the whole batch, with those of other ranks
    parts       slices of the batch, computed at the same time, each with one of `buffers` for its gradients
    accumulate  pieces of a part, one after the other
    met         the `Meeting` where the parts exchange values, or None
    ranks       that compute other parts of the batch, or None
    """
    storage = model.storage

    def of_part(batch, ctx, number):
        """The `PartResult` of each piece of a part; its gradients are in the part's buffer then."""
        where, buffer, results = parts[number], buffers[number], []
        if met is not None:
            ctx = replace(ctx or Context(), join=met.join(number))
        factor = 1 if loss_scale is None else loss_scale.scale
        buffer[:] = 0
        with storage.grads.into(buffer, model.image_layer):
            for piece in slices(where.stop - where.start, accumulate):
                share = (piece.stop - piece.start) / samples
                piece = slice(where.start + piece.start, where.start + piece.stop)
                arrays = {name: array[piece] for name, array in batch.items()}
                loss, backward, *more = loss_of(arrays, from_sample(ctx, piece.start))
                if getattr(loss, "shape", ()) != ():
                    raise ValueError(f"expected the loss as one number, a mean over the samples, got {loss.shape}")
                backward(share * factor)
                del backward  # and the caches in it, before the next piece's forward
                results.append(PartResult(share, loss, *more))
        return results

    def gradients(batch, ctx):
        found = map_threads(partial(of_part, batch, ctx), range(len(parts)), threads, storage.device, met)
        results = list(chain.from_iterable(found))
        add_up(buffers, threads)
        if ranks is not None:
            results = ranks.add_up(model, results)
        if loss_scale is not None:
            loss_scale.unscale(storage.gradients())
        norm = clip(model, clip_each, clip_norm)
        loss = mean_of([(part.share, part.loss) for part in results])
        metrics = {
            name: mean_of([(part.share, part.metrics[name]) for part in results]) for name in results[0].metrics
        }
        xp = array_module(norm)
        updates = mean_updates((part.share, part.updates) for part in results)
        return Gradients(loss, norm, metrics, xp.isfinite(loss) & xp.isfinite(norm), updates)

    return gradients


def mean_of(shares):
    """Σ share · value, from (share, value) pairs; nothing is computed of one value with the whole share."""
    return shares[0][1] if len(shares) == 1 and shares[0][0] == 1 else sum(share * value for share, value in shares)


def clip(model, each, together):
    """Clip the gradients, each parameter's and then all together; returns their global norm before that."""
    norms = [] if each is None else [clip_by_each_norm(model, each)]
    if together is not None:
        norms.append(clip_by_global_norm(model, together))
    return norms[0] if norms else global_norm(model)


def named_arrays(images, targets, objective, device):
    """The batch as a dict of named arrays, those of a list on the device; ValueError unless a dict stands alone."""
    if not isinstance(images, Mapping):
        images = images if hasattr(images, "dtype") else to_device(images, device)
        return {"images": images, "targets": array_module(images).asarray(targets)}
    if targets is not None:
        raise ValueError("expected targets=None beside a batch of named arrays, which holds all there is")
    if objective is None:
        raise ValueError("a batch of named arrays needs an objective: (model, batch, ctx) -> (loss, backward)")
    return {name: array_module(array).asarray(array) for name, array in images.items()}


def batch_size(batch):
    """How many samples a batch of named arrays has; raises ValueError for none, and for arrays that disagree."""
    lengths = {name: len(array) for name, array in batch.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"expected arrays with one entry per sample, and at least one sample, got {found or 'none'}")
    return next(iter(lengths.values()))


def with_step(ctx, optimizer):
    """The context, its key with the optimizer's step if it has none of its own."""
    if ctx is None or ctx.key is None or ctx.key.step is not None:
        return ctx
    return replace(ctx, key=replace(ctx.key, step=optimizer.next_step))


def from_sample(ctx, first):
    """The context for a part of the batch that begins at sample `first`."""
    return ctx if ctx is None or ctx.key is None else replace(ctx, key=ctx.key.skip(first))


def add_up(buffers, threads):
    """Add all gradient buffers to the first, in order."""
    first, *others = buffers

    def run(where):
        for other in others:
            first[where] += other[where]

    if others:
        map_threads(run, slices(len(first), threads), threads)
