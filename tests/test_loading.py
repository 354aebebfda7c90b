"""`tinyvit.load`: one call loads a model, wherever it was trained."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from small_weights import CONFIG, GIVEN, PLACES, PREPARED, weights_of, write_all
from strategies import redrawn

import tinyvit
from tinyvit import ViT, cli, interop, nn
from tinyvit import functional as F
from tinyvit.data.images import read_image
from tinyvit.models import ClipConfig, DiTConfig, ResNetConfig, SwinConfig, build
from tinyvit.optim import SGD
from tinyvit.training import train_step
from tinyvit.training.run_folder import stored_models
from tinyvit.training.trained import load_trained

TINY = ["--model.embed-dim", "8", "--model.depth", "2", "--model.num-heads", "2", "--epochs", "2", "--device", "cpu"]


def command(*arguments):
    """Run a command, which must succeed."""
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(list(map(str, arguments)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was trained for two epochs."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    command("train", "digits", "--out", path, *TINY)
    return path


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same weights in every format."""
    return write_all(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def model(sources):
    return tinyvit.load(sources / "timm")


def images_for(model, count=3):
    return np.random.default_rng(0).standard_normal((count, *model.image_shape)).astype("float32")


def same_logits(model, other):
    images = images_for(other)
    np.testing.assert_array_equal(model(images)[0], other(images)[0], strict=True)


# -- loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.end_to_end
@pytest.mark.parametrize("best", [False, True])
def test_a_run_is_loaded_with_its_classes_and_the_weights_asked_for(run, best):
    model = tinyvit.load(run, best=best)
    trained = load_trained(run, model.device, best)
    same_logits(model, trained.model)
    assert model.classes == trained.preprocessing.classes == tuple("0123456789")
    assert model.preprocessing == trained.preprocessing and model.notes == ()


def test_the_weights_file_of_a_run_is_loaded_as_the_run_and_no_other_file_of_it(run):
    model = tinyvit.load(run / "model.safetensors")
    same_logits(model, load_trained(run, model.device).model)
    (best,) = (run / "checkpoints").glob("best-*.safetensors")
    for file in (best, best.parent, run / "summary.json"):
        with pytest.raises(ValueError, match=f"{file.name} is part of a run; pass its folder {run}, with best=True"):
            tinyvit.load(file)


@pytest.mark.parametrize(("place", "given"), [
    *((PLACES[form], GIVEN[form]) for form in PLACES),
    ("timm/model.safetensors", {"num_heads": 3, "img_size": (8, 12), "mean": 0.5, "std": (0.1, 0.2, 0.3)}),
])  # fmt: skip
def test_foreign_folders_and_files_give_the_logits_of_their_weights(sources, place, given):
    model = tinyvit.load(sources / place, **given)
    weights = interop.load(sources / place, **given)
    expected = ViT(weights.config)
    expected.load_state_dict(weights.state)
    same_logits(model, expected)
    assert (model.config, model.preprocessing, model.notes) == (weights.config, weights.preprocessing, weights.notes)
    assert model.classes == weights.preprocessing.classes


def test_float64_weights_make_a_float64_model_and_those_without_a_head_one_without_classes(tmp_path):
    interop.save(weights_of(replace(CONFIG, num_classes=0), dtype="float64"), tmp_path / "features", "timm")
    model = tinyvit.load(tmp_path / "features")
    assert model.dtype == "float64" and model.classes == () and model(images_for(model))[0].shape == (3, 12)


@pytest.mark.parametrize("name", stored_models())
def test_a_model_that_comes_with_tinyvit_is_loaded_by_its_name_unless_something_is_there(name, tmp_path, monkeypatch):
    model, folder = tinyvit.load(name), stored_models()[name]
    same_logits(model, tinyvit.load(folder))
    np.testing.assert_allclose(model.predict(np.zeros((2, *model.image_shape), "uint8")).sum(1), [1, 1], rtol=1e-5)
    assert f"/notebooks/models/{name} = notebooks/models/{name}/*\n" in (folder.parents[2] / "setup.cfg").read_text()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"no model of this name comes with tinyvit; did you mean {name}"):
        tinyvit.load(f"{name}x")
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} holds no weights"):
        tinyvit.load(name)


# -- saving -----------------------------------------------------------------------------------------------------------

