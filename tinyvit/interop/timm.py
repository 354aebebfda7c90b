"""The layout of timm's VisionTransformer, whose names are also ours.

https://github.com/huggingface/pytorch-image-models. The `config.json` beside the weights has the
architecture's name, `model_args` that differ from it, and `pretrained_cfg` with how images are prepared.
"""

import re
from math import isqrt

import numpy as np

from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.interop.fields import LARGEST_SIDE, expect_agreement
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import (
    GIVE_SIZE,
    as_side,
    count_blocks,
    expect_names,
    mlp_ratio,
    own_shapes,
    position_table,
    shapes_of,
    square_image,
)
from tinyvit.interop.timm_config import (
    ACTIVATIONS,
    SOURCE,
    about_of,
    heads_of,
    preprocessing_of,
    rates_of,
    sizes_of,
    to_about,
)
from tinyvit.interop.weights import Weights
from tinyvit.models import Dinov2Config, ViTConfig
from tinyvit.text import short

LAYOUT = "timm's layout"
BLOCK = re.compile(r"blocks\.(\d+)\.")
NORM_EPS = 1e-6  # of timm's ViTs; a config.json can't say another

def read(tensors, about=None, *, num_heads=None, img_size=None, mean=None, std=None):
    """timm's weights as ours.

    tensors    arrays by timm's names
    about      the parsed config.json, or None: then the shapes imply what they can, and notes say what was assumed
    num_heads  heads (H), where the source doesn't say it
    img_size   side of the images, or (height, width), where the source doesn't say it or contradicts itself
    mean, std  of each channel or of all, in place of those in config.json

    Ours has `norm` before pooling. timm's `fc_norm` comes after it: with the class token that is the same, with the
    mean it isn't, since the norm of a mean is not the mean of norms.
    Positions without one for the class token (no_embed_class) get a zero there, and a head with a hidden layer is
    the `pre_logits.fc` of timm's early versions. With factors for the residual branches (init_values), and registers if
    it has any, a ViT is read as a DINOv2, which has the same network.

    Raises ValueError for names that are missing, unexpected or misshapen, for a config.json that contradicts the
    weights, and for Vision Transformers with parts that ours doesn't have.
    """
    about = about_of(about)
    pool, notes = pool_of(about, tensors)
    twice = [name for name in ("norm.weight", "norm.bias") if {name, f"fc_{name}"} <= tensors.keys()]
    if twice:
        both = " and ".join(f"{name} and fc_{name}" for name in twice)
        raise ValueError(f"the weights have {both}, a norm before the class token is taken and one after; expected one")
    tensors = {re.sub(r"^fc_norm\.", "norm.", name): array for name, array in tensors.items()}
    config, more = config_of(tensors, about, pool, num_heads, img_size)
    notes += more
    rows, columns = config.grid
    if config.positions == "learned" and tensors["pos_embed"].shape == (1, rows * columns, config.embed_dim):
        table = tensors["pos_embed"]
        tensors["pos_embed"] = np.concatenate([np.zeros_like(table[:, :1]), table], axis=1)
        notes += ("there is no position for the class token (no_embed_class); it is zero",)
    if "blocks.0.ls1.gamma" in tensors:  # as in DINOv2 and DeiT III
        registers = tensors["reg_token"].shape[1] if "reg_token" in tensors else 0
        scale = about.args.get("init_values", Dinov2Config.layer_scale)
        config = Dinov2Config(**vars(config), num_registers=registers, layer_scale=scale)
    expected = own_shapes(config)
    expect_names(tensors, expected, LAYOUT)
    prepared, more = preprocessing_of(about, config, mean, std)
    return Weights(config, {name: tensors[name] for name in expected}, prepared, notes + more)


def pool_of(about, tensors):
    """The pooling, "token" or "avg", and a note if it is assumed."""
    said = about.global_pool
    if said not in (None, "token", "avg"):
        raise ValueError(f"the source's ViT has global_pool {short(repr(said))}; expected 'token' or 'avg'")
    if "fc_norm.weight" in tensors and said != "token":
        raise ValueError(
            "the weights are those of a ViT whose norm comes after the mean over the patches (fc_norm), which can't be "
            "read: here each token is normalised before, and a mean of norms is not the norm of a mean"
        )
    if said is None:
        return "token", ("the source doesn't say what its head reads; the class token is assumed",)
    return said, ()


