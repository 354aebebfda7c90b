from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.cli.parsing import separate


@dataclass
class Options:
    data_dir: str | None = None
    top: int = 5
    json: bool = False


@given(order=st.permutations(["run", "a.png", "--json", "--top 3", "--data-dir=x"]))
def test_options_may_come_before_after_or_between_positional_arguments(order):
    arguments, options = separate(" ".join(order).split(), Options)
    assert arguments == [word for word in order if not word.startswith("-")]
    assert options == " ".join(word for word in order if word.startswith("-")).split()


@pytest.mark.parametrize(("rest", "arguments", "options"), [
    ("", "", ""),
    ("run --no-json a", "run a", "--no-json"),
    ("run --help", "run", "--help"),
    ("run -h a", "run a", "-h"),
    ("run --top", "run", "--top"),
    ("run --top -1 a", "run a", "--top -1"),
    ("run - a", "run - a", ""),
    ("--json run -- --top a -- b", "run --top a -- b", "--json"),
    ("run --data_dir x a", "run a", "--data_dir x"),
])  # fmt: skip
def test_a_flag_stands_alone_and_other_options_take_what_follows(rest, arguments, options):
    assert separate(rest.split(), Options) == (arguments.split(), options.split())


def test_file_names_are_not_changed():
    names = ["run", "a b.png", "", "ä=ö.png", "it's.jpg"]
    assert separate(["--json", *names], Options) == (names, ["--json"])
