from collections import namedtuple
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_statistics import norms, vit_with_running_norm

from tinyvit import Context, Key, nn
from tinyvit.nn.buffers import commit, mean_updates

TRAINING = Context(training=True, key=Key(0, 0))
Cache = namedtuple("Cache", "first second")


def images(count=4):
    return np.random.default_rng(0).standard_normal((count, 2, 4, 4))


def update(value, module="module"):
    return nn.BufferUpdate(module, {"mean": np.asarray(value, "float64")})


def trees(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.tuples(inner, inner).map(lambda pair: Cache(*pair)),
            st.dictionaries(st.text(max_size=2), inner, max_size=3),
        ),
        max_leaves=8,
    )


def leaves_of(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)) and not isinstance(tree, nn.BufferUpdate):
        return [leaf for item in tree for leaf in leaves_of(item)]
    return [tree]


@given(tree=trees(st.one_of(st.none(), st.just(np.ones(2)), st.integers(0, 9).map(update))))
def test_every_update_in_a_tree_is_found_in_its_order(tree):
    expected = [leaf for leaf in leaves_of(tree) if isinstance(leaf, nn.BufferUpdate)]
    assert [id(found) for found in nn.buffer_updates(tree)] == [id(leaf) for leaf in expected]


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=8), data=st.data())
def test_means_of_parts_average_to_the_mean_of_the_whole(values, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(values)), max_size=3)) | {0, len(values)})
    pieces = [values[start:stop] for start, stop in pairwise(cuts)]
    parts = [(len(piece) / len(values), [update(np.mean(piece))]) for piece in pieces]
    ((module, statistics),) = mean_updates(parts)
    assert module == "module"
    np.testing.assert_allclose(statistics["mean"], np.mean(values), rtol=1e-12, atol=1e-12)


def test_calls_of_one_module_in_a_part_count_equally_and_modules_stay_apart():
    one, two = object(), object()
    parts = [(0.25, [update(1, one), update(3, one), update(5, two)]), (0.75, [update(4, one)])]
    found = {updated.module: float(updated.statistics["mean"]) for updated in mean_updates(parts)}
    assert found == {one: 0.25 * 2 + 0.75 * 4, two: 5}


def test_half_precision_statistics_are_averaged_in_float32():
    parts = [(0.5, [nn.BufferUpdate("module", {"mean": np.full(2, value, "float16")})]) for value in (61440, 63488)]
    ((_, statistics),) = mean_updates(parts)
    assert statistics["mean"].dtype == "float32" and (statistics["mean"] == 62464).all()


@pytest.mark.parametrize("recompute", [False, True])
def test_a_forward_that_trains_reports_each_module_once_also_from_recomputed_blocks(recompute):
    model = vit_with_running_norm()
    _, cache = model(images(), replace(TRAINING, recompute=recompute))
    assert [updated.module for updated in nn.buffer_updates(cache)] == norms(model)
    _, cache = model(images(), replace(TRAINING, training=False, recompute=recompute))
    assert nn.buffer_updates(cache) == []


def test_without_caches_the_updates_remain_and_inference_returns_nothing():
    model = vit_with_running_norm()
    _, cache = model(images(), replace(TRAINING, keep_caches=False))
    assert cache == tuple(nn.buffer_updates(cache)) and len(cache) == len(norms(model))
    assert model(images(), Context(keep_caches=False))[1] is None


@pytest.mark.parametrize("applied", [True, False])
def test_a_skipped_step_commits_nothing(applied):
    model = vit_with_running_norm()
    before = model.state_dict()
    _, cache = model(images(), TRAINING)
    commit(nn.buffer_updates(cache), np.bool_(applied))
    changed = {name for name, array in model.state_dict().items() if (array != before[name]).any()}
    assert changed == ({name for name, _ in model.named_buffers()} if applied else set())
