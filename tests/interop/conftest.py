import pytest
from small_weights import PLACES, WEIGHTS

from tinyvit import interop


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders and a file with the same weights, by format."""
    root = tmp_path_factory.mktemp("saved")
    for form, name in PLACES.items():
        interop.save(WEIGHTS, root / name, form)
    return root
