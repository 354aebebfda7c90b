"""Whoever doesn't run these tests needs no PyTorch: pytest would import them all before it deselects any."""


def pytest_ignore_collect(collection_path, config):
    return True if "not parity" in config.option.markexpr else None
