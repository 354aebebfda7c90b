"""timm's folders of networks that a name describes: read back unchanged, and refused where the name is none of ours."""

from dataclasses import replace

import numpy as np
import pytest
from layouts import through_json
from strategies import redrawn

from tinyvit import interop
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop import Weights, timm_by_name
from tinyvit.models import architecture_name, build, config_class
from tinyvit.models.registry import VARIANTS

SMALL = {  # in place of what the names stand for
    "resnet50": dict(block="bottleneck", depths=(1, 1), width=4, stem="conv7"),
    "resnetv2_50x1_bit": dict(depths=(1, 1), width=32, stem="conv7"),
    "vit_base_r50_s16_224": dict(patch_size=16, embed_dim=8, depth=1, num_heads=2, backbone="bit",
                                 backbone_depths=(1, 1, 1), backbone_width=32, backbone_stem="conv7"),
    "deit_tiny_distilled_patch16_224": dict(patch_size=16, embed_dim=8, depth=1, num_heads=2),
    "swin_tiny_patch4_window7_224": dict(patch_size=8, embed_dim=4, depths=(1, 1), num_heads=(1, 2), window_size=4),
}  # fmt: skip


@pytest.fixture(params=SMALL)
def named(request, monkeypatch):
    """(name, its configuration) of a model that is small here."""
    architecture, _ = VARIANTS[request.param]
    fields = dict(img_size=224, num_classes=1000, **SMALL[request.param])
    monkeypatch.setitem(VARIANTS, request.param, (architecture, fields))
    return request.param, config_class(architecture)(**fields)


def weights_of(config, crop=0.875):
    mean, std = (0.4,) * config.in_chans, (0.2,) * config.in_chans
    classes = tuple(f"kind {i}" for i in range(config.num_classes))
    size = as_pair(config.img_size)
    prepared = Preprocessing(classes, config.in_chans, size, mean, std, resample="bicubic", crop=crop)
    return Weights(config, redrawn(build(config)).state_dict(), prepared)


@pytest.mark.parametrize("fields", [{}, dict(img_size=64, in_chans=1, num_classes=5), dict(num_classes=0)])
@pytest.mark.parametrize("crop", [0.875, None])
def test_a_written_folder_is_read_back_bit_for_bit(named, fields, crop, tmp_path):
    name, config = named
    written = weights_of(replace(config, num_classes=7) if not fields else replace(config, **fields), crop)
    interop.save(written, tmp_path / "folder", "timm")
    read = interop.load(tmp_path / "folder")
    assert read.config == written.config and read.preprocessing == written.preprocessing and read.notes == ()
    assert read.state.keys() == written.state.keys()
    for key, array in written.state.items():
        np.testing.assert_array_equal(read.state[key], array, err_msg=key)
    _, about = timm_by_name.write(architecture_name(written.config), written)
    assert about["architecture"] == name


def test_the_head_of_a_bit_is_a_convolution_in_timm(named):
    name, config = named
    written = weights_of(replace(config, num_classes=3))
    tensors, about = timm_by_name.write(architecture_name(config), written)
    first, last = about["pretrained_cfg"]["first_conv"], about["pretrained_cfg"]["classifier"]
    assert tensors[f"{first}.weight"].ndim == 4
    last = last if isinstance(last, str) else last[1]
    assert tensors[f"{last}.weight"].ndim == (4 if name == "resnetv2_50x1_bit" else 2)


@pytest.mark.parametrize("change, message", [
    (dict(architecture="resnet51"), "must name one of .*, got 'resnet51'"),
    (dict(architecture=None), "must name one of .*, got None"),
])  # fmt: skip
def test_another_name_is_refused(named, change, message):
    _, config = named
    tensors, about = timm_by_name.write(architecture_name(config), weights_of(replace(config, num_classes=3)))
    with pytest.raises(ValueError, match=message):
        timm_by_name.read(architecture_name(config), tensors, through_json(about | change))


def test_missing_arrays_are_named(named):
    _, config = named
    tensors, about = timm_by_name.write(architecture_name(config), weights_of(replace(config, num_classes=3)))
    name = next(name for name in tensors if name.endswith(("conv2.weight", "proj.weight")))
    with pytest.raises(ValueError, match=f"missing: {name}"):
        timm_by_name.read(architecture_name(config), {k: x for k, x in tensors.items() if k != name}, about)


def test_a_shape_without_a_name_is_refused(named):
    _, config = named
    width = next(name for name in ("backbone_width", "embed_dim", "width") if hasattr(config, name))
    depth = {width: 64}
    with pytest.raises(ValueError, match="timm's layout has no name for a .* of this shape; expected that of one of"):
        timm_by_name.write(architecture_name(config), weights_of(replace(config, num_classes=3, **depth)))


@pytest.mark.parametrize("size, fits", [
    (224, True), (448, True), (112, False), (196, False), (256, False), ((224, 448), False), ((448, 896), True),
])  # fmt: skip
def test_a_swin_for_images_that_timm_cuts_into_other_windows_is_refused(size, fits):
    """timm shifts before it pads, and with a single row of windows along the other side only."""
    name = "swin_tiny_patch4_window7_224"
    config = config_class("swin")(**VARIANTS[name][1] | dict(img_size=size, embed_dim=6, num_heads=(1,) * 4))
    if fits:
        timm_by_name.check_windows(config)
    else:
        with pytest.raises(ValueError, match=r"timm cuts the grid of \d+×\d+ tokens in stage \d into other windows"):
            timm_by_name.check_windows(config)


@pytest.mark.parametrize("named", ["swin_tiny_patch4_window7_224"], indirect=True)
def test_a_swin_of_such_a_size_is_refused_when_it_is_written_and_when_it_is_read(named):
    name, config = named
    config = replace(config, depths=(2, 1), img_size=64)
    VARIANTS[name][1].update(depths=(2, 1))
    tensors, about = timm_by_name.write("swin", weights_of(config))
    with pytest.raises(ValueError, match="for images of 80×80 timm cuts the grid of 10×10 tokens in stage 0"):
        timm_by_name.write("swin", weights_of(replace(config, img_size=80)))
    with pytest.raises(ValueError, match="for images of 80×80 timm cuts the grid of 10×10 tokens in stage 0"):
        timm_by_name.read("swin", tensors, about, img_size=80)
