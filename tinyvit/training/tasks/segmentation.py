"""Segmentation: a class for each pixel, judged by the mean intersection over union.

Long et al. 2015, "Fully convolutional networks for semantic segmentation"; Strudel et al. 2021, "Segmenter".
"""

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import IGNORED, array_module
from tinyvit.backend import to_numpy
from tinyvit.nn import buffer_updates
from tinyvit.training.display import percent, table
from tinyvit.training.inference import forwards
from tinyvit.training.tasks.classification import classify
from tinyvit.training.tasks.task import Report, Task, register


@register("segmentation")
class Segmentation(Task):
    """Cross-entropy of the pixels, a mean over those of the whole batch whose label isn't ignored.

    Parts of a batch, in threads and ranks, exchange how many pixels they count: none weighs more for having fewer.
    """

    metrics, score_names = ("pixel_accuracy",), ("mean_iou", "pixel_accuracy", "loss")
    headings, shares = (
        {"iou": "IoU", "accuracy": "acc.", "pixel_accuracy": "pixel acc."},
        frozenset({"iou", "accuracy", "pixel_accuracy"}),
    )
    higher_is_better = True
    needs_classes = exchanges = labels_pixels = True
    only = {  # noqa: RUF012 (only read); labels are not mixed, and not resized in the middle of a training
        "architecture": "segmenter", "augment.mixup": 0, "augment.cutmix": 0, "optim.keep_patches": 1,
        "optim.label_smoothing": 0, "optim.small_sizes": (),
    }  # fmt: skip

    def batch(self, images, targets, key):
        return {"images": images, "labels": targets}

    def loss(self, model, batch, ctx):
        images, labels = batch["images"], batch["labels"]
        if self.frozen:
            (logits, cache), backward_model = model.forward_above(images, self.frozen, ctx), model.backward_above
        else:
            (logits, cache), backward_model = model(images, ctx), model.backward
        counted = labels != IGNORED
        count = share_of_count(counted, ctx)
        loss, c_loss = F.pixel_cross_entropy(logits, labels, IGNORED, count)

        def backward(dloss=1.0):
            return backward_model(F.pixel_cross_entropy_backward(dloss, c_loss), cache)

        right = (F.cast(logits, loss.dtype).argmax(1) == labels) & counted
        xp = array_module(labels)
        accuracy = (right.sum() / xp.where(count > 0, count, 1)).astype(loss.dtype)
        return loss, backward, {"pixel_accuracy": accuracy}, buffer_updates(cache)

    # -- evaluation ------------------------------------------------------------------------------------------------

    headline = "mean_iou"

    @property
    def scores(self):
        return "mean_iou", "pixel_accuracy", f"{self.part}_loss"

    def evaluate(self, model, dataset, threads=None, stop=None):
        found = measure(model, dataset, threads, stop)
        if found is None:
            return None
        self.confusion, loss = found
        right = float(np.trace(self.confusion) / max(1, self.confusion.sum()))
        return dict(zip(self.scores, (mean_iou(self.confusion), right, loss)))

    def report(self, model, dataset, threads=None, tta=False, confusion=None):
        from tinyvit.training.metrics import by_name, save_confusion

        figures, rows, text = super().report(model, dataset, threads, tta)
        shares = by_name(dataset.classes, overlaps(self.confusion))
        if confusion is not None:
            save_confusion(confusion, self.confusion, dataset.classes)
        figures |= {"per_class": shares, "confusion": self.confusion.tolist()}
        by_class = table((name, percent(share)) for name, share in shares.items())
        return Report(figures, rows, f"{text}\n\n  IoU by class\n{by_class}")


def share_of_count(counted, ctx):
    """The number of pixels that count in the whole batch, by the share of its samples that this part has."""
    own = counted.sum()
    if ctx is None or ctx.join is None:
        return own
    counts, samples = zip(*ctx.join((own, len(counted))))
    return sum(counts) * (len(counted) / sum(samples))


def measure(model, dataset, threads=None, stop=None):
    """The confusion matrix (K, K) of all pixels of a `Dataset`, pixels of class i that are predicted as class j, and
    their mean cross-entropy; None if `stop` became true meanwhile."""
    K, total, loss = len(dataset.classes), 0, 0
    for images, labels in forwards(model, dataset):
        if stop:
            return None
        logits = classify(model, images, threads)
        xp = array_module(logits)
        with model.storage.on_device():
            counted = labels != IGNORED
            pairs = xp.where(counted, labels * K + logits.argmax(1), K * K).ravel()
            total = total + xp.bincount(pairs, minlength=K * K + 1)
            loss = loss + F.pixel_cross_entropy(logits, labels, IGNORED, 1)[0]
    matrix = to_numpy(total)[:-1].reshape(K, K)
    return matrix, float(loss) / max(1, int(matrix.sum()))


def overlaps(confusion):
    """Intersection over union (K,) of each class by a confusion matrix (K, K); NaN for one that is neither in the truth
    nor predicted."""
    both = np.diag(confusion)
    either = confusion.sum(0) + confusion.sum(1) - both
    return np.where(either > 0, both / np.maximum(either, 1), np.nan)


def mean_iou(confusion):
    """The mean of `overlaps` over the classes in the truth or in the prediction, 0 if there are none."""
    shares = overlaps(confusion)
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else 0.0
