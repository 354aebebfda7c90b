"""Tests marked `gpu` run wherever a GPU works: a plain `pytest` includes them there and leaves them out elsewhere.

Where they are asked for by `-m gpu` and there is none, that is an error with the reason.
"""

import re

import pytest

from tinyvit.backend import why_no_gpu

NOT_GPU = " and not gpu"


def choose(config):
    """Adjust the mark expression before tests are collected."""
    usual = config.getini("addopts")
    usual, asked = usual[usual.index("-m") + 1], config.option.markexpr
    if asked == usual and why_no_gpu() is None:
        config.option.markexpr = usual.replace(NOT_GPU, "")
    elif re.search(r"(?<!\bnot )\bgpu\b", asked):
        reason = why_no_gpu()
        if reason:
            raise pytest.UsageError(f"tests with the mark gpu need a GPU that works: {reason}")
