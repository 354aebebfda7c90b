"""DINOv2's ViT: with a factor for each feature of a branch, SwiGLU in the largest one, and registers.

Oquab et al. 2024, "DINOv2: learning robust visual features without supervision"; Darcet et al. 2024, "Vision
transformers need registers".
"""

from dataclasses import dataclass

import numpy as np

from tinyvit import functional as F
from tinyvit.models.deit import DeiTEmbed
from tinyvit.models.registry import register, variant
from tinyvit.models.vit import ViT, block_options
from tinyvit.models.vit_config import ViTConfig
from tinyvit.nn import init
from tinyvit.nn.block import Block, GatedMlp
from tinyvit.nn.chain import TransparentChain
from tinyvit.nn.module import Module
from tinyvit.nn.variables import Parameter
from tinyvit.validation import Count, Finite


@dataclass(frozen=True)
class Dinov2Config(ViTConfig):
    """The shape of a DINOv2. Raises ValueError for a shape that can't be built."""

    num_registers: Count = 0
    """Registers: tokens without a position that take part in attention and are then thrown away."""
    layer_scale: Finite = 1e-5
    """Initial factor of each feature of a residual branch."""
    swiglu: bool = False
    """Whether the MLPs are gated by SiLU; their hidden layer is then two thirds as wide, a multiple of 8."""

    @property
    def swiglu_hidden(self):
        """Width of a gated MLP's hidden layer."""
        return (int(self.embed_dim * self.mlp_ratio * 2 / 3) + 7) // 8 * 8


class Dinov2Embed(DeiTEmbed):
    """Images (B, C, H, W) into tokens (B, 1+R+N, D): class token, R registers, patches."""

    num_read = 1


class LayerScale(Module):
    """y = x γ, a learned factor for each feature. See `functional.layer_scale`."""

    def __init__(self, dim, value):
        self.gamma = Parameter((dim,), init.constant(np.full(dim, value)))

    def forward(self, x, ctx=None):
        return F.layer_scale(x, self.gamma.value)

    def backward(self, dy, cache):
        with self.gradients() as into:
            dx, _ = F.layer_scale_backward(dy, cache, into=into)
        return dx


class ScaledBlock(Block):
    """x′ = x + γ₁ Attention(LayerNorm(x)), y = x′ + γ₂ MLP(LayerNorm(x′)): a `Block` whose branches are scaled before
    stochastic depth. Touvron et al. 2021, "Going deeper"."""

    def __init__(self, config, **options):
        super().__init__(**options)
        if config.swiglu:
            self.mlp = GatedMlp(config.embed_dim, config.swiglu_hidden)
        dim, scale = config.embed_dim, config.layer_scale
        self.drop_path1 = TransparentChain(ls1=LayerScale(dim, scale), drop_path1=self.drop_path1)
        self.drop_path2 = TransparentChain(ls2=LayerScale(dim, scale), drop_path2=self.drop_path2)


@register("dinov2", Dinov2Config)
class Dinov2(ViT):
    """A ViT whose branches have a factor for each feature, with registers and, if configured so, gated MLPs.

    Its parts are those of a ViT; a block has the parameters `ls1.gamma` and `ls2.gamma` besides.
    """

    embedding = Dinov2Embed

    def assemble(self, config):
        self.num_prefix_tokens = 1 + config.num_registers
        super().assemble(config)
        self.encode.blocks = [ScaledBlock(config, **options) for options in block_options(config, config.depth)]


def name_published(name, embed_dim, depth, num_heads, swiglu=False):
    """Name a model of the paper, for 518×518 images, without a head: as it is, and with four registers."""
    for ending, registers in (("", 0), ("_reg4", 4)):
        variant(f"vit_{name}_patch14{ending}_dinov2", "dinov2", img_size=518, patch_size=14, num_classes=0,
                embed_dim=embed_dim, depth=depth, num_heads=num_heads, mlp_ratio=4.0, swiglu=swiglu,
                num_registers=registers)  # fmt: skip


name_published("small", 384, 12, 6)
name_published("base", 768, 12, 12)
name_published("large", 1024, 24, 16)
name_published("giant", 1536, 40, 24, swiglu=True)
