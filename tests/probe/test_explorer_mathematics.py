"""The page's own forward and backward in Chromium, held to Python's numbers."""

import base64
from functools import cache

import numpy as np
import pytest
from pages import about
from reading import unpacked
from strategies import redrawn

from tinyvit import ViT, ViTConfig, data, load, probe
from tinyvit.models.vit_config import POSITIONS
from tinyvit.probe.explorer import MATHEMATICS, explorer, source

pytestmark = pytest.mark.browser

CLOSE = 1e-5
KINDS = {
    "a narrow deep one": {"embed_dim": 16, "depth": 5, "num_heads": 2},
    "one head": {"num_heads": 1},
    "heads of one number": {"embed_dim": 8, "num_heads": 8},
    "one patch": {"patch_size": 8},
    "oblong images and patches, two channels": {"img_size": (6, 16), "patch_size": (2, 8), "in_chans": 2},
    "the mean of the patches": {"global_pool": "avg"},
    "a hidden layer in the head, by the mean": {"head_hidden": 5, "global_pool": "avg"},
    "no bias of queries, keys and values": {"qkv_bias": False},
    "tanh": {"activation": "gelu_tanh"},
    "another epsilon": {"norm_eps": 1e-3},
    **{f"positions {name}": {"positions": name} for name in POSITIONS},
}
# A forward and backward of each of many images, by the page's own files: (images, labels, on) to a list of results.
COMPUTE = """async ({ images, labels, on, config, weights, parameters }) => {
    const w = Object.fromEntries(weights.map(([name, shape, data]) => [name, tensor(shape, Float64Array.from(data))]));
    return images.map((pixels, i) => {
        const image = tensor([config.in_chans, ...config.img_size], Float64Array.from(pixels));
        const [logits, cache] = vit(image, w, config, on);
        const [loss, c_loss] = cross_entropy(logits, labels[i]);
        const grads = {}, [dpixels, gradients] = vit_backward(cross_entropy_backward(c_loss), cache, grads);
        const arrays = {
            logits, probabilities: c_loss.probs, dpixels, stream: stack(cache.stream),
            dstream: stack(gradients.dstream),
            attention: stack(cache.blocks.map((own) => own.attn.heads.probs)),
            dattention: stack(gradients.blocks.map((own) => own.dprobs)),
            ...(parameters && Object.fromEntries(Object.entries(grads).map(([name, grad]) => [`d ${name}`, grad]))),
        };
        const text = ({ data }) => {                    // base64: as JSON, numbers of this many digits take minutes
            const bytes = new Uint8Array(data.slice().buffer);
            return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
        };
        const held = ([name, array]) => [name, array.shape, text(array)];
        return [loss, Object.entries(arrays).map(held)];
    });
}"""


@cache
def script():
    """The page's mathematics, whose functions a test calls by name."""
    return "\n".join(source(f"{name}.js") for name in MATHEMATICS)


def computed(page, html, images, labels, on=None, parameters=True):
    """[(loss, arrays by name)] of each image, by the JavaScript with the weights that are in a page.

    With `parameters` also the gradients of all parameters, which are many numbers.
    """
    held, model = about(html)["live"], about(html)["model"]
    weights = unpacked(held["weights"], held["layout"])
    found = page.evaluate(
        f"(given) => {{ {script()}\n return ({COMPUTE})(given); }}",
        {
            "images": [image.ravel().tolist() for image in images], "labels": [int(label) for label in labels],
            "on": on or [[1] * model["num_heads"]] * model["depth"], "config": model,
            "parameters": parameters,
            "weights": [[name, list(x.shape), x.ravel().tolist()] for name, x in weights.items()],
        },
    )  # fmt: skip
    def array(shape, text):
        return np.frombuffer(base64.b64decode(text), "<f8").reshape(shape)

    return [(loss, {name: array(shape, text) for name, shape, text in arrays}) for loss, arrays in found]


def same(model, image, label, found):
    """Compare the JavaScript's numbers with a trace of the model in float64."""
    loss, arrays = found
    seen = probe.trace(model, image[None], [label])
    expected = {
        "logits": seen.logits, "probabilities": seen.probabilities, "attention": seen.attention[:, 0],
        "dattention": seen.attention_gradients[:, 0], "stream": seen.residual_stream[:, 0],
        "dstream": np.stack([seen.gradients[path][0][0] for path in seen.layers]),
        "dpixels": seen.gradients[""][1][0],
        **{f"d {name}": gradient for name, gradient in seen.parameter_gradients.items()
           if name.startswith(("blocks.", "norm.", "pre_logits.", "head."))},
    }  # fmt: skip
    assert abs(loss - seen.loss) < CLOSE
    assert set(arrays) == set(expected)
    for name, array in expected.items():
        assert arrays[name].shape == array.shape, name
        np.testing.assert_allclose(arrays[name], array, rtol=0, atol=CLOSE, err_msg=name)


