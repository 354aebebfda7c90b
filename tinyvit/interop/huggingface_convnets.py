"""The layouts of Hugging Face's ResNetForImageClassification and BitForImageClassification, and of their models alone:
https://huggingface.co/docs/transformers."""

import re
from functools import partial

import numpy as np

from tinyvit.interop.fields import Classes, Number, Size, expect_agreement, expect_fields
from tinyvit.interop.huggingface_config import label_count, preprocessing_of, to_preprocessor
from tinyvit.interop.mappings import Mapping, register
from tinyvit.interop.names import as_side, count_blocks, expect_names, own_shapes
from tinyvit.interop.weights import Weights
from tinyvit.models import BiTConfig, ResNetConfig
from tinyvit.text import short

LAYOUT = "Hugging Face's layout"
RESNET = {  # the defaults of Transformers' configurations, and what is said of both
    "num_channels": 3, "embedding_size": 64, "hidden_sizes": (256, 512, 1024, 2048), "depths": (3, 4, 6, 3),
    "layer_type": "bottleneck", "hidden_act": "relu", "downsample_in_first_stage": False,
    "downsample_in_bottleneck": False,
}  # fmt: skip
BIT = {
    "num_channels": 3, "embedding_size": 64, "hidden_sizes": (256, 512, 1024, 2048), "depths": (3, 4, 6, 3),
    "layer_type": "preactivation", "hidden_act": "relu", "global_padding": None, "num_groups": 32,
    "embedding_dynamic_padding": False, "output_stride": 32, "width_factor": 1,
}  # fmt: skip
FIELDS = {
    "num_channels": Size, "embedding_size": Size, "hidden_sizes": tuple[Size, ...], "depths": tuple[Size, ...],
    "layer_type": str, "hidden_act": str, "downsample_in_first_stage": bool, "downsample_in_bottleneck": bool,
    "global_padding": str, "num_groups": Size, "embedding_dynamic_padding": bool, "output_stride": Size,
    "width_factor": Size, "num_labels": Classes, "id2label": dict, "architectures": tuple[str, ...],
    "drop_path_rate": Number,
}  # fmt: skip
COUNTER = "num_batches_tracked"  # of PyTorch's batch norm, which doesn't use it where there is a momentum
CONVNEXT_RESIZES_BELOW = 384  # pixels; ConvNextImageProcessor then cuts a square out of a larger image


# -- names ------------------------------------------------------------------------------------------------------------


def resnet_name(name):
    """Their name of an array of ours, without the "resnet." in front."""
    name = re.sub(r"^fc\.", "classifier.1.", name)
    name = re.sub(r"^conv1\.", "embedder.embedder.convolution.", name)
    name = re.sub(r"^bn1\.", "embedder.embedder.normalization.", name)
    name = re.sub(r"^layer(\d+)\.", lambda found: f"encoder.stages.{int(found[1]) - 1}.layers.", name)
    name = re.sub(r"\.conv(\d)\.", lambda found: f".layer.{int(found[1]) - 1}.convolution.", name)
    name = re.sub(r"\.bn(\d)\.", lambda found: f".layer.{int(found[1]) - 1}.normalization.", name)
    return name.replace(".downsample.0.", ".shortcut.convolution.").replace(
        ".downsample.1.", ".shortcut.normalization."
    )


def bit_name(name):
    """Their name of an array of ours, without the "bit." in front."""
    name = re.sub(r"^head\.fc\.", "classifier.1.", name)
    name = re.sub(r"^stem\.conv\.", "embedder.convolution.", name)
    name = re.sub(r"^stem\.norm\.", "embedder.norm.", name)
    return re.sub(r"^stages\.(\d+)\.blocks\.", r"encoder.stages.\1.layers.", name)


# -- reading ----------------------------------------------------------------------------------------------------------


