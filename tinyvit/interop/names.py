"""Shared by all layouts: arrays under other names, what shapes imply, and unique class names."""

import re
from collections import Counter
from math import isqrt, prod

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import to_numpy
from tinyvit.functional.patches import as_pair
from tinyvit.models import build
from tinyvit.tensors import BFLOAT16
from tinyvit.text import list_names, shorten

MAX_LISTED_NAMES = 20  # of each kind in an error; a file of another model lacks hundreds
SIZE_ADVICE = "give the size of the images: --img-size HEIGHT WIDTH, in Python img_size=(height, width)"


def expect_place(layout, config, **only):
    """Raise ValueError for a field of ours with a value that a layout has no place for."""
    for name, value in only.items():
        if getattr(config, name) != value:
            raise ValueError(f"{layout} has no place for {name} {getattr(config, name)!r}, only for {value!r}")


def activation_name(layout, table, config):
    """A layout's name of the configured activation, from its names by ours; ValueError if it has none."""
    if config.activation not in table:
        raise ValueError(f"{layout} has no place for activation {config.activation!r}, only for {list_names(table)}")
    return table[config.activation]


# -- arrays under other names -----------------------------------------------------------------------------------------


def names_in_table(table, name):
    """Their names for ours, of which there are several where ours holds several of theirs, along its first axis.

    table   their name, or a tuple of names, by ours; without the ending .weight or .bias, and {} for a number
    """
    number = re.compile(r"(?<=\.)\d+(?=\.)")
    part, ending = number.sub("{}", name), ""
    if part not in table:
        part, _, ending = part.rpartition(".")
    theirs = table[part] if isinstance(table[part], tuple) else (table[part],)
    return tuple(".".join(filter(None, (one.format(*number.findall(name)), ending))) for one in theirs)


