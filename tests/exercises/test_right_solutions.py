"""The solutions give what the package gives, and so do all others that give the same numbers."""

import math
from functools import partial

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig, exercises, gradcheck, optim, probe
from tinyvit import functional as F
from tinyvit.data import mixing
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.functional.adam import adam_step
from tinyvit.functional.interpolation import bicubic
from tinyvit.functional.muon import orthogonalise
from tinyvit.functional.positions import sincos_2d
from tinyvit.functional.shifted_windows import window_masks
from tinyvit.models import worked_example
from tinyvit.models.convnet import as_maps, as_tokens
from tinyvit.models.text_tower import causal_mask
from tinyvit.models.vivit import inflate_filters
from tinyvit.training.tasks.mae import normalise_patches

PAIRS = [name for name in EXERCISES if "dy" in getattr(EXERCISES.get(f"{name}_backward"), "arguments", ())]


def adam(theta, g, m, v, t, lr, beta1, beta2, eps):
    theta, m, v = theta.copy(), m.copy(), v.copy()  # the package's works in place
    adam_step(theta, g, m, v, t, lr, (beta1, beta2), eps, 0.0)
    return theta, m, v


def adamw(theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    theta, m, v = theta.copy(), m.copy(), v.copy()
    adam_step(theta, g, m, v, t, lr, (beta1, beta2), eps, weight_decay)
    return theta, m, v


def window_mask(sides, window, shift):
    return (window_masks(sides, window, shift, dtype="float64") == 0) * 1.0


def mae_loss(pixels, patches, hidden):
    chosen = hidden == 1
    return F.mean_squared_error(pixels[chosen], normalise_patches(patches)[chosen])[0]


def running_statistics(x, running_mean, running_variance, momentum):
    _, cache = F.batch_norm(x, running_variance, running_mean, 1.0)
    old_and_new = (running_mean, cache.mean), (running_variance, cache.variance)
    return tuple((1 - momentum) * old + momentum * new for old, new in old_and_new)


def merge_tiles(m1, Z1, a1, m2, Z2, a2):
    """The means of both tiles, weighted by the softmax of the logarithms of their sums of exponentials."""
    shares, _ = F.softmax(np.stack([m1 + np.log(Z1), m2 + np.log(Z2)], 1))
    return shares[:, :1] * a1 / Z1[:, None] + shares[:, 1:] * a2 / Z2[:, None]


def worked_example_backward(patches):
    gradients = worked_example.backward(worked_example.forward(patches)[1])
    return gradients["dpatches"], gradients["dcls_token"]


# What the package gives, beside the whole ViT, which has all parts of a block in it. The backwards of exercises on both
# are held to their forwards below.
SAME = (F.conv2d, F.batch_norm, F.group_norm, F.standardize_weight, F.max_pool2d, F.place_tokens, F.add_noise,
        F.tubelets, F.from_tubelets, F.cross_entropy, F.rope, F.merge_patches, F.distillation, F.dino_loss,
        F.contrastive_loss, F.resize_bilinear, F.pixel_cross_entropy, F.rope_halves, F.packed_attention)  # fmt: skip
BACKWARDS = "relu", "silu", "scale_channels", "l2_normalise"
LOSSES = "distillation", "dino_loss", "contrastive_loss"


def gradients_of(name, dy, *arguments):
    """The gradients of an operation of the package."""
    return getattr(F, f"{name}_backward")(dy, getattr(F, name)(*arguments)[1])


PACKAGE = {
    **{forward.__name__: lambda *a, forward=forward: forward(*a)[0] for forward in SAME},
    **{f"{name}_backward": partial(gradients_of, name) for name in BACKWARDS},
    **{f"{name}_backward": partial(gradients_of, name, 1.0) for name in LOSSES},
    "worked_example_backward": worked_example_backward,
    "adam": adam,
    "bicubic": bicubic,
    "depthwise_conv2d": lambda x, weight, padding: F.conv2d(x, weight[:, None], None, 1, padding, x.shape[1])[0],
    "conv_transpose2d": lambda x, weight, bias: F.conv_transpose2d(x, weight, bias, weight.shape[2:])[0],
    "layernorm2d": lambda x, *rest: as_maps(F.layernorm(as_tokens(x), *rest)[0]),
    "running_statistics": running_statistics,
    "avg_pool2d_backward": lambda dy, kernel, stride, size: gradients_of(
        "avg_pool2d", dy, np.zeros((*dy.shape[:2], *size)), kernel, stride
    ),
    "window_partition": lambda *a: F.to_windows(*a)[0],
    "window_reverse": lambda *a: F.from_windows(*a)[0],
    "relative_bias": lambda table, side: F.relative_bias(table, (side, side))[0],
    "embedding_backward": lambda dy, index, n: gradients_of("embedding", dy, np.zeros((n, dy.shape[-1])), index),
    "similarity_backward": lambda dy, x, y, scale: gradients_of("similarity", dy, x, y, np.array(scale)),
    "zero_shot": lambda images, prompts: images @ F.l2_normalise(prompts.mean(1))[0].T,
    "ddim_step": F.step_back,
    "modulate_backward": lambda dy, x, gain: gradients_of("modulate", dy, x, gain, gain),
    "add_gated_backward": lambda dy, x, gate: gradients_of("add_gated", dy, x, x, gate),
    "embed_labels_backward": lambda dy, labels, n: gradients_of("embed_labels", dy, np.zeros((n, dy.shape[1])), labels),
    "inflate": inflate_filters,
    "sincos_positions": lambda rows, columns, width: sincos_2d((rows, columns), width, prefix=0)[0],
    "newton_schulz": orthogonalise,
    "adamw": adamw,
    "window_mask": window_mask,
    "mae_loss": mae_loss,
    "causal_attention": lambda q, k, v: F.attention(q, k, v, causal_mask(q.shape[2]))[0],
    "layer_scale_backward": lambda dy, x, weight: (dy, *gradients_of("layer_scale", dy, x, weight)),
    "reorder_tokens": lambda x, order: F.take_tokens(x, np.broadcast_to(order, x.shape[:2]))[0],
    "merge_tiles": merge_tiles,
    "to_fragments": lambda A: A.reshape(2, 8, 2, 4, 2).transpose(1, 3, 2, 0, 4).reshape(32, 8),
}


@pytest.mark.parametrize("name", PACKAGE)
def test_the_packages_own_answer_passes(name, capsys):
    for seed in range(3):
        report = exercises.check(name, PACKAGE[name], seed=seed)
        assert report and report.right and not report.mistakes
        assert capsys.readouterr().out == f"{report.answer}\n" and f"{name}: right." in report.answer


def packages_vit(images, parameters, depth, num_heads, eps):
    D, C, P, Q = parameters["patch_embed.proj.weight"].shape
    config = ViTConfig(
        img_size=images.shape[2:], patch_size=(P, Q), in_chans=C, num_classes=len(parameters["head.bias"]),
        embed_dim=D, depth=depth, num_heads=num_heads, mlp_ratio=len(parameters["blocks.0.mlp.fc1.bias"]) / D,
        norm_eps=eps,
    )  # fmt: skip
    model = ViT(config, dtype="float64")
    model.load_state_dict(parameters)
    return model


def packages_gradients(dy, images, *rest):
    model = packages_vit(images, *rest)
    model.zero_grad()
    dimages = model.backward(dy, model(images)[1])
    return dimages, {name: parameter.grad for name, parameter in model.named_parameters()}


def test_the_packages_vit_passes():
    assert exercises.check("vit", lambda images, *rest: packages_vit(images, *rest)(images)[0])
    assert exercises.check("vit_backward", packages_gradients)


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
    inputs = forward.draw(forward.known_cases[0])
    constants = {"kept", "weight"} if name in ("drop_path", "lora") else ()
    inputs = [given.tolist() if one in constants else given for one, given in zip(forward.arguments, inputs)]

    def with_arguments(*arguments):
        arguments = [np.asarray(given) if isinstance(given, list) else given for given in arguments]
        return forward.right(*arguments), dict(zip(forward.arguments, arguments))

    def gradients(dy, given):
        if name == "patchify":
            given = {**given, "img_size": given["images"].shape[2:]}
        found = backward.right(dy, *(given[argument] for argument in list(backward.arguments)[1:]))
        return found[0] if name in ("block", "vit") else found  # a dict's arrays are left as they are

    method = "central" if name in ("block", "vit", "place_tokens") else "complex"
    report = gradcheck.check(with_arguments, gradients, inputs, method)
    assert report.max_error < gradcheck.BOUNDS[method], report


# -- other ways to write and return ---------------------------------------------------------------------------------


def test_a_function_may_take_more_print_and_be_an_object_that_is_called():
    class Softmax:
        def __call__(self, *rows, unused=None):
            print("rows are", rows[0].shape)
            return F.softmax(*rows)[0]

    report = exercises.check("softmax", Softmax())
    assert report and "Your function printed:\n  | rows are (3, 4)" in report.answer


def test_a_loss_may_be_any_kind_of_number():
    for kind in (float, np.float64, np.asarray):
        assert exercises.check("cross_entropy", lambda *arguments, kind=kind: kind(F.cross_entropy(*arguments)[0]))


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
