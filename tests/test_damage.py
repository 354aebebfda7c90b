"""Damaged files of a run, of weights and of data: each is refused by its name, or its damage changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cifar import archive, small

from tinyvit.data import cifar, cifar_files
from tinyvit.tensors import load_tensors
from tinyvit.training import PRESETS, train
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.display import SilentDisplay
from tinyvit.training.trained import load_trained

MODEL = replace(PRESETS["digits"].model, embed_dim=4, depth=1, num_heads=1)
CONFIG = replace(PRESETS["digits"], model=MODEL, epochs=1, batch_size=1024, device="cpu", threads=1)
SPEC, CONTENTS = small(cifar.CIFAR10, images=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The run of a small training with one checkpoint, and an archive."""
    folder = tmp_path_factory.mktemp("damage")
    train(CONFIG, folder / "run", SilentDisplay())
    (folder / "data").mkdir()
    (folder / "data" / SPEC.archive).write_bytes(archive(SPEC, CONTENTS))
    return folder


def weights(folder):
    return load_trained(folder / "run", "cpu").model.state_dict()


def checkpoint(folder):
    return Checkpoints(folder / "run" / "checkpoints").newest(lambda message: None)[1]


def bare(folder):  # there is no manifest, so other numbers go unnoticed; but nothing may crash
    load_tensors(folder / "run" / "model.safetensors")


def configuration(folder):  # likewise
    load_trained(folder / "run", "cpu")


def rows(folder):
    return cifar_files.read(SPEC, folder / "data")


@st.composite
def damages(draw, content):
    """Bytes of a file that is cut off, has another bit or another length somewhere, or lacks a piece."""
    place = draw(st.integers(0, len(content) - 1))
    other = draw(st.sampled_from([b"", bytes([content[place] ^ 1 << draw(st.integers(0, 7))]), b"\xff" * 7 + b"\x7f"]))
    return draw(st.sampled_from([content[:place], content[:place] + other + content[place + max(1, len(other)) :]]))


@pytest.mark.parametrize("pattern, read", [
    ("run/model.safetensors", weights), ("run/model.safetensors", bare), ("run/model.json", weights),
    ("run/config.json", configuration), ("run/preprocessing.json", configuration),
    ("run/checkpoints/step-*.safetensors", checkpoint), ("run/checkpoints/step-*.json", checkpoint),
    (f"data/{SPEC.archive}", rows),
])  # fmt: skip
@given(data=st.data())
def test_a_damaged_file_is_refused_by_its_name_or_read_as_it_was(folder, pattern, read, data):
    (file,) = folder.glob(pattern)
    whole, expected = file.read_bytes(), read(folder)
    file.write_bytes(data.draw(damages(whole)))
    try:
        found = read(folder)
        for name in expected or ():
            np.testing.assert_array_equal(found[name], expected[name])
    except ValueError as error:
        assert file.name in str(error) or file.parent.name in str(error)
    finally:
        file.write_bytes(whole)
