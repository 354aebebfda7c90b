"""CLIP against Transformers' CLIPModel, in float64; and its folders, read and written."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_transformers import by_transformers
from layouts import under_our_names
from small_weights import model_of, redrawn_weights
from torch_autograd import assert_all_close, normal
from transformers import CLIPConfig as TheirConfig
from transformers import CLIPModel

from tinyvit import functional as F
from tinyvit import interop
from tinyvit.interop.huggingface_clip import CLIP
from tinyvit.models import ClipConfig

pytestmark = pytest.mark.parity

SHAPE = ClipConfig(img_size=16, patch_size=8, in_chans=3, embed_dim=24, depth=2, num_heads=3, text_dim=16, text_depth=2,
                   text_heads=2, context_length=8, vocab_size=12, projection_dim=10, mlp_ratio=2.0)  # fmt: skip
CONFIGS = {
    "quick GELU": SHAPE,
    "exact GELU, small patches, one channel": replace(SHAPE, activation="gelu", patch_size=4, in_chans=1),
    "tanh GELU, one block, other epsilon": replace(SHAPE, activation="gelu_tanh", text_depth=1, norm_eps=1e-3),
}
TEXTS = np.array([[10, 0, 1, 11, 11, 11, 11, 11], [10, 2, 11, 3, 3, 3, 3, 3], [10, 3, 4, 5, 3, 3, 8, 11]])


@pytest.mark.parametrize("name", CONFIGS)
def test_both_towers_the_loss_and_every_gradient_are_those_of_transformers(name, tmp_path):
    weights = redrawn_weights(CONFIGS[name])
    theirs, ours = by_transformers(weights, CLIPModel, tmp_path / "theirs").double(), model_of(weights)
    images = normal(1, (3, *ours.image_shape))
    leaf = torch.tensor(images, requires_grad=True)
    expected = theirs(input_ids=torch.tensor(TEXTS), pixel_values=leaf, return_loss=True)
    expected.loss.backward()

    logits, cache = ours.compare(images, TEXTS)
    loss, c_loss = F.contrastive_loss(logits)
    dimages = ours.compare_backward(F.contrastive_loss_backward(1.0, c_loss), cache)
    np.testing.assert_allclose(loss, expected.loss.item(), rtol=1e-12)
    np.testing.assert_allclose(logits, expected.logits_per_image.detach().numpy(), rtol=1e-10, atol=1e-10)
    for got, reference in ((ours(images)[0], expected.image_embeds), (ours.text(TEXTS)[0], expected.text_embeds)):
        np.testing.assert_allclose(F.l2_normalise(got)[0], reference.detach().numpy(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(dimages, leaf.grad.numpy(), rtol=1e-10, atol=1e-10)
    reference = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    assert_all_close({n: p.grad for n, p in ours.named_parameters()}, under_our_names(CLIP, reference, ours.config))


@pytest.mark.parametrize("legacy", [False, True])
def test_what_transformers_writes_is_read_and_gives_the_same_towers(legacy, tmp_path):
    torch.manual_seed(0)
    theirs = CLIPModel(TheirConfig(
        text_config=dict(vocab_size=12, hidden_size=16, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, max_position_embeddings=8, eos_token_id=2 if legacy else 11),
        vision_config=dict(hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3,
                           image_size=28, patch_size=14),
        projection_dim=10,
    ))  # fmt: skip
    theirs.eval().save_pretrained(tmp_path / "theirs")
    ours = model_of(interop.load(tmp_path / "theirs"), "float64")
    images = normal(0, (2, 3, 28, 28))
    with torch.no_grad():
        expected = theirs.double()(input_ids=torch.tensor(TEXTS), pixel_values=torch.tensor(images))
    logits, _ = ours.compare(images, TEXTS)
    np.testing.assert_allclose(logits, expected.logits_per_image.numpy(), rtol=1e-10, atol=1e-10)


def test_vit_b32_has_as_many_parameters_as_transformers():
    with torch.device("meta"):
        theirs = CLIPModel(TheirConfig())
    assert sum(p.numel() for p in theirs.parameters()) == 151_277_313
