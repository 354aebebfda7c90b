"""Freezes the lower part of a model: it gets neither gradients nor caches."""


def frozen_parts(freeze, model):
    """How many of a model's parts a word freezes: "embed", "3" for the first part and three layers, "trunk".

    Raises ValueError for any other word, and for more layers than the model has.
    """
    if freeze == "embed":
        return 1
    if freeze == "trunk":
        return len(model.parts()) - 1
    if freeze.isdecimal() and 1 <= int(freeze) <= model.depth:
        return 1 + int(freeze)
    raise ValueError(
        "freeze must be embed (the first part), a number of layers with the first part below them, or trunk (all but "
        f"the head); the model has {model.depth} layers, got {freeze!r}"
    )


def freeze_parts(model, count):
    """Freeze the first `count` parts, with their buffers."""
    for _, part in model.parts()[:count]:
        for parameter in part.parameters():
            parameter.trainable = False
        for _, module in part.named_modules():
            module.frozen = True
