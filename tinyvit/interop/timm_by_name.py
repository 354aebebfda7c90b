"""timm's layouts of ResNet, BiT, the hybrid, DeiT and Swin, whose names are also ours.

The `config.json` beside the weights says by the name of the architecture which network it is.
"""

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tinyvit.functional.patches import as_pair
from tinyvit.interop.mappings import Mapping, Weights, register
from tinyvit.interop.names import as_side, to_ours
from tinyvit.interop.timm import LAYOUT, PARTS, SOURCE, config_json, preprocessing_of, read_config, size_of
from tinyvit.models.registry import VARIANTS, config_class, variants
from tinyvit.text import list_names, shorten


class TimmFamily(NamedTuple):
    """One architecture: timm's names of it, the first convolution and the last layers.

    one_size   whether timm makes it for one size of the images
    """

    names: str
    first: str
    last: str | tuple[str, str]
    one_size: bool = True


FAMILIES = {
    "resnet": TimmFamily("resnet[1-9]*", "conv1", "fc", one_size=False),
    "bit": TimmFamily("resnetv2_*_bit*", "stem.conv", "head.fc", one_size=False),
    "hybrid": TimmFamily("vit_*_r*_s*", "patch_embed.backbone.stem.conv", "head"),
    "deit": TimmFamily("deit_*_distilled_*", "patch_embed.proj", ("head", "head_dist")),
    "swin": TimmFamily("swin_*", "patch_embed.proj", "head.fc"),
}
FREE_FIELDS = ("img_size", "in_chans", "num_classes")  # what weights of one name may differ in
TRAINING_ARGUMENTS = {"pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate", "global_pool"}
UNWRITTEN_FIELDS = ("drop_rate", "attn_drop_rate", "drop_path_rate", "dynamic_img_size", "resize_positions")


def names_of(architecture):
    """The models that timm knows too, by name: those for ImageNet."""
    return [name for name, (of, fields) in variants().items() if of == architecture and fields["img_size"] == 224]


def read(architecture, tensors, about=None, *, img_size=None, mean=None, std=None):
    """timm's weights as ours.

    tensors    arrays by timm's names
    about      the parsed config.json, which names the architecture
    img_size   side of the images, or (height, width), in place of the one in config.json
    mean, std  of each channel or of all, in place of those in config.json

    Raises ValueError without a config.json, for a name that ours doesn't have, and for names of arrays that are
    missing, unexpected or misshapen, and for a Swin and a size of the images for which timm lays other windows.
    """
    about, names, kind = read_config(about), names_of(architecture), FAMILIES[architecture]
    if about.architecture not in names:
        raise ValueError(f"{SOURCE} must name one of {', '.join(names)}, got {shorten(repr(about.architecture))}")
    _, fields = VARIANTS[about.architecture]
    head = f"{kind.last if isinstance(kind.last, str) else kind.last[0]}.weight"
    if architecture == "bit" and head in tensors and tensors[head].ndim == 4:   # a convolution of 1×1, (K, C, 1, 1)
        tensors = tensors | {head: tensors[head][:, :, 0, 0]}
    first = tensors.get(f"{kind.first}.weight")
    found = {"in_chans": 3 if first is None else first.shape[1], "num_classes": len(tensors.get(head, ()))}
    args = arguments_of(about, architecture)
    size = img_size if img_size is not None else size_of(about) or fields["img_size"]
    config = config_class(architecture)(**fields | found | args | {"img_size": as_side(size)})
    if architecture == "swin":
        check_windows(config)
    state = to_ours(tensors, config, PARTS, LAYOUT)
    prepared, notes = preprocessing_of(about, config, mean, std)
    return Weights(config, state, prepared, notes)


def arguments_of(about, architecture):
    """Fields of the configuration that model_args say; ValueError for what ours doesn't have."""
    known = config_class(architecture).__dataclass_fields__
    args = {"activation" if name == "act_layer" else name: value for name, value in about.args.items()
            if name not in TRAINING_ARGUMENTS}  # fmt: skip
    unknown = [name for name in args if name not in known]
    pool = known["global_pool"].default if "global_pool" in known else "avg"
    if about.args.get("global_pool", pool) != pool:
        unknown.append("global_pool")
    if unknown:
        raise ValueError(f"{SOURCE} has model_args that tinyvit's {architecture} doesn't have: {list_names(unknown)}")
    return args


def write(architecture, weights):
    """Our weights as timm's: (arrays by timm's names, the config.json as a dict).

    Dropout, stochastic depth and fields for images of other sizes are not written. Raises ValueError for a network that
    timm has no name for, and for a Swin and a size for which timm lays other windows.
    """
    config, kind = weights.config, FAMILIES[architecture]
    shape = {name: getattr(config, name) for name in FREE_FIELDS}
    shape |= {name: getattr(config, name) for name in UNWRITTEN_FIELDS if name in config.__dataclass_fields__}
    for name in names_of(architecture):
        with suppress(ValueError):  # of a model that can't be built for this size
            if type(config)(**VARIANTS[name][1] | shape) == config:
                break
    else:
        raise ValueError(f"{LAYOUT} has no name for a {architecture} of this shape; expected that of one of "
                         f"{', '.join(names_of(architecture))}")  # fmt: skip
    if architecture == "swin":
        check_windows(config)
    state = dict(weights.state)
    if architecture == "bit" and config.num_classes:
        state["head.fc.weight"] = state["head.fc.weight"][:, :, None, None]
    args = {name: shape[name] for name in FREE_FIELDS if name != "img_size" or kind.one_size}
    return state, config_json(weights, name, args, kind.first, kind.last)


def check_windows(config):
    """Raise ValueError for a Swin with a grid that timm would cut into other windows.

    timm shifts a grid before it pads it, and not after; rounds down where an odd side is halved; and where a side is
    shorter than a window, makes the window shorter along that side only.
    """
    window, last = config.window_size, len(config.depths) - 1
    for i, depth in enumerate(config.depths):
        rows, columns = config.grid(i)
        whole = depth == 1 or not (rows % window or columns % window)
        alike = rows == columns if min(rows, columns) <= window else whole
        if not alike or (i < last and (rows % 2 or columns % 2)):
            height, width = as_pair(config.img_size)
            raise ValueError(
                f"for images of {height}×{width} timm cuts the grid of {rows}×{columns} tokens in stage {i} into other "
                f"windows; expected a size, such as 224×224, at which windows of {window}×{window} divide every grid"
            )


for architecture, kind in FAMILIES.items():
    register(Mapping(
        "timm", (kind.names,), architecture, partial(read, architecture), partial(write, architecture),
        files=("config.json",), options=("img_size", "mean", "std"),
    ))  # fmt: skip
