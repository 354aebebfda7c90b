"""The layout of the original release's `.npz` files: https://github.com/google-research/vision_transformer.

Dosovitskiy et al. 2021. Kernels are (in, out), a patch's is (P, P, C, D), and queries, keys and values are split by
head: (D, H, d). There are only arrays; what they don't imply is the same for all of its ViTs: GELU's tanh form, ε 1e-6,
and images from −1 to 1.
"""

import re

import numpy as np

from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import normalisation
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import (
    as_side,
    count_blocks,
    expect_names,
    mlp_ratio,
    numbered,
    own_shapes,
    position_table,
    shapes_of,
    square_image,
)
from tinyvit.interop.weights import Weights
from tinyvit.models import ViTConfig

LAYOUT = "the original layout"
NORM_EPS = 1e-6
ACTIVATION = "gelu_tanh"
BLOCK = re.compile(r"Transformer/encoderblock_(\d+)/")
ATTENTION = "MultiHeadDotProductAttention_1"
TOKENS = {"cls_token": "cls", "pos_embed": "Transformer/posembed_input/pos_embedding"}
# Our names and theirs without the ending: first those inside a block.
IN_BLOCK = {
    "norm1": "LayerNorm_0",
    "attn.proj": f"{ATTENTION}/out",
    "norm2": "LayerNorm_2",
    "mlp.fc1": "MlpBlock_3/Dense_0",
    "mlp.fc2": "MlpBlock_3/Dense_1",
}
OUTSIDE = {"patch_embed.proj": "embedding", "norm": "Transformer/encoder_norm", "pre_logits.fc": "pre_logits",
           "head": "head"}  # fmt: skip
PARTS = ("query", "key", "value")
OWN_BLOCK = re.compile(r"(blocks\.\d+)\.(.+)\.(weight|bias)")


def read(tensors, *, img_size=None, mean=None, std=None):
    """The original release's weights as ours.

    tensors   arrays by the release's names
    img_size  side of the images, or (height, width); None for a square of patches
    mean, std of each channel or of all; None for 0.5

    A head may be missing, and the hidden layer `pre_logits` with tanh be there. Classes are called "0", "1", …, and
    images are resized as the release does, bilinearly and stretched.

    Raises ValueError for names that are missing, unexpected or misshapen.
    """
    config, notes = config_of(tensors, img_size)
    own = own_shapes(config)
    expect_names(tensors, shapes_in(own, config), LAYOUT)
    state = {name: from_theirs(name, [tensors[theirs] for theirs in their_names(name)]) for name in own}
    mean, std = normalisation([("mean", 0.5), ("std", 0.5)], (mean, std), config.in_chans, LAYOUT)
    prepared = Preprocessing(numbered(config.num_classes), config.in_chans, as_pair(config.img_size), mean, std,
                             resample="bilinear", crop=None)  # fmt: skip
    if config.num_classes:
        notes += ("the original release names no classes; they are numbered",)
    return Weights(config, state, prepared, notes)


def config_of(tensors, img_size):
    """The ViTConfig that the shapes imply, and notes on what was assumed."""
    query, fc1, table = f"{ATTENTION}/query/kernel", "MlpBlock_3/Dense_0/kernel", TOKENS["pos_embed"]
    query, fc1 = (f"Transformer/encoderblock_0/{name}" for name in (query, fc1))
    shapes = shapes_of(tensors, {"embedding/kernel": 4, query: 3, fc1: 2, table: 3}, LAYOUT)
    if "cls" not in tensors:
        raise ValueError("the weights are those of a ViT without class token (no 'cls'), which can't be read")
    *patch_size, channels, embed_dim = shapes["embedding/kernel"]
    patches = shapes[table][1] - 1
    size, notes = square_image(patches, patch_size, LAYOUT) if img_size is None else (as_pair(img_size), ())
    ends = {name: np.shape(tensors[f"{name}/kernel"]) for name in ("head", "pre_logits") if f"{name}/kernel" in tensors}
    config = ViTConfig(
        img_size=as_side(size), patch_size=as_side(patch_size), in_chans=channels,
        num_classes=ends["head"][-1] if ends.get("head") else 0, embed_dim=embed_dim,
        depth=count_blocks(tensors, BLOCK), num_heads=shapes[query][1], mlp_ratio=mlp_ratio(shapes[fc1][1], embed_dim),
        head_hidden=ends["pre_logits"][-1] if ends.get("pre_logits") else None,
        activation=ACTIVATION, norm_eps=NORM_EPS,
    )  # fmt: skip
    return config, notes


