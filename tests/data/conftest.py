import pytest
from file_server import serving

from tinyvit.data import cache


@pytest.fixture
def server(monkeypatch):
    """A server of files; a download that failed is tried once again, after a second."""
    monkeypatch.setattr(cache, "MAX_RETRIES", 1)
    with serving() as running:
        yield running
