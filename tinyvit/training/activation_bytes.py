"""How many bytes of activations a model's backward needs."""

from math import prod

from tinyvit.models.summary import summarize


def activation_bytes(model, batch_size, recompute=False, bytes_per_number=4):
    """Bytes that the forward of a ViT keeps for its backward; with `recompute`, at most at one time in both.

    With `recompute` each block keeps its input, and one block at a time all of its activations.
    """
    rows, c = summarize(model, batch_size), model.config
    numbers = sum(row.activations for row in rows)
    if recompute:
        per_block = [0] * c.depth
        for row in rows:
            if row.path.startswith("blocks."):
                per_block[int(row.path.split(".")[1])] += row.activations
        tokens = prod(c.grid) + 1
        numbers += batch_size * tokens * c.embed_dim * c.depth - sum(per_block) + max(per_block)
    return numbers * bytes_per_number
