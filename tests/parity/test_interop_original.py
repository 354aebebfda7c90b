"""The original layout against a forward pass written on its own arrays."""

from dataclasses import replace

import flax_style
import numpy as np
import pytest
import torch
from small_weights import model_of
from ten_shapes import SHAPES, random_weights
from torch_autograd import assert_all_close, normal
from torch_vit import gradients_by_hand

from tinyvit.interop import original

pytestmark = pytest.mark.parity


def written(shape, dtype):
    """(arrays of the original layout, our weights from them, how their features are pooled) of one of the ten shapes.

    All ViTs of the release have the same activation, the same ε, and a class token; mean pooling is set afterwards.
    """
    config = replace(SHAPES[shape], activation="gelu_tanh", norm_eps=1e-6)
    weights = random_weights(replace(config, global_pool="token"), dtype)
    arrays = original.write(weights)
    read = original.read(arrays, img_size=config.img_size)
    pool = config.global_pool
    assert_same_model(weights, read)
    return arrays, read._replace(config=replace(read.config, global_pool=pool)), pool


def assert_same_model(weights, read):
    """Positions written as one table, and missing biases written as zeros, give the same logits up to rounding."""
    images = normal(2, (2, *model_of(weights).embed.image_shape)).astype(weights.state["cls_token"].dtype)
    expected = model_of(weights)(images)[0]
    np.testing.assert_allclose(model_of(read)(images)[0], expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_every_gradient_are_those_of_the_original_forward(shape):
    arrays, weights, pool = written(shape, "float64")
    ours = model_of(weights)
    outputs = weights.config.num_classes or weights.config.embed_dim
    images, dlogits = normal(1, (3, *ours.embed.image_shape), (3, outputs))

    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    pixels = torch.tensor(images, requires_grad=True)
    logits = flax_style.logits(leaves, pixels, pool)
    logits.backward(torch.tensor(dlogits))
    gradients = {name: leaf.grad.numpy() for name, leaf in leaves.items()}
    expected = original.read(gradients, img_size=weights.config.img_size).state
    expected = expected | {"logits": logits.detach().numpy(), "images": pixels.grad.numpy()}
    assert_all_close(gradients_by_hand(ours, images, dlogits), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_logits_are_those_of_the_original_forward_to_1e_5_of_the_largest(shape):
    arrays, weights, pool = written(shape, "float32")
    ours = model_of(weights)
    images = normal(1, (16, *ours.embed.image_shape)).astype("float32")
    leaves = {name: torch.tensor(array) for name, array in arrays.items()}
    expected = flax_style.logits(leaves, torch.tensor(images), pool).numpy()
    assert expected.dtype == "float32"
    np.testing.assert_allclose(ours(images)[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())
