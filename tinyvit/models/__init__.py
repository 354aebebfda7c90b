"""Architectures, one file each, and the registry of their names. What isn't a ViT is imported when it is named."""

from importlib import import_module
from typing import TYPE_CHECKING

from tinyvit.models import registry
from tinyvit.models.registry import architecture_name, build, config_class, create_model, list_models, register, variant
from tinyvit.models.vit import ViT, ViTConfig

if TYPE_CHECKING:  # for editors: what `__getattr__` imports
    from tinyvit.models.bit import BiT, BiTConfig
    from tinyvit.models.clip import Clip, ClipConfig
    from tinyvit.models.coatnet import CoAtNet, CoAtNetConfig
    from tinyvit.models.deit import DeiT, DeiTConfig
    from tinyvit.models.dinov2 import Dinov2, Dinov2Config
    from tinyvit.models.dit import DiT, DiTConfig
    from tinyvit.models.factorised_vivit import FactorisedViViT, FactorisedViViTConfig
    from tinyvit.models.hybrid import Hybrid, HybridConfig
    from tinyvit.models.qwen_vision import QwenVision, QwenVisionConfig
    from tinyvit.models.resnet import ResNet, ResNetConfig
    from tinyvit.models.segmenter import Segmenter, SegmenterConfig
    from tinyvit.models.swin import Swin, SwinConfig
    from tinyvit.models.vivit import ViViT, ViViTConfig


def __getattr__(name):
    for module, architecture in registry.CLASSES.items():
        if name in (architecture, f"{architecture}Config"):
            return getattr(import_module(f"tinyvit.models.{module}"), name)
    raise AttributeError(f"module 'tinyvit.models' has no attribute {name!r}")
