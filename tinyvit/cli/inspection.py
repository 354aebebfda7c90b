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

    def add(self, name, what, figure, *rows, **numbers):
        """A picture by its name and what it shows, with the numbers behind it and their rows."""
        self.figures[f"{name}.png"] = Picture(what, figure)
        self.rows += rows
        self.numbers |= numbers

    @contextmanager
    def unless_impossible(self, *names):
        """Inside this a ValueError leaves `names` out, with the reason."""
        try:
            yield
        except ValueError as error:
            self.left_out |= dict.fromkeys(names, str(error))


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
        view.add(
            "features", "feature maps of each block: the channels that vary most",
            probe.draw_feature_maps(maps, subject.pixels, title=seen),
            most_varied_channels={name: probe.most_varied(found).tolist() for name, found in maps.items()},
        )  # fmt: skip
    if trace.attention is None:
        view.left_out |= dict.fromkeys(("attention", "rollout", "class"), no_attention(model)) | view.left_out
    else:
        see_attention(view, trace, subject, options.layer, options.head, model, seen, shown)


def no_attention(model):
    return f"{type(model).__name__} has no attention over the same patches in every layer"


def see_attention(view, trace, subject, layer, head, model, seen, shown):
    """The pictures that are made of the attention in a `Trace`; with gradients, for the class that is shown."""
    grid, prefix, query = trace.grid, trace.prefix, "token" if model.pooling == "token" else "avg"
    taken = f"what the {model.first_token} takes from each patch"
    taken = "what all patches take from each, on average" if query == "avg" else taken
    maps = probe.attention_maps(trace.attention, grid, query, prefix)[:, 0]  # (L, H, rows, columns)
    layers = range(len(maps)) if layer is None else [layer]
    heads = range(maps.shape[1]) if head is None else [head]
    one = "".join(f"-{name}-{number}" for name, number in (("layer", layer), ("head", head)) if number is not None)
    view.add(
        f"attention{one}", f"{taken}, by layer and head",
        probe.draw_attention_maps(maps[np.ix_(layers, heads)], subject.pixels, layers=layers, heads=heads,
                                  title=f"{seen}\n{taken}"),
    )  # fmt: skip
    if layer is not None and head is not None:
        found = probe.head_maps(trace.attention[layer, 0, head], grid, prefix)
        figure = probe.draw_head_maps(found, title=f"{seen}: layer {layer}, head {head}")
        view.add(f"patches{one}", "where each patch looks, by this head", figure)
    rollout = probe.over_patches(probe.attention_rollout(trace.attention), grid, query, prefix)[0]
    view.add(
        "rollout", "attention rollout: what reaches the output from each patch",
        probe.draw_rollout(rollout, subject.pixels, title=f"{seen}: attention rollout"),
        ("rollout", f"most from the patch in {place(rollout)}: {100 * rollout.max():.1f} %"),
        rollout=rollout.tolist(),
    )  # fmt: skip
    if shown is None:
        return
    relevance = probe.gradient_weighted_attention(trace.attention, trace.attention_gradients)
    relevance = probe.over_patches(relevance - np.eye(relevance.shape[-1]), grid, query, prefix)[0]
    view.add(
        "class", f"gradient-weighted attention: what speaks for class {shown}",
        probe.draw_class_attention(relevance, subject.pixels, title=f"{seen}: what speaks for {shown}"),
        (f"for {shown}", f"most the patch in {place(relevance)}" if relevance.any() else "no patch at all"),
        class_attention=relevance.tolist(),
    )  # fmt: skip


def counted(n, what):
    """How many of it, in words: nothing before one, since it follows "the" or "the first"."""
    return what if n == 1 else f"{n} {what}s"


