"""Hostile folders: each is refused at once, with one line, in little memory."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from small_weights import PLACES, WEIGHTS

from tinyvit import interop

pytestmark = pytest.mark.end_to_end

ABSURD = (10**9, -1, 1e300, [10**9] * 20_000)
HUGGINGFACE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size",
               "patch_size", "num_channels", "hidden_dropout_prob", "layer_norm_eps")  # fmt: skip
TIMM = ("img_size", "patch_size", "in_chans", "embed_dim", "depth", "num_heads", "num_classes", "mlp_ratio")
HARMLESS = {("layer_norm_eps", 10**9), ("layer_norm_eps", 1e300)}  # useless numbers, but numbers
ZERO = "F32", [0], 0


def changed(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def sparse(path, arrays):
    """A sparse safetensors file of zeros that takes no disk space, from (dtype, shape, bytes) by name."""
    header, at = {}, 0
    for name, (dtype, shape, length) in arrays.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + length]}
        at += length
    content = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + at)


def many_classes(folder):
    """Weights of 4 GB with a billion classes, all of which would have to be named."""
    shapes = {"cls_token": [1, 1, 1], "pos_embed": [1, 2, 1], "patch_embed.proj.weight": [1, 3, 4, 4],
              "patch_embed.proj.bias": [1], "blocks.0.mlp.fc1.weight": [1, 1], "head.weight": [10**9, 1]}  # fmt: skip
    arrays = {name: ("F32", shape, 4 * max(shape[0], 1) * (48 if "proj.weight" in name else 1)) for name, shape in
              shapes.items()}  # fmt: skip
    arrays["pos_embed"] = ("F32", [1, 2, 1], 8)
    sparse(folder / "model.safetensors", arrays)
    (folder / "config.json").unlink()


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def replaced(make, name="model.safetensors"):
    """Replace a file by something else."""

    def change(folder):
        (folder / name).unlink()
        make(folder / name)

    return change


OTHERS = {
    "NaN": text("config.json", '{"model_type": "vit", "hidden_size": NaN}'),
    "infinity": text("config.json", '{"model_type": "vit", "layer_norm_eps": Infinity}'),
    "a number of 10,000 digits": text("config.json", '{"model_type": "vit", "depth": ' + "9" * 10_000 + "}"),
    "nested": text("config.json", "[" * 100_000),
    "nested objects": text("config.json", '{"a":' * 100_000),
    "a key twice": text("config.json", '{"model_type": "vit", "model_type": "vit"}'),
    "larger than any": lambda folder: os.truncate(folder / "config.json", 1 << 34),
    "an index of many files": replaced(lambda path: path.with_name(f"{path.name}.index.json").write_text(
        json.dumps({"weight_map": {f"a{i}": f"f{i}" for i in range(100_000)}}))),
    "a fifo": replaced(os.mkfifo),
    "a fifo as config.json": replaced(os.mkfifo, "config.json"),
    "a folder as config.json": replaced(os.mkdir, "config.json"),
    "a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a link to itself": replaced(lambda path: path.symlink_to(path.name)),
    "a header of 2⁶³ bytes": replaced(lambda path: path.write_bytes(b"\xff" * 7 + b"\x7f{" + bytes(99))),
    "a header of 40 MB": replaced(lambda path: sparse(path, {f"a{i}": ZERO for i in range(600_000)})),
    "a million blocks": replaced(lambda path: sparse(path, {
        "patch_embed.proj.weight": ("F32", [1, 1, 1, 1], 4), **{f"blocks.{i}.x": ZERO for i in range(200_000)}})),
    "5,000 blocks": replaced(lambda path: sparse(path, {
        "vit.embeddings.patch_embeddings.projection.weight": ("F32", [1, 1, 1, 1], 4),
        **{f"vit.encoder.layer.{i}.layernorm_before.weight": ("F32", [1], 4) for i in range(5000)}})),
    "shapes without end": replaced(lambda path: sparse(path, {"cls_token": ("F32", [10**18, 10**18, 0], 0)})),
    "too many sides": replaced(lambda path: sparse(path, {"cls_token": ("F32", [1] * 1000, 4)})),
    "a billion classes": many_classes,
}  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """More than fifty hostile folders."""
    root = tmp_path_factory.mktemp("hostile")
    for form in ("huggingface", "timm"):
        interop.save(WEIGHTS, root / PLACES[form], form)
    folders = {}

    def copy(form, name):
        folders[name] = shutil.copytree(root / form, root / f"{len(folders)}")
        return folders[name]

    for number, value in enumerate(ABSURD):
        for field in HUGGINGFACE:
            if not any(case == (field, value) for case in HARMLESS):
                changed(copy("huggingface", f"{field} {number}"), "config.json", **{field: value})
        for field in TIMM:
            folder = copy("timm", f"timm's {field} {number}")
            args = json.loads((folder / "config.json").read_text())["model_args"]
            changed(folder, "config.json", model_args=args | {field: value})
        changed(copy("huggingface", f"image_mean {number}"), "preprocessor_config.json", image_mean=[value, 0, 1e301])
    for name, change in OTHERS.items():
        change(copy("huggingface", name))
    return folders


OPENED = """
import json, resource, sys, time
import tinyvit
from tinyvit import interop
tinyvit.load
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
for name, path in json.load(open(sys.argv[1])).items():
    for load in (interop.load, tinyvit.load):
        start, answer = time.perf_counter(), None
        try:
            load(path)
        except ValueError as error:
            answer = str(error)
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}\\n"
        print(json.dumps([name, answer, time.perf_counter() - start]), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory must be limited, and files sparse")
def test_more_than_fifty_hostile_folders_are_refused_at_once_with_one_line(hostile, tmp_path):
    assert len(hostile) > 50
    (tmp_path / "folders.json").write_text(json.dumps({name: str(path) for name, path in hostile.items()}))
    process = subprocess.run([sys.executable, "-c", OPENED, tmp_path / "folders.json"], capture_output=True, text=True,
                             timeout=300)  # fmt: skip
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert len(answers) == 2 * len(hostile), process.stderr[-2000:]
    for name, answer, seconds in answers:
        assert answer is not None, f"{name} was loaded"
        assert answer.isprintable() and len(answer) < 1500, (name, answer[:1000])
        assert seconds < 10, (name, seconds)
        assert str(hostile[name]) in answer or "config.json" in answer, (name, answer)