def equal_parts(names):
    """For `to_ours`: theirs are equal parts of ours, in its order of axes; `names` is a function of our name."""

    def parts(name, shape):
        theirs = names(name)
        return [(one, (shape[0] // len(theirs), *shape[1:]) if shape else (), range(len(shape))) for one in theirs]

    return parts


def to_ours(tensors, config, parts, source, spelled=str):
    """The state of the configuration's model, from arrays under other names; bfloat16 and float16 become float32.

    parts    a function of our name and shape: for each of the arrays that are ours one after the other, its name, its
             shape, and the order of its axes in ours
    source   what says the names and shapes, for the message
    spelled  a function of a name that gives the file's own, for the message

    Raises one ValueError that lists every missing, unexpected and misshapen name, if there are any, and one for numbers
    that aren't floating-point ones.
    """
    own = state_shapes(config)
    found = {name: parts(name, shape) for name, shape in own.items()}
    expected = {theirs: shape for arrays in found.values() for theirs, shape, _ in arrays}
    expect_names(tensors, expected, source, spelled)
    other = [f"{spelled(name)} ({tensors[name].dtype})" for name in expected
             if tensors[name].dtype.kind != "f" and tensors[name].dtype != BFLOAT16]  # fmt: skip
    if other:
        raise ValueError(f"expected floating-point numbers, got {list_names(other)}")
    state = {}
    for name, shape in own.items():
        arrays = [as_float(tensors[theirs]).transpose(axes) for theirs, _, axes in found[name]]
        state[name] = (np.concatenate(arrays) if len(arrays) > 1 else arrays[0]).reshape(shape)
    return state


def to_theirs(state, parts):
    """Arrays under other names from ours: `to_ours` backwards."""
    tensors = {}
    for name, array in state.items():
        theirs = parts(name, array.shape)
        pieces = np.split(array, len(theirs)) if len(theirs) > 1 else [array]
        for piece, (their_name, shape, axes) in zip(pieces, theirs, strict=True):
            piece = piece.reshape([shape[axis] for axis in axes]).transpose([*np.argsort(axes)])
            tensors[their_name] = np.asarray(piece, order="C")
    return tensors


def state_shapes(config):
    """The shape of every array of the configuration's `state_dict()` by name, without giving a model memory."""
    model = build(config, device="meta")
    return {name: variable.shape for name, variable in (*model.named_parameters(), *model.named_buffers())}


def expect_names(tensors, expected, source, spelled=str):
    """Raise one ValueError that lists every missing, unexpected and misshapen name, if there are any.

    tensors   arrays by name
    expected  the shape that each must have, by name
    source    what says so, for the message
    spelled   a function of a name that gives the file's own, for the message
    """
    problems = {
        "missing": [spelled(name) for name in expected if name not in tensors],
        "unexpected": [spelled(name) for name in tensors if name not in expected],
        "misshapen": [
            f"{spelled(name)} (expected {tuple(shape)}, got {tensors[name].shape})"
            for name, shape in expected.items() if name in tensors and tensors[name].shape != tuple(shape)
        ],
    }  # fmt: skip
    if any(problems.values()):
        found = "; ".join(f"{what}: {list_names(names, MAX_LISTED_NAMES)}" for what, names in problems.items() if names)
        raise ValueError(f"the arrays are not those of this model in {source}: {found}")


def as_float(array):
    """Floating-point numbers as float64 or float32, bfloat16 and float16 exactly, in this machine's byte order."""
    if array.dtype == BFLOAT16:  # the upper half of a float32
        return (array.view("<u2").astype("uint32") << 16).view("float32")
    return array.astype("float64" if array.dtype.itemsize == 8 else "float32", copy=False)


def expect_finite(arrays, source):
    """Raise ValueError, naming `source`, for arrays with NaN or infinite numbers."""
    # min and max propagate NaN, and allocate nothing as isfinite would.
    wrong = [name for name, x in arrays.items() if x.size and not np.isfinite([x.min(), x.max()]).all()]
    if wrong:
        raise ValueError(f"{source} has numbers that are NaN or infinite in {list_names(wrong)}")


def check_weights(weights):
    """Raise ValueError for arrays that are not those of the configuration's model, or not finite, and for a
    preprocessing of other images or classes."""
    config, state, prepared, _ = weights
    expect_names(state, state_shapes(config), "tinyvit")
    expect_finite({name: to_numpy(array) for name, array in state.items()}, "the model")
    for name, expected, got in (
        ("channels", config.in_chans, prepared.channels), ("img_size", as_pair(config.img_size), prepared.img_size),
        ("classes", config.num_classes, len(prepared.classes)),
        ("frames", getattr(config, "frames", None), prepared.frames),
    ):  # fmt: skip
        if got != expected:
            raise ValueError(f"the model has {name} {expected}, and its preprocessing {got}")


def with_position_table(weights, layout):
    """The state with positions of any kind as one table (1, prefix+N, D), which is all that foreign formats have.

    Raises ValueError for rotary positions, which are not added to tokens.
    """
    config, state = weights.config, dict(weights.state)
    prefix = 2 if "dist_token" in state else 1
    if config.positions == "rope":
        raise ValueError(f"{layout} has no place for positions 'rope', which turn queries and keys")
    if config.positions == "learned_2d":
        state["pos_embed"] = F.grid_positions(state.pop("pos_embed_x"), state.pop("pos_embed_y"), prefix)[0]
    elif config.positions == "none":
        tokens = prefix + prod(getattr(config, "video_grid", config.grid))
        state["pos_embed"] = np.zeros((1, tokens, config.embed_dim), state["cls_token"].dtype)
    return state


# -- what shapes imply ------------------------------------------------------------------------------------------------


def shapes_of(tensors, dimensions, layout):
    """The shapes of the arrays that imply a model's configuration, by name.

    dimensions  the number of dimensions of each, by name

    Raises one ValueError that lists those that are missing, or have another number of dimensions.
    """
    shapes = {name: np.shape(tensors.get(name)) for name in dimensions}
    wrong = [f"{name} (expected {count} dimensions, got {shapes[name]})" for name, count in dimensions.items()
             if len(shapes[name]) != count or 0 in shapes[name]]  # fmt: skip
    if wrong:
        raise ValueError(f"the arrays are not those of this model in {layout}; missing or misshapen: "
                         f"{list_names(wrong)}")  # fmt: skip
    return shapes


def count_blocks(names, pattern):
    """The number of blocks; the group of `pattern` is a block's number in a name.

    Different numbers are counted, whatever they are: a number that is too large becomes an unexpected name.
    """
    return len({match[1] for match in (re.match(pattern, name) for name in names) if match})


def as_side(pair):
    """A height and a width, or one number if they are equal."""
    height, width = map(int, as_pair(pair))
    return height if height == width else (height, width)


def mlp_ratio(hidden, embed_dim):
    """The `mlp_ratio` whose hidden layer has this width, exactly."""
    ratio = hidden / embed_dim
    # The product is truncated to an integer; a quotient that was rounded down would lose one.
    return ratio if int(embed_dim * ratio) == hidden else float(np.nextafter(ratio, np.inf))


def square_image(patches, patch_size, layout):
    """The (H, W) of images with this many patches in a square grid, and notes on what was assumed.

    Raises ValueError if the number isn't a square.
    """
    side = isqrt(patches)
    if side * side != patches or not patches:
        raise ValueError(f"{patches} patches don't form a square, and {layout} doesn't say how they lie; {SIZE_ADVICE}")
    note = f"nothing says how the {patches} patches lie; {side} rows of {side} are assumed, otherwise {SIZE_ADVICE}"
    return tuple(side * length for length in patch_size), (note,) if side > 1 else ()


# -- names of classes -------------------------------------------------------------------------------------------------


def class_names(labels, num_classes, source, prefix=""):
    """The names of the classes as a tuple of different ones; the second "crane" becomes "crane (2)".

    labels   a list, or a dict by number; without any the names are "0", "1", … with the prefix in front

    Raises ValueError, naming `source`, for another number of them, and for anything but text and whole numbers.
    """
    if not labels or not num_classes:
        return tuple(f"{prefix}{i}" for i in range(num_classes))
    names = [labels.get(str(i)) for i in range(len(labels))] if isinstance(labels, dict) else labels
    if not isinstance(names, list) or len(names) != num_classes or not all(type(name) in (str, int) for name in names):
        raise ValueError(f"{source} has class names {shorten(repr(labels))}; expected one for each of {num_classes}")
    counts, different = Counter(), []
    for name in map(str, names):
        counts[name] += 1
        different.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(different)
