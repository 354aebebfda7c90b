"""Smaller learning rates for the layers that are nearer to the image."""

import re


def layerwise_decay(model, factor):
    """Set every parameter's `lr_scale` to factor^(L + 1 − layer), and return these by name.

    Layer 0 is the embedding, layers 1 to L are the L blocks, layer L + 1 is what follows them: the head keeps the
    whole learning rate, the embedding gets the smallest. A parameter outside `blocks.i` belongs to the embedding if it
    is defined before the blocks, and to the head if after.

    Clark et al. 2020 (ELECTRA), numbered for ViT as by Bao et al. 2022 (BEiT) and by timm.

    Raises ValueError for a factor that is not above 0 and at most 1, and for a model without blocks.
    """
    if not 0 < factor <= 1:
        raise ValueError(f"expected a layer-wise decay above 0 and at most 1, got {factor}")
    names = [name for name, _ in model.named_parameters()]
    blocks = {name: int(match[1]) for name in names if (match := re.match(r"blocks\.(\d+)\.", name))}
    if not blocks:
        raise ValueError(f"layer-wise decay needs a model with blocks.0, blocks.1, …; {type(model).__name__} has none")
    depth, first = max(blocks.values()) + 1, names.index(next(iter(blocks)))
    for i, parameter in enumerate(model.parameters()):
        layer = blocks[names[i]] + 1 if names[i] in blocks else 0 if i < first else depth + 1
        parameter.lr_scale = factor ** (depth + 1 - layer)
    return {name: parameter.lr_scale for name, parameter in model.named_parameters()}
