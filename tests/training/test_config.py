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
from tinyvit.models.vit_config import POOLINGS, POSITIONS
from tinyvit.nn.precision import PRECISIONS
from tinyvit.optim import SCHEDULES
from tinyvit.training import PRESETS, AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.config import from_json, to_json

rates = st.floats(0, 1, exclude_max=True)
positive = st.floats(0, 1e9, exclude_min=True)
counts = st.integers(1, 10**6)
paths = st.none() | st.text(st.characters(codec="utf-8"), min_size=1)


@st.composite
def shapes(draw):
    """A ViTConfig of any valid shape."""
    heads, patch = draw(st.integers(1, 8)), draw(st.integers(1, 16))
    square = st.integers(1, 8).map(lambda side: side * patch)
    return ViTConfig(
        img_size=draw(square | st.tuples(square, square)),
        patch_size=draw(st.sampled_from([patch, (patch, 1), (1, 1)])),
        in_chans=draw(counts),
        num_classes=draw(counts),
        embed_dim=4 * heads * draw(st.integers(1, 50)),
        depth=draw(st.integers(1, 1000)),
        num_heads=heads,
        mlp_ratio=draw(st.floats(0.25, 8)),
        qkv_bias=draw(st.booleans()),
        global_pool=draw(st.sampled_from(POOLINGS)),
        positions=draw(st.sampled_from(POSITIONS)),
        head_hidden=draw(st.none() | counts),
        drop_rate=draw(rates),
        attn_drop_rate=draw(rates),
        drop_path_rate=draw(rates),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh"])),
        norm_eps=draw(positive),
    )


optims = st.builds(
    OptimConfig,
    name=st.sampled_from(["adamw", "adam", "sgd", "adagrad", "muon"]),
    lr=positive,
    adam_lr=positive,
    momentum=rates,
    nesterov=st.booleans(),
    layer_decay=st.floats(0.01, 1),
    accumulate=counts,
    ema=st.none() | st.floats(0.01, 0.99),
    keep_until=st.floats(0, 1),
    weight_decay=st.floats(0, 1e9),
    betas=st.tuples(rates, rates),
    schedule=st.sampled_from(list(SCHEDULES)),
    warmup=st.floats(0, 1),
    clip_norm=st.none() | positive,
    label_smoothing=rates,
)
augmentations = st.builds(
    AugmentConfig,
    crop=st.integers(0, 100),
    flip=st.booleans(),
    policy=st.sampled_from(["none", "trivial", "rand"]),
    operations=st.integers(1, 100),
    magnitude=st.floats(0, 30),
    erase=st.floats(0, 1),
    mixup=st.floats(0, 1e9),
    cutmix=st.floats(0, 1e9),
    mix_prob=st.floats(0, 1),
)
configs = st.builds(
    TrainConfig,
    dataset=st.sampled_from(["digits", "cifar10", "cifar100", "folder"]),
    model=shapes(),
    out=paths,
    seed=st.integers(0, 2**64),
    epochs=counts,
    batch_size=counts,
    data_dir=paths,
    validation=rates,
    evaluate_every=counts,
    save_minutes=st.floats(0, 1e9),
    tensorboard=st.booleans(),
    device=st.sampled_from(["auto", "cuda", "cuda:0", "cuda:12"]),
    precision=st.sampled_from(PRECISIONS),
    threads=st.none() | counts,
    recompute=st.booleans(),
    kernels=st.none() | st.sampled_from(LEVELS),
    optim=optims,
    augment=augmentations,
)


@given(config=configs)
def test_a_configuration_is_read_back_from_json_unchanged(config):
    assert from_json(to_json(config), "config.json") == config


