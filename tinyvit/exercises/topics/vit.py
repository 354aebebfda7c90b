"""The whole Vision Transformer, from images to logits."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import block
from tinyvit.models.vit import ViT
from tinyvit.models.vit_config import ViTConfig

DIGITS = "the sizes of the digits"


def inputs(random, B, C, side, P, depth, H, d, M, K):
    D, N = H * d, (side // P) ** 2
    shapes = {"cls_token": (1, 1, D), "pos_embed": (1, N + 1, D)}
    shapes |= {"patch_embed.proj.weight": (D, C, P, P), "patch_embed.proj.bias": (D,)}
    parameters = {name: random.standard_normal(shape) * 0.5 for name, shape in shapes.items()}
    for i in range(depth):
        _, of_block, _, eps = block.inputs(random, 1, 1, H, d, M)
        parameters |= {f"blocks.{i}.{name}": array for name, array in of_block.items()}
    shapes = {"norm.weight": (D,), "norm.bias": (D,), "head.weight": (K, D), "head.bias": (K,)}
    parameters |= {name: random.standard_normal(shape) for name, shape in shapes.items()}
    return random.standard_normal((B, C, side, side)), parameters, depth, H, eps


def as_trained(random):
    """Images and weights of the size that `exercises.train` trains on the digits."""
    images, parameters, *rest = inputs(random, 2, 1, 8, 4, 3, 4, 16, 128, 10)
    return images, {name: array * (0.3 if array.ndim > 1 else 1) for name, array in parameters.items()}, *rest


def module(images, parameters, depth, num_heads, eps):
    """The package's own model with these parameters."""
    D, C, P, Q = parameters["patch_embed.proj.weight"].shape
    hidden = len(parameters["blocks.0.mlp.fc1.bias"])
    model = ViT(
        ViTConfig(
            img_size=images.shape[2:], patch_size=(P, Q), in_chans=C, num_classes=len(parameters["head.bias"]),
            embed_dim=D, depth=depth, num_heads=num_heads, mlp_ratio=hidden / D, norm_eps=eps,
        ),
        dtype="float64",
    )  # fmt: skip
    model.load_state_dict(parameters)
    return model


def right(images, parameters, depth, num_heads, eps):
    return module(images, parameters, depth, num_heads, eps)(images)[0]


# -- the steps, and other ways to take them -------------------------------------------------------------------------


def of_block(parameters, i):
    """The parameters of block i, by the names that they have in the exercise `block`."""
    start = f"blocks.{i}."
    return {name.removeprefix(start): array for name, array in parameters.items() if name.startswith(start)}


def with_class_token(tokens, p):
    return np.concatenate([np.repeat(p["cls_token"], len(tokens), 0), tokens], 1) + p["pos_embed"]


def class_token_last(tokens, p):
    return np.concatenate([tokens, np.repeat(p["cls_token"], len(tokens), 0)], 1) + p["pos_embed"]


def class_token_without_position(tokens, p):
    return np.concatenate([np.repeat(p["cls_token"], len(tokens), 0), tokens + p["pos_embed"][:, 1:]], 1)


def final_norm(x, p, eps):
    return F.layernorm(x, p["norm.weight"], p["norm.bias"], eps)[0]


def first_token(x):
    return x[:, 0]


def written(images, p, depth, num_heads, eps, start=with_class_token, blocks=range, norm=final_norm, pool=first_token):
    """The logits, with a switch for each step."""
    kernel = p["patch_embed.proj.weight"]
    patches, _ = F.patchify(images, kernel.shape[2:])
    tokens, _ = F.linear(patches, kernel.reshape(len(kernel), -1), p["patch_embed.proj.bias"])
    x = start(tokens, p)
    for i in blocks(depth):
        x = block.forward(x, of_block(p, i), num_heads, eps)
    return F.linear(pool(norm(x, p, eps)), p["head.weight"], p["head.bias"])[0]


SIZES = (
    {"B": 2, "C": 3, "side": 6, "P": 3, "depth": 2, "H": 3, "d": 4, "M": 7, "K": 5},
    {"B": 1, "C": 2, "side": 4, "P": 2, "depth": 3, "H": 2, "d": 3, "M": 5, "K": 4},
)
EQUAL = {"B": 4, "C": 1, "side": 4, "P": 2, "depth": 2, "H": 2, "d": 2, "M": 4, "K": 4}
ARGUMENTS = {
    "images": "(B, C, H, W)",
    "parameters": "a dict of arrays: cls_token (1, 1, D), pos_embed (1, N+1, D), patch_embed.proj.weight (D, C, P, P) "
    "and .bias (D,), those of block i as blocks.i.norm1.weight, …, norm.weight and .bias, head.weight (K, D) and .bias",
    "depth": "how many blocks there are",
    "num_heads": "of each block",
    "eps": "ε of all layer norms",
}
FORWARD = Exercise(
    "vit",
    "The whole ViT: cut images into patches, embed them, go through blocks 0 to depth − 1, normalise, and map the "
    "class token to the logits by the head (Dosovitskiy et al. 2021, eqs. 1–4). Call the functions you wrote before.",
    ARGUMENTS,
    {"logits": "(B, K)"},
    right=right,
    shown=(ViT.forward,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
    traps=(Case(DIGITS, as_trained),),
    written=written,
)
EXERCISES = (FORWARD,)

FORWARD.variant(
    "the class token gets no position",
    "The first position is its own: put the class token in front, then add the positions.",
    start=class_token_without_position,
)
FORWARD.variant("the class token stands last", "It is put in front of the patches.", start=class_token_last)
FORWARD.variant(
    "positions are forgotten",
    "Without them the blocks could not know where a patch is.",
    start=lambda tokens, p: with_class_token(tokens, p | {"pos_embed": 0 * p["pos_embed"]}),
)
FORWARD.variant(
    "the blocks run in the wrong order", "Block 0 comes first.", blocks=lambda depth: reversed(range(depth))
)
FORWARD.variant(
    "every block has the parameters of block 0",
    "Those of block i begin with blocks.i.",
    blocks=lambda depth: [0] * depth,
)
FORWARD.variant(
    "the last block is left out",
    "There are `depth` blocks, from 0 to depth − 1.",
    blocks=lambda depth: range(depth - 1),
)
FORWARD.variant(
    "the norm after the blocks is forgotten", "A last layer norm stands before the head.", norm=lambda x, p, eps: x
)
FORWARD.variant(
    "the mean of the patches in place of the class token",
    "This model reads its answer off the class token, the first one.",
    pool=lambda x: x[:, 1:].mean(1),
)
FORWARD.variant(
    "the mean of all tokens in place of the class token",
    "This model reads its answer off the class token, the first one.",
    pool=lambda x: x.mean(1),
)
FORWARD.variant("the last token in place of the class token", "The class token comes first.", pool=lambda x: x[:, -1])


@FORWARD.misreading("the patch embedding's bias is forgotten", "The projection of the patches has a bias.")
def without_patch_bias(images, p, depth, num_heads, eps):
    return images, p | {"patch_embed.proj.bias": 0 * p["patch_embed.proj.bias"]}, depth, num_heads, eps


@FORWARD.misreading("the head's bias is forgotten", "The head has a bias.")
def without_head_bias(images, p, depth, num_heads, eps):
    return images, p | {"head.bias": 0 * p["head.bias"]}, depth, num_heads, eps


@FORWARD.misreading("ε is forgotten", "All layer norms add it to the variance.")
def without_eps(images, p, depth, num_heads, eps):
    return images, p, depth, num_heads, 0.0
