"""The cases of the benchmark: named work of a given size, with the multiply-adds that it takes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tinyvit.models import ViTConfig, build
from tinyvit.models.registry import VARIANTS, architecture_name
from tinyvit.models.summary import summarize
from tinyvit.training.presets import preset

KINDS = {
    "train": "training step", "infer": "inference", "attention": "attention alone, forward and backward",
    "conv": "convolution alone, forward and backward",
}  # fmt: skip
# The fields of a shape that a title shows.
FIELDS = (
    "img_size", "patch_size", "embed_dim", "width", "widths", "depth", "depths", "num_heads", "tokens", "heads",
    "head_dim", "bias", "side", "channels", "filters", "kernel_size", "stride", "groups",
)  # fmt: skip


class Heads(NamedTuple):
    """The shape of attention alone, with a learned bias (H, N, N) if `bias` is True."""

    tokens: int
    heads: int = 3
    head_dim: int = 64
    bias: bool = False


class Filters(NamedTuple):
    """The shape of a convolution alone on images of side × side pixels, padded by half of its odd kernel as in
    a ResNet."""

    side: int
    channels: int
    filters: int
    kernel_size: int = 3
    stride: int = 1
    groups: int = 1

    @property
    def out_side(self):
        return -(-self.side // self.stride)


@dataclass(frozen=True)
class Case:
    """The work that is timed for one batch.

    kind    train: a training step of a model; infer: its logits alone; attention, conv: that operation and its backward
    shape   the model's configuration, `Heads` or `Filters`
    """

    name: str
    kind: str
    batch_size: int
    shape: Any

    @property
    def architecture(self):
        return architecture_name(self.shape) if self.kind in ("train", "infer") else None

    @property
    def title(self):
        network = [] if self.architecture in (None, "vit") else [self.architecture]
        fields = self.shape._asdict() if isinstance(self.shape, tuple) else vars(self.shape)
        shown = [f"{name} {fields[name]}" for name in FIELDS if name in fields]
        drops = ["with dropout"] if self.is_random else []
        return ", ".join([KINDS[self.kind], *network, *shown, f"batch {self.batch_size}", *drops])

    @property
    def has_convolutions(self):
        """Whether there are convolutions besides that of the patches."""
        return self.kind == "conv" or self.architecture in ("resnet", "hybrid", "coatnet")

    @property
    def is_random(self):
        """Whether it draws random numbers, so that libraries give different results."""
        rates = (getattr(self.shape, name, 0) for name in ("drop_rate", "attn_drop_rate", "drop_path_rate"))
        return self.kind == "train" and any(rates)

    def multiply_adds(self):
        """The multiply-adds of the matrix products that the work can't do without.

        A model's forward: those of every linear layer, and q kᵀ and probs v of every head. A training step: each
        product of the forward has two in the backward, for the gradients of its two factors; the images need none, so
        the first layer has only one. What is computed a second time to save memory is not counted. Attention: two
        products, and two for each of them. A convolution: one for each weight and pixel of the result, and as many for
        each gradient.
        """
        s = self.shape
        if self.kind == "attention":
            return 6 * self.batch_size * s.heads * s.tokens**2 * s.head_dim
        if self.kind == "conv":
            filters = s.filters * s.channels // s.groups * s.kernel_size**2
            return 3 * self.batch_size * s.out_side**2 * filters
        counts = [row.multiply_adds for row in summarize(build(s, device="meta"), self.batch_size)]
        return sum(counts) if self.kind == "infer" else 3 * sum(counts) - next(filter(None, counts))


def training_case(name, batch_size, **config):
    return Case(name, "train", batch_size, ViTConfig(in_chans=3, num_classes=10, **{"img_size": 32} | config))


def preset_case(name):
    return Case(name, "train", preset(name).batch_size, preset(name).model)


CASES = {case.name: case for case in (
    training_case("vit", 128, patch_size=4, embed_dim=192, depth=6, num_heads=3, mlp_ratio=4.0),
    training_case("vit-9x192", 128, patch_size=4, embed_dim=192, depth=9, num_heads=12, mlp_ratio=2.0),
    training_case("patch8", 256, patch_size=8, embed_dim=128, depth=6, num_heads=4, mlp_ratio=4.0),
    preset_case("digits"),
    Case("ti16", "infer", 8, ViTConfig(**VARIANTS["vit_tiny_patch16_224"][1])),
    *map(preset_case, ("cifar10-resnet", "cifar10-hybrid", "cifar10-swin", "cifar10-coatnet")),
    Case("attention-65", "attention", 512, Heads(65)),
    Case("attention-65-bias", "attention", 512, Heads(65, bias=True)),
    Case("attention-197", "attention", 64, Heads(197)),
    Case("attention-577", "attention", 8, Heads(577)),
    Case("attention-1025", "attention", 4, Heads(1025)),
    *(Case(name, "conv", 128, filters) for name, filters in {
        "conv-3-64": Filters(32, 3, 64),  # the layers of a ResNet-18 on 32×32, by their channels
        "conv-64": Filters(32, 64, 64),
        "conv-64-128": Filters(32, 64, 128, stride=2),
        "conv-64-128-1x1": Filters(32, 64, 128, kernel_size=1, stride=2),
        "conv-128": Filters(16, 128, 128),
        "conv-128-256": Filters(16, 128, 256, stride=2),
        "conv-256": Filters(8, 256, 256),
        "conv-256-512": Filters(8, 256, 512, stride=2),
        "conv-512": Filters(4, 512, 512),
        "conv-64-depthwise": Filters(32, 64, 64, groups=64),
    }.items()),
)}  # fmt: skip
