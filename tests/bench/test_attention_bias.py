import subprocess
import sys

import numpy as np
import pytest

from tinyvit import functional as F
from tinyvit.bench.attention_bias import biases_for, ratios
from tinyvit.bench.cases import AttentionCase

CASE = AttentionCase("", batch_size=4, tokens=5, heads=2, head_dim=4)


def test_every_bias_broadcasts_to_the_scores_and_all_shapes_differ():
    biases = biases_for(CASE)
    assert biases.pop("no bias") is None
    assert all(np.broadcast_shapes(bias.shape, (4, 2, 5, 5)) == (4, 2, 5, 5) for bias in biases.values())
    assert {(4, 2, 5, 5), (2, 5, 5), (5, 5), (4, 1, 1, 5)} < {bias.shape for bias in biases.values()}


@pytest.mark.parametrize("threads", [1, 2])
def test_each_bias_has_its_ratios(threads):
    found = list(ratios(F.attention, CASE, rounds=2, threads=threads))
    assert [name for name, *_ in found] == list(biases_for(CASE))[1:]
    assert all(ratio > 0 for *_, ratio in found)


@pytest.mark.end_to_end
@pytest.mark.parametrize("arguments", ["--rounds 0", "--tokens many", "--width -1", "--colour"])
def test_bad_input_ends_with_one_line_that_names_it(arguments):
    command = [sys.executable, "-m", "tinyvit.bench.attention_bias", *arguments.split()]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2 and ended.stderr.startswith("attention_bias: error:") and ended.stderr.count("\n") == 1
