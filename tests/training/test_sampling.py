"""Images out of noise."""

from dataclasses import replace

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import Key
from tinyvit import functional as F
from tinyvit.models import DiTConfig, build
from tinyvit.training import sampling
from tinyvit.training.sampling import sample, times

CONFIG = DiTConfig(img_size=4, patch_size=2, in_chans=1, num_classes=3, embed_dim=8, depth=1, num_heads=2)
LEVELS = F.noise_levels("linear", 1000)
LABELS = np.arange(20) % 3


def drawn(dtype="float32", **changes):
    return redrawn(build(replace(CONFIG, **changes), dtype=dtype))


@pytest.mark.parametrize("method", ["ddim", "ddpm"])
@pytest.mark.parametrize("learn_sigma", [False, True])
def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(method, learn_sigma):
    model = drawn(learn_sigma=learn_sigma)
    options = dict(steps=5, guidance=2.0, method=method, seed=3, limits=(-1, 1))
    first, *others = (sample(model, LEVELS, LABELS, threads=threads, **options).images for threads in (1, 2, 1))
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert first.dtype == "float32" and first.shape == (20, 1, 4, 4)
    assert (sample(model, LEVELS, LABELS, **options | {"seed": 4}).images != first).any()


def test_a_few_images_of_a_large_model_have_the_same_bits_on_any_number_of_threads():
    model = drawn(img_size=8, embed_dim=96, num_heads=3)  # products large enough for two threads of a BLAS
    options = dict(steps=3, guidance=2.0, limits=(-1, 1))
    many = sample(model, LEVELS, LABELS, threads=2, **options).images
    for count, threads in ((7, 1), (7, 2), (20, 1)):
        found = sample(model, LEVELS, LABELS[:count], threads=threads, **options).images
        np.testing.assert_array_equal(found, many[:count])


@pytest.mark.parametrize("method", ["ddim", "ddpm"])
def test_an_image_does_not_depend_on_the_others_that_are_made_with_it(method):
    model = drawn()
    options = dict(steps=4, guidance=2.0, method=method, limits=(-1, 1))
    all_of_them = sample(model, LEVELS, LABELS, **options).images
    for count in (1, 3, 17):
        np.testing.assert_array_equal(sample(model, LEVELS, LABELS[:count], **options).images, all_of_them[:count])
    others = LABELS.copy()
    others[1:] = 2 - others[1:]
    np.testing.assert_array_equal(sample(model, LEVELS, others, **options).images[0], all_of_them[0])
    assert len({image.tobytes() for image in all_of_them}) == len(LABELS)


class Knowing:
    """In the place of a model: finds the noise that has to be in `x` if the image is `image`."""

    device, config, image_shape = "cpu", CONFIG, (1, 4, 4)

    def __init__(self, image):
        self.image, self.model = image, build(CONFIG, dtype="float64")
        self.storage, self.dtype = self.model.storage, self.model.dtype

    def __call__(self, x, ctx, t, labels):
        level = LEVELS[t][:, None, None, None]
        return (x - level**0.5 * self.image) / (1 - level) ** 0.5, None


@pytest.mark.parametrize("method", ["ddim", "ddpm"])
@pytest.mark.parametrize("steps", [1, 2, 10, 1000])
def test_a_model_that_knows_the_noise_leads_to_its_image_in_any_number_of_steps(method, steps):
    image = np.random.default_rng(0).standard_normal((1, 4, 4))
    made = sample(Knowing(image), LEVELS, np.array([1]), steps=steps, method=method)
    np.testing.assert_allclose(made.images[0], image, atol=1e-9)


def test_steps_are_evenly_chosen_from_the_last_to_the_first():
    np.testing.assert_array_equal(times(1000, 1000), np.arange(1000)[::-1])
    for steps in range(2, 30):
        found = times(1000, steps)
        assert len(found) == steps and found[0] == 999 and found[-1] == 0 and (np.diff(found) < 0).all()
    assert times(1000, 1).tolist() == [999]
    for steps in (0, 1001):
        with pytest.raises(ValueError, match=f"expected 1 to 1,000 steps.*got {steps:,}"):
            times(1000, steps)


def test_guidance_0_is_the_class_none_and_1_is_without_it():
    model = drawn("float64")
    x, labels = np.random.default_rng(0).standard_normal((2, 1, 4, 4)), np.array([0, 2])
    with_class, without = (model(x, t=np.full(2, 7), labels=classes)[0] for classes in (labels, np.full(2, 3)))
    for guidance, expected in ((0, without), (1, with_class), (3.0, without + 3 * (with_class - without))):
        np.testing.assert_allclose(sampling.predict_noise(model, x, 7, labels, guidance)[0], expected, rtol=1e-12)


def test_a_learned_variance_lies_between_its_limits():
    v = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(sampling.deviation(v, 0.01, 0.04) ** 2, [0.01, 0.02, 0.04])
    assert sampling.deviation(None, 0.01, 0.04) == pytest.approx(0.1)


def test_states_on_the_way_go_from_noise_to_the_images_and_guesses_are_clipped():
    model, told = drawn("float64"), []
    made = sample(model, LEVELS, LABELS, steps=6, seed=2, keep=4, limits=(-0.5, 0.5), progress=told.append)
    assert made.steps.shape == (4, 20, 1, 4, 4) and sum(told) == 6 * 20
    np.testing.assert_array_equal(made.steps[-1], made.images)
    np.testing.assert_array_equal(made.steps[0], Key(2, path="sample.start").normal((20, 1, 4, 4), dtype="float64"))
    assert np.abs(made.images).max() <= 0.5
    assert sample(model, LEVELS, LABELS[:1], steps=2).steps.shape == (0, 1, 1, 4, 4)


@pytest.mark.parametrize("changes, options, message", [
    ({}, dict(labels=np.array([0, 3])), "expected classes from 0 to 2, got 0 to 3"),
    ({}, dict(guidance=-1), "expected a guidance of at least 0, got -1"),
    ({}, dict(guidance=float("nan")), "expected a guidance of at least 0, got nan"),
    (dict(label_dropout=0.0), dict(guidance=2), "guidance 2 needs a model that was trained with label dropout"),
])  # fmt: skip
def test_what_can_not_be_sampled_is_refused(changes, options, message):
    with pytest.raises(ValueError, match=message):
        sample(drawn(**changes), LEVELS, **{"labels": LABELS, "steps": 2} | options)


def test_weights_that_have_diverged_are_reported():
    model = drawn()
    model.final_layer.linear.bias.data = np.full(4, np.nan)
    with pytest.raises(ValueError, match="the images are NaN or infinite: the weights are damaged or diverged"):
        sample(model, LEVELS, LABELS[:1], steps=2)
