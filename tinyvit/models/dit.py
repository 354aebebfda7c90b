"""DiT: a transformer that predicts the noise in an image from its noise level and class.

Peebles & Xie 2023, "Scalable diffusion models with transformers". Parameters have the names of the paper's code.
"""

from dataclasses import dataclass
from typing import Annotated

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models.architecture import Architecture, as_input, image_shape
from tinyvit.models.registry import register, variant
from tinyvit.models.vit_config import MAX_BLOCKS
from tinyvit.nn import init
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.dit_block import DiTBlock, PlainNorm, columns, join, split
from tinyvit.nn.layers import Embedding, Linear
from tinyvit.nn.module import Module
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.nn.positions import FixedPositions
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.nn.tree import cache_type
from tinyvit.validation import NotNegative, Positive, PositiveInt, Range, Rate, Sides, Width, validate

FREQUENCIES = 256  # cosines and sines of the time
STD = 0.02         # initial standard deviation of the layers on the time


@dataclass(frozen=True)
class DiTConfig:
    """The shape of a DiT. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width."""
    patch_size: Sides = 2
    """Side of a patch in pixels, or height and width; it must divide the image's."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    num_classes: PositiveInt = 10
    """Classes (K) that an image can be asked of."""
    embed_dim: Width = 384
    """Width of a token (D), a multiple of 4."""
    depth: Annotated[int, Range(1, MAX_BLOCKS)] = 12
    """Blocks (L)."""
    num_heads: PositiveInt = 6
    """Attention heads (H); they divide embed_dim."""
    mlp_ratio: Positive = 4.0
    """Width of the MLP's hidden layer, as a multiple of embed_dim."""
    label_dropout: Rate = 0.1
    """Share of the samples whose class is left out in training, for guidance; with 0 there is no class "none"."""
    learn_sigma: bool = False
    """Whether the model also says how large the variance of a step back is, in C more channels."""
    norm_eps: NotNegative = 1e-6
    """ε of the layer norms."""

    def __post_init__(self):
        validate(self)
        if self.embed_dim % 4 or self.embed_dim % self.num_heads:
            raise ValueError(
                "embed_dim must be a multiple of 4, for its sines and cosines, and of num_heads, got "
                f"{self.embed_dim} and {self.num_heads} heads"
            )
        if int(self.embed_dim * self.mlp_ratio) < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio} leaves the MLP of width {self.embed_dim} no hidden layer")
        grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def grid(self):
        """Patches below and beside each other: (rows, columns)."""
        return grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def out_chans(self):
        """Channels of the output: the noise, and with learn_sigma as many for the variance."""
        return self.in_chans * (2 if self.learn_sigma else 1)


class TimestepEmbedder(Module):
    """Times (B,) into vectors (B, D): cosines and sines, then a linear layer, SiLU, and a linear layer."""

    def __init__(self, dim):
        self.mlp = Chain(Linear(FREQUENCIES, dim, weight_init=init.normal(STD)), Operation(F.silu),
                         Linear(dim, dim, weight_init=init.normal(STD)))  # fmt: skip

    def forward(self, t, ctx=None):
        waves = F.cast(F.timestep_embedding(t, FREQUENCIES), self.storage.compute_dtype)
        return self.mlp(waves, ctx)

    def backward(self, dy, cache):
        self.mlp.backward(dy, cache)


class LabelEmbedder(Module):
    """Classes (B,) into vectors (B, D); in training a share of them is replaced by the class "none", number K.

    Ho & Salimans 2022, "Classifier-free diffusion guidance", algorithm 1.
    """

    def __init__(self, num_classes, dim, dropout):
        self.num_classes, self.dropout = num_classes, dropout
        self.embedding_table = Embedding(num_classes + (dropout > 0), dim, F.embed_labels)

    def forward(self, labels, ctx=None):
        if ctx and ctx.training and self.dropout:
            xp = array_module(labels)
            left_out = ctx.key_for(self.path).uniform((len(labels), 1), xp)[:, 0] < self.dropout
            labels = xp.where(left_out, self.num_classes, labels)
        return self.embedding_table(labels, ctx)

    def backward(self, dy, cache):
        self.embedding_table.backward(dy, cache)


DiTEmbedCache = cache_type("DiTEmbed", "x_embedder positions t_embedder y_embedder")


class DiTEmbed(Module):
    """Images (B, C, H, W), times and classes (B,) into tokens (B, 1+N, D): the condition c = t + y, then the patches.

    The condition is no token that attention sees. It goes in front of the patches so that a block takes and gives one
    array, as in any architecture. By default t is 0 and the class "none"; in a model
    that was made without label dropout, which has no such class, the condition is then the time alone.
    """

    transparent, image_part = True, "x_embedder"

    def __init__(self, config):
        dim = config.embed_dim
        self.image_shape = image_shape(config)
        self.x_embedder = PatchEmbed(config.patch_size, config.in_chans, dim)
        self.t_embedder = TimestepEmbedder(dim)
        self.y_embedder = LabelEmbedder(config.num_classes, dim, config.label_dropout)
        self.positions = FixedPositions(config.grid, F.sincos_2d(config.grid, dim, prefix=0), prefix=0)

    def forward(self, images, ctx=None, t=None, labels=None):
        xp = array_module(images)
        images = as_input(images, self.image_shape, self.storage.compute_dtype)
        t = xp.zeros(len(images), "int64") if t is None else self.check_ints("t", t, images)
        if labels is None and self.y_embedder.dropout:
            labels = xp.zeros(len(images), "int64") + self.y_embedder.num_classes
        tokens, c_patch = self.x_embedder(images, ctx)                         # (B, N, D)
        tokens, c_positions = self.positions(tokens, ctx)
        time, c_time = self.t_embedder(t, ctx)                                 # (B, D)
        if labels is None:
            return join(time, tokens), DiTEmbedCache(c_patch, c_positions, c_time, None)
        label, c_label = self.y_embedder(self.check_ints("labels", labels, images), ctx)
        condition = time + F.cast(label, time.dtype)
        return join(condition, tokens), DiTEmbedCache(c_patch, c_positions, c_time, c_label)

    def backward(self, dx, cache):
        dcondition, dtokens = split(dx)
        self.t_embedder.backward(dcondition, cache.t_embedder)
        if cache.y_embedder is not None:
            self.y_embedder.backward(dcondition, cache.y_embedder)
        dtokens = self.positions.backward(dtokens, cache.positions)
        return self.x_embedder.backward(dtokens, cache.x_embedder)

    def check_ints(self, name, values, images):
        """One int for each image; ValueError for anything else."""
        if getattr(values, "shape", None) != (len(images),) or values.dtype.kind not in "iu":
            got = f"{values.dtype} {values.shape}" if hasattr(values, "dtype") else type(values).__name__
            raise ValueError(f"expected {name} ({len(images)},) as ints, one for each image, got {got}")
        return values


