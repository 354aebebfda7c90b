
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from photos import photos, random_vit
from strategies import seeds

from tinyvit import functional as F
from tinyvit.training import evaluate
from tinyvit.training.tasks.classification import logits_of


@given(size=st.sampled_from([1, 2, 255, 256, 257, 600]), threads=st.integers(1, 3), seed=seeds())
def test_every_image_counts_once_whatever_the_threads(size, threads, seed):
    model, dataset = random_vit(seed), photos(size, seed)
    logits, _ = model(dataset.normalise(dataset.images, "float64"))
    scores = evaluate(model, dataset, threads)
    assert scores["accuracy"] == (logits.argmax(1) == dataset.labels).mean()
    np.testing.assert_allclose(scores["loss"], F.cross_entropy(logits, dataset.labels)[0], rtol=1e-12)


def views(model, dataset):
    """The probabilities of the images, and of their mirror images."""
    images = dataset.normalise(dataset.images, "float64")
    return model.predict(images), model.predict(images[:, :, :, ::-1].copy())


@given(threads=st.integers(1, 3), seed=seeds())
def test_averaging_over_mirror_images_averages_the_probabilities(threads, seed):
    model, dataset = random_vit(seed), photos(9, seed)
    logits = logits_of(model, dataset, threads, tta=True)
    np.testing.assert_allclose(np.exp(logits), sum(views(model, dataset)) / 2, rtol=1e-9)
    np.testing.assert_allclose(np.exp(logits).sum(1), 1, rtol=1e-12)


@given(seed=seeds())
def test_the_averages_loss_is_at_most_the_mean_of_the_losses(seed):
    model, dataset = random_vit(seed), photos(9, seed)
    losses = [-np.log(probs[np.arange(9), dataset.labels]).mean() for probs in views(model, dataset)]
    assert evaluate(model, dataset, tta=True)["loss"] <= sum(losses) / 2 + 1e-12
