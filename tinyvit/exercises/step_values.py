"""The intermediates of exercises by name, as their solutions compute them.

Of each step: what it is, as a formula, and where its value is found, as `function.variable` of a function that the
solution calls, or `function.returned`, with [0] for the first of several that it returns. In a backward, a step has
the name of what it goes back through, and its value is the gradient that comes out.
"""

import re
import sys
from types import FunctionType

from tinyvit.exercises import solutions

ATTENTION = {
    "qkv": ("x W_qkvᵀ + b, (B, N, 3D)", "multi_head_attention.qkv"),
    "probs": ("softmax(q kᵀ / √d), (B, H, N, N)", "attention.probs"),
    "heads": ("probs v, joined to (B, N, D)", "multi_head_attention.heads"),
    "proj": ("heads W_projᵀ + b", "multi_head_attention.returned"),
}
ATTENTION_BACKWARD = {
    "proj": ("dy W_proj, the gradient of the joined heads", "multi_head_attention_backward.dheads"),
    "heads": ("dq, dk, dv, joined and beside each other, (B, N, 3D)", "multi_head_attention_backward.dqkv"),
    "qkv": ("dqkv W_qkv, the gradient of x", "multi_head_attention_backward.dx"),
}
MLP = {
    "fc1": ("x W₁ᵀ + b₁", "gelu.x"),
    "gelu": ("GELU(fc1)", "mlp.a"),
    "fc2": ("gelu W₂ᵀ + b₂", "mlp.returned"),
}
MLP_BACKWARD = {
    "fc2": ("dy W₂", "mlp_backward.da"),
    "gelu": ("fc2 · GELU′ at x W₁ᵀ + b₁", "mlp_backward.dh"),
    "fc1": ("gelu W₁, the gradient of x", "mlp_backward.returned[0]"),
}


def within(part, steps):
    """The steps of a part under its name; what they are stays in terms of the part."""
    return {f"{part}.{name}": step for name, step in steps.items()}


STEPS = {
    "layernorm": {
        "centred": ("x − mean(x)", "layernorm.centred"),
        "rstd": ("1 / √(variance + ε)", "layernorm.rstd"),
        "xhat": ("centred · rstd", "layernorm.xhat"),
        "y": ("γ xhat + β", "layernorm.returned"),
    },
    "layernorm_backward": {
        "xhat": ("(x − mean(x)) / √(variance + ε)", "layernorm_backward.xhat"),
        "g": ("dy γ", "layernorm_backward.g"),
        "mean_g": ("mean(g) of each row", "layernorm_backward.mean_g"),
        "mean_gxhat": ("mean(g xhat) of each row", "layernorm_backward.mean_gxhat"),
        "dx": ("(g − mean_g − xhat mean_gxhat) / √(variance + ε)", "layernorm_backward.dx"),
    },
    "attention": {
        "scores": ("q kᵀ / √d", "attention.scores"),
        "probs": ("softmax(scores)", "attention.probs"),
        "heads": ("probs v", "attention.returned"),
    },
    "attention_backward": {
        "dv": ("probsᵀ dy", "attention_backward.dv"),
        "dprobs": ("dy vᵀ", "attention_backward.dprobs"),
        "dscores": ("of q kᵀ / √d, through the softmax", "softmax_backward.returned"),
        "dq": ("dscores k / √d", "attention_backward.returned[0]"),
        "dk": ("dscoresᵀ q / √d", "attention_backward.returned[1]"),
    },
    "multi_head_attention": ATTENTION,
    "multi_head_attention_backward": ATTENTION_BACKWARD,
    "mlp": MLP,
    "mlp_backward": MLP_BACKWARD,
    "block": {
        "norm1": ("layernorm(x)", "block.a"),
        **within("attn", ATTENTION),
        "sum1": ("x + attn.proj", "block.x1"),
        "norm2": ("layernorm(sum1)", "block.m"),
        **within("mlp", MLP),
        "sum2": ("sum1 + mlp.fc2", "block.returned"),
    },
    "block_backward": {
        **within("mlp", MLP_BACKWARD),
        "norm2": ("mlp.fc1 through norm2, taken at x + attention", "block_backward.dm"),
        "sum1": ("dy + norm2: what came past the MLP, and through it", "block_backward.dx1"),
        **within("attn", ATTENTION_BACKWARD),
        "norm1": ("attn.qkv through norm1, taken at x", "block_backward.da"),
        "dx": ("sum1 + norm1: what came past the attention, and through it", "block_backward.returned[0]"),
    },
    "vit": {
        "patchify": ("the images cut into patches", "patchify.returned"),
        "embed": ("tokens, (B, N+1, D)", "embed.returned"),
        "blocks": ("what block {} returns", "block.returned"),
        "norm": ("layernorm of all tokens", "vit.x"),
        "head": ("the logits, of the class token", "vit.returned"),
    },
    "vit_backward": {
        "head": ("dy W_head in the class token's row, zeros in the others, (B, N+1, D)", "vit_backward.dnormed"),
        "norm": ("head through the last layer norm", "layernorm_backward.returned[0]"),
        "blocks": ("the gradient of what entered block {}", "block_backward.returned[0]"),
        "embed": ("the gradient of the patches", "vit_backward.dpatches"),
        "patchify": ("of the images", "vit_backward.returned[0]"),
    },
}


def step_values(name, arguments):
    """{step: (what it is, its value)} of an exercise's solution for these arguments, in the order of the steps."""
    calls = {}

    def look(frame, event, value):
        function = frame.f_code.co_name
        if event == "return" and isinstance(getattr(solutions, function, None), FunctionType):
            calls.setdefault(function, []).append({**frame.f_locals, "returned": value})

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        getattr(solutions, name)(*arguments)
    finally:
        sys.setprofile(before)
    found = {}
    for step, (said, where) in STEPS[name].items():
        function, variable, number = re.fullmatch(r"(\w+)\.(\w+)(?:\[(\d)\])?", where).groups()
        values = [call[variable] if number is None else call[variable][int(number)] for call in calls[function]]
        if step != "blocks":
            found[step] = said, values[0]
            continue
        numbers = range(len(values)) if name == "vit" else reversed(range(len(values)))
        found |= {f"blocks.{i}": (said.format(i), value) for i, value in zip(numbers, values)}
    return found
