"""Architectures: one file each, and the registry of names."""

from tinyvit.models.registry import create_model, model_names
from tinyvit.models.vit import ViT, ViTConfig
