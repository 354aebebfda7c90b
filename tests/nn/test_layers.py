"""The gradients of each layer, for parameters and input together."""

import numpy as np
import pytest

from tinyvit import Context, Key, gradcheck, nn

CTX = Context(training=True, key=Key(0))
LAYERS = {
    "Linear": (lambda: nn.Linear(12, 7), (2, 5, 12)),
    "Linear without bias": (lambda: nn.Linear(12, 7, bias=False), (2, 5, 12)),
    "LayerNorm": (lambda: nn.LayerNorm(12), (2, 5, 12)),
    "PatchEmbed": (lambda: nn.PatchEmbed((2, 3), 3, 12), (2, 3, 4, 6)),
    "Attention": (lambda: nn.Attention(12, 3), (2, 5, 12)),
    "Attention with dropout": (lambda: nn.Attention(12, 3, attn_drop=0.3, proj_drop=0.3), (2, 5, 12)),
    "Attention with rope": (lambda: nn.Attention(12, 3, rope_grid=(2, 2)), (2, 5, 12)),
    "Mlp": (lambda: nn.Mlp(12, 20), (2, 5, 12)),
    "Mlp with the tanh form and dropout": (lambda: nn.Mlp(12, 20, "gelu_tanh", 0.3), (2, 5, 12)),
    "Block": (lambda: nn.Block(12, 3, 20), (2, 5, 12)),
    "Block with everything": (
        lambda: nn.Block(12, 3, 20, qkv_bias=False, drop=0.2, attn_drop=0.2, drop_path=0.4, rope_grid=(2, 2)),
        (4, 5, 12),
    ),
    "Block on one token": (lambda: nn.Block(12, 3, 20), (1, 1, 12)),
}


@pytest.mark.parametrize("method", ["complex", "central"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_gradients_of_a_layer_match_the_numerical_derivative(name, method):
    make, shape = LAYERS[name]
    x = np.random.default_rng(0).standard_normal(shape)
    report = gradcheck.check_model(make().materialize(), x, method=method, ctx=CTX)
    assert report.max_error < gradcheck.MODEL_BOUNDS[method], report


def test_attention_refuses_a_width_that_its_heads_do_not_divide():
    with pytest.raises(ValueError, match="embed_dim 12 is not divisible by num_heads 5"):
        nn.Attention(12, 5)


def test_patch_embedding_is_the_convolution_with_its_weight():
    layer = nn.PatchEmbed((2, 3), 3, 5).materialize(dtype="float64")
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6))
    tokens, _ = layer(x)
    for n, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        window = x[:, :, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
        np.testing.assert_allclose(tokens[:, n], np.einsum("bcpq,dcpq->bd", window, layer.proj.weight.data), atol=1e-13)
