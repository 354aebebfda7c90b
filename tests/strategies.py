"""Hypothesis strategies: arrays named by their shape, in every memory layout, never writeable."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from tinyvit import ViT, ViTConfig
from tinyvit.data import Dataset, Split
from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import Weights
from tinyvit.interop.names import as_side, mlp_ratio
from tinyvit.models.vit_config import POOLINGS, POSITIONS

SIZES = st.integers(1, 4)
DTYPES = st.sampled_from(["float32", "float64"])
LAYOUTS = ("contiguous", "fortran", "strided", "reversed", "unaligned")


def seeds():
    return st.integers(0, 2**32 - 1)


def laid_out(x, layout, writeable=False):
    """The same numbers in another memory order, read-only by default."""
    if layout == "fortran":
        x = np.asfortranarray(x)
    elif layout == "strided":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    elif layout == "reversed":
        x = np.ascontiguousarray(x[::-1])[::-1]
    elif layout == "unaligned":  # as from a file that is mapped into memory
        x = np.frombuffer(bytearray(b"?" + x.tobytes()), x.dtype, x.size, offset=1).reshape(x.shape)
    x.flags.writeable = writeable
    return x


@st.composite
def normals(draw, *shapes, dtype=None, scale=1.0):
    """A tuple of arrays N(0, scale²) of the given shapes, in one dtype and in layouts of their own."""
    generator = np.random.default_rng(draw(seeds()))
    dtype = draw(DTYPES) if dtype is None else dtype
    return tuple(
        laid_out(scale * generator.standard_normal(shape).astype(dtype), draw(st.sampled_from(LAYOUTS)))
        for shape in shapes
    )


@st.composite
def tokens(draw, min_width=1, max_width=7, dtype="float64"):
    """Tokens (B, N, D), including a single sample and a single token."""
    shape = draw(SIZES), draw(st.integers(1, 5)), draw(st.integers(min_width, max_width))
    (x,) = draw(normals(shape, dtype=dtype))
    return x


@st.composite
def heads(draw, dtype="float64"):
    """Queries (B, H, Nq, d), keys (B, H, Nk, d) and values (B, H, Nk, dv)."""
    B, H, Nq, Nk, d, dv = (draw(SIZES) for _ in range(6))
    return draw(normals((B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), dtype=dtype))


def every_shape_that_broadcasts(*sides):
    """The shapes of all arrays, of one axis or more, that broadcast to one with these sides."""
    return [shape for start in range(len(sides)) for shape in product(*[(1, side) for side in sides[start:]])]


@st.composite
def images_and_patch(draw, dtype="float64"):
    """Images (B, C, H, W), and a patch (P, Q) that tiles them."""
    B, C, rows, columns, p, q = (draw(st.integers(1, 3)) for _ in range(6))
    (x,) = draw(normals((B, C, rows * p, columns * q), dtype=dtype))
    return x, (p, q)


@st.composite
def classified(draw, dtype="float64", scale=1.0):
    """Logits (B, K) with labels (B,)."""
    B, K = draw(SIZES), draw(st.integers(1, 6))
    (logits,) = draw(normals((B, K), dtype=dtype, scale=scale))
    labels = np.random.default_rng(draw(seeds())).integers(0, K, B)
    return logits, labels


@st.composite
def splits(draw, most=12):
    """A `Split` of numbered images in five classes, ant to elk, of 4 images or more each, in any order."""
    names, parts = ("ant", "bee", "cat", "dog", "elk"), []
    sizes = draw(st.lists(st.integers(4, most), min_size=len(names), max_size=len(names)))
    generator = np.random.default_rng(draw(seeds()))
    for _ in range(2):
        labels = generator.permutation(np.repeat(np.arange(len(names)), sizes))
        images = np.arange(len(labels), dtype="uint8").reshape(-1, 1, 1, 1)
        parts.append(Dataset(images, labels, names, mean=(0.5,), std=(0.2,)))
    return Split(*parts)


def redrawn(model, seed=0, std=0.2):
    """The model with every parameter from N(0, std²); its initial head is zero and would block all gradients."""
    generator = np.random.default_rng(seed)
    for parameter in model.parameters():
        parameter.data = std * generator.standard_normal(parameter.shape)
    return model


@st.composite
def vits(draw):
    """A small float64 ViT of any kind, including one block, one head and one patch."""
    grid = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    config = ViTConfig(
        img_size=(2 * grid[0], 3 * grid[1]),
        patch_size=(2, 3),
        in_chans=draw(st.integers(1, 2)),
        num_classes=draw(st.integers(1, 4)),
        embed_dim=8,
        depth=draw(st.integers(1, 2)),
        num_heads=draw(st.sampled_from([1, 2])),
        qkv_bias=draw(st.booleans()),
        global_pool=draw(st.sampled_from(POOLINGS)),
        positions=draw(st.sampled_from(POSITIONS)),
        head_hidden=draw(st.sampled_from([None, 5])),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh"])),
    )
    return redrawn(ViT(config, dtype="float64"), draw(seeds()))


def images_for(model, seed, count):
    """Images that the model reads."""
    return np.random.default_rng(seed).standard_normal((count, *model.embed.image_shape))


@st.composite
def weights(draw, dtype="float32", **fixed):
    """Random `Weights` of a small ViT of any kind; `fixed` are fields of its configuration, as values or strategies."""
    rows, columns, p, q, heads, quarter, channels = (draw(st.integers(1, 3)) for _ in range(7))
    embed_dim = 4 * quarter * heads
    fields = {
        "img_size": draw(st.sampled_from([(rows * p, columns * q), rows * p])),
        "num_classes": st.integers(0, 3),
        "depth": st.integers(1, 2),
        "qkv_bias": st.booleans(),
        "global_pool": st.sampled_from(POOLINGS),
        "positions": st.sampled_from(POSITIONS),
        "head_hidden": st.none() | st.integers(1, 4),
        "activation": st.sampled_from(["gelu", "gelu_tanh"]),
        "norm_eps": st.sampled_from([1e-12, 1e-6]),
        "attn_drop_rate": st.sampled_from([0.0, 0.1]),
        "drop_rate": st.sampled_from([0.0, 0.1]),
    } | fixed
    fields = {name: draw(x) if isinstance(x, st.SearchStrategy) else x for name, x in fields.items()}
    # Equal sides are one number, so that a configuration that was read back can be the same.
    patch = p if isinstance(fields["img_size"], int) or p == q else (p, q)
    size = fields["img_size"] if not isinstance(fields["img_size"], tuple) else as_side(fields["img_size"])
    config = ViTConfig(**fields | {
        "img_size": size, "patch_size": patch, "in_chans": channels, "embed_dim": embed_dim, "num_heads": heads,
        "mlp_ratio": mlp_ratio(draw(st.integers(1, 20)), embed_dim),
    })  # fmt: skip
    model = redrawn(ViT(config, dtype=dtype), draw(seeds()))
    square = isinstance(size, int)
    share = st.floats(0.01, 1, allow_subnormal=False)
    numbers = st.lists(share, min_size=channels, max_size=channels).map(tuple)
    prepared = Preprocessing(
        tuple(draw(st.lists(st.text(max_size=4), min_size=config.num_classes, max_size=config.num_classes,
                            unique=True))),
        channels, as_pair(size), draw(numbers), draw(numbers), resample=draw(st.sampled_from(RESAMPLE)),
        crop=draw(st.none() | share if square else st.none()),
    )  # fmt: skip
    return Weights(config, model.state_dict(), prepared)
