"""The pictures and numbers of `tinyvit inspect`, from one trained model."""

from contextlib import contextmanager

import numpy as np

from tinyvit import probe
from tinyvit.arrays import IGNORED
from tinyvit.probe.overlay import draw_labels
from tinyvit.probe.pictures import image_rows
from tinyvit.probe.trace import no_attention

RECEPTIVE_IMAGES = 8  # each takes one backward per layer
MOST_WRONG_IMAGES = 16


class Inspection:
    """The pictures and numbers of a trained model; each method adds some.

    classes      names, in the order of the logits
    no_classes   why the model has no classes, or None: pictures that need them are left out

    pictures   file name -> (caption, matplotlib Figure)
    left_out   name of a picture that can't be drawn -> the reason
    numbers    the numbers behind the pictures, for JSON
    rows       (name, text) of the main ones
    """

    def __init__(self, model, classes, no_classes=None):
        self.model, self.classes, self.no_classes = model, classes, no_classes
        self.pictures, self.left_out, self.numbers, self.rows = {}, {}, {}, []

    def add(self, name, caption, figure, *rows, **numbers):
        """Add a picture, with the numbers behind it and their rows."""
        self.pictures[f"{name}.png"] = caption, figure
        self.rows += rows
        self.numbers |= numbers

    @contextmanager
    def unless_impossible(self, *names):
        """Leave `names` out if the block raises ValueError, whose text is the reason."""
        try:
            yield
        except ValueError as error:
            self.left_out |= dict.fromkeys(names, str(error))

    def draw_image(self, name, images, pixels, label=None, shown=None, **chosen):
        """Draw the attention to one image and the evidence for a class in it, or the feature maps of a ResNet.

        images   (1, C, H, W), normalised
        pixels   (C, H, W), from 0 to 1
        label    the image's class by its name, if it is known
        shown    the number of the class whose evidence is drawn; None for the predicted one
        chosen   `block` and `head`, of which alone attention is drawn; None for all

        Raises ValueError for a block or a head that doesn't exist, and if the logits are NaN or infinite.
        """
        model, title = self.model, name
        seen = probe.trace(model, images)
        if not np.isfinite(seen.logits).all():
            raise ValueError(f"the logits of {name} are NaN or infinite: the weights are damaged or diverged")
        self.numbers["image"] = name
        if self.no_classes:
            self.left_out["class"] = self.no_classes
            self.rows.append((name, f"not classified: {self.no_classes}"))
        else:
            number = int(seen.logits[0].argmax())
            predicted, probability = self.classes[number], float(seen.probabilities[0, number])
            shown = number if shown is None else shown
            title = f"{name}, taken for {predicted}"
            self.numbers |= {
                "label": label,
                "predicted": predicted,
                "probability": probability,
                "class": self.classes[shown],
            }
            known = "" if label is None else f", label {label}"
            self.rows.append((name, f"predicted {predicted} ({100 * probability:.1f} %){known}"))
            if seen.attention is not None:
                seen = probe.trace(model, images, classes=[shown])
        if probe.trunk_of(model) is not None:
            maps = {layer: channels[0] for layer, channels in probe.feature_maps(model, seen).items()}
            channels = {layer: probe.most_varied(own).tolist() for layer, own in maps.items()}
            self.add(
                "features",
                "feature maps of each block: the channels that vary most",
                probe.draw_feature_maps(maps, pixels, title=title),
                most_varied_channels=channels,
            )
        chosen = {key: number for key, number in chosen.items() if number is not None}
        if seen.attention is not None:
            self.draw_attention(seen, pixels, title, shown, chosen)
        elif chosen:
            raise ValueError(f"there is no {' or '.join(chosen)} to draw; {no_attention(model)}")
        else:
            self.left_out |= dict.fromkeys(("attention", "rollout", "class"), no_attention(model)) | self.left_out

    def draw_attention(self, seen, pixels, title, shown, chosen):
        """Draw the attention in a `Trace`; with gradients, the evidence for the class of the number `shown`."""
        grid, prefix, model = seen.grid, seen.prefix, self.model
        query = "token" if model.pooling == "token" else "avg"
        caption = f"what the {model.first_token} takes from each patch"
        caption = "what all patches take from each, on average" if query == "avg" else caption
        maps = probe.over_patches(seen.attention, grid, query, prefix)[:, 0]  # (L, H, rows, columns)
        numbers = dict(zip(("block", "head"), map(range, maps.shape)))
        for name, number in chosen.items():
            if number not in numbers[name]:
                raise ValueError(f"there is no {name} {number}; the model has {len(numbers[name])}, counted from 0")
            numbers[name] = [number]
        ending, (blocks, heads) = "".join(f"-{name}-{number}" for name, number in chosen.items()), numbers.values()
        figure = probe.draw_attention_maps(
            maps[np.ix_(blocks, heads)], pixels, blocks=blocks, heads=heads, title=f"{title}\n{caption}"
        )
        self.add(f"attention{ending}", f"{caption}, by block and head", figure)
        if len(chosen) == 2:
            own = probe.head_maps(seen.attention[blocks[0], 0, heads[0]], grid, prefix)
            figure = probe.draw_head_maps(own, title=f"{title}: block {blocks[0]}, head {heads[0]}")
            self.add(f"patches{ending}", "where each patch looks, by this head", figure)
        rollout = probe.over_patches(probe.attention_rollout(seen.attention), grid, query, prefix)[0]
        self.add(
            "rollout",
            "attention rollout: what reaches the output from each patch",
            probe.draw_rollout(rollout, pixels, title=f"{title}: attention rollout"),
            ("rollout", f"most from the patch in {place_of_largest(rollout)}: {100 * rollout.max():.1f} %"),
            rollout=rollout.tolist(),
        )
        if shown is None:
            return
        name = self.classes[shown]
        relevance = probe.gradient_weighted_attention(seen.attention, seen.attention_gradients)
        relevance = probe.over_patches(relevance - np.eye(relevance.shape[-1]), grid, query, prefix)[0]
        strongest = f"most the patch in {place_of_largest(relevance)}" if relevance.any() else "no patch at all"
        self.add(
            "class",
            f"gradient-weighted attention: the evidence for class {name}",
            probe.draw_class_attention(relevance, pixels, title=f"{title}: the evidence for {name}"),
            (f"for {name}", strongest),
            class_attention=relevance.tolist(),
        )

    def draw_weights(self):
        """Draw the similarity of positions, and the principal components of the first filters."""
        with self.unless_impossible("positions"):
            similarity = probe.position_similarity(probe.patch_positions(self.model), self.model.grid)
            self.add(
                "positions",
                "how alike the positions of patches are",
                probe.draw_position_similarity(similarity),
                position_similarity=similarity.tolist(),
            )
        with self.unless_impossible("filters"):
            parts = probe.filter_components(probe.patch_filters(self.model))
            count = with_count(len(parts.components), "principal component")
            self.add(
                "filters",
                f"the first {count} of the filters that read the image",
                probe.draw_filter_components(parts),
                filter_variance=parts.variance.tolist(),
            )

    def draw_means(self, images, labels):
        """Draw means over normalised images (n, C, H, W): how far features and heads look, how fine features are, and
        how large they are and, of a classifier, their gradients."""
        model, count = self.model, len(images)
        with self.unless_impossible("receptive"):
            some = images[evenly_spaced(RECEPTIVE_IMAGES, count)]
            fields = probe.effective_receptive_field(model, some)
            sides = {name: float(probe.receptive_side(own)) for name, own in fields.items()}
            self.add(
                "receptive",
                f"how far the features in the middle see; mean of {with_count(len(some), 'image')}",
                probe.draw_receptive_fields(fields),
                receptive_field=sides,
            )
        self.numbers["images"] = count
        patch = tuple(side // patches for side, patches in zip(model.image_shape[1:], model.grid or (1, 1)))
        distances, amplitudes, norms = [], [], []
        for row in range(count):  # one at a time: a large model's trace takes hundreds of megabytes an image
            one = slice(row, row + 1)
            seen = probe.trace(model, images[one], None if self.no_classes else labels[one])
            if seen.attention is not None:
                distances.append(probe.mean_attention_distance(seen.attention, seen.grid, patch, seen.prefix))
            with self.unless_impossible("spectrum", "norms"):
                frequencies, amplitude = probe.fourier_spectrum(seen.residual_stream, seen.grid, seen.prefix)
                amplitudes.append(amplitude)
                norms.append(probe.norms_by_layer(seen))
            if not distances and not norms:  # nor of any other image
                break
        over = f"mean of {count} images" if count > 1 else "of one image"
        if distances:
            distance = np.concatenate(distances, 1).mean(1)
            uniform = probe.uniform_attention_distance(model.grid, patch)
            self.add(
                "distance",
                f"how far each head looks, in pixels; {over}",
                probe.draw_attention_distance(distance, uniform),
                uniform_attention_distance=uniform,
                attention_distance=np.where(np.isnan(distance), None, distance).tolist(),
            )
        else:
            self.left_out["distance"] = no_attention(model)
        if not norms:
            return
        if len(frequencies) == 1:
            self.left_out["spectrum"] = "patches in a single row or column have no diagonal"
        else:
            amplitude = np.concatenate(amplitudes, 1).mean(1)  # (L+1, F)
            self.add(
                "spectrum",
                f"how fine the feature maps are, by depth; {over}",
                probe.draw_spectrum(frequencies, amplitude),
                spectrum={"frequencies": frequencies.tolist(), "log_amplitudes": amplitude.tolist()},
            )
        norms = probe.Norms(*(None if part[0] is None else np.mean(part, 0) for part in zip(*norms)))
        of = "activations" if self.no_classes else "activations and gradients"
        numbers = {
            name: (part.mean(-1) if part.ndim > 1 else part).tolist()
            for name, part in norms._asdict().items()
            if part is not None
        }
        self.add("norms", f"norms of {of} by block; {over}", probe.draw_norms(norms), norms=numbers)
        if self.no_classes:
            self.left_out["gradients"] = self.no_classes

    def draw_reconstructions(self, rows, pixels):
        """Draw images, pixels from 0 to 1: three arrays (n, C, H, W), the original, the visible patches, and a
        decoder's guesses in the gaps, as He et al. 2022, "Masked autoencoders are scalable vision learners", figure 2.

        rows   the numbers of these test images
        """
        original, visible, guessed = pixels
        error = float(((guessed - original) ** 2).mean() ** 0.5)
        count = with_count(len(rows), "test image")
        self.add(
            "reconstructions",
            f"{count}: the original, what the encoder sees, and what the decoder guesses",
            image_rows([("original", original), ("seen", visible), ("guessed", guessed)]),
            ("reconstruction", f"off by {100 * error:.1f} % of a fully lit pixel (root of the mean square)"),
            reconstructed=rows.tolist(),
        )

    def draw_pixels(self, rows, pixels, predicted, truth, classes):
        """Draw the predicted and the true classes (n, H, W) of the pixels of images (n, C, H, W), from 0 to 1.

        rows   the numbers of these test images
        """
        counted = truth != IGNORED
        wrong = float(((predicted != truth) & counted).sum() / max(1, counted.sum()))
        count = with_count(len(rows), "test image")
        self.add(
            "pixels",
            f"{count}: true and predicted classes of the pixels, and where they differ",
            draw_labels(pixels, predicted, classes, truth),
            ("pixels", f"{100 * wrong:.1f} % of the pixels of these images are wrong"),
            labelled=rows.tolist(),
            wrong_pixels=wrong,
        )

    def draw_mistakes(self, logits, labels, images, scale):
        """Draw those of the images (n, C, H, W), pixels from 0 to `scale`, whose logits (n, K) are most wrong."""
        worst, wrong = probe.most_wrong(logits, labels, MOST_WRONG_IMAGES), int((logits.argmax(1) != labels).sum())
        names = self.classes
        entries = [
            {
                "image": int(row),
                "label": names[label],
                "predicted": names[taken],
                "loss": float(loss),
                "probability": float(sure),
            }
            for row, label, taken, loss, sure in zip(*worst)
        ]
        largest = with_count(len(entries), "test image")
        self.add(
            "most-wrong",
            f"the {largest} with the largest loss of {wrong:,} that are wrong",
            probe.draw_most_wrong(images[worst.rows] / scale, worst, names),
            ("wrong", f"{wrong:,} of {len(labels):,} test images"),
            wrong=wrong,
            most_wrong=entries,
        )


def evenly_spaced(count, total):
    """The numbers of `count` images among `total`, from end to end, as test images may be in order of class."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(int))


def with_count(number, noun):
    """A number with its noun; the noun alone for 1, since it follows "the" or "the first"."""
    return noun if number == 1 else f"{number} {noun}s"


def place_of_largest(heat):
    """The place of a map's largest number, in words."""
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    return f"row {row}, column {column}"
