"""The configuration of a Vision Transformer."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.nn.block import ACTIVATIONS
from tinyvit.validation import Count, NotNegative, Positive, PositiveInt, Range, Rate, Sides, Width, validate

Positions = Literal["learned", "learned_2d", "sincos_1d", "sincos_2d", "rope", "none"]
Pooling = Literal["token", "avg"]
Activation = Literal[tuple(ACTIVATIONS)]
POSITIONS, POOLINGS = get_args(Positions), get_args(Pooling)
POSITIONS_DIVIDE = {"learned_2d": 2, "sincos_1d": 2, "sincos_2d": 4, "sincos_3d": 6}  # divisors of embed_dim
MAX_BLOCKS = 1000  # as many as anyone has trained; building more takes minutes before any memory is asked for


@dataclass(frozen=True)
class ViTConfig:
    """The shape of a ViT. Raises ValueError for a shape that can't be built."""

    img_size: Sides = 32
    """Side of the images in pixels, or height and width."""
    patch_size: Sides = 4
    """Side of a patch in pixels, or height and width; it must divide the image's."""
    in_chans: PositiveInt = 3
    """Channels of the images (C)."""
    num_classes: Count = 10
    """Classes (K); with 0 there is no last layer, and the model returns the features that it would read."""
    embed_dim: Width = 192
    """Width of a token (D)."""
    depth: Annotated[int, Range(1, MAX_BLOCKS)] = 9
    """Blocks (L)."""
    num_heads: PositiveInt = 12
    """Attention heads (H); they divide embed_dim."""
    mlp_ratio: Positive = 2.0
    """Width of the MLP's hidden layer, as a multiple of embed_dim."""
    qkv_bias: bool = True
    """Whether queries, keys and values have a bias."""
    global_pool: Pooling = "token"
    """The head's input: the class token, or the mean over the patches."""
    positions: Positions = "learned"
    """The position encoding."""
    head_hidden: PositiveInt | None = None
    """Width of the pre-training head's hidden layer (tanh); None for a linear head."""
    drop_rate: Rate = 0.0
    """Dropout after the positions and after every linear layer of the blocks but qkv."""
    attn_drop_rate: Rate = 0.0
    """Dropout on the attention probabilities."""
    drop_path_rate: Rate = 0.0
    """Stochastic depth of the last block; it grows linearly from 0 at the first."""
    activation: Activation = "gelu"
    """GELU, exact, in its tanh form, or as x σ(1.702 x)."""
    norm_eps: NotNegative = 1e-6
    """ε of the layer norms."""
    dynamic_img_size: bool = False
    """Whether images of other sizes are read, too; the positions are then resized."""
    resize_positions: Literal["bilinear", "bicubic", "zoom"] = "bilinear"
    """How positions are resized for images of other sizes; as Hugging Face's ViT does it (bicubic), or the paper's code
    (zoom)."""

    def __post_init__(self):
        validate(self)
        if self.mlp_hidden < 1:
            raise ValueError(f"mlp_ratio {self.mlp_ratio} leaves the MLP of width {self.embed_dim} no hidden layer")
        if self.embed_dim % self.num_heads:
            raise ValueError(f"embed_dim {self.embed_dim} is not divisible by num_heads {self.num_heads}")
        divisor = POSITIONS_DIVIDE.get(self.positions, 1)
        if self.embed_dim % divisor:
            raise ValueError(
                f"positions {self.positions!r} need embed_dim divisible by {divisor}, got {self.embed_dim}"
            )
        if self.positions == "rope" and self.head_dim % 4:
            raise ValueError(
                f"positions 'rope' need heads whose width is divisible by 4, got {self.head_dim} "
                f"(embed_dim {self.embed_dim} / num_heads {self.num_heads})"
            )
        grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def grid(self):
        """Patches below and beside each other: (rows, columns)."""
        return grid_of(as_pair(self.img_size), as_pair(self.patch_size))

    @property
    def out_chans(self):
        """Channels of its feature maps."""
        return self.embed_dim

    @property
    def stride(self):
        """How many pixels of the image a step on its feature maps is."""
        return self.patch_size

    @property
    def mlp_hidden(self):
        """Width of the MLP's hidden layer."""
        return int(self.embed_dim * self.mlp_ratio)

    @property
    def head_dim(self):
        """Width of an attention head (d)."""
        return self.embed_dim // self.num_heads


def without_classes(config):
    """The configuration of a ViT without a head."""
    return replace(config, num_classes=0, head_hidden=None)
