"""Muon: orthogonalised momentum for the matrices and filters of hidden layers, AdamW for everything else."""

import re
from math import prod

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.functional.muon import Matrix, muon_step
from tinyvit.optim.optimizers import AdamW
from tinyvit.validation import INFINITY, require

PIECE_ENTRIES = 1 << 17  # entries that a CPU orthogonalises at once: they stay in its cache


def hidden_matrices(model):
    """The parameters that Muon orthogonalises: matrices and filters with weight decay in numbered layers, such as
    `blocks.3` or `layer1.0`, and of an architecture's first part all but the filters that read the images.

    Hidden layers are repeated, so they are kept in a list and have numbers; what reads images or writes logits is there
    once. A hybrid's projection is there once, too, but reads feature maps. This holds for any architecture. Tables of
    positions have no weight decay, and are left out.
    """
    first = model.parts()[:1] if hasattr(model, "parts") else []
    inner = {p.name for _, part in first for p in part.parameters() if p is not model.image_filters}
    hidden = [p for name, p in model.named_parameters() if re.search(r"(^|\.)\d+\.", name) or name in inner]
    return [p for p in hidden if p.ndim in (2, 4) and p.decay]


class Muon(AdamW):
    """Momentum made orthogonal, for the matrices W of hidden layers with gradients G:

        B ← μ B + (1 − μ) G     U = (1 − μ) G + μ B     W ← (1 − lr · weight_decay) W − lr √max(1, rows/columns) O(U)

    O is `functional.muon.orthogonalise`; without `nesterov`, U is B. Filters (O, C, P, Q) are a matrix (O, C·P·Q). Of a
    parameter that stacks several matrices, as `parts` says (queries, keys and values), each is orthogonalised on its
    own. AdamW updates everything else, embedding and head included, with `betas`, `eps`, the same weight decay and the
    learning rate `adam_lr`, which follows `lr` in proportion when a schedule changes it.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with the weight decay of Liu et al.
    2025, "Muon is scalable for LLM training". In the state, `m` is B for those matrices, and `v` stays zero.

    filter_lr    the learning rate of filters, in the same proportion; None is `lr`. Filters before a norm need a larger
                 one than matrices, as only their direction counts, not their size
    map_pieces   (function, pieces) -> results, like `map`; one with threads spreads the matrices over the cores
    """

    def __init__(self, model, lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.01, adam_lr=3e-4,
                 betas=(0.9, 0.95), eps=1e-8, iterations=5, filter_lr=None, map_pieces=map):  # fmt: skip
        super().__init__(model, lr, betas, eps, weight_decay)
        filter_lr = lr if filter_lr is None else filter_lr
        require(lr > 0, "expected a learning rate above 0, to which the others are in proportion", lr)
        require(0 <= adam_lr < INFINITY, "expected a learning rate of AdamW of at least 0", adam_lr)
        require(0 <= filter_lr < INFINITY, "expected a learning rate of filters of at least 0", filter_lr)
        require(0 <= momentum < 1, "expected a momentum of at least 0 and below 1", momentum)
        self.momentum, self.nesterov, self.iterations = momentum, nesterov, iterations
        self.first_lr, self.adam_lr, self.filter_lr = lr, adam_lr, filter_lr
        self.map_pieces = map_pieces
        if not self.matrices:
            raise ValueError(f"Muon needs matrices in numbered layers; {type(model).__name__} has none, take AdamW")

    def reset(self):
        super().reset()
        self.matrices = hidden_matrices(self.model)

    def update_all(self):
        super().update_all()
        list(self.map_pieces(self.update_matrices, self.pieces()))

    def segments(self):
        return self.storage.segments(leaving_out=set(self.matrices))

    def update(self, theta, g, m, v, lr, weight_decay):
        super().update(theta, g, m, v, lr / self.first_lr * self.adam_lr, weight_decay)

    def pieces(self):
        """The trainable matrices in lists with one learning rate: short ones of one shape on a CPU."""
        on_cpu, alike = array_module(self.storage.data) is np, {}
        for parameter in self.matrices:
            if parameter.trainable:
                key = (parameter.shape, parameter.parts) if on_cpu else parameter.ndim
                alike.setdefault(key, []).append(parameter)
        for parameters in alike.values():
            count = max(1, PIECE_ENTRIES // parameters[0].size) if on_cpu else len(parameters)
            for start in range(0, len(parameters), count):
                yield parameters[start : start + count]

    def update_matrices(self, parameters):
        """One step of some parameters: matrices, or filters."""
        lr = self.lr / self.first_lr * self.filter_lr if parameters[0].ndim == 4 else self.lr
        matrices = tuple(matrix for parameter in parameters for matrix in matrices_of(parameter))
        arrays = self.storage.data, self.storage.gradients(), self.state[0]
        muon_step(*arrays, matrices, lr, self.momentum, self.nesterov, self.iterations, self.weight_decay, self.where)


def matrices_of(parameter):
    """Each `Matrix` that is stacked in a parameter."""
    rows, columns = parameter.shape[0] // parameter.parts, prod(parameter.shape[1:])
    for i in range(parameter.parts):
        start = parameter.offset + i * rows * columns
        yield Matrix(start, rows, columns, parameter.lr_scale, parameter.decay)
