"""Architectures: one file each, all imported here, and the registry of names."""

from tinyvit.models.bit import BiT, BiTConfig
from tinyvit.models.clip import Clip, ClipConfig
from tinyvit.models.coatnet import CoAtNet, CoAtNetConfig
from tinyvit.models.deit import DeiT, DeiTConfig
from tinyvit.models.dinov2 import Dinov2, Dinov2Config
from tinyvit.models.dit import DiT, DiTConfig
from tinyvit.models.factorised_vivit import FactorisedViViT, FactorisedViViTConfig
from tinyvit.models.hybrid import Hybrid, HybridConfig
from tinyvit.models.registry import (
    architecture_name,
    build,
    config_class,
    create_model,
    model_names,
    register,
    variant,
)  # fmt: skip
from tinyvit.models.resnet import ResNet, ResNetConfig
from tinyvit.models.swin import Swin, SwinConfig
from tinyvit.models.vit import ViT, ViTConfig
from tinyvit.models.vivit import ViViT, ViViTConfig
