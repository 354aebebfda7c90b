import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key, backend


@given(seed=st.integers(0, 2**70), step=st.integers(0, 2**40), sample=st.integers(0, 2**40))
def test_the_same_key_gives_the_same_numbers_and_each_sample_has_its_own(seed, step, sample):
    key = Key(seed, step, "blocks.0", sample)
    rows = key.uniform((4, 3, 5))
    np.testing.assert_array_equal(key.uniform((4, 3, 5)), rows)
    for i in range(4):
        np.testing.assert_array_equal(key.skip(i).uniform((1, 3, 5))[0], rows[i])
    assert len(np.unique(rows)) == rows.size


def test_uniform_numbers_are_uniform():
    x = np.sort(Key(1).uniform((400, 500)).ravel())
    assert x.dtype == "float32" and x[0] >= 0 and x[-1] < 1
    distance = np.abs(x - (np.arange(x.size) + 0.5) / x.size).max()
    assert distance < 1.95 / x.size**0.5  # Kolmogorov–Smirnov, one in a thousand


@pytest.mark.parametrize("axis", [0, 1])
def test_neighbouring_numbers_are_not_correlated(axis):
    x = Key(2).uniform((500, 500)).astype("float64") - 0.5
    a, b = (x[1:], x[:-1]) if axis == 0 else (x[:, 1:], x[:, :-1])
    assert abs((a * b).mean() * 12) < 5 / a.size**0.5


@given(seed=seeds())
def test_any_part_of_a_key_changes_its_numbers(seed):
    keys = [Key(seed), Key(seed + 1), Key(seed, step=1), Key(seed, path="a"), Key(seed, sample=1)]
    first = [key.uniform((1, 4)).tobytes() for key in keys]
    assert len(set(first)) == len(keys)
    assert len({key.at("x").generator().bytes(8) for key in keys[:3]}) == 3


def test_splitmix64_gives_its_published_numbers():
    """The first outputs for the seed 1234567, as the reference implementation in C prints them."""
    counters = np.uint64(1234567) + np.arange(1, 6, dtype="uint64") * np.uint64(backend.GOLDEN_GAMMA)
    assert backend._mix64(counters).tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


def test_choosing_a_device_falls_back_only_if_asked_to(monkeypatch):
    monkeypatch.setattr(backend, "why_no_gpu", lambda: "no driver")
    assert backend.choose_device("auto") == ("cpu", "no driver")
    assert backend.choose_device("cpu") == ("cpu", None)
    with pytest.raises(ValueError, match="device 'cuda' can't be used: no driver; use device 'cpu'"):
        backend.choose_device("cuda")
    monkeypatch.setattr(backend, "why_no_gpu", lambda: None)
    assert backend.choose_device("auto") == ("cuda", None)
