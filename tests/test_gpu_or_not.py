from types import SimpleNamespace

import gpu_or_not
import pytest

USUAL = "not full and not gpu"


@pytest.fixture
def chosen(monkeypatch):
    """The mark expression of a run after `choose`, with a GPU or with a reason why there is none."""

    def choose(asked, reason):
        monkeypatch.setattr(gpu_or_not, "why_no_gpu", lambda: reason)
        config = SimpleNamespace(getini=lambda name: ["-ra", "-m", USUAL], option=SimpleNamespace(markexpr=asked))
        gpu_or_not.choose(config)
        return config.option.markexpr

    return choose


def test_a_plain_run_includes_the_gpu_tests_where_there_is_a_gpu(chosen):
    assert chosen(USUAL, None) == "not full"
    assert chosen(USUAL, "no driver") == USUAL


@pytest.mark.parametrize("asked", ["full", "cuda and not gpu", ""])
def test_a_run_that_selects_other_marks_is_left_unchanged(chosen, asked):
    for reason in (None, "no driver"):
        assert chosen(asked, reason) == asked


@pytest.mark.parametrize("asked", ["gpu", "cuda or gpu", "gpu and not full"])
def test_selecting_the_gpu_tests_without_a_gpu_ends_with_the_reason(chosen, asked):
    assert chosen(asked, None) == asked
    with pytest.raises(pytest.UsageError, match="^tests with the mark gpu need a GPU that works: no driver$"):
        chosen(asked, "no driver")


def test_the_marks_that_a_plain_run_leaves_out_end_with_that_of_the_gpu(pytestconfig):
    usual = pytestconfig.getini("addopts")
    assert usual[usual.index("-m") + 1].endswith(gpu_or_not.NOT_GPU)
