"""Weights that no format accepts are refused before a byte is written."""

from dataclasses import replace

import numpy as np
import pytest
from small_weights import CONFIG, PLACES, PREPARED, WEIGHTS, weights_of

from tinyvit import interop

PATHS = {**PLACES, "onnx": "w.onnx"}


def with_arrays(**other):
    """The weights with some arrays replaced, or removed if given as None."""
    state = {**WEIGHTS.state, **other}
    return WEIGHTS._replace(state={name: array for name, array in state.items() if array is not None})


def prepared(**changes):
    return WEIGHTS._replace(preprocessing=replace(PREPARED, **changes))


@pytest.mark.parametrize("form", PATHS)
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (with_arrays(**{"head.bias": None, "scale": np.ones(2)}), "missing: head.bias; unexpected: scale$"),
        (with_arrays(**{"head.bias": np.ones(2)}), r"misshapen: head.bias \(expected \(3,\), got \(2,\)\)"),
        (with_arrays(**{"head.bias": np.array([0, np.nan, 1])}), "NaN or infinite in head.bias$"),
        (with_arrays(**{"norm.bias": np.full(12, -np.inf)}), "NaN or infinite in norm.bias$"),
        (prepared(classes=("cat", "dog")), "the model has classes 3, and its preprocessing 2"),
        (prepared(img_size=(12, 8)), r"the model has img_size \(8, 12\), and its preprocessing \(12, 8\)"),
        (prepared(channels=1, mean=(0.5,), std=(0.5,)), "the model has channels 3, and its preprocessing 1"),
    ],
)
def test_weights_that_could_not_be_loaded_again_are_refused(tmp_path, form, weights, message):
    with pytest.raises(ValueError, match=message):
        interop.save(weights, tmp_path / PATHS[form], form)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["torch", None, ["timm"], 3])
def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path, form):
    with pytest.raises(ValueError, match="unknown format .*; expected one of huggingface, timm, npz, onnx"):
        interop.save(WEIGHTS, tmp_path / "x", form)


@pytest.mark.parametrize("form, fields, what", [
    ("huggingface", {"global_pool": "avg"}, "global_pool 'avg'"), ("huggingface", {"head_hidden": 5}, "head_hidden 5"),
    ("huggingface", {"positions": "rope"}, "positions 'rope'"), ("timm", {"positions": "rope"}, "positions 'rope'"),
    ("timm", {"norm_eps": 1e-5}, "norm_eps 1e-05"), ("timm", {"head_hidden": 5}, "head_hidden 5"),
    ("npz", {"activation": "gelu"}, "activation 'gelu', only for 'gelu_tanh'"),
    ("npz", {"norm_eps": 1e-12}, "norm_eps 1e-12, only for 1e-06"), ("npz", {"positions": "rope"}, "positions 'r"),
    ("npz", {"global_pool": "avg"}, "global_pool 'avg', only for 'token'"),
    ("timm", {"activation": "quick_gelu"}, "activation 'q"),
    pytest.param("onnx", {"activation": "quick_gelu"}, "activation 'q", marks=pytest.mark.parity),
])  # fmt: skip
def test_a_vit_that_a_format_has_no_place_for_is_refused_and_nothing_is_written(tmp_path, form, fields, what):
    with pytest.raises(ValueError, match=f"no place for {what}"):
        interop.save(weights_of(replace(CONFIG, embed_dim=24, **fields)), tmp_path / PATHS[form], form)
    assert not any(tmp_path.iterdir())
