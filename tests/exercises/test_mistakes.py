"""Each mistake, made on purpose, is recognised by its name."""

import math

import numpy as np
import pytest

from tinyvit import exercises
from tinyvit import functional as F
from tinyvit.exercises.catalogue import EXERCISES


def made(exercise, mistake):
    """A learner's function with this mistake and no other."""

    def function(*arguments):
        wrong = mistake.formula(*arguments)
        if not isinstance(wrong, dict):
            return wrong
        outputs = dict(zip(exercise.returns, exercise.right(*arguments)))
        for name, value in wrong.items():
            outputs[name] = {**outputs[name], **value} if isinstance(value, dict) else value
        return tuple(outputs.values())

    return function


TABLE = [(exercise, mistake) for exercise in EXERCISES.values() for mistake in exercise.mistakes]


@pytest.mark.parametrize("exercise, mistake, seed", [
    pytest.param(e, m, seed, id=f"{e.name}: {m.name}, {seed}", marks=pytest.mark.full if (i + seed) % 3 else ())
    for i, (e, m) in enumerate(TABLE) for seed in range(3)
])  # fmt: skip
def test_every_mistake_in_the_tables_is_recognised(exercise, mistake, seed):
    solution = {line.strip() for line in exercises.solution(exercise.name).splitlines() if " = " in line}
    report = exercises.check(exercise.name, made(exercise, mistake), seed=seed)
    assert not any(line in str(report) for line in solution)
    assert not report and report.mistakes == (mistake.name,), report
    assert f"like this mistake: {mistake.name}." in " ".join(str(report).split())


def test_every_exercise_has_its_mistakes():
    assert all(len(exercise.mistakes) >= 4 for exercise in EXERCISES.values())


# -- mistakes as learners write them, independent of the exercises' tables -------------------------------------------


def layernorm_backward(dx_of_g_xhat_std, rows=lambda x: x.sum((0, 1))):
    def function(dy, x, weight, eps):
        std = np.sqrt(x.var(-1, keepdims=True) + eps)
        xhat = (x - x.mean(-1, keepdims=True)) / std
        return dx_of_g_xhat_std(dy * weight, xhat, std), rows(dy * xhat), rows(dy)

    return function


def right_dx(g, xhat, std):
    return (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True)) / std


def softmax(scores):
    exps = np.exp(scores)
    return exps / exps.sum(-1, keepdims=True)


def attention_backward(scale=None, jacobian=None):
    def function(dy, q, k, v):
        s = q.shape[-1] ** -0.5 if scale is None else scale
        p = softmax(np.einsum("bhmd,bhnd->bhmn", q, k) * s)
        dp = np.einsum("bhme,bhne->bhmn", dy, v)
        ds = jacobian(p, dp) if jacobian else p * (dp - (p * dp).sum(-1)[..., None])
        dq, dk = np.einsum("bhmn,bhnd->bhmd", ds, k) * s, np.einsum("bhmn,bhmd->bhnd", ds, q) * s
        return dq, dk, np.einsum("bhmn,bhme->bhne", p, dy)

    return function


def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    m = m * beta1 + g * (1 - beta1)
    v = v * beta2 + g**2 * (1 - beta2)
    return theta - lr / (np.sqrt(v) + eps) * m, m, v


def cross_entropy_summed(logits, labels, label_smoothing):
    K, total = logits.shape[1], 0.0
    for row, label in zip(logits, labels):
        target = np.full(K, label_smoothing / K)
        target[label] += 1 - label_smoothing
        total -= (target * np.log(softmax(row))).sum()
    return total


def mlp_backward_without_gelu(dy, x, weight1, bias1, weight2):
    a = F.gelu(x @ weight1.T + bias1)[0]
    dh = dy @ weight2
    dweight1, dweight2 = np.tensordot(dh, x, ([0, 1], [0, 1])), np.tensordot(dy, a, ([0, 1], [0, 1]))
    return dh @ weight1, dweight1, dh.sum((0, 1)), dweight2, dy.sum((0, 1))


