"""The pre-norm residual block, from the whole of its parameters."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise, visible_eps
from tinyvit.exercises.topics import mlp, multi_head_attention
from tinyvit.exercises.topics.attention import NO_MAXIMUM
from tinyvit.nn.block import Block

ATTENTION = ("attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias")
MLP = ("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias")


def inputs(random, B, N, H, d, M):
    D = H * d
    shapes = {"norm1.weight": (D,), "norm1.bias": (D,)}
    shapes |= dict(zip(ATTENTION, ((3 * D, D), (3 * D,), (D, D), (D,))))
    shapes |= {"norm2.weight": (D,), "norm2.bias": (D,)}
    shapes |= dict(zip(MLP, ((M, D), (M,), (D, M), (D,))))
    parameters = {name: random.standard_normal(shape) * 0.5 for name, shape in shapes.items()}
    return 1 + random.standard_normal((B, N, D)), parameters, H, visible_eps(random)


def large_scores(random):
    """The scores of each query are all near 1000, by the biases of queries and keys."""
    x, parameters, num_heads, eps = inputs(random, 2, 3, 2, 4, 5)
    _, *of_attention, _ = multi_head_attention.large_scores(random)
    return x, parameters | dict(zip(ATTENTION, of_attention)), num_heads, eps


# -- the branches -------------------------------------------------------------------------------------------------


def attend(x, parameters, num_heads, forward=multi_head_attention.forward):
    return forward(x, *(parameters[name] for name in ATTENTION), num_heads)


def think(x, parameters):
    return mlp.forward(x, *(parameters[name] for name in MLP))


def norm(x, parameters, name, eps):
    return F.layernorm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], eps)[0]


# -- the block ----------------------------------------------------------------------------------------------------


def module(x, parameters, num_heads, eps):
    """The package's own block with these parameters."""
    block = Block(x.shape[-1], num_heads, len(parameters["mlp.fc1.bias"]), norm_eps=eps).materialize(dtype="float64")
    block.load_state_dict(parameters)
    return block


def forward(x, parameters, num_heads, eps):
    return module(x, parameters, num_heads, eps)(x)[0]


SIZES = {"B": 2, "N": 5, "H": 3, "d": 4, "M": 7}, {"B": 1, "N": 3, "H": 2, "d": 3, "M": 5}
EQUAL = {"B": 4, "N": 4, "H": 2, "d": 2, "M": 4}
ARGUMENTS = {
    "x": "(B, N, D)",
    "parameters": "a dict: norm1.weight, norm1.bias, attn.qkv.weight, … as in a model's blocks.0, by these names",
    "num_heads": "H",
    "eps": "ε of both layer norms",
}
FORWARD = Exercise(
    "block",
    "The pre-norm residual block: x plus attention(norm1(x)), and to that sum mlp(norm2(sum)) is added.",
    ARGUMENTS,
    {"y": "(B, N, D)"},
    right=forward,
    shown=(Block.forward,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
    traps=(Case(multi_head_attention.LARGE, large_scores),),
)
EXERCISES = (FORWARD,)


@FORWARD.mistake("post-norm in place of pre-norm", "A ViT normalises the input of a branch, not the sum after it.")
def post_norm(x, p, num_heads, eps):
    x = norm(x + attend(x, p, num_heads), p, "norm1", eps)
    return norm(x + think(x, p), p, "norm2", eps)


@FORWARD.mistake("both residuals are forgotten", "Each branch is added to its input before the norm.")
def without_residuals(x, p, num_heads, eps):
    x = attend(norm(x, p, "norm1", eps), p, num_heads)
    return think(norm(x, p, "norm2", eps), p)


@FORWARD.mistake("the first residual is forgotten", "The attention's branch is added to x.")
def without_residual1(x, p, num_heads, eps):
    x = attend(norm(x, p, "norm1", eps), p, num_heads)
    return x + think(norm(x, p, "norm2", eps), p)


@FORWARD.mistake("the second residual is forgotten", "The MLP's branch is added to the sum before its norm.")
def without_residual2(x, p, num_heads, eps):
    x = x + attend(norm(x, p, "norm1", eps), p, num_heads)
    return think(norm(x, p, "norm2", eps), p)


@FORWARD.mistake(
    "the residual takes the normalised x",
    "The residual connection bypasses the norm as well: add the branch to x itself.",
)
def residual_of_the_norm(x, p, num_heads, eps):
    x = norm(x, p, "norm1", eps)
    x = x + attend(x, p, num_heads)
    x = norm(x, p, "norm2", eps)
    return x + think(x, p)


@FORWARD.mistake(
    "the MLP reads x before the attention was added", "The two branches come one after the other, not side by side."
)
def parallel(x, p, num_heads, eps):
    return x + attend(norm(x, p, "norm1", eps), p, num_heads) + think(norm(x, p, "norm2", eps), p)


@FORWARD.mistake("both norms are forgotten", "Each branch starts with a layer norm.")
def without_norms(x, p, num_heads, eps):
    x = x + attend(x, p, num_heads)
    return x + think(x, p)


@FORWARD.mistake("the second norm is forgotten", "The MLP's branch starts with a layer norm, too.")
def without_norm2(x, p, num_heads, eps):
    x = x + attend(norm(x, p, "norm1", eps), p, num_heads)
    return x + think(x, p)


@FORWARD.mistake("one norm serves both branches", "norm2 has parameters of its own.")
def norm1_twice(x, p, num_heads, eps):
    x = x + attend(norm(x, p, "norm1", eps), p, num_heads)
    return x + think(norm(x, p, "norm1", eps), p)


@FORWARD.mistake(
    "the MLP comes before the attention", "First the tokens attend to each other, then each goes through the MLP alone."
)
def mlp_first(x, p, num_heads, eps):
    x = x + think(norm(x, p, "norm2", eps), p)
    return x + attend(norm(x, p, "norm1", eps), p, num_heads)


@FORWARD.mistake(*NO_MAXIMUM)
def without_maximum(x, p, num_heads, eps):
    x = x + attend(norm(x, p, "norm1", eps), p, num_heads, multi_head_attention.without_maximum)
    return x + think(norm(x, p, "norm2", eps), p)


@FORWARD.misreading("ε is forgotten", "Both layer norms add it to the variance.")
def without_eps(x, p, num_heads, eps):
    return x, p, num_heads, 0.0
