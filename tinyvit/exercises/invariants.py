"""Says what must hold for a right answer and doesn't for this one, where no mistake is recognised.

A softmax's gradient adds up to 0 over a row, whatever came in: if a learner's doesn't, the path through the sum is
wrong. What holds is written down for each exercise; and the shape of the error itself says where to look.
"""

import numpy as np

from tinyvit.exercises.general_mistakes import agree

MEAN_PATH = "adding a constant to a row of x changes nothing, so the path through the mean is missing or wrong"


def over_tokens(x):
    return x.sum((0, 1))


def normalised(x, eps):
    rstd = (x.var(-1, keepdims=True) + eps) ** -0.5
    return (x - x.mean(-1, keepdims=True)) * rstd, rstd


def along_xhat(o, dy, x, weight, eps):
    """Zero for a right dx: with ε, a layer norm keeps εr² of what lies along x̂."""
    xhat, rstd = normalised(x, eps)
    return (o["dx"] * xhat).sum(-1) - (dy * weight * xhat).sum(-1) * eps * rstd[..., 0] ** 3


def keys_of(bias):
    return np.split(bias, 3)[1]


SAME_SUM = "the rows of {0} should add up to 0, since "

# By exercise: the output, what must hold and why, and a function of the outputs and arguments that is 0 if it holds.
INVARIANTS = {
    "softmax": [
        (
            "probs",
            "the rows should add up to 1: each exp is divided by the sum of its row",
            lambda o, x: o["probs"].sum(-1) - 1,
        ),
        ("probs", "no probability may be negative: look at the exp", lambda o, x: np.minimum(o["probs"], 0)),
    ],
    "softmax_backward": [
        (
            "dx",
            "the rows of dx should add up to 0, since adding a constant to a row of x changes nothing: the path "
            "through the sum is missing or wrong",
            lambda o, dy, x: o["dx"].sum(-1),
        ),
    ],
    "layernorm": [
        (
            "y",
            "without bias and weight, the rows should add up to 0: the mean is wrong, or what stands around it",
            lambda o, x, weight, bias, eps: ((o["y"] - bias) / weight).sum(-1),
        ),
        (
            "y",
            "without bias and weight, the rows should have a variance just below 1: √(variance + ε) is wrong",
            lambda o, x, weight, bias, eps: ((o["y"] - bias) / weight).var(-1) - 1 + eps / (x.var(-1) + eps),
        ),
    ],
    "layernorm_backward": [
        ("dx", SAME_SUM.format("dx") + MEAN_PATH, lambda o, dy, x, weight, eps: o["dx"].sum(-1)),
        (
            "dx",
            "dx should have almost no part along x̂ (stretching a row changes little): the path through the variance is "
            "missing or wrong",
            along_xhat,
        ),
        ("dbias", "dbias should be dy, added up over all rows", lambda o, dy, *_: o["dbias"] - over_tokens(dy)),
        (
            "dweight",
            "weight · dweight should be the sum of dy · weight · x̂ over everything",
            lambda o, dy, x, weight, eps: o["dweight"] @ weight - (dy * weight * normalised(x, eps)[0]).sum(),
        ),
    ],
    "attention_backward": [
        (
            "dk",
            "dk should add up to 0 over the keys, since adding one vector to all keys changes nothing: the path "
            "through the softmax's sum is missing or wrong",
            lambda o, *_: o["dk"].sum(-2),
        ),
        (
            "dv",
            "dv should add up over the keys to what dy adds up to over the queries, since probabilities add up to 1",
            lambda o, dy, *_: o["dv"].sum(-2) - dy.sum(-2),
        ),
        (
            "dq",
            "Σ q·dq should equal Σ k·dk in each head, since scores hold q and k alike: a factor, or the keys in dq",
            lambda o, dy, q, k, v: (o["dq"] * q).sum((-2, -1)) - (o["dk"] * k).sum((-2, -1)),
        ),
    ],
    "multi_head_attention_backward": [
        (
            "dproj_bias",
            "dproj_bias should be dy, added up over all tokens",
            lambda o, dy, *_: o["dproj_bias"] - over_tokens(dy),
        ),
        (
            "dqkv_bias",
            "the keys' part of dqkv_bias should be 0, since adding one vector to all keys changes nothing: the "
            "softmax, its gradient, or the order of q, k and v",
            lambda o, *_: keys_of(o["dqkv_bias"]),
        ),
        (
            "dqkv_bias",
            "the values' part of dqkv_bias should be Σ dy @ proj_weight, since probabilities add up to 1",
            lambda o, dy, x, W, b, P, H: np.split(o["dqkv_bias"], 3)[2] - over_tokens(dy) @ P,
        ),
        (
            "dx",
            "Σ x·dx should equal Σ qkv_weight·dqkv_weight: both are Σ dqkv·(x Wᵀ)",
            lambda o, dy, x, W, *_: (o["dx"] * x).sum() - (o["dqkv_weight"] * W).sum(),
        ),
    ],
    "mlp_backward": [
        ("dbias2", "dbias2 should be dy, added up over all tokens", lambda o, dy, *_: o["dbias2"] - over_tokens(dy)),
        (
            "dx",
            "Σ x·dx should equal Σ W₁·dW₁: both are Σ dh·(x W₁ᵀ)",
            lambda o, dy, x, W1, *_: (o["dx"] * x).sum() - (o["dweight1"] * W1).sum(),
        ),
        (
            "dbias1",
            "x and dW₁ should fit to dbias1: the GELU's derivative stands in both, and at the same place",
            lambda o, dy, x, W1, b1, W2: over_tokens(dy @ W2 * slope(x @ W1.T + b1)) - o["dbias1"],
        ),
    ],
    "linear_backward": [
        ("dbias", "dbias should be dy, added up over all rows", lambda o, dy, *_: o["dbias"] - over_tokens(dy)),
        (
            "dx",
            "Σ x·dx should equal Σ W·dW: both are Σ dy·(x Wᵀ)",
            lambda o, dy, x, W: (o["dx"] * x).sum() - (o["dweight"] * W).sum(),
        ),
    ],
    "rmsnorm_backward": [],
    "cross_entropy_backward": [
        (
            "dlogits",
            "the rows of dlogits should add up to 0, since both probabilities and targets add up to 1: one of the two "
            "doesn't",
            lambda o, *_: o["dlogits"].sum(-1),
        ),
    ],
    "block_backward": [
        (
            "dx",
            "the rows of dx should add up to the rows of dy, since a constant added to a row of x passes both norms by "
            "and appears in y: a residual's gradient, or a norm's path through its mean, is missing or wrong",
            lambda o, dy, *_: o["dx"].sum(-1) - dy.sum(-1),
        ),
        (
            'gradients["mlp.fc2.bias"]',
            "it should be dy, added up over all tokens",
            lambda o, dy, *_: o['gradients["mlp.fc2.bias"]'] - over_tokens(dy),
        ),
        (
            'gradients["attn.qkv.bias"]',
            "the keys' part should be 0: the softmax, its gradient, or the order of q, k and v",
            lambda o, *_: keys_of(o['gradients["attn.qkv.bias"]']),
        ),
    ],
    "vit_backward": [
        (
            'gradients["head.bias"]',
            "it should be dy, added up over the images",
            lambda o, dy, *_: o['gradients["head.bias"]'] - dy.sum(0),
        ),
        (
            'gradients["pos_embed"]',
            "its rows should add up to 0, since the last norm takes away what is added to all of a "
            "token: a residual's gradient, or a norm's path through its mean, is missing or wrong",
            lambda o, *_: o['gradients["pos_embed"]'].sum(-1),
        ),
    ],
}


