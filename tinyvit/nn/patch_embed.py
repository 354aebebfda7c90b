"""Images into tokens."""

from math import prod

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.nn import init
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter

PatchEmbedCache = cache_type("PatchEmbed", "patches proj")


class PatchEmbed(Module):
    """Cuts images (B, C, H, W) into patches and projects each to a token: (B, N, D).

    This is a convolution whose stride equals its kernel size, and its weight has that shape, (D, C, P, Q).
    Dosovitskiy et al. 2021, section 3.1. Derived in notebooks/01.
    """

    image_part = "proj"

    def __init__(self, patch_size, in_chans, embed_dim, bias=True):
        self.patch_size = as_pair(patch_size)
        self.proj = PatchProjection((embed_dim, in_chans, *self.patch_size), bias)

    def forward(self, images, ctx=None):
        patches, c_patches = F.patchify(images, self.patch_size)          # (B, N, C·P·Q)
        tokens, c_proj = self.proj(patches, ctx)                          # (B, N, D)
        return tokens, PatchEmbedCache(c_patches, c_proj)

    def backward(self, dtokens, cache):
        dpatches = self.proj.backward(dtokens, cache.proj)
        return dpatches if dpatches is None else F.patchify_backward(dpatches, cache.patches)


class PatchProjection(Module):
    """A linear layer on flattened patches, whose weight is kept in a convolution's shape: (D, C, P, Q), or (D, C, S, P,
    Q) for tubelets."""

    def __init__(self, shape, bias=True):
        embed_dim, fan_in = shape[0], prod(shape[1:])
        self.weight = Parameter(shape, init.lecun_normal(fan_in))
        self.bias = Parameter((embed_dim,), init.zeros) if bias else None

    @property
    def image_layer(self):
        return self

    def forward(self, patches, ctx=None):
        weight = self.weight.value
        return F.linear(patches, weight.reshape(len(weight), -1), self.bias.value if self.bias else None)

    def backward(self, dy, cache):
        with self.gradients() as (dweight, *dbias):
            flat = dweight if dweight is False else dweight.reshape(len(dweight), -1)
            inputs = self.weight.storage.grads.wants_input_of(self)
            dpatches, *_ = F.linear_backward(dy, cache, into=(flat, *dbias), inputs=inputs)
        return dpatches
