"""Steps whose loss or gradient is NaN or infinite: skipped, counted and, if they don't stop, explained."""

from dataclasses import replace

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.nn import Context, watch

MAX_SKIPPED_STEPS = 10  # one after the other: they end a training
STEPS_PER_READ = 50     # of their count: reading it off a GPU waits for it
FINER = {"float32": "float64", "tf32": "float32", "bfloat16": "float32", "float16": "bfloat16"}  # the next precision


class Diverged(ValueError):
    """A training that can't continue: its loss, gradients or weights are NaN or infinite."""


class Faults:
    """Counts the skipped steps, on the device where they happen.

    skipped   of the whole training
    streak    of those just now, one after the other
    longest   of such streaks

    In float16 a step whose gradients overflowed is skipped and the loss scaled less from then on: a scale that starts
    at 2¹⁶ may cost up to 16 such steps in a row, which is how it is found and no fault. They are not in a streak.
    """

    def __init__(self, skipped=0, streak=0):
        self.skipped, self.streak, self.longest, self.steps = skipped, streak, streak, 0

    def saw(self, result):
        """Count a step; returns whether too many in a row were skipped. Waits for a GPU only every `STEPS_PER_READ`
        steps."""
        lost = 1 - result.applied
        self.skipped = self.skipped + lost
        self.streak = (self.streak + 1 - result.overflowed) * lost
        xp = array_module(result.applied)
        self.longest = xp.maximum(self.longest, self.streak)
        self.steps += 1
        return (xp.__name__ == "numpy" or self.steps % STEPS_PER_READ == 0) and int(self.longest) >= MAX_SKIPPED_STEPS


def explain(model, batch, ctx, objective, lr, config):
    """Name the layer with the first NaN or infinity of a batch, and what to do about it."""
    o = config.optim
    remedies = ["a lower optim.lr" + (" or optim.adam-lr" if o.name == "muon" else ""), "a longer optim.warmup"]
    remedies += ["optim.clip-norm 1"] if o.clip_norm is None else []
    remedies += [f"--precision {FINER[model.precision]}"] if model.precision in FINER else []
    return (
        f"{MAX_SKIPPED_STEPS} steps in a row gave a loss or a gradient that is NaN or infinite; "
        f"{where_first(model, batch, ctx, objective)}. "
        f"The learning rate was {lr:.2g}, the precision {model.precision}: take {', '.join(remedies[:-1])} "
        f"or {remedies[-1]}"
    )


def where_first(model, batch, ctx, objective):
    """The first weight, array of the batch, value or gradient that is not finite, in the order of computation."""
    for name, parameter in model.named_parameters():
        if not all_finite(parameter.data):
            return f"the weights of {name} are the first that are not"
    for name, array in batch.items():
        if not all_finite(array):
            return f"the {name} are the first that are not"
    first = First()
    with model.storage.compute_scope(), model.gradients_into(model.new_gradients()) as gradients:
        ctx = replace(ctx or Context(), observer=first)
        loss, backward, *_ = objective(watch(model, first), batch, ctx)
        if not first.found and not all_finite(loss):
            return "every layer's output is finite and only the loss is not"
        if not first.found:
            backward(1.0)
        if not first.found and not all_finite(gradients):
            return "only the gradient of a parameter is not"
    return f"{first.found} is the first that is not" if first.found else "computed once more, everything is finite"


class First:
    """An observer that remembers the first value or gradient that is not finite."""

    found = None

    def value(self, path, value):
        if self.found is None and not all_finite(value):
            self.found = f"the output of {path or 'the model'}"

    def gradient(self, path, dy, dx):
        if self.found is None and dx is not None and not all_finite(dx):
            self.found = f"the gradient from {path or 'the model'}"


def all_finite(x):
    """Whether every number of an array, or of a tuple of them, is finite."""
    if isinstance(x, tuple):
        return all(map(all_finite, x))
    if str(getattr(x, "dtype", None)) in ("bfloat16", "float16"):
        x = F.cast(x, "float32")
    return bool(array_module(x).isfinite(x).all())