@pytest.mark.parametrize(("field", "known"), [
    ("dataset", DATASETS), ("precision", PRECISIONS), ("kernels", LEVELS), ("resample", RESAMPLE),
])  # fmt: skip
def test_the_checked_values_are_those_that_the_command_line_offers(field, known):
    annotation = get_type_hints(TrainConfig)[field]
    literal = annotation if get_origin(annotation) is Literal else get_args(annotation)[0]
    assert set(get_args(literal)) == set(known)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_read_back_from_json_unchanged(name):
    assert from_json(to_json(PRESETS[name]), "config.json") == PRESETS[name]


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


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 0},
        {"epochs": "60"},
        {"batch_size": 64.5},
        {"seed": -1},
        {"data_dir": 5},
        {"dataset": "imagenet"},
        {"device": "tpu"},
        {"device": "cuda:-1"},
        {"device": 0},
        {"precision": "float8"},
        {"kernels": "quick"},
        {"kernels": 1},
        {"resample": 3},
        {"crop": "all"},
        {"optim": None},
        {"optim__lr": "fast"},
        {"optim__lr": float("nan")},
        {"optim__betas": [0.9]},
        {"optim__clip_norm": 0},
        {"optim__warmup": 1.5},
        {"augment__crop": -1},
        {"augment__flip": 1},
        {"augment__policy": "auto"},
        {"augment__magnitude": "strong"},
        {"augment__mixup": -1.0},
        {"model": None},
        {"model__width": 64},
        {"model__patch_size": 3},
        {"model__embed_dim": 65},
        {"model__mlp_ratio": float("inf")},
        {"model__mlp_ratio": "2"},
        {"model__norm_eps": "small"},
        {"model__norm_eps": -1.0},
        {"model__depth": 10**9},
        {"augment__operations": 10**6},
        {"model__positions": "absolute"},
    ],
    ids=lambda fields: "=".join(map(str, *fields.items())),
)
def test_a_wrong_value_in_a_file_is_refused_by_the_name_of_the_file(fields):
    with pytest.raises(ValueError, match=r"^config\.json is not a tinyvit configuration: "):
        from_json(changed(**fields), "config.json")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be a positive int, got 0"),
        ({"batch_size": 0}, "batch-size must be a positive int, got 0"),
        ({"seed": -1}, "seed must be an int of at least 0, got -1"),
        ({"threads": 0}, "threads must be a positive int or None, got 0"),
        ({"precision": "bfloat17"}, "precision must be one of float32, .*, bfloat16, float16, got 'bfloat17'"),
        ({"device": "tpu"}, "unknown device 'tpu'; expected one of auto, cpu, cuda, or cuda:0"),
        ({"device": "cpu", "precision": "tf32"}, "precision 'tf32' needs a GPU; on the CPU take float32"),
        ({"dataset": "mnist"}, "dataset must be one of digits, .*, got 'mnist'"),
        ({"kernels": "quick"}, "kernels must be one of reference, numpy, fast or None, got 'quick'"),
        ({"resample": "cubic"}, "resample must be one of nearest, bilinear, bicubic, .*, got 'cubic'"),
        ({"dataset": "folder", "crop": 0.0}, "crop must be a number above 0 and at most 1 or None, got 0.0"),
        ({"crop": 0.5}, "crop is for the images of a folder; for digits it must be 1, or None .*, got 0.5"),
    ],
)
def test_an_invalid_run_is_refused_with_the_given_value(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(PRESETS["digits"], **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 0}, "lr must be a positive finite number, got 0"),
        ({"lr": float("inf")}, "lr must be a positive finite number, got inf"),
        ({"weight_decay": -0.1}, r"optim\.weight-decay must be a finite number of at least 0, got -0\.1"),
        ({"betas": (0.9, 1.0)}, r"betas .*got \(0\.9, 1\.0\)"),
        ({"betas": (0.9,)}, r"betas .*got \(0\.9,\)"),
        ({"schedule": "step"}, "one of constant, linear, cosine, one-cycle, got 'step'"),
        ({"warmup": 1.1}, r"warmup must be a number from 0 to 1, got 1\.1"),
        ({"clip_norm": 0}, "clip-norm must be a positive finite number or None, got 0"),
        ({"clip_norm": float("nan")}, "clip-norm must be a positive finite number or None, got nan"),
        ({"label_smoothing": 1}, "label-smoothing must be a number of at least 0 and below 1, got 1"),
    ],
)
def test_an_invalid_optimizer_is_refused_with_the_given_value(fields, message):
    with pytest.raises(ValueError, match=message):
        OptimConfig(**fields)
