"""Every test here runs on the CPU, where a stand-in for CuPy emulates the kernels, and again where there is a GPU."""

import sys

import pretend_cupy
import pytest


@pytest.fixture(
    scope="module",
    params=[pytest.param("emulated", marks=pytest.mark.cuda), pytest.param("gpu", marks=pytest.mark.gpu)],
)
def cupy(request):
    """CuPy or its stand-in."""
    if request.param == "gpu":
        import cupy

        yield cupy
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, module in pretend_cupy.MODULES.items():
            patch.setitem(sys.modules, name, module)
        yield pretend_cupy.cupy


@pytest.fixture
def pretended(monkeypatch):
    """CuPy's stand-in, for tests that a GPU can't run."""
    for name, module in pretend_cupy.MODULES.items():
        monkeypatch.setitem(sys.modules, name, module)
    return pretend_cupy.cupy


@pytest.fixture(scope="module")
def real():
    """The real CuPy, even where the stand-in replaces it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in pretend_cupy.MODULES:
            if sys.modules.get(name) is pretend_cupy.MODULES[name]:
                patch.delitem(sys.modules, name)
        import cupy
        import cupyx.scipy.special

        assert cupy is not pretend_cupy.cupy and cupyx.scipy.special.erf is not pretend_cupy.erf
        yield cupy


def pytest_collection_modifyitems(config, items):
    """Leave out the test that every kernel has run, unless it runs alone."""
    asking = [item for item in items if item.name == "test_every_kernel_has_run_in_every_variant"]
    if len(items) > 1 and asking:
        items.remove(*asking)
        config.hook.pytest_deselected(items=asking)