def config_of(tensors, about, pool, num_heads, img_size):
    """The ViTConfig from the shapes, the config.json and the caller, and notes on what was assumed."""
    shapes = shapes_of(tensors, {"patch_embed.proj.weight": 4, "blocks.0.mlp.fc1.weight": 2}, LAYOUT)
    embed_dim, channels, *patch_size = shapes["patch_embed.proj.weight"]
    hidden = shapes["blocks.0.mlp.fc1.weight"][0]
    told = ("embed_dim", "depth", "in_chans", "patch_size", "num_classes", "qkv_bias")
    found = {
        "embed_dim": embed_dim, "depth": count_blocks(tensors, BLOCK), "in_chans": channels,
        "patch_size": tuple(patch_size), "num_classes": classes_in(tensors),
        "qkv_bias": any(name.endswith(".attn.qkv.bias") for name in tensors),
    }  # fmt: skip
    expect_agreement({name: about.args.get(name) for name in told}, found, SOURCE)
    notes = expect_channels(about, channels)
    expect_agreement({"num_classes": about.num_classes}, found, SOURCE)
    ratio = about.args.get("mlp_ratio")
    if ratio is not None and not hidden <= embed_dim * ratio < hidden + 1:
        expect_agreement({"mlp_ratio": ratio}, {"mlp_ratio": hidden / embed_dim}, SOURCE)
    heads, more = heads_of(about, embed_dim, num_heads)
    rates, why = rates_of(about.args)
    size, assumed = image_size(tensors, about, patch_size, img_size)
    positions = "learned" if "pos_embed" in tensors else "none"
    pre_logits = tensors.get("pre_logits.fc.weight")
    fields = found | rates | {"patch_size": as_side(patch_size)}
    config = ViTConfig(
        img_size=as_side(size), num_heads=heads, mlp_ratio=mlp_ratio(hidden, embed_dim) if ratio is None else ratio,
        global_pool=pool, positions=positions, head_hidden=None if pre_logits is None else len(pre_logits),
        activation=ACTIVATIONS[about.args.get("act_layer")], norm_eps=NORM_EPS, **fields,
    )  # fmt: skip
    return config, notes + more + why + assumed


def expect_channels(about, channels):
    """A note if the config.json's input_size has other channels than the weights, and its in_chans the same: timm
    writes that for a model made with in_chans. ValueError if nothing says the weights' channels."""
    said = about.pretrained.get("input_size", [channels])[0]
    if "in_chans" not in about.args:
        expect_agreement({"input_size's channels": said}, {"input_size's channels": channels}, SOURCE)
    if said == channels:
        return ()
    return (f"images have {channels} channels, as in_chans and the weights say; input_size says {said}",)


def classes_in(tensors):
    return len(tensors["head.weight"]) if "head.weight" in tensors else 0


def image_size(tensors, about, patch_size, given):
    """The (H, W) of the images: as the config.json says, as given, or so that the positions are those of a square;
    and notes of what was assumed.

    What is given decides where the config.json says two sizes that fit, or none that the positions are for, and
    contradicts it nowhere else.
    """
    said = sizes_of(about)
    positions = shapes_of(tensors, {"pos_embed": 3}, LAYOUT)["pos_embed"][1] if "pos_embed" in tensors else None
    words = " and ".join(f"{name} {height}×{width}" for name, (height, width) in said.items())
    right = {pair for pair in said.values() if positions is None or fits(pair, patch_size, positions)}
    possible = right or set(said.values())
    if given is not None:
        size = as_pair(given)
        if right and size not in said.values():
            height, width = size
            raise ValueError(f"{SOURCE} says {words}, but {height}×{width} was given; leave out img_size")
    elif len(possible) > 1:
        raise ValueError(f"{SOURCE} contradicts itself: it says {words}; {GIVE_SIZE}")
    elif possible:
        (size,) = possible
    elif positions is None:
        raise ValueError(f"there are no positions, so that nothing tells the size of the images; {GIVE_SIZE}")
    else:
        # A square number of positions leaves out the class token's.
        return square_image(positions if isqrt(positions) ** 2 == positions else positions - 1, patch_size, LAYOUT)
    height, width = size
    if max(size) > LARGEST_SIDE:
        raise ValueError(f"images are said to be of {height}×{width} pixels; expected at most {LARGEST_SIDE:,} a side")
    rows, columns = grid_of(size, patch_size)
    if positions is not None and not fits(size, patch_size, positions):
        token = "one perhaps the class token's" if "cls_token" in tensors else "and no class token (cls_token)"
        token = "which aren't read for registers (reg_token)" if "reg_token" in tensors else token
        raise ValueError(f"images of {height}×{width} pixels have {rows * columns} patches, but the weights have "
                         f"{positions} positions, {token}; {GIVE_SIZE}")  # fmt: skip
    return size, ()


def fits(size, patch_size, positions):
    """Whether images of a size have this many patches, or this many with the class token."""
    (height, width), (p, q) = size, patch_size
    patches = (height // p) * (width // q)
    return not height % p and not width % q and positions in (patches, patches + 1)


def write(weights):
    """Our weights as timm's: (arrays by timm's names, the config.json as a dict).

    timm builds the model from the folder that holds both, `timm.create_model("local-dir:FOLDER", pretrained=True)`.
    Positions of any kind but rotary become one table; fields for images of other sizes are not written.
    Raises ValueError for what timm's ViT has no place for; a hidden layer in the head it had in its early versions.
    """
    config, state = weights.config, dict(weights.state)
    if config.head_hidden is not None:
        raise ValueError(f"{LAYOUT} has no place for head_hidden {config.head_hidden}: its head is one linear layer")
    if config.norm_eps != NORM_EPS:
        raise ValueError(f"{LAYOUT} has no place for norm_eps {config.norm_eps}; timm's ViTs have {NORM_EPS}")
    table = position_table(weights, LAYOUT)
    for name in ("pos_embed_x", "pos_embed_y"):
        state.pop(name, None)
    if config.positions != "none":
        state["pos_embed"] = table
    return state, to_about(weights)


register(Mapping(
    "timm", ("vit_*", "deit_*", "deit3_*", "flexivit_*"), "vit",
    r"(patch_embed\.proj\.weight|blocks\.\d+\.attn\.qkv\.weight)$", read, write, files=("config.json",),
    options=("num_heads", "img_size", "mean", "std"),
))  # fmt: skip
