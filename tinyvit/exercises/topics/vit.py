"""The whole Vision Transformer, from images to logits."""

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics import block as of_block
from tinyvit.exercises.topics.block import block
from tinyvit.exercises.topics.embed import embed
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.linear import linear
from tinyvit.exercises.topics.patches import patchify

DIGITS = "the sizes of the digits"


def inputs(random, B, C, side, P, depth, H, d, M, K):
    D, N = H * d, (side // P) ** 2
    shapes = {"cls_token": (1, 1, D), "pos_embed": (1, N + 1, D)}
    shapes |= {"patch_embed.proj.weight": (D, C, P, P), "patch_embed.proj.bias": (D,)}
    parameters = {name: random.standard_normal(shape) * 0.5 for name, shape in shapes.items()}
    for i in range(depth):
        _, parts, _, eps = of_block.inputs(random, 1, 1, H, d, M)
        parameters |= {f"blocks.{i}.{name}": array for name, array in parts.items()}
    shapes = {"norm.weight": (D,), "norm.bias": (D,), "head.weight": (K, D), "head.bias": (K,)}
    parameters |= {name: random.standard_normal(shape) for name, shape in shapes.items()}
    return random.standard_normal((B, C, side, side)), parameters, depth, H, eps


def as_trained(random):
    """Images and weights of the size that `exercises.train` trains on the digits."""
    images, parameters, *rest = inputs(random, 2, 1, 8, 4, 3, 4, 16, 128, 10)
    return images, {name: array * (0.3 if array.ndim > 1 else 1) for name, array in parameters.items()}, *rest


SIZES = (
    {"B": 2, "C": 3, "side": 6, "P": 3, "depth": 2, "H": 3, "d": 4, "M": 7, "K": 5},
    {"B": 1, "C": 2, "side": 4, "P": 2, "depth": 3, "H": 2, "d": 3, "M": 5, "K": 4},
)
EQUAL = {"B": 4, "C": 1, "side": 4, "P": 2, "depth": 2, "H": 2, "d": 2, "M": 4, "K": 4}


def enter(images, parameters):
    """The patches, and the tokens that enter the first block."""
    p = parameters
    kernel = p["patch_embed.proj.weight"]                                      # (D, C, P, Q)
    patches = patchify(images, kernel.shape[2:])
    weight = kernel.reshape(len(kernel), -1)
    return patches, embed(patches, weight, p["patch_embed.proj.bias"], p["cls_token"], p["pos_embed"])


def parameters_of_block(parameters, i):
    start = f"blocks.{i}."
    return {name.removeprefix(start): array for name, array in parameters.items() if name.startswith(start)}


@exercise(inputs, SIZES, equal=EQUAL, traps=(Case(DIGITS, as_trained),))
def vit(images, parameters, depth, num_heads, eps):
    """The whole ViT: cut images into patches, embed them, go through blocks 0 to depth − 1, normalise, and map the
    class token to the logits by the head (Dosovitskiy et al. 2021, eqs. 1–4). Call the functions you wrote before.

      images      (B, C, H, W)
      parameters  a dict of arrays: cls_token (1, 1, D), pos_embed (1, N+1, D), patch_embed.proj.weight (D, C, P, P)
                  and .bias (D,), those of block i as blocks.i.norm1.weight, …, norm.weight and .bias, head.weight (K,
                  D) and .bias
      depth       how many blocks there are
      num_heads   of each block
      eps         ε of all layer norms

    returns
      logits  (B, K)
    """
    p = parameters
    _, x = enter(images, p)
    for i in range(depth):
        x = block(x, parameters_of_block(p, i), num_heads, eps)
    x = layernorm(x, p["norm.weight"], p["norm.bias"], eps)
    return linear(x[:, 0], p["head.weight"], p["head.bias"])


lesson(vit, """
Package: tinyvit.models.vit.ViT.forward

Hints:
  Which exercises are its parts, and in which order? What of the last block's result does the head read?
  patchify → embed → block 0, …, block depth − 1 → layer norm → class token → linear.
  logits = LN(z_L)⁰ Wᵀ + b. The kernel (D, C, P, Q) is embed's weight (D, C·P·Q); block i's parameters are those whose
      names begin with blocks.i., without that beginning.

Steps:
  patchify  patchify.returned  the images cut into patches
  embed     embed.returned     tokens, (B, N+1, D)
  blocks    block.returned     what block {} returns
  norm      vit.x              layernorm of all tokens
  head      vit.returned       the logits, of the class token

Mistakes:
  the class token gets no position
    The first position is its own: put the class token in front, then add the positions.
    embed: `tokens], 1) + positions` → `tokens + positions[:, 1:]], 1)`
  the class token stands last
    It is put in front of the patches.
    embed: `[first, tokens]` → `[tokens, first]`
  positions are forgotten
    Without them the blocks could not know where a patch is.
    embed: ` + positions` → ``
  the blocks run in the wrong order
    Block 0 comes first.
    `range(depth)` → `reversed(range(depth))`
  every block has the parameters of block 0
    Those of block i begin with blocks.i.
    `(p, i)` → `(p, 0)`
  the last block is left out
    There are `depth` blocks, from 0 to depth − 1.
    `depth = depth - 1`
  the norm after the blocks is forgotten
    A last layer norm stands before the head.
    `layernorm(x, p["norm.weight"], p["norm.bias"], eps)` → `x`
  the mean of the patches in place of the class token
    This model reads its answer off the class token, the first one.
    `x[:, 0]` → `x[:, 1:].mean(1)`
  the mean of all tokens in place of the class token
    This model reads its answer off the class token, the first one.
    `x[:, 0]` → `x.mean(1)`
  the last token in place of the class token
    The class token comes first.
    `x[:, 0]` → `x[:, -1]`
  the patch embedding's bias is forgotten
    The projection of the patches has a bias.
    enter: `p["patch_embed.proj.bias"]` → `0`
  the head's bias is forgotten
    The head has a bias.
    `p["head.bias"]` → `0`
  ε is forgotten
    All layer norms add it to the variance.
    `eps = 0`
""")
