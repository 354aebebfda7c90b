"""The layout of the original release's `.npz` files: https://github.com/google-research/vision_transformer.

Dosovitskiy et al. 2021. Kernels are (in, out), a patch's is (P, P, C, D), and queries, keys and values are split by
head: (D, H, d). There are only arrays; what they don't imply is the same for all of its ViTs: GELU's tanh form, ε 1e-6,
and images from −1 to 1.
"""

import re

import numpy as np

from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import names
from tinyvit.interop.fields import normalisation
from tinyvit.interop.mappings import Mapping, Weights, register
from tinyvit.models import ViTConfig

LAYOUT = "the original layout"
FIXED_FIELDS = {"activation": "gelu_tanh", "norm_eps": 1e-6, "global_pool": "token"}  # of all its ViTs
BLOCK = "Transformer/encoderblock_{}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"
POSITIONS = "Transformer/posembed_input/pos_embedding"
NAMES = {
    "cls_token": "cls", "pos_embed": POSITIONS, "patch_embed.proj": "embedding", "norm": "Transformer/encoder_norm",
    "pre_logits.fc": "pre_logits", "head": "head",
    "blocks.{}.norm1": f"{BLOCK}/LayerNorm_0", "blocks.{}.norm2": f"{BLOCK}/LayerNorm_2",
    "blocks.{}.attn.qkv": tuple(f"{ATTENTION}/{one}" for one in ("query", "key", "value")),
    "blocks.{}.attn.proj": f"{ATTENTION}/out",
    "blocks.{}.mlp.fc1": f"{BLOCK}/MlpBlock_3/Dense_0", "blocks.{}.mlp.fc2": f"{BLOCK}/MlpBlock_3/Dense_1",
}  # fmt: skip
# The order of axes of their kernels in our weights: (D, H, d) in (H, d, D), (H, d, D) in (D, H, d), …
AXES = {"attn.qkv.weight": (1, 2, 0), "attn.proj.weight": (2, 0, 1), "patch_embed.proj.weight": (3, 2, 0, 1)}


def parts_of(config):
    """For `to_ours`: names, shapes and orders of axes in the release's files."""
    heads, width = config.num_heads, config.head_dim

    def parts(name, shape):
        theirs = names.names_in_table(NAMES, name)
        split = (shape[0] // len(theirs), *shape[1:])
        if ".attn.qkv." in name:
            split = (heads, width, *shape[1:])
        elif name.endswith(".attn.proj.weight"):
            split = (shape[0], heads, width)
        is_matrix = len(split) == 2 and name.endswith(".weight")
        axes = AXES.get(re.sub(r"^blocks\.\d+\.", "", name), (1, 0) if is_matrix else range(len(split)))
        weight = "/scale" if "norm" in name else "/kernel"
        return [
            (one.replace(".weight", weight).replace(".bias", "/bias"), tuple(split[i] for i in np.argsort(axes)), axes)
            for one in theirs
        ]

    return parts


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
    state = names.to_ours(tensors, config, parts_of(config), LAYOUT)
    mean, std = normalisation([("mean", 0.5), ("std", 0.5)], (mean, std), config.in_chans, LAYOUT)
    classes = names.class_names(None, config.num_classes, LAYOUT)
    prepared = Preprocessing(classes, config.in_chans, as_pair(config.img_size), mean, std, resample="bilinear",
                             crop=None)  # fmt: skip
    if config.num_classes:
        notes += ("the original release names no classes; they are numbered",)
    return Weights(config, state, prepared, notes)


def config_of(tensors, img_size):
    """The ViTConfig that the shapes imply, and notes on what was assumed."""
    query, fc1 = f"{ATTENTION}/query/kernel".format(0), f"{BLOCK}/MlpBlock_3/Dense_0/kernel".format(0)
    shapes = names.shapes_of(tensors, {"embedding/kernel": 4, query: 3, fc1: 2, POSITIONS: 3}, LAYOUT)
    if "cls" not in tensors:
        raise ValueError("the weights are those of a ViT without class token (no 'cls'), which can't be read")
    *patch_size, channels, embed_dim = shapes["embedding/kernel"]
    patches = shapes[POSITIONS][1] - 1
    size, notes = names.square_image(patches, patch_size, LAYOUT) if img_size is None else (as_pair(img_size), ())
    head, hidden = (np.shape(tensors.get(f"{name}/kernel"))[-1:] for name in ("head", "pre_logits"))
    config = ViTConfig(
        img_size=names.as_side(size), patch_size=names.as_side(patch_size), in_chans=channels, embed_dim=embed_dim,
        num_classes=head[0] if head else 0, depth=names.count_blocks(tensors, r"Transformer/encoderblock_(\d+)/"),
        num_heads=shapes[query][1], mlp_ratio=names.mlp_ratio(shapes[fc1][1], embed_dim),
        head_hidden=hidden[0] if hidden else None, **FIXED_FIELDS,
    )  # fmt: skip
    return config, notes


def write(weights):
    """Our weights as the original release's: arrays by its names.

    Without biases of queries, keys and values, zeros are written; positions of any kind but rotary become one table.
    The classes' names and how images are prepared are not written.

    Raises ValueError for what the original ViT is not: another activation than GELU's tanh form, another ε, another
    pooling than the class token.
    """
    config = weights.config
    names.expect_place(LAYOUT, config, **FIXED_FIELDS)
    state = names.with_position_table(weights, LAYOUT)
    if not config.qkv_bias:
        dtype = state["cls_token"].dtype
        state |= {f"blocks.{i}.attn.qkv.bias": np.zeros(3 * config.embed_dim, dtype) for i in range(config.depth)}
    return names.to_theirs(state, parts_of(config))


register(Mapping(
    "original", (), "vit", read, write, files=(), options=("img_size", "mean", "std"),
    names=r"(.*/)?(embedding/kernel|Transformer/encoder_norm/scale)$",
))  # fmt: skip
