"""The hybrid: a ViT whose tokens are the pixels of a residual network's feature maps.

Dosovitskiy et al. 2021, section 3.1, "Hybrid architecture".
"""

from dataclasses import dataclass
from typing import Literal

from tinyvit.functional.patches import as_pair
from tinyvit.models.bit import BiTConfig, BiTTrunk
from tinyvit.models.registry import register, variant
from tinyvit.models.resnet import Depth, ResNetConfig, ResNetTrunk
from tinyvit.models.vit import Embed, ViT
from tinyvit.models.vit_config import ViTConfig
from tinyvit.nn.chain import Chain
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.validation import NotNegative, Width


@dataclass(frozen=True)
class HybridConfig(ViTConfig):
    """The shape of a hybrid: that of a ViT, and its stem's. Raises ValueError for a shape that can't be built.

    patch_size is in pixels of the image, a multiple of the stem's stride: equal to it, tokens are single pixels of the
    feature maps.
    """

    backbone: Literal["basic", "bottleneck", "bit"] = "basic"
    """The blocks of the stem: a ResNet's, with batch norm; or as in the paper, with group norm and standardised
    weights."""
    backbone_depths: tuple[Depth, ...] = (1, 1, 1)
    """Blocks of each stage of the stem; each stage after the first halves the side and doubles the width."""
    backbone_width: Width = 32
    """Channels of the 3×3 convolutions of the stem's first stage."""
    backbone_stem: Literal["conv3", "conv4", "conv7"] = "conv3"
    """What the stem begins with: a convolution of 3×3 that keeps the size; one of 4×4 with stride 2 (not with blocks
    "bit"); or one of 7×7 and a max pooling, which divide it by 4."""
    epsilon: Literal["variance", "deviation"] = "variance"
    """Of blocks "bit": where ε is added when filters are standardised, to their variance or standard deviation."""
    std_eps: NotNegative = 1e-8
    """Of blocks "bit": ε of standardised filters."""

    def __post_init__(self):
        super().__post_init__()
        stem = self.stem
        if any(side % stem.stride for side in as_pair(self.patch_size)):
            raise ValueError(
                f"a stem of {len(stem.depths)} stages with {stem.stem} has a stride of {stem.stride} pixels, and "
                f"patches of {'×'.join(map(str, as_pair(self.patch_size)))} pixels are no multiple of it; take "
                f"patch_size {stem.stride} and images that it divides"
            )

    @property
    def stem(self):
        """The configuration of the stem."""
        shape = dict(
            img_size=self.img_size,
            in_chans=self.in_chans,
            num_classes=0,
            depths=self.backbone_depths,
            width=self.backbone_width,
            stem=self.backbone_stem,
        )
        if self.backbone == "bit":
            return BiTConfig(**shape, preactivation=False, padding="same", epsilon=self.epsilon, std_eps=self.std_eps)
        return ResNetConfig(**shape, block=self.backbone)


class HybridPatches(Chain):
    """Images (B, C, H, W) through the stem, and its feature maps cut into patches and projected: (B, N, D)."""

    image_part = "backbone"

    def __init__(self, config):
        stem = config.stem
        self.patch_size = as_pair(config.patch_size)
        self.backbone = BiTTrunk(stem) if config.backbone == "bit" else ResNetTrunk(stem)
        height, width = self.patch_size
        self.patch_embed = PatchEmbed((height // stem.stride, width // stem.stride), stem.out_chans, config.embed_dim)
        self.patch_embed.transparent = True


class HybridEmbed(Embed):
    """As a ViT's, with a residual network in front of the patches."""

    def __init__(self, config):
        super().__init__(config)
        self.patch_embed = HybridPatches(config)


@register("hybrid", HybridConfig)
class Hybrid(ViT):
    """A ViT on the feature maps of a residual network. Its parts and parameters are those of a ViT; the stem's have
    timm's names, `patch_embed.backbone.stem.conv`, `patch_embed.backbone.stages.0.blocks.0.conv1`."""

    embedding = HybridEmbed


variant(
    "vit_base_r50_s16_224",
    "hybrid",
    img_size=224,
    patch_size=16,
    num_classes=1000,
    embed_dim=768,
    depth=12,
    num_heads=12,
    mlp_ratio=4.0,
    backbone="bit",
    backbone_depths=(3, 4, 9),
    backbone_width=64,
    backbone_stem="conv7",
)
variant(
    "hybrid_small_32",
    "hybrid",
    img_size=32,
    patch_size=4,
    num_classes=10,
    embed_dim=128,
    depth=4,
    num_heads=4,
    global_pool="avg",
    positions="sincos_2d",
    dynamic_img_size=True,
)
variant(
    "hybrid_digits",
    "hybrid",
    img_size=8,
    patch_size=4,
    in_chans=1,
    num_classes=10,
    embed_dim=64,
    depth=3,
    num_heads=4,
    global_pool="avg",
    backbone_width=16,
)
