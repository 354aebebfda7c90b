"""All exercises by name, with their descriptions, hints and solutions."""

from importlib import import_module

from tinyvit.exercises.exercise import read_texts, sources
from tinyvit.text import did_you_mean

TOPICS = (  # in the order of the notebooks
    "chain_rule", "patches", "embed", "linear", "layernorm", "layernorm_backward", "rmsnorm", "softmax", "attention",
    "attention_backward", "multi_head_attention", "multi_head_attention_backward", "gelu", "mlp", "block",
    "block_backward", "vit", "vit_backward", "worked_example", "cross_entropy", "adam", "schedule", "cutmix", "rollout",
    "derivative", "softmax_merge", "kahan_sum", "interpolation", "conv2d", "depthwise", "batch_norm", "group_norm",
    "pooling", "distillation", "windows", "gates", "hidden_tokens", "dino", "clip", "diffusion", "videos",
    "tensor_cores",
)  # fmt: skip
BY_TOPIC = {topic: read_texts(import_module(f"tinyvit.exercises.topics.{topic}")) for topic in TOPICS}
EXERCISES = {exercise.name: exercise for exercises in BY_TOPIC.values() for exercise in exercises}
HINTS_GIVEN = {}  # how many hints of an exercise were given, by its name


def names():
    """The names of all exercises, in the order of the notebooks."""
    return list(EXERCISES)


def find(name):
    """The exercise of that name; raises ValueError if there is none."""
    if not isinstance(name, str) or name not in EXERCISES:
        raise ValueError(f"there is no exercise {name!r}; {did_you_mean(name, EXERCISES)}")
    return EXERCISES[name]


def describe(name):
    """Describe the exercise as text: the function's arguments and what it returns, with their shapes."""
    exercise = find(name)
    width = max(map(len, [*exercise.arguments, *exercise.returns]))

    def rows(entries):
        return [f"  {entry:<{width}}  {text}" for entry, text in entries.items()]

    came, goes = rows(exercise.arguments), rows(exercise.returns)
    task = f"{exercise.task} Arguments must not be changed in place."
    return "\n".join([exercise.signature, "", task, "", *came, "", "returns", *goes])


def solution(name):
    """A solution in plain NumPy as text, in the signature that was asked for, with the functions that it calls.

    Below it stand the names of the package's own functions: `inspect.getsource` shows them. A forward of the package
    returns a cache beside its result, and a backward gets that cache: what an exercise computes again is in it.
    """
    exercise = find(name)
    own = [f"# The package's own code: {exercise.package}"] if exercise.package else []
    return "\n\n".join(["import numpy as np\n", *sources(exercise.right).values(), *own]).rstrip()


def hint(name, number=None):
    """The next hint of an exercise as text, at each call; after the last one it says how to see the solution.

    number   1, 2 or 3: this hint, without counting it

    Raises ValueError for an unknown name and another number.
    """
    hints = find(name).hints
    if number is not None and number not in range(1, len(hints) + 1):
        raise ValueError(f"hint: expected a number from 1 to {len(hints)}, got {number!r}")
    place = HINTS_GIVEN.get(name, 0) if number is None else number - 1
    if number is None:
        HINTS_GIVEN[name] = min(place + 1, len(hints))
    if place == len(hints):
        return f'{name}: that were all hints. print(exercises.solution("{name}")) shows the solution.'
    return f"{name}, hint {place + 1} of {len(hints)}: {hints[place]}"