def read(kind, defaults, config_of, name_of, tensors, about, preprocessor=None, *, mean=None, std=None):
    """Hugging Face's weights as ours: arrays by name, the parsed config.json and preprocessor_config.json.

    mean, std   of each channel or of all, in place of those in preprocessor_config.json

    Raises ValueError for names that are missing, unexpected or misshapen, for a config.json that contradicts the
    weights, and for a network that ours has no place for.
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected Hugging Face's config.json to hold an object, got {type(about).__name__}")
    expect_fields(about, FIELDS, "config.json")
    said = defaults | {name: about[name] for name in FIELDS if about.get(name) is not None}
    tensors, prefix = without_prefix(tensors, kind)
    has_head, labels = "classifier.1.weight" in tensors, label_count(said)
    if has_head:
        expect_agreement({"num_labels": labels}, {"num_labels": len(tensors["classifier.1.weight"])}, "config.json")
    stages = count_blocks(tensors, re.compile(r"encoder\.stages\.(\d+)\."))
    expect_agreement({"stages": len(said["depths"])}, {"stages": stages}, "config.json")
    preprocessor, height, width = as_cut_out(preprocessor)
    num_classes = len(tensors["classifier.1.weight"]) if has_head else 0
    config = config_of(said, img_size=as_side((height, width)), in_chans=said["num_channels"], num_classes=num_classes)
    own = own_shapes(config)
    expect_names(tensors, {name_of(name): shape for name, shape in own.items()}, LAYOUT, lambda name: prefix(name))
    prepared, notes = preprocessing_of(about, preprocessor, config, mean, std)
    if labels and not has_head and any("Classification" in name for name in said.get("architectures", ())):
        notes += ("config.json speaks of a classifier, but the weights have none",)
    return Weights(config, {name: tensors[name_of(name)] for name in own}, prepared, notes)


def without_prefix(tensors, kind):
    """The arrays by name without the "resnet." of a classifier in front, and a function that puts it back."""
    start = f"{kind}."
    found = any(name.startswith(start) for name in tensors)
    arrays = {}
    for spelling, array in tensors.items():
        name = spelling.removeprefix(start)
        if name in arrays:
            raise ValueError(f"{name} and {spelling} are names of the same array; expected one of them")
        arrays[name] = array
    return arrays, lambda name: start + name if found and not name.startswith("classifier.") else name


def as_cut_out(preprocessor):
    """A preprocessor_config.json in which a square that is cut out is said by its sides, and the height and width of
    the images that it makes; 224 where it doesn't say.

    ConvNextImageProcessor, which belongs to ResNets, resizes to size / crop_pct and cuts out `size`, without saying so.
    """
    said = preprocessor if isinstance(preprocessor, dict) else {}
    size = said.get("size")
    side = size.get("shortest_edge") if isinstance(size, dict) else size
    if type(side) is int and "crop_size" not in said and 0 < side < CONVNEXT_RESIZES_BELOW:
        share = said.get("crop_pct") or 224 / 256
        expect_fields({"crop_pct": share}, {"crop_pct": Number}, "preprocessor_config.json")
        if not 0 < share <= 1:
            raise ValueError(f"preprocessor_config.json has crop_pct {share}; expected a number above 0, at most 1")
        square = {"height": side, "width": side}
        said = said | {"do_center_crop": True, "crop_size": square, "size": {"shortest_edge": int(side / share)},
                       "crop_pct": float(share)}  # fmt: skip
        return said, side, side
    sides = said.get("crop_size") or size
    sides = [sides.get("height"), sides.get("width")] if isinstance(sides, dict) else [sides, sides]
    if all(type(side) is int and 0 < side < 1 << 16 for side in sides):
        return preprocessor, *sides
    return preprocessor, 224, 224


def resnet_config(said, **shape):
    """The ResNetConfig of what a config.json says."""
    expect_only(said, hidden_act=("relu",), layer_type=("basic", "bottleneck"), downsample_in_first_stage=(False,),
                downsample_in_bottleneck=(False,))  # fmt: skip
    block, width = said["layer_type"], said["embedding_size"]
    config = ResNetConfig(**shape, block=block, depths=tuple(said["depths"]), width=width, stem="conv7")
    expect_widths(said, (4 if block == "bottleneck" else 1) * width, len(config.depths))
    return config


def bit_config(said, **shape):
    """The BiTConfig of what a config.json says."""
    preactivation, padding = said["layer_type"] == "preactivation", (said["global_padding"] or "none").lower()
    expect_only(said, hidden_act=("relu",), layer_type=("preactivation", "bottleneck"), output_stride=(32,),
                width_factor=(1,))  # fmt: skip
    pads = "same" if padding == "same" else "symmetric"
    known = {"none": preactivation and not said["embedding_dynamic_padding"],
             "same": said["embedding_dynamic_padding"]}  # fmt: skip
    if not known.get(padding, False):
        raise ValueError(
            f"config.json has layer_type {said['layer_type']!r} with global_padding {said['global_padding']!r} and "
            f"embedding_dynamic_padding {said['embedding_dynamic_padding']}; expected \"same\" with true, or of "
            "preactivation layers null with false"
        )
    config = BiTConfig(**shape, depths=tuple(said["depths"]), width=said["embedding_size"], stem="conv7",
                       preactivation=preactivation, num_groups=said["num_groups"], padding=pads)  # fmt: skip
    expect_widths(said, 4 * config.width, len(config.depths))
    return config


def expect_only(said, **known):
    """Raise ValueError for a field of config.json with a value that ours has no place for."""
    for name, values in known.items():
        if said[name] not in values:
            expected = " or ".join(map(repr, values))
            raise ValueError(f"config.json has {name} {short(repr(said[name]))}; expected {expected}")


def expect_widths(said, first, stages):
    """Raise ValueError unless the widths of the stages double from the first on."""
    expected = [first << i for i in range(stages)]
    if list(said["hidden_sizes"]) != expected:
        raise ValueError(f"config.json has hidden_sizes {short(list(said['hidden_sizes']))}; expected {expected}, "
                         f"which double from stage to stage, for embedding_size {said['embedding_size']}")  # fmt: skip


# -- writing ----------------------------------------------------------------------------------------------------------


def write(kind, to_about, name_of, weights):
    """Our weights as Hugging Face's: (arrays by name, config.json, preprocessor_config.json), the last two as dicts.

    Raises ValueError for what Hugging Face's network has no place for.
    """
    config, classes = weights.config, weights.preprocessing.classes
    if config.stem != "conv7":
        raise ValueError(f"{LAYOUT} has no place for stem {config.stem!r}: its networks begin with one of 7×7")
    about = {"model_type": kind, "num_channels": config.in_chans, "embedding_size": config.width,
             "depths": list(config.depths), "hidden_act": "relu", "torch_dtype": str(dtype_of(weights)),
             **to_about(config)}  # fmt: skip
    architecture = {"resnet": "ResNet", "bit": "Bit"}[kind]
    about["architectures"] = [f"{architecture}{'ForImageClassification' if config.num_classes else 'Model'}"]
    if config.num_classes:
        about |= {"id2label": {str(i): name for i, name in enumerate(classes)},
                  "label2id": {name: i for i, name in enumerate(classes)}}  # fmt: skip
    prefix, tensors = f"{kind}." if config.num_classes else "", {}
    for name, array in weights.state.items():
        theirs = name_of(name)
        theirs = theirs if theirs.startswith("classifier.") else prefix + theirs
        tensors[theirs] = array
        if theirs.endswith(".running_var"):
            tensors[theirs.replace("running_var", COUNTER)] = np.zeros((), "int64")
    return tensors, about, to_preprocessor(weights)


def dtype_of(weights):
    return next(iter(weights.state.values())).dtype


def widths(config, expansion):
    return [expansion * config.width << i for i in range(len(config.depths))]


def resnet_about(config):
    expansion = 4 if config.block == "bottleneck" else 1
    return {"layer_type": config.block, "hidden_sizes": widths(config, expansion),
            "downsample_in_first_stage": False, "downsample_in_bottleneck": False}  # fmt: skip


def bit_about(config):
    same = config.padding == "same"
    wrong = [
        f"{name} {got!r} (expected {expected!r})"
        for name, expected in (("epsilon", "variance"), ("std_eps", 1e-8), ("norm_eps", 1e-5))
        if (got := getattr(config, name)) != expected
    ]
    if config.width % 8:
        wrong.append(f"width {config.width} (expected a multiple of 8)")
    if not config.preactivation and not same:
        wrong.append("padding 'symmetric' without preactivation (expected 'same')")
    if wrong:
        raise ValueError(f"{LAYOUT} has no place for {', '.join(wrong)}")
    return {"layer_type": "preactivation" if config.preactivation else "bottleneck",
            "hidden_sizes": widths(config, 4), "num_groups": config.num_groups,
            "global_padding": "SAME" if same else None, "embedding_dynamic_padding": same,
            "output_stride": 32, "width_factor": 1}  # fmt: skip


def mapping(kind, defaults, config_of, name_of, to_about, pattern):
    """Register the mapping of one kind of network."""
    return register(Mapping(
        "huggingface", (kind,), kind, pattern, partial(read, kind, defaults, config_of, name_of),
        partial(write, kind, to_about, name_of), files=("config.json", "preprocessor_config.json"),
        options=("mean", "std"), unread=COUNTER,
    ))  # fmt: skip


mapping("resnet", RESNET, resnet_config, resnet_name, resnet_about, r"(resnet\.)?embedder\.embedder\.convolution\.")
mapping("bit", BIT, bit_config, bit_name, bit_about, r"(bit\.)?embedder\.convolution\.")
