import pytest

from tinyvit import kernels


@pytest.fixture(params=["numpy", "fast"], scope="module", autouse=True)
def level(request):
    """Every test here is of the kernels in NumPy, and then of those compiled by numba."""
    with kernels.using(request.param):
        yield request.param
