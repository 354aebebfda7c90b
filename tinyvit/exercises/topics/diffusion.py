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

NOISE.edit("the level without its root", "ᾱ is a share of the variance; what is multiplied is its root.",
    ("np.sqrt", ""))
NOISE.edit("the noise as it is", "The variance must stay 1: the noise has what the image lacks, 1 − ᾱ.",
    ("np.sqrt(1 - level) * ", ""))
NOISE.edit("image and noise exchanged", "ᾱ is what is left of the image.", "level = 1 - level")
NOISE.edit("1 − √ᾱ in place of √(1 − ᾱ)", "The variances add up to 1, ᾱ and 1 − ᾱ; the root comes last.",
    ("np.sqrt(1 - level)", "(1 - np.sqrt(level))"))

STEP.edit("the image is returned without noise", "At the level ᾱ′ there is still noise in it: √(1 − ᾱ′) of it.",
    ("np.sqrt(previous) * image + np.sqrt(1 - previous) * noise", "image"))
STEP.edit("not divided by √ᾱ", "What is left when the noise is taken out is √ᾱ times the image.",
    (" / np.sqrt(level)", ""))
STEP.edit("the levels exchanged", "The noise is taken out at the level ᾱ, and put in again at ᾱ′.",
    "level, previous = previous, level")
STEP.edit("the noise of the level ᾱ stays", "At the level ᾱ′ the noise has the factor √(1 − ᾱ′).",
    ("1 - previous", "1 - level"))

MODULATE.edit("the 1 is missing", "x is multiplied by 1 + gain: with the gain 0 it stays as it is.", ("1 + ", ""))
MODULATE.edit("doffset is a mean over the tokens", "All tokens have the same offset: their gradients add up.",
    ("dy.sum", "dy.mean"))
MODULATE.edit("dgain without x", "The gain multiplies x.", ("(dy * x)", "dy"))
MODULATE.edit("dgain is a mean over the tokens", "All tokens have the same gain: their gradients add up.",
    ("x).sum", "x).mean"))

GATED.edit("the gate on both ways", "x goes past the branch, without a gate.",
    ("return dy,", "return dy * gate[:, None],"))
GATED.edit("the branch without its gate", "The branch is multiplied by the gate, and so is its gradient.",
    (", dy * gate[:, None]", ", dy"))
GATED.edit("dgate is a mean over the tokens", "All tokens of a sample have the same gate: their gradients add up.",
    ("sum", "mean"))
GATED.edit("dgate without the branch", "The gate multiplies the branch.", ("(dy * branch)", "dy"))

SAME_ROW = "Samples of one class took the same row: their gradients add up."
LABELS.edit("the last sample of a class wins", SAME_ROW, ("+=", "="))
LABELS.edit("a mean over the samples of a class", "Samples of one class took the same row: a sum, not a mean.",
    ("+= dy[b]", "+= dy[b] / (labels == label).sum()"))
LABELS.edit("the first sample of a class wins", SAME_ROW, "dy, labels = dy[::-1], labels[::-1]", ("+=", "="))
LABELS.edit("a mean over the batch", "Each sample adds its gradient to its row; nothing is divided by B.",
    ("+= dy[b]", "+= dy[b] / len(dy)"))
