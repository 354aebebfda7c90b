"""Zero-shot classification: each image by its most similar text.

Radford et al. 2021, "Learning transferable visual models from natural language supervision", section 3.1.
"""

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.nn import Context
from tinyvit.training.inference import in_parts
from tinyvit.validation import require

AS_IT_IS = ("{}",)
MAX_TEXTS = 256  # at a time


def prompts(texts, templates=AS_IT_IS):
    """Each of K texts in each of P templates, "a photo of a {}": a list of K·P texts, those of a text together.

    Raises ValueError for a template without exactly one place for the text.
    """
    for template in templates:
        check_template(template)
    return [template.replace("{}", text) for text in texts for template in templates]


def check_template(template, owner="a template"):
    require(template.count("{}") == 1, f"{owner} must have one {{}} for the text", template)


def text_vectors(model, tokenizer, texts, templates=AS_IT_IS):
    """Vectors (K, P) of length 1 for K texts, on the model's device; for several prompts, the direction of their mean.

    An ensemble of prompts, section 3.1.4: each prompt's vector has length 1 before the mean is taken.
    """
    tokens = to_device(tokenizer(prompts(texts, templates)), model.device)
    ctx = Context(keep_caches=False)
    with model.storage.compute_scope():
        parts = [unit(model, model.text(tokens[i : i + MAX_TEXTS], ctx)[0]) for i in range(0, len(tokens), MAX_TEXTS)]
        vectors = array_module(tokens).concatenate(parts)                      # (K · prompts, P)
        mean = vectors.reshape(len(texts), len(templates), -1).mean(1)
        return F.l2_normalise(mean)[0]


def unit(model, vectors):
    """Vectors with length 1, in the dtype of the model's parameters."""
    return F.l2_normalise(F.cast(vectors, model.dtype))[0]


def image_logits(model, vectors, images, threads=None):
    """The logits (B, K) of normalised images for texts with these `text_vectors`, in parts by several threads."""

    def run(part):
        x, _ = model(part, Context(keep_caches=False))
        return F.similarity(unit(model, x), vectors, model.logit_scale.data)[0]

    return in_parts(run, model, images, threads)


def match(model, preprocessing, vectors, paths, threads=None):
    """A `FileResult` for each image file, in order, with the probabilities (K,) of the texts; one for each file that
    can't be read, too.

    vectors   of the texts, `text_vectors`
    paths     files and folders; of folders, their `image_files`

    Raises ValueError where the model's output is NaN or infinite.
    """
    from tinyvit.training.metrics import check_finite
    from tinyvit.training.predict import of_files

    def probabilities(images, _):
        logits = to_numpy(image_logits(model, vectors, images, threads)).astype("float64")
        check_finite(logits)
        return F.softmax(logits)[0]

    return of_files(probabilities, model, preprocessing, paths, threads)
