"""Every value of a forward and every gradient of its backward, by path."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.functional.patches import grid_of
from tinyvit.models.architecture import require_classes
from tinyvit.nn import Context, watch


class Trace(NamedTuple):
    """What `trace` saw, all of it as NumPy arrays on the CPU.

    images               (B, C, H, W), as the model read them
    grid                 (rows, columns) of the patches: token 1 + r · columns + c is the patch in row r, column c
    values               path -> what that module returned: "patch_embed" (B, N, D), "(embed)" (B, N+1, D), "blocks.3"
                         (B, N+1, D) (the residual stream behind that block), "blocks.3.attn.qkv", "norm", "head", …
    logits               (B, K); of a model without classes what it returns in their place, the features
    probabilities        (B, K), softmax of the logits; None without classes
    attention            (L, B, H, N+1, N+1): what each query (a row) takes from each key; rows add up to 1
    loss                 mean cross-entropy, or None without targets
    gradients            path -> (dy, dx): the gradient of what the module returned, and of what it read
    attention_gradients  (L, B, H, N+1, N+1): the gradient of `attention`, each entry taken as free; or None
    parameter_gradients  name -> gradient of each parameter that is trainable

    The path of the model itself is "". Parts that their parameters aren't named by stand in parentheses: "(embed)",
    "(positions)", "(encode)". Without targets or classes nothing is differentiated, and the last three are empty.
    """

    images: np.ndarray
    grid: tuple[int, int]
    values: dict[str, Any]
    logits: np.ndarray
    probabilities: np.ndarray | None
    attention: np.ndarray
    loss: float | None
    gradients: dict[str, tuple[Any, Any]]
    attention_gradients: np.ndarray | None
    parameter_gradients: dict[str, np.ndarray]

    @property
    def residual_stream(self):
        """(L+1, B, N+1, D): the tokens that enter each block, and those that leave the last."""
        return np.stack([self.values["(embed)"], *(self.values[f"blocks.{i}"] for i in range(len(self.attention)))])


class Recorder:
    """An observer that keeps all it is told, as NumPy arrays."""

    def __init__(self, model):
        self.model = model
        self.values, self.gradients = {}, {}

    def value(self, path, y):
        self.values[path] = self.array(y)

    def gradient(self, path, dy, dx):
        self.gradients[path] = self.array(dy), self.array(dx)

    def array(self, x):
        """x on the CPU, and what was computed in bfloat16 or float16 in float32."""
        return to_numpy(F.cast(x, self.model.dtype) if self.model.storage.precision.is_low else x)


def trace(model, images, targets=None, *, classes=None):
    """Run a ViT on images (B, C, H, W), normalised, and return a `Trace` of all that was computed.

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
        raise ValueError("expected targets or classes, got both: a backward has one beginning")
    recorder = Recorder(model)
    with model.storage.compute_scope():
        x = to_device(images, model.device)
        y, cache = model(x, Context(observer=recorder))
        logits = recorder.array(y)
        loss, dlogits = beginning(logits, targets, classes)
        attention_gradients, parameter_gradients = None, {}
        if dlogits is not None:
            with model.gradients_into(model.new_gradients()):
                watch(model, recorder).backward(F.cast(to_device(dlogits, model.device), y.dtype), cache)
                trained = ((name, p) for name, p in model.named_parameters() if p.trainable)
                parameter_gradients = {name: to_numpy(p.grad) for name, p in trained}
            pairs = zip(model.blocks, cache.blocks)
            attention_gradients = np.stack([attention_gradient(recorder, *pair) for pair in pairs])
        return Trace(
            images=recorder.array(x),
            grid=grid_of(x.shape[2:], model.embed.patch_embed.patch_size),
            values=recorder.values,
            logits=logits,
            probabilities=F.softmax(logits)[0] if model.config.num_classes else None,
            attention=np.stack([recorder.array(c_block.attn.heads.probs) for c_block in cache.blocks]),
            loss=loss,
            gradients=recorder.gradients,
            attention_gradients=attention_gradients,
            parameter_gradients=parameter_gradients,
        )


def beginning(logits, targets, classes):
    """(loss, gradient of the logits), each None where there is none."""
    if targets is not None:
        loss, cache = F.cross_entropy(logits, np.asarray(targets))
        return float(loss), F.cross_entropy_backward(1.0, cache)
    if classes is not None:
        return None, one_hot(classes, *logits.shape).astype(logits.dtype)
    return None, None


def one_hot(classes, B, K):
    """(B, K), 1 where classes (B,) say; ValueError unless they are B numbers from 0 to K − 1."""
    classes = np.asarray(classes)
    if classes.shape != (B,) or classes.dtype.kind not in "iu" or not np.isin(classes, range(K)).all():
        raise ValueError(f"expected {B} classes from 0 to {K - 1}, got {classes.tolist()}")
    return np.eye(K)[classes]


def attention_gradient(recorder, block, cache):
    """The gradient (B, H, N+1, N+1) of a block's attention probabilities: heads = probs v, so dprobs = dheads vᵀ."""
    _, dheads = recorder.gradients[block.attn.proj.path]                              # (B, N+1, D)
    v = recorder.array(cache.attn.heads.v)                                            # (B, H, N+1, d)
    B, H, N, d = v.shape
    return dheads.reshape(B, N, H, d).transpose(0, 2, 1, 3) @ v.mT
