"""All exercises by name, with their descriptions and solutions."""

import difflib
import inspect
import textwrap

from tinyvit.exercises.topics import (
    adam,
    attention,
    attention_backward,
    block,
    block_backward,
    cross_entropy,
    cutmix,
    derivative,
    embed,
    gelu,
    interpolation,
    kahan_sum,
    layernorm,
    layernorm_backward,
    linear,
    mlp,
    multi_head_attention,
    multi_head_attention_backward,
    patches,
    rmsnorm,
    rollout,
    schedule,
    softmax,
    softmax_merge,
    vit,
    vit_backward,
    worked_example,
)

TOPICS = (
    patches, embed, linear, layernorm, layernorm_backward, rmsnorm, softmax, attention, attention_backward,
    multi_head_attention, multi_head_attention_backward, gelu, mlp, block, block_backward, vit, vit_backward,
    worked_example, cross_entropy, adam, schedule, cutmix, rollout, derivative, softmax_merge, kahan_sum,
    interpolation,
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
    """The package's own code as text, as it stands in its files.

    A forward of the package returns a cache beside its result, and a backward gets that cache: what an exercise
    computes again is in it.
    """
    parts = [(f"# {part.__module__}", textwrap.dedent(inspect.getsource(part)).rstrip()) for part in find(name).shown]
    return "\n\n".join(f"{module}\n\n{source}" for module, source in parts)
