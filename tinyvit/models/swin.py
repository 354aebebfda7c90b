"""Swin: a transformer whose tokens see each other in windows, which shift from block to block.

Liu et al. 2021, "Swin transformer: hierarchical vision transformer using shifted windows".
"""

from dataclasses import dataclass

from tinyvit import functional as F
from tinyvit.backend import device_of
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.models.architecture import as_input, image_shape
from tinyvit.models.convnet import ConvNet, ConvNetConfig, OnMaps, Stage, Trunk, as_maps, as_tokens
from tinyvit.models.registry import register, variant
from tinyvit.models.resnet import Depth
from tinyvit.nn.block import Block
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.layers import LayerNorm, Linear
from tinyvit.nn.patch_embed import PatchEmbed
from tinyvit.nn.relative_attention import RelativeAttention
from tinyvit.nn.tree import cache_type
from tinyvit.validation import NotNegative, Positive, PositiveInt, Rate, Sides, Width


@dataclass(frozen=True)
class SwinConfig(ConvNetConfig):
    """The shape of a Swin. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width; other multiples of patch_size are read, too."""
    patch_size: Sides = 2
    """Side of a patch in pixels, or height and width."""
    embed_dim: Width = 96
    """Width of a token in the first stage (D)."""
    depths: tuple[Depth, ...] = (2, 2, 2)
    """Blocks of each stage; each stage after the first halves the side of the grid and doubles the width."""
    num_heads: tuple[PositiveInt, ...] = (3, 6, 12)
    """Attention heads of each stage; they divide its width."""
    window_size: PositiveInt = 4
    """Tokens along a window's side; less in a stage whose grid is smaller. Every other block shifts it by half."""
    mlp_ratio: Positive = 4.0
    """Width of the MLP's hidden layer, as a multiple of a token's."""
    qkv_bias: bool = True
    """Whether queries, keys and values have a bias."""
    drop_path_rate: Rate = 0.0
    """Stochastic depth of the last block; it grows linearly from 0 at the first."""
    norm_eps: NotNegative = 1e-5
    """ε of the blocks' layer norms and of the last; after the patches and in the mergers 1e-5, as in Transformers."""

    def __post_init__(self):
        super().__post_init__()
        if len(self.depths) != len(self.num_heads):
            raise ValueError(f"depths and num_heads must be as many, got {self.depths} and {self.num_heads}")
        for i, heads in enumerate(self.num_heads):
            if (self.embed_dim << i) % heads:
                raise ValueError(f"the width {self.embed_dim << i} of stage {i} is not divisible by its {heads} heads")
        if int(self.embed_dim * self.mlp_ratio) < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio} leaves the MLP of width {self.embed_dim} no hidden layer")
        grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def out_chans(self):
        """Width of a token in the last stage."""
        return self.embed_dim << len(self.depths) - 1

    @property
    def stride(self):
        """How many pixels of the image a step on the last feature maps is."""
        return tuple(side << len(self.depths) - 1 for side in as_pair(self.patch_size))

    def grid(self, stage):
        """(rows, columns) of tokens in a stage."""
        rows, columns = grid_of(as_pair(self.img_size), as_pair(self.patch_size))
        return -(-rows // (1 << stage)), -(-columns // (1 << stage))  # halved and rounded up, time after time


SwinEmbedCache = cache_type("SwinEmbed", "patch_embed norm shape")


class SwinEmbed(PatchEmbed):
    """Images (B, C, H, W) into feature maps (B, D, H/P, W/P): patches, projected and normalised. No positions."""

    def __init__(self, config):
        super().__init__(config.patch_size, config.in_chans, config.embed_dim)
        self.image_shape = image_shape(config)
        self.norm = LayerNorm(config.embed_dim, 1e-5)

    def forward(self, images, ctx=None):
        images = as_input(images, self.image_shape, self.storage.compute_dtype, any_size=True)
        tokens, c_patches = super().forward(images, ctx)                       # (B, N, D)
        tokens, c_norm = self.norm(tokens, ctx)
        grid = tokens.reshape(len(tokens), *grid_of(images.shape[2:], self.patch_size), -1)
        return as_maps(grid), SwinEmbedCache(c_patches, c_norm, tokens.shape)

    def backward(self, dmaps, cache):
        dtokens = self.norm.backward(as_tokens(dmaps).reshape(cache.shape), cache.norm)
        return super().backward(dtokens, cache.patch_embed)


WindowAttentionCache = cache_type("WindowAttention", "cut qkv split bias windows heads merge proj join")


class WindowAttention(RelativeAttention):
    """Attention of the tokens (B, H, W, D) of a grid in each of its windows.

    Where it is `shifted` the grid is rolled by half a window first, and masks keep apart what that brings together; not
    where a single window covers the grid's height or width. Section 3.2. Derived in notebooks/13.
    """

    def __init__(self, dim, num_heads, window, shifted, qkv_bias=True):
        super().__init__(dim, dim, num_heads, (window, window), qkv_bias)
        self.window, self.shifted = window, shifted

    def windows_of(self, sides):
        """(side of a window, shift) for a grid of these sides."""
        smallest = min(sides)
        if smallest <= self.window:
            return smallest, 0
        return self.window, self.window // 2 if self.shifted else 0

    def forward(self, x, ctx=None):
        sides, masks = x.shape[1:3], None
        window, shift = self.windows_of(sides)
        if shift:
            dtype = self.relative_position_bias_table.value.real.dtype.name
            masks = F.window_masks(sides, (window, window), shift, device_of(x), dtype)
        x, c_cut = F.to_windows(x, window, shift)                              # (B·windows, window², D)
        y, cache = super().forward(x, ctx, grid=(window, window), masks=masks)
        y, c_join = F.from_windows(y, sides, window, shift)                    # (B, H, W, D)
        return y, WindowAttentionCache(c_cut, *cache, c_join)

    def backward(self, dy, cache):
        dy = F.from_windows_backward(dy, cache.join)
        dx = super().backward(dy, cache)
        return F.to_windows_backward(dx, cache.cut)


class SwinBlock(OnMaps, Block):
    """x′ = x + Attention(LayerNorm(x)), y = x′ + MLP(LayerNorm(x′)): a `Block` of feature maps (B, D, H, W), in which
    attention is that of windows. Eq. 3."""

    def __init__(self, dim, num_heads, window, shifted, mlp_hidden, **options):
        super().__init__(dim, num_heads, mlp_hidden, **options)
        self.attn = WindowAttention(dim, num_heads, window, shifted, options["qkv_bias"])


class PatchMerging(OnMaps, Chain):
    """Feature maps (B, D, H, W) of four neighbours normalised and projected to one: (B, 2D, ⌈H/2⌉, ⌈W/2⌉)."""

    def __init__(self, dim):
        self.merge = Operation(F.merge_patches)                                # (B, ⌈H/2⌉, ⌈W/2⌉, 4D)
        self.norm = LayerNorm(4 * dim, 1e-5)
        self.reduction = Linear(4 * dim, 2 * dim, bias=False)


class SwinTrunk(Trunk):
    """Images into feature maps: `patch_embed`, the blocks `layers.0.blocks.0`, …, `layers.1.downsample`, …"""

    image_part = "patch_embed"

    def __init__(self, config):
        self.patch_embed = SwinEmbed(config)
        self.layers, before, last = [], 0, max(1, sum(config.depths) - 1)
        for i, (depth, heads) in enumerate(zip(config.depths, config.num_heads)):
            dim = config.embed_dim << i
            window = min(config.window_size, *config.grid(i))
            blocks = [
                SwinBlock(
                    dim,
                    heads,
                    window,
                    j % 2 == 1,
                    int(dim * config.mlp_ratio),
                    qkv_bias=config.qkv_bias,
                    norm_eps=config.norm_eps,
                    drop_path=config.drop_path_rate * (before + j) / last,
                )
                for j in range(depth)
            ]
            self.layers.append(Stage(downsample=PatchMerging(dim // 2) if i else None, blocks=blocks))
            before += depth


@register("swin", SwinConfig)
class Swin(ConvNet):
    """Swin. Its parts: `patch_embed`, the blocks `layers.0.blocks.0`, … and `layers.1.downsample`, `norm`, `pool`,
    `head`.

    Layers give feature maps (B, C, H, W); the head reads their mean over all positions, normalised.
    """

    trunk_type = SwinTrunk


def name_imagenet(name, embed_dim, depths, num_heads):
    """Name a model of table 7 of the paper, for 224×224 images."""
    variant(
        name,
        "swin",
        img_size=224,
        patch_size=4,
        num_classes=1000,
        embed_dim=embed_dim,
        depths=depths,
        num_heads=num_heads,
        window_size=7,
    )


name_imagenet("swin_tiny_patch4_window7_224", 96, (2, 2, 6, 2), (3, 6, 12, 24))
name_imagenet("swin_small_patch4_window7_224", 96, (2, 2, 18, 2), (3, 6, 12, 24))
name_imagenet("swin_base_patch4_window7_224", 128, (2, 2, 18, 2), (4, 8, 16, 32))
# For CIFAR: windows of 4×4 patches of 2×2 pixels, on grids of 16×16, 8×8 and 4×4.
variant(
    "swin_small_32",
    "swin",
    img_size=32,
    patch_size=2,
    num_classes=10,
    embed_dim=64,
    depths=(2, 2, 2),
    num_heads=(2, 4, 8),
    window_size=4,
)
