from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from PIL import Image
from strategies import seeds

from tinyvit.training.metrics import draw_confusion, picture_kind, save_confusion


def matrix(K, images=100, seed=0):
    """A confusion matrix (K, K) with most on its diagonal."""
    probs = np.full((K, K), 0.2 / K) + 0.8 * np.eye(K)
    return np.random.default_rng(seed).multinomial(images, probs)


def names(K):
    return tuple(f"class {k}" for k in range(K))


def extents(axes, texts):
    """The bounding boxes of texts, in pixels."""
    renderer = axes.figure._get_renderer()
    return [text.get_window_extent(renderer) for text in texts if text.get_text()]


@settings(max_examples=5)
@given(K=st.integers(1, 20), seed=seeds())
def test_up_to_20_classes_every_count_stands_in_its_cell(K, seed):
    confusion = matrix(K, 10_000, seed)
    figure = draw_confusion(confusion, names(K))
    figure.canvas.draw()
    axes = figure.axes[0]
    shown = {(round(t.get_position()[1]), round(t.get_position()[0])): int(t.get_text()) for t in axes.texts}
    assert shown == {(i, j): confusion[i, j] for i, j in zip(*np.nonzero(confusion))}
    cell = axes.get_window_extent().width / K
    assert all(max(box.width, box.height) <= cell for box in extents(axes, axes.texts))


@pytest.mark.parametrize("K", [2, 10, 21, 100])
@pytest.mark.parametrize("name", ["{}", "class {}", "a very long name of class {}"])
def test_names_do_not_overlap_and_stay_inside(K, name):
    figure = draw_confusion(matrix(K), tuple(name.format(k) for k in range(K)))
    figure.canvas.draw()
    axes, whole = figure.axes[0], figure.bbox
    for labels, low, high in (
        (axes.get_xticklabels(), "x0", "x1"), (axes.get_yticklabels()[::-1], "y0", "y1")
    ):  # fmt: skip
        boxes = extents(axes, labels)
        assert len(boxes) == K
        assert all(getattr(one, high) <= getattr(other, low) + 2 for one, other in pairwise(boxes))
        assert all(whole.x0 <= box.x0 and whole.y0 <= box.y0 for box in boxes)
    assert figure.get_tightbbox().width <= figure.get_figwidth()
    assert figure.get_tightbbox().height <= figure.get_figheight()


def test_counts_that_do_not_fit_and_names_that_would_be_illegible_are_left_out():
    for K, texts, ticks in ((20, True, 20), (21, False, 21), (120, False, 120), (121, False, 0)):
        axes = draw_confusion(matrix(K), names(K)).axes[0]
        assert bool(axes.texts) == texts and len(axes.get_xticks()) == len(axes.get_yticks()) == ticks


def test_counts_can_be_read_on_their_cells():
    """The contrast of text and cell, by the difference of their luminance."""
    axes = draw_confusion(np.array([[10, 0, 0], [6, 4, 0], [3, 3, 4]]), names(3)).axes[0]
    picture = axes.images[0]
    for text in axes.texts:
        column, row = map(round, text.get_position())
        cell = picture.to_rgba(picture.get_array()[row, column])[:3]
        weights = (0.299, 0.587, 0.114)
        assert abs(np.dot(weights, cell) - np.dot(weights, to_rgb(text.get_color()))) > 0.4


def test_rows_are_shares_of_the_class_and_a_class_without_images_is_empty():
    axes = draw_confusion(np.array([[30, 10], [0, 0]]), ("cat", "dog")).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.75, 0.25], [0, 0]])
    assert axes.get_title() == "75.00 % of 40 images right"


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_is_written_in_the_format_of_its_name(tmp_path, kind):
    path = tmp_path / f"confusion.{kind.upper()}"
    save_confusion(path, matrix(3), ("$\\alpha$", "犬", "under_score^2"))
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert path.read_bytes().startswith(start) and list(tmp_path.iterdir()) == [path]


def test_equal_numbers_give_equal_pictures(tmp_path):
    for name in ("one.png", "other.png"):
        save_confusion(tmp_path / name, matrix(4), names(4))
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    with Image.open(tmp_path / "one.png") as image:
        assert min(image.size) > 300


@pytest.mark.parametrize(("name", "message"), [
    ("confusion", "expected a name that ends with .png, .svg or .pdf"),
    ("confusion.txt", "expected a name that ends with .png, .svg or .pdf"),
    ("nowhere/confusion.png", "is in .*nowhere, which doesn't exist"),
    ("folder.png", "folder.png is a folder"),
])  # fmt: skip
def test_a_name_without_a_picture_format_is_refused(tmp_path, name, message):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match=message):
        picture_kind(tmp_path / name)


def test_the_picture_is_the_same_whatever_layout_its_caller_prefers(tmp_path):
    save_confusion(tmp_path / "alone.png", matrix(4), names(4))
    with rc_context({"figure.constrained_layout.use": True}):
        save_confusion(tmp_path / "preferred.png", matrix(4), names(4))
    assert (tmp_path / "alone.png").read_bytes() == (tmp_path / "preferred.png").read_bytes()


def test_a_name_that_is_not_utf_8_or_holds_control_characters_is_drawn_escaped(tmp_path):
    classes, confusion = [b"a\xff".decode("utf-8", "surrogateescape"), "b\x1b[31m"], np.eye(2, dtype=int)
    save_confusion(tmp_path / "picture.svg", confusion, classes)
    labels = draw_confusion(confusion, classes).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["a\\udcff", "b\\x1b[31m"]
