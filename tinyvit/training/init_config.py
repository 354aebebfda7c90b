"""Which weights a training starts from."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class InitConfig:
    """The weights that a training starts from; they are drawn by the seed if no run is named."""

    run: str | None = None
    """Run folder whose weights the model starts from, all but the head's. It is needed until the first checkpoint."""
    best: bool = False
    """Whether to take the run's weights that did best on the way, and not its last ones."""
    resize_positions: Literal["bilinear", "bicubic", "zoom"] = "bicubic"
    """How positions, sines and cosines too, are resized for images of another size when the training begins: as Hugging
    Face's ViT does it (bicubic), or the paper's code (zoom). What the forward does with still other sizes is said by
    model.resize_positions."""
    sha256: str | None = None
    """SHA256 of these weights, as a safetensors file; found and noted when they are read, and others are refused."""
