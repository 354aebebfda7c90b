"""Functions shared by all layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.interop import names


@given(st.integers(1, 10_000), st.integers(1, 2_000))
def test_the_ratio_of_an_mlp_gives_its_width_exactly(hidden, embed_dim):
    assert int(embed_dim * names.mlp_ratio(hidden, embed_dim)) == hidden


def test_blocks_are_counted_by_their_distinct_numbers_and_not_by_the_largest():
    assert names.count_blocks(["blocks.0.x", "blocks.0.y", "blocks.99999999999.x", "norm"], r"blocks\.(\d+)\.") == 2


def test_a_long_list_of_names_shows_some_and_counts_the_rest():
    with pytest.raises(ValueError) as error:
        names.expect_names({}, {f"n{i}": (1,) for i in range(500)}, "x")
    assert "n19, … (500 in all)" in str(error.value) and "n20" not in str(error.value)
