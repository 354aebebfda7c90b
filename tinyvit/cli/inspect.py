"""tinyvit inspect"""

import io
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import arg

from tinyvit import functional as F
from tinyvit import probe
from tinyvit.backend import to_device, to_numpy
from tinyvit.cli.model_options import ModelOptions, class_number, computing, file_to_write
from tinyvit.cli.parsing import check_least
from tinyvit.data import read_image
from tinyvit.files import check_folder, expand_path, write
from tinyvit.probe.explorer import choose_images, explorer
from tinyvit.text import printable
from tinyvit.training.display import table
from tinyvit.training.metrics import check_finite
from tinyvit.training.tasks import Task
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.threads import thread_count
from tinyvit.training.trained import load_test_set, require_classifier

DPI = 130
IMAGES = 64  # for means, by default
IN_PAGE = 12  # images, by default: enough for one of each of ten classes
IMAGES_OF_FIELDS = 8  # a backward a layer each
MOST_WRONG = 16  # images
RECONSTRUCTIONS = 8  # images, by default


@dataclass(frozen=True, kw_only=True)
class Inspect(ModelOptions):
    """Looks inside a trained model: pictures of where each head looks, what it has learned, and what it gets wrong,
    and the main numbers. Or, with --html, one page that shows it step by step. --json prints one object
    with the numbers behind the pictures of the image."""

    html: str | None = None
    """Instead of pictures, write a page to this file that needs neither network nor server: patches, tokens, every
    head, rollout, logits and gradients of some test images."""
    out: str | None = None
    """Folder for the pictures; by default RUN/inspect."""
    image: str | None = None
    """The image to look at: its number among the test images, or a file that Pillow reads; by default 0. With
    --html, the number of the page's first image."""
    layer: int | None = None
    """Draw the attention of this layer only, from 0; by default of all."""
    head: int | None = None
    """Draw the attention of this head only, from 0; with --layer, too, also where each of its patches looks."""
    class_: Annotated[str | None, arg(name="class")] = None
    """The class whose evidence is shown, by its name or number; by default what the image is taken for."""
    images: int | None = None
    """Test images that means are taken over, by default 64; with --html, those in the page, by default 12."""
    reconstructions: int | None = None
    """Test images that are shown with patches hidden and guessed, for a run of the task mae; by default 8."""
    data_dir: str | None = None
    """Folder or archive with the data; by default the one that the run was trained with."""

    def __call__(self):
        thread_count(self.threads)
        check_least(self, images=1, reconstructions=1)
        trained = self.load()
        if trained.preprocessing.frames is not None:
            raise ValueError(f"inspect looks at single images, and the model of {self.run} reads videos; tinyvit "
                             "evaluate, predict, features, knn, probe-linear and summary work with it")  # fmt: skip
        (self.draw_pictures if self.html is None else self.make_page)(trained)

    def draw_pictures(self, trained):
        """Write the pictures, and print the main numbers and the files."""
        self.check(trained)
        folder = expand_path(trained.folder.path / "inspect" if self.out is None else self.out)
        check_folder(folder)
        view = View(trained, self)
        with computing(trained, self):
            view.see_image()
            view.see_weights()
            if view.test is not None:
                view.see_means()
                view.see_reconstructions()
                view.see_mistakes()
        folder.mkdir(parents=True, exist_ok=True)
        for name, (_, figure) in view.pictures.items():
            content = io.BytesIO()
            with warnings.catch_warnings():  # names in a script that the font lacks are drawn as boxes
                warnings.filterwarnings("ignore", "Glyph .* missing")
                figure.savefig(content, format="png", dpi=DPI)
            write(folder / name, content.getvalue())
        written = {"out": str(folder), "pictures": list(view.pictures), "left_out": view.left_out}
        shown = [table(view.rows), f"\nwritten to {printable(folder)}",
                 table([(name, what) for name, (what, _) in view.pictures.items()])]  # fmt: skip
        shown += [f"  no {name}: {reason}" for name, reason in view.left_out.items()]
        self.show({"run": self.run, **view.numbers, **written}, "\n".join(shown))

    def check(self, trained):
        """Raise ValueError for a class or a decoder that the model doesn't have."""
        if self.class_ is not None and trained.why_no_classes:
            raise ValueError(f"--class is for a classifier, and {trained.why_no_classes}; leave it out")
        if self.reconstructions is not None and not reconstructs(trained):
            raise ValueError(f"--reconstructions needs a run of the task mae, not of {trained.config.task!r}")

    def numbered(self, test):
        """The number of the test image that --image gives, by default 0; None if it is a file."""
        text = self.image or "0"
        if not text.removeprefix("-").isdecimal():
            return None
        if test is not None and not 0 <= int(text) < len(test):
            raise ValueError(f"there is no test image {text}; there are images 0 to {len(test) - 1}")
        return int(text)

    def make_page(self, trained):
        """Write the page, and print its contents."""
        for name in ("out", "layer", "head", "class_"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name.strip('_')} is about pictures, but --html writes a page; leave one out")
        path = file_to_write(self.html, "html", (".html", ".htm"))  # so that no file of weights is overwritten
        require_classifier(trained)
        model, test = trained.model, load_test_set(trained, self.data_dir)
        first = self.numbered(test)
        if first is None:
            raise ValueError(f"a page shows test images, whose classes are known: expected a number, got --image "
                             f"{self.image!r}")  # fmt: skip
        with computing(trained, self):
            logits = logits_of(model, test, self.threads)
            check_finite(logits)
            count = min(self.images or IN_PAGE, len(test))
            rows = choose_images(F.softmax(logits)[0], test.labels, count)
            if self.image is not None:
                rows = list(dict.fromkeys([first, *rows]))[:count]
            pixels = test.images[rows]
            made = explorer(
                model, test.normalise(pixels, model.dtype.name), test.labels[rows],
                np.round(pixels / test.scale * 255).astype("uint8"), test.classes,
                [f"test image {row}" for row in rows],
                title=f"Inside a Vision Transformer: {trained.folder.path.resolve().name}",
                mean=test.mean, std=test.std,
            )  # fmt: skip
        content, shown, left_out = made.html.encode(), rows[: made.images], rows[made.images :]
        write(path, content)
        text = f"written to {printable(path)}: {len(content) / 1e6:.1f} MB, test images {', '.join(map(str, shown))}"
        if left_out:
            text += f"\nthese test images don't fit in the page: {', '.join(map(str, left_out))}"
        found = {"run": self.run, "html": str(path), "bytes": len(content), "images": shown, "left_out": left_out}
        self.show(found, text)