def place(heat):
    """Where a map is largest, in words."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return f"row {row}, column {column}"


def see_weights(view, model):
    """The similarity of positions, and the principal components of the first filters."""
    with view.unless_impossible("positions"):
        similarity = probe.position_similarity(probe.patch_positions(model), model.grid)
        figure = probe.draw_position_similarity(similarity)
        what = "how alike the positions of patches are"
        view.add("positions", what, figure, position_similarity=similarity.tolist())
    with view.unless_impossible("filters"):
        found = probe.filter_components(probe.patch_filters(model))
        count = counted(len(found.components), "principal component")
        view.add(
            "filters", f"the first {count} of the filters that read the image", probe.draw_filter_components(found),
            ("filters", f"{100 * found.variance[:3].sum():.1f} % of the variance in 3 components"),
            filter_variance=found.variance.tolist(),
        )  # fmt: skip


def spread(count, of):
    """The numbers of some images among all, from end to end, as test images may be in order of class."""
    return np.unique(np.linspace(0, of - 1, min(count, of)).astype(int))


def see_means(view, model, test, count, why_no_classes):
    """How far heads look, how fine features are, and how large they and, of a classifier, their gradients: means over
    some of the test images."""
    rows = spread(count, len(test))
    see_receptive_fields(view, model, test, rows[spread(IMAGES_OF_FIELDS, len(rows))])
    view.numbers["images"] = len(rows)
    patch = tuple(side // patches for side, patches in zip(model.image_shape[1:], model.grid or (1, 1)))
    distances, amplitudes, norms = [], [], []
    for row in rows:  # one at a time: a large model's trace takes hundreds of megabytes an image
        images = test.normalise(test.images[row : row + 1], model.dtype.name)
        trace = probe.trace(model, images, None if why_no_classes else test.labels[row : row + 1])
        if trace.attention is not None:
            distances.append(probe.mean_attention_distance(trace.attention, trace.grid, patch, trace.prefix))
        with view.unless_impossible("spectrum", "norms"):
            frequencies, amplitude = probe.fourier_spectrum(trace.residual_stream, trace.grid, trace.prefix)
            amplitudes.append(amplitude)
            norms.append(probe.norms_by_layer(trace))
        if not distances and not norms:  # nor of any other image
            break
    over = f"mean of {len(rows)} images" if len(rows) > 1 else "of one image"
    if distances:
        distance, uniform = np.concatenate(distances, 1).mean(1), probe.uniform_attention_distance(model.grid, patch)
        by_layer = ", ".join(f"{value:.1f}" for value in distance.mean(1))
        view.add(
            "distance", f"how far each head looks, in pixels; {over}", probe.draw_attention_distance(distance, uniform),
            ("distance", f"{by_layer} pixels, from the first layer to the last; all patches alike {uniform:.1f}"),
            attention_distance=np.where(np.isnan(distance), None, distance).tolist(),
            uniform_attention_distance=uniform,
        )  # fmt: skip
    else:
        view.left_out["distance"] = no_attention(model)
    if norms:
        see_spectrum(view, frequencies, np.concatenate(amplitudes, 1).mean(1), over)
        norms = probe.Norms(*(None if part[0] is None else np.mean(part, 0) for part in zip(*norms)))
        see_norms(view, model, norms, trace.residual_stream.shape[2], over, why_no_classes)


def see_receptive_fields(view, model, test, rows):
    """How far a feature in the middle sees, layer by layer: means over these test images."""
    with view.unless_impossible("receptive"):
        fields = probe.effective_receptive_field(model, test.normalise(test.images[rows], model.dtype.name))
        sides = {name: float(probe.receptive_side(found)) for name, found in fields.items()}
        by_layer = ", ".join(f"{side:.1f}" for side in sides.values())
        view.add(
            "receptive", f"how far the features in the middle see; mean of {counted(len(rows), 'image')}",
            probe.draw_receptive_fields(fields),
            ("receptive field", f"{by_layer} pixels wide, from the first layer to the last"), receptive_field=sides,
        )  # fmt: skip


def see_spectrum(view, frequencies, amplitude, over):
    """How fine the features are, by depth: their mean amplitude (L+1, F) at each frequency."""
    if len(frequencies) == 1:
        view.left_out["spectrum"] = "patches in a single row or column have no diagonal"
        return
    figure = probe.draw_spectrum(frequencies, amplitude)
    spectrum = {"frequencies": frequencies.tolist(), "log_amplitudes": amplitude.tolist()}
    view.add("spectrum", f"how fine the feature maps are, by depth; {over}", figure, spectrum=spectrum)


def see_norms(view, model, norms, tokens, over, why_no_classes):
    """How large activations and, of a classifier, gradients are: the mean `Norms`."""
    of = "activations" if why_no_classes else "activations and gradients"
    means = {name: part.mean(-1) if part.ndim > 1 else part
             for name, part in norms._asdict().items() if part is not None}  # fmt: skip
    numbers = {name: part.tolist() for name, part in means.items()}
    view.add("norms", f"norms of {of} by layer; {over}", probe.draw_norms(norms), norms=numbers)
    if why_no_classes:
        view.left_out["gradients"] = why_no_classes
        return
    first, last = norms.dstream[0].mean(), norms.dstream[-1].mean()
    read = model.readers if model.pooling == "token" else "patches have"
    text = f"mean norm over all {tokens} tokens: {first:.2g} before the first layer, {last:.2g} after the last, where"
    view.rows.append(("gradients", f"{text} only the {read} one"))


def see_reconstructions(view, trained, test, count):
    """Test images, as they are, with patches hidden, and with what the decoder guesses of them."""
    rows = spread(count, len(test))
    images = test.normalise(test.images[rows], trained.learner.dtype.name)
    with trained.learner.storage.on_device():
        found = trained.task.reconstruct(trained.learner, to_device(images, trained.learner.device))
    mean, std = (np.reshape(x, (-1, 1, 1)) for x in (test.mean, test.std))
    pixels = [to_numpy(x) * std + mean for x in (images, *found)]
    error = float(((pixels[2] - pixels[0]) ** 2).mean() ** 0.5)
    view.add(
        "reconstructions",
        f"{counted(len(rows), 'test image')}: the original, what the encoder sees, and what the decoder guesses",
        probe.draw_reconstructions(*pixels),
        ("reconstruction", f"off by {100 * error:.1f} % of a fully lit pixel (root of the mean square)"),
        reconstructed=rows.tolist(),
    )


def see_mistakes(view, model, test, threads):
    """The test images that the model gets most wrong."""
    logits = logits_of(model, test, threads)
    check_finite(logits)
    found, classes = probe.most_wrong(logits, test.labels, MOST_WRONG), test.classes
    wrong = int((logits.argmax(1) != test.labels).sum())
    largest = counted(len(found.rows), "test image")
    view.add(
        "most-wrong", f"the {largest} with the largest loss of {wrong:,} that are wrong",
        probe.draw_most_wrong(test.images[found.rows] / test.scale, found, classes),
        ("wrong", f"{wrong:,} of {len(test):,} test images"),
        wrong=wrong, most_wrong=[
            {"image": int(row), "label": classes[label], "predicted": classes[taken], "loss": float(loss),
             "probability": float(sure)}
            for row, label, taken, loss, sure in zip(*found)
        ],
    )  # fmt: skip


def save(figures, folder):
    """Write `Picture`s by file name into a folder, which is made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in figures.items():
        content = io.BytesIO()
        with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
            warnings.filterwarnings("ignore", "Glyph .* missing")
            picture.figure.savefig(content, format="png", dpi=DPI)
        write(folder / name, content.getvalue())
