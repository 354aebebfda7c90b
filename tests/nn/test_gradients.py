import numpy as np
import pytest

from tinyvit import ViT, ViTConfig

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3)


@pytest.fixture
def model():
    return ViT(CONFIG)


def test_gradients_can_be_sent_elsewhere(model):
    buffer = model.new_gradients()
    y, cache = model(np.ones((1, 2, 8, 8), "float32"))
    with model.gradients_into(buffer):
        model.backward(np.ones_like(y), cache)
        assert np.shares_memory(model.head.bias.grad, buffer)
    assert buffer.any() and not model.storage.gradients().any()


def test_a_step_inside_gradients_into_uses_the_models_own_buffers():
    model = ViT(CONFIG)
    with model.gradients_into(model.new_gradients()) as buffer:
        assert np.shares_memory(model.storage.grads.take(2)[0], model.storage.grad)
    assert not buffer.any()


def test_a_gradient_buffer_of_another_shape_is_refused(model):
    with pytest.raises(ValueError, match="expected a gradient buffer"), model.gradients_into(np.zeros(3)):
        pass
