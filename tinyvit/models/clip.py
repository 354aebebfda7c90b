"""CLIP: a ViT and a text transformer that put an image and its caption in the same place.

Radford et al. 2021, "Learning transferable visual models from natural language supervision".
"""

from dataclasses import dataclass
from math import log
from typing import Annotated

import numpy as np

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models.architecture import Architecture, image_shape
from tinyvit.models.registry import register, variant
from tinyvit.models.text_tower import TextTower, projection
from tinyvit.models.vit import Embed
from tinyvit.models.vit_config import MAX_BLOCKS, Activation
from tinyvit.nn import init
from tinyvit.nn.block import Block
from tinyvit.nn.chain import TransparentChain
from tinyvit.nn.head import token_pool
from tinyvit.nn.layers import LayerNorm
from tinyvit.nn.module import Module
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.nn.positions import LearnedPositions
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Parameter
from tinyvit.validation import NotNegative, Positive, PositiveInt, Range, Sides, Width, validate

FIRST_LOGIT_SCALE = log(1 / 0.07)
Depth = Annotated[int, Range(1, MAX_BLOCKS)]


@dataclass(frozen=True)
class ClipConfig:
    """The shape of a CLIP. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 224
    """Side of the images in pixels, or height and width."""
    patch_size: Sides = 32
    """Side of a patch in pixels, or height and width; it must divide the image's."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    embed_dim: Width = 768
    """Width of the image tower (D)."""
    depth: Depth = 12
    """Blocks of the image tower (L)."""
    num_heads: PositiveInt = 12
    """Attention heads of the image tower; they divide embed_dim."""
    text_dim: Width = 512
    """Width of the text tower."""
    text_depth: Depth = 12
    """Blocks of the text tower."""
    text_heads: PositiveInt = 8
    """Attention heads of the text tower; they divide text_dim."""
    context_length: Annotated[int, Range(2, words="an int of at least 2")] = 77
    """Tokens of a text, with those of its start and its end (T)."""
    vocab_size: Annotated[int, Range(3, words="an int of at least 3")] = 49408
    """Different tokens; with a vocabulary its words, and two for a text's start and end."""
    vocabulary: tuple[str, ...] = ()
    """The words that texts may have; none for texts in byte pairs, whose tokenizer is a file."""
    projection_dim: PositiveInt = 512
    """Width of the space that images and texts share."""
    mlp_ratio: Positive = 4.0
    """Width of the MLPs' hidden layers, as a multiple of their tower's width."""
    activation: Activation = "quick_gelu"
    """GELU, exact, in its tanh form, or as x σ(1.702 x)."""
    norm_eps: NotNegative = 1e-5
    """ε of the layer norms."""

    def __post_init__(self):
        if self.vocabulary:
            object.__setattr__(self, "vocab_size", len(self.vocabulary) + 2)
        validate(self)
        for dim, heads in (("embed_dim", "num_heads"), ("text_dim", "text_heads")):
            if getattr(self, dim) % getattr(self, heads):
                raise ValueError(
                    f"{dim} {getattr(self, dim)} is not divisible by {heads} {getattr(self, heads)}"
                )
            if int(getattr(self, dim) * self.mlp_ratio) < 1:
                raise ValueError(f"mlp_ratio {self.mlp_ratio} leaves the MLP of {dim} {getattr(self, dim)} no layer")
        if len(set(self.vocabulary)) < len(self.vocabulary):
            twice = next(word for word in self.vocabulary if self.vocabulary.count(word) > 1)
            raise ValueError(f"vocabulary must have each word once, got {twice!r} twice")
        grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def grid(self):
        """Patches below and beside each other: (rows, columns)."""
        return grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def num_classes(self):
        """None: an image is told by the text that it is most like."""
        return 0


class ClipEmbed(Embed):
    """Images (B, C, H, W) into tokens (B, 1+N, D): patches without a bias, class token, positions, and a layer norm in
    the place of a ViT's dropout."""

    def __init__(self, config):
        self.image_shape, self.any_size = image_shape(config), False
        dim = config.embed_dim
        self.cls_token = Parameter((1, 1, dim), init.normal(dim**-0.5), decay=False)
        self.positions = LearnedPositions(config.grid, dim)
        self.positions.pos_embed.init = init.normal(dim**-0.5)
        self.patch_embed = PatchEmbed(config.patch_size, config.in_chans, dim, bias=False)
        self.pos_drop = TransparentChain(norm_pre=LayerNorm(dim, config.norm_eps))


