"""Files that our commands write, read by other libraries; and files of other libraries, read by our commands."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
import transformers
from layouts import HUGGINGFACE
from PIL import Image
from small_weights import WEIGHTS

from tinyvit import cli, interop
from tinyvit.interop import timm
from tinyvit.training.trained import load_trained

pytestmark = pytest.mark.parity


@pytest.fixture
def run(tmp_path, monkeypatch):
    """An imported run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    interop.save(WEIGHTS, "source", "timm")
    command("import", "source", "--out", "run")
    return tmp_path / "run"


def command(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main(list(map(str, arguments)))
    assert not end.value.code


def test_an_exported_folder_is_a_model_and_an_image_processor_of_transformers(run, capsys):
    command("export", "run", "--format", "huggingface", "--out", "exported")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype("uint8")
    Image.fromarray(pixels).save("photo.png")
    processor = transformers.AutoImageProcessor.from_pretrained("exported", use_fast=False)
    model = transformers.ViTForImageClassification.from_pretrained("exported")
    with torch.no_grad():
        logits = model(**processor(Image.open("photo.png"), return_tensors="pt")).logits[0]
    expected = {model.config.id2label[i]: float(p) for i, p in enumerate(torch.softmax(logits, 0))}
    capsys.readouterr()
    command("predict", "run", "photo.png", "--json", "--device", "cpu")
    got = {entry["class"]: entry["probability"] for entry in json.loads(capsys.readouterr().out)["top"]}
    assert got == pytest.approx(expected, rel=1e-4)


def test_an_exported_graph_runs_in_onnxruntime(run):
    command("export", "run", "--format", "onnx", "--out", "vit.onnx")
    images = np.random.default_rng(0).standard_normal((5, 3, 8, 12)).astype("float32")
    (logits,) = onnxruntime.InferenceSession("vit.onnx").run(None, {"images": images})
    expected, _ = load_trained(run, "cpu").model(images)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


# -- pickles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrapped", [None, "model", "state_dict"])
def test_a_pickle_is_converted_by_the_command_in_the_error(tmp_path, zipped, wrapped):
    tensors, about = timm.write(WEIGHTS)
    state = {name: torch.tensor(array) for name, array in tensors.items()}
    state["blocks.0.norm1.weight"] = state["blocks.1.norm1.weight"] = torch.ones(2, 12)[0]  # shared, and a view
    folder = tmp_path / "a folder"
    folder.mkdir()
    saved = {wrapped: state} if wrapped else state
    torch.save(saved, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(ValueError) as error:
        interop.load(folder)
    line = shlex.split(re.search("convert it: (python .*)", str(error.value))[1])
    subprocess.run([sys.executable, *line[1:]], check=True)
    weights = interop.load(folder)
    for name, tensor in state.items():
        np.testing.assert_array_equal(weights.state[name], tensor.numpy())


# -- other architectures, as Transformers writes them -----------------------------------------------------------------

SMALL = dict(
    hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=24, image_size=8, patch_size=4
)  # fmt: skip
OTHERS = {
    "beit": (transformers.BeitConfig(**SMALL), transformers.BeitModel),
    "clip_vision_model": (transformers.CLIPVisionConfig(**SMALL), transformers.CLIPVisionModel),
    "convnext": (transformers.ConvNextConfig(hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1]),
                 transformers.ConvNextForImageClassification),
    "regnet": (transformers.RegNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], groups_width=8),
               transformers.RegNetForImageClassification),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "config", "model"), [(kind, *made) for kind, made in OTHERS.items()], ids=OTHERS)
def test_other_architectures_are_refused_by_their_configuration_and_without_it_by_their_names(
    tmp_path, kind, config, model
):
    model(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"config\.json has model_type '{kind}'; tinyvit reads "):
        interop.load(tmp_path)
    (tmp_path / "config.json").unlink()
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(ValueError, match=r"names of an unknown layout|has no config\.json|Hugging Face's names"):
            interop.load(path)


def test_weights_of_several_files_as_transformers_writes_them_are_read(tmp_path):
    tensors, about, _ = HUGGINGFACE.write(WEIGHTS)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**about))
    model.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()}, strict=False)
    model.save_pretrained(tmp_path, max_shard_size="5kB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    expected = model.state_dict()["classifier.weight"].numpy()
    np.testing.assert_array_equal(interop.load(tmp_path).state["head.weight"], expected)
