"""Smaller learning rates for the layers that are nearer to the image."""


def layerwise_decay(model, factor):
    """Set every parameter's `lr_scale` to factor^(L + 1 − layer), and return these by name.

    Layer 0 is the first of the model's `parts()`, layers 1 to L are its L layers, layer L + 1 is what follows them: the
    head keeps the whole learning rate, and so does a parameter outside all parts; the first part gets the smallest.

    Clark et al. 2020 (ELECTRA), numbered for ViT as by Bao et al. 2022 (BEiT) and by timm.

    Raises ValueError for a factor that is not above 0 and at most 1, and for a module without parts.
    """
    if not 0 < factor <= 1:
        raise ValueError(f"expected a layer-wise decay above 0 and at most 1, got {factor}")
    if not hasattr(model, "parts"):
        raise ValueError(f"layer-wise decay needs a model with parts(); {type(model).__name__} has none")
    layer_of = {
        id(parameter): layer for layer, (_, part) in enumerate(model.parts()) for parameter in part.parameters()
    }
    last = model.depth + 1
    for parameter in model.parameters():
        parameter.lr_scale = factor ** (last - min(layer_of.get(id(parameter), last), last))
    return {name: parameter.lr_scale for name, parameter in model.named_parameters()}
