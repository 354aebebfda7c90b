"""The script behind the tables of ablations in the notebooks, and what it has stored."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from tinyvit import gradcheck
from tinyvit.models import registry

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "ablations.py"


@pytest.fixture(scope="module")
def ablations(script):
    yield script
    del registry.ARCHITECTURES["vit_post_norm"]  # other tests go through all architectures


def test_means_and_deviations_follow_from_the_stored_runs(ablations):
    stored = json.loads(ablations.FILE.read_text())
    for table, rows in ablations.TABLES.items():
        assert stored[table].keys() == rows.keys()
        for name, row in stored[table].items():
            runs = row["accuracy"]
            assert len(runs) == len(ablations.SEEDS) and all(round(360 * run, 9).is_integer() for run in runs)
            assert (row["mean"], row["std"]) == pytest.approx((mean(runs), stdev(runs)))
            if table == "optimizer":
                assert row["tried"].keys() >= {str(rate) for rate in ablations.RATES[name]}
                assert row["tried"][str(row["lr"])] == max(row["tried"].values())


def test_the_rows_of_a_table_differ_in_what_they_are_named_after(ablations):
    for table, fields in {"positions": {"positions"}, "pooling": {"global_pool"}}.items():
        first, *others = ablations.TABLES[table].values()
        for config in others:
            assert replace(config, model=first.model) == first
            assert {name for name, value in vars(config.model).items() if value != vars(first.model)[name]} == fields


def test_a_row_has_the_same_result_each_time(ablations):
    for config in (ablations.TABLES["positions"]["rotary"], ablations.TABLES["norm"]["after, without"]):
        short = replace(config, epochs=1, images=130)
        assert ablations.accuracy(short) == ablations.accuracy(short)


def test_the_gradient_of_post_norm_is_right_and_its_first_weights_are_those_of_pre_norm(ablations):
    shape = dict(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
    after = ablations.PostNormViT(ablations.PostNormConfig(**shape), seed=1, dtype="float64")
    before = ablations.ViT(ablations.ViTConfig(**shape), seed=1, dtype="float64")
    for name, value in before.state_dict().items():
        np.testing.assert_array_equal(after.state_dict()[name], value)
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8))
    assert not np.allclose(before.blocks[0](before.embed(images)[0])[0], after.blocks[0](after.embed(images)[0])[0])
    assert gradcheck.check_model(after, images).max_error < 1e-9
