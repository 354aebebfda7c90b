"""The influence of each patch on the output, through all layers."""

import numpy as np

from tinyvit.probe.pictures import heat_bar, new_figure, show_heat, show_image


def attention_rollout(attention):
    """How much of each token at the input is in each token at the output, if attention alone mixed them: (B, N, N).

        Âₗ = ½ (mean over heads of Aₗ) + ½ I       R = Â_L ⋯ Â₂ Â₁

    attention (L, B, H, N, N); the ½ I is the residual connection. The rows of R add up to 1. R doesn't depend on a
    class; `gradient_weighted_attention` does.
    Abnar & Zuidema 2020, "Quantifying attention flow in transformers", section 3.
    """
    _, B, _, N, _ = attention.shape
    identity = np.eye(N, dtype=attention.dtype)
    rolled = np.tile(identity, (B, 1, 1))
    for mixed in attention.mean(2):                                           # (B, N, N)
        rolled = (0.5 * mixed + 0.5 * identity) @ rolled
    return rolled


def gradient_weighted_attention(attention, attention_gradients):
    """How much each token at the input speaks for a class in each token at the output: (B, N, N).

        Āₗ = mean over heads of max(0, ∇Aₗ ⊙ Aₗ)       R = I, then for each layer from the first R ← R + Āₗ R

    attention and its gradient are (L, B, H, N, N), of `trace(model, images, classes=classes)`: the gradient is that of
    the logit of each image's class. R − I is the relevance without each token's own.
    Chefer, Gur & Wolf 2021, "Generic attention-model explainability for interpreting bi-modal and encoder-decoder
    transformers", eqs. 5 and 6.

    Raises ValueError if there is no gradient.
    """
    if attention_gradients is None:
        raise ValueError("expected the gradient of the attention, got none: trace it with classes")
    _, B, _, N, _ = attention.shape
    relevance = np.tile(np.eye(N, dtype=attention.dtype), (B, 1, 1))
    for A, dA in zip(attention, attention_gradients):
        relevance = relevance + np.maximum(dA * A, 0).mean(1) @ relevance
    return relevance


def draw_rollout(heat, image, *, title="attention rollout"):
    """A matplotlib Figure of an image (C, H, W), pixels from 0 to 1, beside its rollout (rows, columns) over it."""
    return draw_over_image(image, heat, title, "share of the output", percent=True)


def draw_class_attention(heat, image, *, title="gradient-weighted attention"):
    """A matplotlib Figure of an image (C, H, W) beside the relevance (rows, columns) of its patches for a class."""
    return draw_over_image(image, heat, title, "relevance (logits)", percent=False)


def draw_over_image(image, heat, title, label, percent):
    """The image, and the heat map over it with its scale."""
    from matplotlib.colors import Normalize

    figure, (left, right) = new_figure(7.4, 3.5, columns=2)
    norm = Normalize(0, float(heat.max()) or 1)
    show_image(left, image)
    show_heat(right, heat, image, norm)
    heat_bar(figure, right, norm, label, percent=percent)
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure
