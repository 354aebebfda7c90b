"""The package's own solutions pass, and so do all others that give the same numbers."""

import math

import numpy as np
import pytest

from tinyvit import exercises, gradcheck, optim, probe
from tinyvit import functional as F
from tinyvit.data import mixing
from tinyvit.exercises.catalogue import EXERCISES

PAIRS = [name for name in EXERCISES if f"{name}_backward" in EXERCISES]


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("seed", range(3))
def test_the_packages_own_answer_passes(name, seed, capsys):
    report = exercises.check(name, EXERCISES[name].right, seed=seed)
    assert report and report.right and not report.mistakes
    assert capsys.readouterr().out == f"{report}\n" and f"{name}: right." in str(report)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_answer_is_the_same_where_numpy_raises_on_overflow(name):
    with np.errstate(all="raise"):
        assert exercises.check(name, EXERCISES[name].right)
        wrong = exercises.check(name, lambda *arguments: None)
    assert not wrong and not wrong.right


@pytest.mark.parametrize("seed", range(40))
def test_scores_near_1000_are_right_in_any_order_of_operations(seed):
    def attention_backward(dy, q, k, v):
        scores = np.einsum("bhmd,bhnd->bhmn", q, k) / np.sqrt(q.shape[-1])
        probs = np.exp(scores - scores.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        dprobs = dy @ v.mT
        dscores = probs * (dprobs - (dprobs * probs).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
        return dscores @ k, dscores.mT @ q, probs.mT @ dy

    assert exercises.check("attention_backward", attention_backward, seed=seed)


@pytest.mark.parametrize("name", PAIRS)
def test_a_backward_exercise_asks_for_the_derivative_of_its_forward(name):
    forward, backward = EXERCISES[name], EXERCISES[f"{name}_backward"]
    inputs = forward.draw(forward.cases()[0])

    def with_arguments(*arguments):
        return forward.right(*arguments), dict(zip(forward.arguments, arguments))

    def gradients(dy, given):
        if name == "patchify":
            given = {**given, "img_size": given["images"].shape[2:]}
        found = backward.right(dy, *(given[argument] for argument in list(backward.arguments)[1:]))
        return found[0] if name in ("block", "vit") else found  # a dict's arrays are left as they are

    method = "central" if name in ("block", "vit") else "complex"
    report = gradcheck.check(with_arguments, gradients, inputs, method)
    assert report.max_error < gradcheck.BOUNDS[method], report


# -- written differently ------------------------------------------------------------------------------------------


def patchify_by_loops(images, patch):
    (H, W), (p, q) = images.shape[2:], patch
    return np.stack(
        [
            np.stack([x[:, i : i + p, j : j + q].ravel() for i in range(0, H, p) for j in range(0, W, q)])
            for x in images
        ]
    )


def patchify_backward_by_loops(dy, patch, img_size):
    (H, W), (p, q) = img_size, patch
    dimages = np.zeros((len(dy), dy.shape[2] // (p * q), H, W))
    for n in range(dy.shape[1]):
        i, j = n // (W // q) * p, n % (W // q) * q
        dimages[:, :, i : i + p, j : j + q] = dy[:, n].reshape(len(dy), -1, p, q)
    return dimages


def linear_backward_by_einsum(dy, x, weight):
    return [np.einsum("bnk,kd->bnd", dy, weight), np.einsum("bnk,bnd->kd", dy, x), np.einsum("bnk->k", dy)]


def layernorm_by_var(x, weight, bias, eps):
    return weight * (x - np.mean(x, axis=2)[:, :, None]) / np.sqrt(np.var(x, axis=2) + eps)[:, :, None] + bias


def layernorm_backward_of_the_textbook(dy, x, weight, eps):
    """Through the gradients of variance and mean, one after the other (Ioffe & Szegedy 2015, section 3)."""
    N = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    var = (centred**2).sum(-1, keepdims=True) / N + eps
    dxhat = dy * weight
    dvar = np.sum(dxhat * centred, -1, keepdims=True) * -0.5 * var**-1.5
    dmean = -np.sum(dxhat, -1, keepdims=True) / np.sqrt(var) - 2 * dvar * np.mean(centred, -1, keepdims=True)
    dx = dxhat / np.sqrt(var) + dvar * 2 * centred / N + dmean / N
    return dx, np.einsum("bnd,bnd->d", dy, centred / np.sqrt(var)), dy.reshape(-1, N).sum(axis=0)


def softmax_row_by_row(x):
    rows = [[math.exp(value - max(row)) for value in row] for row in x.reshape(-1, x.shape[-1]).tolist()]
    return np.array([[value / sum(row) for value in row] for row in rows]).reshape(x.shape)


def softmax_backward_by_the_jacobian(dy, x):
    probs = softmax_row_by_row(x).reshape(-1, x.shape[-1])
    rows = [(np.diag(p) - np.outer(p, p)) @ row for p, row in zip(probs, dy.reshape(probs.shape))]
    return np.stack(rows).reshape(x.shape)


def attention_head_by_head(q, k, v):
    out = np.empty((*q.shape[:-1], v.shape[-1]))
    for b, h in np.ndindex(q.shape[:2]):
        scores = q[b, h].dot(k[b, h].T) / np.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max(axis=1)[:, None])
        out[b, h] = weights.dot(v[b, h]) / weights.sum(axis=1)[:, None]
    return out


def attention_backward_by_einsum(dy, q, k, v):
    scale = 1 / math.sqrt(q.shape[-1])
    scores = np.einsum("bhmd,bhnd->bhmn", q, k) * scale
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    delta = np.einsum("bhme,bhme->bhm", dy, np.einsum("bhmn,bhne->bhme", probs, v))  # Σ dprobs · probs
    dscores = probs * (np.einsum("bhme,bhne->bhmn", dy, v) - delta[..., None]) * scale
    return (
        np.einsum("bhmn,bhnd->bhmd", dscores, k),
        np.einsum("bhmn,bhmd->bhnd", dscores, q),
        np.einsum("bhmn,bhme->bhne", probs, dy),
    )


def multi_head_attention_head_by_head(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    D = x.shape[-1]
    d = D // num_heads
    y = proj_bias
    for h in range(num_heads):
        q, k, v = (x @ qkv_weight[s : s + d].T + qkv_bias[s : s + d] for s in (h * d, D + h * d, 2 * D + h * d))
        y = y + attention_head_by_head(q[:, None], k[:, None], v[:, None])[:, 0] @ proj_weight[:, h * d : (h + 1) * d].T
    return y


def gelu_by_math(x):
    return np.array([0.5 * value * math.erfc(-value / math.sqrt(2)) for value in x.ravel()]).reshape(x.shape)


def gelu_backward_by_math(dy, x):
    pdf = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.vectorize(lambda value: 0.5 * math.erfc(-value / math.sqrt(2)))(x) * dy + x * pdf * dy


def cross_entropy_of_lists(logits, labels, label_smoothing):
    total, K = 0.0, logits.shape[1]
    for row, label in zip(logits.tolist(), labels.tolist()):
        log_sum = max(row) + math.log(sum(math.exp(value - max(row)) for value in row))
        total += (1 - label_smoothing) * (log_sum - row[label])
        total += label_smoothing * sum(log_sum - value for value in row) / K
    return total / len(labels)


def cross_entropy_backward_in_place_of_its_own(dy, logits, labels, label_smoothing):
    B, K = logits.shape
    dlogits = softmax_row_by_row(logits)
    dlogits -= label_smoothing / K
    dlogits[np.arange(B), labels] -= 1 - label_smoothing
    return dlogits / B * dy


def adam_in_the_papers_faster_order(theta, g, m, v, t, lr, beta1, beta2, eps):
    """Kingma & Ba 2015, end of section 2: the corrections in the learning rate, ε scaled with them."""
    m, v = m + (1 - beta1) * (g - m), v + (1 - beta2) * (g**2 - v)
    root = np.sqrt(1 - beta2**t)
    return [theta - lr * root / (1 - beta1**t) * m / (np.sqrt(v) + eps * root), m, v]


def block_of_plain_functions(x, parameters, num_heads, eps):
    p = parameters
    normed = layernorm_by_var(x, p["norm1.weight"], p["norm1.bias"], eps)
    attention = [p[f"attn.{name}"] for name in ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias")]
    x = x + multi_head_attention_head_by_head(normed, *attention, num_heads)
    hidden = layernorm_by_var(x, p["norm2.weight"], p["norm2.bias"], eps) @ p["mlp.fc1.weight"].T + p["mlp.fc1.bias"]
    return gelu_by_math(hidden) @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"] + x


def rmsnorm_backward_of_the_textbook(dy, x, weight, eps):
    """Through the gradient of the mean square."""
    N = x.shape[-1]
    square = np.mean(x**2, -1, keepdims=True) + eps
    dsquare = np.sum(dy * weight * x, -1, keepdims=True) * -0.5 * square**-1.5
    return dy * weight / np.sqrt(square) + dsquare * 2 * x / N, np.einsum("bnd,bnd->d", dy, x / np.sqrt(square))


def schedule_by_interpolation(step, total, warmup):
    factor = np.interp(step, [0.8 * total, total], [1, 0])
    return factor if step >= warmup else (1 + step) / warmup


def cutmix_by_a_mask(image, target, partner, partner_target, box):
    top, bottom, left, right = box
    mask = np.zeros(image.shape[1:])
    mask[top:bottom, left:right] = 1
    share = mask.mean()
    return image * (1 - mask) + partner * mask, target * (1 - share) + partner_target * share


def rollout_image_by_image(attention):
    rolled = []
    for image in range(attention.shape[1]):
        layers = [0.5 * layer.mean(0) + 0.5 * np.eye(layer.shape[-1]) for layer in attention[:, image]]
        rolled.append(np.linalg.multi_dot(layers[::-1]))
    return np.stack(rolled)


def merge_by_the_larger_half(m1, l1, m2, l2):
    if m1 < m2:
        return m2, l2 + l1 * math.exp(m1 - m2)
    return m1, l1 + l2 * math.exp(m2 - m1)


def sum_with_what_is_lost_added(numbers):
    total = lost = np.float32(0)
    for number in numbers:
        y = number + lost
        new = total + y
        lost = y - (new - total)
        total = new
    return total


def neumaiers_sum(numbers):
    """Neumaier 1974: the lost low-order parts are summed separately and added at the end."""
    total = lost = np.float32(0)
    for number in numbers:
        new = total + number
        lost += (total - new) + number if abs(total) >= abs(number) else (number - new) + total
        total = new
    return total + lost


DIFFERENTLY = [
    ("rmsnorm_backward", rmsnorm_backward_of_the_textbook),
    ("schedule", schedule_by_interpolation),
    ("cutmix", cutmix_by_a_mask),
    ("rollout", rollout_image_by_image),
    ("derivative", lambda f, x: np.imag(f(complex(x, 1e-100))) / 1e-100),
    ("derivative", lambda f, x: (f(x + 1e-30j) - f(x - 1e-30j)).imag / 2e-30),
    ("softmax_merge", merge_by_the_larger_half),
    ("kahan_sum", sum_with_what_is_lost_added),
    ("kahan_sum", neumaiers_sum),
    ("patchify", patchify_by_loops),
    ("patchify_backward", patchify_backward_by_loops),
    ("linear", lambda x, weight, bias: bias + np.einsum("kd,bnd->bnk", weight, x)),
    ("linear_backward", linear_backward_by_einsum),
    ("layernorm", layernorm_by_var),
    ("layernorm_backward", layernorm_backward_of_the_textbook),
    ("softmax", softmax_row_by_row),
    ("softmax_backward", softmax_backward_by_the_jacobian),
    ("attention", attention_head_by_head),
    ("attention_backward", attention_backward_by_einsum),
    ("multi_head_attention", multi_head_attention_head_by_head),
    ("gelu", gelu_by_math),
    ("gelu_backward", gelu_backward_by_math),
    ("cross_entropy", cross_entropy_of_lists),
    ("cross_entropy_backward", cross_entropy_backward_in_place_of_its_own),
    ("adam", adam_in_the_papers_faster_order),
    ("block", block_of_plain_functions),
]


@pytest.mark.parametrize("name, function", DIFFERENTLY, ids=[f"{name}-{f.__name__}" for name, f in DIFFERENTLY])
def test_a_right_but_differently_written_solution_passes(name, function):
    report = exercises.check(name, function)
    assert report, report


def test_other_kinds_of_functions_pass():
    class Softmax:
        def __call__(self, *rows):
            return F.softmax(*rows)[0]

        def method(self, x, unused=None):
            return F.softmax(x)[0]

    assert exercises.check("softmax", Softmax())
    assert exercises.check("softmax", Softmax().method)


def test_a_loss_may_be_any_kind_of_number():
    for kind in (float, np.float64, np.asarray):
        assert exercises.check("cross_entropy", lambda *arguments, kind=kind: kind(F.cross_entropy(*arguments)[0]))


def test_what_a_function_prints_is_shown_and_is_not_a_mistake():
    def talks(x):
        print("x is", x.shape)
        return F.softmax(x)[0]

    report = exercises.check("softmax", talks)
    assert report and "Your function printed:\n  | x is (3, 4)" in str(report)


def test_formulas_written_in_the_exercises_agree_with_the_package():
    random = np.random.default_rng(0)
    attention, _ = F.softmax(random.standard_normal((3, 2, 4, 5, 5)))
    np.testing.assert_allclose(EXERCISES["rollout"].right(attention), probe.attention_rollout(attention), rtol=1e-13)
    images, targets = random.random((2, 3, 8, 9)), np.eye(4)[[1, 3]]
    box = 1, 5, 2, 9
    own = EXERCISES["cutmix"].right(images[0], targets[0], images[1], targets[1], box)
    for got, (wanted, _) in zip(own, mixing.cutmix(images, targets, box)):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
    risen = [EXERCISES["schedule"].right(step, 100, 10) for step in range(80)]
    assert risen == [optim.warmup_constant(step, 100, 10) for step in range(80)]
    scores = random.standard_normal((1, 1, 1, 6))
    keys = scores.reshape(1, 1, 6, 1)
    _, cache = F.tiled_attention(np.ones((1, 1, 1, 1)), keys, keys, scale=1.0, tile=3)
    halves = [(float(half.max()), np.exp(half - half.max()).sum()) for half in np.split(scores.ravel(), 2)]
    m, total = EXERCISES["softmax_merge"].right(*halves[0], *halves[1])
    assert m == cache.largest.item() and np.isclose(total, cache.total.item(), rtol=1e-13)


def test_kahans_sum_is_as_exact_as_its_bound():
    """Kahan 1965; Higham 2002, "Accuracy and stability of numerical algorithms", eq. 4.8: 2u + O(n u²), relative."""
    for seed in range(5):
        numbers = np.random.default_rng(seed).random(3000).astype("float32")
        exact = math.fsum(numbers.tolist())
        assert abs(float(EXERCISES["kahan_sum"].right(numbers)) - exact) <= (2 * 2.0**-24 + 3000 * 2.0**-48) * exact
