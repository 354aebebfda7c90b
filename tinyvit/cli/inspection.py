"""The pictures and numbers of `tinyvit inspect`."""

import io
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tinyvit import probe
from tinyvit.backend import to_device, to_numpy
from tinyvit.files import write
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks import Task
from tinyvit.training.tasks.classification import logits_of

DPI = 130
IMAGES, MOST_IMAGES = 64, 1000  # for means: by default, and at most, as each is traced alone
IMAGES_OF_FIELDS = 8  # a backward a layer each
MOST_WRONG = 16  # images
RECONSTRUCTIONS = 8  # images, by default


class Subject(NamedTuple):
    """The image that is inspected.

    pixels   (C, H, W) from 0 to 1
    images   (1, C, H, W), as the model reads it
    label    its class, or None where it is unknown or the model tells no classes apart
    shown    the class whose evidence is shown, or None for the predicted one
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
    """The pictures and numbers of a model.

    figures    file name -> `Picture`
    left_out   name of what can't be drawn -> why
    numbers    the numbers, for JSON
    rows       (name, text) of the main ones
    """

    figures: dict[str, Picture] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)


def look(trained, test, why_no_data, subject, options):
    """The `View` of a trained model: of the subject, of the weights, and of the test images, if there are any.

    Pictures that need classes are left out for other models. Raises ValueError if the model's numbers are not finite.
    """
    view, model, why_no_classes = View(), trained.model, trained.why_no_classes
    reconstructs = type(trained.task).reconstruct is not Task.reconstruct
    see_image(view, model, subject, options, why_no_classes)
    see_weights(view, model)
    if test is None:
        names = "distance", "spectrum", "norms", "receptive", "most-wrong"
        view.left_out |= dict.fromkeys((*names, "reconstructions") if reconstructs else names, why_no_data)
        return view
    see_means(view, model, test, IMAGES if options.images is None else options.images, why_no_classes)
    if reconstructs:
        see_reconstructions(view, trained, test, options.reconstructions or RECONSTRUCTIONS)
    if why_no_classes:
        view.left_out["most-wrong"] = why_no_classes
    else:
        see_mistakes(view, model, test, options.threads)
    return view


def see_image(view, model, subject, options, why_no_classes):
    """Where the heads look in the subject, and how much of each patch reaches the output."""
    trace, seen, shown = probe.trace(model, subject.images), subject.name, None
    check_finite(trace.logits)
    view.numbers["image"] = subject.name
    if why_no_classes is None:
        predicted, classes = int(trace.logits[0].argmax()), subject.classes
        number = predicted if subject.shown is None else subject.shown
        shown, seen = classes[number], f"{seen}, taken for {classes[predicted]}"
        probability = float(trace.probabilities[0, predicted])
        label = None if subject.label is None else classes[subject.label]
        view.numbers |= {"label": label, "predicted": classes[predicted], "probability": probability, "class": shown}
        known = "" if label is None else f", label {label}"
        view.rows.append((subject.name, f"predicted {classes[predicted]} ({100 * probability:.1f} %){known}"))
        if trace.attention is not None:
            trace = probe.trace(model, subject.images, classes=[number])
    else:
        view.left_out["class"] = why_no_classes
    if probe.trunk_of(model) is not None:
        maps = {name: found[0] for name, found in probe.feature_maps(model, trace).items()}
        view.figures["features.png"] = Picture(
            "feature maps of each block: the channels that vary most",
            probe.draw_feature_maps(maps, subject.pixels, title=seen),
        )
        view.numbers["most_varied_channels"] = {name: probe.most_varied(found).tolist() for name, found in maps.items()}
    if trace.attention is None:
        view.left_out |= dict.fromkeys(("attention", "rollout", "class"), no_attention(model)) | view.left_out
    else:
        see_attention(view, trace, subject, options.layer, options.head, model, seen, shown)


def no_attention(model):
    return f"{type(model).__name__} has no attention over the same patches in every layer"


def query_of(model):
    """The query that reads the patches after the last layer, as `probe.over_patches` names it."""
    return "token" if model.pooling == "token" else "avg"


def see_attention(view, trace, subject, layer, head, model, seen, shown):
    """The pictures that are made of the attention in a `Trace`; with gradients, for the class that is shown."""
    grid, prefix, query = trace.grid, trace.prefix, query_of(model)
    taken = f"what the {model.first_token} takes from each patch"
    taken = "what all patches take from each, on average" if query == "avg" else taken
    maps = probe.attention_maps(trace.attention, grid, query, prefix)[:, 0]  # (L, H, rows, columns)
    layers = range(len(maps)) if layer is None else [layer]
    heads = range(maps.shape[1]) if head is None else [head]
    one = "".join(f"-{name}-{number}" for name, number in (("layer", layer), ("head", head)) if number is not None)
    view.figures[f"attention{one}.png"] = Picture(
        f"{taken}, by layer and head",
        probe.draw_attention_maps(maps[np.ix_(layers, heads)], subject.pixels, layers=layers, heads=heads,
                                  title=f"{seen}\n{taken}"),
    )  # fmt: skip
    if layer is not None and head is not None:
        view.figures[f"patches{one}.png"] = Picture(
            "where each patch looks, by this head",
            probe.draw_head_maps(probe.head_maps(trace.attention[layer, 0, head], grid, prefix),
                                 title=f"{seen}: layer {layer}, head {head}"),
        )  # fmt: skip
    rollout = probe.over_patches(probe.attention_rollout(trace.attention), grid, query, prefix)[0]
    view.figures["rollout.png"] = Picture(
        "attention rollout: what reaches the output from each patch",
        probe.draw_rollout(rollout, subject.pixels, title=f"{seen}: attention rollout"),
    )
    view.numbers["rollout"] = rollout.tolist()
    view.rows.append(("rollout", f"most from the patch in {place(rollout)}: {100 * rollout.max():.1f} %"))
    if shown is None:
        return
    relevance = probe.gradient_weighted_attention(trace.attention, trace.attention_gradients)
    relevance = probe.over_patches(relevance - np.eye(relevance.shape[-1]), grid, query, prefix)[0]
    view.figures["class.png"] = Picture(
        f"gradient-weighted attention: what speaks for class {shown}",
        probe.draw_class_attention(relevance, subject.pixels, title=f"{seen}: what speaks for {shown}"),
    )
    view.numbers["class_attention"] = relevance.tolist()
    most = f"most the patch in {place(relevance)}" if relevance.any() else "no patch at all"
    view.rows.append((f"for {shown}", most))


def counted(n, what):
    """How many of it, in words: nothing before one, since it follows "the" or "the first"."""
    return what if n == 1 else f"{n} {what}s"


def place(heat):
    """Where a map is largest, in words."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return f"row {row}, column {column}"


