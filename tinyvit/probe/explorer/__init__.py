"""One HTML page that needs no network and no server, that shows a trained model step by step."""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from tinyvit.probe.explorer.live import live_model, why_not_live
from tinyvit.probe.explorer.numbers import as_float32, as_rgb, facts, numbers
from tinyvit.probe.explorer.packing import SHARE_STEPS, SIGNED_STEPS, layout, pack

MAX_PAGE_BYTES = 5_000_000  # bytes: what a mail or a course's site takes
MAX_LIVE_PAGE_BYTES = 1_000_000
STEPS = {  # name: the text of its button, and its title
    "patches": ("Patches", "The image is cut into patches"),
    "tokens": ("Tokens", "Patches become tokens, and go through the blocks"),
    "norm": ("Norm", "A layer norm gives every token the same scale"),
    "attention": ("Attention", "Each token looks at all tokens"),
    "mlp": ("MLP", "The MLP works on each token by itself"),
    "logits": ("Logits", "From tokens to classes"),
    "loss": ("Loss", "The loss, and where its gradient begins"),
    "dtokens": ("Blocks", "The gradient flows back through the blocks"),
    "dattention": ("Attention", "The gradient of the attention"),
    "dpixels": ("Pixels", "Back to the pixels"),
    "rollout": ("Rollout", "Attention through many blocks: the rollout"),
}
LIVE_STEPS = ("norm", "mlp")  # only where the page computes the model
MATHEMATICS = ("tensors", "operations", "vit")
SCRIPTS = (
    *MATHEMATICS,
    "numbers",
    "format",
    "colours",
    "canvas",
    "grid",
    "cells",
    "matrix",
    "stage",
    "drawing",
    "heads",
    "tables",
    "pixel",
    "link",
    "steps",
    "details",
    "inside",
    "main",
)


class Explorer(NamedTuple):
    """A page, and how many of the images are in it."""

    html: str
    images: int


def explorer(model, images, labels, pictures, classes, names, title="tinyvit", largest=None, mean=0.0, std=1.0):
    """One HTML page that shows, step by step, what a ViT computes of some images, and how the gradients flow back.

    The page computes a small ViT itself, forward and backward, so that images can be drawn and heads switched off. Of
    one that it can't compute (`live.why_not_live`), it shows the numbers computed here.

    images     (B, C, H, W), normalised as the model reads them
    labels     (B,): every image's loss is −log of the probability of its label
    pictures   uint8 (B, C, H, W): how they are shown
    classes    K names, in the order of the logits
    names      B names, one for each image, to choose it by
    largest    bytes that the page may have: if not all images fit, only the first ones that do are in it; by default
               1 MB if the page computes the model, else 5 MB
    mean, std  of each channel: the model reads (x − mean) / std of a pixel x from 0 to 1

    The page is one file of plain HTML, CSS and JavaScript. It loads nothing: its own security policy forbids it to.
    Names are shown as text, whatever they contain.
    Raises ValueError for another architecture, if not even one image fits, and if a number is not finite.
    """
    about = {
        "model": facts(model),
        "classes": list(map(str, classes)),
        "shares": SHARE_STEPS,
        "signed": SIGNED_STEPS,
        "whyNotLive": why_not_live(model),
        "images": [],
    }
    live = about["whyNotLive"] is None
    about["live"] = live_model(model, mean, std) if live else None
    largest, page = largest or (MAX_LIVE_PAGE_BYTES if live else MAX_PAGE_BYTES), None
    for image, label, picture, name in zip(images, labels, pictures, names):
        loss, arrays = numbers(model, image, int(label), picture)
        prediction, attention = int(arrays["logits"].argmax()), arrays["attention"].shape
        if live:
            arrays = {"picture": as_rgb(picture), "pixels": as_float32(image)}
        about["layout"] = layout(arrays)
        entry = {"name": str(name), "label": int(label), "prediction": prediction, "loss": loss, "arrays": pack(arrays)}
        longer = assemble(about | {"images": [*about["images"], entry]}, title)
        size = len(longer.encode())
        if size > largest:
            break
        about["images"].append(entry)
        page = longer
    if page is None:
        raise ValueError(
            f"a page with one image of this model would have {size / 1e6:.1f} MB, and it may have "
            f"{largest / 1e6:.1f} MB: its attention is {'×'.join(map(str, attention))} numbers; "
            "take a model with fewer tokens, heads or blocks"
        )
    return Explorer(page, len(about["images"]))


def choose_images(probabilities, labels, count):
    """`count` rows of `probabilities` (n, K) with `labels` (n,), those worth looking at first.

    In turns: two that are recognised, of one class after the other, the first of each; then one that is not, the one
    whose label got the smallest probability first. If there are none of a kind, the other kind goes on.
    """
    rows = np.arange(len(labels))
    right = probabilities.argmax(1) == labels
    of_label = probabilities[rows, labels]
    nth_of_class = np.array([(right[:i] & (labels[:i] == labels[i])).sum() for i in rows], int)
    recognised = [int(i) for i in np.lexsort((rows, labels, nth_of_class)) if right[i]]
    mistaken = [int(i) for i in np.lexsort((rows, of_label)) if not right[i]]
    places = [n + n // 2 for n in range(len(recognised))] + [3 * n + 2 for n in range(len(mistaken))]
    return [row for _, row in sorted(zip(places, recognised + mistaken))][:count]


def assemble(about, title):
    """The page's HTML, with its numbers in it."""
    style, script = source("page.css"), "\n".join(source(f"{name}.js") for name in SCRIPTS)
    parts = {
        "TITLE": html.escape(title),
        "POLICY": f"default-src 'none'; img-src data:; style-src '{digest(style)}'; script-src '{digest(script)}'",
        "STYLE": f"<style>{style}</style>",
        "STEPS": "\n".join(section(name) for name in STEPS if about["live"] or name not in LIVE_STEPS),
        "NUMBERS": f'<script type="application/json" id="numbers">{json_in_html(about)}</script>',
        "SCRIPT": f'<script type="module">{script}</script>',
    }
    # In one pass, so that inserted text isn't searched for placeholders.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda placeholder: parts[placeholder[1]], source("page.html"))


def section(step):
    """The HTML of a step."""
    tab, title = STEPS[step]
    return (
        f'<section class="step" id="step-{step}" aria-labelledby="step-title" data-tab="{tab}" '
        f'data-title="{title}">\n{source(f"steps/{step}.html")}</section>'
    )


def digest(text):
    """The hash by which the page's security policy allows its own style and script, and no others."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def json_in_html(value):
    """JSON in which no class name can end the script element that it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


@cache
def source(name):
    """A file of the page, out of the installed package."""
    return resources.files("tinyvit.probe.explorer").joinpath("page", *name.split("/")).read_text(encoding="utf-8")