CLASSES = {"img_size": 16, "in_chans": 3, "num_classes": 3}
SAVED = {  # configuration, and the formats that it is exported to
    "vit": (replace(CONFIG, img_size=8, head_hidden=5), ("timm", "huggingface")),
    "swin": (SwinConfig(**CLASSES, embed_dim=4, depths=(2, 1), num_heads=(1, 2), mlp_ratio=2.0), ("huggingface",)),
    "resnet": (ResNetConfig(**CLASSES, depths=(1, 1), width=8, stem="conv7"), ("huggingface",)),
    "clip": (ClipConfig(img_size=16, patch_size=8, embed_dim=12, depth=1, num_heads=3, text_dim=12, text_depth=1,
                        text_heads=3, context_length=5, vocabulary=("a", "b"), projection_dim=4), ("huggingface",)),
    "dit": (DiTConfig(**CLASSES, patch_size=8, embed_dim=12, depth=1, num_heads=3), ()),
}  # fmt: skip


def off_by(model, images, targets, ctx):
    """An objective for models with and without classes: the mean square of what they give, less 1."""
    y, cache = model(images, ctx)
    loss, c_loss = F.mean_squared_error(y, 0 * y + 1)
    return loss, lambda dloss: model.backward(F.mean_squared_error_backward(dloss, c_loss), cache)


def same_state(model, other):
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SAVED)
def test_a_model_is_saved_loaded_fine_tuned_and_exported_bit_for_bit(tmp_path, name, dtype):
    config, formats = SAVED[name]
    model = redrawn(build(config, dtype=dtype))
    tinyvit.save(model, tmp_path / "saved", mean=0.4, std=(0.1, 0.2, 0.3))
    tuned = tinyvit.load(tmp_path / "saved")
    same_state(tuned, model)
    assert (tuned.config, tuned.precision) == (config, dtype)
    assert (tuned.preprocessing.mean, tuned.preprocessing.std, tuned.notes) == ((0.4,) * 3, (0.1, 0.2, 0.3), ())
    if tuned.why_no_classes is None:
        tuned.reset_head(2)
        assert tuned.classes == ("0", "1") and tuned.config.num_classes == 2
    before = tuned.state_dict()
    train_step(tuned, SGD(tuned, 0.1), images_for(tuned), [0, 1, 1], objective=off_by)
    assert any((array != before[key]).any() for key, array in tuned.state_dict().items())
    tinyvit.save(tuned, tmp_path / "tuned")
    same_state(tinyvit.load(tmp_path / "tuned" / "model.safetensors"), tuned)
    for form in formats:
        interop.save(tuned, tmp_path / PLACES[form], form)
        same_state(tinyvit.load(tmp_path / PLACES[form], **GIVEN[form]), tuned)
    if name == "dit":
        with pytest.raises(ValueError, match="of the architecture 'dit' can't be written in the format 'timm'"):
            interop.save(tuned, tmp_path / "refused", "timm")


def test_what_a_model_does_not_say_is_assumed_and_noted_and_what_does_not_fit_is_refused(tmp_path):
    model = ViT(CONFIG)
    tinyvit.save(model, tmp_path / "saved")
    loaded = tinyvit.load(tmp_path / "saved")
    assert loaded.classes == ("0", "1", "2") and loaded.preprocessing.mean == loaded.preprocessing.std == (0.5,) * 3
    assert "mean and std are taken to be 0.5" in loaded.notes[0]
    interop.save(interop.Weights(CONFIG, model.state_dict(), None), tmp_path / "timm", "timm")
    same_state(tinyvit.load(tmp_path / "timm" / "model.safetensors"), model)
    model.head = nn.Linear(12, 5).materialize()
    with pytest.raises(TypeError, match=r"as in tinyvit.save\(model, PATH\), got str"):
        tinyvit.save("out", model)
    with pytest.raises(ValueError, match="misshapen: head.weight"):
        tinyvit.save(model.to(), tmp_path / "other")
    model.reset_head(3)
    for place, options, reason in (
        ("saved", {}, "saved is there already"),
        ("other", {"classes": "ab"}, "the model has classes 3, and its preprocessing 2"),
        ("other", {"mean": (0.1, 0.2)}, "the mean that was given is"),
    ):
        with pytest.raises(ValueError, match=reason):
            tinyvit.save(model, tmp_path / place, **options)
    assert not (tmp_path / "other").exists()
    same_state(loaded, tinyvit.load(tmp_path / "saved"))


