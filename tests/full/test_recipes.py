"""The accuracies that the presets reach on real images."""

import json
import os
from statistics import mean

import pytest

from tinyvit import cli

pytestmark = pytest.mark.full


def summary_of(tmp_path, *arguments):
    """The summary that `tinyvit train …` writes."""
    run = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *arguments, "--out", str(run)])
    assert ended.value.code == 0
    return json.loads((run / "summary.json").read_text())


def accuracy_of(tmp_path, *arguments):
    """The test accuracy in it."""
    return summary_of(tmp_path, *arguments)["test_accuracy"]


def test_the_digits_reach_98_percent_on_average_over_five_seeds_and_97_with_each(tmp_path):
    accuracies = [accuracy_of(tmp_path / str(seed), "digits", "--seed", str(seed)) for seed in range(5)]
    assert mean(accuracies) >= 0.98 and min(accuracies) >= 0.97, accuracies


def test_one_epoch_on_cifar10_reaches_48_percent(tmp_path):
    folder = os.environ.get("TINYVIT_TEST_CIFAR10")
    assert folder, "set TINYVIT_TEST_CIFAR10 to a folder with CIFAR-10's binary version"
    assert accuracy_of(tmp_path, "cifar10-cpu", "--epochs", "1", "--data-dir", folder) >= 0.48


def test_clip_finds_the_captions_of_seen_pairs_and_of_many_that_it_has_not_seen(tmp_path):
    summary = summary_of(tmp_path, "clip-digits")
    assert summary["seen_accuracy"] >= 0.95 and summary["unseen_accuracy"] >= 0.4


def test_directions_of_moving_digits_are_told_from_a_single_epoch(tmp_path):
    assert accuracy_of(tmp_path, "moving-digits", "--epochs", "1") >= 0.95


def test_digits_on_photographs_are_segmented(tmp_path):
    summary = summary_of(tmp_path, "segment-digits")
    assert summary["mean_iou"] >= 0.72 and summary["pixel_accuracy"] > 0.9
