"""ResNet, BiT and the hybrid's stem against Transformers, which reads the folders that we write, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_transformers import assert_read_as_written, by_transformers
from small_weights import model_of, weights_of_model
from torch_autograd import assert_all_close, normal
from transformers import BitForImageClassification, DPTConfig, DPTModel, ResNetForImageClassification

from tinyvit import Context
from tinyvit.interop.huggingface_convnets import BIT, RESNET
from tinyvit.interop.huggingface_vits import VIT
from tinyvit.interop.names import equal_parts, to_theirs
from tinyvit.models import BiTConfig, HybridConfig, ResNetConfig, build, create_model
from tinyvit.nn import buffer_updates

pytestmark = pytest.mark.parity

SMALL = dict(img_size=40, num_classes=5, depths=(2, 1), stem="conv7")
CONFIGS = {
    "resnet basic": ResNetConfig(**SMALL, width=6),
    "resnet bottleneck": ResNetConfig(**SMALL | dict(in_chans=1), block="bottleneck", width=4),
    "resnet50": replace(create_model("resnet50", device="meta").config, img_size=64, num_classes=7),
    "bit": BiTConfig(**SMALL | dict(in_chans=2), width=8, num_groups=4),
    "bit same": BiTConfig(**SMALL | dict(img_size=(37, 42)), width=8, num_groups=4, padding="same"),
    "bit after": BiTConfig(**SMALL, width=8, num_groups=4, padding="same", preactivation=False),
    "bit50x1": replace(create_model("resnetv2_50x1_bit", device="meta").config, img_size=64, num_classes=7),
}
KINDS = {ResNetConfig: (ResNetForImageClassification, RESNET), BiTConfig: (BitForImageClassification, BIT)}


def redrawn(model, seed=0):
    """The model with norms and statistics of their usual sizes but all different, and a head that isn't zero."""
    generator = np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        starts_at_zero = not np.any(parameter.data)
        if parameter.ndim == 1:
            scale = generator.uniform(0.5, 1.5, parameter.shape) * name.endswith("weight")
            # A small one at the end of a branch, as in a trained network, lets no rounding error grow with the depth.
            around = 0.2 * scale if starts_at_zero else scale
            parameter.data = around + 0.02 * generator.standard_normal(parameter.shape)
        elif starts_at_zero:
            parameter.data = 0.1 * generator.standard_normal(parameter.shape)
    for name, buffer in model.named_buffers():
        buffer.data = generator.uniform(0.5, 1.5, buffer.shape) - name.endswith("mean")
    return model


def weights_of(config, dtype="float64"):
    return weights_of_model(redrawn(build(config, dtype=dtype)))


def by_hand(model, images, dlogits, ctx=None):
    model.zero_grad()
    logits, cache = model(images, ctx)
    dimages = model.backward(dlogits, cache)
    for module, statistics in buffer_updates(cache):
        module.commit(statistics)
    return {"logits": logits, "images": dimages} | {name: p.grad.copy() for name, p in model.named_parameters()}


def by_autograd(function, twin, images, dlogits, their_name, ours):
    leaf = torch.tensor(images, requires_grad=True)
    logits = function(leaf)
    logits.backward(torch.tensor(dlogits))
    gradients = {name: parameter.grad for name, parameter in twin.named_parameters()}
    found = {name: gradients[their_name(name)].numpy().reshape(p.shape) for name, p in ours.named_parameters()}
    return {"logits": logits.detach().numpy(), "images": leaf.grad.numpy()} | found


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_every_gradient_and_running_statistics_are_those_of_transformers(name, training, tmp_path):
    config = CONFIGS[name]
    weights = weights_of(config)
    kind, layout = KINDS[type(config)]
    theirs, ours = by_transformers(weights, kind, tmp_path / "folder").train(training), model_of(weights)
    assert theirs.num_parameters() == ours.num_parameters()
    prefix = theirs.base_model_prefix

    def their_name(name):
        (found,) = layout.names(name, config)
        return found if found.startswith("classifier") else f"{prefix}.{found}"

    images, dlogits = normal(1, (3, *ours.image_shape), (3, config.num_classes))
    expected = by_autograd(lambda x: theirs(x).logits, theirs, images, dlogits, their_name, ours)
    assert_all_close(by_hand(ours, images, dlogits, Context(training=True) if training else None), expected)
    after = {name: x.numpy() for name, x in theirs.named_buffers() if "num_batches" not in name}
    assert_all_close({their_name(name): buffer.data for name, buffer in ours.named_buffers()}, after)


