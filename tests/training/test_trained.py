import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tinyvit import ViT, ViTConfig
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.tensors import load_tensors
from tinyvit.training import TrainConfig, train
from tinyvit.training.config import to_json
from tinyvit.training.display import SilentDisplay
from tinyvit.training.predict import predict
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.tasks.classification import evaluate
from tinyvit.training.trained import load_data, load_for_evaluation, load_trained, require_classifier

MODEL = ViTConfig(img_size=4, patch_size=2, num_classes=2, embed_dim=8, depth=1, num_heads=2)


def pictures(root, classes=("bright", "dark"), count=10):
    """Pictures whose brightness depends on their class."""
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (6, 9), (40 + 170 * k + i, 30 + 170 * k + i, 20 + 170 * k)).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(photos, tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    train(TrainConfig("folder", MODEL, epochs=1, batch_size=8, data_dir=str(photos)), out=path, display=SilentDisplay())
    return path


@pytest.fixture
def copy(finished, tmp_path):
    return RunFolder(shutil.copytree(finished, tmp_path / "copy"))


def test_a_run_is_loaded_with_its_weights_and_its_preprocessing(finished, photos):
    trained = load_trained(finished, "cpu")
    assert trained.config == RunFolder(finished).read_config()
    split = load_data(trained)
    assert trained.preprocessing == Preprocessing.from_dataset(split.train) == Preprocessing.from_dataset(split.test)
    assert trained.preprocessing.classes == ("bright", "dark") and trained.preprocessing.img_size == (4, 4)


def test_the_best_weights_are_loaded_if_requested(finished):
    (best,) = (finished / "checkpoints").glob("best-*.safetensors")
    state = load_trained(finished, "cpu", best=True).model.state_dict()
    for name, array in load_tensors(best).items():
        np.testing.assert_array_equal(state[name], array)


def test_the_test_images_are_normalised_as_they_were_in_training_whatever_the_folder_holds_now(finished, tmp_path):
    other = pictures(tmp_path / "other", count=5)
    for path in other.rglob("*.png"):
        Image.new("RGB", (6, 9), (1, 2, 3)).save(path)
    trained = load_trained(finished, "cpu")
    test = load_for_evaluation(trained, other).test
    assert (test.mean, test.std) == (trained.preprocessing.mean, trained.preprocessing.std)
    assert load_data(trained, other).test.mean != test.mean
    assert (test.images == np.array([1, 2, 3])[:, None, None]).all()


@pytest.mark.parametrize("classes", [("bright", "grey"), ("bright", "dark", "grey")])
def test_a_data_set_of_other_classes_is_refused(finished, tmp_path, classes):
    other = pictures(tmp_path / "other", classes)
    with pytest.raises(ValueError, match=re.escape(f"the classes {list(classes)}, but the model ['bright', 'dark']")):
        load_for_evaluation(load_trained(finished, "cpu"), other)


@pytest.mark.parametrize("changes", [{"img_size": (5, 4)}, {"classes": ("cat", "dog", "cow")},
                                     {"channels": 1, "mean": (0.5,), "std": (0.5,)}])  # fmt: skip
def test_a_preprocessing_of_another_model_is_refused(copy, changes):
    prepared = Preprocessing.from_json(copy.preprocessing.read_text(), "source")
    copy.preprocessing.write_text(replace(prepared, **changes).to_json())
    with pytest.raises(ValueError, match=r"preprocessing\.json is of another model: it says .* config\.json \(3, "):
        load_trained(copy.path, "cpu")


def test_weights_of_another_model_are_refused_by_the_name_of_the_file(copy):
    copy.save_model(ViT(replace(MODEL, depth=2)).state_dict())
    with pytest.raises(ValueError, match=r"model\.safetensors: .*unexpected"):
        load_trained(copy.path, "cpu")
    copy.config.write_text(copy.config.read_text().replace('"embed_dim": 8', '"embed_dim": 1000000000'))
    with pytest.raises(ValueError, match=r"config\.json.* embed_dim must be an int from 1 to 65,536, got 1000000000"):
        load_trained(copy.path, "cpu")


@pytest.fixture
def headless(copy):
    """The run without the head of its model."""
    config, prepared = copy.read_config(), Preprocessing.from_json(copy.preprocessing.read_text(), "source")
    copy.config.write_text(to_json(replace(config, model=replace(config.model, num_classes=0))))
    copy.preprocessing.write_text(replace(prepared, classes=()).to_json())
    weights = load_tensors(copy.model)
    copy.save_model({name: weight for name, weight in weights.items() if not name.startswith("head.")})
    return copy


def test_a_run_without_a_head_gives_features(headless, finished):
    trained, whole = load_trained(headless.path, "cpu"), load_trained(finished, "cpu")
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype("float32")
    np.testing.assert_array_equal(whole.model.head(trained.model(images)[0])[0], whole.model(images)[0])
    assert trained.preprocessing.classes == ()


def test_a_run_without_a_head_is_not_a_classifier(headless, photos):
    trained = load_trained(headless.path, "cpu")
    with pytest.raises(ValueError, match=r"^\S+copy: the model has no head \(num_classes is 0\)"):
        require_classifier(trained)
    with pytest.raises(ValueError, match="the model has no head"):
        next(predict(trained.model, trained.preprocessing, [photos / "dark" / "0.png"]))
    with pytest.raises(ValueError, match="the model has no head"):
        evaluate(trained.model, load_data(trained).test)
