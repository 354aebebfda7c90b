import pytest

from tinyvit import kernels


@pytest.fixture(params=["numpy", "fast"], scope="module", autouse=True)
def level(request):
    """Every test in this folder runs on the NumPy kernels and on those compiled by numba."""
    with kernels.using(request.param):
        yield request.param