def see_weights(view, model):
    """The similarity of positions, and the principal components of the first filters."""
    with left_out(view, "positions"):
        similarity = probe.position_similarity(probe.patch_positions(model), model.grid)
        view.figures["positions.png"] = Picture(
            "how alike the positions of patches are", probe.draw_position_similarity(similarity)
        )
        view.numbers["position_similarity"] = similarity.tolist()
    with left_out(view, "filters"):
        found = probe.filter_components(probe.patch_filters(model))
        view.figures["filters.png"] = Picture(
            f"the first {counted(len(found.components), 'principal component')} of the filters that read the image",
            probe.draw_filter_components(found),
        )
        view.numbers["filter_variance"] = found.variance.tolist()
        view.rows.append(("filters", f"{100 * found.variance[:3].sum():.1f} % of the variance in 3 components"))


@contextmanager
def left_out(view, *names):
    """Inside this a ValueError leaves `names` out of the view, with the reason."""
    try:
        yield
    except ValueError as error:
        view.left_out.update(dict.fromkeys(names, str(error)))


def see_means(view, model, test, count, why_no_classes):
    """How far heads look, how fine features are, and how large they and, of a classifier, their gradients: means over
    some of the test images."""
    rows = np.unique(np.linspace(0, len(test) - 1, min(count, len(test))).astype(int))  # from end to end: test images
    see_receptive_fields(view, model, test, rows)  # may be in order of class
    distances, amplitudes, norms = [], [], []
    for row in rows:  # one at a time: a large model's trace takes hundreds of megabytes an image
        images = test.normalise(test.images[row : row + 1], model.dtype.name)
        trace = probe.trace(model, images, None if why_no_classes else test.labels[row : row + 1])
        if trace.attention is not None:
            distances.append(
                probe.mean_attention_distance(trace.attention, trace.grid, patch_size_of(model), trace.prefix)
            )
        with left_out(view, "spectrum", "norms"):
            frequencies, amplitude = probe.fourier_spectrum(trace.residual_stream, trace.grid, trace.prefix)
            amplitudes.append(amplitude)
            norms.append(probe.norms_by_layer(trace))
        if not distances and not norms:  # nor of any other image
            break
    view.numbers["images"] = len(rows)
    over = f"mean of {len(rows)} images" if len(rows) > 1 else "of one image"
    if distances:
        show_distance(view, model, np.concatenate(distances, 1).mean(1), over)
    else:
        view.left_out["distance"] = no_attention(model)
    if not norms:
        return
    if len(frequencies) > 1:
        amplitude = np.concatenate(amplitudes, 1).mean(1)  # (L+1, F)
        view.figures["spectrum.png"] = Picture(
            f"how fine the feature maps are, by depth; {over}", probe.draw_spectrum(frequencies, amplitude)
        )
        view.numbers["spectrum"] = {"frequencies": frequencies.tolist(), "log_amplitudes": amplitude.tolist()}
    else:
        view.left_out["spectrum"] = "patches in a single row or column have no diagonal"
    norms = probe.Norms(*(None if part[0] is None else np.mean(part, 0) for part in zip(*norms)))
    of = "activations" if why_no_classes else "activations and gradients"
    view.figures["norms.png"] = Picture(f"norms of {of} by layer; {over}", probe.draw_norms(norms))
    view.numbers["norms"] = {
        name: part.mean(-1).tolist() if part.ndim > 1 else part.tolist()
        for name, part in norms._asdict().items() if part is not None
    }  # fmt: skip
    if why_no_classes:
        view.left_out["gradients"] = why_no_classes
        return
    first, last, tokens = norms.dstream[0].mean(), norms.dstream[-1].mean(), trace.residual_stream.shape[2]
    read = model.readers if model.pooling == "token" else "patches have"
    view.rows.append(
        ("gradients", f"mean norm over all {tokens} tokens: {first:.2g} before the first layer, {last:.2g} after the "
                      f"last, where only the {read} one")
    )  # fmt: skip


