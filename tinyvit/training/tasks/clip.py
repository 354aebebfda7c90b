"""CLIP: images and their captions, each of which is to find the other among all of a batch.

Radford et al. 2021, "Learning transferable visual models from natural language supervision".
"""

from dataclasses import dataclass

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.data.tokenizers import WordTokenizer, vocabulary_of
from tinyvit.functional.contrastive import LARGEST_LOGIT_SCALE
from tinyvit.training.inference import forwards
from tinyvit.training.tasks.task import Options, Task, register
from tinyvit.training.zero_shot import check_template, image_logits, prompts, text_vectors
from tinyvit.validation import require


@dataclass(frozen=True)
class ClipOptions(Options):
    """The captions."""

    templates: tuple[str, ...] = ("a {}", "the {}", "this {}")
    """Captions, with {} for the name of an image's class. A training step draws one for each image; zero-shot
    classification takes the mean over all of them."""
    equal_captions: bool = False
    """Whether all images of a batch that have the same caption are pairs with it; if not, only its own image is."""

    def __post_init__(self):
        super().__post_init__()
        require(len(self.templates) > 0, "objective.templates must have at least one caption", self.templates)
        for template in self.templates:
            check_template(template, "a caption of objective.templates")


@register("clip")
class ContrastivePairs(Task):
    """The contrastive loss of images and captions, over the whole batch: it is never split. Of several processes each
    compares all images with all captions.

    Evaluated is zero-shot classification: an image is of the class whose captions it is most like, among all of the
    data set's. Classes that no training image shows are told apart: `unseen_accuracy` is the share of their images that
    are classified correctly, where there are any, `seen_accuracy` that of the others, and `chance_accuracy` what
    guessing gives.
    """

    options = ClipOptions
    metrics = ("accuracy",)
    headings, shares = {"accuracy": "acc."}, frozenset({"accuracy"})
    higher_is_better = True
    command = "match"
    needs_training_set = True
    mixes_samples = gathers = True
    only = {  # noqa: RUF012 (only read); captions name places and colours
        "architecture": "clip", "augment.flip": False, "augment.policy": "none", "augment.mixup": 0,
        "augment.cutmix": 0, "freeze": None, "optim.keep_patches": 1, "optim.label_smoothing": 0,
    }  # fmt: skip

    def __init__(self, config, part=None):
        super().__init__(config, part)
        self.tokenizer = WordTokenizer(config.model.vocabulary, config.model.context_length)

    # -- a step ----------------------------------------------------------------------------------------------------

    def begin(self, model, total_steps, dataset):
        super().begin(model, total_steps, dataset)
        texts = prompts(dataset.classes, self.config.objective.templates)
        lacking = [word for word in vocabulary_of(texts) if word not in self.tokenizer.numbers]
        if lacking:
            raise ValueError(f"the captions have words that model.vocabulary lacks: {' '.join(lacking)}; give all of "
                             f"them: --model.vocabulary {' '.join(vocabulary_of(texts))}")  # fmt: skip
        tokens = self.tokenizer(texts).reshape(len(dataset.classes), -1, self.tokenizer.context_length)
        self.captions = to_device(tokens, model.device)                        # (K, templates, T)

    def batch(self, images, targets, key):
        xp, count = array_module(images), self.captions.shape[1]
        chosen = (key.at("captions").uniform((len(images), 1), xp)[:, 0] * count).astype("int64")
        return {"images": images, "tokens": self.captions[targets, chosen]}

    def loss(self, model, batch, ctx):
        logits, cache = model.compare(batch["images"], batch["tokens"], ctx)
        tokens, _ = F.gather_batch(batch["tokens"], ctx and ctx.join)
        alike = (tokens[:, None] == tokens).all(-1)                            # (B, B)
        loss, c_loss = F.contrastive_loss(logits, alike if self.config.objective.equal_captions else None)

        def backward(dloss=1.0):
            return model.compare_backward(F.contrastive_loss_backward(dloss, c_loss), cache)

        right = alike[logits.argmax(1), array_module(logits).arange(len(logits))]  # an image's first choice
        return loss, backward, {"accuracy": right.mean(dtype=loss.dtype)}

    def after_step(self, model, step, applied):
        """Set the learned temperature back into its bounds, as Open CLIP does."""
        s = model.logit_scale
        s.data = array_module(s.data).clip(s.data, 0, LARGEST_LOGIT_SCALE)

    # -- evaluation ------------------------------------------------------------------------------------------------

    headline = "seen_accuracy"

    @property
    def scores(self):
        unseen = ("unseen_accuracy",) if self.part == "test" and self.config.dataset == "coloured-digits" else ()
        return "seen_accuracy", *unseen, "chance_accuracy"

    @property
    def columns(self):
        return [name for name in super().columns if name != "chance_accuracy"]

    def evaluate(self, model, dataset, threads=None, stop=None):
        vectors = text_vectors(model, self.tokenizer, dataset.classes, self.config.objective.templates)
        right = []
        for images, labels in forwards(model, dataset):
            if stop:
                return None
            found = image_logits(model, vectors, images, threads).argmax(1)
            right.append(to_numpy(found == labels))
        right, seen = np.concatenate(right), np.isin(dataset.labels, self.train.labels)
        figures = {"seen_accuracy": right[seen].mean(), "chance_accuracy": 1 / len(dataset.classes)}
        return figures | ({"unseen_accuracy": right[~seen].mean()} if not seen.all() else {})
