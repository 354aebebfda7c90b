"""DeiT: a ViT with a second token and a second head, which learn from a teacher; and with registers.

Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention".
"""

from dataclasses import dataclass

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.models.architecture import as_input, require_classes
from tinyvit.models.registry import register, variant
from tinyvit.models.vit import Embed, ViT, ViTCache
from tinyvit.models.vit_config import ViTConfig
from tinyvit.nn import init
from tinyvit.nn.chain import Operation
from tinyvit.nn.head import linear_head
from tinyvit.nn.layers import Identity
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter
from tinyvit.validation import Count

HEADS = 2  # tokens that a head reads: for the labels, and for the teacher
TOKEN_STD = 0.02  # initial standard deviation of the distillation token and of registers


@dataclass(frozen=True)
class DeiTConfig(ViTConfig):
    """The shape of a DeiT: that of a ViT whose head reads the class token. Raises ValueError for a shape that can't be
    built."""

    num_registers: Count = 0
    """Registers: tokens without a position that take part in attention and are then thrown away."""

    def __post_init__(self):
        super().__post_init__()
        if self.global_pool != "token" or self.head_hidden is not None:
            raise ValueError(
                "a DeiT's heads are linear and read tokens of their own: global_pool must be 'token' and head_hidden "
                f"None, got {self.global_pool!r} and {self.head_hidden}"
            )


DeiTEmbedCache = cache_type("DeiTEmbed", "patch_embed dist_token cls_token positions reg_token pos_drop")


def learned_tokens(count, dim):
    """`count` tokens besides the class token; None for none."""
    # Not zero like the class token: two tokens that start alike, with equal gradients, would stay alike.
    return Parameter((1, count, dim), init.normal(TOKEN_STD), decay=False) if count else None


class DeiTEmbed(Embed):
    """Images (B, C, H, W) into tokens (B, 2+R+N, D): class and distillation token, R registers, patches. Section 4.

    Registers: Darcet et al. 2024, "Vision transformers need registers".
    """

    num_read = HEADS

    def __init__(self, config):
        super().__init__(config)
        self.dist_token = learned_tokens(self.num_read - 1, config.embed_dim)
        self.reg_token = learned_tokens(config.num_registers, config.embed_dim)

    def forward(self, images, ctx=None):
        images = as_input(images, self.image_shape, self.storage.compute_dtype, self.any_size)
        x, c_patch = self.patch_embed(images, ctx)                             # (B, N, D)
        x, c_dist = F.prepend_token(x, self.dist_token.value) if self.dist_token else (x, None)
        x, c_cls = F.prepend_token(x, self.cls_token.value)                    # (B, 2+N, D)
        x, c_positions = self.positions(x, ctx, grid=self.grid_of(images))
        x, c_registers = F.insert_tokens(x, self.reg_token.value, self.num_read) if self.reg_token else (x, None)
        x, c_drop = self.pos_drop(x, ctx)                                      # (B, 2+R+N, D)
        return x, DeiTEmbedCache(c_patch, c_dist, c_cls, c_positions, c_registers, c_drop)

    def backward(self, dx, cache):
        dx = self.pos_drop.backward(dx, cache.pos_drop)
        with self.gradients() as (dcls, *others):
            if self.reg_token:
                dx, _ = F.insert_tokens_backward(dx, cache.reg_token, into=others[-1:])
            dx = self.positions.backward(dx, cache.positions)
            dx, _ = F.prepend_token_backward(dx, cache.cls_token, into=(dcls,))
            if self.dist_token:
                dx, _ = F.prepend_token_backward(dx, cache.dist_token, into=others[:1])
        return self.patch_embed.backward(dx, cache.patch_embed)


TwoHeadsCache = cache_type("TwoHeads", "head head_dist")


class TwoHeads(Module):
    """A head on the class token and one on the distillation token, of features (B, 2D); their logits are averaged.

    `apart` gives the logits of both, and `backward` takes the gradient of the average or a pair of gradients.
    """

    transparent = True

    def __init__(self, dim, num_classes):
        self.dim = dim
        self.head = linear_head(dim, num_classes)
        self.head_dist = linear_head(dim, num_classes)

    def apart(self, features, ctx=None):
        """((B, K) of the class token, (B, K) of the distillation token), and the cache."""
        cls, c_head = self.head(features[:, : self.dim], ctx)
        dist, c_dist = self.head_dist(features[:, self.dim :], ctx)
        return (cls, dist), TwoHeadsCache(c_head, c_dist)

    def forward(self, features, ctx=None):
        (cls, dist), cache = self.apart(features, ctx)
        return 0.5 * (cls + dist), cache

    def backward(self, dlogits, cache):
        dcls, ddist = dlogits if isinstance(dlogits, tuple) else (0.5 * dlogits,) * 2
        dfeatures = self.head.backward(dcls, cache.head), self.head_dist.backward(ddist, cache.head_dist)
        return array_module(dcls).concatenate(dfeatures, axis=1)


@register("deit", DeiTConfig)
class DeiT(ViT):
    """A ViT with a distillation token beside the class token, a head on each, and registers.

    Its parts and parameters are those of a ViT, and besides `dist_token`, `reg_token` and `head_dist`. The logits are
    the mean of both heads'; `logits_by_head` gives both. Without classes it returns both tokens, (B, 2D).
    """

    embedding, readers = DeiTEmbed, "class and distillation token have"

    def assemble(self, config):
        self.num_prefix_tokens = HEADS + config.num_registers
        super().assemble(config)
        self.pool = Operation(F.first_tokens, HEADS)                          # (B, 2+R+N, D) to (B, 2D)
        self.head = TwoHeads(config.embed_dim, config.num_classes) if config.num_classes else Identity()

    def logits_by_head(self, images, ctx=None):
        """((B, K) of the class token, (B, K) of the distillation token), and the cache.

        `backward` takes a pair of gradients with it.
        """
        require_classes(self)
        tokens, c_embed = self.embed(images, ctx)
        tokens, c_encode = self.encode(tokens, self.context_of(images, ctx))
        features, c_pool = self.pool(tokens, ctx)
        logits, c_head = self.head.apart(features, ctx)
        return logits, ViTCache(c_embed, c_encode, c_pool, c_head)


def name_imagenet(name, embed_dim, num_heads):
    """Name a model of table 1 of the paper, for 224×224 images."""
    variant(name, "deit", img_size=224, patch_size=16, num_classes=1000, embed_dim=embed_dim, depth=12,
            num_heads=num_heads, mlp_ratio=4.0)  # fmt: skip


name_imagenet("deit_tiny_distilled_patch16_224", 192, 3)
name_imagenet("deit_small_distilled_patch16_224", 384, 6)
name_imagenet("deit_base_distilled_patch16_224", 768, 12)