def see_receptive_fields(view, model, test, rows):
    """How far a feature in the middle sees, layer by layer: means over the first of these test images."""
    rows = rows[np.linspace(0, len(rows) - 1, min(IMAGES_OF_FIELDS, len(rows))).astype(int)]
    with left_out(view, "receptive"):
        fields = probe.effective_receptive_field(model, test.normalise(test.images[rows], model.dtype.name))
        show_receptive_fields(view, fields, f"mean of {counted(len(rows), 'image')}")


def show_receptive_fields(view, fields, over):
    sides = {name: float(probe.receptive_side(field)) for name, field in fields.items()}
    view.figures["receptive.png"] = Picture(
        f"how far the features in the middle see; {over}",
        probe.draw_receptive_fields(fields),
    )
    view.numbers["receptive_field"] = sides
    by_layer = ", ".join(f"{side:.1f}" for side in sides.values())
    view.rows.append(("receptive field", f"{by_layer} pixels wide, from the first layer to the last"))


def patch_size_of(model):
    """Height and width of a patch in pixels."""
    _, H, W = model.image_shape
    rows, columns = model.grid
    return H // rows, W // columns


def show_distance(view, model, distance, over):
    """The mean attention distance (L, H)."""
    uniform = probe.uniform_attention_distance(model.grid, patch_size_of(model))
    view.figures["distance.png"] = Picture(
        f"how far each head looks, in pixels; {over}", probe.draw_attention_distance(distance, uniform)
    )
    rows = distance.tolist()
    view.numbers["attention_distance"] = [[value if value == value else None for value in row] for row in rows]
    view.numbers["uniform_attention_distance"] = uniform
    by_layer = ", ".join(f"{value:.1f}" for value in distance.mean(1))
    view.rows.append(
        ("distance", f"{by_layer} pixels, from the first layer to the last; all patches alike {uniform:.1f}")
    )


def see_reconstructions(view, trained, test, count):
    """Test images, as they are, with patches hidden, and with what the decoder guesses of them."""
    rows = np.unique(np.linspace(0, len(test) - 1, min(count, len(test))).astype(int))
    images = test.normalise(test.images[rows], trained.learner.dtype.name)
    with trained.learner.storage.on_device():
        found = trained.task.reconstruct(trained.learner, to_device(images, trained.learner.device))
    mean, std = (np.reshape(x, (-1, 1, 1)) for x in (test.mean, test.std))
    pixels = [to_numpy(x) * std + mean for x in (images, *found)]
    view.figures["reconstructions.png"] = Picture(
        f"{counted(len(rows), 'test image')}: the original, what the encoder sees, and what the decoder guesses",
        probe.draw_reconstructions(*pixels),
    )
    view.numbers["reconstructed"] = rows.tolist()
    error = float(((pixels[2] - pixels[0]) ** 2).mean() ** 0.5)
    view.rows.append(("reconstruction", f"off by {100 * error:.1f} % of a fully lit pixel (root of the mean square)"))


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
