from tinyvit.bench import scaling


def test_every_point_has_the_size_that_it_is_drawn_at_and_one_is_in_the_middle_of_all():
    cases = scaling.cases()
    for axis, sizes in scaling.AXIS_SIZES.items():
        for size, case in zip(sizes, cases[axis]):
            expected, config = scaling.REFERENCE_SIZES | {axis: size}, case.shape
            assert (1 + config.grid[0] * config.grid[1], case.batch_size) == (expected["tokens"], expected["batch"])
            assert (config.embed_dim, config.depth) == (expected["width"], expected["depth"])
            assert config.head_dim == scaling.HEAD_DIM and case.kind == "train" and not case.is_random
    assert len({case.title for own in cases.values() for case in own}) == sum(map(len, cases.values())) - 3


def test_the_picture_is_a_png_even_with_unknown_values():
    measured = {"title": "tinyvit, fast", "median": 0.1, "peak_bytes": 3_000_000, "bytes_before": 1_000_000}
    failed = {"title": "PyTorch eager", "median": None, "peak_bytes": None, "bytes_before": None}
    results = [{"title": case.title, "results": [measured, failed]} for own in scaling.cases().values() for case in own]
    assert scaling.draw(results, "caption").startswith(b"\x89PNG")
