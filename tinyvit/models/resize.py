"""A ViT's weights for images of another size."""

from dataclasses import replace

from tinyvit import functional as F
from tinyvit.backend import device_of
from tinyvit.functional.interpolation import matrix_on


def at_img_size(config, state, img_size, method="bicubic"):
    """(config, state) of the same model for images of another size, cut into patches of the same size.

    There are then more of the patches, or fewer, or as many in another arrangement, and all weights stay but the
    positions:

        learned, sincos_1d, sincos_2d   interpolated in two dimensions by `F.resize_positions`, the class token's kept
        learned_2d                      interpolated along each axis, which is the same
        rope, none                      not in the state

    It is what a model with `dynamic_img_size` does in its forward, by the same method. Sines and cosines could be
    computed anew, but then a number that the blocks know as the middle of an image would stand elsewhere.

    config   a `ViTConfig`;  state   as `ViT.state_dict()` gives it; it isn't changed, nor are its arrays
    method   "bilinear", "bicubic" or "zoom"

    Raises ValueError for a size that the patches don't divide, and for a method or positions that `F.resize_positions`
    refuses.
    """
    new = replace(config, img_size=img_size)
    if new.grid == config.grid:
        return new, dict(state)
    changed = {}
    if config.positions in ("learned", "sincos_1d", "sincos_2d"):
        changed["pos_embed"] = F.resize_positions(state["pos_embed"], config.grid, new.grid, method)[0]
    elif config.positions == "learned_2d":
        for name, old, side in zip(("pos_embed_y", "pos_embed_x"), config.grid, new.grid):
            changed[name] = along_one_axis(state[name], old, side, method)
    return new, {**state, **changed}


def along_one_axis(positions, old, new, method):
    """Positions (1, old, D/2) of rows, or of columns, as (1, new, D/2)."""
    return (matrix_on(device_of(positions), method, old, new, positions.dtype) @ positions[0])[None]
