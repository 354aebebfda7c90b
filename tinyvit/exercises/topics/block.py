"""The pre-norm residual block, from the whole of its parameters."""

from tinyvit.exercises.exercise import Case, Exercise, visible_eps
from tinyvit.exercises.topics import multi_head_attention
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

NORM1, NORM2 = "layernorm(x, *norm1)", "layernorm(x1, *norm2)"
SUM1, SUM2 = "x + multi_head_attention(a, *of_attention, num_heads)", "x1 + mlp(m, *of_mlp)"
BRANCH1, BRANCH2 = SUM1.removeprefix("x + "), SUM2.removeprefix("x1 + ")

FORWARD.edit("post-norm in place of pre-norm", "A ViT normalises the input of a branch, not the sum after it.",
    (NORM1, "x"), (f"m = {NORM2}", "x1 = m = layernorm(x1, *norm1)"), (SUM2, f"layernorm({SUM2}, *norm2)"))
FORWARD.edit("both residuals are forgotten", "Each branch is added to its input before the norm.", (SUM1, BRANCH1),
    (SUM2, BRANCH2))
FORWARD.edit("the first residual is forgotten", "The attention's branch is added to x.", (SUM1, BRANCH1))
FORWARD.edit("the second residual is forgotten", "The MLP's branch is added to the sum before its norm.",
    (SUM2, BRANCH2))
FORWARD.edit("the residual takes the normalised x", "The residual connection bypasses the norm as well: add the branch "
    "to x itself.", (SUM1, f"a + {BRANCH1}"), (SUM2, f"m + {BRANCH2}"))
FORWARD.edit("the MLP reads x before the attention was added", "The two branches come one after the other, not side by "
    "side.", (NORM2, "layernorm(x, *norm2)"))
FORWARD.edit("both norms are forgotten", "Each branch starts with a layer norm.", (NORM1, "x"), (NORM2, "x1"))
FORWARD.edit("the second norm is forgotten", "The MLP's branch starts with a layer norm, too.", (NORM2, "x1"))
FORWARD.edit("one norm serves both branches", "norm2 has parameters of its own.", (NORM2, "layernorm(x1, *norm1)"))
FORWARD.edit("the MLP comes before the attention", "First the tokens attend to each other, then each goes through the "
    "MLP alone.", ("a = layernorm", "x = x + mlp(layernorm(x, *norm2), *of_mlp); a = layernorm"), (SUM2, "x1"))
FORWARD.edit(*NO_MAXIMUM)
FORWARD.edit("ε is forgotten", "Both layer norms add it to the variance.", "eps = 0")
