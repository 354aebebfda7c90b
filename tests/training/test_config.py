import json
from dataclasses import asdict, replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import ViTConfig
from tinyvit.data import DATASETS
from tinyvit.data.images import RESAMPLE
from tinyvit.levels import LEVELS
from tinyvit.nn.precision import PRECISIONS
from tinyvit.training import PRESETS, AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.config import from_json, to_json

UNUSUAL = TrainConfig(
    "folder", ViTConfig((8, 12), (4, 3), head_hidden=3, activation="gelu_tanh"), out="Läufe/é 1", seed=2**64,
    classes=("b", "a"), images=7, validation=0.25, device="cuda:12", precision="bfloat16", threads=3, kernels="numpy",
    mean=(0.1, 0.2, 0.3), std=(1e-9, 1.0, 2.0), crop=None, freeze="1",
    optim=OptimConfig(name="muon", clip_norm=None, ema=0.5, filter_lr=1e9), augment=AugmentConfig(mixup=1e9),
)  # fmt: skip


@pytest.mark.parametrize("config", [UNUSUAL, *PRESETS.values()], ids=["unusual", *PRESETS])
def test_a_configuration_is_read_back_from_json_unchanged(config):
    assert from_json(to_json(config), "config.json") == config


@pytest.mark.parametrize(("field", "known"), [
    ("dataset", DATASETS), ("precision", PRECISIONS), ("kernels", LEVELS), ("resample", RESAMPLE),
])  # fmt: skip
def test_the_checked_values_are_those_that_the_command_line_offers(field, known):
    annotation = get_type_hints(TrainConfig)[field]
    literal = annotation if get_origin(annotation) is Literal else get_args(annotation)[0]
    assert set(get_args(literal)) == set(known)


def test_a_file_without_resample_and_crop_has_their_defaults():
    values = json.loads(to_json(PRESETS["folder"]))
    del values["resample"], values["crop"]
    assert from_json(json.dumps(values), "config.json") == PRESETS["folder"]


VALID = asdict(PRESETS["digits"])


def changed(**fields):
    """The JSON of a valid configuration with some fields replaced; "optim.lr" is a field of a field."""
    values = json.loads(json.dumps(VALID))
    for name, value in fields.items():
        *above, last = name.split("__")
        target = values
        for part in above:
            target = target[part]
        target[last] = value
    return json.dumps(values)


@given(values=st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)
               | st.dictionaries(st.text() | st.sampled_from(sorted(VALID)), inner)))  # fmt: skip
def test_any_other_json_is_refused_by_the_name_of_its_file(values):
    with pytest.raises(ValueError, match=r"^runs/x/config\.json is not a tinyvit configuration: "):
        from_json(json.dumps(values), "runs/x/config.json")


@pytest.mark.parametrize(
    "text",
    ["", "\0", "{", json.dumps(VALID)[:-1], "[" * 100_000, json.dumps({"model_type": "vit", "hidden_size": 768})],
    ids=["empty", "binary", "brace", "cut off", "deep", "foreign"],
)
def test_text_that_is_not_json_or_of_another_library_is_refused_by_the_name_of_its_file(text):
    with pytest.raises(ValueError, match=r"^config\.json is not a tinyvit configuration: "):
        from_json(text, "config.json")


@pytest.mark.parametrize("fields", [
    {"epochs": 0}, {"epochs": "60"}, {"data_dir": 5}, {"device": "cuda:-1"}, {"kernels": 1}, {"crop": "all"},
    {"optim": None}, {"optim__lr": "fast"}, {"optim__lr": float("nan")}, {"optim__betas": [0.9]}, {"augment__flip": 1},
    {"augment__operations": 10**6}, {"model": None}, {"model__width": 64}, {"model__patch_size": 3},
    {"model__mlp_ratio": float("inf")}, {"model__norm_eps": "small"}, {"model__depth": 10**9},
], ids=lambda fields: "=".join(map(str, *fields.items())))  # fmt: skip
def test_a_wrong_value_in_a_file_is_refused_by_the_name_of_the_file(fields):
    with pytest.raises(ValueError, match=r"^config\.json is not a tinyvit configuration: "):
        from_json(changed(**fields), "config.json")


@pytest.mark.parametrize(("fields", "message"), [
    ({"batch_size": 0}, "batch-size must be a positive int, got 0"),
    ({"seed": -1}, "seed must be an int of at least 0, got -1"),
    ({"precision": "bfloat17"}, "precision must be one of auto, .*, bfloat16, float16, got 'bfloat17'"),
    ({"device": "tpu"}, "unknown device 'tpu'; expected one of auto, cpu, cuda, or cuda:0"),
    ({"device": "cpu", "precision": "tf32"}, "precision 'tf32' needs a GPU; on the CPU take float32"),
    ({"dataset": "folder", "crop": 0.0}, "crop must be a number above 0 and at most 1 or None, got 0.0"),
    ({"crop": 0.5}, "crop is for the images of a folder; for digits it must be 1, or None .*, got 0.5"),
])  # fmt: skip
def test_an_invalid_run_is_refused_with_the_given_value(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(PRESETS["digits"], **fields)


@pytest.mark.parametrize(("fields", "message"), [
    ({"lr": float("inf")}, "lr must be a positive finite number, got inf"),
    ({"weight_decay": -0.1}, r"optim\.weight-decay must be a finite number of at least 0, got -0\.1"),
    ({"betas": (0.9, 1.0)}, r"betas .*got \(0\.9, 1\.0\)"),
    ({"schedule": "step"}, "one of constant, linear, cosine, one-cycle, got 'step'"),
    ({"clip_norm": float("nan")}, "clip-norm must be a positive finite number or None, got nan"),
    ({"label_smoothing": 1}, "label-smoothing must be a number of at least 0 and below 1, got 1"),
])  # fmt: skip
def test_an_invalid_optimizer_is_refused_with_the_given_value(fields, message):
    with pytest.raises(ValueError, match=message):
        OptimConfig(**fields)
