"""The intermediates of exercises by name, computed by the package's functions, in the order that they are made in.

Each function takes its exercise's arguments and gives a dict: (what the step is, as a formula; its value) by the step's
name. In a backward, a step has the name of what it goes back through, and its value is the gradient that comes out.
"""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.solutions import join_heads as join
from tinyvit.exercises.solutions import parameters_of_block
from tinyvit.exercises.solutions import split_heads as split
from tinyvit.exercises.topics import block as of_block
from tinyvit.exercises.topics import vit as of_vit
from tinyvit.exercises.topics.embed import embed, embed_backward


def layernorm(x, weight, bias, eps):
    y, cache = F.layernorm(x, weight, bias, eps)
    return {
        "centred": ("x − mean(x)", cache.xhat / cache.rstd),
        "rstd": ("1 / √(variance + ε)", cache.rstd),
        "xhat": ("centred · rstd", cache.xhat),
        "y": ("γ xhat + β", y),
    }


def layernorm_backward(dy, x, weight, eps):
    _, cache = F.layernorm(x, weight, weight, eps)
    g = dy * weight
    return {
        "xhat": ("(x − mean(x)) / √(variance + ε)", cache.xhat),
        "g": ("dy γ", g),
        "mean_g": ("mean(g) of each row", g.mean(-1, keepdims=True)),
        "mean_gxhat": ("mean(g xhat) of each row", (g * cache.xhat).mean(-1, keepdims=True)),
        "dx": ("(g − mean_g − xhat mean_gxhat) / √(variance + ε)", F.layernorm_backward(dy, cache)[0]),
    }


def attention(q, k, v):
    y, cache = F.attention(q, k, v)
    return {
        "scores": ("q kᵀ / √d", q @ k.mT * cache.scale),
        "probs": ("softmax(scores)", cache.probs),
        "heads": ("probs v", y),
    }


def attention_backward(dy, q, k, v):
    cache = F.attention(q, k, v)[1]
    _, c_softmax = F.softmax(q @ k.mT * cache.scale)
    dprobs = dy @ v.mT
    dq, dk, dv = F.attention_backward(dy, cache)
    return {
        "dv": ("probsᵀ dy", dv),
        "dprobs": ("dy vᵀ", dprobs),
        "dscores": ("of q kᵀ / √d, through the softmax", F.softmax_backward(dprobs, c_softmax)),
        "dq": ("dscores k / √d", dq),
        "dk": ("dscoresᵀ q / √d", dk),
    }


