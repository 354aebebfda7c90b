import numpy as np
from matplotlib.figure import Figure

from tinyvit.training import PRESETS
from tinyvit.training.curves import draw_plot
from tinyvit.training.tasks.classification import Classification


def test_each_run_has_a_colour_and_minutes_are_those_of_its_rows():
    axes, task = Figure().subplots(), Classification(PRESETS["digits"])
    rows = [{"epoch": i, "seconds": 30 * i, "train_accuracy": 0.1 * i, "test_accuracy": 0.2 * i} for i in (1, 2)]
    draw_plot(axes, "minute", ["train_accuracy", "test_accuracy"], {"a": rows, "b": rows}, task)
    drawn = np.array([line.get_xydata() for line in axes.lines])
    np.testing.assert_allclose(drawn, 2 * [[(0.5, 10), (1, 20)], [(0.5, 20), (1, 40)]])
    assert [line.get_color() + line.get_linestyle() for line in axes.lines] == ["C0--", "C0-", "C1--", "C1-"]
    assert {line.get_label() for line in axes.lines} == {"dashed: train, as augmented", "a", "b"}