# -- refused paths ----------------------------------------------------------------------------------------------------


def test_a_missing_path_or_a_file_that_is_not_a_model_is_refused_in_one_line(tmp_path, run, sources):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not weights")
    (tmp_path / "loop").symlink_to("loop")
    for path, reason in (
        ("nowhere", "nowhere doesn't exist; expected a"),
        ("loop", "loop doesn't exist"),
        ("empty", "empty holds no weights"),
        ("notes.txt", r"notes\.txt is of an unknown format"),
    ):
        with pytest.raises(ValueError, match=reason) as error:
            tinyvit.load(tmp_path / path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="is not a run of tinyvit, which alone has best weights; leave out best"):
        tinyvit.load(sources / "timm", best=True)
    with pytest.raises(ValueError, match="is a run, which says all that is needed; leave out num_heads, mean"):
        tinyvit.load(run, num_heads=2, mean=0.5)


def test_a_run_without_its_configuration_is_not_taken_for_weights_of_timm(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "config.json").unlink()
    for path in (copy, copy / "model.safetensors"):
        with pytest.raises(ValueError, match="copy is not a run folder: it has no config.json"):
            tinyvit.load(path)
    (copy / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json"):
        tinyvit.load(copy)


# -- predict ----------------------------------------------------------------------------------------------------------


def photo(height=20, width=30, channels=3, seed=0):
    shape = (height, width, channels) if channels else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape).astype("uint8")


def test_images_of_pillow_and_numpy_are_prepared_as_their_files_are(model, tmp_path):
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    pixels = read_image(tmp_path / "photo.png", 3, (8, 12), resample=PREPARED.resample, crop=PREPARED.crop)
    expected = model.predict(model.preprocessing(pixels[None]))
    with Image.open(tmp_path / "photo.png") as image:
        for images in (image, [image], np.asarray(image), [np.asarray(image)], np.asarray(image)[None]):
            np.testing.assert_array_equal(model.predict(images, preprocess=True), expected)
        together = model.predict([photo(9, 40), image, photo(channels=0)])
    apart = np.concatenate([model.predict(photo(9, 40)), expected, model.predict(photo(channels=0))])
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_a_batch_has_its_channels_first_or_last_and_floats_are_expected_to_be_normalised(model):
    batch = np.stack([photo(8, 12, seed=seed) for seed in range(5)])
    first = batch.transpose(0, 3, 1, 2)
    expected = model.predict(model.preprocessing(first), preprocess=False)
    for images in (first, batch, list(batch), model.preprocessing(first)):
        np.testing.assert_array_equal(model.predict(images), expected)
    np.testing.assert_array_equal(model.preprocessing.pixels(first.repeat(2, 2)),
                                  model.preprocessing.pixels(list(batch.repeat(2, 1))))  # fmt: skip


@pytest.mark.parametrize(("images", "options", "reason"), [
    (np.zeros((2, 3, 8, 12), "float32"), {"preprocess": True}, "as uint8, got float32 .2, 3, 8, 12.; what is norm"),
    (photo(), {"preprocess": False}, "expected images .B, 3, 8, 12."),
    (photo().astype("int64"), {}, "as uint8, got int64"),
    (np.zeros((5, 8, 12), "uint8"), {}, r"an array \(B, H, W, C\) or \(B, 3, H, W\), got \(5, 8, 12\)"),
    (np.zeros((0, 8, 3), "uint8"), {}, r"got uint8 \(0, 8, 3\)"),
    ([], {}, r"expected images as a list or an array, got \[\]"),
    (["photo.png"], {}, "expected a PIL image or a uint8 array, got str"),
])  # fmt: skip
def test_ambiguous_arrays_and_input_that_is_not_an_image_are_refused(model, images, options, reason):
    with pytest.raises(ValueError, match=reason):
        model.predict(images, **options)


def test_a_model_that_was_not_loaded_has_no_preprocessing_until_it_is_given_one():
    model = ViT(CONFIG)
    assert model.classes == () and model.preprocessing is None
    with pytest.raises(ValueError, match="doesn't say how images are prepared"):
        model.predict(photo())
    model.preprocessing = PREPARED
    assert model.predict(photo()).shape == (1, 3) and model.classes == ("cat", "dog", "eel")
