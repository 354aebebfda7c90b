"""Every value of a forward and every gradient of its backward, by path."""

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.models.architecture import require_classes
from tinyvit.nn import Context, watch
from tinyvit.nn.attention import Attention


class Trace(NamedTuple):
    """The record of `trace`, all NumPy arrays on the CPU. T is the number of tokens, prefix + N.

    images               (B, C, H, W), as the model read them
    grid                 (rows, columns) of the patches, or None: that in row r, column c is token
                         prefix + r · columns + c
    values               path -> what that module returned: of a ViT "patch_embed" (B, N, D), "(embed)" (B, T, D),
                         "blocks.3" (B, T, D) (the residual stream after that block), "blocks.3.attn.qkv", "norm", …
    logits               (B, K); of a model without classes its output, the features
    probabilities        (B, K), softmax of the logits; None without classes
    attention            (L, B, H, T, T): what each query (a row) takes from each key; rows add up to 1. None unless
                         every layer has one attention among all tokens
    loss                 mean cross-entropy, or None without targets
    gradients            path -> (dy, dx): the gradient of what the module returned, and of what it read
    attention_gradients  (L, B, H, T, T): the gradient of `attention`, each entry taken as free; or None
    parameter_gradients  name -> gradient of each parameter that is trainable
    layers               paths of the model's first part and of its layers
    prefix               number of tokens in front of those of the grid

    The path of the model itself is "". Parts without parameter names of their own are in parentheses: "(embed)",
    "(positions)", "(encode)". Without targets or classes nothing is differentiated, and there are no gradients.
    """

    images: np.ndarray
    grid: tuple[int, int] | None
    values: dict[str, Any]
    logits: np.ndarray
    probabilities: np.ndarray | None
    attention: np.ndarray | None
    loss: float | None
    gradients: dict[str, tuple[Any, Any]]
    attention_gradients: np.ndarray | None
    parameter_gradients: dict[str, np.ndarray]
    layers: tuple[str, ...]
    prefix: int

    @property
    def residual_stream(self):
        """(L+1, B, T, D): the tokens that enter each layer, and those that leave the last.

        Raises ValueError where the layers don't all give tokens of one shape.
        """
        layers = [self.values[path] for path in self.layers]
        shapes = dict.fromkeys(x.shape for x in layers)
        if len(shapes) > 1 or len(layers[0].shape) != 3:
            raise ValueError(f"the layers have no common residual stream: they give {', '.join(map(str, shapes))}")
        return np.stack(layers)


class Recorder:
    """An observer that keeps all values and gradients as NumPy arrays."""

    def __init__(self, model):
        self.model = model
        self.values, self.gradients = {}, {}

    def value(self, path, y):
        self.values[path] = self.array(y)

    def gradient(self, path, dy, dx):
        self.gradients[path] = self.array(dy), self.array(dx)

    def array(self, x):
        """x as a NumPy array; bfloat16 and float16 become float32."""
        return to_numpy(F.cast(x, self.model.dtype) if self.model.storage.precision.is_low else x)


def trace(model, images, targets=None, *, classes=None):
    """Run a model on images (B, C, H, W), normalised, and return a `Trace` of all that was computed.

    targets   labels (B,) or probabilities (B, K): all gradients are those of the mean cross-entropy with them
    classes   (B,): instead, all gradients are those of the sum of the images' logits of these classes,
              Σ_b logits[b, classes[b]]; an image's gradient is that of its own logit

    The forward is that of inference, without dropout, by whatever kernels are in use. The gradient of the attention is
    dheads vᵀ, of each head. The model's own gradients stay as they are.
    Raises ValueError for images, targets or classes that don't fit the model.
    """
    if targets is not None or classes is not None:
        require_classes(model)
    if targets is not None and classes is not None:
        raise ValueError("expected targets or classes, got both: a backward starts from one gradient")
    recorder = Recorder(model)
    with model.storage.compute_scope():
        x = to_device(images, model.device)
        y, cache = model(x, Context(observer=recorder))
        logits = recorder.array(y)
        loss, dlogits = start_of_backward(logits, targets, classes)
        attentions = attentions_of(model, cache)
        attention = stack_or_none([recorder.array(c_attn.heads.probs) for _, c_attn in attentions], model, x)
        attention_gradients, parameter_gradients = None, {}
        if dlogits is not None:
            with model.gradients_into(model.new_gradients()):
                watch(model, recorder).backward(F.cast(to_device(dlogits, model.device), y.dtype), cache)
                trained = ((name, p) for name, p in model.named_parameters() if p.trainable)
                parameter_gradients = {name: to_numpy(p.grad) for name, p in trained}
            if attention is not None:
                attention_gradients = np.stack([attention_gradient(recorder, *pair) for pair in attentions])
        return Trace(
            images=recorder.array(x),
            grid=model.grid_of(x),
            values=recorder.values,
            logits=logits,
            probabilities=F.softmax(logits)[0] if getattr(model.config, "num_classes", 0) else None,
            attention=attention,
            loss=loss,
            gradients=recorder.gradients,
            attention_gradients=attention_gradients,
            parameter_gradients=parameter_gradients,
            layers=tuple(part.path for _, part in model.parts()[: model.depth + 1]),
            prefix=model.num_prefix_tokens,
        )


def start_of_backward(logits, targets, classes):
    """(loss, gradient of the logits), each None where there is none."""
    if targets is not None:
        loss, cache = F.cross_entropy(logits, np.asarray(targets))
        return float(loss), F.cross_entropy_backward(1.0, cache)
    if classes is None:
        return None, None
    (B, K), classes = logits.shape, np.asarray(classes)
    if classes.shape != (B,) or classes.dtype.kind not in "iu" or not np.isin(classes, range(K)).all():
        raise ValueError(f"expected {B} classes from 0 to {K - 1}, got {classes.tolist()}")
    return None, np.eye(K, dtype=logits.dtype)[classes]


def attentions_of(model, cache):
    """(Attention, its cache) for every attention in the layers. Caches mirror modules: that of `x.attn` is `.attn`."""
    layers = list(zip(model.parts(), model.caches_of_parts(cache)))[1 : model.depth + 1]
    return [
        (module, attrgetter(path)(of_part) if path else of_part)
        for (_, part), of_part in layers for path, module in part.named_modules() if type(module) is Attention
    ]  # fmt: skip


def stack_or_none(probs, model, images):
    """The attention (L, B, H, T, T) of all layers, or None unless each has one among all tokens of the grid."""
    grid, shapes = model.grid_of(images), {x.shape for x in probs}
    if grid is None or len(probs) != model.depth or len(shapes) != 1:
        return None
    rows, columns = grid
    return np.stack(probs) if probs[0].shape[-1] == model.num_prefix_tokens + rows * columns else None


def no_attention(model):
    """The reason why a `Trace` of this model has no attention."""
    return f"{type(model).__name__} has no attention over the same patches in every layer"


def attention_gradient(recorder, attention, cache):
    """The gradient (B, H, T, T) of the probabilities of an attention: heads = probs v, so dprobs = dheads vᵀ."""
    _, dheads = recorder.gradients[attention.proj.path]                               # (B, T, D)
    v = recorder.array(cache.heads.v)                                                 # (B, H, T, d)
    B, H, N, d = v.shape
    return dheads.reshape(B, N, H, d).transpose(0, 2, 1, 3) @ v.mT
