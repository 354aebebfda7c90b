"""The model on one page computes what the package computes, and learns."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig, minimal, optim
from tinyvit import functional as F

CONFIG = minimal.Config(img_size=6, patch_size=3, channels=2, classes=5, dim=12, depth=2, heads=3, hidden=20)
SAME = ViTConfig(
    img_size=6, patch_size=3, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3, mlp_ratio=20 / 12,
    activation="gelu_tanh",
)  # fmt: skip


@pytest.fixture
def both():
    """Equal parameters, none of them zero, as a dictionary and in the package's model; images and labels."""
    rng = np.random.default_rng(0)
    w = {name: rng.normal(0, 0.3, x.shape) for name, x in minimal.init(CONFIG, rng, "float64").items()}
    model = ViT(SAME, dtype="float64")
    model.load_state_dict(w)
    return w, model, rng.normal(size=(4, 2, 6, 6)), rng.integers(0, 5, 4)


def gradients(w, images, labels):
    logits, cache = minimal.vit(images, w, CONFIG)
    return minimal.vit_backward(minimal.cross_entropy_backward(minimal.cross_entropy(logits, labels)[1]), cache)


def package_backward(model, images, labels):
    logits, cache = model(images)
    model.zero_grad()
    model.backward(F.cross_entropy_backward(1.0, F.cross_entropy(logits, labels)[1]), cache)


def assert_equal(got, expected):
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


def test_logits_loss_and_every_gradient_are_the_packages(both):
    w, model, images, labels = both
    logits, expected = minimal.vit(images, w, CONFIG)[0], model(images)[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-12, atol=1e-12)
    loss = minimal.cross_entropy(logits, labels)[0]
    np.testing.assert_allclose(loss, F.cross_entropy(expected, labels)[0], rtol=1e-12)
    package_backward(model, images, labels)
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(abs(gradient).max() > 1e-6 for gradient in expected.values())
    assert_equal(gradients(w, images, labels), expected)


def test_ten_steps_of_adam_lead_where_the_packages_do(both):
    w, model, images, labels = both
    # The gradient of the keys' bias is 0 but for rounding; this ε is large beside that, so that it stays rounding.
    before, optimizer = model.state_dict(), optim.Adam(model, 0.01, eps=1e-4)
    m, v = ({name: np.zeros_like(x) for name, x in w.items()} for _ in range(2))
    for t in range(1, 11):
        minimal.adam_step(w, gradients(w, images, labels), m, v, t, 0.01, eps=1e-4)
        package_backward(model, images, labels)
        optimizer.step()
    assert_equal(w, model.state_dict())
    assert all(abs(w[name] - before[name]).max() > 0.001 for name in w)


def test_the_parameters_it_begins_with_fit_the_package_and_give_equal_logits():
    w = minimal.init(CONFIG, np.random.default_rng(0))
    model = ViT(SAME)
    model.load_state_dict(w)
    images = np.random.default_rng(1).normal(size=(4, 2, 6, 6)).astype("float32")
    assert not minimal.vit(images, w, CONFIG)[0].any() and not model(images)[0].any()


def test_no_test_image_is_trained_on():
    (images, labels), (test_images, test_labels) = minimal.digits()
    assert len(images) + len(test_images) == len(labels) + len(test_labels) == 1797 and len(test_images) == 360
    assert abs(images.mean()) < 1e-6 and abs(images.std() - 1) < 1e-6
    assert sorted(set(labels)) == sorted(set(test_labels)) == list(range(10))


def test_it_is_one_page_that_imports_numpy_alone_and_the_digits():
    text = Path(minimal.__file__).read_text()
    assert len(text.splitlines()) <= 250
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert names == {"typing", "numpy", "sklearn.datasets"}


@pytest.mark.full
def test_it_trains_from_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "tinyvit.minimal"], capture_output=True, text=True, timeout=600, check=True
    )
    name, accuracy = done.stdout.splitlines()[-1].split()
    assert name == "test_accuracy" and float(accuracy) >= 0.97