@pytest.mark.parametrize("name", ["resnet basic", "resnet50", "bit", "bit same"])
def test_folders_that_transformers_writes_are_read_as_what_was_written(name, tmp_path):
    kind, _ = KINDS[type(CONFIGS[name])]
    assert_read_as_written(weights_of(CONFIGS[name], "float32"), kind, tmp_path)


HYBRID = HybridConfig(
    img_size=64, patch_size=16, num_classes=0, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2.0, norm_eps=1e-12,
    backbone="bit", backbone_depths=(1, 2, 1), backbone_width=32, backbone_stem="conv7",
)  # fmt: skip


def dpt_names(name):
    """DPTModel's names of an array of ours."""
    stem = "patch_embed.backbone."
    if name.startswith(stem):
        return tuple(f"embeddings.backbone.bit.{one}" for one in BIT.names(name.removeprefix(stem), None))
    return tuple(one.replace("patch_embeddings.projection", "projection") for one in VIT.names(name, None))


DPT = equal_parts(dpt_names)


@pytest.mark.parametrize("config", [HYBRID, replace(
    create_model("vit_base_r50_s16_224", device="meta").config, img_size=64, num_classes=0, norm_eps=1e-12, depth=2,
)], ids=["small", "r50"])  # fmt: skip
def test_features_and_every_gradient_of_the_hybrid_are_those_of_dpts_encoder(config):
    ours = redrawn(build(config, dtype="float64"))
    stem = config.stem
    about = DPTConfig(
        is_hybrid=True, image_size=config.img_size, patch_size=16, hidden_size=config.embed_dim,
        num_hidden_layers=config.depth, num_attention_heads=config.num_heads, intermediate_size=config.mlp_hidden,
        backbone_featmap_shape=[1, stem.out_chans, 4, 4], backbone_out_indices=[0, 0, 1, 1], layer_norm_eps=1e-12,
        backbone_config=dict(
            model_type="bit", global_padding="same", layer_type="bottleneck", depths=list(stem.depths),
            embedding_size=stem.width, hidden_sizes=[4 * stem.width << i for i in range(3)],
            out_features=["stage1", "stage2", "stage3"], embedding_dynamic_padding=True,
        ),
    )  # fmt: skip
    theirs = DPTModel(about, add_pooling_layer=False).double().eval()
    arrays = {name: torch.tensor(array) for name, array in to_theirs(ours.state_dict(), DPT).items()}
    missing, unexpected = theirs.load_state_dict(arrays, strict=False)
    assert not unexpected and all(name.startswith("pooler") for name in missing), (missing, unexpected)
    images, dfeatures = normal(1, (2, *ours.image_shape), (2, config.embed_dim))
    leaf = torch.tensor(images, requires_grad=True)
    features = theirs(leaf).last_hidden_state[:, 0]
    features.backward(torch.tensor(dfeatures))
    gradients = dict(theirs.named_parameters())
    computed = by_hand(ours, images, dfeatures)
    assert_all_close({name: computed.pop(name) for name in ("logits", "images")},
                     {"logits": features.detach().numpy(), "images": leaf.grad.numpy()})  # fmt: skip
    found = to_theirs(computed, DPT)
    assert_all_close(found, {name: gradients[name].grad.numpy() for name in found})
