"""All exercises by name, with their descriptions and solutions."""

import difflib
import inspect
import textwrap

from tinyvit.exercises import solutions
from tinyvit.exercises.topics import (
    adam,
    attention,
    attention_backward,
    batch_norm,
    block,
    block_backward,
    chain_rule,
    clip,
    conv2d,
    cross_entropy,
    cutmix,
    depthwise,
    derivative,
    diffusion,
    dino,
    distillation,
    embed,
    gates,
    gelu,
    group_norm,
    hidden_tokens,
    interpolation,
    kahan_sum,
    layernorm,
    layernorm_backward,
    linear,
    mlp,
    multi_head_attention,
    multi_head_attention_backward,
    patches,
    pooling,
    rmsnorm,
    rollout,
    schedule,
    softmax,
    softmax_merge,
    tensor_cores,
    videos,
    vit,
    vit_backward,
    windows,
    worked_example,
)

TOPICS = (
    chain_rule, patches, embed, linear, layernorm, layernorm_backward, rmsnorm, softmax, attention,
    attention_backward, multi_head_attention, multi_head_attention_backward, gelu, mlp, block, block_backward, vit,
    vit_backward, worked_example, cross_entropy, adam, schedule, cutmix, rollout, derivative, softmax_merge,
    kahan_sum, interpolation, conv2d, depthwise, batch_norm, group_norm, pooling, distillation,
    windows, gates, hidden_tokens, dino, clip, diffusion, videos, tensor_cores,
)  # fmt: skip
EXERCISES = {exercise.name: exercise for topic in TOPICS for exercise in topic.EXERCISES}


def names():
    """The names of all exercises, in the order of the notebooks."""
    return list(EXERCISES)


def find(name):
    """The exercise of that name; raises ValueError if there is none."""
    if not isinstance(name, str) or name not in EXERCISES:
        near = difflib.get_close_matches(str(name), EXERCISES, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"there is no exercise {name!r}{meant}; there are: {', '.join(EXERCISES)}")
    return EXERCISES[name]


def describe(name):
    """Describe the exercise as text: the function's arguments and what it returns, with their shapes."""
    exercise = find(name)
    width = max(map(len, [*exercise.arguments, *exercise.returns]))

    def rows(entries):
        return [f"  {entry:<{width}}  {text}" for entry, text in entries.items()]

    came, goes = rows(exercise.arguments), rows(exercise.returns)
    return "\n".join([exercise.signature, "", exercise.asks, "", *came, "", "returns", *goes])


def solution(name):
    """A solution in plain NumPy as text, in the signature that was asked for, with the functions that it calls.

    Below it stand the names of the package's own functions: `inspect.getsource` shows them. A forward of the package
    returns a cache beside its result, and a backward gets that cache: what an exercise computes again is in it.
    """
    exercise, needed = find(name), [name]
    for one in needed:
        called = names_in(getattr(solutions, one).__code__)
        needed += [other for other in called if other not in needed and callable(getattr(solutions, other, None))]
    in_order = sorted(needed, key=lambda one: getattr(solutions, one).__code__.co_firstlineno)
    parts = [textwrap.dedent(inspect.getsource(getattr(solutions, one))).rstrip() for one in in_order]
    own = ", ".join(f"{part.__module__}.{part.__qualname__}" for part in exercise.shown)
    return "\n\n\n".join(["import numpy as np", *parts]) + f"\n\n\n# The package's own code: {own}"


def names_in(code):
    """The global names that a function uses, also in the generators inside it."""
    inner = [name for part in code.co_consts if hasattr(part, "co_names") for name in names_in(part)]
    return list(dict.fromkeys([*code.co_names, *inner]))
