"""Transformers' models of the folders that we write: their outputs and gradients, and what they write themselves."""

from dataclasses import replace

import torch
from layouts import assert_equal_state, under_our_names
from small_weights import model_of
from torch_autograd import assert_all_close, normal
from transformers.utils import logging

from tinyvit import interop

logging.disable_progress_bar()


def by_transformers(weights, kind, folder):
    """Transformers' model of these weights, from a folder that we write, in which it finds every array."""
    interop.save(weights, folder, "huggingface")
    model, found = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), found
    return model.eval()


def assert_same_outputs_and_gradients(weights, layout, kind, folder, output="logits", order=lambda images: images):
    """Assert that both models give the same output for the same images, and all gradients, in float64.

    output  the name of Transformers' output
    order   makes their images of ours
    """
    theirs, ours = by_transformers(weights, kind, folder).double(), model_of(weights)
    if theirs._supports_sdpa:
        theirs.set_attn_implementation("sdpa")  # "eager" computes some softmaxes in float32
    images = normal(1, (3, *ours.image_shape))
    leaf = torch.tensor(images, requires_grad=True)
    expected = getattr(theirs(order(leaf)), output)
    doutput = normal(2, expected.shape)
    expected.backward(torch.tensor(doutput))
    got, cache = ours(images)
    dimages = ours.backward(doutput, cache)
    assert_all_close({"output": got, "images": dimages},
                     {"output": expected.detach().numpy(), "images": leaf.grad.numpy()})  # fmt: skip
    found = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    config = replace(weights.config, positions="learned") if hasattr(weights.config, "positions") else weights.config
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    reference = under_our_names(layout, found, config)
    assert_all_close(gradients, {name: reference[name] for name in gradients})


def assert_read_as_written(weights, kind, folder):
    """Assert that the folder that we write, and the one that Transformers writes then, are read as the weights."""
    by_transformers(weights, kind, folder / "ours").save_pretrained(folder / "theirs")
    preprocessor = "preprocessor_config.json"  # which Transformers doesn't write beside a model
    (folder / "theirs" / preprocessor).write_bytes((folder / "ours" / preprocessor).read_bytes())
    for name in ("ours", "theirs"):
        read = interop.load(folder / name)
        assert read.config == weights.config and read.preprocessing == weights.preprocessing
        assert_equal_state(read.state, weights.state)
