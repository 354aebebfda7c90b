"""Architectures: one file each, and the registry of names."""

from tinyvit.models.registry import create_model, model_names
from tinyvit.models.resize import at_img_size
from tinyvit.models.vit import ViT, ViTConfig
