"""Which mapping reads which layout, and that a new mapping is one file."""

import json

import layouts
import numpy as np
import pytest
from small_weights import PREPARED, WEIGHTS

import tinyvit.tensors
from tinyvit import interop
from tinyvit.interop import mappings, original, timm
from tinyvit.interop.mappings import Mapping, mapping_for, mapping_of_config, mapping_of_names, register

TIMM = list(timm.write(WEIGHTS)[0])


def test_the_layouts_that_need_no_config_json_are_recognised_by_their_names():
    assert mapping_of_names(TIMM, "source").format == "timm"
    assert mapping_of_names(original.write(WEIGHTS), "source").format == "original"


@pytest.mark.parametrize("names", [[f"{prefix}{name}" for name in TIMM] for prefix in ("module.", "visual.trunk.")] + [
    layouts.HUGGINGFACE.write(WEIGHTS)[0], ["x" * 100_000]])  # fmt: skip
def test_an_unknown_layout_is_refused_with_a_few_of_its_names(names):
    with pytest.raises(ValueError, match="^source has names of an unknown layout: .*; without a config.js") as error:
        mapping_of_names(names, "source")
    assert next(iter(names))[:100] in str(error.value) and len(str(error.value)) < 700


@pytest.mark.parametrize("field, readable", [
    ("model_type", "clip, resnet, bit, swin, vit, vit_mae, deit, dinov2, dinov2_with_registers, vivit, "
     "qwen2_5_vl_vision, qwen2_5_vl"),
    ("architecture",
     "vit_*, deit_*, deit3_*, flexivit_*, resnet[1-9]*, resnetv2_*_bit*, vit_*_r*_s*, deit_*_distilled_*, swin_*"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["swine", "", "x" * 10_000, "\x1b[2J", None, 3, ["vit"], {"a": 1}])
def test_an_unknown_model_type_is_refused_with_those_that_can_be_read(tmp_path, field, readable, kind):
    with pytest.raises(ValueError) as error:
        mapping_of_config({field: kind}, tmp_path)
    message = str(error.value)
    assert f"has {field} " in message and message.endswith(f"; tinyvit reads {readable}")
    assert message.isprintable() and len(message) < 400


def test_a_format_without_a_place_for_an_architecture_is_refused():
    assert mapping_for("timm", "vit").write is timm.write
    with pytest.raises(ValueError, match="architecture 'coatnet' can't be written in the format 'timm'"):
        mapping_for("timm", "coatnet")


def test_a_model_type_of_its_own_is_read_and_written_by_registering_one_mapping(tmp_path, monkeypatch):
    """Nothing else is changed: not how files are opened, nor `tinyvit.load`."""
    monkeypatch.setattr(mappings, "MAPPINGS", list(mappings.MAPPINGS))

    def read(tensors, about, *, mean=None):
        state = {name.removeprefix("toy."): array for name, array in tensors.items()}
        return interop.Weights(WEIGHTS.config, state, PREPARED, (about["toy_note"],))

    register(Mapping("huggingface", ("toy",), "toy", read, None, ("config.json",), ("mean",)))
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "toy", "toy_note": "as a toy says"}))
    tinyvit.tensors.write_tensors(folder / "model.safetensors", {f"toy.{k}": v for k, v in WEIGHTS.state.items()})
    model = tinyvit.load(folder)
    assert model.notes == ("as a toy says",)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, WEIGHTS.state[name])
    with pytest.raises(ValueError, match="toy already says num_heads; leave out num_heads"):
        tinyvit.load(folder, num_heads=3)
