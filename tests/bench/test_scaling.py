import pytest

from tinyvit.bench import scaling


def test_every_point_has_the_size_that_it_is_drawn_at_and_the_middle_is_measured_once_by_the_best_level():
    for axis, size, case in scaling.points():
        sizes, config = scaling.MIDDLE | {axis: size}, case.shape
        assert (1 + config.grid[0] * config.grid[1], case.batch_size) == (sizes["tokens"], sizes["batch"])
        assert (config.embed_dim, config.depth) == (sizes["width"], sizes["depth"])
        assert config.head_dim == scaling.HEAD_DIM and case.kind == "train" and not case.draws
    plan = scaling.plan(("reference", "numpy", "fast"), 10)
    assert len(plan["cases"]) == sum(map(len, scaling.GRID.values())) - 3
    assert plan["levels"] == ("fast",) and plan["rounds"] == scaling.ROUNDS


@pytest.mark.end_to_end
def test_every_point_is_measured_and_the_picture_is_a_png_even_with_unknown_values(monkeypatch):
    monkeypatch.setattr("tinyvit.bench.player.find_spec", lambda name: None)
    monkeypatch.setattr(scaling, "MIDDLE", dict(tokens=5, width=8, depth=1, batch=2))
    monkeypatch.setattr(scaling, "GRID", dict(tokens=(2, 5), width=(8,), depth=(1, 2), batch=(2,)))
    lines = scaling.measure(("numpy",), 1, 1, turn=1e-9)
    assert [(line["axis"], line["size"]) for line in lines] == [
        ("tokens", 2), ("tokens", 5), ("width", 8), ("depth", 1), ("depth", 2), ("batch", 2)
    ]  # fmt: skip
    assert all(row["median"] > 0 and row["problem"] is None for line in lines for row in line["results"])
    assert lines[1]["results"] == lines[2]["results"]  # the middle
    lines[0]["results"][0] |= {"median": None, "bytes_before": None}
    assert scaling.draw(lines, "caption").startswith(b"\x89PNG")
