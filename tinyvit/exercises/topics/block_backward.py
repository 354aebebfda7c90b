"""The gradients of the pre-norm residual block."""

from tinyvit.exercises.exercise import Case, exercise, lesson
from tinyvit.exercises.topics.block import block, large_scores
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.mlp import mlp_backward
from tinyvit.exercises.topics.multi_head_attention import LARGE, multi_head_attention
from tinyvit.exercises.topics.multi_head_attention_backward import multi_head_attention_backward


@exercise(forward=block, traps=(Case(LARGE, large_scores, tolerance=1e-8),))  # 1e-8 as for the attention
def block_backward(dy, x, parameters, num_heads, eps):
    """The gradients of `block`: of x, and of all parameters by their names.

      dy          (B, N, D), the gradient of y
      x           (B, N, D)
      parameters  a dict: norm1.weight, norm1.bias, attn.qkv.weight, … as in a model's blocks.0, by these names
      num_heads   H
      eps         ε of both layer norms

    returns
      dx         (B, N, D)
      gradients  a dict: the gradient of each parameter, by its name
    """
    p, g = parameters, dict.fromkeys(parameters)
    a = layernorm(x, p["norm1.weight"], p["norm1.bias"], eps)
    of_attention = [p[f"attn.{name}"] for name in ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")]
    x1 = x + multi_head_attention(a, *of_attention, num_heads)
    m = layernorm(x1, p["norm2.weight"], p["norm2.bias"], eps)

    dm, *of_mlp = mlp_backward(dy, m, p["mlp.fc1.weight"], p["mlp.fc1.bias"], p["mlp.fc2.weight"])
    dm, g["norm2.weight"], g["norm2.bias"] = layernorm_backward(dm, x1, p["norm2.weight"], eps)
    dx1 = dy + dm
    da, *of_attention = multi_head_attention_backward(dx1, a, *of_attention[:3], num_heads)
    da, g["norm1.weight"], g["norm1.bias"] = layernorm_backward(da, x, p["norm1.weight"], eps)
    g |= zip(("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"), of_mlp)
    g |= zip(("attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias"), of_attention)
    return dx1 + da, g


lesson(block_backward, """
Package: tinyvit.nn.block.Block.forward, tinyvit.nn.block.Block.backward

Hints:
  x₁ is used twice, and so is x. What does a value that is used twice get?
  dx₁ = dy + (dy back through MLP and norm2), and dx in the same way from dx₁.
  dx₁ = dy + norm2′(mlp′(dy)), taken at x₁; dx = dx₁ + norm1′(attention′(dx₁)), taken at x.

Steps:
  mlp.fc2     mlp_backward.da                       dy W₂
  mlp.gelu    mlp_backward.dh                       fc2 · GELU′ at x W₁ᵀ + b₁
  mlp.fc1     mlp_backward.returned[0]              gelu W₁, the gradient of x
  norm2       block_backward.dm                     mlp.fc1 through norm2, taken at x + attention
  sum1        block_backward.dx1                    dy + norm2: what came past the MLP, and through it
  attn.proj   multi_head_attention_backward.dheads  dy W_proj, the gradient of the joined heads
  attn.heads  multi_head_attention_backward.dqkv    dq, dk, dv, joined and beside each other, (B, N, 3D)
  attn.qkv    multi_head_attention_backward.dx      dqkv W_qkv, the gradient of x
  norm1       block_backward.da                     attn.qkv through norm1, taken at x
  dx          block_backward.returned[0]            sum1 + norm1: what came past the attention, and through it

Places:
  norm1: layernorm 0, layernorm_backward 1
  norm2: layernorm 1, layernorm_backward 0
  mlp.fc2: linear_backward 0
  mlp.fc1: linear_backward 1
  attn.proj: linear_backward 2
  attn.qkv: linear_backward 3
  on the way back: split_heads 6, join_heads 2 3 4

Holds:
  dx: the rows of dx should add up to the rows of dy, since a constant added to a row of x passes both norms by and
    appears in y: a residual's gradient, or a norm's path through its mean, is missing or wrong
    `dx.sum(-1) - dy.sum(-1)`
  gradients["mlp.fc2.bias"]: it should be dy, added up over all tokens
    `gradients["mlp.fc2.bias"] - dy.sum((0, 1))`
  gradients["attn.qkv.bias"]: the keys' part should be 0: the softmax, its gradient, or the order of q, k and v
    `np.split(gradients["attn.qkv.bias"], 3)[1]`

Mistakes:
  the gradients of both residuals are forgotten
    A sum sends its gradient both ways: into the branch and past it.
    `dx1 = dy + dm` → `dx1 = dm`
    `dx1 + da` → `da`
  the first residual's gradient is forgotten
    The gradient of x + attention also goes past the attention, to x.
    `dx1 + da` → `da`
  the second residual's gradient is forgotten
    The gradient of the last sum also goes past the MLP.
    `dx1 = dy + dm` → `dx1 = dm`
  only the residual's gradient
    dy goes past both branches, and through them as well.
    `dx1 + da` → `dy`
  the attention gets dy
    It gets the gradient of the sum after it: dy plus the gradient through the MLP.
    `multi_head_attention_backward(dx1, a` → `multi_head_attention_backward(dy, a`
  the attention gets only what came through the MLP
    It gets the gradient of the sum after it: dy, which went past the MLP, plus the gradient through the MLP.
    `multi_head_attention_backward(dx1, a` → `multi_head_attention_backward(dm, a`
  dy goes past the attention, not the sum's gradient
    Past the attention goes the gradient of the sum after it: dy plus the gradient through the MLP.
    `dx1 + da` → `dy + da`
  x in place of norm1(x) in the attention's backward
    The attention's input was norm1(x): its backward is taken there.
    `multi_head_attention_backward(dx1, a` → `multi_head_attention_backward(dx1, x`
  x in place of norm1(x) in attn.qkv.weight's gradient
    The input of the linear layer qkv was norm1(x), not x.
    `global entered; entered = x`
    multi_head_attention_backward: `(dqkv, x,` → `(dqkv, entered,`
  the sum in place of norm2(sum) in mlp.fc1.weight's gradient
    The input of the linear layer fc1 was norm2 of the sum.
    `m = layer` → `global entered; entered = x1; m = layer`
    mlp_backward: `dh, x,` → `dh, entered,`
  the sum in place of norm2(sum) in the MLP's backward
    The MLP's input was norm2 of the sum: its backward is taken there.
    `mlp_backward(dy, m` → `mlp_backward(dy, x1`
  norm1's gradient is taken at its output
    A layer norm's backward needs what went into it: x.
    `layernorm_backward(da, x` → `layernorm_backward(da, a`
  norm2's gradient is taken at its output
    A layer norm's backward needs what went into it: the sum of x and the attention.
    `layernorm_backward(dm, x1` → `layernorm_backward(dm, m`
  norm1 is skipped on the way back
    Between the attention and x lies norm1: take its backward.
    `da, g["norm1.weight"], g["norm1.bias"]` → `_, g["norm1.weight"], g["norm1.bias"]`
  norm2 is skipped on the way back
    Between the MLP and the sum lies norm2: take its backward.
    `dm, g["norm2.weight"], g["norm2.bias"]` → `_, g["norm2.weight"], g["norm2.bias"]`
  both norms are skipped on the way back
    Each branch starts with a layer norm.
    `da, g["norm1.weight"], g["norm1.bias"]` → `_, g["norm1.weight"], g["norm1.bias"]`
    `dm, g["norm2.weight"], g["norm2.bias"]` → `_, g["norm2.weight"], g["norm2.bias"]`
  norm2's gradient is taken at x
    The input of norm2 is the sum of x and the attention.
    `layernorm_backward(dm, x1` → `layernorm_backward(dm, x`
  the softmax's Jacobian is taken as diagonal
    Each score changes all probabilities of its query: the Jacobian is a full matrix.
    softmax_backward: `(dy - (dy * probs).sum(-1, keepdims=True))` → `dy * (1 - probs)`
  the scale 1/√d is forgotten on the way back
    The scores were scaled: their gradient is scaled, too.
    attention_backward: `scores) * scale` → `scores)`
  the row's maximum is not subtracted
    exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing on paper,
    since it cancels, and keeps every exp between 0 and 1.
    softmax: ` - x.max(-1, keepdims=True)` → ``
  the 1/N terms of the layer norms are missing
    Mean and standard deviation depend on the whole row; see layernorm_backward.
    layernorm_backward: ` - mean_g - xhat * mean_gxhat` → ``
  wrong transpose of fc1's weight
    The forward multiplies by the transpose of fc1's weight, the backward by the weight itself.
    mlp_backward: `dh, x, weight1` → `dh, x, weight1.T`
  ε is forgotten
    Both layer norms added it to the variance.
    `eps = 0`
  the broadcast biases are not summed
    Each was added to every token of every sample: sum over both axes.
    linear_backward: `, dy_rows.sum(0)` → `, dy`
""")
