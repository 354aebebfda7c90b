"""Compositions without a fork: each part reads what the one before it returned."""

from tinyvit.nn.module import Module
from tinyvit.nn.tree import cache_type


class Chain(Module):
    """y = fₙ(… f₂(f₁(x))), of sub-modules in the order in which they were set.

    The cache is a NamedTuple of the parts' caches, by the parts' names. Parts without a name are called "0", "1", …
    """

    def __init__(self, *numbered, **named):
        for name, part in (*enumerate(numbered), *named.items()):
            setattr(self, str(name), part)

    def __getitem__(self, index):
        return [part for _, part in self.children()][index]

    def forward(self, x, ctx=None):
        parts, caches = dict(self.children()), []
        for part in parts.values():
            x, cache = part(x, ctx)
            caches.append(cache)
        return x, cache_type(type(self).__name__, tuple(parts))(*caches)

    def backward(self, dy, cache):
        for (_, part), c_part in zip(reversed([*self.children()]), reversed(cache)):
            dy = part.backward(dy, c_part)
        return dy


class TransparentChain(Chain):
    """A chain that adds no level to its parts' names: they are those of the module that has it."""

    transparent = True


class Operation(Module):
    """An operation of `functional` as a layer: y = operation(x, *arguments)."""

    def __init__(self, operation, *arguments):
        self.operation, self.arguments, self.name = operation, arguments, operation.__name__

    def forward(self, x, ctx=None):
        return self.operation(x, *self.arguments)

    def backward(self, dy, cache):
        return self.operation.backward(dy, cache)
