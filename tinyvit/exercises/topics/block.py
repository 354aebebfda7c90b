"""The pre-norm residual block, from the whole of its parameters."""

from tinyvit.exercises.exercise import Case, exercise, lesson, visible_eps
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


SIZES = {"B": 2, "N": 5, "H": 3, "d": 4, "M": 7}, {"B": 1, "N": 3, "H": 2, "d": 3, "M": 5}
EQUAL = {"B": 4, "N": 4, "H": 2, "d": 2, "M": 4}


@exercise(inputs, SIZES, equal=EQUAL, traps=(Case(heads.LARGE, large_scores),))
def block(x, parameters, num_heads, eps):
    """The pre-norm residual block: x plus attention(norm1(x)), and to that sum mlp(norm2(sum)) is added.

      x           (B, N, D)
      parameters  a dict: norm1.weight, norm1.bias, attn.qkv.weight, … as in a model's blocks.0, by these names
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


lesson(block, """
Package: tinyvit.nn.block.Block.forward

Hints:
  What does a residual connection go past: the branch alone, or its norm as well?
  x₁ = x + branch(norm1(x)), and y in the same way from x₁.
  x₁ = x + attention(norm1(x)), y = x₁ + mlp(norm2(x₁)).

Steps:
  norm1       block.a                        layernorm(x)
  attn.qkv    multi_head_attention.qkv       x W_qkvᵀ + b, (B, N, 3D)
  attn.probs  attention.probs                softmax(q kᵀ / √d), (B, H, N, N)
  attn.heads  multi_head_attention.heads     probs v, joined to (B, N, D)
  attn.proj   multi_head_attention.returned  heads W_projᵀ + b
  sum1        block.x1                       x + attn.proj
  norm2       block.m                        layernorm(sum1)
  mlp.fc1     gelu.x                         x W₁ᵀ + b₁
  mlp.gelu    mlp.a                          GELU(fc1)
  mlp.fc2     mlp.returned                   gelu W₂ᵀ + b₂
  sum2        block.returned                 sum1 + mlp.fc2

Places:
  norm1: layernorm 0
  norm2: layernorm 1

Mistakes:
  post-norm in place of pre-norm
    A ViT normalises the input of a branch, not the sum after it.
    `layernorm(x, *norm1)` → `x`
    `m = layernorm(x1, *norm2)` → `x1 = m = layernorm(x1, *norm1)`
    `x1 + mlp(m, *of_mlp)` → `layernorm(x1 + mlp(m, *of_mlp), *norm2)`
  both residuals are forgotten
    Each branch is added to its input before the norm.
    `x + multi_head_attention(a, *of_attention, num_heads)` → `multi_head_attention(a, *of_attention, num_heads)`
    `x1 + mlp(m, *of_mlp)` → `mlp(m, *of_mlp)`
  the first residual is forgotten
    The attention's branch is added to x.
    `x + multi_head_attention(a, *of_attention, num_heads)` → `multi_head_attention(a, *of_attention, num_heads)`
  the second residual is forgotten
    The MLP's branch is added to the sum before its norm.
    `x1 + mlp(m, *of_mlp)` → `mlp(m, *of_mlp)`
  the residual takes the normalised x
    The residual connection bypasses the norm as well: add the branch to x itself.
    `x + multi_head_attention(a, *of_attention, num_heads)` → `a + multi_head_attention(a, *of_attention, num_heads)`
    `x1 + mlp(m, *of_mlp)` → `m + mlp(m, *of_mlp)`
  the MLP reads x before the attention was added
    The two branches come one after the other, not side by side.
    `layernorm(x1, *norm2)` → `layernorm(x, *norm2)`
  both norms are forgotten
    Each branch starts with a layer norm.
    `layernorm(x, *norm1)` → `x`
    `layernorm(x1, *norm2)` → `x1`
  the second norm is forgotten
    The MLP's branch starts with a layer norm, too.
    `layernorm(x1, *norm2)` → `x1`
  one norm serves both branches
    norm2 has parameters of its own.
    `layernorm(x1, *norm2)` → `layernorm(x1, *norm1)`
  the MLP comes before the attention
    First the tokens attend to each other, then each goes through the MLP alone.
    `a = layernorm` → `x = x + mlp(layernorm(x, *norm2), *of_mlp); a = layernorm`
    `x1 + mlp(m, *of_mlp)` → `x1`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  ε is forgotten
    Both layer norms add it to the variance.
    `eps = 0`
""")
