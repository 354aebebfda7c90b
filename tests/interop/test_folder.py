import io
import json
import pickle
import shutil
import zipfile
from shlex import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import HUGGINGFACE
from small_weights import WEIGHTS

from tinyvit import interop
from tinyvit.interop.folder import INDEX, file_kind, read_npz, weight_files
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


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\0b", None, ["x"]], ids=repr)
def test_an_index_that_names_a_file_elsewhere_is_refused(sharded, name):
    shards = json.loads((sharded / INDEX).read_text())["weight_map"]
    change(sharded / INDEX, weight_map=shards | {"vit.layernorm.bias": name})
    with pytest.raises(ValueError, match="names a file that isn't in it|is missing|is not a file"):
        interop.load(sharded)


def test_a_missing_one_of_several_files_is_named_and_an_index_without_files_refused(sharded):
    (sharded / "model-2-of-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-2-of-2\.safetensors is missing"):
        interop.load(sharded)
    for shards in ([], {}, "model.safetensors", 3):
        change(sharded / INDEX, weight_map=shards)
        with pytest.raises(ValueError, match=r"index\.json is damaged: its weight_map says"):
            interop.load(sharded)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessor_config.json"])
@pytest.mark.parametrize("target", ["itself", "absent"])
def test_a_link_that_leads_nowhere_is_refused(copy, name, target):
    (copy / name).unlink()
    (copy / name).symlink_to(name if target == "itself" else "absent")
    with pytest.raises(ValueError, match=rf"{name} is (missing|not a file)$"):
        interop.load(copy)


def test_links_as_in_hugging_faces_cache_are_followed(copy, tmp_path):
    (copy / "model.safetensors").rename(tmp_path / "elsewhere")
    (copy / "model.safetensors").symlink_to("../elsewhere")
    (tmp_path / "link").symlink_to(copy)
    assert interop.load(tmp_path / "link").config == WEIGHTS.config


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", None, "unknown layout: .*; for another model pass its folder, with its config.json"),
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


# -- files of other kinds ---------------------------------------------------------------------------------------------


def zipped(name, content=b"\x80\2}.", compress=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compress) as archive:
        archive.writestr(zipfile.ZipInfo(name), content)  # without the time, so that tests keep their names
    return file.getvalue()


@pytest.mark.parametrize(("content", "what"), [
    (b"", "is empty"),
    (b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "is a web page, saved in place of the weights"),
    (b"<html>404</html>", "is a web page, saved in place of the weights; download the file itself"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a git-LFS pointer"),
    (bytes(range(1, 250)), "is of an unknown format, cut off or damaged; expected a .safetensors"),
    (b"\x10\0\0", "is of an unknown format, cut off or damaged"),
])  # fmt: skip
def test_the_error_says_which_kind_of_file_a_foreign_one_is(tmp_path, content, what):
    (tmp_path / "w.npz").write_bytes(content)
    with pytest.raises(ValueError) as error:
        file_kind(tmp_path / "w.npz")
    assert str(error.value).startswith(f"{tmp_path / 'w.npz'} {what}")


def test_file_kinds_are_recognised_by_content_and_not_by_name(tmp_path):
    write_tensors(tmp_path / "a.bin", {"x": np.ones(3)})
    (tmp_path / "b.pt").write_bytes(npz(x=np.ones(3)))
    assert (file_kind(tmp_path / "a.bin"), file_kind(tmp_path / "b.pt")) == ("safetensors", "npz")


PICKLES = {
    "plain": pickle.dumps({"weight": [1, 2]}, protocol=4),
    "of PyTorch before it took zips": b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps({}, protocol=2),
    "in a zip": zipped("archive/data.pkl"),
}


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_a_pickle_is_refused_with_the_reason_and_the_command_that_converts_it(tmp_path, content):
    path = tmp_path / "pytorch model.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="to read it runs whatever code is in it") as error:
        file_kind(path)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(f" {quote(str(path))} {quote(str(tmp_path / 'model.safetensors'))}")


# -- .npz -------------------------------------------------------------------------------------------------------------


def npz(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def npy(array):
    content = io.BytesIO()
    np.lib.format.write_array(content, array)
    return content.getvalue()


@given(place=st.integers(0, 8 * 3000 - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_an_npz_is_found_anywhere_in_an_array(place, bit, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    content = bytearray(npz(before=np.zeros(3), x=np.full(3000, 3.0), y=np.ones(3)))
    content[content.index(np.full(3000, 3.0).tobytes()) + place] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is cut off, damaged .*: Bad CRC-32 for file 'x.npy'"):
        read_npz(path)


ONES = npy(np.ones(3))


@pytest.mark.parametrize(("content", "reason"), [
    (npz(x=np.ones(3))[:60], "File is not a zip file"),
    (zipped("x.npy", ONES[:-1]), "EOF"),
    (zipped("x.npy", ONES.replace(b"(3,), }" + 9 * b" ", b"(1000000000,), }"), zipfile.ZIP_DEFLATED), ""),
    (zipped("x.npy", npy(np.array([{}]))), "Object arrays cannot be loaded"),
])  # fmt: skip
def test_an_invalid_npz_is_refused_with_the_file_and_the_reason(tmp_path, content, reason):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.npz is cut off, damaged or not an \.npz of arrays: .*{reason}"):
        read_npz(tmp_path / "a.npz")


def test_an_npz_larger_than_the_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000))
    monkeypatch.setattr("tinyvit.backend.physical_memory", lambda: 4000)
    with pytest.raises(ValueError, match=r"a\.npz is .*: it unpacks to .* GiB, but this machine has"):
        read_npz(tmp_path / "a.npz")
