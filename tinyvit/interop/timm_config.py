"""timm's `config.json` of a ViT, read and written: how it is built, and how images are prepared."""

from typing import NamedTuple

from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import Classes, Number, Numbers, Side, Sides, Size, expect_fields, normalisation
from tinyvit.interop.lazy_arrays import listed
from tinyvit.interop.names import different_names, numbered
from tinyvit.models.registry import VARIANTS
from tinyvit.text import short

SOURCE = "timm's config.json"
ACTIVATIONS = {None: "gelu", "gelu": "gelu", "gelu_tanh": "gelu_tanh"}
HEADS = {192: 3, 320: 5, 384: 6, 512: 8, 768: 12, 1024: 16, 1152: 16, 1280: 16, 1408: 16, 1664: 16}  # by embed_dim
# The arguments that are read.
ARGS = {
    "img_size": Sides, "patch_size": Sides, "in_chans": Size, "num_classes": Classes, "embed_dim": Size, "depth": Size,
    "num_heads": Size, "mlp_ratio": Number, "qkv_bias": bool, "global_pool": str, "act_layer": str, "norm_layer": str,
    "pool_include_prefix": bool, "pos_drop_rate": Number, "proj_drop_rate": Number, "attn_drop_rate": Number,
    "drop_path_rate": Number,
}  # fmt: skip
PRETRAINED = {
    "mean": Numbers, "std": Numbers, "crop_pct": Number, "crop_mode": str, "interpolation": str, "num_classes": Classes,
    "input_size": tuple[Size, Side, Side],
}  # fmt: skip
ABOUT = {"architecture": str, "num_classes": Classes, "global_pool": str, "model_args": dict, "pretrained_cfg": dict}
# Arguments that the weights' names and shapes imply, and those that matter in training only.
TOLD_BY_WEIGHTS = {"class_token", "reg_tokens", "init_values", "qk_norm", "pre_norm", "final_norm", "fc_norm",
                   "no_embed_class", "pos_embed", "representation_size"}  # fmt: skip
IN_TRAINING_ONLY = {"drop_rate", "patch_drop_rate", "weight_init", "fix_init"}
OF_OTHER_SIZES = {"dynamic_img_size", "dynamic_img_pad", "strict_img_size"}


class About(NamedTuple):
    """The parts of a config.json that are read; all empty if there is none."""

    architecture: str | None
    args: dict          # of timm's VisionTransformer
    pretrained: dict    # how images are prepared, and more that isn't read
    num_classes: int | None  # beside model_args
    global_pool: str | None
    label_names: list | dict | None


def about_of(about):
    """The `About` of a parsed config.json, or of None; ValueError for anything but a configuration of timm's ViT."""
    if about is None:
        return About(None, {}, {}, None, None, None)
    if not isinstance(about, dict):
        raise ValueError(f"expected {SOURCE} to hold an object, got {type(about).__name__}")
    expect_fields(about, ABOUT, SOURCE)
    about = without_nulls(about)
    args, pretrained = without_nulls(about.get("model_args", {})), without_nulls(about.get("pretrained_cfg", about))
    expect_fields(args, ARGS, f"{SOURCE} in model_args")
    expect_fields(pretrained, PRETRAINED, f"{SOURCE} in pretrained_cfg")
    architecture = checked_architecture(about.get("architecture"))
    check_args(args)
    both = pretrained | about
    # The classes of an earlier pre-training don't count where something else says how many there are.
    num_classes = about.get("num_classes", None if "num_classes" in args else pretrained.get("num_classes"))
    return About(
        architecture, args, pretrained, num_classes,
        args.get("global_pool", about.get("global_pool")), both.get("label_names") or both.get("labels"),
    )  # fmt: skip


def without_nulls(values):
    """A parsed object without its nulls, which mean the same as a missing field."""
    return {name: value for name, value in values.items() if value is not None}


def checked_architecture(architecture):
    """The name without the tag after its dot, which says where the weights are from; ValueError for a ViT that differs
    in what no array's name shows."""
    if architecture is None:
        return None
    name = architecture.partition(".")[0]
    for part, what in (("quickgelu", "the activation QuickGELU"), ("rope", "rotary positions of another kind")):
        if part in name:
            raise ValueError(f"the weights are those of a {short(repr(name))}, which has {what}")
    return name


def check_args(args):
    """Raise ValueError for arguments of timm's VisionTransformer that ours doesn't have."""
    unknown = sorted(args.keys() - ARGS.keys() - TOLD_BY_WEIGHTS - IN_TRAINING_ONLY - OF_OTHER_SIZES)
    if unknown:
        raise ValueError(f"{SOURCE} has model_args that tinyvit's models don't have: {listed(unknown)}")
    for name, allowed in (("act_layer", tuple(ACTIVATIONS)), ("norm_layer", (None, "layernorm")),
                          ("pool_include_prefix", (None, False))):  # fmt: skip
        if args.get(name) not in allowed:
            expected = " or ".join(repr(value) for value in allowed if value is not None)
            raise ValueError(f"{SOURCE} has {name} {short(repr(args[name]))}; expected {expected}")


