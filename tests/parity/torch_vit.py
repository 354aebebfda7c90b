"""A ViT in PyTorch, written from the paper and timm's names, that shares no code with tinyvit."""

import numpy as np
import torch
from strategies import redrawn
from torch import nn
from torch.nn import functional as T

from tinyvit import ViT


class TorchAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        D = config.embed_dim
        self.qkv = nn.Linear(D, 3 * D, bias=config.qkv_bias)
        self.proj = nn.Linear(D, D)
        self.num_heads = config.num_heads
        self.grid = config.grid if config.positions == "rope" else None

    def forward(self, x):
        q, k, v = (split.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for split in self.qkv(x).chunk(3, -1))
        if self.grid:
            q, k = rotated(q, self.grid), rotated(k, self.grid)
        return self.proj(T.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TorchMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = int(config.embed_dim * config.mlp_ratio)
        self.fc1 = nn.Linear(config.embed_dim, hidden)
        self.act = nn.GELU(approximate={"gelu": "none", "gelu_tanh": "tanh"}[config.activation])
        self.fc2 = nn.Linear(hidden, config.embed_dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class TorchBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.embed_dim, config.norm_eps)
        self.attn = TorchAttention(config)
        self.norm2 = nn.LayerNorm(config.embed_dim, config.norm_eps)
        self.mlp = TorchMlp(config)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TorchViT(nn.Module):
    """Images (B, C, H, W) to logits (B, K), for every configuration without dropout."""

    def __init__(self, config):
        super().__init__()
        D, (rows, columns) = config.embed_dim, config.grid
        self.config = config
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        self.patch_embed = nn.ModuleDict(
            {"proj": nn.Conv2d(config.in_chans, D, config.patch_size, stride=config.patch_size)}
        )
        if config.positions == "learned":
            self.pos_embed = nn.Parameter(torch.zeros(1, 1 + rows * columns, D))
        elif config.positions == "learned_2d":
            self.pos_embed_x = nn.Parameter(torch.zeros(1, columns, D // 2))
            self.pos_embed_y = nn.Parameter(torch.zeros(1, rows, D // 2))
        elif config.positions.startswith("sincos"):
            self.register_buffer("pos_embed", sincos_table(config.positions, rows, columns, D))
        self.blocks = nn.Sequential(*(TorchBlock(config) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(D, config.norm_eps)
        if config.head_hidden:
            self.pre_logits = nn.ModuleDict({"fc": nn.Linear(D, config.head_hidden)})
        self.head = nn.Linear(config.head_hidden or D, config.num_classes)

    def positions(self):
        if self.config.positions == "learned_2d":
            rows, columns = self.config.grid
            patches = [torch.cat([self.pos_embed_x[0, j], self.pos_embed_y[0, i]])
                       for i in range(rows) for j in range(columns)]  # fmt: skip
            return torch.stack([torch.zeros_like(patches[0]), *patches])
        return 0 if self.config.positions in ("rope", "none") else self.pos_embed

    def forward(self, images):
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)               # (B, N, D)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], 1) + self.positions()
        tokens = self.norm(self.blocks(tokens))
        features = tokens[:, 0] if self.config.global_pool == "token" else tokens[:, 1:].mean(1)
        return self.head(torch.tanh(self.pre_logits["fc"](features)) if self.config.head_hidden else features)


def sincos_table(kind, rows, columns, dim):
    """MAE's table: [sin, cos] of position · 10000^(−i/(width/2)); in 2-D half of D for x, then half for y."""

    def encoded(position, width):
        angles = [position / 10000 ** (i / (width // 2)) for i in range(width // 2)]
        return [*map(np.sin, angles), *map(np.cos, angles)]

    table = [[0.0] * dim]
    for y in range(rows):
        for x in range(columns):
            one_d = encoded(y * columns + x, dim)
            table.append(one_d if kind == "sincos_1d" else encoded(x, dim // 2) + encoded(y, dim // 2))
    return torch.tensor(np.array(table)[None])


def rotated(x, grid, theta=100.0):
    """Axial rotary positions: each pair (x₀, x₁) as a complex number times e^{i·angle}; x's angles, then y's."""
    rows, columns = grid
    quarter = x.shape[-1] // 4
    omega = theta ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    at_row = torch.arange(rows)[:, None, None] * omega                                      # (rows, 1, d/4)
    at_column = torch.arange(columns)[None, :, None] * omega                                # (1, columns, d/4)
    shape = rows, columns, quarter
    angles = torch.cat([at_column.expand(shape), at_row.expand(shape)], -1).flatten(0, 1)   # (N, d/2)
    prefix, patches = x[:, :, : -len(angles)], x[:, :, -len(angles) :]
    pairs = torch.view_as_complex(patches.unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angles), angles).to(pairs.dtype)
    return torch.cat([prefix, torch.view_as_real(turned).flatten(-2)], 2)


def redrawn_vit(config, seed=0, dtype="float64"):
    """Our model with every parameter from N(0, 0.2²); its initial head is zero and would block all gradients."""
    return redrawn(ViT(config, dtype=dtype), seed)


def torch_twin(model, dtype=None):
    """The PyTorch ViT with our model's weights under the same names; it keeps its own tables of sines."""
    twin = TorchViT(model.config).to(getattr(torch, str(dtype or model.dtype)))
    weights = {name: torch.tensor(array) for name, array in model.state_dict().items()}
    twin.load_state_dict(weights | dict(twin.named_buffers()), strict=True)
    return twin


def decaying_as_ours(model, theirs, weight_decay):
    """PyTorch's parameter groups: weight decay for parameters that our model marks `decay`, none for the rest."""
    groups = {True: [], False: []}
    for ours, parameter in zip(model.parameters(), theirs, strict=True):
        groups[ours.decay].append(parameter)
    assert all(groups.values())
    return [{"params": params, "weight_decay": weight_decay * decay} for decay, params in groups.items()]


def gradients_by_hand(model, images, dlogits):
    """Our logits and every gradient by name, the images' included."""
    model.zero_grad()
    logits, cache = model(images)
    dimages = model.backward(dlogits, cache)
    return {"logits": logits, "images": dimages} | {name: p.grad.copy() for name, p in model.named_parameters()}


def gradients_by_autograd(twin, images, dlogits):
    """The same for a PyTorch model, computed in its own dtype."""
    dtype = next(twin.parameters()).dtype
    leaf = torch.tensor(images, dtype=dtype, requires_grad=True)
    logits = twin(leaf)
    logits.backward(torch.tensor(dlogits, dtype=dtype))
    gradients = {name: parameter.grad.numpy() for name, parameter in twin.named_parameters()}
    return {"logits": logits.detach().numpy(), "images": leaf.grad.numpy()} | gradients
