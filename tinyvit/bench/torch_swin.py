"""The Swin of `tinyvit.models` in PyTorch; imported by benchmark workers only."""

import torch
from torch import nn
from torch.nn import functional as T

from tinyvit.functional.patches import as_pair


class RelativeAttention(nn.Module):
    """Self-attention of x (B, n, in) with a learned bias for every difference of two places in a grid."""

    def __init__(self, in_dim, dim, heads, sides, qkv_bias=True):
        super().__init__()
        self.heads, (rows, columns) = heads, sides
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * rows - 1) * (2 * columns - 1), heads))
        self.qkv = nn.Linear(in_dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))              # (n, 2)
        apart = places[:, None] - places + torch.tensor([rows - 1, columns - 1])
        self.register_buffer("index", apart[..., 0] * (2 * columns - 1) + apart[..., 1], persistent=False)

    def forward(self, x, masks=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)       # each (B, H, n, d)
        bias = self.relative_position_bias_table[self.index].permute(2, 0, 1)                 # (H, n, n)
        if masks is not None:
            bias = (bias + masks[:, None]).repeat(len(x) // len(masks), 1, 1, 1)              # (B, H, n, n)
        y = T.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(len(x), -1, -1, -1))
        return self.proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(T.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention in windows, shifted or not, and an MLP, on tokens (B, H, W, D)."""

    def __init__(self, config, dim, heads, side, window, shift):
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1 = nn.LayerNorm(dim, config.norm_eps)
        self.attn = RelativeAttention(dim, dim, heads, (window, window), config.qkv_bias)
        self.norm2 = nn.LayerNorm(dim, config.norm_eps)
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio))
        if shift:
            edges = torch.tensor([side - window, side - shift])
            along = torch.bucketize(torch.arange(side), edges, right=True)
            region = self.cut((3 * along[:, None] + along)[None, :, :, None])[..., 0]         # (windows, n)
            apart = region[:, :, None] != region[:, None]
            masks = torch.zeros(apart.shape).masked_fill(apart, -torch.inf)
            self.register_buffer("masks", masks, persistent=False)

    def cut(self, x):
        B, H, W, D = x.shape
        w = self.window
        return x.view(B, H // w, w, W // w, w, D).transpose(2, 3).reshape(-1, w * w, D)

    def forward(self, x):
        (B, H, W, D), w = x.shape, self.window
        a = self.norm1(x)
        a = torch.roll(a, (-self.shift, -self.shift), (1, 2)) if self.shift else a
        a = self.attn(self.cut(a), self.masks.to(a.dtype) if self.shift else None)
        a = a.view(B, H // w, W // w, w, w, D).transpose(2, 3).reshape(B, H, W, D)
        a = torch.roll(a, (self.shift, self.shift), (1, 2)) if self.shift else a
        x = x + a
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim, eps)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        B, H, W, D = x.shape
        four = x.view(B, H // 2, 2, W // 2, 2, D).permute(0, 1, 3, 4, 2, 5).flatten(3)        # by column, then by row
        return self.reduction(self.norm(four))


class PatchEmbed(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Conv2d(config.in_chans, config.embed_dim, config.patch_size, stride=config.patch_size)
        self.norm = nn.LayerNorm(config.embed_dim, config.norm_eps)

    def forward(self, images):
        return self.norm(self.proj(images).permute(0, 2, 3, 1))


class Stage(nn.Module):
    def __init__(self, downsample, blocks):
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return self.blocks(self.downsample(x))


class Head(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        return self.fc(x)


class TorchSwin(nn.Module):
    """Images (B, C, H, W) to logits (B, K), with parameters under timm's names.

    Raises ValueError for grids that aren't squares which the windows divide, and for stochastic depth.
    """

    def __init__(self, config):
        super().__init__()
        stages, depths = range(len(config.depths)), config.depths
        sides = [config.grid(i) for i in stages]
        windows = [min(config.window_size, *side) for side in sides]
        height, width = as_pair(config.img_size)
        if height != width or any(side[0] % window for side, window in zip(sides, windows)) or config.drop_path_rate:
            raise ValueError("PyTorch's side of the benchmark has square grids that windows divide, no drop path")
        self.patch_embed = PatchEmbed(config)
        self.layers = nn.Sequential()
        for i, (side, _), window in zip(stages, sides, windows):
            dim, heads = config.embed_dim << i, config.num_heads[i]
            half = window // 2 if side > window else 0
            blocks = [Block(config, dim, heads, side, window, half if j % 2 else 0) for j in range(depths[i])]
            merging = PatchMerging(dim // 2, config.norm_eps) if i else nn.Identity()
            self.layers.append(Stage(merging, blocks))
        self.norm = nn.LayerNorm(config.out_chans, config.norm_eps)
        self.head = Head(config.out_chans, config.num_classes)

    def forward(self, images):
        return self.head(self.norm(self.layers(self.patch_embed(images))).mean((1, 2)))
