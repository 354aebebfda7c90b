"""The gradients of the pre-norm residual block."""

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.block import block
from tinyvit.exercises.topics.layernorm import layernorm
from tinyvit.exercises.topics.layernorm_backward import layernorm_backward
from tinyvit.exercises.topics.mlp import mlp_backward
from tinyvit.exercises.topics.multi_head_attention import multi_head_attention
from tinyvit.exercises.topics.multi_head_attention_backward import multi_head_attention_backward


@exercise(forward=block)
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