class ImageTower(Module):
    """The parts of the image tower, in their order; it gives them the names `visual.…`."""

    def __init__(self, config):
        dim = config.embed_dim
        self.embed = ClipEmbed(config)
        self.blocks = [
            Block(dim, config.num_heads, int(dim * config.mlp_ratio), activation=config.activation,
                  norm_eps=config.norm_eps) for _ in range(config.depth)
        ]  # fmt: skip
        self.pool = token_pool("token")
        self.norm = LayerNorm(dim, config.norm_eps)
        self.proj = projection(dim, config.projection_dim)


PairsCache = cache_type("Pairs", "visual text image_norm text_norm all_images all_texts logits")


@register("clip", ClipConfig)
class Clip(Architecture):
    """A ViT and a text transformer with one space for images and texts, where a pair's cosine is to be large.

        model(images)                 the images' places (B, P) in that space, not normalised
        model.text(tokens)            those of texts (K, T), likewise
        model.compare(images, tokens) the logits (B, K): e^s times the cosine of every image with every text

    `compare` has its own backward, `compare_backward(dlogits, cache)`; `logit_scale` is s, which starts at ln(1/0.07).
    A training sets it back into 0 to ln 100 after each step, as Open CLIP does. Section 2.4 and figure 3. As a model of
    images it is the image tower alone: its parts are a ViT's with a layer norm more, and it has no classes.
    """

    num_prefix_tokens, first_token, readers = 1, "class token", "class token has"
    pooling, task = "token", "clip"
    why_no_classes = "a CLIP tells images apart by texts and has no head for classes"

    def assemble(self, config):
        self.grid, self.visual = config.grid, ImageTower(config)
        self.text = TextTower(config)
        self.logit_scale = Parameter((), init.constant(np.array(FIRST_LOGIT_SCALE)))

    @property
    def depth(self):
        return self.config.depth

    def parts(self):
        return [*self.visual.children()]

    def towers(self):
        return [*super().towers(), (np.zeros((1, self.config.context_length), "int64"), [("text", self.text)])]

    def compare(self, images, tokens, ctx=None):
        x, c_images = self(images, ctx)                                        # (B, P)
        y, c_texts = self.text(tokens, ctx)                                    # (K, P)
        x, c_x = F.l2_normalise(x)
        y, c_y = F.l2_normalise(y)
        x, c_all_x = F.gather_batch(x, ctx and ctx.join)                       # also those of other processes
        y, c_all_y = F.gather_batch(y, ctx and ctx.join)
        logits, c_logits = F.similarity(x, y, self.logit_scale.value)          # (B, K)
        return logits, PairsCache(c_images, c_texts, c_x, c_y, c_all_x, c_all_y, c_logits)

    def compare_backward(self, dlogits, cache):
        """Adds to the gradients of both towers; returns that of the images, as texts are words and have none."""
        with self.gradients() as into:
            dx, dy, _ = F.similarity_backward(dlogits, cache.logits, into=into)
        dx = F.gather_batch_backward(dx, cache.all_images)
        dy = F.gather_batch_backward(dy, cache.all_texts)
        dx = F.l2_normalise_backward(dx, cache.image_norm)
        dy = F.l2_normalise_backward(dy, cache.text_norm)
        self.text.backward(dy, cache.text)
        return self.backward(dx, cache.visual)


def name_published(name, patch_size, embed_dim, depth, num_heads, text_dim, projection_dim, img_size=224):
    """Name a model of the paper's table 19; heads are 64 wide."""
    variant(
        name, "clip", img_size=img_size, patch_size=patch_size, embed_dim=embed_dim, depth=depth, num_heads=num_heads,
        text_dim=text_dim, text_heads=text_dim // 64, projection_dim=projection_dim,
    )  # fmt: skip


name_published("clip_vit_base_patch32_224", 32, 768, 12, 12, 512, 512)
name_published("clip_vit_base_patch16_224", 16, 768, 12, 12, 512, 512)
name_published("clip_vit_large_patch14_224", 14, 1024, 24, 16, 768, 768)
name_published("clip_vit_large_patch14_336", 14, 1024, 24, 16, 768, 768, img_size=336)
