import numpy as np
import pytest

from tinyvit.training.metrics import draw_confusion, save_confusion


def matrix(K, images=100, seed=0):
    """A confusion matrix (K, K) with most on its diagonal."""
    probs = np.full((K, K), 0.2 / K) + 0.8 * np.eye(K)
    return np.random.default_rng(seed).multinomial(images, probs)


@pytest.mark.parametrize("K", [1, 2, 20])
def test_up_to_20_classes_every_count_stands_in_its_cell(K):
    confusion = matrix(K, 10_000)
    figure = draw_confusion(confusion, [f"class {k}" for k in range(K)])
    figure.canvas.draw()
    axes = figure.axes[0]
    shown = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts if t.get_text()}
    assert shown == {(i, j): str(confusion[i, j]) for i, j in zip(*np.nonzero(confusion))}
    cell, renderer = axes.get_window_extent().width / K, figure._get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
    assert all(max(box.width, box.height) <= cell for box in boxes)


def test_counts_and_names_that_would_be_illegible_are_left_out():
    for K, texts, names in ((20, True, True), (21, False, True), (120, False, True), (121, False, False)):
        axes = draw_confusion(matrix(K), [f"a very long name of class {k}" for k in range(K)]).axes[0]
        assert bool(axes.texts) == texts
        assert all(axis.get_tick_params()[f"label{side}"] == names
                   for axis, side in ((axes.xaxis, "bottom"), (axes.yaxis, "left")))  # fmt: skip


def test_rows_are_shares_of_the_class_and_a_class_without_images_is_empty():
    axes = draw_confusion(np.array([[30, 10], [0, 0]]), ("cat", "dog")).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.75, 0.25], [0, 0]])
    assert axes.get_title() == "75.00 % of 40 images right"


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_equal_numbers_give_equal_pictures_in_the_format_of_their_name_with_any_names_of_classes(tmp_path, kind):
    for name in ("one", "other"):
        save_confusion(tmp_path / f"{name}.{kind.upper()}", matrix(4), ("$\\al$ $", "犬", "a\udcff", "b\x1b[31m"))
    one, other = ((tmp_path / f"{name}.{kind.upper()}").read_bytes() for name in ("one", "other"))
    assert one.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert one == other or kind != "png"  # the others have the time in them
