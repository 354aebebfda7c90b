"""The CoAtNet of `tinyvit.models` in PyTorch; imported by benchmark workers only."""

import torch
from torch import nn
from torch.nn import functional as T

from tinyvit.bench.torch_swin import Head, Mlp, RelativeAttention


class Stem(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.stem_width
        self.conv1 = nn.Conv2d(config.in_chans, width, 3, config.stem_stride, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return self.conv2(T.gelu(self.norm1(self.conv1(x))))


class Shortcut(nn.Module):
    def __init__(self, in_chans, out_chans, stride):
        super().__init__()
        self.stride = stride
        self.expand = nn.Conv2d(in_chans, out_chans, 1) if in_chans != out_chans else nn.Identity()

    def forward(self, x):
        return self.expand(halved(x) if self.stride == 2 else x)


def halved(x):
    height, width = x.shape[2:]
    return T.avg_pool2d(T.pad(x, (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else x, 2)


class SqueezeExcite(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        gate = torch.sigmoid(self.fc2(T.silu(self.fc1(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


class MBConv(nn.Module):
    def __init__(self, config, in_chans, out_chans, stride):
        super().__init__()
        hidden = int(config.expansion * out_chans)
        self.shortcut = Shortcut(in_chans, out_chans, stride)
        self.pre_norm = nn.BatchNorm2d(in_chans)
        self.conv1_1x1 = nn.Conv2d(in_chans, hidden, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.conv2_kxk = nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.se = SqueezeExcite(hidden, int(config.squeeze * out_chans))
        self.conv3_1x1 = nn.Conv2d(hidden, out_chans, 1)

    def forward(self, x):
        h = T.gelu(self.norm1(self.conv1_1x1(self.pre_norm(x))))
        h = self.se(T.gelu(self.norm2(self.conv2_kxk(h))))
        return self.conv3_1x1(h) + self.shortcut(x)


class RelativeBlock(nn.Module):
    def __init__(self, config, in_chans, out_chans, stride, grid):
        super().__init__()
        self.stride = stride
        self.shortcut = Shortcut(in_chans, out_chans, stride)
        self.norm1 = nn.LayerNorm(in_chans, config.norm_eps)
        self.attn = RelativeAttention(in_chans, out_chans, out_chans // config.head_dim, grid)
        self.norm2 = nn.LayerNorm(out_chans, config.norm_eps)
        self.mlp = Mlp(out_chans, int(config.expansion * out_chans))

    def forward(self, x):
        a = self.norm1(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        a = halved(a) if self.stride == 2 else a
        shortcut = self.shortcut(x).flatten(2).transpose(1, 2)                                # (B, n, D)
        y = shortcut + self.attn(a.flatten(2).transpose(1, 2))
        y = y + self.mlp(self.norm2(y))
        return y.transpose(1, 2).unflatten(2, a.shape[2:])


class Stage(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return self.blocks(x)


class TorchCoAtNet(nn.Module):
    """Images (B, C, H, W) to logits (B, K), with parameters under our names.

    Raises ValueError for stochastic depth.
    """

    def __init__(self, config):
        super().__init__()
        if config.drop_path_rate:
            raise ValueError("PyTorch's side of the benchmark has no stochastic depth")
        self.stem = Stem(config)
        self.stages, in_chans = nn.Sequential(), config.stem_width
        for i, (kind, depth, width) in enumerate(zip(config.stages, config.depths, config.widths)):
            blocks = []
            for j in range(depth):
                more = (config.strides[i] if j == 0 else 1,) + (() if kind == "C" else (config.grid(i),))
                blocks.append((MBConv if kind == "C" else RelativeBlock)(config, in_chans, width, *more))
                in_chans = width
            self.stages.append(Stage(blocks))
        self.norm = nn.LayerNorm(config.out_chans, config.norm_eps)
        self.head = Head(config.out_chans, config.num_classes)

    def forward(self, images):
        maps = self.stages(self.stem(images))
        return self.head(self.norm(maps.permute(0, 2, 3, 1)).mean((1, 2)))