FinalLayerCache = cache_type("FinalLayer", "adaLN_modulation norm_final modulate linear unpatchify")


class FinalLayer(Module):
    """Tokens (B, 1+N, D), the condition in front, into images (B, C′, H, W): a last norm with adaLN and a linear layer,
    which begins at zero."""

    def __init__(self, config):
        dim = config.embed_dim
        self.patch_size, self.img_size = as_pair(config.patch_size), as_pair(config.img_size)
        self.norm_final = PlainNorm(dim, config.norm_eps)
        self.linear = Linear(dim, config.out_chans * self.patch_size[0] * self.patch_size[1], weight_init=init.zeros)
        self.adaLN_modulation = Chain(Operation(F.silu), Linear(dim, 2 * dim, weight_init=init.zeros))

    def forward(self, x, ctx=None):
        c, x = split(x)
        modulation, c_modulation = self.adaLN_modulation(c, ctx)                           # (B, 2D)
        x, c_norm = self.norm_final(x, ctx)
        x, c_modulate = F.modulate(x, *columns(modulation, 2))
        x, c_linear = self.linear(x, ctx)                                                  # (B, N, C′·P·Q)
        y, c_unpatchify = F.unpatchify(x, self.patch_size, self.img_size)
        return y, FinalLayerCache(c_modulation, c_norm, c_modulate, c_linear, c_unpatchify)

    def backward(self, dy, cache):
        dx = self.linear.backward(F.unpatchify_backward(dy, cache.unpatchify), cache.linear)
        dx, *dmodulation = F.modulate_backward(dx, cache.modulate)
        dmodulation = array_module(dy).concatenate(dmodulation, axis=1)
        dc = self.adaLN_modulation.backward(dmodulation, cache.adaLN_modulation)
        return join(dc, self.norm_final.backward(dx, cache.norm_final))


DiTCache = cache_type("DiT", "embed blocks final_layer")


@register("dit", DiTConfig)
class DiT(Architecture):
    """The noise in images (B, C, H, W) at times t (B,), of classes `labels` (B,): (B, C′, H, W).

    C′ is C, or with learn_sigma 2C: the noise, then v, which says where the logarithm of the variance lies between that
    of β̃ (v = −1) and that of β (v = 1). The class K is "none", and t = 0 the least noise; they are what a call without
    t and labels means, as for features of images.
    """

    num_prefix_tokens, first_token, readers = 1, "condition", "condition has"
    why_no_classes, task = "a DiT generates images and is not a classifier", "diffusion"

    def assemble(self, config):
        self.grid, self.embed = config.grid, DiTEmbed(config)
        mlp_hidden = int(config.embed_dim * config.mlp_ratio)
        self.blocks = [
            DiTBlock(config.embed_dim, config.num_heads, mlp_hidden, config.norm_eps) for _ in range(config.depth)
        ]
        self.final_layer = FinalLayer(config)

    def caches_of_parts(self, cache):
        return cache.embed, *cache.blocks, cache.final_layer

    def forward(self, images, ctx=None, t=None, labels=None):
        x, c_embed = self.embed(images, ctx, t=t, labels=labels)               # (B, 1+N, D)
        x, c_blocks = stack(self.blocks, x, ctx)
        noise, c_final = self.final_layer(x, ctx)
        return noise, DiTCache(c_embed, c_blocks, c_final)

    def backward(self, dnoise, cache):
        dx = self.final_layer.backward(dnoise, cache.final_layer)
        dx = stack_backward(self.blocks, dx, cache.blocks)
        return self.embed.backward(dx, cache.embed)

    def predict(self, images, preprocess=None):
        raise ValueError(f"{self.why_no_classes}; take model.features(images), or tinyvit.training.sample")


def name_published(letter, embed_dim, depth, num_heads):
    """Name a model of the paper's table 1 with patches of 2, 4 and 8, for latent images of 32×32×4 and ImageNet's
    classes: by the paper's name, as DiT-S/2, and as dit_s_2."""
    for patch in (2, 4, 8):
        for name in (f"DiT-{letter}/{patch}", f"dit_{letter.lower()}_{patch}"):
            variant(name, "dit", img_size=32, patch_size=patch, in_chans=4, num_classes=1000, embed_dim=embed_dim,
                    depth=depth, num_heads=num_heads, learn_sigma=True)  # fmt: skip


name_published("S", 384, 12, 6)
name_published("B", 768, 12, 12)
name_published("L", 1024, 24, 16)
name_published("XL", 1152, 28, 16)
