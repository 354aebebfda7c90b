import pytest

from tinyvit import kernels


@pytest.fixture(scope="module", autouse=True)
def level():
    """Every test in this folder runs on the kernels compiled by numba."""
    with kernels.using("fast"):
        yield "fast"
