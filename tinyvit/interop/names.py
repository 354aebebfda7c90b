"""Shared by all mappings: checks of names, what shapes imply, and unique class names."""

from math import isqrt

import numpy as np

from tinyvit import functional as F
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import MOST_CLASSES
from tinyvit.interop.lazy_arrays import listed
from tinyvit.models import build
from tinyvit.text import short

MOST_NAMES = 20  # of each kind in an error; a file of another model lacks hundreds
MOST_NOTES = 5    # on renamed classes
GIVE_SIZE = "give the size of the images: --img-size HEIGHT WIDTH, in Python img_size=(height, width)"


def own_shapes(config):
    """The shape of every array of the configuration's `state_dict()` by name, without giving a model memory."""
    model = build(config, device="meta")
    return {name: variable.shape for name, variable in (*model.named_parameters(), *model.named_buffers())}


def expect_names(tensors, expected, layout, spelled=str):
    """Raise one ValueError that lists every missing, unexpected and misshapen name, if there are any.

    tensors   arrays by name
    expected  the shape that each must have, by name
    layout    for the message
    spelled   a function of a name that gives the file's own, for the message
    """
    missing = [spelled(name) for name in expected if name not in tensors]
    unexpected = [spelled(name) for name in tensors if name not in expected]
    misshapen = [
        f"{spelled(name)} (expected {tuple(shape)}, got {np.shape(tensors[name])})"
        for name, shape in expected.items()
        if name in tensors and np.shape(tensors[name]) != tuple(shape)
    ]
    problems = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    if any(problems.values()):
        found = "; ".join(f"{what}: {listed(names, MOST_NAMES)}" for what, names in problems.items() if names)
        raise ValueError(f"the arrays are not those of this model in {layout}: {found}")


def shapes_of(tensors, dimensions, layout):
    """The shapes, by name, of the arrays that imply the model's configuration.

    dimensions  the number of dimensions of each, by name

    Raises one ValueError that lists those that are missing, or have another number of dimensions.
    """
    missing = [name for name in dimensions if name not in tensors]
    misshapen = [
        f"{name} (expected {count} dimensions, got {np.shape(tensors[name])})"
        for name, count in dimensions.items()
        if name in tensors and (np.ndim(tensors[name]) != count or 0 in np.shape(tensors[name]))
    ]
    if missing or misshapen:
        problems = {"missing": missing, "misshapen": misshapen}
        found = "; ".join(f"{what}: {listed(names, MOST_NAMES)}" for what, names in problems.items() if names)
        raise ValueError(f"the arrays are not those of this model in {layout}: {found}")
    return {name: np.shape(tensors[name]) for name in dimensions}


def count_blocks(names, pattern):
    """The number of blocks; `pattern` is a compiled expression whose group is a block's number in a name.

    Different numbers are counted, whatever they are: a number that is too large becomes an unexpected name.
    """
    return len({match[1] for match in map(pattern.match, names) if match})


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
        raise ValueError(
            f"{patches} patches don't form a square, and {layout} doesn't say how many rows and columns they have; "
            + GIVE_SIZE
        )
    height, width = (side * length for length in patch_size)
    if side == 1:
        return (height, width), ()
    note = f"nothing says how the {patches} patches lie; {side} rows of {side} are assumed, otherwise {GIVE_SIZE}"
    return (height, width), (note,)


def position_table(weights, layout, prefix=1):
    """The positions of any kind as one table (1, prefix+N, D), which is all that foreign formats have.

    Raises ValueError for rotary positions, which are not added to tokens.
    """
    config, state = weights.config, weights.state
    if config.positions == "rope":
        raise ValueError(f"{layout} has no place for positions 'rope', which turn queries and keys")
    if config.positions == "learned_2d":
        return F.grid_positions(state["pos_embed_x"], state["pos_embed_y"], prefix)[0]
    if config.positions == "none":
        rows, columns = config.grid
        return np.zeros((1, prefix + rows * columns, config.embed_dim), state["cls_token"].dtype)
    return state["pos_embed"]


def different_names(names):
    """The names as a tuple of different ones, and notes on the first few that were changed and the number of others.

    The second "crane" becomes "crane (2)". Raises ValueError for half of a surrogate pair, which JSON can contain and
    no text file.
    """
    for index, name in enumerate(names):
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise ValueError(f"the name of class {index} is not text: it has half a character in it: {quoted(name)}")
    taken, used, counts, different, changed = set(names), set(), {}, [], []
    for index, name in enumerate(names):
        new, count = name, counts.get(name, 1)
        while new in used or (count > 1 and new in taken):
            count += 1
            new = f"{name} ({count})"
        counts[name] = count  # to go on from, so that a thousand equal names don't take a million steps
        if new != name:
            changed.append(f"class {index} has the name of another, {quoted(name)}, and is called {quoted(new)}")
        used.add(new)
        different.append(new)
    notes = changed[:MOST_NOTES]
    if len(changed) > len(notes):
        notes.append(f"{len(changed) - len(notes):,} more classes are renamed alike")
    return tuple(different), tuple(notes)


def quoted(name):
    """A name as Python writes it, shortened."""
    return short(repr(name))


def numbered(num_classes, prefix=""):
    """The names of classes that have none: "0", "1", …; ValueError for more than any model has."""
    if num_classes > MOST_CLASSES:
        raise ValueError(f"the weights have {num_classes:,} classes; expected at most {MOST_CLASSES:,}")
    return tuple(f"{prefix}{i}" for i in range(num_classes))
