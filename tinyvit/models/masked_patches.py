"""A ViT that guesses what was hidden from it, patch by patch.

Dosovitskiy et al. 2021, appendix B.1.2, "Self-supervision".
"""

from tinyvit import functional as F
from tinyvit.models.architecture import as_input
from tinyvit.models.registry import build
from tinyvit.nn import init
from tinyvit.nn.layers import Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter

MASK_TOKEN_STD = 0.02  # initial standard deviation


MaskedPatchesCache = cache_type("MaskedPatches", "patch_embed mask_token cls_token positions pos_drop encode take head")


class MaskedPatches(Module):
    """Images (B, C, H, W) to guesses (B, n, K) of the patches at `where` (B, n), with a mask token in place of the
    embedded patches where `mask` (B, N) is true. Derived in notebooks/15."""

    image_part = "encoder"

    def __init__(self, config, outputs, seed=0, dtype="float32", device="cpu", precision=None):
        self.encoder = build(config, device="meta")
        self.mask_token = Parameter((1, 1, config.embed_dim), init.normal(MASK_TOKEN_STD), decay=False)
        self.head = Linear(config.embed_dim, outputs)
        self.materialize(seed, dtype, device, precision)

    def forward(self, images, mask, where, ctx=None):
        embed = self.encoder.embed
        images = as_input(images, embed.image_shape, self.storage.compute_dtype, embed.any_size)
        x, c_patch = embed.patch_embed(images, ctx)                                         # (B, N, D)
        x, c_mask = F.replace_tokens(x, self.mask_token.value, mask)
        x, c_cls = F.prepend_token(x, embed.cls_token.value)                                # (B, 1+N, D)
        x, c_positions = embed.positions(x, ctx, grid=self.encoder.grid_of(images))
        x, c_drop = embed.pos_drop(x, ctx)
        x, c_encode = self.encoder.encode(x, self.encoder.context_of(images, ctx))
        x, c_take = F.take_tokens(x, 1 + where)                                             # (B, n, D)
        y, c_head = self.head(x, ctx)
        return y, MaskedPatchesCache(c_patch, c_mask, c_cls, c_positions, c_drop, c_encode, c_take, c_head)

    def backward(self, dy, cache):
        embed = self.encoder.embed
        dx = self.head.backward(dy, cache.head)
        dx = F.take_tokens_backward(dx, cache.take)
        dx = self.encoder.encode.backward(dx, cache.encode)
        dx = embed.pos_drop.backward(dx, cache.pos_drop)
        dx = embed.positions.backward(dx, cache.positions)
        with embed.gradients() as into:
            dx, _ = F.prepend_token_backward(dx, cache.cls_token, into=into)
        with self.gradients() as into:
            dx, _ = F.replace_tokens_backward(dx, cache.mask_token, into=into)
        return embed.patch_embed.backward(dx, cache.patch_embed)