def block_without_residual_gradients(dy, x, parameters, num_heads, eps):
    """The right gradients of the package's own block minus those of the residual connections."""
    from tinyvit.nn.block import Block

    block = Block(x.shape[-1], num_heads, len(parameters["mlp.fc1.bias"]), norm_eps=eps).materialize(dtype="float64")
    block.load_state_dict(parameters)
    _, cache = block(x)
    block.zero_grad()
    d = block.norm2.backward(block.mlp.backward(dy, cache.mlp), cache.norm2)
    d = block.norm1.backward(block.attn.backward(d, cache.attn), cache.norm1)
    return d, {name: parameter.grad for name, parameter in block.named_parameters()}


def over_tokens(g, xhat, std):
    return (g - g.mean(axis=1)[:, None] - xhat * np.mean(g * xhat, axis=1)[:, None]) / std


def multi_head_attention(scale):
    """Right except for the scale, a function of the number of heads and their width."""

    def function(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
        B, N, D = x.shape
        qkv = (x @ qkv_weight.T + qkv_bias).reshape(B, N, 3, num_heads, D // num_heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = q @ k.mT * scale(num_heads, D // num_heads)
        heads = softmax(scores - scores.max(-1, keepdims=True)) @ v
        return heads.transpose(0, 2, 1, 3).reshape(B, N, D) @ proj_weight.T + proj_bias

    return function


def multi_head_attention_backward(scale):
    def function(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
        B, N, D = x.shape
        d = D // num_heads
        q, k, v = (x @ qkv_weight.T + qkv_bias).reshape(B, N, 3, num_heads, d).transpose(2, 0, 3, 1, 4)
        scores = q @ k.mT * scale(num_heads, d)
        probs = softmax(scores - scores.max(-1, keepdims=True))
        joined = (probs @ v).transpose(0, 2, 1, 3).reshape(B, N, D)
        dheads = (dy @ proj_weight).reshape(B, N, num_heads, d).transpose(0, 2, 1, 3)
        dprobs = dheads @ v.mT
        dscores = probs * (dprobs - (dprobs * probs).sum(-1, keepdims=True)) * scale(num_heads, d)
        parts = np.stack([dscores @ k, dscores.mT @ q, probs.mT @ dheads])
        dqkv = parts.transpose(1, 3, 0, 2, 4).reshape(B, N, 3 * D)
        over = [0, 1], [0, 1]
        dweights = np.tensordot(dqkv, x, over), np.tensordot(dy, joined, over)
        return dqkv @ qkv_weight, dweights[0], dqkv.sum((0, 1)), dweights[1], dy.sum((0, 1))

    return function


def columns_of_all_rows(dy, logits, labels, label_smoothing):
    p = softmax(logits) - label_smoothing / logits.shape[1]
    p[:, labels] -= 1 - label_smoothing
    return dy * p / len(p)


def cubic_weights(old, new, a):
    """(columns, weights) of each new patch's four neighbours, (new, 4) both."""
    places = (np.arange(new)[:, None] + 0.5) * (old / new) - 0.5
    neighbours = np.floor(places) + np.array([-1, 0, 1, 2])
    t = np.abs(places - neighbours)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.clip(neighbours, 0, old - 1).astype(int), np.where(t <= 1, near, far)


def bicubic_with_other_sign(old, new):
    W = np.zeros((new, old))
    columns, weights = cubic_weights(old, new, a=0.75)
    for row in range(new):
        for column, weight in zip(columns[row], weights[row]):
            W[row, column] += weight
    return W


def bicubic_all_at_once(old, new):
    W = np.zeros((new, old))
    columns, weights = cubic_weights(old, new, a=-0.75)
    W[np.arange(new)[:, None], columns] += weights
    return W


def resize_backward_that_averages(dy, down, across):
    dx = np.tensordot(down.T, dy, 1)
    dx = (across.T @ dx) / down.sum(0)[:, None, None]
    return dx / across.sum(0)[None, :, None]


BY_ALL, BY_H = "the scale is 1/√(H·d) in place of 1/√d", "the scale is 1/√H in place of 1/√d"
AS_WRITTEN = [
    ("bicubic", bicubic_with_other_sign, "a is +0.75"),
    ("bicubic", bicubic_all_at_once, "near the edge, the last weight replaces those before"),
    ("resize_backward", resize_backward_that_averages, "divided by the sums of the columns"),
    ("layernorm_backward", layernorm_backward(over_tokens), "means over the tokens' axis"),
    ("multi_head_attention", multi_head_attention(lambda H, d: 1 / np.sqrt(H * d)), BY_ALL),
    ("multi_head_attention", multi_head_attention(lambda H, d: 1 / np.sqrt(H)), BY_H),
    ("multi_head_attention", multi_head_attention(lambda H, d: 1 / d), "scaled by 1/d"),
    ("multi_head_attention_backward", multi_head_attention_backward(lambda H, d: 1 / np.sqrt(H * d)), BY_ALL),
    ("multi_head_attention_backward", multi_head_attention_backward(lambda H, d: 1 / np.sqrt(H)), BY_H),
    ("attention", lambda q, k, v: softmax(q @ k.mT / np.sqrt(q.shape[1])) @ v, BY_H),
    ("attention", lambda q, k, v: softmax(q @ k.mT / np.sqrt(q.shape[1] * q.shape[3])) @ v, BY_ALL),
    ("cross_entropy_backward", columns_of_all_rows, "the labels' columns in all rows"),
    (
        "linear_backward",
        lambda dy, x, weight: (dy @ weight, x.mT @ dy, dy.sum((0, 1))),
        "wrong transpose in dweight, and no sum over the batch",
    ),
    ("layernorm_backward", layernorm_backward(lambda g, xhat, std: g / std), "the 1/N terms are missing"),
    (
        "layernorm_backward",
        layernorm_backward(lambda g, xhat, std: (g - xhat * np.mean(g * xhat, 2)[..., None]) / std),
        "the mean's 1/N term is missing",
    ),
    (
        "layernorm_backward",
        layernorm_backward(right_dx, rows=lambda x: x),
        "the broadcast weight and bias are not summed",
    ),
    ("softmax_backward", lambda dy, x: (softmax(x) - softmax(x) ** 2) * dy, "the Jacobian is taken as diagonal"),
    (
        "softmax_backward",
        lambda dy, x: np.stack([np.diag(np.diag(p) - np.outer(p, p)) * d for p, d in zip(softmax(x), dy)]),
        "the Jacobian is taken as diagonal",
    ),
    ("attention", lambda q, k, v: softmax(q @ np.swapaxes(k, 2, 3)) @ v, "the scale 1/√d is forgotten"),
    ("attention", lambda q, k, v: softmax(q @ k.T / q.shape[-1] ** 0.5) @ v, "wrong transpose of k: all four axes"),
    ("attention", lambda q, k, v: softmax(q @ k / q.shape[-1] ** 0.5) @ v, "k is not transposed"),
    ("attention_backward", attention_backward(scale=1), "the scale 1/√d is forgotten"),
    (
        "attention_backward",
        attention_backward(jacobian=lambda p, dp: p * (1 - p) * dp),
        "the softmax's Jacobian is taken as diagonal",
    ),
    ("linear", lambda x, weight, bias: x @ weight + bias, "weight is not transposed"),
    (
        "linear_backward",
        lambda dy, x, weight: (dy @ weight, np.tensordot(dy, x, ([0, 1], [0, 1])), dy),
        "the broadcast bias is not summed",
    ),
    (
        "linear_backward",
        lambda dy, x, weight: (dy @ weight, np.tensordot(x, dy, ([0, 1], [0, 1])), dy.sum(0).sum(0)),
        "wrong transpose in dweight",
    ),
    (
        "linear_backward",
        lambda dy, x, weight: (dy @ weight.T, np.tensordot(dy, x, ([0, 1], [0, 1])), dy.sum(0).sum(0)),
        "wrong transpose in dx",
    ),
    ("cross_entropy", cross_entropy_summed, "the 1/B is missing"),
    ("adam", adam, "the bias correction is forgotten"),
    (
        "layernorm",
        lambda x, w, b, eps: (x - x.mean(-1)[..., None]) / (x.std(-1)[..., None] + eps) * w + b,
        "ε outside of the square root",
    ),
    (
        "layernorm",
        lambda x, w, b, eps: w * (x - x.mean(-1)[..., None]) / (x.var(-1, ddof=1)[..., None] + eps) ** 0.5 + b,
        "the sample variance",
    ),
    (
        "gelu",
        lambda x: x / 2 * (np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)) + 1),
        "the tanh approximation",
    ),
    ("mlp_backward", mlp_backward_without_gelu, "the activation's gradient is forgotten"),
    ("block_backward", block_without_residual_gradients, "the gradients of both residuals are forgotten"),
    (
        "patchify",
        lambda images, patch: images.reshape(len(images), -1, images.shape[1] * patch[0] * patch[1]),
        "reshape without transpose",
    ),
]


@pytest.mark.parametrize("name, function, mistake", AS_WRITTEN, ids=[f"{name}: {m}" for name, _, m in AS_WRITTEN])
def test_a_mistake_as_a_learner_makes_it_is_recognised(name, function, mistake):
    report = exercises.check(name, function)
    assert not report and report.mistakes == (mistake,), report


# -- right on paper -----------------------------------------------------------------------------------------------


def test_an_overflow_is_found_on_large_scores_and_named():
    report = exercises.check("softmax", softmax)
    assert report.mistakes == ("the row's maximum is not subtracted",)
    assert "Right on ordinary numbers; not right with scores near 1000" in str(report)


def test_digits_lost_in_the_variance_are_found_and_named():
    def layernorm(x, weight, bias, eps):
        mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
        return (x - mean) / np.sqrt(square - mean**2 + eps) * weight + bias

    assert exercises.check("layernorm", layernorm).mistakes == ("the variance as E[x²] − E[x]²",)


def test_the_logarithm_of_a_vanished_probability_is_found_and_named():
    def cross_entropy(logits, labels, label_smoothing):
        K = logits.shape[1]
        targets = (1 - label_smoothing) * np.eye(K)[labels] + label_smoothing / K
        return -(targets * np.log(F.softmax(logits)[0])).sum(1).mean()

    report = exercises.check("cross_entropy", cross_entropy)
    assert report.mistakes == ("the logarithm of a probability that became 0",)


@pytest.mark.parametrize(
    "name", [name for name in EXERCISES if name.startswith(("attention", "multi_head", "block"))]
)  # fmt: skip
def test_scores_near_1000_overflow_in_every_exercise_with_an_attention_and_are_named(name):
    exercise = EXERCISES[name]
    (mistake,) = [mistake for mistake in exercise.mistakes if mistake.name == "the row's maximum is not subtracted"]
    report = exercises.check(name, made(exercise, mistake))
    assert report.mistakes == (mistake.name,)
    assert "Right on ordinary numbers; not right with scores near 1000." in str(report)


def test_a_differently_written_multi_head_attention_passes_with_scores_near_1000():
    assert exercises.check("multi_head_attention", multi_head_attention(lambda H, d: d**-0.5))
    assert exercises.check("multi_head_attention_backward", multi_head_attention_backward(lambda H, d: d**-0.5))


# -- mistakes of any exercise ---------------------------------------------------------------------------------------


def linear_backward(dx=lambda x: x, dweight=lambda x: x, dbias=lambda x: x):
    def function(*arguments):
        right = EXERCISES["linear_backward"].right(*arguments)
        return tuple(change(gradient) for change, gradient in zip((dx, dweight, dbias), right))

    return function


@pytest.mark.parametrize(
    "name, function, mistake, said",
    [
        ("linear_backward", linear_backward(dx=np.negative), "the sign is wrong", "minus"),
        ("linear_backward", linear_backward(dweight=lambda x: x / 6), "a constant factor", r"1/(B·N)"),
        ("linear_backward", linear_backward(dx=lambda x: x * 0.7), "a constant factor", "0.7 times what it should be:"),
        ("linear_backward", linear_backward(dx=lambda x: x / 2), "a constant factor", "is also 1/(B), is a"),
        (
            "gelu_backward",
            lambda dy, x: 2 * F.gelu_backward(dy, F.gelu(x)[1]),
            "a constant factor",
            "2 times what it should be.",
        ),
        ("linear_backward", linear_backward(dx=lambda x: x.transpose(1, 0, 2)), "transposed", "(1, 0, 2)"),
        ("linear_backward", linear_backward(dbias=lambda x: x[None]), "another shape", "(5,)"),
        ("linear_backward", linear_backward(dx=lambda x: x.sum(0)), "summed over too much", "axes (0,)"),
        ("linear_backward", linear_backward(dx=lambda x: x * 0), "zeros", "It is zero everywhere"),
        ("linear_backward", linear_backward(dx=lambda x: x + np.nan), "NaN or infinite", "0/0"),
        ("adam", lambda theta, g, m, v, *_: (theta, m, v), "an argument, unchanged", "theta, m and v look like"),
        ("layernorm", lambda x, weight, bias, eps: x, "an argument, unchanged", "nothing is computed"),
        ("linear_backward", linear_backward(dx=lambda x: x.astype(int)), "integers", "int64"),
        (
            "linear_backward",
            linear_backward(dx=lambda x: x.astype("float32")),
            "right to a few digits only",
            "float32",
        ),
        ("gelu", lambda x: F.gelu(x + 1e-7)[0], "right to a few digits only", "finite difference"),
        (
            "gelu_backward",
            lambda dy, x: F.gelu_backward(np.ones_like(x), F.gelu(x)[1]),
            "dy is forgotten",
            "chain rule",
        ),
        (
            "embed_backward",
            lambda *arguments: EXERCISES["embed_backward"].right(*arguments)[::-1],
            "the outputs stand in another order",
            "dpatches is dpositions",
        ),
    ],
)  # fmt: skip
def test_mistakes_that_can_be_made_in_any_exercise_are_recognised(name, function, mistake, said):
    report = exercises.check(name, function)
    assert not report and mistake in report.mistakes, report
    assert said.rstrip(":") in " ".join(str(report).split())


def test_a_function_of_math_that_gets_an_array_is_named():
    report = exercises.check("gelu", lambda x: 0.5 * x * (1 + math.erf(x / 2**0.5)))
    assert report.mistakes == ("a function of one number gets an array",)
    assert "scipy.special.erf takes arrays" in " ".join(str(report).split())


def test_a_true_zero_is_printed_as_zero():
    def with_a_key_bias(*arguments):
        outputs = EXERCISES["multi_head_attention_backward"].right(*arguments)
        outputs[2][len(outputs[2]) // 3 + 1] = 0.5  # the bias of the keys has no gradient, up to rounding
        return outputs

    assert "should be 0 and is 0.5" in str(exercises.check("multi_head_attention_backward", with_a_key_bias))


def test_outputs_in_the_wrong_order_are_reported_once():
    def reversed_order(*arguments):
        return EXERCISES["embed_backward"].right(*arguments)[::-1]

    def two_exchanged(*arguments):
        dq, dk, dv = EXERCISES["attention_backward"].right(*arguments)
        return dk, dq, dv

    report = exercises.check("attention_backward", two_exchanged)
    assert report.mistakes == ("the outputs stand in another order",)
    assert "What you return as dq is dk, as dk is dq." in report.answer
    answer = " ".join(exercises.check("embed_backward", reversed_order).answer.split())
    assert answer.count("the outputs stand in another order") == 1


def test_two_mistakes_in_two_gradients_are_both_named():
    report = exercises.check("linear_backward", linear_backward(dweight=np.transpose, dbias=lambda x: x / 6))
    assert report.mistakes == ("wrong transpose in dweight", "the bias's gradient is a mean")
    assert "dweight looks like this mistake" in str(report) and "dx       right" in str(report)


def test_an_unknown_mistake_gets_its_place_but_no_name():
    def one_entry(dweight):
        dweight[3, 2] += 0.5
        return dweight

    report = exercises.check("linear_backward", linear_backward(dweight=one_entry))
    assert not report and report.mistakes == ()
    assert "dweight  wrong in 1 of 20 entries: entry (3, 2) should be" in str(report)
    assert "dx       right" in str(report) and "mistake" not in str(report)


def test_hard_coded_sizes_are_found():
    def softmax_of_four(x):
        exps = np.exp(x - x.max(-1, keepdims=True))
        return exps / (exps.mean(-1, keepdims=True) * 4)

    report = exercises.check("softmax", softmax_of_four)
    assert not report and "not right with other sizes" in str(report)
