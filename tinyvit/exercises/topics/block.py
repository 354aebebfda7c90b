"""The pre-norm residual block, from the whole of its parameters."""

from tinyvit.exercises.domain import OVERFLOW, Case
from tinyvit.exercises.exercise import exercise, visible_eps
from tinyvit.exercises.topics import multi_head_attention as heads
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.mlp import mlp
from tinyvit.exercises.topics.multi_head_attention import multi_head_attention

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
    _, *of_attention, _ = heads.large_scores(random)
    return x, parameters | dict(zip(ATTENTION, of_attention)), num_heads, eps


@exercise(
    inputs, "B N H d M", "", equal="B=4 N=4 H=2 d=2 M=4",
    extra=(Case(heads.LARGE, large_scores, tolerance=1e-8, hint=OVERFLOW),),
)
def block(x, parameters, num_heads, eps):
    """The pre-norm residual block, in two steps: z = x + attention(norm1(x)), and y = z + mlp(norm2(z)). The attention
    is that of `multi_head_attention`, the MLP that of `mlp`, with GELU.

      x           (B, N, D)
      parameters  a dict of arrays: norm1.weight (D,), norm1.bias (D,), attn.qkv.weight (3D, D), attn.qkv.bias (3D,),
                  attn.proj.weight (D, D), attn.proj.bias (D,), norm2.weight (D,), norm2.bias (D,), mlp.fc1.weight
                  (M, D), mlp.fc1.bias (M,), mlp.fc2.weight (D, M), mlp.fc2.bias (D,)
      num_heads   H
      eps         ε of both layer norms

    returns
      y  (B, N, D)
    """
    p = parameters
    norm1 = p["norm1.weight"], p["norm1.bias"], eps
    norm2 = p["norm2.weight"], p["norm2.bias"], eps
    of_attention = [p[f"attn.{name}"] for name in ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")]
    of_mlp = [p[f"mlp.{name}"] for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")]
    a = layernorm(x, *norm1)
    x1 = x + multi_head_attention(a, *of_attention, num_heads)
    m = layernorm(x1, *norm2)
    return x1 + mlp(m, *of_mlp)
