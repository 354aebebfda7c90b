"""The layout of timm's VisionTransformer, whose names are also ours.

https://github.com/huggingface/pytorch-image-models. The `config.json` beside the weights has the
architecture's name, `model_args` that differ from it, and `pretrained_cfg` with how images are prepared.
"""

import re
from math import isqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import names
from tinyvit.interop.fields import Classes, Number, Side, Sides, Size, check_fields, normalisation
from tinyvit.interop.mappings import Mapping, Weights, register
from tinyvit.models import Dinov2Config, ViTConfig
from tinyvit.models.registry import variants
from tinyvit.text import list_names, shorten
from tinyvit.validation import PositiveShare

LAYOUT = "timm's layout"
NORM_EPS = 1e-6  # of timm's ViTs; a config.json can't say another
HEADS_BY_WIDTH = {192: 3, 320: 5, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16}
# Arguments that are fields of ours, too, and have the same name in both.
FIELDS = ("patch_size", "in_chans", "num_classes", "embed_dim", "depth", "mlp_ratio", "qkv_bias", "attn_drop_rate",
          "drop_path_rate")  # fmt: skip
PARTS = names.equal_parts(lambda name: (name,))  # for `to_ours`
SOURCE = "timm's config.json"
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_tanh"}  # theirs by ours
# The arguments that are read.
ARGUMENTS = {
    "img_size": Sides, "patch_size": Sides, "in_chans": Size, "num_classes": Classes, "embed_dim": Size, "depth": Size,
    "num_heads": Size, "mlp_ratio": Number, "qkv_bias": bool, "global_pool": str, "norm_layer": Literal["layernorm"],
    "act_layer": Literal[tuple(ACTIVATIONS)], "pool_include_prefix": Literal[False], "pos_drop_rate": Number,
    "proj_drop_rate": Number, "attn_drop_rate": Number, "drop_path_rate": Number, "init_values": Number,
}  # fmt: skip
PRETRAINED_FIELDS = {
    "mean": Any, "std": Any, "crop_pct": PositiveShare, "crop_mode": str, "interpolation": str,
    "input_size": tuple[Size, Side, Side],
}  # fmt: skip
CONFIG_FIELDS = {
    "architecture": str, "num_classes": Classes, "global_pool": str, "model_args": dict, "pretrained_cfg": dict,
}  # fmt: skip
# Arguments that the weights' names and shapes imply, that matter in training only, or for images of other sizes.
IGNORED_ARGUMENTS = {
    "class_token", "reg_tokens", "qk_norm", "pre_norm", "final_norm", "fc_norm", "no_embed_class", "pos_embed",
    "representation_size", "drop_rate", "patch_drop_rate", "weight_init", "fix_init", "dynamic_img_size",
    "dynamic_img_pad", "strict_img_size",
}  # fmt: skip


def read(tensors, about=None, *, num_heads=None, img_size=None, mean=None, std=None):
    """timm's weights as ours.

    tensors    arrays by timm's names
    about      the parsed config.json, or None: then the shapes imply what they can, and notes say what was assumed
    num_heads  heads (H), where the source doesn't say it
    img_size   side of the images, or (height, width), in place of what the source says or its positions imply
    mean, std  of each channel or of all, in place of those in config.json

    Ours has `norm` before pooling. timm's `fc_norm` comes after it: with the class token that is the same, with the
    mean it isn't, since the norm of a mean is not the mean of norms.
    Positions without one for the class token (no_embed_class) get a zero there, and a head with a hidden layer is
    the `pre_logits.fc` of timm's early versions. With factors for the residual branches (init_values), and registers if
    it has any, a ViT is read as a DINOv2, which has the same network.

    Raises ValueError for names that are missing, unexpected or misshapen, also for what config.json says, and for
    Vision Transformers with parts that ours doesn't have.
    """
    about = read_config(about)
    pool, notes = about.args.get("global_pool"), ()
    if "fc_norm.weight" in tensors and pool != "token":
        raise ValueError(
            "the weights are those of a ViT whose norm comes after the mean over the patches (fc_norm), which can't be "
            "read: here each token is normalised before, and a mean of norms is not the norm of a mean"
        )
    if pool is None:
        pool, notes = "token", ("the source doesn't say what its head reads; the class token is assumed",)
    if "norm.weight" not in tensors:
        tensors = {re.sub(r"^fc_norm\.", "norm.", name): array for name, array in tensors.items()}
    config, more = config_of(tensors, about, pool, num_heads, img_size)
    rows, columns = config.grid
    if config.positions == "learned" and tensors["pos_embed"].shape == (1, rows * columns, config.embed_dim):
        table = tensors["pos_embed"]
        tensors = tensors | {"pos_embed": np.concatenate([np.zeros_like(table[:, :1]), table], axis=1)}
        more += ("there is no position for the class token (no_embed_class); it is zero",)
    if "blocks.0.ls1.gamma" in tensors:  # as in DINOv2 and DeiT III
        registers = tensors["reg_token"].shape[1] if "reg_token" in tensors else 0
        scale = about.args.get("init_values", Dinov2Config.layer_scale)
        config = Dinov2Config(**vars(config), num_registers=registers, layer_scale=scale)
    state = names.to_ours(tensors, config, PARTS, LAYOUT)
    prepared, why = preprocessing_of(about, config, mean, std)
    return Weights(config, state, prepared, notes + more + why)


