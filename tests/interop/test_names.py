"""Functions shared by all layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import weights

from tinyvit.interop import names


@given(st.integers(1, 10_000), st.integers(1, 2_000))
def test_the_ratio_of_an_mlp_gives_its_width_exactly(hidden, embed_dim):
    assert int(embed_dim * names.mlp_ratio(hidden, embed_dim)) == hidden


@given(weights())
def test_the_shapes_of_a_configuration_are_those_of_its_model(example):
    shapes = {name: array.shape for name, array in example.state.items()}
    assert names.own_shapes(example.config) == shapes
    names.expect_names(example.state, shapes, "ours")


@given(st.lists(st.sampled_from(["a", "b", "c (3)", ""]), max_size=8))
def test_names_are_made_unique_and_those_that_changed_are_noted(given_names):
    different, notes = names.different_names(given_names)
    assert len(set(different)) == len(different) == len(given_names)
    changed = [(i, new) for i, (name, new) in enumerate(zip(given_names, different, strict=True)) if name != new]
    assert len(notes) == bool(changed) and all(f"class {i} is called {new!r}" in notes[0] for i, new in changed[:4])
    assert all(name in different for name in given_names)
    assert names.different_names(different) == (different, ())


def test_very_many_equal_names_take_no_time_and_have_a_short_note():
    count = 30_000
    different, (note,) = names.different_names(["x"] * count)
    assert different == ("x", *(f"x ({i})" for i in range(2, count + 1)))
    assert note.endswith("'x' of class 4 is called 'x (5)', … (29,999 in all)")


@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9))
def test_a_square_of_patches_gives_the_size_of_the_images(side, p, q):
    size, notes = names.square_image(side * side, (p, q), "x")
    assert size == (side * p, side * q) and len(notes) == (side > 1)  # a single patch lies in one way only
    assert all(f"nothing says how the {side * side} patches lie; {side} rows of {side} are assumed" in x for x in notes)
    with pytest.raises(ValueError, match="don't form a square"):
        names.square_image(side * side + 1, (p, q), "x")


def test_blocks_are_counted_by_their_distinct_numbers_and_not_by_the_largest():
    assert names.count_blocks(["blocks.0.x", "blocks.0.y", "blocks.99999999999.x", "norm"], r"blocks\.(\d+)\.") == 2


def test_a_long_list_of_names_shows_some_and_counts_the_rest():
    with pytest.raises(ValueError) as error:
        names.expect_names({}, {f"n{i}": (1,) for i in range(500)}, "x")
    assert "n19, … (500 in all)" in str(error.value) and "n20" not in str(error.value)