def their_names(name):
    """Their name for ours, or their three for queries, keys and values."""
    if name in TOKENS:
        return (TOKENS[name],)
    block = OWN_BLOCK.fullmatch(name)
    if not block:
        part, _, ending = name.rpartition(".")
        return (f"{OUTSIDE[part]}/{ending_of(part, ending)}",)
    path, part, ending = block.groups()
    path = f"Transformer/encoderblock_{path.removeprefix('blocks.')}"
    if part == "attn.qkv":
        return tuple(f"{path}/{ATTENTION}/{one}/{ending_of(part, ending)}" for one in PARTS)
    return (f"{path}/{IN_BLOCK[part]}/{ending_of(part, ending)}",)


def ending_of(part, ending):
    """Their name of a layer's weight or bias."""
    return "bias" if ending == "bias" else "scale" if part.startswith("norm") else "kernel"


def shapes_in(own, config):
    """The shapes of their arrays by their names, from ours by ours."""
    shapes = {}
    for name, shape in own.items():
        names = their_names(name)
        for theirs in names:
            shapes[theirs] = shape_in(name, (shape[0] // len(names), *shape[1:]), config)
    return shapes


def shape_in(name, shape, config):
    heads = config.num_heads, config.head_dim
    if name.endswith("attn.qkv.weight"):
        return config.embed_dim, *heads
    if name.endswith("attn.qkv.bias"):
        return heads
    if name.endswith("attn.proj.weight"):
        return *heads, config.embed_dim
    if name == "patch_embed.proj.weight":
        return *shape[2:], shape[1], shape[0]
    return tuple(reversed(shape)) if len(shape) == 2 else shape


def from_theirs(name, arrays):
    """Our array from theirs, which are three for queries, keys and values."""
    if name.endswith("attn.qkv.weight"):
        return np.concatenate([array.reshape(len(array), -1).T for array in arrays])       # (3D, D)
    if name.endswith("attn.qkv.bias"):
        return np.concatenate([array.reshape(-1) for array in arrays])                     # (3D,)
    (array,) = arrays
    if name.endswith("attn.proj.weight"):
        return np.ascontiguousarray(array.reshape(-1, array.shape[-1]).T)                  # (D, D)
    if name == "patch_embed.proj.weight":
        return np.ascontiguousarray(array.transpose(3, 2, 0, 1))                           # (D, C, P, P)
    return np.ascontiguousarray(array.T) if array.ndim == 2 else array


def to_theirs(name, array, config):
    """Their arrays from ours: `from_theirs` backwards."""
    if name.endswith("attn.qkv.weight"):
        return [contiguous(part.T, config.embed_dim, config.num_heads, -1) for part in np.split(array, 3)]  # (D, H, d)
    if name.endswith("attn.qkv.bias"):
        return [part.reshape(config.num_heads, -1) for part in np.split(array, 3)]         # (H, d)
    if name.endswith("attn.proj.weight"):
        return [contiguous(array.T, config.num_heads, -1, config.embed_dim)]               # (H, d, D)
    if name == "patch_embed.proj.weight":
        return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]                         # (P, P, C, D)
    return [np.ascontiguousarray(array.T) if array.ndim == 2 else array]


def contiguous(array, *shape):
    return np.ascontiguousarray(array.reshape(shape))


def write(weights):
    """Our weights as the original release's: arrays by its names.

    Without biases of queries, keys and values, zeros are written; positions of any kind but rotary become one table.
    The classes' names and how images are prepared are not written.

    Raises ValueError for what the original ViT is not: another activation than GELU's tanh form, another ε, another
    pooling than the class token.
    """
    config = weights.config
    for name, only in (("activation", ACTIVATION), ("norm_eps", NORM_EPS), ("global_pool", "token")):
        if getattr(config, name) != only:
            raise ValueError(f"{LAYOUT} has no place for {name} {getattr(config, name)!r}; its ViTs have {only!r}")
    state = {name: array for name, array in weights.state.items() if not name.startswith("pos_embed")}
    state["pos_embed"] = position_table(weights, LAYOUT)
    if not config.qkv_bias:
        dtype = state["cls_token"].dtype
        state |= {f"blocks.{i}.attn.qkv.bias": np.zeros(3 * config.embed_dim, dtype) for i in range(config.depth)}
    return {
        theirs: part
        for name, array in state.items()
        for theirs, part in zip(their_names(name), to_theirs(name, array, config), strict=True)
    }


register(Mapping(
    "original", (), "vit", r"(.*/)?(embedding/kernel|Transformer/encoder_norm/scale)$", read, write,
    files=(), options=("img_size", "mean", "std"),
))  # fmt: skip