def reconstructs(trained):
    """Whether the task of a run has a decoder that guesses hidden patches."""
    return type(trained.task).reconstruct is not Task.reconstruct


def no_attention(model):
    return f"{type(model).__name__} has no attention over the same patches in every layer"


def spread(count, of):
    """The numbers of some images among all, from end to end, as test images may be in order of class."""
    return np.unique(np.linspace(0, of - 1, min(count, of)).astype(int))


def counted(n, what):
    """How many of it, in words: nothing before one, since it follows "the" or "the first"."""
    return what if n == 1 else f"{n} {what}s"


def place(heat):
    """Say in words where a map is largest."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return f"row {row}, column {column}"


class View:
    """The pictures and numbers of a trained model.

    test       the test images, or None if only a file is inspected and they can't be loaded
    pictures   file name -> (what it shows, matplotlib Figure)
    left_out   name of what can't be drawn -> why
    numbers    the numbers, for JSON
    rows       (name, text) of the main ones

    Pictures that need classes are left out for other models. Raises ValueError for an image or a class that there
    isn't, and if the model's numbers are not finite.
    """

    def __init__(self, trained, options):
        self.trained, self.model, self.options = trained, trained.model, options
        self.no_classes, self.test = trained.why_no_classes, None
        self.pictures, self.left_out, self.numbers, self.rows = {}, {}, {}, []
        try:
            self.test = load_test_set(trained, options.data_dir)
        except (ValueError, OSError) as error:
            if options.data_dir is not None or options.numbered(None) is not None:
                raise
            names = ["distance", "spectrum", "norms", "receptive", "most-wrong"]
            names += ["reconstructions"] * reconstructs(trained)
            self.left_out = dict.fromkeys(names, " ".join(str(error).split()))

    def add(self, name, what, figure, *rows, **numbers):
        """A picture by its name and what it shows, with the numbers behind it and their rows."""
        self.pictures[f"{name}.png"] = what, figure
        self.rows += rows
        self.numbers |= numbers

    @contextmanager
    def unless_impossible(self, *names):
        """Inside this a ValueError leaves `names` out, with the reason."""
        try:
            yield
        except ValueError as error:
            self.left_out |= dict.fromkeys(names, str(error))

    def read(self, rows):
        """Test images as the model reads them."""
        return self.test.normalise(self.test.images[rows], self.model.dtype.name)

    def see_image(self):
        """Where the heads look in the image that is asked for, and how much of each patch reaches the output."""
        options, model, test, prepared = self.options, self.model, self.test, self.trained.preprocessing
        number, classes, label = options.numbered(test), prepared.classes, None
        if number is not None:
            name, images, self.pixels = f"test image {number}", self.read([number]), test.images[number] / test.scale
            label = None if self.no_classes else classes[test.labels[number]]
        else:
            name, channels = Path(options.image).name, prepared.channels
            read = read_image(expand_path(options.image), channels, prepared.img_size, resample=prepared.resample,
                              crop=prepared.crop)  # fmt: skip
            images, self.pixels = prepared(read[None], model.dtype.name), read / 255
        trace, seen, shown = probe.trace(model, images), name, None
        check_finite(trace.logits)
        self.numbers["image"] = name
        if self.no_classes:
            self.left_out["class"] = self.no_classes
            self.rows.append((name, f"not classified: {self.no_classes}"))
        else:
            predicted = int(trace.logits[0].argmax())
            number = predicted if options.class_ is None else class_number(options.class_, classes)
            probability, shown = float(trace.probabilities[0, predicted]), classes[number]
            seen = f"{seen}, taken for {classes[predicted]}"
            taken, known = classes[predicted], "" if label is None else f", label {label}"
            self.numbers |= {"label": label, "predicted": taken, "probability": probability, "class": shown}
            self.rows.append((name, f"predicted {taken} ({100 * probability:.1f} %){known}"))
            if trace.attention is not None:
                trace = probe.trace(model, images, classes=[number])
        if probe.trunk_of(model) is not None:
            maps = {name: found[0] for name, found in probe.feature_maps(model, trace).items()}
            self.add(
                "features", "feature maps of each block: the channels that vary most",
                probe.draw_feature_maps(maps, self.pixels, title=seen),
                most_varied_channels={name: probe.most_varied(found).tolist() for name, found in maps.items()},
            )  # fmt: skip
        asked = {name: number for name in ("layer", "head") if (number := getattr(options, name)) is not None}
        if trace.attention is not None:
            self.see_attention(trace, seen, shown, asked)
        elif asked:
            raise ValueError(f"there is no {' or '.join(asked)} to draw; {no_attention(model)}")
        else:
            self.left_out |= dict.fromkeys(("attention", "rollout", "class"), no_attention(model)) | self.left_out

    def see_attention(self, trace, seen, shown, asked):
        """The pictures that are made of the attention in a `Trace`; with gradients, for the class that is shown.

        asked   the number of the layer, of the head, or of both, of which alone attention is drawn
        """
        grid, prefix, model = trace.grid, trace.prefix, self.model
        query = "token" if model.pooling == "token" else "avg"
        taken = f"what the {model.first_token} takes from each patch"
        taken = "what all patches take from each, on average" if query == "avg" else taken
        maps = probe.attention_maps(trace.attention, grid, query, prefix)[:, 0]  # (L, H, rows, columns)
        places = dict(zip(("layer", "head"), map(range, maps.shape)))
        for name, number in asked.items():
            if number not in places[name]:
                raise ValueError(f"there is no {name} {number}; the model has {len(places[name])}, counted from 0")
            places[name] = [number]
        one, (layers, heads) = "".join(f"-{name}-{number}" for name, number in asked.items()), places.values()
        self.add(
            f"attention{one}", f"{taken}, by layer and head",
            probe.draw_attention_maps(maps[np.ix_(layers, heads)], self.pixels, layers=layers, heads=heads,
                                      title=f"{seen}\n{taken}"),
        )  # fmt: skip
        if len(asked) == 2:
            found = probe.head_maps(trace.attention[layers[0], 0, heads[0]], grid, prefix)
            figure = probe.draw_head_maps(found, title=f"{seen}: layer {layers[0]}, head {heads[0]}")
            self.add(f"patches{one}", "where each patch looks, by this head", figure)
        rollout = probe.over_patches(probe.attention_rollout(trace.attention), grid, query, prefix)[0]
        self.add(
            "rollout", "attention rollout: what reaches the output from each patch",
            probe.draw_rollout(rollout, self.pixels, title=f"{seen}: attention rollout"),
            ("rollout", f"most from the patch in {place(rollout)}: {100 * rollout.max():.1f} %"),
            rollout=rollout.tolist(),
        )  # fmt: skip
        if shown is None:
            return
        relevance = probe.gradient_weighted_attention(trace.attention, trace.attention_gradients)
        relevance = probe.over_patches(relevance - np.eye(relevance.shape[-1]), grid, query, prefix)[0]
        self.add(
            "class", f"gradient-weighted attention: what speaks for class {shown}",
            probe.draw_class_attention(relevance, self.pixels, title=f"{seen}: what speaks for {shown}"),
            (f"for {shown}", f"most the patch in {place(relevance)}" if relevance.any() else "no patch at all"),
            class_attention=relevance.tolist(),
        )  # fmt: skip

    def see_weights(self):
        """The similarity of positions, and the principal components of the first filters."""
        with self.unless_impossible("positions"):
            similarity = probe.position_similarity(probe.patch_positions(self.model), self.model.grid)
            self.add("positions", "how alike the positions of patches are", probe.draw_position_similarity(similarity),
                     position_similarity=similarity.tolist())  # fmt: skip
        with self.unless_impossible("filters"):
            found = probe.filter_components(probe.patch_filters(self.model))
            count = counted(len(found.components), "principal component")
            self.add("filters", f"the first {count} of the filters that read the image",
                     probe.draw_filter_components(found), filter_variance=found.variance.tolist())  # fmt: skip

    def see_means(self):
        """How far heads look, how fine features are, and how large they and, of a classifier, their gradients: means
        over some of the test images."""
        model, test, no_classes = self.model, self.test, self.no_classes
        rows = spread(self.options.images or IMAGES, len(test))
        with self.unless_impossible("receptive"):
            some = rows[spread(IMAGES_OF_FIELDS, len(rows))]
            fields = probe.effective_receptive_field(model, self.read(some))
            self.add(
                "receptive", f"how far the features in the middle see; mean of {counted(len(some), 'image')}",
                probe.draw_receptive_fields(fields),
                receptive_field={name: float(probe.receptive_side(found)) for name, found in fields.items()},
            )  # fmt: skip
        self.numbers["images"] = len(rows)
        patch = tuple(side // patches for side, patches in zip(model.image_shape[1:], model.grid or (1, 1)))
        distances, amplitudes, norms = [], [], []
        for row in rows:  # one at a time: a large model's trace takes hundreds of megabytes an image
            trace = probe.trace(model, self.read([row]), None if no_classes else test.labels[[row]])
            if trace.attention is not None:
                distances.append(probe.mean_attention_distance(trace.attention, trace.grid, patch, trace.prefix))
            with self.unless_impossible("spectrum", "norms"):
                frequencies, amplitude = probe.fourier_spectrum(trace.residual_stream, trace.grid, trace.prefix)
                amplitudes.append(amplitude)
                norms.append(probe.norms_by_layer(trace))
            if not distances and not norms:  # nor of any other image
                break
        over = f"mean of {len(rows)} images" if len(rows) > 1 else "of one image"
        if distances:
            distance = np.concatenate(distances, 1).mean(1)
            uniform = probe.uniform_attention_distance(model.grid, patch)
            self.add(
                "distance", f"how far each head looks, in pixels; {over}",
                probe.draw_attention_distance(distance, uniform),
                attention_distance=np.where(np.isnan(distance), None, distance).tolist(),
                uniform_attention_distance=uniform,
            )  # fmt: skip
        else:
            self.left_out["distance"] = no_attention(model)
        if not norms:
            return
        if len(frequencies) == 1:
            self.left_out["spectrum"] = "patches in a single row or column have no diagonal"
        else:
            amplitude = np.concatenate(amplitudes, 1).mean(1)  # (L+1, F)
            self.add("spectrum", f"how fine the feature maps are, by depth; {over}",
                     probe.draw_spectrum(frequencies, amplitude),
                     spectrum={"frequencies": frequencies.tolist(), "log_amplitudes": amplitude.tolist()})  # fmt: skip
        norms = probe.Norms(*(None if part[0] is None else np.mean(part, 0) for part in zip(*norms)))
        of = "activations" if no_classes else "activations and gradients"
        numbers = {name: (part.mean(-1) if part.ndim > 1 else part).tolist()
                   for name, part in norms._asdict().items() if part is not None}  # fmt: skip
        self.add("norms", f"norms of {of} by layer; {over}", probe.draw_norms(norms), norms=numbers)
        if no_classes:
            self.left_out["gradients"] = no_classes

    def see_reconstructions(self):
        """Test images, as they are, with patches hidden, and with what the decoder guesses of them, if there is one."""
        trained, test = self.trained, self.test
        if not reconstructs(trained):
            return
        rows = spread(self.options.reconstructions or RECONSTRUCTIONS, len(test))
        images = test.normalise(test.images[rows], trained.learner.dtype.name)
        with trained.learner.storage.on_device():
            found = trained.task.reconstruct(trained.learner, to_device(images, trained.learner.device))
        mean, std = (np.reshape(x, (-1, 1, 1)) for x in (test.mean, test.std))
        pixels = [to_numpy(x) * std + mean for x in (images, *found)]
        error = float(((pixels[2] - pixels[0]) ** 2).mean() ** 0.5)
        self.add(
            "reconstructions",
            f"{counted(len(rows), 'test image')}: the original, what the encoder sees, and what the decoder guesses",
            probe.draw_reconstructions(*pixels),
            ("reconstruction", f"off by {100 * error:.1f} % of a fully lit pixel (root of the mean square)"),
            reconstructed=rows.tolist(),
        )  # fmt: skip

    def see_mistakes(self):
        """The test images that the model gets most wrong."""
        if self.no_classes:
            self.left_out["most-wrong"] = self.no_classes
            return
        test, classes = self.test, self.test.classes
        logits = logits_of(self.model, test, self.options.threads)
        check_finite(logits)
        found, wrong = probe.most_wrong(logits, test.labels, MOST_WRONG), int((logits.argmax(1) != test.labels).sum())
        largest = counted(len(found.rows), "test image")
        self.add(
            "most-wrong", f"the {largest} with the largest loss of {wrong:,} that are wrong",
            probe.draw_most_wrong(test.images[found.rows] / test.scale, found, classes),
            ("wrong", f"{wrong:,} of {len(test):,} test images"),
            wrong=wrong, most_wrong=[
                {"image": int(row), "label": classes[label], "predicted": classes[taken], "loss": float(loss),
                 "probability": float(sure)}
                for row, label, taken, loss, sure in zip(*found)
            ],
        )  # fmt: skip
