"""Muon: orthogonalised momentum for the matrices and filters of hidden layers, AdamW for everything else."""

import re
from math import prod

import numpy as np

from tinyvit.backend import array_module
from tinyvit.optim.optimizers import AdamW, require_at_least_0

# a σ + b σ³ + c σ⁵ is so steep at 0 that five iterations bring every σ from 0.0015 to 1 into [0.68, 1.21]. A less steep
# polynomial would converge to 1, which takes longer and trains no better.
NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315
EPS = 1e-7  # added to the norm of what is orthogonalised, so that zero stays zero
PIECE = 1 << 17  # entries that a CPU orthogonalises at once: they stay in its cache


def orthogonalise(g, iterations=5):
    """Approximately U Vᵀ for matrices g = U S Vᵀ (..., rows, columns): g with all singular values near 1.

    X = g / ‖g‖, then repeatedly X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X: Newton–Schulz iterations, which need only matrix
    products and change only the singular values, each by the same polynomial. After five, those that were above
    0.0015 ‖g‖ are between 0.68 and 1.21, and smaller ones 485 times as large as they were in X.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
    """
    a, b, c = NEWTON_SCHULZ
    tall = g.shape[-2] > g.shape[-1]
    x = array_module(g).ascontiguousarray(g.mT if tall else g)       # X Xᵀ is then the smaller product
    x = x / ((x * x).sum((-2, -1), keepdims=True) ** 0.5 + EPS)
    for _ in range(iterations):
        gram = x @ x.mT
        polynomial = gram @ gram
        polynomial *= c
        gram *= b
        polynomial += gram
        change = polynomial @ x
        x *= a
        x += change
    return x.mT if tall else x


def hidden_matrices(model):
    """The parameters that Muon orthogonalises: matrices and filters with weight decay in numbered layers, such as
    `blocks.3` or `layer1.0`, and of an architecture's first part all but the filters that read the images.

    Hidden layers are repeated, so they are kept in a list and have numbers; what reads images or writes logits is there
    once. A hybrid's projection is there once, too, but reads feature maps. This holds for any architecture. Tables of
    positions have no weight decay, and are left out.
    """
    inner = inner_parameters(model)
    hidden = [p for name, p in model.named_parameters() if re.search(r"(^|\.)\d+\.", name) or name in inner]
    return [p for p in hidden if p.ndim in (2, 4) and p.decay]


def inner_parameters(model):
    """The names of the parameters of an architecture's first part that don't read the images."""
    if not hasattr(model, "parts"):
        return set()
    (_, first), *_ = model.parts()
    return {parameter.name for parameter in first.parameters() if parameter is not model.image_filters}


class Muon(AdamW):
    """Momentum made orthogonal, for the matrices W of hidden layers with gradients G:

        B ← μ B + (1 − μ) G     U = (1 − μ) G + μ B     W ← (1 − lr · weight_decay) W − lr √max(1, rows/columns) O(U)

    O is `orthogonalise`; without `nesterov`, U is B. Filters (O, C, P, Q) are a matrix (O, C·P·Q). Of a parameter that
    stacks several matrices, as `parts` says (queries, keys and values), each is orthogonalised on its own. AdamW
    updates everything else, embedding and head included, with `betas`, `eps`, the same weight decay and the learning
    rate `adam_lr`, which follows `lr` in proportion when a schedule changes it.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with the weight decay of Liu et al.
    2025, "Muon is scalable for LLM training". In the state, `m` is B for those matrices, and `v` stays zero.

    filter_lr    the learning rate of filters, in the same proportion; None is `lr`. Filters before a norm need a larger
                 one than matrices, as only their direction counts, not their size
    map_pieces   (function, pieces) -> results, like `map`; one with threads spreads the matrices over the cores
    """

    decides = False  # `update_matrices` doesn't read `where`

    def __init__(self, model, lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.01, adam_lr=3e-4,
                 betas=(0.9, 0.95), eps=1e-8, iterations=5, filter_lr=None, map_pieces=map):  # fmt: skip
        super().__init__(model, lr, betas, eps, weight_decay)
        require_at_least_0("learning rate of AdamW", adam_lr)
        filter_lr = lr if filter_lr is None else filter_lr
        require_at_least_0("learning rate of filters", filter_lr)
        require_at_least_0("momentum", momentum, below=1)
        if lr == 0:
            raise ValueError("expected a learning rate above 0, to which the others are in proportion, got 0")
        if iterations < 1:
            raise ValueError(f"expected at least 1 iteration, got {iterations}")
        self.momentum, self.nesterov, self.iterations = momentum, nesterov, iterations
        self.first_lr, self.adam_lr, self.filter_lr = lr, adam_lr, filter_lr
        self.map_pieces = map_pieces
        self.matrices = hidden_matrices(model)
        if not self.matrices:
            raise ValueError(
                "Muon needs matrices in numbered layers, such as blocks.0.mlp.fc1.weight; "
                f"{type(model).__name__} has none, take AdamW"
            )

    def rebind(self):
        self.matrices = hidden_matrices(self.model)
        return super().rebind()

    def move(self):
        super().move()
        list(self.map_pieces(self.update_matrices, self.pieces()))

    def segments(self):
        return self.storage.segments(leaving_out=set(self.matrices))

    def update(self, theta, g, m, v, lr, weight_decay):
        super().update(theta, g, m, v, lr / self.first_lr * self.adam_lr, weight_decay)

    def pieces(self):
        """The trainable matrices in lists of one shape: short ones on a CPU, all at once on a GPU."""
        alike = {}
        for parameter in self.matrices:
            if parameter.trainable:
                alike.setdefault((parameter.shape, parameter.parts), []).append(parameter)
        for parameters in alike.values():
            on_cpu = array_module(self.storage.data) is np
            count = max(1, PIECE // parameters[0].size) if on_cpu else len(parameters)
            for start in range(0, len(parameters), count):
                yield parameters[start : start + count]

    def update_matrices(self, parameters):
        """One step of parameters that have one shape."""
        shape, parts = parameters[0].shape, parameters[0].parts
        rows, columns = shape[0], prod(shape[1:])
        directions = [self.direction(parameter) for parameter in parameters]
        stack = array_module(directions[0]).stack(directions).reshape(-1, rows // parts, columns)
        stack = orthogonalise(stack, self.iterations).reshape(-1, *shape)
        scale = max(1.0, rows / parts / columns) ** 0.5
        rate = self.lr / self.first_lr * self.filter_lr if len(shape) == 4 else self.lr
        for parameter, direction in zip(parameters, stack):
            lr, theta = rate * parameter.lr_scale, parameter.data
            theta *= 1 - lr * (self.weight_decay if parameter.decay else 0.0)
            theta -= lr * scale * direction

    def direction(self, parameter):
        """Update a parameter's momentum B; returns U."""
        g, b = parameter.grad, parameter.view(self.state[0])
        b *= self.momentum
        b += (1 - self.momentum) * g
        return (1 - self.momentum) * g + self.momentum * b if self.nesterov else b
