"""A model layer by layer: shapes, parameters, multiply-adds, activation memory."""

from itertools import groupby
from math import prod

from tinyvit.functional.patches import as_pair
from tinyvit.models.vit import Embed, Encode, ViT
from tinyvit.nn.head import MeanPool, MlpHead, PreLogits, TokenPool
from tinyvit.nn.layers import Identity
from tinyvit.nn.positions import FixedPositions, GridPositions, LearnedPositions
from tinyvit.nn.summary import Row, chain, describe, own_parameters


@describe.register(LearnedPositions)
@describe.register(GridPositions)
@describe.register(FixedPositions)
def _(module, shape):
    return shape, [Row(module.path, type(module).__name__, shape, own_parameters(module), 0, 0)]


@describe.register
def _(module: Embed, shape):
    (B, N, D), patch_embed = describe(module.patch_embed, shape)
    tokens = (B, N + 1, D)
    token = Row(module.cls_token.name, "class token", tokens, module.cls_token.size, 0, 0)
    _, positions = describe(module.positions, tokens)
    return tokens, [*patch_embed, token, *positions]


@describe.register
def _(module: Encode, shape):
    return chain([*module.blocks, module.norm], shape)


@describe.register(TokenPool)
@describe.register(MeanPool)
def _(module, shape):
    B, N, D = shape
    # The class token is a view: reading it keeps all the tokens that it was read from.
    extra = B * N * D - B * D if isinstance(module, TokenPool) else 0
    return (B, D), [Row(module.path, type(module).__name__, (B, D), 0, 0, extra)]


@describe.register
def _(module: MlpHead, shape):
    shape, rows = chain([module.pre_logits, module.head], shape)
    if isinstance(module.head, Identity):  # else what the tanh keeps is what the last layer has read
        rows.append(Row("pre_logits.tanh", "tanh", shape, 0, 0, prod(shape)))
    return shape, rows


@describe.register
def _(module: Identity, shape):
    return shape, []


@describe.register
def _(module: PreLogits, shape):
    return describe(module.fc, shape)


@describe.register
def _(module: ViT, shape):
    return chain([module.embed, module.encode, module.pool, module.head], shape)


def summarize(model, batch_size=1, recompute=False, frozen=0):
    """The rows of a ViT's summary (see `nn.summary.Row`) for a batch of images, without its first `frozen` parts.

    With `recompute`, the activations are those of a step with `Context(recompute=True)`.
    """
    if batch_size < 1:
        raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
    config = model.config
    parts = [part for _, part in model.parts()]
    shape, _ = chain(parts[:frozen], (batch_size, config.in_chans, *as_pair(config.img_size)))
    _, rows = chain(parts[frozen:], shape)
    if isinstance(model.head, Identity) and rows:  # the features are the result, which no backward reads
        rows[-1] = rows[-1]._replace(activations=0)
    return recomputed(rows) if recompute else rows


def recomputed(rows):
    """The same rows, if a block keeps its input only: all else is there for one block at a time, in the last row."""
    kept, largest = [], 0
    for block, own in groupby(rows, block_of):
        own = list(own)
        if block:
            shape = own[0].shape
            kept.append(Row(block, "block's input", shape, 0, 0, prod(shape)))
            largest = max(largest, sum(row.activations for row in own))
            own = [row._replace(activations=0) for row in own]
        kept += own
    return [*kept, Row("blocks", "one at a time", shape, 0, 0, largest)] if largest else kept


def block_of(row):
    """The path of the block that a row belongs to, or "" outside of the blocks."""
    return ".".join(row.path.split(".")[:2]) if row.path.startswith("blocks.") else ""


def activation_bytes(model, batch_size, recompute=False, bytes_per_number=4, frozen=0):
    """Bytes that the backward of a batch needs of its forward: what the last line of a summary says.

    frozen   how many of the first parts are frozen: the backward ends above them

    What an operation needs only while it runs, the weights, gradients and the optimizer's state come on top of that.
    """
    return bytes_per_number * sum(row.activations for row in summarize(model, batch_size, recompute, frozen))


def format_summary(rows, bytes_per_number=4):
    """The rows as a table with totals."""
    header = ("layer", "kind", "output", "parameters", "multiply-adds", "activations")
    lines = [
        (
            row.path,
            row.kind,
            "×".join(str(side) for side in row.shape),
            f"{row.parameters:,}",
            f"{row.multiply_adds:,}",
            megabytes(row.activations * bytes_per_number),
        )
        for row in rows
    ]
    totals = (
        "total",
        "",
        "",
        f"{sum(row.parameters for row in rows):,}",
        f"{sum(row.multiply_adds for row in rows):,}",
        megabytes(sum(row.activations for row in rows) * bytes_per_number),
    )
    widths = [max(len(line[i]) for line in (header, totals, *lines)) for i in range(len(header))]
    rule = "  ".join("─" * width for width in widths)

    def text(line):
        cells = [cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        return "  ".join(cells).rstrip()

    return "\n".join([text(header), rule, *map(text, lines), rule, text(totals)])


def megabytes(count):
    return f"{count / 1e6:,.2f} MB"
