"""The masked autoencoder against Transformers' ViTMAEForPreTraining, in float64, with the same patches hidden."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_weights import model_of
from strategies import redrawn
from torch_autograd import assert_all_close, normal
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from tinyvit import interop
from tinyvit.functional.patches import as_pair
from tinyvit.interop.huggingface import rename_to_transformers_4
from tinyvit.interop.huggingface_vits import VIT
from tinyvit.models import ViTConfig
from tinyvit.training.config import TrainConfig
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions, MaskedAutoencoding

pytestmark = pytest.mark.parity

CONFIG = ViTConfig(img_size=16, patch_size=4, num_classes=0, embed_dim=24, depth=2, num_heads=3, positions="sincos_2d",
                   norm_eps=1e-12)  # fmt: skip
OPTIONS = MaskedAutoencoderOptions(share=0.75, normalise=False, decoder_dim=16, decoder_depth=2, decoder_heads=2)
CASES = {
    "plain": (CONFIG, OPTIONS),
    "normalised pixels": (CONFIG, replace(OPTIONS, normalise=True)),
    "half of the patches, one channel": (replace(CONFIG, in_chans=1, patch_size=2), replace(OPTIONS, share=0.5)),
}


def theirs(config, options):
    """Transformers' model of the same shape."""
    return ViTMAEForPreTraining(ViTMAEConfig(
        image_size=config.img_size, patch_size=config.patch_size, num_channels=config.in_chans,
        hidden_size=config.embed_dim, num_hidden_layers=config.depth, num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_hidden, layer_norm_eps=config.norm_eps, mask_ratio=options.share,
        norm_pix_loss=options.normalise, decoder_hidden_size=options.decoder_dim,
        decoder_num_hidden_layers=options.decoder_depth, decoder_num_attention_heads=options.decoder_heads,
        decoder_intermediate_size=4 * options.decoder_dim,
    )).double()  # fmt: skip


OWN = {
    "decoder.mask_token": "decoder.mask_token", "decoder.pos_embed": "decoder.decoder_pos_embed",
    "decoder.embed": "decoder.decoder_embed", "decoder.norm": "decoder.decoder_norm",
    "decoder.pred": "decoder.decoder_pred",
}  # fmt: skip


def their_names(name):
    """Their names, as Transformers 4 spells them, for one of ours."""
    part, _, ending = name.rpartition(".")
    if name in OWN:
        return [OWN[name]]
    if part in OWN:
        return [f"{OWN[part]}.{ending}"]
    if name.startswith("encoder."):
        return [f"vit.{one}" for one in VIT.names(name.removeprefix("encoder."), None)]
    found = VIT.names(name.removeprefix("decoder."), None)
    return [one.replace("encoder.layer.", "decoder.decoder_layers.") for one in found]


def as_theirs(arrays, config, model):
    """Arrays by our names under those of their model; a patch's pixels in their order, channels last."""
    names = {spelled(name): name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    height, width = as_pair(config.patch_size)
    order = np.arange(config.in_chans * height * width).reshape(-1, height, width).transpose(1, 2, 0).ravel()
    found = {}
    for name, array in arrays.items():
        array = array[order] if name.startswith("decoder.pred.") else array
        wanted = their_names(name)
        parts = np.split(array, len(wanted)) if len(wanted) > 1 else [array]
        found |= {names[one]: part for one, part in zip(wanted, parts)}
    return found, order


def spelled(name):
    """A name of Transformers 5 as Transformers 4 has it."""
    for prefix in ("vit.", "decoder.decoder_layers."):
        if name.startswith(prefix):
            inside = name.removeprefix(prefix)
            inside = inside if prefix == "vit." else f"encoder.layer.{inside}"
            (old,) = rename_to_transformers_4(VIT, {inside: np.ones(1)})[0]
            return f"vit.{old}" if prefix == "vit." else old.replace("encoder.layer.", "decoder.decoder_layers.")
    return name


@pytest.mark.parametrize("name", CASES)
def test_loss_pixels_and_every_gradient_are_those_of_transformers(name):
    config, options = CASES[name]
    task = MaskedAutoencoding(TrainConfig("cifar10", config, task="mae", objective=options, precision="float64"))
    ours = redrawn(task.build(precision="float64"))
    model = theirs(config, options)
    named, order = as_theirs(ours.state_dict(), config, model)
    missing, unexpected = model.load_state_dict({k: torch.tensor(v) for k, v in named.items()}, strict=False)
    assert not missing and not unexpected

    images = normal(1, (3, config.in_chans, config.img_size, config.img_size))
    noise = np.random.default_rng(2).random((3, ours.encoder.grid[0] * ours.encoder.grid[1]))
    expected = model(torch.tensor(images), noise=torch.tensor(noise))
    expected.loss.backward()

    batch = {"images": images, "order": noise.argsort(1)}
    loss, backward, _ = task.loss(ours, batch, None)
    backward(1.0)
    np.testing.assert_allclose(loss, expected.loss.item(), rtol=1e-12)
    visible = round((1 - options.share) * noise.shape[1])
    pixels, _ = ours(images, batch["order"], visible)
    hidden = expected.logits.detach().numpy()[np.arange(3)[:, None], batch["order"][:, visible:]]
    np.testing.assert_allclose(pixels[..., order], hidden, rtol=1e-10, atol=1e-12)
    gradients, _ = as_theirs({name: p.grad for name, p in ours.named_parameters()}, config, model)
    reference = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
    assert gradients.keys() == reference.keys()
    assert_all_close(gradients, reference)


@pytest.mark.parametrize("whole", [True, False])
def test_the_encoder_of_a_folder_is_read(tmp_path, whole):
    """From that of ViTMAEForPreTraining, whose decoder isn't used, and from that of ViTMAEModel."""
    model = theirs(CONFIG, OPTIONS).eval()
    (model if whole else model.vit).save_pretrained(tmp_path)
    weights = interop.load(tmp_path)
    assert weights.config.num_classes == 0 and ("the decoder isn't used" in weights.notes) == whole
    images = normal(0, (2, 3, 16, 16))
    ours = model_of(weights, "float64")
    model.vit.config.mask_ratio = 0.0
    order = torch.arange(16.0).expand(2, 16)
    with torch.no_grad():
        tokens = model.vit(torch.tensor(images), noise=order).last_hidden_state
    np.testing.assert_allclose(ours(images)[0], tokens[:, 0].numpy(), rtol=1e-10, atol=1e-10)


def test_a_folder_without_a_part_of_the_encoder_is_refused(tmp_path):
    model = theirs(CONFIG, OPTIONS)
    model.save_pretrained(tmp_path, state_dict={n: x for n, x in model.state_dict().items() if "cls_token" not in n})
    with pytest.raises(ValueError, match=r"missing: vit\.embeddings\.cls_token"):
        interop.load(tmp_path)
