"""timm's layouts of ResNet, BiT, the hybrid, DeiT and Swin, whose names are also ours.

The `config.json` beside the weights says by the name of the architecture which network it is.
"""

from contextlib import suppress
from functools import partial

from tinyvit.functional.patches import as_pair
from tinyvit.interop import timm_config
from tinyvit.interop.fields import expect_agreement
from tinyvit.interop.huggingface_convnets import COUNTER
from tinyvit.interop.lazy_arrays import listed
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import as_side, expect_names, own_shapes
from tinyvit.interop.timm import LAYOUT
from tinyvit.interop.timm_config import SOURCE, about_of, how_prepared, preprocessing_of, sizes_of
from tinyvit.interop.weights import Weights
from tinyvit.models.registry import VARIANTS, config_class
from tinyvit.text import short

# By architecture: the first convolution and the last layer, as timm's pretrained_cfg names them.
ENDS = {
    "resnet": ("conv1", "fc"), "bit": ("stem.conv", "head.fc"), "hybrid": ("patch_embed.backbone.stem.conv", "head"),
    "deit": ("patch_embed.proj", ("head", "head_dist")), "swin": ("patch_embed.proj", "head.fc"),
}  # fmt: skip
KINDS = {"resnet": "resnet[1-9]*", "bit": "resnetv2_*_bit*", "hybrid": "vit_*_r*_s*", "deit": "deit_*_distilled_*",
         "swin": "swin_*"}  # fmt: skip
# Arrays by which weights without a config.json are known; to say that the config.json is missing.
TELLING = {"resnet": r"conv1\.weight$", "bit": r"stem\.conv\.weight$",
           "hybrid": r"patch_embed\.backbone\.stem\.conv\.weight$", "deit": "dist_token$",
           "swin": r"layers\.0\.blocks\.0\.attn\.qkv\.weight$"}  # fmt: skip
UNREAD = (COUNTER, "relative_position_index", "attn_mask")  # tables that older versions keep, and counters
FREE = ("img_size", "in_chans", "num_classes")  # what weights of one name may differ in
SIZED = ("hybrid", "deit", "swin")  # those that timm makes for one size of the images
IN_TRAINING = {"global_pool", "drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
               *timm_config.IN_TRAINING_ONLY, *timm_config.OF_OTHER_SIZES}  # fmt: skip
NOT_WRITTEN = ("drop_rate", "attn_drop_rate", "drop_path_rate", "dynamic_img_size", "resize_positions")


def names_of(architecture):
    """The models that timm knows too, by name: those for ImageNet."""
    return [name for name, (of, fields) in VARIANTS.items() if of == architecture and fields["img_size"] == 224]


def read(architecture, tensors, about=None, *, img_size=None, mean=None, std=None):
    """timm's weights as ours.

    tensors    arrays by timm's names
    about      the parsed config.json, which names the architecture
    img_size   side of the images, or (height, width), in place of the one in config.json
    mean, std  of each channel or of all, in place of those in config.json

    Raises ValueError without a config.json, for a name that ours doesn't have, and for names of arrays that are
    missing, unexpected or misshapen, and for a Swin and a size of the images for which timm lays other windows.
    """
    about, names = about_of(about), names_of(architecture)
    if about.architecture not in names:
        raise ValueError(f"{SOURCE} must name one of {', '.join(names)}, got {short(repr(about.architecture))}")
    first, last = ENDS[architecture]
    shapes = {name: array.shape for name, array in tensors.items()}
    last = last if isinstance(last, str) else last[0]
    classes = shapes.get(f"{last}.weight", (0,))[0]
    expect_agreement({"num_classes": about.num_classes}, {"num_classes": classes}, SOURCE)
    _, fields = VARIANTS[about.architecture]
    size = img_size or next(iter(sizes_of(about).values()), fields["img_size"])
    channels = shapes.get(f"{first}.weight", (0, 3))[1]
    of_weights = {"img_size": as_side(as_pair(size)), "in_chans": channels, "num_classes": classes}
    config = config_class(architecture)(**fields | of_arguments(about, architecture) | of_weights)
    if architecture == "bit" and len(shapes.get("head.fc.weight", ())) == 4:   # a convolution of 1×1, (K, C, 1, 1)
        tensors = tensors | {"head.fc.weight": tensors["head.fc.weight"][:, :, 0, 0]}
    if architecture == "swin":
        check_windows(config)
    own = own_shapes(config)
    expect_names(tensors, own, LAYOUT)
    prepared, notes = preprocessing_of(about, config, mean, std)
    return Weights(config, {name: tensors[name] for name in own}, prepared, notes)


def of_arguments(about, architecture):
    """Fields of the configuration that model_args say; ValueError for what ours doesn't have."""
    known = config_class(architecture).__dataclass_fields__
    args = {"activation" if name == "act_layer" else name: value for name, value in about.args.items()
            if name not in IN_TRAINING}  # fmt: skip
    unknown = [name for name in args if name not in known]
    pool = known["global_pool"].default if "global_pool" in known else "avg"
    if unknown or about.global_pool not in (None, pool):
        said = listed(unknown or [f"global_pool {about.global_pool}"])
        raise ValueError(f"{SOURCE} has model_args that tinyvit's {architecture} doesn't have: {said}")
    return args


def write(architecture, weights):
    """Our weights as timm's: (arrays by timm's names, the config.json as a dict).

    Dropout, stochastic depth and fields for images of other sizes are not written. Raises ValueError for a network that
    timm has no name for, and for a Swin and a size for which timm lays other windows.
    """
    config, (first, last) = weights.config, ENDS[architecture]
    shape = {name: getattr(config, name) for name in FREE}
    shape |= {name: getattr(config, name) for name in NOT_WRITTEN if name in config.__dataclass_fields__}
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
    height, width = as_pair(config.img_size)
    args = {name: shape[name] for name in FREE if name != "img_size" or architecture in SIZED}
    about = {"architecture": name, "num_classes": config.num_classes, "model_args": args,
             "label_names": list(weights.preprocessing.classes),
             "pretrained_cfg": how_prepared(weights.preprocessing) | {
                 "num_classes": config.num_classes, "input_size": [config.in_chans, height, width],
                 "first_conv": first,
                 "classifier": last if isinstance(last, str) else list(last)}}  # fmt: skip
    return state, about


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


for architecture, names in TELLING.items():
    register(Mapping(
        "timm", (KINDS[architecture],), architecture, names, partial(read, architecture),
        partial(write, architecture), files=("config.json",), options=("img_size", "mean", "std"), unread=UNREAD,
    ))  # fmt: skip
