"""The ViT of `tinyvit.models` in PyTorch, laid out for speed on a CPU; imported by benchmark workers only."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as T


class TorchViT(nn.Module):
    """Images (B, C, H, W) to logits (B, K), with parameters under timm's names.

    Attention is `scaled_dot_product_attention`. The patches are a convolution in channels-last memory, which took a
    quarter of the time of the standard layout. Raises ValueError for positions and heads that no case has.
    """

    def __init__(self, config):
        super().__init__()
        if config.positions not in ("learned", "sincos_2d") or config.head_hidden or config.activation != "gelu":
            raise ValueError(
                "PyTorch's side of the benchmark has learned or sincos_2d positions, a linear head and exact GELU only"
            )
        D, (rows, columns), C = config.embed_dim, config.grid, config.in_chans
        self.global_pool = config.global_pool
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        learned, positions = config.positions == "learned", torch.zeros(1, 1 + rows * columns, D)
        self.pos_embed = nn.Parameter(positions, requires_grad=learned)
        patches = nn.Conv2d(C, D, config.patch_size, stride=config.patch_size)
        self.patch_embed = nn.Sequential(OrderedDict(proj=patches))
        self.pos_drop = nn.Dropout(config.drop_rate)
        last = max(1, config.depth - 1)
        self.blocks = nn.Sequential(*(Block(config, config.drop_path_rate * i / last) for i in range(config.depth)))
        self.norm = nn.LayerNorm(D, config.norm_eps)
        self.head = nn.Linear(D, config.num_classes)

    def forward(self, images):
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)               # (B, N, D)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], 1) + self.pos_embed
        tokens = self.norm(self.blocks(self.pos_drop(tokens)))
        return self.head(tokens[:, 0] if self.global_pool == "token" else tokens[:, 1:].mean(1))


class Block(nn.Module):
    """x + Attention(LayerNorm(x)), and to that its MLP(LayerNorm(·))."""

    def __init__(self, config, drop_path):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.embed_dim, config.norm_eps)
        self.attn = Attention(config)
        self.norm2 = nn.LayerNorm(config.embed_dim, config.norm_eps)
        self.mlp = Mlp(config)
        self.drop_path = drop_path

    def forward(self, x):
        x = x + self.kept(self.attn(self.norm1(x)))
        return x + self.kept(self.mlp(self.norm2(x)))

    def kept(self, branch):
        """Stochastic depth: drop the branch of whole samples."""
        if not self.training or not self.drop_path:
            return branch
        keep = 1 - self.drop_path
        return branch * branch.new_empty(len(branch), 1, 1).bernoulli_(keep).div_(keep)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        D = config.embed_dim
        self.num_heads, self.attn_drop = config.num_heads, config.attn_drop_rate
        self.qkv = nn.Linear(D, 3 * D, bias=config.qkv_bias)
        self.proj = nn.Linear(D, D)
        self.proj_drop = nn.Dropout(config.drop_rate)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, N, d)
        heads = T.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop if self.training else 0.0)
        return self.proj_drop(self.proj(heads.transpose(1, 2).flatten(2)))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, config.mlp_hidden)
        self.drop1 = nn.Dropout(config.drop_rate)
        self.fc2 = nn.Linear(config.mlp_hidden, config.embed_dim)
        self.drop2 = nn.Dropout(config.drop_rate)

    def forward(self, x):
        return self.drop2(self.fc2(self.drop1(T.gelu(self.fc1(x)))))