def page_and_twin(model, **normalisation):
    """A page of one image, and the model in float64 with the weights that are in the page, which are float32."""
    nothing = np.zeros((1, *model.embed.image_shape))
    classes = [str(k) for k in range(model.config.num_classes)]
    page = explorer(model, nothing, [0], nothing.astype("uint8"), classes, ["nothing"], **normalisation)
    twin = ViT(model.config, dtype="float64")
    twin.load_state_dict({name: x.astype("float32").astype("float64") for name, x in model.state_dict().items()})
    return page.html, twin


def drawn(count, seed=0):
    """Images as people draw them: black, with strokes that are fully lit, or half, from pixel to pixel."""
    random = np.random.default_rng(seed)
    images = np.zeros((count, 1, 8, 8))
    for image in images[:, 0]:
        row, column = random.integers(0, 8, 2)
        for step in random.integers(-1, 2, (random.integers(1, 30), 2)):
            row, column = np.clip((row + step[0], column + step[1]), 0, 7)
            image[row, column] = random.choice([0.5, 1])
    return images


@pytest.fixture(scope="module")
def digits_model():
    return load("digits")


def test_probabilities_attention_and_gradients_of_100_images_are_pythons(browse, digits_model):
    """Sixty test images and forty drawn ones, of the trained model in the README's film, in its own float32 too.

    There a gradient has float32's rounding, which grows with the largest of its numbers and differs by processor.
    """
    test = data.digits().test
    images = np.concatenate([
        test.normalise(test.images[:60], "float64"), (drawn(40) - test.mean) / test.std,
    ])  # fmt: skip
    labels = np.concatenate([test.labels[:60], np.arange(40) % 10])
    html, twin = page_and_twin(digits_model)
    page, some = browse(html), [0, 59, 60, 99]
    found = computed(page, html, images, labels, parameters=False)
    assert len(found) == 100
    for model in (twin, digits_model):
        seen = probe.trace(model, images.astype(model.dtype), labels)
        for i, (_, arrays) in enumerate(found):
            expected = {
                "probabilities": seen.probabilities[i : i + 1], "attention": seen.attention[:, i],
                "dattention": 100 * seen.attention_gradients[:, i], "dpixels": 100 * seen.gradients[""][1][i],
                "dstream": 100 * np.stack([seen.gradients[path][0][i] for path in seen.layers]),
            }  # fmt: skip                                                 # the trace's loss is the mean of a hundred
            for name, array in expected.items():
                atol = CLOSE * (1 if model is twin else max(1, np.max(abs(array))))
                np.testing.assert_allclose(arrays[name], array, rtol=0, atol=atol, err_msg=f"{name} of image {i}")
    for i, own in zip(some, computed(page, html, images[some], labels[some]), strict=True):
        same(twin, images[i], labels[i], own)


@pytest.mark.parametrize("name", KINDS)
def test_models_of_every_kind_compute_what_python_computes(browse, name):
    fields = {"img_size": 8, "patch_size": 4, "in_chans": 1, "num_classes": 3, "embed_dim": 16, "depth": 2,
              "num_heads": 4}  # fmt: skip
    html, twin = page_and_twin(redrawn(ViT(ViTConfig(**fields | KINDS[name]))))
    images = np.random.default_rng(0).standard_normal((3, *twin.embed.image_shape))
    for image, label, found in zip(images, range(3), computed(browse(html), html, images, range(3)), strict=True):
        same(twin, image, label, found)


def test_a_head_that_is_switched_off_is_one_whose_columns_of_the_projection_are_zero(browse, digits_model):
    test = data.digits().test
    images, labels = test.normalise(test.images[:4], "float64"), test.labels[:4]
    html, twin = page_and_twin(digits_model)
    on = [[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]
    found = computed(browse(html), html, images, labels, on)
    state = twin.state_dict()
    for block, head in ((0, 1), (2, 0), (2, 3)):
        state[f"blocks.{block}.attn.proj.weight"][:, 12 * head : 12 * head + 12] = 0
    twin.load_state_dict(state)
    for image, label, (loss, arrays) in zip(images, labels, found, strict=True):
        for block in (0, 2):  # of the columns that are zero only here
            arrays.pop(f"d blocks.{block}.attn.proj.weight")
        seen = probe.trace(twin, image[None], [label])
        assert abs(loss - seen.loss) < CLOSE
        np.testing.assert_allclose(arrays["attention"], seen.attention[:, 0], rtol=0, atol=CLOSE)
        np.testing.assert_allclose(arrays["dattention"], seen.attention_gradients[:, 0], rtol=0, atol=CLOSE)
        np.testing.assert_allclose(arrays["dpixels"], seen.gradients[""][1][0], rtol=0, atol=CLOSE)
        assert not arrays["dattention"][0, 1].any() and not arrays["dattention"][2, [0, 3]].any()
