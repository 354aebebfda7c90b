"""What `tinyvit inspect` computes and draws."""

import io
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tinyvit import probe
from tinyvit.backend import to_numpy
from tinyvit.files import write
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks.classification import logits_of

DPI = 130
IMAGES = 64  # that means are taken over, by default
MOST_WRONG = 16  # images
READ = {"token": "only the class token has one", "avg": "the class token has none"}  # behind the last block
TAKEN = {"token": "what the class token takes from each patch", "avg": "what all patches take from each, on average"}


class Subject(NamedTuple):
    """The image that is looked at.

    pixels   (C, H, W) from 0 to 1
    images   (1, C, H, W), as the model reads it
    label    its class, or None if nobody knows
    shown    the class whose evidence is shown, or None for the one that it is taken for
    """

    name: str
    pixels: np.ndarray
    images: np.ndarray
    label: int | None
    shown: int | None
    classes: tuple[str, ...]


class Picture(NamedTuple):
    what: str  # it shows
    figure: Any


@dataclass
class View:
    """What was seen.

    figures    file name -> `Picture`
    left_out   what could not be drawn -> why
    numbers    the same in numbers, for JSON
    rows       (name, text) of the most telling ones
    """

    figures: dict[str, Picture] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)


def look(model, test, why_no_data, subject, options):
    """The `View` of a model: of the subject, of the weights, and of the test images, if there are any.

    Raises ValueError if the model's numbers are not finite.
    """
    view = View()
    see_image(view, model, subject, options.layer, options.head)
    see_weights(view, model)
    if test is None:
        for name in ("distance", "spectrum", "norms", "most-wrong"):
            view.left_out[name] = why_no_data
        return view
    see_means(view, model, test, IMAGES if options.images is None else options.images)
    see_mistakes(view, model, test, options.threads)
    return view


def see_image(view, model, subject, layer, head):
    """Where the heads look in the subject, and what reaches the output from each patch."""
    plain = probe.trace(model, subject.images)
    check_finite(plain.logits)
    predicted = int(plain.logits[0].argmax())
    shown = predicted if subject.shown is None else subject.shown
    trace = probe.trace(model, subject.images, classes=[shown])
    query, grid, classes = model.config.global_pool, trace.grid, subject.classes
    seen = f"{subject.name}, taken for {classes[predicted]}"

    maps = probe.attention_maps(trace.attention, grid, query)[:, 0]                   # (L, H, rows, columns)
    layers = range(len(maps)) if layer is None else [layer]
    heads = range(maps.shape[1]) if head is None else [head]
    one = "".join(f"-{name}-{number}" for name, number in (("layer", layer), ("head", head)) if number is not None)
    view.figures[f"attention{one}.png"] = Picture(
        f"{TAKEN[query]}, by layer and head",
        probe.draw_attention_maps(maps[np.ix_(layers, heads)], subject.pixels, layers=layers, heads=heads,
                                  title=f"{seen}\n{TAKEN[query]}"),
    )  # fmt: skip
    if layer is not None and head is not None:
        view.figures[f"patches{one}.png"] = Picture(
            "where each patch looks, by this head",
            probe.draw_head_maps(probe.head_maps(trace.attention[layer, 0, head], grid),
                                 title=f"{seen}: layer {layer}, head {head}"),
        )  # fmt: skip

    rollout = probe.over_patches(probe.attention_rollout(trace.attention), grid, query)[0]
    view.figures["rollout.png"] = Picture(
        "attention rollout: what reaches the output from each patch",
        probe.draw_rollout(rollout, subject.pixels, title=f"{seen}: attention rollout"),
    )
    relevance = probe.gradient_weighted_attention(trace.attention, trace.attention_gradients)
    relevance = probe.over_patches(relevance - np.eye(relevance.shape[-1]), grid, query)[0]
    view.figures["class.png"] = Picture(
        f"gradient-weighted attention: what speaks for class {classes[shown]}",
        probe.draw_class_attention(relevance, subject.pixels, title=f"{seen}: what speaks for {classes[shown]}"),
    )
    view.numbers.update({
        "image": subject.name,
        "label": None if subject.label is None else classes[subject.label],
        "predicted": classes[predicted],
        "probability": float(plain.probabilities[0, predicted]),
        "class": classes[shown],
        "rollout": rollout.tolist(),
        "class_attention": relevance.tolist(),
    })  # fmt: skip
    known = "" if subject.label is None else f", is {classes[subject.label]}"
    certain = f"{100 * plain.probabilities[0, predicted]:.1f} %"
    view.rows += [
        (subject.name, f"taken for {classes[predicted]} ({certain}){known}"),
        ("rollout", f"most from the patch in {place(rollout)}: {100 * rollout.max():.1f} %"),
        (f"for {classes[shown]}", f"most the patch in {place(relevance)}" if relevance.any() else "no patch at all"),
    ]


def counted(n, what):
    """How many of it, in words: nothing before one, since it follows "the" or "the first"."""
    return what if n == 1 else f"{n} {what}s"


