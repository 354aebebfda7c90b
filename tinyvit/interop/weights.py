"""What every format is read into and written from."""

from typing import NamedTuple

from tinyvit.backend import Array
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.models import ViTConfig


class Weights(NamedTuple):
    """A model's weights, with what is needed to build it and to show it an image."""

    config: ViTConfig
    state: dict[str, Array]        # by timm's names, as `ViT.state_dict()` gives them
    preprocessing: Preprocessing   # its classes are the labels; "0", "1", … where the source names none
    notes: tuple[str, ...] = ()    # what the source didn't say, or what of it isn't used, a sentence each
