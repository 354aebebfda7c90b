import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.interop import strict_json
from tinyvit.interop.strict_json import parse_object, read_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_object_is_read_as_it_was_written(value):
    assert parse_object(json.dumps(value).encode(), "source") == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "source is damaged or not JSON"),
        (b"{", "source is damaged or not JSON"),
        (b'{"a": 1} trailing', "source is damaged or not JSON"),
        (b'{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": [-Infinity]}', "-Infinity is not a number in JSON"),
        (b"[1, 2]", r"expected an object \{…\}, got \[1, 2\]"),
        (b'"text"', "expected an object"),
        (b"\xff\xfe{}", "source is damaged or not JSON: 'utf-8' codec"),
        (b'{"a": ' + b"[" * 100_000, "source is damaged or not JSON"),
        (b'{"a": ' * 100_000, "source is damaged or not JSON"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "source is damaged or not JSON"),
    ],
)
def test_text_that_is_not_an_unambiguous_json_object_is_refused_with_its_source(content, reason):
    with pytest.raises(ValueError, match=reason) as error:
        parse_object(content, "source")
    assert str(error.value).startswith("source ") and len(str(error.value)) < 300


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text("{}" + " " * 100)
    assert read_object(path) == {}
    monkeypatch.setattr(strict_json, "LARGEST", 50)
    with pytest.raises(ValueError, match=r"config\.json has 102 bytes; expected JSON of at most 50"):
        read_object(path)