def place(heat):
    """Where a map is largest, in words."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return f"row {row}, column {column}"


def see_weights(view, model):
    """What the positions and the patch filters have learned."""
    try:
        positions = probe.patch_positions(model)
    except ValueError as error:
        view.left_out["positions"] = str(error)
    else:
        similarity = probe.position_similarity(positions, model.config.grid)
        view.figures["positions.png"] = Picture(
            "how alike the positions of patches are", probe.draw_position_similarity(similarity)
        )
        view.numbers["position_similarity"] = similarity.tolist()
    found = probe.filter_components(to_numpy(model.embed.patch_embed.proj.weight.data))
    view.figures["filters.png"] = Picture(
        f"the first {counted(len(found.components), 'principal component')} of the patch filters",
        probe.draw_filter_components(found),
    )
    view.numbers["filter_variance"] = found.variance.tolist()
    view.rows.append(("patch filters", f"{100 * found.variance[:3].sum():.1f} % of the variance in 3 components"))


def see_means(view, model, test, count):
    """How far heads look, how fine features are, and how large gradients: means over some of the test images."""
    rows = np.unique(np.linspace(0, len(test) - 1, count).astype(int))  # from end to end: they may be in order of class
    distances, amplitudes, norms = [], [], []
    for row in rows:  # one at a time: a large model's trace takes hundreds of megabytes an image
        images = test.normalise(test.images[row : row + 1], model.dtype.name)
        trace = probe.trace(model, images, test.labels[row : row + 1])
        distances.append(probe.mean_attention_distance(trace.attention, trace.grid, model.config.patch_size))
        frequencies, amplitude = probe.fourier_spectrum(trace.residual_stream, trace.grid)
        amplitudes.append(amplitude)
        norms.append(probe.norms_by_layer(trace))
    distance = np.concatenate(distances, 1).mean(1)                                  # (L, H)
    amplitude = np.concatenate(amplitudes, 1).mean(1)                                # (L+1, F)
    norms = probe.Norms(*(np.mean(part, 0) for part in zip(*norms)))
    uniform = probe.uniform_attention_distance(model.config.grid, model.config.patch_size)

    over = f"mean of {len(rows)} images" if len(rows) > 1 else "of one image"
    view.figures["distance.png"] = Picture(
        f"how far each head looks, in pixels; {over}", probe.draw_attention_distance(distance, uniform)
    )
    if len(frequencies) > 1:
        view.figures["spectrum.png"] = Picture(
            f"how fine the feature maps are, by depth; {over}", probe.draw_spectrum(frequencies, amplitude)
        )
    else:
        view.left_out["spectrum"] = "patches in a single row or column have no diagonal"
    view.figures["norms.png"] = Picture(
        f"norms of activations and gradients by layer; {over}", probe.draw_norms(norms)
    )
    view.numbers.update({
        "images": len(rows),
        "attention_distance": [[value if value == value else None for value in row] for row in distance.tolist()],
        "uniform_attention_distance": uniform,
        "spectrum": {"frequencies": frequencies.tolist(), "log_amplitudes": amplitude.tolist()},
        "norms": {name: part.mean(-1).tolist() if part.ndim > 1 else part.tolist()
                  for name, part in norms._asdict().items()},
    })  # fmt: skip
    by_layer = ", ".join(f"{value:.1f}" for value in distance.mean(1))
    view.rows += [
        ("distance", f"{by_layer} pixels, from the first layer to the last; all patches alike {uniform:.1f}"),
        ("gradients", f"mean norm over all {trace.attention.shape[-1]} tokens: {norms.dstream[0].mean():.2g} in front "
                      f"of the first block, {norms.dstream[-1].mean():.2g} behind the last, where "
                      f"{READ[model.config.global_pool]}"),
    ]  # fmt: skip


def see_mistakes(view, model, test, threads):
    """The test images that the model gets most wrong."""
    logits = logits_of(model, test, threads)
    check_finite(logits)
    found, classes = probe.most_wrong(logits, test.labels, MOST_WRONG), test.classes
    wrong = int((logits.argmax(1) != test.labels).sum())
    view.figures["most-wrong.png"] = Picture(
        f"the {counted(len(found.rows), 'test image')} with the largest loss of {wrong:,} that are wrong",
        probe.draw_most_wrong(test.images[found.rows] / test.scale, found, classes),
    )
    view.numbers["wrong"] = wrong
    view.numbers["most_wrong"] = [
        {"image": int(row), "label": classes[label], "predicted": classes[taken], "loss": float(loss),
         "probability": float(sure)}
        for row, label, taken, loss, sure in zip(*found)
    ]  # fmt: skip
    view.rows.append(("wrong", f"{wrong:,} of {len(test):,} test images"))


def save(figures, folder):
    """Write `Picture`s by file name into a folder, which is made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in figures.items():
        content = io.BytesIO()
        with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
            warnings.filterwarnings("ignore", "Glyph .* missing")
            picture.figure.savefig(content, format="png", dpi=DPI)
        write(folder / name, content.getvalue())
