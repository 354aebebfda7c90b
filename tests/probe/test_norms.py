import numpy as np
import pytest
from strategies import images_for, redrawn

from tinyvit import ViT, ViTConfig, probe

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=3, num_heads=3)


@pytest.fixture
def model():
    return redrawn(ViT(CONFIG, dtype="float64"))


def test_norms_are_those_of_the_tokens_and_gradients_in_the_trace(model):
    trace = probe.trace(model, images_for(model, 0, 2), classes=[1, 4])
    norms = probe.norms_by_layer(trace)
    assert norms.stream.shape == norms.dstream.shape == (4, 2)
    assert norms.attn.shape == norms.dmlp.shape == (3, 2)
    tokens = trace.values["blocks.1"][1]
    assert norms.stream[2, 1] == pytest.approx(np.mean([np.sqrt((token**2).sum()) for token in tokens]), rel=1e-12)
    gradients = trace.gradients["blocks.2.mlp"][0][0]
    assert norms.dmlp[2, 0] == pytest.approx(np.mean([np.sqrt((g**2).sum()) for g in gradients]), rel=1e-12)
    squares = [(g**2).sum() for name, g in trace.parameter_gradients.items() if name.startswith("blocks.1.")]
    assert norms.dparameters[1] == pytest.approx(np.sqrt(np.sum(squares)), rel=1e-12)


def test_blocks_whose_branches_are_zero_pass_activations_and_gradients_on_as_they_are(model):
    for block in model.blocks:
        for layer in (block.attn.proj, block.mlp.fc2):
            layer.weight.data = np.zeros(layer.weight.shape)
            layer.bias.data = np.zeros(layer.bias.shape)
    norms = probe.norms_by_layer(probe.trace(model, images_for(model, 0, 2), [0, 3]))
    np.testing.assert_allclose(norms.stream, [norms.stream[0]] * 4, rtol=1e-12)
    np.testing.assert_allclose(norms.dstream, [norms.dstream[0]] * 4, rtol=1e-12)
    assert (norms.attn == 0).all() and (norms.mlp == 0).all()
    np.testing.assert_allclose(norms.dattn, norms.dstream[:3], rtol=1e-12)


def test_gradients_are_those_of_each_images_own_loss_however_many_there_are(model):
    images, targets = images_for(model, 0, 3), [0, 3, 1]
    together = probe.norms_by_layer(probe.trace(model, images, targets))
    for b in range(3):
        alone = probe.norms_by_layer(probe.trace(model, images[b : b + 1], targets[b : b + 1]))
        for name in ("stream", "attn", "mlp", "dstream", "dattn", "dmlp"):
            np.testing.assert_allclose(getattr(together, name)[:, b], getattr(alone, name)[:, 0], rtol=1e-9)


def test_of_a_trace_without_gradients_there_are_the_norms_of_activations(model):
    images = images_for(model, 0, 2)
    norms, full = (probe.norms_by_layer(probe.trace(model, images, targets)) for targets in (None, [0, 3]))
    for part, expected in zip(norms[:3], full[:3]):
        np.testing.assert_array_equal(part, expected)
    assert norms[3:] == (None,) * 4
    (axes,) = probe.draw_norms(norms).axes
    assert [len(line.get_ydata()) for line in axes.lines] == [4, 3, 3]


def test_the_figure_has_activations_on_the_left_and_gradients_on_the_right(model):
    norms = probe.norms_by_layer(probe.trace(model, images_for(model, 0, 2), [0, 3]))
    left, right = probe.draw_norms(norms).axes
    for line, part in zip([*left.lines, *right.lines], norms[:6]):
        np.testing.assert_array_equal(line.get_ydata(), part.mean(1))
    np.testing.assert_array_equal(right.lines[3].get_ydata(), norms.dparameters)
    left.figure.canvas.draw()
