"""Transformers' image processor for our preprocessor_config.json, compared with our own preprocessing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from layouts import HUGGINGFACE
from PIL import Image
from ten_shapes import SMALL, random_weights, save_folder
from transformers import AutoImageProcessor
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tinyvit.data.images import RESAMPLE

pytestmark = pytest.mark.parity


def weights_for(size, channels=3, **prepared):
    weights = random_weights(replace(SMALL, img_size=size, patch_size=1, in_chans=channels))
    return weights._replace(preprocessing=replace(weights.preprocessing, **prepared))


def random_image(size, channels=3, seed=0):
    """An image of any content, uint8 (C, H, W)."""
    return np.random.default_rng(seed).integers(0, 256, (channels, *size), dtype="uint8")


def written_to(folder, image):
    path = folder / "image.png"
    Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(path)
    return path


def processors(folder):
    """The image processors of Transformers that read the folder by Pillow; those of torchvision round elsewhere."""
    return AutoImageProcessor.from_pretrained(folder, use_fast=False), ViTImageProcessorPil.from_pretrained(folder)


@pytest.mark.parametrize("crop", [None, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_of_the_model_s_size_is_prepared_as_here(channels, crop, tmp_path):
    weights = weights_for((8, 8), channels, crop=crop)
    image = random_image((8, 8), channels)
    expected = weights.preprocessing(image[None])
    for processor in processors(save_folder(tmp_path, *HUGGINGFACE.write(weights))):
        prepared = processor(image, return_tensors="np", input_data_format="channels_first")["pixel_values"]
        np.testing.assert_allclose(prepared, expected, rtol=0, atol=5e-7)  # they round elsewhere


@pytest.mark.parametrize("resample", RESAMPLE)
@pytest.mark.parametrize("size", [(8, 8), (6, 10)])
def test_an_image_that_is_stretched_is_the_same_image_as_here(size, resample, tmp_path):
    weights = weights_for(size, resample=resample, crop=None)
    path = written_to(tmp_path, random_image((23, 17)))
    (ours,) = weights.preprocessing.read([path])
    expected = weights.preprocessing(ours[None])
    for processor in processors(save_folder(tmp_path / "folder", *HUGGINGFACE.write(weights))):
        prepared = processor(Image.open(path), return_tensors="np")["pixel_values"]
        np.testing.assert_allclose(prepared, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize("crop", [1.0, 0.875, 0.5])
def test_a_centre_crop_on_whole_pixels_is_the_same_as_here(crop, tmp_path):
    weights = weights_for((14, 14), crop=crop, resample="nearest")
    side = int(14 / crop)
    image = random_image((side, side + 4))
    (ours,) = weights.preprocessing.read([written_to(tmp_path, image)])
    expected = weights.preprocessing(ours[None])
    for processor in processors(save_folder(tmp_path / "folder", *HUGGINGFACE.write(weights))):
        prepared = processor(image, return_tensors="np", input_data_format="channels_first")["pixel_values"]
        np.testing.assert_allclose(prepared, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize("crop", [None, 1.0, 0.9])
def test_what_transformers_saves_is_read_as_what_was_written(crop, tmp_path):
    weights = weights_for((8, 8), crop=crop)
    tensors, about, preprocessor = HUGGINGFACE.write(weights)
    for processor in processors(save_folder(tmp_path, tensors, about, preprocessor)):
        processor.save_pretrained(tmp_path / "again")
        saved = json.loads((tmp_path / "again" / "preprocessor_config.json").read_text())
        assert HUGGINGFACE.read(tensors, about, saved).preprocessing == weights.preprocessing
