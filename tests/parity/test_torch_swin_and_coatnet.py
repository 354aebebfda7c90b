"""Swin and CoAtNet against timm's, in float64: outputs, all gradients, running statistics."""

from dataclasses import replace

import pytest
import torch
from strategies import redrawn
from torch_autograd import assert_all_close, normal

from tinyvit import Context
from tinyvit.bench.torch_steps import our_name, twin
from tinyvit.models import CoAtNetConfig, SwinConfig, build, create_model
from tinyvit.nn import buffer_updates

pytestmark = pytest.mark.parity

COATNET = CoAtNetConfig(img_size=32, in_chans=3, num_classes=5, stem_width=8, stages="CCTT", depths=(1, 2, 2, 1),
                        widths=(8, 12, 16, 24), strides=(1, 2, 2, 2), head_dim=8)  # fmt: skip
CONFIGS = {
    "coatnet": COATNET,
    "coatnet, a wide image": replace(COATNET, img_size=(32, 48), in_chans=1),
    "coatnet, no stride in attention": replace(COATNET, strides=(2, 2, 1, 1), stem_stride=1, widths=(8, 16, 16, 16)),
    "coatnet_0": replace(create_model("coatnet_0_224", device="meta").config, img_size=64, num_classes=7,
                         depths=(1, 2, 2, 1)),
    "swin": SwinConfig(img_size=32, num_classes=5, embed_dim=8, depths=(2, 3, 1), num_heads=(1, 2, 4), window_size=4),
    "swin, a single window": SwinConfig(img_size=16, num_classes=5, embed_dim=8, depths=(2,), num_heads=(2,),
                                        window_size=8),
}  # fmt: skip



@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_every_gradient_and_running_statistics_are_those_of_torch(name, training):
    config = CONFIGS[name]
    ours = redrawn(build(config, dtype="float64"))
    theirs = twin(ours).train(training)
    images, dlogits = normal(1, (3, *ours.image_shape), (3, config.num_classes))
    leaf = torch.tensor(images, requires_grad=True)
    logits = theirs(leaf)
    logits.backward(torch.tensor(dlogits))
    expected = {our_name(name): parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    got, cache = ours(images, Context(training=True) if training else None)
    dimages = ours.backward(dlogits, cache)
    for module, found in buffer_updates(cache):
        module.commit(found)
    assert_all_close({"logits": got, "images": dimages},
                     {"logits": logits.detach().numpy(), "images": leaf.grad.numpy()})  # fmt: skip
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert_all_close(gradients, {name: expected[name].reshape(x.shape) for name, x in gradients.items()})
    after = {name: x.numpy() for name, x in theirs.named_buffers() if "running" in name}
    assert_all_close({name: buffer.data for name, buffer in ours.named_buffers()}, after)
