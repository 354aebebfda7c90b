"""A ViT of which the lower part is left as it is: neither gradients nor caches are made for it."""

from dataclasses import replace

from tinyvit.models.vit import parts_of
from tinyvit.nn.context import Context
from tinyvit.nn.recompute import with_recompute, with_recompute_backward

FREEZABLE = "embed (patches, class token and positions), a number of blocks with the embedding below them, or trunk"


def frozen_parts(freeze, depth):
    """How many parts (`parts_of`) of a ViT with `depth` blocks a word freezes: "embed", "3" blocks, "trunk", None.

    Raises ValueError for any other word, and for more blocks than there are.
    """
    if freeze is None:
        return 0
    if freeze == "embed":
        return 1
    if freeze == "trunk":  # the last norm, too: all but the head
        return depth + 2
    if freeze.isdecimal() and 1 <= int(freeze) <= depth:
        return 1 + int(freeze)
    raise ValueError(f"freeze has to be {FREEZABLE}; the model has {depth} blocks, got {freeze!r}")


def freeze_parts(model, count):
    """Freeze the first so many parts."""
    for part in parts_of(model)[:count]:
        for parameter in part.parameters():
            parameter.trainable = False


def forward_above(model, images, ctx, frozen):
    """The model's logits, and a backward that ends above the first `frozen` parts, for which nothing is kept."""
    x, quiet = images, replace(ctx or Context(), keep_caches=False)
    below, above = parts_of(model)[:frozen], parts_of(model)[frozen:]
    for part in below:
        x, _ = part(x, quiet)
    caches = []
    for part in above:
        x, cache = with_recompute(part, x, ctx=ctx)
        caches.append(cache)

    def backward(dx):
        for part, cache in zip(reversed(above), reversed(caches)):
            dx = with_recompute_backward(part, dx, cache)

    return x, backward