def multi_head_attention(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    qkv, _ = F.linear(x, qkv_weight, qkv_bias)
    heads, cache = F.attention(*(split(part, num_heads) for part in np.split(qkv, 3, -1)))
    return {
        "qkv": ("x W_qkvᵀ + b, (B, N, 3D)", qkv),
        "probs": ("softmax(q kᵀ / √d), (B, H, N, N)", cache.probs),
        "heads": ("probs v, joined to (B, N, D)", join(heads)),
        "proj": ("heads W_projᵀ + b", F.linear(join(heads), proj_weight, proj_bias)[0]),
    }


def multi_head_attention_backward(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    qkv, c_qkv = F.linear(x, qkv_weight, qkv_bias)
    heads, cache = F.attention(*(split(part, num_heads) for part in np.split(qkv, 3, -1)))
    dheads = F.linear_backward(dy, F.linear(join(heads), proj_weight, proj_weight[0])[1])[0]
    dqkv = np.concatenate([join(part) for part in F.attention_backward(split(dheads, num_heads), cache)], -1)
    return {
        "proj": ("dy W_proj, the gradient of the joined heads", dheads),
        "heads": ("dq, dk, dv, joined and beside each other, (B, N, 3D)", dqkv),
        "qkv": ("dqkv W_qkv, the gradient of x", F.linear_backward(dqkv, c_qkv)[0]),
    }


def mlp(x, weight1, bias1, weight2, bias2):
    h, _ = F.linear(x, weight1, bias1)
    a, _ = F.gelu(h)
    return {
        "fc1": ("x W₁ᵀ + b₁", h),
        "gelu": ("GELU(fc1)", a),
        "fc2": ("gelu W₂ᵀ + b₂", F.linear(a, weight2, bias2)[0]),
    }


def mlp_backward(dy, x, weight1, bias1, weight2):
    h, c_fc1 = F.linear(x, weight1, bias1)
    a, c_gelu = F.gelu(h)
    da = F.linear_backward(dy, F.linear(a, weight2, weight2[:, 0])[1])[0]
    dh = F.gelu_backward(da, c_gelu)
    return {
        "fc2": ("dy W₂", da),
        "gelu": ("fc2 · GELU′ at x W₁ᵀ + b₁", dh),
        "fc1": ("gelu W₁, the gradient of x", F.linear_backward(dh, c_fc1)[0]),
    }


def block(x, parameters, num_heads, eps):
    p = parameters
    a = of_block.norm(x, p, "norm1", eps)
    attended = multi_head_attention(a, *(p[name] for name in of_block.ATTENTION), num_heads)
    x1 = x + attended["proj"][1]
    m = of_block.norm(x1, p, "norm2", eps)
    thought = mlp(m, *(p[name] for name in of_block.MLP))
    return {
        "norm1": ("layernorm(x)", a),
        **within("attn", attended),
        "sum1": ("x + attn.proj", x1),
        "norm2": ("layernorm(sum1)", m),
        **within("mlp", thought),
        "sum2": ("sum1 + mlp.fc2", x1 + thought["fc2"][1]),
    }


def block_backward(dy, x, parameters, num_heads, eps):
    p, forward = parameters, block(x, parameters, num_heads, eps)
    a, x1, m = (forward[name][1] for name in ("norm1", "sum1", "norm2"))

    def norm_backward(dy, x, name):
        return F.layernorm_backward(dy, F.layernorm(x, p[f"{name}.weight"], p[f"{name}.bias"], eps)[1])[0]

    thought = mlp_backward(dy, m, *(p[name] for name in of_block.MLP[:3]))
    dnorm2 = norm_backward(thought["fc1"][1], x1, "norm2")
    dx1 = dy + dnorm2
    attended = multi_head_attention_backward(dx1, a, *(p[name] for name in of_block.ATTENTION[:3]), num_heads)
    dnorm1 = norm_backward(attended["qkv"][1], x, "norm1")
    return {
        **within("mlp", thought),
        "norm2": ("mlp.fc1 through norm2, taken at x + attention", dnorm2),
        "sum1": ("dy + norm2: what came past the MLP, and through it", dx1),
        **within("attn", attended),
        "norm1": ("attn.qkv through norm1, taken at x", dnorm1),
        "dx": ("sum1 + norm1: what came past the attention, and through it", dx1 + dnorm1),
    }


def vit(images, parameters, depth, num_heads, eps):
    p, kernel = parameters, parameters["patch_embed.proj.weight"]
    patches, _ = F.patchify(images, kernel.shape[2:])
    x = embed(patches, kernel.reshape(len(kernel), -1), p["patch_embed.proj.bias"], p["cls_token"], p["pos_embed"])
    steps = {"patchify": ("the images cut into patches", patches), "embed": ("tokens, (B, N+1, D)", x)}
    for i in range(depth):
        x = of_block.forward(x, parameters_of_block(p, i), num_heads, eps)
        steps[f"blocks.{i}"] = f"what block {i} returns", x
    x = of_vit.final_norm(x, p, eps)
    logits, _ = F.linear(x[:, 0], p["head.weight"], p["head.bias"])
    return steps | {"norm": ("layernorm of all tokens", x), "head": ("the logits, of the class token", logits)}


def vit_backward(dy, images, parameters, depth, num_heads, eps):
    p, kernel = parameters, parameters["patch_embed.proj.weight"]
    forward = [x for _, x in vit(images, parameters, depth, num_heads, eps).values()]
    patches, *xs = forward[: 2 + depth]
    dnormed = np.zeros_like(xs[-1])
    dnormed[:, 0] = dy @ p["head.weight"]
    dx = F.layernorm_backward(dnormed, F.layernorm(xs[-1], p["norm.weight"], p["norm.bias"], eps)[1])[0]
    steps = {
        "head": ("dy W_head in the class token's row, zeros in the others, (B, N+1, D)", dnormed),
        "norm": ("head through the last layer norm", dx),
    }
    for i in reversed(range(depth)):
        module = of_block.module(xs[i], parameters_of_block(p, i), num_heads, eps)
        dx = module.backward(dx, module(xs[i])[1])
        steps[f"blocks.{i}"] = f"the gradient of what entered block {i}", dx
    dpatches = embed_backward(dx, patches, kernel.reshape(len(kernel), -1))[0]
    dimages, _ = F.unpatchify(dpatches, kernel.shape[2:], images.shape[2:])
    return steps | {"embed": ("the gradient of the patches", dpatches), "patchify": ("of the images", dimages)}


def within(part, steps):
    """The steps of a part under its name; what they are stays in terms of the part."""
    return {f"{part}.{name}": step for name, step in steps.items()}


STEPS = {
    function.__name__: function
    for function in (
        layernorm, layernorm_backward, attention, attention_backward, multi_head_attention,
        multi_head_attention_backward, mlp, mlp_backward, block, block_backward, vit, vit_backward,
    )
}  # fmt: skip
