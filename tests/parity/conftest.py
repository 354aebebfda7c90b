"""Whoever doesn't run these tests needs no PyTorch: pytest would import them all before it deselects any."""

import re
from functools import cache


def pytest_ignore_collect(collection_path, config):
    marks = config.option.markexpr
    if marks and not re.search(r"(?<!\bnot )\bparity\b", marks):
        return True
    declare_operations()


@cache
def declare_operations():
    """Declare what torchvision, which timm imports, looks for in vain where PyTorch is the one without CUDA."""
    import torch

    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
