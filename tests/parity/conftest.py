"""Whoever doesn't run these tests needs no PyTorch: pytest would import them all before it deselects any."""

import re


def pytest_ignore_collect(collection_path, config):
    marks = config.option.markexpr
    return None if not marks or re.search(r"(?<!\bnot )\bparity\b", marks) else True
