from dataclasses import replace

import pytest
from small_bench import small_settings

from tinyvit.bench import scaling
from tinyvit.bench.contestants import EAGER, TINYVIT
from tinyvit.bench.picture import draw, megabytes, series

MIDDLE = dict(tokens=5, width=8, depth=1, batch=2)
GRID = dict(tokens=(2, 5), width=(8,), depth=(1, 2), batch=(2,))


def test_every_point_has_the_size_that_it_is_drawn_at_and_the_middle_otherwise():
    for point in scaling.points():
        sizes = scaling.MIDDLE | {point.axis: point.size}
        config = point.case.config
        assert point.case.tokens == sizes["tokens"] and point.case.batch_size == sizes["batch"]
        assert (config.embed_dim, config.depth) == (sizes["width"], sizes["depth"])
        assert config.head_dim == scaling.HEAD_DIM
        assert point.case.kind == "train" and not point.case.draws


def test_the_middle_is_on_every_axis_and_is_measured_once():
    assert all(scaling.MIDDLE[axis] in sizes for axis, sizes in scaling.GRID.items())
    cases = scaling.settings_for(small_settings(), 1).cases
    assert len({case.name for case in cases}) == len(cases) == sum(map(len, scaling.GRID.values())) - 3


def test_the_best_requested_level_runs_alone_or_against_torch(monkeypatch):
    settings = small_settings(levels=("reference", "numpy", "fast"))
    assert scaling.settings_for(settings, 1).levels == ("fast",)
    assert scaling.contestants_of(settings) == [TINYVIT["fast"]]
    monkeypatch.setattr("tinyvit.bench.contestants.find_spec", lambda name: name)
    assert scaling.contestants_of(replace(settings, torch=True, compiled=True)) == [TINYVIT["fast"], EAGER]


@pytest.fixture(scope="module")
def lines():
    chosen = scaling.points(GRID, MIDDLE)
    return scaling.measure(scaling.settings_for(small_settings(), 1, chosen), chosen=chosen)


@pytest.mark.end_to_end
def test_every_point_is_measured(lines):
    assert [(line["axis"], line["size"]) for line in lines] == [
        ("tokens", 2), ("tokens", 5), ("width", 8), ("depth", 1), ("depth", 2), ("batch", 2)
    ]  # fmt: skip
    assert all(row["median"] > 0 and row["problem"] is None for line in lines for row in line["results"])
    assert lines[1]["results"] == lines[2]["results"]  # the middle


def test_the_picture_is_a_png_even_without_data(lines):
    for some in (lines, lines[:1], []):
        assert draw(some, "caption").startswith(b"\x89PNG")


def test_a_curve_leaves_out_unknown_values_and_those_that_a_log_axis_cannot_show():
    row = dict(name="a", median=1.0, peak_bytes=3_000_000, bytes_before=1_000_000)
    rows = [row, row | {"median": None}, row | {"median": 0.0}, row | {"bytes_before": None}]
    lines = [dict(axis="depth", size=4 - i, results=[one]) for i, one in enumerate(rows)]
    assert series(lines, "depth", "a", lambda one: one["median"]) == ([1, 4], [1.0, 1.0])
    assert series(lines, "depth", "a", megabytes) == ([2, 3, 4], [2.0, 2.0, 2.0])
    assert series(lines, "depth", "b", megabytes) == ([], [])
