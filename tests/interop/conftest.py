import json

import numpy as np
import pytest
from small_weights import PLACES, write_all

from tinyvit import interop
from tinyvit.tensors import load_tensors, write_tensors


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders and files with the same weights, by format; the .npz also packed."""
    root = write_all(tmp_path_factory.mktemp("saved"))
    np.savez_compressed(root / "packed.npz", **np.load(root / PLACES["npz"]))
    return root


@pytest.fixture
def folder(tmp_path):
    """A function that writes weights for Hugging Face, with changes to config.json or to the arrays."""

    def write(weights, edit=None, **about):
        path = tmp_path / "theirs"
        interop.save(weights, path, "huggingface")
        said = json.loads((path / "config.json").read_text()) | about
        (path / "config.json").write_text(json.dumps(said))
        if edit:
            tensors = dict(load_tensors(path / "model.safetensors"))
            edit(tensors)
            (path / "model.safetensors").unlink()
            write_tensors(path / "model.safetensors", tensors)
        return path

    return write
