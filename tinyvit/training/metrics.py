"""What logits and labels say about a classifier. NumPy arrays: this is done once, after all images."""

import warnings
from typing import NamedTuple

import numpy as np

from tinyvit.training.evaluate import log_softmax

BINS = 15  # of the calibration error, as in Guo et al.


class Metrics(NamedTuple):
    """accuracy    share of images whose likeliest class is right
    top5_accuracy  share of images of which one of the five likeliest classes (or of all, if there are fewer) is right
    loss           mean cross-entropy
    ece            expected calibration error
    recall         (K,) share of a class's images that are recognised: its accuracy; NaN for a class without images
    precision      (K,) share right of the images taken for a class; NaN for a class that nothing is taken for
    confusion      (K, K) images of class i that are taken for class j
    """

    accuracy: float
    top5_accuracy: float
    loss: float
    ece: float
    recall: np.ndarray
    precision: np.ndarray
    confusion: np.ndarray


def measure(logits, labels):
    """All `Metrics` of logits (n, K) with labels (n,); ValueError if a logit is no finite number."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    check_finite(logits)
    K = logits.shape[1]
    log_probs = log_softmax(logits.astype("float64"))
    ranked = likeliest(logits, 5)
    hits = ranked == labels[:, None]
    predicted, classes = ranked[:, 0], np.arange(K)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A single label")  # a model may have one class
        confusion = confusion_matrix(labels, predicted, labels=classes)
    precision, recall, _, _ = precision_recall_fscore_support(labels, predicted, labels=classes, zero_division=np.nan)
    return Metrics(
        accuracy=float(hits[:, 0].mean()),
        top5_accuracy=float(hits.any(1).mean()),
        loss=float(-log_probs[np.arange(len(labels)), labels].mean()),
        ece=calibration_error(np.exp(log_probs.max(1)), hits[:, 0]),
        recall=recall,
        precision=precision,
        confusion=confusion,
    )


def likeliest(logits, count):
    """The `count` classes (or all) with the highest logits, the highest first; of equal ones the lower class first."""
    return np.argsort(-logits, axis=1, kind="stable")[:, :count]


def calibration_error(confidences, correct, bins=BINS):
    """Expected calibration error Σₘ |Bₘ|/n · |acc(Bₘ) − conf(Bₘ)| over bins of equal width: Bₘ holds the images whose
    highest probability is in ((m−1)/M, m/M]. Guo et al. 2017, "On calibration of modern neural networks", eq. 3.
    """
    where = np.clip(np.ceil(confidences * bins).astype(int) - 1, 0, bins - 1)
    # |Bₘ| · (acc − conf) is the sum of (correct − confidence) in the bin.
    gaps = np.bincount(where, weights=correct - confidences, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidences))


def check_finite(logits):
    """Raise ValueError if a logit is NaN or infinite."""
    if not np.isfinite(logits).all():
        wrong = int(np.flatnonzero(~np.isfinite(logits).all(1))[0])
        raise ValueError(f"the logits of image {wrong} are no finite numbers: the weights are damaged or diverged")
