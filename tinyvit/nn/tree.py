"""The tree of a module: how it prints, and what may stand in it. Caches, which mirror it, print in the same way."""

from collections import namedtuple
from functools import cache
from itertools import chain, groupby
from operator import is_

from tinyvit.nn.variables import Variable


def tree(node):
    """A module or a cache and all that it is made of, a line each, with the shapes of its arrays.

    Equal neighbours fold into one line:

        ViT  57,754 parameters, float32 on cpu
          embed: Embed  cls_token (1, 1, 48)
            positions: FixedPositions  pos_embed (1, 17, 48), method=bilinear, prefix=1
          …
            blocks.0 to blocks.2: Block  3 × 18,960 parameters
              norm1: LayerNorm  weight (48,), bias (48,)
    """
    first = f"{type(node).__name__}{own(node)}"
    return "\n".join([f"{first}  {size(node)}" if is_module(node) else first, *lines_below(node)])


@cache
def cache_type(name, fields):
    """The NamedTuple `nameCache` for the cache of a module, of whose fields no types need to be told. It prints as a
    `tree`.

    fields   names of the parts, in the order of the forward; where one is a number, the field is _0, _1, …
    """
    kind = namedtuple(f"{name}Cache", fields, rename=True)
    kind.__repr__ = tree
    return kind


def lines_below(node):
    """The lines of what a module or cache is made of, two spaces further in."""
    lines = []
    for (text, inner), group in groupby(parts(node), key=lambda part: description(part[1])):
        names, (part, *_) = zip(*group)
        if len(names) > 1:
            text += f"  {len(names)} × {part.num_parameters():,} parameters" if is_module(part) else ""
            names = f"{names[0]} to {names[-1]}", ""
        lines += [f"  {names[0]}: {text}", *(f"  {line}" for line in inner)]
    return lines


def description(node):
    return f"{type(node).__name__}{own(node)}", tuple(lines_below(node))


def fields(node):
    """(name, value) of all that a module or cache holds."""
    return vars(node).items() if is_module(node) else zip(getattr(node, "_fields", map(str, range(len(node)))), node)


def parts(node):
    """(name, part) of the modules in a module, or the caches in a cache."""
    if is_module(node):
        yield from node.children()
        return
    for name, value in fields(node):
        if hasattr(value, "_fields"):
            yield name, value
        elif isinstance(value, tuple):
            yield from ((f"{name}.{i}", item) for i, item in enumerate(value) if hasattr(item, "_fields"))


def own(node, settings=(int, str)):
    """The shapes of a module's or cache's own arrays, and a module's settings of these types."""
    found = [(name, value) for name, value in fields(node) if not isinstance(value, tuple)]
    for name, value in fields(node):
        if type(value) is tuple:
            found += [(f"{name}.{i}", item) for i, item in enumerate(value) if not isinstance(item, tuple)]
    arrays = [(name, value) for name, value in found if hasattr(value, "shape")]
    texts = [f"{name} {value.shape}" for name, value in arrays]
    if is_module(node):
        texts += [f"{name}={value}" for name, value in fields(node) if type(value) in settings and name != "path"]
    return f"  {', '.join(texts)}" if texts else ""


def size(module):
    """How many parameters a module has, of which dtype and where, or that they have no memory."""
    storage = next((parameter.storage for parameter in module.parameters()), None)
    where = f"{storage.dtype} on {storage.device}" if storage else "no memory"
    count = module.num_parameters()
    return f"{count:,} parameters" + (f", {where}" if count else "")


def is_module(value):
    return hasattr(type(value), "named_modules")


class Walk:
    """All modules and parameters in the tree of `root`, each once: the lists `modules` and `parameters`.

    A step asks for them several times. Whether the tree is still the same takes much less time to find out.
    """

    def __init__(self, root):
        self.root, self.parameters = root, [*root.parameters()]
        self.modules = [module for _, module in root.named_modules()]
        attributes = [vars(module).values() for module in self.modules]  # each shows what there is now
        self.places = attributes + [value for value in chain(*attributes) if isinstance(value, list)]
        self.found = [*chain(*self.places)]

    def is_current(self):
        """Whether no attribute of a module and no item of a list has been replaced, added or removed since."""
        now = [*chain(*self.places)]
        return len(now) == len(self.found) and all(map(is_, now, self.found))


# -- what may stand in it -----------------------------------------------------------------------------------------


def check_replacement(module, name, new):
    """Raise TypeError unless a parameter is replaced by a parameter or None, and a module by a module."""
    old = vars(module).get(name)
    where = f"{type(module).__name__}.{name} is a {type(old).__name__}"
    if isinstance(old, Variable) and not (new is None or isinstance(new, Variable)):
        raise TypeError(
            f"{where} {old.shape}, got {type(new).__name__}; to change its numbers, assign to {name}.data, or call "
            "load_state_dict()"
        )
    if is_module(old) and not is_module(new):
        raise TypeError(
            f"{where}; expected a module in its place, got {type(new).__name__}; nn.Identity() leaves a layer out"
        )


def check_found(module):
    """Raise TypeError if a module holds modules or parameters where they would not be found, and never be trained."""
    for name, value in vars(module).items():
        items = value if isinstance(value, (list, tuple)) else () if isinstance(value, Variable) else (value,)
        if any(holds_any(item) and not is_module(item) for item in items):
            raise TypeError(
                f"{type(module).__name__}.{name}: parameters in a {type(value).__name__} are not found; make each an "
                "attribute, and keep modules as attributes or in a plain list"
            )


def holds_any(value):
    """Whether a value is a parameter, buffer or module, or a container of one."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    return isinstance(value, Variable) or is_module(value) or any(map(holds_any, items))
