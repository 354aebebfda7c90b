"""Norms of activations and gradients, layer by layer."""

from typing import NamedTuple

import numpy as np

from tinyvit.probe.pictures import new_figure


class Norms(NamedTuple):
    """Euclidean norms of tokens and of their gradients, means over the tokens of each image.

    The means are over all tokens, also where some have no gradient: after the last layer only those have one that the
    head reads. Of a model that reads the class token dstream[-1] is 1/T of that token's norm; of one that reads the
    mean of the patches it includes the class token's 0.

    stream       (L+1, B): the residual stream before each layer, and after the last
    attn, mlp    (L, B): what each layer's attention, and its MLP, adds to the stream; None where a layer has none
    dstream      (L+1, B): the gradients of the same, likewise; these and the rest are None of a trace without gradients
    dattn, dmlp  (L, B)
    dparameters  (L,): of all parameters of each layer together, the norm of their gradient
    """

    stream: np.ndarray
    attn: np.ndarray | None
    mlp: np.ndarray | None
    dstream: np.ndarray | None
    dattn: np.ndarray | None
    dmlp: np.ndarray | None
    dparameters: np.ndarray | None


def norms_by_layer(trace):
    """The `Norms` of a `Trace`.

        stream[l, b] = (1/T) Σᵢ ‖x[l, b, i]‖₂         dparameters[l] = √(Σ of all squared entries)

    Gradients of tokens are those of each image's own loss, B times those of the mean; or of its own logit.
    Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks", compare them so.
    Raises ValueError for layers without a residual stream.
    """
    stream, layers = mean_norm(trace.residual_stream), trace.layers[1:]
    own = 1 if trace.loss is None else len(trace.images)

    def branch(name, recorded):
        """The norms of what was recorded of a branch in every layer; None where there is none."""
        paths = [f"{layer}.{name}" for layer in layers]
        return mean_norm(recorded(path) for path in paths) if all(path in trace.values for path in paths) else None

    attn, mlp = (branch(name, lambda path: trace.values[path]) for name in ("attn", "mlp"))
    if not trace.gradients:
        return Norms(stream, attn, mlp, None, None, None, None)
    dattn, dmlp = (branch(name, lambda path: own * trace.gradients[path][0]) for name in ("attn", "mlp"))
    dstream = [*(trace.gradients[layer][1] for layer in layers), trace.gradients[layers[-1]][0]]
    squares = [
        sum(float((g * g).sum()) for name, g in trace.parameter_gradients.items() if name.startswith(f"{layer}."))
        for layer in layers
    ]
    return Norms(stream, attn, mlp, own * mean_norm(dstream), dattn, dmlp, np.sqrt(squares))


def mean_norm(layers):
    """The mean over tokens of the norms of (B, N, D) in each of several layers: (layers, B)."""
    return np.stack([np.linalg.norm(x, axis=-1).mean(-1) for x in layers])


def draw_norms(norms):
    """A matplotlib Figure of `Norms`, means over the images: activations, and beside them their gradients if any."""
    from matplotlib.ticker import LogFormatter

    halves = [("norm of a token", norms[:3]), ("norm of its gradient", norms[3:6])]
    halves = halves if norms.dstream is not None else halves[:1]
    figure, (panels,) = new_figure(4.5 * len(halves), 3.6, columns=len(halves), squeeze=False)
    names = ("residual stream", "attention's part", "MLP's part")
    L = len(norms.stream) - 1
    places = (np.arange(L + 1) - 0.5, np.arange(L), np.arange(L))  # the stream is between the layers
    for axes, (title, rows) in zip(panels, halves):
        for x, row, name, marker in zip(places, rows, names, "osd"):
            if row is not None:
                axes.plot(x, row.mean(1), marker=marker, markersize=4, linewidth=1.2, label=name)
        axes.set(title=title, xlabel="block", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.3, which="both")
    if norms.dparameters is not None:
        panels[1].plot(places[1], norms.dparameters, color="tab:gray", marker="x", markersize=4, linestyle="--",
                       linewidth=1.2, label="parameters of the block")  # fmt: skip
    for axes in panels:
        axes.legend(frameon=False, fontsize=8)
    return figure
