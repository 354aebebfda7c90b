import json
import shutil

import pytest
from layouts import HUGGINGFACE
from small_weights import WEIGHTS

from tinyvit import interop
from tinyvit.interop import folder
from tinyvit.interop.folder import INDEX, read_if_there, weight_files
from tinyvit.tensors import write_tensors


@pytest.fixture
def copy(saved, tmp_path):
    """A Hugging Face folder that tests may damage."""
    return shutil.copytree(saved / "huggingface", tmp_path / "copy")


@pytest.fixture
def sharded(copy):
    """The same weights in two files with an index."""
    tensors, *_ = HUGGINGFACE.write(WEIGHTS)
    (copy / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for file, part in shards.items():
        write_tensors(copy / file, {name: tensors[name] for name in part})
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (copy / INDEX).write_text(json.dumps(index))
    return copy


def change(path, **changes):
    """Change values of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_weights_in_several_files_are_those_of_one(sharded):
    weights = interop.load(sharded)
    assert weights.config == WEIGHTS.config and weights.state.keys() == WEIGHTS.state.keys()
    for name, array in weights.state.items():
        assert array.tobytes() == WEIGHTS.state[name].tobytes()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "..\\x", "C:x", "a\0b", None, 3, ["x"]], ids=repr
)
def test_an_index_that_names_a_file_elsewhere_is_refused(sharded, name):
    shards = json.loads((sharded / INDEX).read_text())["weight_map"]
    change(sharded / INDEX, weight_map=shards | {"vit.layernorm.bias": name})
    with pytest.raises(ValueError, match="names a file that isn't in it|is missing"):
        interop.load(sharded)


@pytest.mark.parametrize("shards", [[], {}, "model.safetensors", 3])
def test_an_index_without_files_is_refused(sharded, shards):
    change(sharded / INDEX, weight_map=shards)
    with pytest.raises(ValueError, match=r"index\.json is damaged: its weight_map says"):
        interop.load(sharded)


def test_a_missing_one_of_several_files_is_named(sharded):
    (sharded / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-2-of-2\.safetensors is missing"):
        interop.load(sharded)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessor_config.json"])
@pytest.mark.parametrize("target", ["itself", "absent"])
def test_a_link_that_leads_nowhere_is_refused(copy, name, target):
    (copy / name).unlink()
    (copy / name).symlink_to(name if target == "itself" else "absent")
    with pytest.raises(ValueError, match=rf"{name} is missing$"):
        interop.load(copy)


def test_links_as_in_hugging_faces_cache_are_followed(copy, tmp_path):
    (copy / "model.safetensors").rename(tmp_path / "elsewhere")
    (copy / "model.safetensors").symlink_to("../elsewhere")
    (tmp_path / "link").symlink_to(copy)
    assert interop.load(tmp_path / "link").config == WEIGHTS.config


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", None, "names of an unknown layout: .*; give the folder of another model, with its config.json"),
        ("config.json", b"", r"config\.json is damaged or not JSON"),
        ("config.json", b"[]", r"config\.json holds JSON of another kind"),
        ("config.json", b"\xff\xfe{}", r"config\.json is damaged or not JSON"),
        ("config.json", b"[" * 100_000, r"config\.json is damaged or not JSON"),
        ("config.json", b'{"model_type": ' + b"9" * 100_000, r"config\.json is damaged or not JSON"),
        ("config.json", b"{}", r"config\.json has neither Hugging Face's model_type nor timm's architecture"),
        ("config.json", b'{"model_type": "beit"}', r"config\.json has model_type 'beit'; tinyvit reads .*vit, "),
        ("config.json", b'{"architectures": ["ResNet"]}', "has neither Hugging Face's model_type nor"),
        ("config.json", b'{"architecture": "vit_tiny_patch16_224"}', "are not those of this model in timm's layout"),
        ("config.json", b'{"dataset": 1, "model": 2, "optim": 3}', "copy is a run of tinyvit already; use it as it is"),
        ("model.safetensors", None, r"copy holds no weights \(config\.json, preprocessor_config\.json\); expected"),
        ("model.safetensors", b"<html>", r"model\.safetensors is a web page"),
        ("preprocessor_config.json", b"{", r"preprocessor_config\.json is damaged or not JSON"),
    ],
)
def test_a_file_of_a_folder_that_cannot_be_read_is_named_with_the_reason(copy, name, content, reason):
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        interop.load(copy)


def test_a_folder_with_a_pickle_alone_is_refused_as_the_pickle_is(copy):
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(b"\x80\4}.")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is a pickle, as PyTorch's"):
        interop.load(copy)


def test_of_several_weights_files_one_must_be_named(copy):
    (copy / "model.safetensors").rename(copy / "a.safetensors")
    shutil.copy(copy / "a.safetensors", copy / "b.safetensors")
    with pytest.raises(ValueError, match=r"holds several files with weights \(a\.safetensors, b\.safetensors\)"):
        weight_files(copy)
    (copy / "b.safetensors").unlink()
    assert interop.load(copy).config == WEIGHTS.config


def test_an_empty_folder_holds_no_weights(tmp_path):
    with pytest.raises(ValueError, match="holds no weights .it is empty."):
        interop.load(tmp_path)


def test_json_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}" + " " * 100)
    assert read_if_there(tmp_path, "config.json") == {}
    monkeypatch.setattr(folder, "LARGEST", 50)
    with pytest.raises(ValueError, match=r"config\.json has 102 bytes; expected JSON of at most 50"):
        read_if_there(tmp_path, "config.json")
