"""The task clip: images and captions, and zero-shot classification."""

from dataclasses import replace

import numpy as np
import pytest
from steps import advance
from strategies import redrawn
from task_gradients import assert_gradient_is_that_of_the_complex_step

from tinyvit import Key
from tinyvit.data import Augmentation, load
from tinyvit.data.tokenizers import WordTokenizer
from tinyvit.models import ViTConfig
from tinyvit.training import OptimConfig, TrainConfig, preset
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.clip import ClipOptions
from tinyvit.training.trainer import Trainer
from tinyvit.training.zero_shot import image_logits, prompts, text_vectors

SMALL = replace(preset("clip-digits").model, embed_dim=16, depth=1, num_heads=2, text_dim=16, text_heads=2,
                projection_dim=8)  # fmt: skip


def configured(**changes):
    common = dict(model=SMALL, epochs=1, batch_size=1024, device="cpu", threads=1, optim=OptimConfig(lr=3e-3))
    return TrainConfig("coloured-digits", architecture="clip", task="clip", **common | changes)


def begun(**changes):
    """The task, with a random model in float64, and its batch of five images."""
    task, dataset = task_class("clip")(configured(**changes)), load("coloured-digits").train
    model = redrawn(task.build(device="cpu", precision="float64"))
    task.begin(model, 10, dataset)
    return task, model, task.batch(dataset.normalise(dataset.images[:5], "float64"), dataset.labels[:5], Key(0, 3))


def test_the_gradient_of_the_loss_is_that_of_the_complex_step():
    assert_gradient_is_that_of_the_complex_step(*begun())


def test_each_image_has_one_of_its_captions_which_one_depends_on_step_and_sample_alone():
    task, _, batch = begun()
    dataset, tokenizer = load("coloured-digits").train, task.tokenizer
    images, labels = np.zeros((300, 1)), dataset.labels[:300]
    tokens = task.batch(images, labels, Key(0, 3))["tokens"]
    for row, label in zip(tokens, labels):
        assert row.tolist() in tokenizer(prompts([dataset.classes[label]], ("a {}", "the {}", "this {}"))).tolist()
    np.testing.assert_array_equal(tokens[:5], batch["tokens"])
    np.testing.assert_array_equal(task.batch(images[7:], labels[7:], Key(0, 3).skip(7))["tokens"], tokens[7:])
    assert (task.batch(images, labels, Key(0, 4))["tokens"] != tokens).any()
    assert len(set(tokens[:, 1].tolist())) == 3, "all templates are used"


def test_the_accuracy_of_a_batch_counts_equal_captions_as_right():
    task, model, batch = begun()
    tokens = np.repeat(batch["tokens"][:1], 5, axis=0)
    loss, _, metrics = task.loss(model, batch | {"tokens": tokens}, None)
    assert metrics["accuracy"] == 1 and loss >= np.log(5) - 1e-9, "no image knows which of five equal captions is its"


def test_a_batch_is_never_split():
    trainers = [Trainer(configured(threads=threads, precision="float64")) for threads in (1, 3)]
    for batch in list(trainers[0].batches())[:2]:
        results = [advance(trainer, batch) for trainer in trainers]
        np.testing.assert_allclose(results[1].loss, results[0].loss, rtol=1e-13)
    with pytest.raises(ValueError, match="optim.accumulate must be 1 for the task 'clip', got 2"):
        configured(optim=OptimConfig(accumulate=2))


@pytest.mark.parametrize("before, after", [(-0.5, 0), (5.0, np.log(100)), (3.0, 3.0)])
def test_the_scale_is_set_back_into_0_to_ln_100_after_a_step(before, after):
    task, model, _ = begun()
    model.logit_scale.data = np.array(before)
    task.after_step(model, 0, True)
    np.testing.assert_allclose(model.logit_scale.data, after, rtol=1e-14)
    assert model.logit_scale.data.shape == ()


def test_an_ensemble_of_prompts_is_the_direction_of_their_mean():
    _, model, _ = begun()
    tokenizer = WordTokenizer(SMALL.vocabulary, SMALL.context_length)
    texts, templates = ["red seven", "blue one on the left"], ("a {}", "the {}")
    vectors = text_vectors(model, tokenizer, texts, templates)
    singles = [text_vectors(model, tokenizer, texts, (template,)) for template in templates]
    mean = sum(singles) / 2
    np.testing.assert_allclose(vectors, mean / np.linalg.norm(mean, axis=1, keepdims=True), rtol=1e-12)
    images = np.random.default_rng(0).standard_normal((4, 3, 16, 16))
    logits, _ = model.compare(images, tokenizer(["a red seven", "a blue one on the left"]))
    np.testing.assert_allclose(image_logits(model, singles[0], images, threads=2), logits, rtol=1e-10)


def test_seen_and_unseen_pairs_are_counted_apart():
    task, model, _ = begun()
    test = load("coloured-digits").test
    vectors = text_vectors(model, task.tokenizer, test.classes, task.config.objective.templates)
    right = image_logits(model, vectors, test.normalise(test.images, "float64")).argmax(1) == test.labels
    seen = np.isin(test.labels, load("coloured-digits").train.labels)
    expected = {"seen_accuracy": right[seen].mean(), "unseen_accuracy": right[~seen].mean(), "chance_accuracy": 1 / 180}
    assert task.evaluate(model, test) == pytest.approx(expected)
    later = task_class("clip")(configured())
    later.train = load("coloured-digits").train
    assert later.evaluate(model, test) == pytest.approx(expected), "as a later command asks"
    assert task.evaluate(model, test, stop=[True]) is None


def test_with_images_set_aside_only_pairs_that_were_seen_are_evaluated():
    trainer = Trainer(configured(validation=0.1))
    assert trainer.evaluate().keys() == {"seen_accuracy", "chance_accuracy"} == set(trainer.task.scores)


@pytest.mark.parametrize("change, message", [
    (dict(model=ViTConfig(img_size=16), architecture="vit"), "architecture must be clip for the task 'clip'"),
    (dict(augment=Augmentation(flip=True)), "augment.flip must be False for the task 'clip'.* got True"),
    (dict(augment=Augmentation(policy="rand")), "augment.policy must be none .* got 'rand'"),
    (dict(augment=Augmentation(mixup=0.2)), "augment.mixup must be 0 .* got 0.2"),
    (dict(augment=Augmentation(cutmix=0.2)), "augment.cutmix must be 0 .* got 0.2"),
    (dict(freeze="embed"), "freeze must be none for the task 'clip', got 'embed'"),
    (dict(optim=OptimConfig(keep_patches=0.5)), "optim.keep-patches must be 1 for the task 'clip', got 0.5"),
    (dict(optim=OptimConfig(label_smoothing=0.1)), "optim.label-smoothing must be 0 for the task 'clip', got 0.1"),
    (dict(task="classification"), "a CLIP tells images apart by texts and has no head for classes"),
])  # fmt: skip
def test_what_can_not_be_trained_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Trainer(replace(configured(), **change, **({"objective": None} if "task" in change else {})))


def test_captions_with_unknown_words_are_refused_with_the_vocabulary_that_they_need():
    with pytest.raises(ValueError, match=r"words that model\.vocabulary lacks: photo; .*--model\.vocabulary a blue"):
        Trainer(configured(objective=ClipOptions(("a photo on the {}",))))
