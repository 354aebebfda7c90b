"""How large activations and gradients are, layer by layer."""

from typing import NamedTuple

import numpy as np


class Norms(NamedTuple):
    """Euclidean norms of tokens and of their gradients, means over the tokens of each image.

    The means are over all N+1 tokens, also where some have no gradient: behind the last block only those have one that
    the head reads. Of a model that reads the class token dstream[-1] is 1/(N+1) of that token's norm; of one that reads
    the mean of the patches the class token's 0 is in it.

    stream       (L+1, B): the residual stream in front of each block, and behind the last
    attn, mlp    (L, B): what each block's attention, and its MLP, adds to the stream
    dstream      (L+1, B): the gradients of the same, likewise
    dattn, dmlp  (L, B)
    dparameters  (L,): of all parameters of each block together, the norm of their gradient
    """

    stream: np.ndarray
    attn: np.ndarray
    mlp: np.ndarray
    dstream: np.ndarray
    dattn: np.ndarray
    dmlp: np.ndarray
    dparameters: np.ndarray


def norms_by_layer(trace):
    """The `Norms` of a `Trace` that has gradients.

        stream[l, b] = (1/(N+1)) Σᵢ ‖x[l, b, i]‖₂         dparameters[l] = √(Σ of all squared entries)

    Gradients of tokens are those of each image's own loss, which is B times that of the mean; or of its own logit.
    Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks", compare them so.
    Raises ValueError for a trace without gradients.
    """
    if not trace.gradients:
        raise ValueError("expected a trace with gradients: trace it with targets or with classes")
    blocks = [f"blocks.{i}" for i in range(len(trace.attention))]
    own = 1 if trace.loss is None else len(trace.images)

    def values(part):
        return mean_norm(trace.values[f"{block}.{part}"] for block in blocks)

    def gradients(part):
        return own * mean_norm(trace.gradients[f"{block}.{part}"][0] for block in blocks)

    dstream = [*(trace.gradients[block][1] for block in blocks), trace.gradients[blocks[-1]][0]]
    squares = [
        sum(float((g * g).sum()) for name, g in trace.parameter_gradients.items() if name.startswith(f"{block}."))
        for block in blocks
    ]
    return Norms(
        mean_norm(trace.residual_stream), values("attn"), values("mlp"),
        own * mean_norm(dstream), gradients("attn"), gradients("mlp"), np.sqrt(squares),
    )  # fmt: skip


def mean_norm(layers):
    """The mean over tokens of the norms of (B, N, D) in each of several layers: (layers, B)."""
    return np.stack([np.linalg.norm(x, axis=-1).mean(-1) for x in layers])


def draw_norms(norms):
    """A matplotlib Figure of `Norms`, means over the images: activations on the left, their gradients on the right."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = ("residual stream", "attention's part", "MLP's part")
    L = len(norms.attn)
    places = (np.arange(L + 1) - 0.5, np.arange(L), np.arange(L))  # the stream is between the blocks
    for axes, rows in ((left, norms[:3]), (right, norms[3:6])):
        for x, row, name, marker in zip(places, rows, names, "osd"):
            axes.plot(x, row.mean(1), marker=marker, markersize=4, linewidth=1.2, label=name)
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.3, which="both")
    right.plot(places[1], norms.dparameters, color="tab:gray", marker="x", markersize=4, linestyle="--",
               linewidth=1.2, label="parameters of the block")  # fmt: skip
    left.set_title("norm of a token", fontsize=11)
    right.set_title("norm of its gradient", fontsize=11)
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)
    return figure
