"""Gradients added up over ranks, bucket by bucket, beside the backward."""

from types import SimpleNamespace

import numpy as np
import pytest

from tinyvit import Context, Key, ViT, ViTConfig, optim
from tinyvit.training import train_step
from tinyvit.training.distributed.gradients import Reduction
from tinyvit.training.distributed.ranks import Part

CONFIG = ViTConfig(8, 4, 1, 10, embed_dim=16, depth=3, num_heads=2)
IMAGES = np.random.default_rng(0).standard_normal((6, 1, 8, 8))
LABELS = np.arange(6)


class TwoAlike:
    """The ranks of a training of which there is one here, and another one that computes the same."""

    size = 2

    def __init__(self, bucket=1 << 10):
        self.bucket, self.reductions, self.log = bucket, {}, []

    def reduction(self, model):
        return self.reductions.setdefault(id(model), Reduction(self, model, self.bucket))

    def begin_sum(self, own, total):
        self.log.append((own.size, self.at()))
        found = 2 * own  # as it is now: what is added later isn't in it
        return SimpleNamespace(poke=lambda: None, finish=lambda: np.copyto(total, found))

    at = staticmethod(lambda: None)

    def got_further(self):
        pass

    def results(self, value):
        return [value, value]


def steps(count=3, ranks=None, threads=1, objective=None, accumulate=1):
    """Weights after some steps on all images; with `ranks` on half of a batch that has each of them twice."""
    model = ViT(CONFIG, dtype="float64")
    model.storage.data[:] = np.random.default_rng(1).standard_normal(model.storage.size) * 0.1
    optimizer = optim.AdamW(model, 1e-2)
    part = None if ranks is None else Part(ranks, slice(0, 6), 12)
    for step in range(count):
        result = train_step(model, optimizer, IMAGES, LABELS, Context(True, Key(0, step)), threads=threads, part=part,
                            objective=objective, accumulate=accumulate, clip_norm=0.7)  # fmt: skip
    return model.storage.data.copy(), result.loss


@pytest.mark.parametrize("threads, accumulate", [(1, 1), (1, 3), (3, 1), (2, 2)])
@pytest.mark.filterwarnings("ignore::tinyvit.training.threads.MoreThreadsThanCores")
def test_two_ranks_that_compute_the_same_train_as_one(threads, accumulate):
    expected, loss = steps(threads=threads, accumulate=accumulate)
    got, its = steps(ranks=TwoAlike(), threads=threads, accumulate=accumulate)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert its == pytest.approx(loss, rel=1e-14)


def test_from_the_second_step_on_most_buckets_are_summed_while_the_backward_runs():
    ranks, running = TwoAlike(), []

    def objective(model, images, labels, ctx):
        from tinyvit.training.tasks.classification import classification

        loss, backward, *rest = classification()(model, images, labels, ctx)

        def noted(dloss):
            running.append(True)
            backward(dloss)
            running.pop()

        return loss, noted, *rest

    ranks.at = lambda: bool(running)
    steps(count=2, ranks=ranks, objective=objective)
    reduction = next(iter(ranks.reductions.values()))
    buckets = len(reduction.buckets)
    assert buckets > 5
    first, second = ranks.log[:buckets], ranks.log[buckets:]
    assert not any(beside for _, beside in first)
    assert len(second) == buckets and all(beside for _, beside in second)


def test_every_trained_number_is_in_one_bucket_and_the_last_layers_come_first():
    model = ViT(CONFIG, dtype="float64")
    model.freeze("blocks.1.*")
    reduction = Reduction(TwoAlike(), model, 1 << 10)
    reduction.begin(1, 1)
    covered = np.zeros(model.storage.size, int)
    for where in reduction.buckets:
        covered[where] += 1
    for parameter in model.parameters():
        assert (parameter.view(covered) == parameter.trainable).all()
    head, embed = (reduction.bucket_of[id(p)] for p in (model.head.weight, next(model.parameters())))
    assert head < embed


def test_a_step_that_adds_more_often_than_the_one_before_is_added_up_once_more():
    calls = iter([1, 1, 2, 1])

    def objective(model, images, labels, ctx):
        times = next(calls)
        found = [model(images, ctx) for _ in range(times)]

        def backward(dloss):
            for logits, cache in found:
                model.backward(logits * (dloss / times), cache)

        return (found[0][0] ** 2).mean(), backward

    ranks = TwoAlike()
    got, _ = steps(4, ranks, objective=objective)
    calls = iter([1, 1, 2, 1])
    expected, _ = steps(4, objective=objective)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
