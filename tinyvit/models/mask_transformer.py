"""Segmenter's mask transformer: class tokens look at the patches, and a class's mask are the patches that are like it.

Strudel et al. 2021, "Segmenter: transformer for semantic segmentation", section 3.2, "Mask Transformer".
"""

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.models.convnet import as_maps, as_tokens
from tinyvit.models.upsampling import Upsample
from tinyvit.nn import init
from tinyvit.nn.block import Block
from tinyvit.nn.layers import LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter

EPS = 1e-5  # of its layer norms
TOKEN_STD = 0.02  # initial standard deviation of the class tokens

MaskCache = cache_type(
    "Mask",
    "proj_dec insert blocks decoder_norm proj_patch proj_classes patches classes products mask_norm upsample",
)


class MaskTransformer(Module):
    """Feature maps (B, D, H/P, W/P) into logits (B, K, H, W): cosines of patches with K class tokens, normalised over
    the classes and interpolated bilinearly."""

    def __init__(self, dim, num_classes, stride, config):
        width = config.decoder_dim
        self.proj_dec = Linear(dim, width)
        self.cls_emb = Parameter((1, num_classes, width), init.normal(TOKEN_STD), decay=False)
        self.blocks = [
            Block(width, config.decoder_heads, 4 * width, norm_eps=EPS)
            for _ in range(config.decoder_depth)
        ]
        self.decoder_norm = LayerNorm(width, EPS)
        self.proj_patch, self.proj_classes = (
            Linear(width, width, bias=False, weight_init=init.normal(width**-0.5))
            for _ in range(2)
        )
        self.mask_norm = LayerNorm(num_classes, EPS)
        self.upsample = Upsample(stride)

    def forward(self, maps, ctx=None):
        B, D, rows, columns = maps.shape
        N = rows * columns
        x, c_proj = self.proj_dec(as_tokens(maps).reshape(B, N, D), ctx)
        x, c_insert = F.insert_tokens(x, self.cls_emb.value, N)                # (B, N+K, D')
        x, c_blocks = stack(self.blocks, x, ctx)
        x, c_norm = self.decoder_norm(x, ctx)
        patches, c_patch = self.proj_patch(x[:, :N], ctx)
        classes, c_class = self.proj_classes(x[:, N:], ctx)
        patches, c_patches = F.l2_normalise(patches)
        classes, c_classes = F.l2_normalise(classes)
        masks, c_products = F.dot_products(patches, classes)                   # (B, N, K)
        masks, c_mask_norm = self.mask_norm(masks, ctx)
        masks = as_maps(masks.reshape(B, rows, columns, -1))
        logits, c_upsample = self.upsample(masks, ctx)                         # (B, K, H, W)
        return logits, MaskCache(
            c_proj,
            c_insert,
            c_blocks,
            c_norm,
            c_patch,
            c_class,
            c_patches,
            c_classes,
            c_products,
            c_mask_norm,
            c_upsample,
        )

    def backward(self, dlogits, cache):
        dmasks = as_tokens(self.upsample.backward(dlogits, cache.upsample))
        B, rows, columns, K = dmasks.shape
        dmasks = dmasks.reshape(B, rows * columns, K)
        dmasks = self.mask_norm.backward(dmasks, cache.mask_norm)
        dpatches, dclasses = F.dot_products_backward(dmasks, cache.products)
        dpatches = F.l2_normalise_backward(dpatches, cache.patches)
        dclasses = F.l2_normalise_backward(dclasses, cache.classes)
        dpatches = self.proj_patch.backward(dpatches, cache.proj_patch)
        dclasses = self.proj_classes.backward(dclasses, cache.proj_classes)
        dx = array_module(dpatches).concatenate([dpatches, dclasses], axis=1)
        dx = self.decoder_norm.backward(dx, cache.decoder_norm)
        dx = stack_backward(self.blocks, dx, cache.blocks)
        with self.gradients() as into:
            dx, _ = F.insert_tokens_backward(dx, cache.insert, into=into)
        dx = self.proj_dec.backward(dx, cache.proj_dec)
        return as_maps(dx.reshape(B, rows, columns, -1))
