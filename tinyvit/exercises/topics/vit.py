"""The whole Vision Transformer, from images to logits."""

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
        _, parts, _, eps = block.inputs(random, 1, 1, H, d, M)
        parameters |= {f"blocks.{i}.{name}": array for name, array in parts.items()}
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
)
EXERCISES = (FORWARD,)

FIRST = "This model reads its answer off the class token, the first one."

FORWARD.edit("the class token gets no position", "The first position is its own: put the class token in front, then "
    "add the positions.", ("embed", "tokens], 1) + positions", "tokens + positions[:, 1:]], 1)"))
FORWARD.edit("the class token stands last", "It is put in front of the patches.",
    ("embed", "[first, tokens]", "[tokens, first]"))
FORWARD.edit("positions are forgotten", "Without them the blocks could not know where a patch is.",
    ("embed", " + positions", ""))
FORWARD.edit("the blocks run in the wrong order", "Block 0 comes first.", ("range(depth)", "reversed(range(depth))"))
FORWARD.edit("every block has the parameters of block 0", "Those of block i begin with blocks.i.", ("(p, i)", "(p, 0)"))
FORWARD.edit("the last block is left out", "There are `depth` blocks, from 0 to depth − 1.", "depth = depth - 1")
FORWARD.edit("the norm after the blocks is forgotten", "A last layer norm stands before the head.",
    ('layernorm(x, p["norm.weight"], p["norm.bias"], eps)', "x"))
FORWARD.edit("the mean of the patches in place of the class token", FIRST, ("x[:, 0]", "x[:, 1:].mean(1)"))
FORWARD.edit("the mean of all tokens in place of the class token", FIRST, ("x[:, 0]", "x.mean(1)"))
FORWARD.edit("the last token in place of the class token", "The class token comes first.", ("x[:, 0]", "x[:, -1]"))
FORWARD.edit("the patch embedding's bias is forgotten", "The projection of the patches has a bias.",
    ("enter", 'p["patch_embed.proj.bias"]', "0"))
FORWARD.edit("the head's bias is forgotten", "The head has a bias.", ('p["head.bias"]', "0"))
FORWARD.edit("ε is forgotten", "All layer norms add it to the variance.", "eps = 0")
