"""Architectures: one file each, all imported here, and the registry of names."""

from tinyvit.models.registry import (
    architecture_name,
    build,
    config_class,
    create_model,
    model_names,
    register,
    variant,
)  # fmt: skip
from tinyvit.models.vit import ViT, ViTConfig
