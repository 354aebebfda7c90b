"""Noise put into images, a step back, and what a condition does to tokens."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def noise_inputs(random, B, C, H, W):
    images = random.standard_normal((2, B, C, H, W))
    return *images, random.uniform(0.1, 0.9, B)


def step_inputs(random, B, C, H, W):
    level, previous = (float(share) for share in np.sort(random.uniform(0.1, 0.9, 2)))
    return *random.standard_normal((2, B, C, H, W)), level, previous


def modulate_inputs(random, B, N, D):
    return *random.standard_normal((2, B, N, D)), random.standard_normal((B, D))


def labels_inputs(random, B, K, D):
    return random.standard_normal((B, D)), random.integers(0, K, B), K


IMAGES = ({"B": 2, "C": 1, "H": 3, "W": 2}, {"B": 3, "C": 2, "H": 2, "W": 2})
TOKENS = ({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5})
NOISE = Exercise(
    "add_noise",
    "Images with noise in them: √ᾱ of the image and √(1 − ᾱ) of the noise, with a level ᾱ for each image.",
    {"x": "(B, C, H, W)", "noise": "(B, C, H, W)", "level": "(B,), ᾱ from 0 to 1"},
    {"y": "(B, C, H, W)"},
    right=lambda x, noise, level: F.add_noise(x, noise, level)[0],
    shown=(F.add_noise, F.add_noise_backward),
    inputs=noise_inputs,
    sizes=IMAGES,
)
STEP = Exercise(
    "ddim_step",
    "A step back of DDIM: take the noise out of x, at the level ᾱ, and put the same noise into the image that is left, "
    "at the level ᾱ′ of the step before.",
    {"x": "(B, C, H, W)", "noise": "(B, C, H, W), what the model has found", "level": "ᾱ", "previous": "ᾱ′"},
    {"y": "(B, C, H, W)"},
    right=F.step_back,
    shown=(F.step_back, F.cleaned),
    inputs=step_inputs,
    sizes=IMAGES,
)
MODULATE = Exercise(
    "modulate_backward",
    "The gradients of y = x (1 + gain) + offset, where offset and gain (B, D) are the same for all tokens of a sample.",
    {"dy": "(B, N, D), the gradient of y", "x": "(B, N, D)", "gain": "(B, D)"},
    {"dx": "(B, N, D)", "doffset": "(B, D)", "dgain": "(B, D)"},
    right=lambda dy, x, gain: F.modulate_backward(dy, F.modulate(x, gain, gain)[1]),
    shown=(F.modulate, F.modulate_backward),
    inputs=modulate_inputs,
    sizes=TOKENS,
)
GATED = Exercise(
    "add_gated_backward",
    "The gradients of y = x + gate · branch, where the gate (B, D) is the same for all tokens of a sample.",
    {"dy": "(B, N, D), the gradient of y", "branch": "(B, N, D)", "gate": "(B, D)"},
    {"dx": "(B, N, D)", "dbranch": "(B, N, D)", "dgate": "(B, D)"},
    right=lambda dy, branch, gate: F.add_gated_backward(dy, F.add_gated(branch, branch, gate)[1]),
    shown=(F.add_gated, F.add_gated_backward),
    inputs=modulate_inputs,
    sizes=TOKENS,
)
LABELS = Exercise(
    "embed_labels_backward",
    "The gradient of a table (K, D) out of which sample b took row labels[b].",
    {"dy": "(B, D), the gradient of the rows that were taken", "labels": "(B,), ints from 0 to K − 1", "count": "K"},
    {"dweight": "(K, D)"},
    right=lambda dy, labels, count: F.embed_labels_backward(
        dy, F.embed_labels(np.zeros((count, dy.shape[1])), labels)[1]
    ),
    shown=(F.embed_labels, F.embed_labels_backward),
    inputs=labels_inputs,
    sizes=({"B": 6, "K": 3, "D": 2}, {"B": 7, "K": 4, "D": 3}),
)
EXERCISES = NOISE, STEP, MODULATE, GATED, LABELS


def per_image(level):
    return level[:, None, None, None]


@NOISE.mistake("the level without its root", "ᾱ is a share of the variance; what is multiplied is its root.")
def without_root(x, noise, level):
    return per_image(level) * x + per_image(1 - level) * noise


@NOISE.mistake("the noise as it is", "The variance must stay 1: the noise has what the image lacks, 1 − ᾱ.")
def whole_noise(x, noise, level):
    return per_image(level) ** 0.5 * x + noise


@NOISE.mistake("image and noise exchanged", "ᾱ is what is left of the image.")
def exchanged(x, noise, level):
    return per_image(1 - level) ** 0.5 * x + per_image(level) ** 0.5 * noise


@NOISE.mistake("1 − √ᾱ in place of √(1 − ᾱ)", "The variances add up to 1, ᾱ and 1 − ᾱ; the root comes last.")
def root_first(x, noise, level):
    return per_image(level) ** 0.5 * x + (1 - per_image(level) ** 0.5) * noise


@STEP.mistake("the image is returned without noise", "At the level ᾱ′ there is still noise in it: √(1 − ᾱ′) of it.")
def no_noise(x, noise, level, previous):
    return F.cleaned(x, noise, level)


@STEP.mistake("not divided by √ᾱ", "What is left when the noise is taken out is √ᾱ times the image.")
def undivided(x, noise, level, previous):
    return previous**0.5 * (x - (1 - level) ** 0.5 * noise) + (1 - previous) ** 0.5 * noise


@STEP.mistake("the levels exchanged", "The noise is taken out at the level ᾱ, and put in again at ᾱ′.")
def levels_exchanged(x, noise, level, previous):
    return F.step_back(x, noise, previous, level)


@STEP.mistake("the noise of the level ᾱ stays", "At the level ᾱ′ the noise has the factor √(1 − ᾱ′).")
def old_noise(x, noise, level, previous):
    return previous**0.5 * F.cleaned(x, noise, level) + (1 - level) ** 0.5 * noise


@MODULATE.mistake("the 1 is missing", "x is multiplied by 1 + gain: with the gain 0 it stays as it is.")
def no_one(dy, x, gain):
    return {"dx": dy * gain[:, None]}


@MODULATE.mistake("doffset is a mean over the tokens", "All tokens have the same offset: their gradients add up.")
def mean_offset(dy, x, gain):
    return {"doffset": dy.mean(1)}


@MODULATE.mistake("dgain without x", "The gain multiplies x.")
def without_x(dy, x, gain):
    return {"dgain": dy.sum(1)}


@MODULATE.mistake("dgain is a mean over the tokens", "All tokens have the same gain: their gradients add up.")
def mean_gain(dy, x, gain):
    return {"dgain": (dy * x).mean(1)}


@GATED.mistake("the gate on both ways", "x goes past the branch, without a gate.")
def both_gated(dy, branch, gate):
    return {"dx": dy * gate[:, None]}


@GATED.mistake("the branch without its gate", "The branch is multiplied by the gate, and so is its gradient.")
def ungated(dy, branch, gate):
    return {"dbranch": dy}


@GATED.mistake("dgate is a mean over the tokens", "All tokens of a sample have the same gate: their gradients add up.")
def mean_gate(dy, branch, gate):
    return {"dgate": (dy * branch).mean(1)}


@GATED.mistake("dgate without the branch", "The gate multiplies the branch.")
def without_branch(dy, branch, gate):
    return {"dgate": dy.sum(1)}


@LABELS.mistake("the last sample of a class wins", "Samples of one class took the same row: their gradients add up.")
def last_wins(dy, labels, count):
    dweight = np.zeros((count, dy.shape[1]))
    dweight[labels] = dy
    return dweight


@LABELS.mistake("a mean over the samples of a class", "Samples of one class took the same row: a sum, not a mean.")
def mean_of_class(dy, labels, count):
    used = (np.arange(count)[:, None] == labels).astype(float)
    return used @ dy / np.maximum(1, used.sum(1, keepdims=True))


@LABELS.mistake("the first sample of a class wins", "Samples of one class took the same row: their gradients add up.")
def first_wins(dy, labels, count):
    return last_wins(dy[::-1], labels[::-1], count)


@LABELS.mistake("a mean over the batch", "Each sample adds its gradient to its row; nothing is divided by B.")
def mean_of_batch(dy, labels, count):
    return (np.arange(count)[:, None] == labels) @ dy / len(dy)
