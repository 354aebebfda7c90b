"""How large activations and gradients are, layer by layer."""

from typing import NamedTuple

import numpy as np


class Norms(NamedTuple):
    """Euclidean norms of tokens and of their gradients, means over the tokens of each image.

    The means are over all tokens, also where some have no gradient: after the last layer only those have one that the
    head reads. Of a model that reads the class token dstream[-1] is 1/T of that token's norm; of one that reads the
    mean of the patches it includes the class token's 0.

    stream       (L+1, B): the residual stream before each layer, and after the last
    attn, mlp    (L, B): what each layer's attention, and its MLP, adds to the stream; None where a layer has none
    dstream      (L+1, B): the gradients of the same, likewise
    dattn, dmlp  (L, B)
    dparameters  (L,): of all parameters of each layer together, the norm of their gradient
    """

    stream: np.ndarray
    attn: np.ndarray | None
    mlp: np.ndarray | None
    dstream: np.ndarray
    dattn: np.ndarray | None
    dmlp: np.ndarray | None
    dparameters: np.ndarray


def norms_by_layer(trace):
    """The `Norms` of a `Trace` that has gradients.

        stream[l, b] = (1/T) Σᵢ ‖x[l, b, i]‖₂         dparameters[l] = √(Σ of all squared entries)

    Gradients of tokens are those of each image's own loss, B times those of the mean; or of its own logit.
    Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks", compare them so.
    Raises ValueError for a trace without gradients, and for layers without a residual stream.
    """
    if not trace.gradients:
        raise ValueError("expected a trace with gradients: trace it with targets or with classes")
    stream, layers = trace.residual_stream, trace.layers[1:]
    own = 1 if trace.loss is None else len(trace.images)

    def branch(name):
        """The norms of a branch's output and of its gradient, or None for both."""
        paths = [f"{layer}.{name}" for layer in layers]
        if not all(path in trace.values for path in paths):
            return None, None
        values, gradients = ([x[path] for path in paths] for x in (trace.values, trace.gradients))
        return mean_norm(values), own * mean_norm(dy for dy, _ in gradients)

    dstream = [*(trace.gradients[layer][1] for layer in layers), trace.gradients[layers[-1]][0]]
    squares = [
        sum(float((g * g).sum()) for name, g in trace.parameter_gradients.items() if name.startswith(f"{layer}."))
        for layer in layers
    ]
    (attn, dattn), (mlp, dmlp) = branch("attn"), branch("mlp")
    return Norms(mean_norm(stream), attn, mlp, own * mean_norm(dstream), dattn, dmlp, np.sqrt(squares))


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
    L = len(norms.dparameters)
    places = (np.arange(L + 1) - 0.5, np.arange(L), np.arange(L))  # the stream is between the layers
    for axes, rows in ((left, norms[:3]), (right, norms[3:6])):
        for x, row, name, marker in zip(places, rows, names, "osd"):
            if row is None:
                continue
            axes.plot(x, row.mean(1), marker=marker, markersize=4, linewidth=1.2, label=name)
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.3, which="both")
    right.plot(places[1], norms.dparameters, color="tab:gray", marker="x", markersize=4, linestyle="--",
               linewidth=1.2, label="parameters of the layer")  # fmt: skip
    left.set_title("norm of a token", fontsize=11)
    right.set_title("norm of its gradient", fontsize=11)
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)
    return figure
