import hashlib
import json
import shutil
from dataclasses import replace
from math import log

import numpy as np
import pytest
from PIL import Image
from steps import Killed, StopsAfter

from tinyvit import ViT, ViTConfig, data
from tinyvit.tensors import load_tensors
from tinyvit.training import PRESETS, OptimConfig, resume, train
from tinyvit.training.display import SilentDisplay
from tinyvit.training.finetune import finetune_config
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.trained import load_for_evaluation, load_trained
from tinyvit.training.trainer import Trainer

FIRST, OTHERS = ("0", "1", "2", "3"), ("7", "8", "9")
SMALL = replace(
    PRESETS["digits"],
    model=ViTConfig(img_size=8, patch_size=4, in_chans=1, embed_dim=16, depth=2, num_heads=2, head_hidden=8,
                    mlp_ratio=2.0, drop_rate=0.1),
    classes=FIRST, epochs=2, batch_size=64, device="cpu", threads=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with an MLP head, on the first digits."""
    path = tmp_path_factory.mktemp("finetune") / "source"
    train(SMALL, path, SilentDisplay())
    return path


def config_for(source, **fields):
    defaults = dict(classes=OTHERS, images=30, epochs=3, batch_size=10, device="cpu", threads=1, seed=5)
    return finetune_config(source, "digits", **defaults | fields)


def test_at_the_start_all_logits_are_zero_and_the_head_is_linear(source):
    trainer = Trainer(config_for(source))
    images = trainer.split.test.normalise(trainer.split.test.images[:5])
    assert trainer.model.config.head_hidden is None and trainer.model.config.num_classes == len(OTHERS)
    assert not np.asarray(trainer.model(images)[0]).any()
    assert trainer.evaluate()["test_loss"] == pytest.approx(log(len(OTHERS)), rel=1e-6)


def test_it_begins_with_the_features_of_the_run_bit_for_bit(source):
    trainer, before = Trainer(config_for(source)), load_trained(source, "cpu").model
    images = trainer.split.test.normalise(trainer.split.test.images[:5])

    def features(model):
        tokens, _ = model.encode(model.embed(images)[0])
        return model.pool(tokens)[0]

    np.testing.assert_array_equal(features(trainer.model), features(before))


def test_the_best_weights_are_used_if_requested(source):
    best = load_trained(source, "cpu", best=True).model.state_dict()
    taken = Trainer(config_for(source, best=True)).model.state_dict()
    for name in taken.keys() - {"head.weight", "head.bias"}:
        np.testing.assert_array_equal(taken[name], best[name])


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "zoom"])
def test_for_larger_images_the_positions_are_resized_and_the_images_enlarged(source, method):
    trainer = Trainer(config_for(source, img_size=(12, 16), resize_positions=method))
    before = load_trained(source, "cpu").model
    state = before.at_img_size((12, 16), method).state_dict()
    np.testing.assert_array_equal(trainer.model.state_dict()["pos_embed"], state["pos_embed"])
    assert trainer.split.train.images.shape == (30, 1, 12, 16)
    expected = data.resize_dataset(data.choose(data.digits(), OTHERS).test, (12, 16)).images
    np.testing.assert_array_equal(trainer.split.test.images, expected)


def test_images_are_normalised_as_the_run_normalised_them(source):
    kept = json.loads((source / "preprocessing.json").read_text())
    kept["mean"], kept["std"] = [0.125], [0.75]
    other = shutil.copytree(source, source.parent / "other")
    (other / "preprocessing.json").write_text(json.dumps(kept))
    train_set = Trainer(config_for(other)).split.train
    assert (train_set.mean, train_set.std) == ((0.125,), (0.75,))


@pytest.mark.parametrize(("resample", "crop"), [("nearest", 0.5), ("bilinear", None)])
def test_a_folders_images_are_resampled_and_cropped_as_those_of_the_run(source, tmp_path, resample, crop):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 30), dtype=np.uint8)
    for number, image in enumerate(pixels):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    other = shutil.copytree(source, tmp_path / "other")
    kept = json.loads((source / "preprocessing.json").read_text()) | {"resample": resample, "crop": crop}
    (other / "preprocessing.json").write_text(json.dumps(kept))
    config = finetune_config(other, "folder", data_dir=str(tmp_path / "photos"), epochs=1, device="cpu", threads=1)
    train(config, tmp_path / "run", SilentDisplay())
    trained = load_trained(tmp_path / "run", "cpu")
    assert (trained.preprocessing.resample, trained.preprocessing.crop) == (resample, crop)
    expected = data.load("folder", tmp_path / "photos", (8, 8), 1, resample=resample, crop=crop)
    for part, images in zip(Trainer(config).split, expected):
        np.testing.assert_array_equal(part.images, images.images)
    np.testing.assert_array_equal(load_for_evaluation(trained).test.images, expected.test.images)


def test_options_replace_the_settings_of_the_run(source):
    given = {"resample": "box", "crop": 0.5, "mean": (0.1,), "std": (0.9,), "resize_images": False}
    config = finetune_config(source, "folder", data_dir="photos", **given)
    assert {name: getattr(config, name) for name in given} == given


@pytest.fixture(scope="module")
def tuned(source, tmp_path_factory):
    """A finished fine-tuning on larger images, whose source is gone."""
    gone = shutil.copytree(source, tmp_path_factory.mktemp("tuned") / "gone")
    path = gone.parent / "run"
    train(config_for(gone, img_size=12, freeze="1"), path, SilentDisplay())
    shutil.rmtree(gone)
    return path


def test_its_configuration_says_where_the_weights_came_from(source, tuned):
    init = RunFolder(tuned).read_config().init
    assert init.run.endswith("gone")
    assert init.sha256 == hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()


def test_frozen_parameters_keep_the_bits_of_the_source_and_all_others_have_moved(source, tuned):
    before, after = load_tensors(source / "model.safetensors"), load_tensors(tuned / "model.safetensors")
    assert set(after) == {name for name in before if not name.startswith("pre_logits.")}
    before["pos_embed"] = load_trained(source, "cpu").model.at_img_size(12).state_dict()["pos_embed"]
    for name in after.keys() - {"head.weight", "head.bias"}:
        frozen = name.startswith(("blocks.0.", "patch_embed.", "cls_token", "pos_embed"))
        assert np.array_equal(after[name], before[name]) == frozen, name
    assert np.asarray(after["head.weight"]).any()


def test_it_is_evaluated_on_enlarged_images_without_its_source(tuned):
    trained = load_trained(tuned, "cpu")
    test = load_for_evaluation(trained).test
    assert test.classes == trained.preprocessing.classes == OTHERS
    assert test.images.shape[1:] == (1, 12, 12) and trained.preprocessing.img_size == (12, 12)


@pytest.mark.end_to_end
@pytest.mark.parametrize("steps", [1, 4])
def test_killed_and_resumed_without_the_source_it_ends_in_the_same_bits(source, tmp_path, steps):
    config = config_for(source, img_size=12, freeze="embed", save_minutes=0.0, optim=OptimConfig(ema=0.9))
    train(config, tmp_path / "whole", SilentDisplay())
    gone = shutil.copytree(source, tmp_path / "gone")
    with pytest.raises(Killed):
        train(replace(config, init=replace(config.init, run=str(gone))), tmp_path / "run", StopsAfter(steps, Killed))
    shutil.rmtree(gone)
    resume(tmp_path / "run", SilentDisplay())
    ends = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert ends[0] == ends[1]


def test_killed_before_its_first_checkpoint_it_restarts_only_with_the_same_weights(source, tmp_path):
    run = tmp_path / "run"
    copy = shutil.copytree(source, tmp_path / "copy")
    summary = train(config_for(copy), run, SilentDisplay())
    whole = (run / "model.safetensors").read_bytes()
    for name in ("summary.json", "model.safetensors"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints")
    resume(run, SilentDisplay())
    assert summary["steps"] == 9 and (run / "model.safetensors").read_bytes() == whole
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints")
    RunFolder(copy).save_model(ViT(replace(SMALL.model, num_classes=len(FIRST)), seed=9).state_dict())
    with pytest.raises(ValueError, match=r"holds other weights than those that this training began with \(SHA256 "):
        resume(run, SilentDisplay())


@pytest.mark.parametrize(("fields", "message"), [
    (dict(img_size=10), "10×10 is not a multiple of the patch size 4×4"),
    (dict(freeze="3"), "the model has 2 layers, got '3'"),
    (dict(freeze="blocks"), "freeze must be embed"),
    (dict(resize_positions="nearest"), "resize_positions must be one of bilinear, .*, got 'nearest'"),
    (dict(classes=("7", "ten")), "no class 'ten'"),
    (dict(images=30_000), "images of each class, as many as class 7 has, got 10000"),
])  # fmt: skip
def test_impossible_settings_are_refused_before_anything_is_written(source, tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        train(config_for(source, **{"img_size": 12} | fields), tmp_path / "run", SilentDisplay())
    assert not (tmp_path / "run").exists()


def test_a_model_of_another_shape_is_refused_with_what_differs(source):
    config = config_for(source)
    with pytest.raises(ValueError, match=r"don't fit the model: they are for num_heads 2, and not 4; positions 'learn"):
        Trainer(replace(config, model=replace(config.model, num_heads=4, positions="none")))
