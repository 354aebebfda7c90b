"""The whole Vision Transformer, from images to logits."""

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics import block as of_block
from tinyvit.exercises.topics.block import block
from tinyvit.exercises.topics.embed import embed
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.linear import linear
from tinyvit.exercises.topics.patches import patchify


def inputs(random, B, C, R, P, H, d, M, K, depth, columns=None):
    D, columns = H * d, columns or R
    N = R * columns
    shapes = {"cls_token": (1, 1, D), "pos_embed": (1, N + 1, D)}
    shapes |= {"patch_embed.proj.weight": (D, C, P, P), "patch_embed.proj.bias": (D,)}
    parameters = {name: random.standard_normal(shape) * 0.5 for name, shape in shapes.items()}
    for i in range(depth):
        _, parts, _, eps = of_block.inputs(random, 1, 1, H, d, M)
        parameters |= {f"blocks.{i}.{name}": array for name, array in parts.items()}
    shapes = {"norm.weight": (D,), "norm.bias": (D,), "head.weight": (K, D), "head.bias": (K,)}
    parameters |= {name: random.standard_normal(shape) for name, shape in shapes.items()}
    return random.standard_normal((B, C, R * P, columns * P)), parameters, depth, H, eps


def as_trained(random):
    """Images and weights of the size that `exercises.train` trains on the digits."""
    images, parameters, *rest = inputs(random, 2, 1, 2, 4, 4, 12, 96, 10, 3)
    return images, {name: array * (0.3 if array.ndim > 1 else 1) for name, array in parameters.items()}, *rest


def wide(random):
    """Images of 2×3 patches."""
    return inputs(random, 4, 1, 2, 5, 2, 3, 7, 9, 1, 3)


SIZES = "B=8,3,1 R=3,4,1 P=4,7 C=10,5 H=5,9,1 d=7,6 K=6,8,1 M=9,10 depth=2,3,1"  # images of R times R patches
DIGITS, WIDE = Case("the sizes of the digits", as_trained), Case("images that aren't square", wide)
EQUAL = "B=4 R=2 P=2 C=1 H=2 d=2 K=4 M=4 depth=2"


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


@exercise(inputs, SIZES, "", equal=EQUAL, extra=(WIDE, DIGITS))
def vit(images, parameters, depth, num_heads, eps):
    """The whole ViT (Dosovitskiy et al. 2021, eqs. 1–4): cut the images into patches of P×P pixels, embed them with the
    class token in front and positions added, apply blocks 0 to depth − 1 and the last layer norm, and map the class
    token, which is token 0, to the logits by the head. Call your `patchify`, `embed`, `block` and `layernorm`.

      images      (B, C, H, W)
      parameters  a dict of arrays: cls_token (1, 1, D), pos_embed (1, N+1, D), patch_embed.proj.weight (D, C, P, P),
                  patch_embed.proj.bias (D,); for each i from 0 to depth − 1 blocks.i.norm1.weight (D,),
                  blocks.i.norm1.bias (D,), blocks.i.attn.qkv.weight (3D, D), blocks.i.attn.qkv.bias (3D,),
                  blocks.i.attn.proj.weight (D, D), blocks.i.attn.proj.bias (D,), blocks.i.norm2.weight (D,),
                  blocks.i.norm2.bias (D,), blocks.i.mlp.fc1.weight (M, D), blocks.i.mlp.fc1.bias (M,),
                  blocks.i.mlp.fc2.weight (D, M), blocks.i.mlp.fc2.bias (D,); norm.weight (D,), norm.bias (D,),
                  head.weight (K, D), head.bias (K,)
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
