"""The ResNet of `tinyvit.models` in PyTorch, with basic blocks; imported by benchmark workers only."""

from collections import OrderedDict

from torch import nn
from torch.nn import functional as T

from tinyvit.functional.patches import as_pair
from tinyvit.models.resnet import STEMS


class TorchTrunk(nn.Module):
    """Images (B, C, H, W) to feature maps, with parameters under torchvision's names.

    Raises ValueError for blocks and stems that no case has.
    """

    def __init__(self, config):
        super().__init__()
        if config.block != "basic" or config.stem == "conv7":
            raise ValueError("PyTorch's side of the benchmark has basic blocks and no stem conv7")
        kernel, stride, _ = STEMS[config.stem]
        self.conv1 = nn.Conv2d(config.in_chans, config.width, kernel, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(config.width)
        in_chans, self.stages = config.width, len(config.depths)
        for i, depth in enumerate(config.depths):
            width, blocks = config.width << i, []
            for j in range(depth):
                blocks.append(TorchBlock(in_chans, width, 2 if i and not j else 1))
                in_chans = width
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))

    def forward(self, images):
        x = T.relu(self.bn1(self.conv1(images)), inplace=True)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return x


class TorchBlock(nn.Module):
    """y = ReLU(BN(conv(ReLU(BN(conv(x))))) + x), with convolutions of 3×3."""

    def __init__(self, in_chans, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = nn.Identity()
        if stride > 1 or in_chans != width:
            shortcut = nn.Conv2d(in_chans, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            self.downsample = nn.Sequential(*shortcut)

    def forward(self, x):
        h = T.relu(self.bn1(self.conv1(x)), inplace=True)
        return T.relu(self.bn2(self.conv2(h)) + self.downsample(x), inplace=True)


class TorchResNet(TorchTrunk):
    """Images (B, C, H, W) to logits (B, K)."""

    def __init__(self, config):
        super().__init__(config)
        self.fc = nn.Linear(config.out_chans, config.num_classes)

    def forward(self, images):
        return self.fc(super().forward(images).mean((2, 3)))


def with_stem(model, config):
    """A `TorchViT` whose tokens are the pixels of a residual network's feature maps, or patches of them."""
    stem = config.stem
    side = [patch // stem.stride for patch in as_pair(config.patch_size)]
    proj = nn.Conv2d(stem.out_chans, config.embed_dim, side, stride=side)
    model.patch_embed = nn.Sequential(OrderedDict(backbone=TorchTrunk(stem), proj=proj))
    return model
