"""Which launchers are noticed, and by what."""

import pytest

from tinyvit.launcher import RANK_VARIABLES, rank_and_size


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch):
    for names in RANK_VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("SLURM_NTASKS", raising=False)


def test_a_process_that_was_started_alone_is_alone():
    assert rank_and_size() == (0, 1)


@pytest.mark.parametrize("rank, size", RANK_VARIABLES)
def test_a_rank_of_several_knows_its_number(monkeypatch, rank, size):
    monkeypatch.setenv(rank, "2")
    monkeypatch.setenv(size, "4")
    assert rank_and_size() == (2, 4)
    monkeypatch.setenv(size, "1")
    assert rank_and_size() == (0, 1)


def test_a_batch_script_of_slurm_has_started_nothing_in_parallel(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert rank_and_size() == (0, 1)


@pytest.mark.parametrize("text", ["", "two", "-1"])
def test_what_is_no_number_starts_nothing(monkeypatch, text):
    monkeypatch.setenv("PMI_RANK", text)
    monkeypatch.setenv("PMI_SIZE", "2")
    assert rank_and_size() == (0, 1)
