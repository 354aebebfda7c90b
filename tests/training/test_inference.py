
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import ViT, ViTConfig
from tinyvit import functional as F
from tinyvit.data import Dataset
from tinyvit.training import evaluate
from tinyvit.training.tasks.classification import logits_of


def random_vit(seed=0, **options):
    model = ViT(ViTConfig(img_size=2, patch_size=1, in_chans=1, num_classes=3, embed_dim=4, depth=1, num_heads=2),
                dtype="float64", **options)  # fmt: skip
    generator = np.random.default_rng(seed)
    for parameter in model.parameters():
        parameter.data = generator.standard_normal(parameter.shape)
    return model


def noise(size, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 1, 2, 2)).astype("uint8")
    return Dataset(images, generator.integers(0, 3, size), ("cat", "dog", "cow"), (0.5,), (0.25,))


@given(size=st.sampled_from([1, 2, 255, 256, 257, 600]), threads=st.integers(1, 3), seed=seeds())
def test_every_image_counts_once_whatever_the_threads(size, threads, seed):
    model, dataset = random_vit(seed), noise(size, seed)
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
    model, dataset = random_vit(seed), noise(9, seed)
    logits = logits_of(model, dataset, threads, tta=True)
    np.testing.assert_allclose(np.exp(logits), sum(views(model, dataset)) / 2, rtol=1e-9)
    np.testing.assert_allclose(np.exp(logits).sum(1), 1, rtol=1e-12)


@given(seed=seeds())
def test_the_averages_loss_is_at_most_the_mean_of_the_losses(seed):
    model, dataset = random_vit(seed), noise(9, seed)
    losses = [-np.log(probs[np.arange(9), dataset.labels]).mean() for probs in views(model, dataset)]
    assert evaluate(model, dataset, tta=True)["loss"] <= sum(losses) / 2 + 1e-12
