"""tinyvit match, on a trained run and on imported weights; and the other commands on a run of a CLIP."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from tinyvit.data import load

SHAPE = ["--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2", "--model.text-dim", "16",
         "--model.text-heads", "2", "--batch-size", "1024", "--device", "cpu"]  # fmt: skip
TEXTS = ["--text", "red seven on the left", "--text", "a blue one"]


@pytest.fixture
def clip(trained):
    """The folder of a finished run."""
    return trained("clip-digits", *SHAPE)


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(load("coloured-digits").test.images[0].transpose(1, 2, 0)).save(path)
    return path


def test_probabilities_of_several_texts_for_each_image(succeeds, clip, image):
    summary = json.loads((clip / "summary.json").read_text())
    assert summary["chance_accuracy"] == 1 / 180
    assert all(0 <= summary[name] <= 1 for name in ("seen_accuracy", "unseen_accuracy"))
    first, second = map(json.loads, succeeds("match", clip, image, image, *TEXTS, "--json").splitlines())
    assert first["image"] == second["image"] == str(image)
    for one, other in zip(first["texts"], second["texts"], strict=True):  # a BLAS may round each row in its own way
        assert one == {"text": other["text"], "probability": pytest.approx(other["probability"], rel=1e-5)}
    assert [found["text"] for found in first["texts"]] == ["red seven on the left", "a blue one"]
    assert sum(found["probability"] for found in first["texts"]) == pytest.approx(1)
    out = succeeds("match", clip, image, *TEXTS, "--template", "a {}", "--template", "the {}")
    assert "red seven on the left   " in out and " %" in out


@pytest.mark.parametrize("arguments, message", [
    (["IMAGE"], "expected texts to match with"),
    (["IMAGE", "--text", "red", "--template", "a"], "a template must have one {} for the text, got 'a'"),
    (["--text", "red"], "and no image"),
    (["missing.png", "--text", "red"], "missing.png"),
])  # fmt: skip
def test_bad_input_is_one_line(refused, clip, image, arguments, message):
    arguments = [str(image) if argument == "IMAGE" else argument for argument in arguments]
    assert re.search(message, refused("match", clip, *arguments))


def test_the_other_commands_work_or_are_refused(as_json, succeeds, refused, clip, run, image):
    assert "is of a vit, which reads no texts" in refused("match", run, image, "--text", "red")
    assert "the task 'clip' isn't classification; tinyvit match, evaluate" in refused("predict", clip, image)
    assert "has no head for classes" in refused("finetune", clip, "--data", "digits")
    for form, out in (("timm", "out"), ("npz", "out.npz")):
        assert "can't be written in the format" in refused("export", clip, "--format", form, "--out", out)
    assert "seen accuracy" in succeeds("evaluate", clip)
    assert as_json("features", clip, image, "--out", "f.npy")["features"] == 16
    assert "text.token_embed" in succeeds("summary", clip)
    succeeds("inspect", clip, "--images", "4", "--out", "pictures")


def test_weights_go_out_to_hugging_face_and_come_back_with_their_vocabulary(succeeds, refused, clip, image):
    out = succeeds("export", clip, "--format", "huggingface", "--out", "theirs")
    assert "transformers.CLIPModel.from_pretrained" in out
    assert "tinyvit match back IMAGE" in succeeds("import", "theirs", "--out", "back")
    assert (clip / "model.safetensors").read_bytes() == Path("back/model.safetensors").read_bytes()
    found = [json.loads(succeeds("match", path, image, *TEXTS, "--json")) for path in (clip, "back")]
    assert found[0]["texts"] == found[1]["texts"]

    about = json.loads(Path("theirs/config.json").read_text())
    del about["text_config"]["vocabulary"]
    Path("theirs/config.json").write_text(json.dumps(about))
    assert "there is no tokenizer.json" in succeeds("import", "theirs", "--out", "bare")
    assert "tokenizer.json is missing" in refused("match", "bare", image, "--text", "red")
    Path("bare/tokenizer.json").write_text("{}")
    refused("match", "bare", image, "--text", "red")
