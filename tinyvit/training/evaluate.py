"""How well a model does on a data set."""

from tinyvit import functional as F
from tinyvit.data import Loader
from tinyvit.nn import Context
from tinyvit.training.threads import map_threads, slices, threads_for

BATCH = 256  # images at a time, split over the threads


def evaluate(model, dataset, threads=None, stop=None):
    """Accuracy (0 to 1) and mean cross-entropy of a model on a `Dataset`: {"accuracy": …, "loss": …}.

    None if `stop` became true on the way.
    """
    loss = correct = 0

    def run(part):
        images, targets = part
        logits, _ = model(images, Context(keep_caches=False))
        return F.cross_entropy(logits, targets)[0] * len(targets), (logits.argmax(1) == targets).sum()

    for images, targets in Loader(dataset, BATCH, dtype=model.dtype.name, device=model.device).epoch():
        if stop:
            return None
        count = threads_for(images, threads)
        parts = [(images[part], targets[part]) for part in slices(len(images), count)]
        for part_loss, part_correct in map_threads(run, parts, count):
            loss, correct = loss + part_loss, correct + part_correct
    return {"accuracy": float(correct) / len(dataset), "loss": float(loss) / len(dataset)}
