"""Hugging Face's ResNet and BiT."""

import re

from tinyvit.interop.fields import check_fields
from tinyvit.interop.huggingface import LAYOUT, Layout, expect_only, expect_place, register_layout
from tinyvit.interop.huggingface_config import SOURCE
from tinyvit.interop.names import as_side
from tinyvit.models import BiTConfig, ResNetConfig
from tinyvit.validation import PositiveShare

COMMON = {  # the defaults of Transformers' configurations
    "num_channels": 3, "embedding_size": 64, "hidden_sizes": (256, 512, 1024, 2048), "depths": (3, 4, 6, 3),
    "hidden_act": "relu",
}  # fmt: skip
SAME = {"in_chans": "num_channels", "width": "embedding_size", "depths": "depths"}
CROP_BELOW_PIXELS = 384  # pixels; ConvNextImageProcessor then cuts a square out of a larger image


def resnet_name(name, config):
    """Their name of an array of ours."""
    for pattern, theirs in (
        (r"^fc\.", "classifier.1."), (r"^conv1\.", "embedder.embedder.convolution."),
        (r"^bn1\.", "embedder.embedder.normalization."),
        (r"^layer(\d+)\.", lambda found: f"encoder.stages.{int(found[1]) - 1}.layers."),
        (r"\.conv(\d)\.", lambda found: f".layer.{int(found[1]) - 1}.convolution."),
        (r"\.bn(\d)\.", lambda found: f".layer.{int(found[1]) - 1}.normalization."),
        (r"\.downsample\.0\.", ".shortcut.convolution."), (r"\.downsample\.1\.", ".shortcut.normalization."),
    ):  # fmt: skip
        name = re.sub(pattern, theirs, name)
    return (name,)


def bit_name(name, config):
    """Their name of an array of ours."""
    name = re.sub(r"^head\.fc\.", "classifier.1.", name)
    name = re.sub(r"^stem\.conv\.", "embedder.convolution.", name)
    name = re.sub(r"^stem\.norm\.", "embedder.norm.", name)
    return (re.sub(r"^stages\.(\d+)\.blocks\.", r"encoder.stages.\1.layers.", name),)


def with_center_crop(processor):
    """The fields of a preprocessor_config.json with what a ConvNextImageProcessor, which belongs to ResNets, does
    without saying so: it resizes to size / crop_pct and cuts out `size`."""
    size = processor["size"]
    side = size.get("shortest_edge") if isinstance(size, dict) else size
    if type(side) is not int or processor["crop_size"] or not 0 < side < CROP_BELOW_PIXELS:
        return processor
    given = {"crop_pct": processor["crop_pct"] or 224 / 256}
    share = check_fields(given, {"crop_pct": PositiveShare}, SOURCE)["crop_pct"]
    return processor | {"do_center_crop": True, "crop_size": {"height": side, "width": side}, "crop_pct": share,
                        "size": {"shortest_edge": int(side / share)}}  # fmt: skip


def resnet_config(fields, said, tensors):
    """The ResNetConfig of a config.json; ValueError for what ours has no place for."""
    expect_only(said, hidden_act=("relu",), layer_type=("basic", "bottleneck"), downsample_in_first_stage=(False,),
                downsample_in_bottleneck=(False,))  # fmt: skip
    return convnet_config(ResNetConfig, fields, said, block=said["layer_type"])


def bit_config(fields, said, tensors):
    """The BiTConfig of a config.json; ValueError for what ours has no place for."""
    expect_only(said, hidden_act=("relu",), layer_type=("preactivation", "bottleneck"), output_stride=(32,),
                width_factor=(1,), global_padding=(None, "same", "SAME"))  # fmt: skip
    same, preactivation = said["global_padding"] is not None, said["layer_type"] == "preactivation"
    expect_only(said, embedding_dynamic_padding=(same,))
    if not (same or preactivation):
        raise ValueError("layer_type is 'bottleneck' with global_padding null; expected 'same'")
    padding = "same" if same else "symmetric"
    return convnet_config(BiTConfig, fields, said, preactivation=preactivation, padding=padding)


def convnet_config(cls, fields, said, **own):
    """A configuration of the class `cls`, with these fields of its own; ValueError for stages of other widths."""
    config = cls(**fields, **own, num_classes=said["num_classes"], img_size=as_side(said["made_size"]), stem="conv7")
    expect_only(said, hidden_sizes=(stage_widths(config),))
    return config


def stage_widths(config):
    """The widths of the stages."""
    expansion = 1 if getattr(config, "block", None) == "basic" else 4
    return tuple(expansion * config.width << i for i in range(len(config.depths)))


def resnet_to_fields(config):
    """The fields of config.json that have no name in common; ValueError for what theirs has no place for."""
    expect_place(config, stem="conv7")
    return {"layer_type": config.block, "hidden_sizes": stage_widths(config), "hidden_act": "relu",
            "downsample_in_first_stage": False, "downsample_in_bottleneck": False}  # fmt: skip


def bit_to_fields(config):
    """The fields of config.json that have no name in common; ValueError for what theirs has no place for."""
    expect_place(config, stem="conv7", epsilon="variance", std_eps=1e-8, norm_eps=1e-5)
    same = config.padding == "same"
    if config.width % 8:
        raise ValueError(f"{LAYOUT} has no place for width {config.width}, only for multiples of 8")
    if not config.preactivation:
        expect_place(config, padding="same")
    return {"layer_type": "preactivation" if config.preactivation else "bottleneck", "hidden_act": "relu",
            "hidden_sizes": stage_widths(config), "global_padding": "SAME" if same else None,
            "embedding_dynamic_padding": same, "output_stride": 32, "width_factor": 1}  # fmt: skip


RESNET = Layout(
    ("resnet",), "resnet",
    COMMON | {"layer_type": "bottleneck", "downsample_in_first_stage": False, "downsample_in_bottleneck": False},
    SAME, resnet_name, resnet_config, resnet_to_fields, "ResNet", prepare=with_center_crop,
)  # fmt: skip
BIT = Layout(
    ("bit",), "bit",
    COMMON | {"layer_type": "preactivation", "num_groups": 32, "embedding_dynamic_padding": False, "output_stride": 32,
              "width_factor": 1, "global_padding": None},
    SAME | {"num_groups": "num_groups"}, bit_name, bit_config, bit_to_fields, "Bit", prepare=with_center_crop,
)  # fmt: skip
for layout in (RESNET, BIT):
    register_layout(layout)
