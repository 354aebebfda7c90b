"""Names of models. A new architecture adds its names here and changes nothing else."""

from difflib import get_close_matches

from tinyvit.models.vit import ViT, ViTConfig


def _imagenet(patch_size, embed_dim, depth, num_heads):
    """The table of Dosovitskiy et al. 2021 (and Touvron et al. 2021 for Ti and S), for 224×224 images."""
    return dict(
        img_size=224, patch_size=patch_size, num_classes=1000, embed_dim=embed_dim, depth=depth, num_heads=num_heads,
        mlp_ratio=4.0,
    )  # fmt: skip


MODELS = {
    "vit_tiny_patch16_224": (ViT, ViTConfig, _imagenet(16, 192, 12, 3)),
    "vit_small_patch16_224": (ViT, ViTConfig, _imagenet(16, 384, 12, 6)),
    "vit_base_patch16_224": (ViT, ViTConfig, _imagenet(16, 768, 12, 12)),
    "vit_base_patch32_224": (ViT, ViTConfig, _imagenet(32, 768, 12, 12)),
    "vit_large_patch16_224": (ViT, ViTConfig, _imagenet(16, 1024, 24, 16)),
    "vit_large_patch32_224": (ViT, ViTConfig, _imagenet(32, 1024, 24, 16)),
    "vit_huge_patch14_224": (ViT, ViTConfig, _imagenet(14, 1280, 32, 16)),
}


def model_names():
    """The names that `create_model` knows."""
    return list(MODELS)


def create_model(name, *, seed=0, dtype="float32", device="cpu", precision=None, **fields):
    """A model by name, as in `create_model("vit_base_patch16_224", num_classes=10)`.

    `fields` replace fields of its configuration; `seed`, `dtype`, `device` and `precision` are as for `ViT`.
    Raises ValueError for a name or a field that doesn't exist.
    """
    if name not in MODELS:
        close = get_close_matches(str(name), MODELS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(MODELS)}"
        raise ValueError(f"unknown model {name!r}; {hint}")
    model, config, defaults = MODELS[name]
    unknown = [field for field in fields if field not in config.__dataclass_fields__]
    if unknown:
        known = ", ".join(config.__dataclass_fields__)
        raise ValueError(f"unknown field {', '.join(unknown)} of {config.__name__}; expected some of {known}")
    return model(config(**defaults | fields), seed=seed, dtype=dtype, device=device, precision=precision)
