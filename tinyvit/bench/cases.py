"""The cases of the benchmark: named work of a given size, with the multiply-adds that it takes."""

from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

from tinyvit.functional.patches import as_pair
from tinyvit.models import CoAtNetConfig, SwinConfig, ViTConfig, build
from tinyvit.models.hybrid import HybridConfig
from tinyvit.models.registry import VARIANTS, architecture_name, config_class
from tinyvit.models.summary import summarize
from tinyvit.training.presets import preset


@dataclass(frozen=True)
class ModelCase:
    """A training step of a model (`kind` train), or its logits alone (infer), for one batch."""

    name: str
    kind: Literal["train", "infer"]
    batch_size: int
    config: Any  # of an architecture that `torch_steps` has

    unit: ClassVar[str] = "images"

    def __post_init__(self):
        require_a_batch(self.batch_size)

    @property
    def title(self):
        c, what = self.config, {"train": "training step", "infer": "inference"}[self.kind]
        height, width = as_pair(c.img_size)
        if isinstance(c, (SwinConfig, CoAtNetConfig)):
            widths = c.widths if isinstance(c, CoAtNetConfig) else [c.embed_dim << i for i in range(len(c.depths))]
            stages = ", ".join(f"{depth} of {width}" for depth, width in zip(c.depths, widths))
            window = "×".join([str(getattr(c, "window_size", ""))] * 2)
            kind = f"CoAtNet {c.stages}" if isinstance(c, CoAtNetConfig) else f"Swin, windows {window}"
            return f"{what}, {height}×{width}, {kind}, blocks and widths {stages}, batch {self.batch_size}"
        if self.convolves:
            stem = c.stem if isinstance(c, HybridConfig) else c
            stages = ", ".join(str(depth) for depth in stem.depths)
            above = f", under a ViT {c.embed_dim} wide, {c.depth} deep" if stem is not c else ""
            return (
                f"{what}, {height}×{width}, residual stages of {stages} blocks, {stem.width} channels at first{above}, "
                f"batch {self.batch_size}"
            )
        patch = "×".join(str(side) for side in dict.fromkeys(as_pair(c.patch_size)))
        drops = ", with dropout" if self.draws else ""
        return (
            f"{what}, {height}×{width}, patch {patch}, {c.embed_dim} wide, {c.depth} deep, "
            f"{c.num_heads} head{'s' * (c.num_heads > 1)}, MLP ×{c.mlp_ratio:g}, batch {self.batch_size}{drops}"
        )

    @property
    def convolves(self):
        """Whether the model has convolutions besides that of the patches."""
        return not isinstance(self.config, (ViTConfig, SwinConfig)) or isinstance(self.config, HybridConfig)

    @property
    def draws(self):
        """Whether it draws random numbers, so that libraries give different results."""
        rates = (getattr(self.config, name, 0) for name in ("drop_rate", "attn_drop_rate", "drop_path_rate"))
        return self.kind == "train" and any(rates)

    @property
    def tokens(self):
        rows, columns = self.config.grid
        return 1 + rows * columns

    def multiply_adds(self):
        """The multiply-adds of the matrix products that the work can't do without.

        A forward: those of every linear layer, and q kᵀ and probs v of every head. A training step: each product
        of the forward has two in the backward, for the gradients of its two factors; the images need none, so the
        first layer has only one. What is computed a second time to save memory is not counted.
        """
        rows = summarize(build(self.config, device="meta"), self.batch_size)
        counts = [row.multiply_adds for row in rows]
        return sum(counts) if self.kind == "infer" else 3 * sum(counts) - next(filter(None, counts))

    def products(self, threads):
        """Shapes (m, k, n) of the step's largest products x W, for the part of the batch that one thread gets.

        Of convolutions and stages of several widths none.
        """
        if self.convolves or isinstance(self.config, SwinConfig):
            return []
        rows = -(-self.batch_size // threads) * self.tokens
        width, hidden = self.config.embed_dim, self.config.mlp_hidden
        return [(rows, width, hidden), (rows, hidden, width), (width, rows, hidden)]


@dataclass(frozen=True)
class AttentionCase:
    """Scaled dot-product attention alone, forward and backward, with a learned bias (H, N, N) if `bias` is True."""

    name: str
    batch_size: int
    tokens: int
    heads: int = 3
    head_dim: int = 64
    bias: bool = False

    kind: ClassVar[str] = "attention"
    convolves: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    unit: ClassVar[str] = "sequences"

    def __post_init__(self):
        require_a_batch(self.batch_size)

    @property
    def title(self):
        return (
            f"attention alone{' with a bias' if self.bias else ''}, forward and backward, {self.tokens:,} tokens, "
            f"{self.heads} heads {self.head_dim} wide, batch {self.batch_size}"
        )

    def multiply_adds(self):
        """Two products in the forward, q kᵀ and probs v, and two for each of them in the backward."""
        return 6 * self.batch_size * self.heads * self.tokens**2 * self.head_dim

    def products(self, threads):
        """None: those of a single head are small, and no library reaches its best rate on them."""
        return []


@dataclass(frozen=True)
class ConvCase:
    """A convolution alone, forward and backward, on images of side × side pixels; padded as the layers of a ResNet."""

    name: str
    batch_size: int
    side: int
    in_chans: int
    out_chans: int
    kernel_size: int = 3
    stride: int = 1
    groups: int = 1

    kind: ClassVar[str] = "conv"
    convolves: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    unit: ClassVar[str] = "images"

    def __post_init__(self):
        require_a_batch(self.batch_size)

    @property
    def title(self):
        kernel, groups = f"{self.kernel_size}×{self.kernel_size}", self.groups
        apart = "" if groups == 1 else ", depthwise" if groups == self.in_chans else f", {groups} groups"
        return (
            f"convolution alone, forward and backward, {kernel}, stride {self.stride}{apart}, {self.in_chans} to "
            f"{self.out_chans} channels, {self.side}×{self.side}, batch {self.batch_size}"
        )

    @property
    def padding(self):
        return self.kernel_size // 2

    def multiply_adds(self):
        """Those of the forward, one for each weight and pixel of the result, and as many for each gradient."""
        pixels = ((self.side + 2 * self.padding - self.kernel_size) // self.stride + 1) ** 2
        filters = self.out_chans * self.in_chans // self.groups * self.kernel_size**2
        return 3 * self.batch_size * pixels * filters

    def products(self, threads):
        """None: how a library cuts a convolution into products is its own affair."""
        return []


def require_a_batch(size):
    if size < 1:
        raise ValueError(f"batch-size must be at least 1, got {size}")


def training(name, batch_size, **config):
    return ModelCase(name, "train", batch_size, ViTConfig(img_size=32, in_chans=3, num_classes=10, **config))


def of_preset(name):
    return ModelCase(name, "train", preset(name).batch_size, preset(name).model)


CASES = {case.name: case for case in (
    training("vit", 128, patch_size=4, embed_dim=192, depth=6, num_heads=3, mlp_ratio=4.0),
    training("vit-9x192", 128, patch_size=4, embed_dim=192, depth=9, num_heads=12, mlp_ratio=2.0),
    training("patch8", 256, patch_size=8, embed_dim=128, depth=6, num_heads=4, mlp_ratio=4.0),
    of_preset("digits"),
    ModelCase("ti16", "infer", 8, ViTConfig(**VARIANTS["vit_tiny_patch16_224"][1])),
    of_preset("cifar10-resnet"),
    of_preset("cifar10-hybrid"),
    of_preset("cifar10-swin"),
    of_preset("cifar10-coatnet"),
    AttentionCase("attention-65", 512, 65),
    AttentionCase("attention-65-bias", 512, 65, bias=True),
    AttentionCase("attention-197", 64, 197),
    AttentionCase("attention-577", 8, 577),
    AttentionCase("attention-1025", 4, 1025),
    ConvCase("conv-3-64", 128, 32, 3, 64),  # the layers of a ResNet-18 on 32×32, by their channels
    ConvCase("conv-64", 128, 32, 64, 64),
    ConvCase("conv-64-128", 128, 32, 64, 128, stride=2),
    ConvCase("conv-64-128-1x1", 128, 32, 64, 128, kernel_size=1, stride=2),
    ConvCase("conv-128", 128, 16, 128, 128),
    ConvCase("conv-128-256", 128, 16, 128, 256, stride=2),
    ConvCase("conv-256", 128, 8, 256, 256),
    ConvCase("conv-256-512", 128, 8, 256, 512, stride=2),
    ConvCase("conv-512", 128, 4, 512, 512),
    ConvCase("conv-64-depthwise", 128, 32, 64, 64, groups=64),
)}  # fmt: skip


def case_named(name, batch_size=None):
    """A case by name, with another batch size if one is given; ValueError for a name that doesn't exist."""
    if name not in CASES:
        close = get_close_matches(name, CASES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected some of {', '.join(CASES)}"
        raise ValueError(f"unknown case {name!r}; {hint}")
    return CASES[name] if batch_size is None else replace(CASES[name], batch_size=batch_size)


def to_dict(case):
    """A case as a dict for JSON."""
    named = {"architecture": architecture_name(case.config)} if isinstance(case, ModelCase) else {}
    return {"kind": case.kind, **named, **asdict(case)}


def from_dict(fields):
    """The case that `to_dict` turned into a dict."""
    fields = dict(fields)
    alone = {"attention": AttentionCase, "conv": ConvCase}.get(fields["kind"])
    if alone is not None:
        del fields["kind"]
        return alone(**fields)
    shape, architecture = fields.pop("config"), config_class(fields.pop("architecture"))
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in shape.items()}
    return ModelCase(**fields, config=architecture(**config))