def config_of(tensors, about, pool, num_heads, img_size):
    """The ViTConfig from the shapes, the config.json and the caller, and notes on what was assumed."""
    args = about.args
    shapes = names.shapes_of(tensors, {"patch_embed.proj.weight": 4, "blocks.0.mlp.fc1.weight": 2}, LAYOUT)
    embed_dim, channels, *patch_size = shapes["patch_embed.proj.weight"]
    found = {
        "embed_dim": embed_dim, "depth": names.count_blocks(tensors, r"blocks\.(\d+)\."), "in_chans": channels,
        "num_classes": len(tensors["head.weight"]) if "head.weight" in tensors else 0,
        "qkv_bias": any(name.endswith(".attn.qkv.bias") for name in tensors),
        "mlp_ratio": names.mlp_ratio(shapes["blocks.0.mlp.fc1.weight"][0], embed_dim), "patch_size": patch_size,
    }  # fmt: skip
    found |= {name: args[name] for name in FIELDS if name in args}  # `to_ours` finds what the weights contradict
    heads, notes = heads_of(about, embed_dim, num_heads)
    size, more = image_size(tensors, about, as_pair(found["patch_size"]), img_size)
    drop, proj = args.get("pos_drop_rate", 0.0), args.get("proj_drop_rate", 0.0)
    if drop != proj:
        more += (f"pos_drop_rate {drop} and proj_drop_rate {proj} differ, which is one rate here; drop_rate is 0",)
    pre_logits = tensors.get("pre_logits.fc.weight")
    config = ViTConfig(**found | {
        "patch_size": names.as_side(found["patch_size"]), "img_size": names.as_side(size), "num_heads": heads,
        "global_pool": pool, "positions": "learned" if "pos_embed" in tensors else "none", "norm_eps": NORM_EPS,
        "head_hidden": None if pre_logits is None else len(pre_logits), "activation": args.get("act_layer", "gelu"),
        "drop_rate": drop if drop == proj else 0.0,
    })  # fmt: skip
    return config, notes + more


def heads_of(about, embed_dim, given):
    """The number of heads, which no shape implies, and a note if it is that of timm's ViTs of this width.

    It comes from the arguments, from the architecture's name, or from the caller; ValueError if these disagree, and for
    another width if none of them says it.
    """
    _, fields = variants().get(about.architecture, (None, {}))
    of_name = fields.get("num_heads") if fields.get("embed_dim") == embed_dim else None
    said = about.args.get("num_heads", of_name)
    if None not in (said, given) and said != given:
        raise ValueError(f"{SOURCE} says num_heads {said}, but {given} was given; leave out num_heads")
    if said is not None or given is not None:
        return given if said is None else said, ()
    if embed_dim not in HEADS_BY_WIDTH:
        raise ValueError("nothing says how many heads there are; give --num-heads, in Python num_heads")
    assumed = f"{HEADS_BY_WIDTH[embed_dim]} are assumed, as timm's ViTs of width {embed_dim} have"
    return HEADS_BY_WIDTH[embed_dim], (f"the source doesn't say how many heads there are; {assumed}",)


def image_size(tensors, about, patch_size, given):
    """The (H, W) of the images, and notes on what was assumed.

    It is the size that was given; else the config.json's; else that of a square with as many patches as there are
    positions. Raises ValueError without any of these.
    """
    size = given if given is not None else size_of(about)
    if size is not None:
        return as_pair(size), ()
    if "pos_embed" not in tensors:
        raise ValueError(f"there are no positions, so that nothing tells the size of the images; {names.SIZE_ADVICE}")
    positions = names.shapes_of(tensors, {"pos_embed": 3}, LAYOUT)["pos_embed"][1]
    # A square number of positions leaves out the class token's.
    return names.square_image(positions if isqrt(positions) ** 2 == positions else positions - 1, patch_size, LAYOUT)


def write(weights):
    """Our weights as timm's: (arrays by timm's names, the config.json as a dict).

    timm builds the model from the folder that holds both, `timm.create_model("local-dir:FOLDER", pretrained=True)`.
    Positions of any kind but rotary become one table; fields for images of other sizes are not written.
    Raises ValueError for what timm's ViT has no place for; a hidden layer in the head it had in its early versions.
    """
    config = weights.config
    names.expect_place(LAYOUT, config, head_hidden=None, norm_eps=NORM_EPS)
    state = names.with_position_table(weights, LAYOUT) if config.positions != "none" else weights.state
    args = {name: getattr(config, name) for name in ("img_size", "global_pool", "num_heads", *FIELDS)}
    args |= {"act_layer": names.activation_name(LAYOUT, ACTIVATIONS, config), "fc_norm": False, "class_token": True,
             "pos_drop_rate": config.drop_rate, "proj_drop_rate": config.drop_rate}  # fmt: skip
    args |= {"pos_embed": "none"} if config.positions == "none" else {}
    vits = {name: fields for name, (architecture, fields) in variants().items() if architecture == "vit"}
    closest = min(vits, key=lambda name: abs(vits[name]["embed_dim"] - config.embed_dim))
    return state, config_json(weights, closest, args, "patch_embed.proj", "head")


