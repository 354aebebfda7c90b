import pytest
from file_server import serving

from tinyvit.data import download


@pytest.fixture
def server(monkeypatch):
    """A server of files, which a download that failed asks again at once."""
    monkeypatch.setattr(download, "PAUSE", 0.0)
    with serving() as running:
        yield running
