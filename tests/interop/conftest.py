import pytest
from small_weights import write_all


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders and a file with the same weights, by format."""
    return write_all(tmp_path_factory.mktemp("saved"))
