"""Attention as a segmentation: which patches a head picks out, and how well they cover an object.

Caron et al. 2021, "Emerging properties in self-supervised vision transformers", section 4.2.2 and figure 4.
"""

import numpy as np

from tinyvit.probe.pictures import image_rows

MASS_FRACTION = 0.6  # of the attention, that the patches of a segment hold together


def attention_segments(maps, mass=MASS_FRACTION):
    """The fewest patches of each map (…, rows, columns) that hold at least the share `mass` of it: bools of its shape.

    maps   such as those of `attention_maps`: the class token's attention to each patch
    """
    flat = maps.reshape(*maps.shape[:-2], -1)
    order = np.argsort(-flat, axis=-1, kind="stable")
    held = np.take_along_axis(flat, order, -1).cumsum(-1)
    before = np.concatenate([np.zeros_like(held[..., :1]), held[..., :-1]], -1)  # by the patches that are larger
    segments = np.empty(flat.shape, bool)
    np.put_along_axis(segments, order, before < mass * held[..., -1:], -1)
    return segments.reshape(maps.shape)


def overlap(segments, masks):
    """Intersection over union of segments (…, rows, columns) with masks (…, H, W), both of bools: (…), from 0 to 1.

    Each patch counts as its H/rows × W/columns pixels. A segment and a mask that are both empty overlap fully.

    Raises ValueError for arrays that aren't of bools and for sides that the patches don't divide.
    """
    if not segments.dtype == masks.dtype == bool:
        got = f"{segments.dtype} and {masks.dtype}"
        raise ValueError(f"expected segments and masks of bools, such as masks > 0, got {got}")
    (rows, columns), (H, W) = segments.shape[-2:], masks.shape[-2:]
    pixels = segments.repeat(H // rows, -2).repeat(W // columns, -1)
    both, either = (pixels & masks).sum((-2, -1)), (pixels | masks).sum((-2, -1))
    return np.where(either, both / np.maximum(either, 1), 1.0)


def draw_segments(images, masks, segments, names):
    """A matplotlib Figure of images (n, C, H, W), pixels from 0 to 1: a column an image, and below it its mask and the
    segments of several models, arrays (n, rows, columns) with `names`, as what is left of the image."""
    rows = [("image", images), ("mask", images * masks[:, None])]
    for name, found in zip(names, segments, strict=True):
        scale = images.shape[2] // found.shape[1], images.shape[3] // found.shape[2]
        rows.append((name, images * found.repeat(scale[0], 1).repeat(scale[1], 2)[:, None]))
    return image_rows(rows)
