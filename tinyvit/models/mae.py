"""A masked autoencoder: a ViT that sees a part of the patches, and a small decoder that guesses the others.

He et al. 2022, "Masked autoencoders are scalable vision learners".
"""

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.patches import as_pair
from tinyvit.models.registry import build
from tinyvit.nn import init
from tinyvit.nn.block import Block
from tinyvit.nn.layers import LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.positions import FixedPositions
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter

MASK_TOKEN_STD = 0.02  # initial standard deviation


DecoderCache = cache_type("Decoder", "embed place positions blocks norm take pred")


class Decoder(Module):
    """Tokens (B, 1+n, D), the class token and the visible patches, into the pixels of the hidden ones (B, N−n, C·P·Q).

    Mask tokens take the hidden patches' places; fixed sines and cosines tell all of them where they are. Section 3,
    "MAE decoder". Derived in notebooks/15.
    """

    def __init__(self, config, dim, depth, num_heads, pixels):
        self.embed = Linear(config.embed_dim, dim)
        self.mask_token = Parameter((1, 1, dim), init.normal(MASK_TOKEN_STD), decay=False)
        self.positions = FixedPositions(config.grid, F.sincos_2d(config.grid, dim), config.resize_positions)
        self.blocks = [Block(dim, num_heads, 4 * dim, norm_eps=config.norm_eps) for _ in range(depth)]
        self.norm = LayerNorm(dim, config.norm_eps)
        self.pred = Linear(dim, pixels)

    def forward(self, tokens, order, grid, ctx=None):
        index, hidden = with_class_token(order, tokens.shape[1] - 1)
        x, c_embed = self.embed(tokens, ctx)
        x, c_place = F.place_tokens(x, self.mask_token.value, index, order.shape[1] + 1)     # (B, 1+N, D')
        x, c_positions = self.positions(x, ctx, grid=grid)
        x, c_blocks = stack(self.blocks, x, ctx)
        x, c_norm = self.norm(x, ctx)
        x, c_take = F.take_tokens(x, hidden)                                                # (B, N−n, D')
        x, c_pred = self.pred(x, ctx)
        return x, DecoderCache(c_embed, c_place, c_positions, c_blocks, c_norm, c_take, c_pred)

    def backward(self, dpixels, cache):
        dx = self.pred.backward(dpixels, cache.pred)
        dx = F.take_tokens_backward(dx, cache.take)
        dx = self.norm.backward(dx, cache.norm)
        dx = stack_backward(self.blocks, dx, cache.blocks)
        dx = self.positions.backward(dx, cache.positions)
        with self.gradients() as into:
            dx, _ = F.place_tokens_backward(dx, cache.place, into=into)
        return self.embed.backward(dx, cache.embed)


MaskedAutoencoderCache = cache_type("MaskedAutoencoder", "embed take encode decoder")


class MaskedAutoencoder(Module):
    """Images (B, C, H, W), and the order (B, N) of each image's patches, to the pixels of those that are hidden.

    The first n patches in the order are visible, and all that the encoder computes with; the others are guessed, in the
    order: (B, N−n, C·P·Q), the numbers of a patch as `patchify` has them. Derived in notebooks/15.
    """

    image_part = "encoder"

    def __init__(self, config, decoder_dim, decoder_depth, decoder_heads, seed=0, dtype="float32", device="cpu",
                 precision=None):  # fmt: skip
        self.encoder = build(config, device="meta")
        height, width = as_pair(config.patch_size)
        self.decoder = Decoder(config, decoder_dim, decoder_depth, decoder_heads, config.in_chans * height * width)
        self.materialize(seed, dtype, device, precision)

    def forward(self, images, order, visible, ctx=None):
        tokens, c_embed = self.encoder.embed(images, ctx)                                   # (B, 1+N, D)
        tokens, c_take = F.take_tokens(tokens, with_class_token(order, visible)[0])         # (B, 1+n, D)
        ctx = self.encoder.context_of(images, ctx, order[:, :visible])
        tokens, c_encode = self.encoder.encode(tokens, ctx)
        pixels, c_decoder = self.decoder(tokens, order, self.encoder.grid_of(images), ctx)
        return pixels, MaskedAutoencoderCache(c_embed, c_take, c_encode, c_decoder)

    def backward(self, dpixels, cache):
        dtokens = self.decoder.backward(dpixels, cache.decoder)
        dtokens = self.encoder.encode.backward(dtokens, cache.encode)
        dtokens = F.take_tokens_backward(dtokens, cache.take)
        return self.encoder.embed.backward(dtokens, cache.embed)


def with_class_token(order, visible):
    """Places (B, 1+n) of the class token and the visible patches among 1+N tokens, and (B, N−n) of the hidden ones."""
    xp = array_module(order)
    first = xp.zeros((len(order), 1), order.dtype)
    return xp.concatenate([first, 1 + order[:, :visible]], axis=1), 1 + order[:, visible:]