# -- config.json: how a model is built, and how images are prepared ---------------------------------------------------


class TimmConfig(NamedTuple):
    """The parts of a config.json that are read; all empty if there is none."""

    architecture: str | None  # without the tag after its dot, which says where the weights are from
    args: dict                # of timm's model
    pretrained: dict          # how images are prepared
    label_names: Any


def read_config(about):
    """The `TimmConfig` of a parsed config.json, or of None; ValueError for arguments of timm's models that ours don't
    have, and for a ViT with a difference that no array's name shows."""
    if about is None:
        return TimmConfig(None, {}, {}, None)
    said = check_fields(about, CONFIG_FIELDS, SOURCE)
    given = {name: value for name, value in said.get("model_args", {}).items() if value is not None}
    unknown = sorted(given.keys() - ARGUMENTS.keys() - IGNORED_ARGUMENTS)
    if unknown:
        raise ValueError(f"{SOURCE} has model_args that tinyvit's models don't have: {list_names(unknown)}")
    args = check_fields(given, ARGUMENTS, f"{SOURCE} in model_args")
    args = {name: said[name] for name in ("num_classes", "global_pool") if name in said} | args
    pretrained = check_fields(said.get("pretrained_cfg", about), PRETRAINED_FIELDS, f"{SOURCE} in pretrained_cfg")
    name = said.get("architecture", "").partition(".")[0] or None
    for part, what in (("quickgelu", "the activation QuickGELU"), ("rope", "rotary positions of another kind")):
        if name and part in name:
            raise ValueError(f"the weights are those of a {shorten(repr(name))}, which has {what}")
    both = said.get("pretrained_cfg", {}) | {name: value for name, value in about.items() if value is not None}
    return TimmConfig(name, args, pretrained, both.get("label_names") or both.get("labels"))


def size_of(about):
    """The size of the images in the config.json, the arguments' if they say one; None where there is none."""
    return about.args.get("img_size") or about.pretrained.get("input_size", ())[1:] or None


def preprocessing_of(about, config, mean=None, std=None):
    """The Preprocessing of a config.json, and notes on what it doesn't say.

    Missing fields have the defaults of timm's own ViTs: mean and standard deviation 0.5, bicubic, crop_pct 0.9. A mean
    or a standard deviation that is given replaces the file's.
    """
    known, notes = about.pretrained, ()
    unknown = [name for name, given in (("mean", mean), ("std", std)) if given is None and name not in known]
    if unknown:
        what = f"{' and '.join(unknown)} {'are' if len(unknown) > 1 else 'is'}"
        notes += (f"the source doesn't say how images are normalised; {what} taken to be 0.5",)
    resample = known.get("interpolation", "bicubic")
    if resample not in RESAMPLE:
        notes += (f"images are resized 'bicubic', as timm's interpolation {shorten(repr(resample))} isn't known here",)
        resample = "bicubic"
    crop, mode = known.get("crop_pct", 0.9), known.get("crop_mode", "center")
    if mode == "squash" and crop == 1:
        crop = None
    elif mode != "center":
        notes += (f"images are cut out of the middle, as timm's crop_mode {shorten(repr(mode))} isn't known here",)
    said = [(name, known.get(name, 0.5)) for name in ("mean", "std")]
    mean, std = normalisation(said, (mean, std), config.in_chans, SOURCE)
    classes = names.class_names(about.label_names, config.num_classes, SOURCE)
    size = as_pair(config.img_size)
    return Preprocessing(classes, config.in_chans, size, mean, std, resample=resample, crop=crop), notes


def config_json(weights, architecture, args, first, last):
    """The config.json, as a dict, with which timm builds the model of these weights.

    architecture  timm's name
    args          in which the model differs from what the name stands for
    first, last   the first convolution and the last layer, or the last two
    """
    config, prepared = weights.config, weights.preprocessing
    crop = {"crop_pct": 1.0, "crop_mode": "squash"} if prepared.crop is None else {
        "crop_pct": prepared.crop, "crop_mode": "center"}  # fmt: skip
    pretrained = {
        "num_classes": config.num_classes, "input_size": [config.in_chans, *as_pair(config.img_size)],
        "first_conv": first, "classifier": last, "interpolation": prepared.resample, **crop,
        "mean": prepared.mean, "std": prepared.std,
    }  # fmt: skip
    return {"architecture": architecture, "num_classes": config.num_classes, "label_names": list(prepared.classes),
            "model_args": args, "pretrained_cfg": pretrained}  # fmt: skip


register(Mapping(
    "timm", ("vit_*", "deit_*", "deit3_*", "flexivit_*"), "vit", read, write, files=("config.json",),
    options=("num_heads", "img_size", "mean", "std"),
    names=r"(patch_embed\.proj\.weight|blocks\.\d+\.attn\.qkv\.weight)$",
))  # fmt: skip
