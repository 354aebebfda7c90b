import numpy as np

from tinyvit import probe

LOGITS = np.log([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.05, 0.9, 0.05], [0.9, 0.04, 0.06]])
LABELS = np.array([0, 1, 0, 0, 2])


def test_mistakes_come_with_the_largest_loss_first_and_no_right_image_among_them():
    found = probe.most_wrong(LOGITS + 5, LABELS)
    assert found.rows.tolist() == [3, 4, 2, 1]
    assert found.labels.tolist() == [0, 2, 0, 1]
    assert found.predicted.tolist() == [1, 0, 2, 0]
    np.testing.assert_allclose(found.loss, -np.log([0.05, 0.06, 0.1, 0.3]), rtol=1e-12)
    np.testing.assert_allclose(found.confidence, [0.9, 0.9, 0.8, 0.6], rtol=1e-12)


def test_without_mistakes_nothing_is_drawn():
    found = probe.most_wrong(LOGITS, LOGITS.argmax(1))
    assert len(found.rows) == 0
    figure = probe.draw_most_wrong(np.zeros((0, 3, 4, 4)), found, ("a", "b", "c"))
    assert figure.get_suptitle() == "no image is wrong"
    figure.canvas.draw()


def test_the_figure_shows_each_image_with_what_it_is_and_what_it_is_taken_for():
    found = probe.most_wrong(LOGITS, LABELS)
    images = np.random.default_rng(0).uniform(size=(4, 3, 6, 6))
    figure = probe.draw_most_wrong(images, found, ("$ and $", "b", "a class of a very long name"))
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == 4
    np.testing.assert_array_equal(shown[2].images[0].get_array(), images[2].transpose(1, 2, 0))
    assert shown[2].get_title() == "$ and $\ntaken for a class of a …\n80 %, image 2"
    figure.canvas.draw()