def slope(h):
    from tinyvit import functional as F

    return F.gelu_backward(np.ones_like(h), F.gelu(h)[1])


def broken(exercise, case, arguments, got, expected, names):
    """Sentences about the outputs of these names: which invariant is broken, or how the error is spread."""
    sentences = []
    for name in names:
        if got[name].shape != expected[name].shape or not np.isfinite(got[name]).all():
            continue
        for output, holds, residual in INVARIANTS.get(exercise.name, []):
            if output == name and is_broken(residual, got, arguments, case.tolerance):
                sentences.append(f"{'Here ' if output.startswith('gradients') else ''}{holds}; yours break this.")
        sentences += [f"In {name}, {text}." for text in spread(got[name], expected[name], case.tolerance)]
    return sentences


def only_wrong(names, outputs):
    """Where to look if one of several outputs is wrong, or one part of a dict: what the others need is right."""
    if len(names) != 1 or outputs < 2:
        return []
    return [
        f"Only {names[0]} is wrong. What it shares with the outputs that are right is right too, so the mistake is in "
        f"the steps that {names[0]} has for itself."
    ]


def is_broken(residual, got, arguments, tolerance):
    try:
        with np.errstate(all="ignore"):
            return not np.abs(residual(got, *arguments)).max() <= 1e3 * tolerance
    except (ValueError, ArithmeticError):  # another output, of another shape, stands in it
        return False


def spread(got, right, tolerance):
    """Along which axis the error is the same, or a factor, or where it occurs at all."""
    error = got - right
    wrong = np.abs(error) > tolerance * np.maximum(1, np.abs(right))
    for axis, size in enumerate(got.shape):
        others = tuple(other for other in range(got.ndim) if other != axis)
        hit = wrong.any(others) if others else wrong
        if size > 1 and not hit.all():
            bad = ", ".join(map(str, np.flatnonzero(hit)))
            yield f"only index {bad} of axis {axis} is wrong; all else is right"
            return
    for axis, size in enumerate(got.shape):
        if size > 1 and agree(error, np.broadcast_to(error.mean(axis, keepdims=True), error.shape), tolerance):
            yield f"the error is the same along axis {axis}: a term that is constant along it is missing or too much"
            return
    with np.errstate(all="ignore"):
        ratio = got / right
    for axis, size in enumerate(got.shape):
        same = np.allclose(ratio, ratio.mean(axis, keepdims=True), rtol=1e-6, atol=0)  # NaN is not close to NaN
        if size > 1 and same and np.isfinite(ratio).all():
            yield f"what is wrong is a factor that is the same along axis {axis}, and varies along the others"
            return
