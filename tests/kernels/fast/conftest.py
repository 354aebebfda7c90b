import pytest

from tinyvit import kernels


@pytest.fixture(scope="module", autouse=True)
def level():
    """Every test here is of what numba compiles."""
    with kernels.using("fast"):
        yield "fast"
