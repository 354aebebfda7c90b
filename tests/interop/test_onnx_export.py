"""The ONNX export without onnx. The graphs are tested in tests/parity/test_onnx.py, refused weights in test_weights."""

import sys

import pytest
from small_weights import WEIGHTS

from tinyvit.interop import onnx_model
from tinyvit.interop.onnx_export import write_onnx


def test_without_onnx_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for export in (onnx_model, lambda weights: write_onnx(weights, tmp_path / "vit.onnx")):
        with pytest.raises(ValueError) as error:
            export(WEIGHTS)
        message = "ONNX takes the package onnx, which isn't installed: pip install 'tinyvit[onnx]'"
        assert str(error.value) == message
    assert not list(tmp_path.iterdir())
