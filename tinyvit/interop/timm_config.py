"""timm's `config.json`, read and written: how a model is built, and how images are prepared."""

from typing import Any, Literal, NamedTuple

from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.arrays import listed
from tinyvit.interop.fields import Classes, Number, Side, Sides, Size, checked, normalisation
from tinyvit.interop.names import class_names
from tinyvit.text import short
from tinyvit.validation import PositiveShare

SOURCE = "timm's config.json"
# The arguments that are read.
ARGS = {
    "img_size": Sides, "patch_size": Sides, "in_chans": Size, "num_classes": Classes, "embed_dim": Size, "depth": Size,
    "num_heads": Size, "mlp_ratio": Number, "qkv_bias": bool, "global_pool": str, "norm_layer": Literal["layernorm"],
    "act_layer": Literal["gelu", "gelu_tanh"], "pool_include_prefix": Literal[False], "pos_drop_rate": Number,
    "proj_drop_rate": Number, "attn_drop_rate": Number, "drop_path_rate": Number, "init_values": Number,
}  # fmt: skip
PRETRAINED = {
    "mean": Any, "std": Any, "crop_pct": PositiveShare, "crop_mode": str, "interpolation": str,
    "input_size": tuple[Size, Side, Side],
}  # fmt: skip
ABOUT = {"architecture": str, "num_classes": Classes, "global_pool": str, "model_args": dict, "pretrained_cfg": dict}
# Arguments that the weights' names and shapes imply, that matter in training only, or for images of other sizes.
IGNORED = {"class_token", "reg_tokens", "qk_norm", "pre_norm", "final_norm", "fc_norm", "no_embed_class", "pos_embed",
           "representation_size", "drop_rate", "patch_drop_rate", "weight_init", "fix_init", "dynamic_img_size",
           "dynamic_img_pad", "strict_img_size"}  # fmt: skip


class About(NamedTuple):
    """The parts of a config.json that are read; all empty if there is none."""

    architecture: str | None  # without the tag after its dot, which says where the weights are from
    args: dict                # of timm's model
    pretrained: dict          # how images are prepared
    label_names: Any


def about_of(about):
    """The `About` of a parsed config.json, or of None; ValueError for arguments of timm's models that ours don't have,
    and for a ViT that differs in what no array's name shows."""
    if about is None:
        return About(None, {}, {}, None)
    said = checked(about, ABOUT, SOURCE)
    given = {name: value for name, value in said.get("model_args", {}).items() if value is not None}
    unknown = sorted(given.keys() - ARGS.keys() - IGNORED)
    if unknown:
        raise ValueError(f"{SOURCE} has model_args that tinyvit's models don't have: {listed(unknown)}")
    args = checked(given, ARGS, f"{SOURCE} in model_args")
    args = {name: said[name] for name in ("num_classes", "global_pool") if name in said} | args
    pretrained = checked(said.get("pretrained_cfg", about), PRETRAINED, f"{SOURCE} in pretrained_cfg")
    name = said.get("architecture", "").partition(".")[0] or None
    for part, what in (("quickgelu", "the activation QuickGELU"), ("rope", "rotary positions of another kind")):
        if name and part in name:
            raise ValueError(f"the weights are those of a {short(repr(name))}, which has {what}")
    both = said.get("pretrained_cfg", {}) | {name: value for name, value in about.items() if value is not None}
    return About(name, args, pretrained, both.get("label_names") or both.get("labels"))


def sizes_of(about):
    """The image sizes (H, W) in the config.json, that of the arguments first."""
    sizes = about.args.get("img_size"), about.pretrained.get("input_size", ())[1:]
    return [as_pair(size) for size in sizes if size]


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
        notes += (f"images are resized 'bicubic', as timm's interpolation {short(repr(resample))} isn't known here",)
        resample = "bicubic"
    crop, mode = known.get("crop_pct", 0.9), known.get("crop_mode", "center")
    if mode == "squash" and crop == 1:
        crop = None
    elif mode != "center":
        notes += (f"images are cut out of the middle, as timm's crop_mode {short(repr(mode))} isn't known here",)
    said = [(name, known.get(name, 0.5)) for name in ("mean", "std")]
    mean, std = normalisation(said, (mean, std), config.in_chans, SOURCE)
    classes, more = class_names(about.label_names, config.num_classes, SOURCE)
    size = as_pair(config.img_size)
    return Preprocessing(classes, config.in_chans, size, mean, std, resample=resample, crop=crop), notes + more


def to_about(weights, architecture, args, ends):
    """The config.json, as a dict, with which timm builds the model of these weights.

    architecture  timm's name
    args          in which the model differs from what the name stands for
    ends          the first convolution and the last layer
    """
    config, prepared = weights.config, weights.preprocessing
    first, last = ends
    crop = {"crop_pct": 1.0, "crop_mode": "squash"} if prepared.crop is None else {
        "crop_pct": prepared.crop, "crop_mode": "center"}  # fmt: skip
    pretrained = {
        "num_classes": config.num_classes, "input_size": [config.in_chans, *as_pair(config.img_size)],
        "first_conv": first, "classifier": last, "interpolation": prepared.resample, **crop,
        "mean": prepared.mean, "std": prepared.std,
    }  # fmt: skip
    return {"architecture": architecture, "num_classes": config.num_classes, "label_names": list(prepared.classes),
            "model_args": args, "pretrained_cfg": pretrained}  # fmt: skip
