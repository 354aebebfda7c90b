"""tinyvit match, on a trained run and on imported weights; and the other commands on a run of a CLIP."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tinyvit import cli
from tinyvit.data import load

SHAPE = ["--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2", "--model.text-dim", "16",
         "--model.text-heads", "2", "--epochs", "1", "--batch-size", "1024"]  # fmt: skip
TEXTS = ["--text", "red seven on the left", "--text", "a blue one"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """The folder of a finished run."""
    path = tmp_path_factory.mktemp("match") / "run"
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["train", "clip-digits", "--out", str(path), "--device", "cpu", *SHAPE])
    return path


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(load("coloured-digits").test.images[0].transpose(1, 2, 0)).save(path)
    return path


def test_the_summary_has_seen_unseen_and_chance(clip):
    summary = json.loads((clip / "summary.json").read_text())
    assert summary["chance_accuracy"] == 1 / 180
    assert all(0 <= summary[name] <= 1 for name in ("seen_accuracy", "unseen_accuracy"))


def test_probabilities_of_several_texts_for_each_image(tinyvit, clip, image):
    status, out, err = tinyvit("match", clip, image, image, *TEXTS, "--json", "--device", "cpu")
    assert (status, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    assert first["image"] == second["image"] == str(image)
    for one, other in zip(first["texts"], second["texts"], strict=True):  # a BLAS may round each row in its own way
        assert one == {"text": other["text"], "probability": pytest.approx(other["probability"], rel=1e-5)}
    assert [found["text"] for found in first["texts"]] == ["red seven on the left", "a blue one"]
    assert sum(found["probability"] for found in first["texts"]) == pytest.approx(1)
    status, out, _ = tinyvit("match", clip, image, *TEXTS, "--device", "cpu")
    assert status == 0 and "red seven on the left   " in out and " %" in out


def test_templates_are_averaged_and_the_run_alone_is_enough(tinyvit, clip, image, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(clip, moved)
    shutil.rmtree(moved / "checkpoints")
    several = ["--template", "a {}", "--template", "the {}"]
    status, out, err = tinyvit("match", moved, image, *TEXTS[:2], "--text", "blue one", *several, "--json")
    assert (status, err) == (0, "") and len(json.loads(out)["texts"]) == 2


@pytest.mark.parametrize("arguments, message", [
    (["IMAGE"], "expected texts to match with"),
    (["IMAGE", "--text", "a red dog"], "doesn't know the word 'dog' in 'a red dog'"),
    (["IMAGE", "--text", "a " * 20], "texts of up to 6 words, and .* has 20; take a shorter one"),
    (["IMAGE", "--text", ""], "expected a text with words, got ''"),
    (["IMAGE", "--text", "red", "--template", "a"], "a template must have one {} for the text, got 'a'"),
    (["--text", "red"], "and no image"),
    (["missing.png", "--text", "red"], "missing.png"),
    (["IMAGE", "--text", "red", "--threads", "0"], "thread"),
])  # fmt: skip
def test_bad_input_is_one_line(refused, clip, image, arguments, message):
    arguments = [str(image) if argument == "IMAGE" else argument for argument in arguments]
    assert re.search(message, refused("match", clip, *arguments))


def test_a_run_that_reads_no_texts_is_refused(refused, run, image):
    assert "is of a vit, which reads no texts" in refused("match", run, image, "--text", "red")


def test_predict_is_refused_and_evaluate_features_inspect_and_summary_work(tinyvit, refused, clip, image):
    assert "the task 'clip' isn't classification; tinyvit match, evaluate" in refused("predict", clip, image)
    assert "has no head for classes" in refused("finetune", clip, "--data", "digits")
    assert "seen accuracy" in tinyvit("evaluate", clip, "--device", "cpu")[1]
    assert tinyvit("features", clip, image, "--out", "f.npy", "--device", "cpu")[0] == 0
    assert np.load("f.npy").shape == (1, 16)
    assert "text.token_embed" in tinyvit("summary", clip)[1]
    assert tinyvit("inspect", clip, "--images", "4", "--device", "cpu")[0] == 0


def test_weights_go_out_to_hugging_face_and_come_back_with_their_vocabulary(tinyvit, clip, image):
    status, out, err = tinyvit("export", clip, "--format", "huggingface", "--out", "theirs")
    assert (status, err) == (0, "") and "transformers.CLIPModel.from_pretrained" in out
    status, out, err = tinyvit("import", "theirs", "--out", "back")
    assert (status, err) == (0, "") and "tinyvit match back IMAGE" in out
    with open(clip / "model.safetensors", "rb") as one, open("back/model.safetensors", "rb") as other:
        assert one.read() == other.read()
    found = [
        json.loads(tinyvit("match", path, image, *TEXTS, "--json", "--device", "cpu")[1]) for path in (clip, "back")
    ]
    assert found[0]["texts"] == found[1]["texts"]


@pytest.mark.parametrize("format", ["timm", "npz"])
def test_other_formats_have_no_place_for_it(refused, clip, format):
    out = "out.npz" if format == "npz" else "out"
    assert "can't be written in the format" in refused("export", clip, "--format", format, "--out", out)


def test_without_the_tokenizer_of_byte_pairs_a_match_says_what_is_missing(tinyvit, refused, clip, image, tmp_path):
    tinyvit("export", clip, "--format", "huggingface", "--out", "theirs")
    about = json.loads((tmp_path / "theirs" / "config.json").read_text())
    del about["text_config"]["vocabulary"]
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(about))
    assert "there is no tokenizer.json" in tinyvit("import", "theirs", "--out", "bare")[1]
    assert "tokenizer.json is missing" in refused("match", "bare", image, "--text", "red")
    (tmp_path / "bare" / "tokenizer.json").write_text("{}")
    refused("match", "bare", image, "--text", "red")
