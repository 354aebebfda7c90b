"""What the ONNX export refuses before it imports onnx. The graphs are tested in tests/parity/test_onnx.py."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig
from tinyvit.backend import to_numpy
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.interop import Weights, onnx_model
from tinyvit.interop.onnx_export import write_onnx

CONFIG = ViTConfig((4, 6), 2, in_chans=1, num_classes=2, embed_dim=8, depth=1, num_heads=2)
PREPROCESSING = Preprocessing(("cat", "dog"), 1, (4, 6), (0.5,), (0.25,))


def weights(**other):
    """Weights that can be exported, with some arrays replaced, or removed if given as None."""
    state = {name: to_numpy(array) for name, array in ViT(CONFIG).state_dict().items()} | other
    return Weights(CONFIG, {name: array for name, array in state.items() if array is not None}, PREPROCESSING)


def test_without_onnx_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for export in (onnx_model, lambda weights: write_onnx(weights, tmp_path / "vit.onnx")):
        with pytest.raises(ValueError) as error:
            export(weights())
        message = "ONNX takes the package onnx, which isn't installed: pip install 'tinyvit[onnx]'"
        assert str(error.value) == message
    assert not list(tmp_path.iterdir())


def test_everything_that_does_not_fit_the_configuration_is_listed_at_once():
    wrong = weights(**{"norm.weight": None, "norm.bias": np.ones(7), "norm.scale": np.ones(8)})
    message = r"missing: norm.weight; unexpected: norm.scale; misshapen: norm.bias \(expected \(8,\), got \(7,\)\)"
    with pytest.raises(ValueError, match=f"the arrays are not those of this model in tinyvit: {message}"):
        onnx_model(wrong)


@pytest.mark.parametrize("dtype", ["complex128", "int64", "bool", "O"])
def test_arrays_of_other_than_real_numbers_are_refused_by_name(dtype):
    with pytest.raises(ValueError, match=rf"expected floating-point numbers, got head.bias \({np.dtype(dtype)}\)"):
        onnx_model(weights(**{"head.bias": np.zeros(2, dtype)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(channels=3, mean=(0.5,) * 3, std=(0.5,) * 3), "the model has channels 1, and its preprocessing 3"),
        (dict(img_size=(6, 4)), r"the model has img_size \(4, 6\), and its preprocessing \(6, 4\)"),
        (dict(classes=("cat",)), "the model has classes 2, and its preprocessing 1"),
    ],
)
def test_a_preprocessing_of_another_model_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        onnx_model(weights()._replace(preprocessing=replace(PREPROCESSING, **changes)))
