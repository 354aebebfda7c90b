"""tinyvit summary"""

from dataclasses import dataclass

from tinyvit.cli.parsing import parse, positional


@dataclass(frozen=True)
class SummaryOptions:
    """A model layer by layer. Multiply-adds count the matrix products of a forward; activations are what its
    backward needs, in float32."""

    batch_size: int = 1
    """Images in a batch."""
    img_size: int | None = None
    """Side of the images; by default the model's."""
    num_classes: int | None = None
    """Classes; by default the model's."""
    recompute: bool = False
    """Whether activations are those of a training with --recompute."""


def summary(rest):
    """tinyvit summary MODEL"""
    name, rest = positional(rest, "a model first: tinyvit summary MODEL …")
    options = parse(SummaryOptions, rest, "tinyvit summary MODEL")

    from tinyvit.models import create_model
    from tinyvit.models.summary import format_summary, summarize

    fields = {"img_size": options.img_size, "num_classes": options.num_classes}
    model = create_model(name, device="meta", **{k: v for k, v in fields.items() if v is not None})
    print(format_summary(summarize(model, options.batch_size, options.recompute)))
