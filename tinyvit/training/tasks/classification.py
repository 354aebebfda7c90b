"""Classification: cross-entropy with the labels, judged by accuracy."""

from functools import partial
from math import log

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module, each_image
from tinyvit.backend import to_numpy
from tinyvit.functional.softmax import log_softmax
from tinyvit.models.architecture import Architecture, require_classes
from tinyvit.models.registry import ARCHITECTURES
from tinyvit.nn import Context, buffer_updates
from tinyvit.training.inference import forwards, in_parts
from tinyvit.training.tasks.task import Task, register
from tinyvit.validation import require

SAME_CLASS = 0.9  # share of images that get one and the same class, above which a classifier has learned little


@register("classification")
class Classification(Task):
    """Which class an image belongs to. optim.label-smoothing and optim.keep-patches are its options."""

    metrics, score_names = ("accuracy",), ("accuracy", "loss")
    headings, shares = {"accuracy": "acc."}, frozenset({"accuracy"})
    higher_is_better = True
    needs_classes = classifies = static = True
    same_class_evaluations = 0  # in a row, in which most images, and most of them wrongly, got one and the same class

    @classmethod
    def check(cls, config):
        super().check(config)
        keep, (architecture, _) = config.optim.keep_patches, ARCHITECTURES.find(config.architecture)
        require(keep == 1 or architecture.forward_some is not Architecture.forward_some, "optim.keep-patches must be 1 "
                f"for the architecture {config.architecture!r}, which needs all of its patches", keep)  # fmt: skip

    def batch(self, images, targets, key):
        return {"images": images, "targets": targets}

    def graph_of(self, step):
        return self.kept(step)

    def kept(self, step):
        """The share of an image's patches that a step of training sees."""
        o = self.config.optim
        return o.keep_patches if step < o.keep_until * self.total_steps else 1.0

    def loss(self, model, batch, ctx):
        o, keep = self.config.optim, 1.0 if ctx is None or not ctx.training else self.kept(ctx.key.step)
        return loss_of_classes(o.label_smoothing, keep, self.frozen, model, batch["images"], batch["targets"], ctx)

    def evaluate(self, model, dataset, threads=None, stop=None):
        scores = evaluate(model, dataset, threads, stop=stop)
        if scores is None:
            return None
        same = scores["commonest"] > SAME_CLASS > scores["accuracy"]
        self.same_class_evaluations = same * (self.same_class_evaluations + 1)
        return {f"{self.part}_{name}": scores[name] for name in ("loss", "accuracy")}

    def warning(self, scores):
        """The advice after two evaluations in a row in which nearly all images got the same class; else None."""
        if self.same_class_evaluations != 2:
            return None
        return (f"in two evaluations in a row more than {100 * SAME_CLASS:.0f} % of the {self.part} images got the "
                "same class; notebook 21 shows usual reasons and how to tell them apart")  # fmt: skip

    def report(self, model, dataset, threads=None, tta=False, confusion=None):
        from tinyvit.training.metrics import report_of, save_confusion

        require_classes(model)
        report = report_of(logits_of(model, dataset, threads, tta), dataset, self.part)
        if confusion is not None:
            save_confusion(confusion, report.figures["confusion"], dataset.classes)
        return report


def classification(label_smoothing=0.0, keep=1.0, frozen=0):
    """The objective (model, images, targets, ctx) of a classifier: cross-entropy, with the accuracy as a metric.

    keep   the share of an image's patches that the blocks see, others at every step: a step on half of them takes half
           of the time. Liu et al. 2022, "PatchDropout: economizing vision transformers using patch dropout"
    frozen how many parts of the model are frozen, from the images on: the backward ends above them. With keep < 1 it
           goes all the way, and gives them no gradients all the same
    """
    return partial(loss_of_classes, label_smoothing, keep, frozen)


def loss_of_classes(label_smoothing, keep, frozen, model, images, targets, ctx):
    """(loss, backward, metrics) of a batch, and the updates of buffers if there are any; see `classification`."""
    require_classes(model)
    if keep < 1:
        (logits, cache), backward_model = model.forward_some(images, keep, ctx), model.backward_some
    elif frozen:
        (logits, cache), backward_model = model.forward_above(images, frozen, ctx), model.backward_above
    else:
        (logits, cache), backward_model = model(images, ctx), model.backward
    loss, loss_cache = F.cross_entropy(logits, targets, label_smoothing)

    def backward(dloss=1.0):
        return backward_model(F.cross_entropy_backward(dloss, loss_cache), cache)

    labels, scores = targets if targets.ndim == 1 else targets.argmax(1), F.cast(logits, loss.dtype)
    metrics = {"accuracy": (scores.argmax(1) == labels).mean(dtype=loss.dtype)}
    updates = buffer_updates(cache)
    return (loss, backward, metrics, updates) if updates else (loss, backward, metrics)


def evaluate(model, dataset, threads=None, tta=False, stop=None):
    """Scores of a model on a `Dataset`: {"accuracy": …, "loss": …, "commonest": …}.

    They are the accuracy from 0 to 1, the mean cross-entropy, and the share of the images that get the class which the
    model predicts most often.

    None if `stop` became true meanwhile.
    """
    loss = correct = counts = 0
    for images, targets in forwards(model, dataset):
        if stop:
            return None
        logits = classify(model, images, threads, tta)
        with model.storage.on_device():
            loss = loss + F.cross_entropy(logits, targets)[0] * len(targets)
            predicted = logits.argmax(1)
            correct = correct + (predicted == targets).sum()
            counts = counts + array_module(logits).bincount(predicted, minlength=logits.shape[1])
    sums = {"accuracy": correct, "loss": loss, "commonest": to_numpy(counts).max()}
    return {name: float(total) / len(dataset) for name, total in sums.items()}


def logits_of(model, dataset, threads=None, tta=False):
    """The logits (n, K) of all images of a `Dataset`, as a NumPy array; with `tta`, as `classify` says."""
    found = [to_numpy(classify(model, images, threads, tta)) for images, _ in forwards(model, dataset)]
    return np.concatenate(found)


def classify(model, images, threads=None, tta=False):
    """The logits (B, K) of a batch, or of its pixels (B, K, H, W), in the dtype of the model's parameters, computed in
    parts by several threads.

    With `tta` (test-time augmentation) they are log((p + p′)/2), the probabilities averaged over each image and its
    mirror image. The mean of probabilities, not of their logarithms: one view that is sure of the wrong class can't
    veto what the other sees. As −log is convex, the loss is at most the mean of the two views' losses.

    On a CPU the process keeps the memory that this takes for the next time.
    """
    require_classes(model)

    def logits_of_part(part):
        return F.cast(model(part, Context(keep_caches=False))[0], model.dtype)

    def run(part):
        logits = logits_of_part(part)
        if not tta:
            return logits
        mirrored = logits_of_part(each_image(lambda images: images[..., ::-1], part))
        return array_module(logits).logaddexp(log_softmax(logits), log_softmax(mirrored)) - log(2)

    return in_parts(run, model, images, threads)
