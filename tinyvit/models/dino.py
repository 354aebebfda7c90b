"""A ViT and a head that learn from a moving average of themselves.

Caron et al. 2021, "Emerging properties in self-supervised vision transformers".
"""

from itertools import pairwise

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.flat import move_average
from tinyvit.models.architecture import split_context
from tinyvit.models.registry import build
from tinyvit.nn import init
from tinyvit.nn.buffers import BufferUpdate
from tinyvit.nn.chain import Chain, Operation
from tinyvit.nn.context import Context
from tinyvit.nn.layers import Linear
from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type
from tinyvit.nn.variables import Buffer, Parameter

STD = 0.02  # initial standard deviation of the head's first three layers


NormalisedLinearCache = cache_type("NormalisedLinear", "normalise linear")


class NormalisedLinear(Module):
    """y = x Wᵀ with rows of length 1, w = v / ‖v‖, of the weight V (out, in): of an x of length 1, y is cosines.

    Weight normalisation with its lengths fixed. Salimans & Kingma 2016, "Weight normalization". Derived in
    notebooks/16.
    """

    def __init__(self, in_features, out_features):
        self.weight = Parameter((out_features, in_features), init.normal(in_features**-0.5))

    def forward(self, x, ctx=None):
        weight, c_normalise = F.l2_normalise(self.weight.value)
        y, c_linear = F.linear(x, weight, None)
        return y, NormalisedLinearCache(c_normalise, c_linear)

    def backward(self, dy, cache):
        with self.gradients() as (into,):
            dx, dweight, *_ = F.linear_backward(dy, cache.linear, into=(False,) if into is False else None)
            if into is not False:
                into += F.l2_normalise_backward(dweight, cache.normalise)
        return dx


class DinoHead(Chain):
    """Features (..., D) to a logit for each prototype (..., K), a cosine.

    Three linear layers with GELU between them, then a vector of length 1, whose cosines with the prototypes are the
    logits. Appendix C, "Projection head". Derived in notebooks/16.
    """

    def __init__(self, dim, prototypes, hidden, bottleneck):
        layers = {}
        for number, (a, b) in enumerate(pairwise((dim, hidden, hidden, bottleneck))):
            if number:
                layers[f"act{number}"] = Operation(F.gelu)
            layers[str(number)] = Linear(a, b, weight_init=init.normal(STD))
        self.layers = Chain(**layers)
        self.normalise = Operation(F.l2_normalise)
        self.last = NormalisedLinear(bottleneck, prototypes)


# `backbone` and `views` have an entry for each size of crops: the cache, and how many views there are.
DinoNetworkCache = cache_type("DinoNetwork", "backbone views head")


class DinoNetwork(Module):
    """Views of images, arrays (B, n, C, S, S) of n views for each size S, to logits (B, V, K) of all V of them.

    The backbone sees the views of one size at a time, the head all at once. Derived in notebooks/16.
    """

    image_part = "backbone"

    def __init__(self, config, prototypes, hidden, bottleneck):
        self.backbone = build(config, device="meta")
        self.head = DinoHead(config.embed_dim, prototypes, hidden, bottleneck)

    def forward(self, views, ctx=None):
        features, caches = [], []
        for number, images in enumerate(views):
            B, n = images.shape[:2]
            x, cache = self.backbone(images.reshape(B * n, *images.shape[2:]), split_context(ctx, n, number))
            features.append(x.reshape(B, n, -1))
            caches.append(cache)
        features = array_module(x).concatenate(features, axis=1)               # (B, V, D)
        logits, c_head = self.head(features, ctx)
        return logits, DinoNetworkCache(tuple(caches), tuple(len(f[0]) for f in views), c_head)

    def backward(self, dlogits, cache):
        dfeatures, first = self.head.backward(dlogits, cache.head), 0
        for n, c_backbone in zip(cache.views, cache.backbone):
            part = dfeatures[:, first : first + n]
            self.backbone.backward(part.reshape(-1, part.shape[-1]), c_backbone)
            first += n


class Dino(Module):
    """A student, which is trained, and its teacher, a moving average of it; both are a `DinoNetwork`.

    centre   the moving average (K,) of the teacher's logits, taken off them; without `centring` it stays 0

    What is evaluated, exported and fine-tuned is the teacher's backbone.
    """

    image_part = "student"

    def __init__(self, config, prototypes, hidden, bottleneck, centring=True, centre_momentum=0.9, seed=0,
                 dtype="float32", device="cpu", precision=None):  # fmt: skip
        self.student = DinoNetwork(config, prototypes, hidden, bottleneck)
        self.teacher = DinoNetwork(config, prototypes, hidden, bottleneck)
        self.centre = Buffer((prototypes,), init.zeros)
        self.frozen, self.centre_momentum = not centring, centre_momentum
        self.materialize(seed, dtype, device, precision)
        for parameter in self.teacher.parameters():
            parameter.trainable = False

    def pairs(self):
        """(the teacher's parameter, the student's) for every one that they have."""
        return zip(self.teacher.parameters(), self.student.parameters())

    def targets(self, large, temperature):
        """softmax((z − c) / τ), (B, T, K), of the teacher's logits z for views (B, T, C, S, S), and the logits."""
        logits, _ = self.teacher([large], Context(keep_caches=False))
        logits = F.cast(logits, self.centre.data.dtype)
        return F.softmax((logits - self.centre.data) * (1 / temperature))[0], logits

    def new_centre(self, logits):
        """The centre that a step commits after it has seen these logits of the teacher, (B, T, K)."""
        return BufferUpdate(self, {"mean": logits.mean((0, 1))})

    def commit(self, statistics):
        """c ← m c + (1 − m) mean of z. Eq. 4."""
        m = self.centre_momentum
        self.centre.data = m * self.centre.data + (1 - m) * statistics["mean"]

    def move_teacher(self, momentum, applied):
        """θₜ ← m θₜ + (1 − m) θₛ; `applied`, a boolean on the device, is False where nothing is to change."""
        with self.storage.on_device():
            for theirs, own in zip(flat_ranges(self.teacher), flat_ranges(self.student)):
                move_average(self.storage.data[theirs], self.storage.data[own], (1 - momentum) * applied)


def flat_ranges(network):
    """The stretches of the storage's flat array that hold the parameters of a network: with weight decay, and without.

    Those of two networks of one shape are laid out alike.
    """
    for decay in (True, False):
        *_, last = alike = [parameter for parameter in network.parameters() if parameter.decay is decay]
        yield slice(alike[0].offset, last.offset + last.size)