def heads_of(about, embed_dim, given):
    """The number of heads, which no shape implies, and a note if it is that of timm's ViTs of this width.

    It comes from the arguments, from the architecture's name, or from the caller; ValueError if these disagree, and for
    another width if none of them says it.
    """
    said = about.args.get("num_heads")
    known = VARIANTS.get(about.architecture)
    if said is None and known and known[1]["embed_dim"] == embed_dim:
        said = known[1]["num_heads"]
    if None not in (said, given) and said != given:
        where = "model_args" if "num_heads" in about.args else f"its architecture, {about.architecture}"
        raise ValueError(f"{SOURCE} says num_heads {said}, by {where}, but {given} was given; leave out num_heads")
    if said is not None or given is not None:
        return given if said is None else said, ()
    if embed_dim not in HEADS:
        raise ValueError("nothing says how many heads there are; give --num-heads, in Python num_heads")
    assumed = f"{HEADS[embed_dim]} are assumed, as timm's ViTs of width {embed_dim} have"
    return HEADS[embed_dim], (f"the source doesn't say how many heads there are; {assumed}",)


def sizes_of(about):
    """The image sizes (H, W) in the config.json, by field."""
    said = {"img_size": about.args.get("img_size")}
    if "input_size" in about.pretrained:
        said["input_size"] = about.pretrained["input_size"][1:]
    return {name: as_pair(size) for name, size in said.items() if size is not None}


def rates_of(args):
    """The rates of dropout and stochastic depth as fields of a ViTConfig, and notes on those that differ there."""
    pos, proj = args.get("pos_drop_rate", 0.0), args.get("proj_drop_rate", 0.0)
    rates = {name: args.get(name, 0.0) for name in ("attn_drop_rate", "drop_path_rate")}
    notes = ()
    if pos != proj:
        notes = (f"pos_drop_rate {pos} and proj_drop_rate {proj} differ, which is one rate here; drop_rate is 0",)
    return rates | {"drop_rate": pos if pos == proj else 0.0}, notes


def preprocessing_of(about, config, mean=None, std=None):
    """The Preprocessing of a config.json, and notes on what it doesn't say.

    Missing fields have the defaults of timm's own ViTs: mean and standard deviation 0.5, bicubic, crop_pct 0.9. A mean
    or a standard deviation that is given replaces the file's.
    """
    notes, known = [], about.pretrained
    unknown = [name for name, given in (("mean", mean), ("std", std)) if given is None and name not in known]
    if unknown:
        what = f"{' and '.join(unknown)} {'are' if len(unknown) > 1 else 'is'}"
        notes.append(f"the source doesn't say how images are normalised; {what} taken to be 0.5")
    resample = known.get("interpolation", "bicubic")
    if resample not in RESAMPLE:
        notes.append(f"images are resized 'bicubic', as timm's interpolation {short(repr(resample))} isn't known here")
        resample = "bicubic"
    crop, mode = known.get("crop_pct", 0.9), known.get("crop_mode", "center")
    if not 0 < crop <= 1:
        raise ValueError(f"{SOURCE} has crop_pct {crop}; expected a share above 0 and at most 1")
    if mode == "squash" and crop == 1:
        crop = None
    elif mode != "center":
        notes.append(f"images are cut out of the middle, as timm's crop_mode {short(repr(mode))} isn't known here")
    said = [(name, known.get(name, 0.5)) for name in ("mean", "std")]
    mean, std = normalisation(said, (mean, std), config.in_chans, SOURCE)
    classes, more = classes_of(about, config.num_classes)
    size = as_pair(config.img_size)
    return Preprocessing(classes, config.in_chans, size, mean, std, resample=resample, crop=crop), (*notes, *more)


def classes_of(about, num_classes):
    """The names of the classes, "0", "1", … without names, and notes on those that were changed."""
    names = about.label_names
    if not names or not num_classes:
        return numbered(num_classes), ()
    if isinstance(names, dict):  # by number, as JSON has it
        names = [names.get(str(i)) for i in range(len(names))]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{SOURCE} has label_names {short(repr(names))}; expected a name for each class")
    if len(names) != num_classes:
        raise ValueError(f"{SOURCE} has label_names for {len(names)} classes, but the weights have {num_classes}")
    return different_names(names)


def to_about(weights):
    """The config.json, as a dict, with which timm builds the model of these weights."""
    config, prepared = weights.config, weights.preprocessing
    height, width = as_pair(config.img_size)
    args = {name: getattr(config, name) for name in
            ("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads",
             "mlp_ratio", "qkv_bias", "attn_drop_rate", "drop_path_rate")}  # fmt: skip
    args |= {"act_layer": config.activation, "fc_norm": False, "class_token": True,
             "pos_drop_rate": config.drop_rate, "proj_drop_rate": config.drop_rate}  # fmt: skip
    if config.positions == "none":
        args["pos_embed"] = "none"
    pretrained = {
        "num_classes": config.num_classes, "input_size": [config.in_chans, height, width], "fixed_input_size": True,
        "first_conv": "patch_embed.proj", "classifier": "head", **how_prepared(prepared),
    }  # fmt: skip
    return {"architecture": architecture_of(config), "num_classes": config.num_classes,
            "num_features": config.embed_dim, "global_pool": config.global_pool,
            "label_names": list(prepared.classes), "model_args": args, "pretrained_cfg": pretrained}  # fmt: skip


def how_prepared(prepared):
    """The fields of pretrained_cfg for how images are prepared."""
    crop = {"crop_pct": 1.0, "crop_mode": "squash"} if prepared.crop is None else {
        "crop_pct": prepared.crop, "crop_mode": "center"}  # fmt: skip
    return {"interpolation": prepared.resample, **crop, "mean": list(prepared.mean), "std": list(prepared.std)}


def architecture_of(config):
    """The name of our variant that is closest in width; `model_args` hold what differs."""
    vits = {name: fields for name, (architecture, fields) in VARIANTS.items() if architecture == "vit"}
    return min(vits, key=lambda name: abs(vits[name]["embed_dim"] - config.embed_dim))
