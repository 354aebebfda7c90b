"""Effective receptive fields of features."""

import numpy as np

from tinyvit.backend import to_device, to_numpy
from tinyvit.probe.feature_maps import trunk_of
from tinyvit.probe.pictures import HEAT_COLOURS, picture_panels

VISIBLE_FRACTION = 1 - 0.9545  # of the largest value, as in the paper


def effective_receptive_field(model, images, seed=0):
    """How much the features in the middle depend on each pixel, {name of the layer: (H, W)}.

        R(p) = √ mean over images of Σ over channels of (Σ_c r_c ∂f_c(middle) / ∂x(p))²      r ~ N(0, 1), new for each

    f(middle) is what the layer gives in the middle of its feature maps, or for the token in the middle of the grid. The
    expected R² is the mean square of the Jacobian's entries, Σ_c (∂f_c / ∂x)². There is an entry for the blocks of a
    ResNet or a hybrid's stem, and for the model's first part and layers otherwise. Computed as in inference, by one
    forward and one backward a layer for each of the images (B, C, H, W).

    Raises ValueError for a model whose layers give neither feature maps nor tokens in a grid.
    Luo et al. 2016, "Understanding the effective receptive field in deep convolutional neural networks", section 3,
    where r is 1 for all channels, whose gradients then partly cancel.
    """
    trunk, layers = trunk_of(model), model.parts()[: model.depth + 1]
    own = trunk is not None and any(part is layers[0][1] for _, part in trunk.parts())
    chains = [layers] if trunk is None or own else [trunk.parts(), layers]
    random, total = np.random.default_rng(seed), {}
    with model.storage.compute_scope(), model.gradients_into(model.new_gradients()):
        for chain in chains:
            for image in images:
                for name, squares in squared_gradients(model, chain, image[None], random):
                    total[name] = total.get(name, 0) + squares
    return {name: (squares / len(images)) ** 0.5 for name, squares in total.items()}


def squared_gradients(model, chain, image, random):
    """(name, squared gradients (H, W)) of what each part of a chain gives in the middle, for an image (1, C, H, W)."""
    x, caches, given = to_device(np.asarray(image, model.dtype), model.device), [], []
    for _, part in chain:
        x, cache = part(x)
        caches.append(cache)
        given.append(np.zeros_like(to_numpy(x)))
        middle_of(model, image, given[-1])  # raises for tokens without a grid, before others fail on them
    for last, dy in enumerate(given):
        middle = middle_of(model, image, dy)
        middle[:] = random.standard_normal(middle.shape)
        dx = to_device(dy, model.device)
        for (_, part), cache in zip(chain[last::-1], caches[last::-1]):
            dx = part.backward(dx, cache)
        yield chain[last][0], (to_numpy(dx)[0].astype("float64") ** 2).sum(0)


def middle_of(model, image, features):
    """A view of the numbers in the middle of feature maps (1, C, H, W), or of tokens (1, T, D)."""
    if features.ndim == 4:
        return features[0, :, features.shape[2] // 2, features.shape[3] // 2]
    grid = model.grid_of(image)
    if grid is None or features.ndim != 3:
        raise ValueError(f"{type(model).__name__} has neither feature maps nor tokens in a grid")
    rows, columns = grid
    return features[0, features.shape[1] - rows * columns + rows // 2 * columns + columns // 2]


def receptive_side(field):
    """The side of the square with as many pixels as a field (…, H, W) has above 4.55 % of its largest: (…).

    Luo et al. 2016, section 3. A Gaussian's is 4.4 standard deviations: its pixels there are a disc of radius 2.49.
    """
    visible = field > VISIBLE_FRACTION * field.max((-2, -1), keepdims=True)
    return visible.sum((-2, -1)) ** 0.5


def receptive_box(field):
    """(rows, columns) of the smallest rectangle that holds all pixels of a field (H, W) that are not 0."""
    seen = field != 0
    return tuple(int(np.ptp(np.flatnonzero(seen.any(axis))) + 1) if seen.any() else 0 for axis in (1, 0))


def draw_receptive_fields(fields):
    """A matplotlib Figure of `effective_receptive_field`: a panel a layer, each with a colour scale of its own."""
    from matplotlib.colors import PowerNorm

    figure, panels = picture_panels(len(fields), 7, 1.5, 1.75, extra=0.3)
    for ax, (name, field) in zip(panels, fields.items()):
        ax.imshow(field, cmap=HEAT_COLOURS, norm=PowerNorm(0.5, 0, field.max() or 1))
        ax.set_title(f"{name}\n{receptive_side(field):.1f} pixels wide", fontsize=7)
    return figure
