"""A module tree as text."""

from itertools import groupby

from tinyvit.nn.variables import Variable


def tree(module):
    """A module and all that it is made of, a line each, with the shapes of its arrays; equal neighbours fold into one.

        ViT  102,666 parameters
          embed: Embed  cls_token (1, 1, 64)
            positions: LearnedPositions  pos_embed (1, 5, 64)
          …
            blocks.0 to blocks.2: Block  3 × 33,472 parameters
              norm1: LayerNorm  weight (64,), bias (64,)
    """
    first = f"{type(module).__name__}{arrays(module)}  {module.num_parameters():,} parameters"
    return "\n".join([first, *below(module)])


def below(module):
    """The lines of a module's children, two spaces further in."""
    lines = []
    for (kind, own, inner), group in groupby(module.children(), key=lambda child: described(child[1])):
        group = list(group)
        name = group[0][0] if len(group) == 1 else f"{group[0][0]} to {group[-1][0]}"
        count = f"  {len(group)} × {group[0][1].num_parameters():,} parameters" if len(group) > 1 else ""
        lines += [f"  {name}: {kind}{own}{count}", *(f"  {line}" for line in inner)]
    return lines


def described(module):
    return type(module).__name__, arrays(module), tuple(below(module))


def arrays(module):
    """The names and shapes of a module's own arrays."""
    own = [f"{name} {value.shape}" for name, value in vars(module).items() if isinstance(value, Variable)]
    return f"  {', '.join(own)}" if own else ""
