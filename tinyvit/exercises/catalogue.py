"""All exercises by name, with their descriptions, hints and solutions."""

import textwrap
from bisect import bisect_left
from importlib import import_module

from tinyvit.exercises.exercise import global_names, read_texts, sources
from tinyvit.text import did_you_mean

NOTEBOOKS = {  # the topics of each
    "00_using_the_chain_rule": "chain_rule",
    "01_images_into_tokens": "patches embed linear positions",
    "02_layer_norm": "layernorm layernorm_backward rmsnorm",
    "03_attention": "softmax attention attention_backward multi_head_attention",
    "04_blocks": "multi_head_attention_backward gelu mlp block block_backward",
    "05_whole_vit": "vit vit_backward worked_example",
    "06_training": "cross_entropy adam updates residuals",
    "07_cifar10": "schedule cutmix muon",
    "08_what_it_learns": "rollout",
    "09_machine": "derivative softmax_merge kahan_sum",
    "10_transfer": "interpolation lora",
    "11_convolutions": "conv2d depthwise batch_norm group_norm pooling",
    "12_teacher": "distillation",
    "13_windows": "windows",
    "14_convolution_to_attention": "gates",
    "15_hidden_patches": "hidden_tokens",
    "16_two_views": "dino",
    "17_images_and_texts": "clip",
    "18_images_out_of_noise": "diffusion",
    "19_tubelets": "videos",
    "20_attention_on_a_gpu": "tensor_cores",
    "22_dense_prediction": "dense",
    "23_native_size": "packed_rows",
}
TOPICS = " ".join(NOTEBOOKS.values()).split()
BY_TOPIC = {topic: read_texts(import_module(f"tinyvit.exercises.topics.{topic}")) for topic in TOPICS}
EXERCISES = {exercise.name: exercise for exercises in BY_TOPIC.values() for exercise in exercises}
LINE_CHARACTERS = 110  # of a description
HINTS_GIVEN = {}  # how many hints of an exercise were given, by its name


def names():
    """The names of all exercises, in the order of the notebooks."""
    return list(EXERCISES)


def find(name):
    """The exercise of that name; raises ValueError if there is none."""
    if not isinstance(name, str) or name not in EXERCISES:
        raise ValueError(f"there is no exercise {name!r}; {did_you_mean(name, EXERCISES, 4)}")
    return EXERCISES[name]


def table():
    """All exercises as text: a line each with its notebook, its level from 1, a few lines, to 3, and the exercises
    that it builds on."""
    rows = [("exercise", "notebook", "level", "builds on")]
    for notebook, topics in NOTEBOOKS.items():
        for one in [one for topic in topics.split() for one in BY_TOPIC[topic]]:
            before = ", ".join(prerequisites(one))
            rows.append((one.name, notebook, str(level(one)), before))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def prerequisites(exercise):
    """The names of the exercises that one builds on: its forward, and those whose solutions it calls itself."""
    called = global_names(exercise.right.__code__)
    forward = [exercise.forward.__name__] if exercise.forward else []
    return [name for name in EXERCISES if name in [*forward, *called] and name != exercise.name]


def level(exercise):
    """From 1 to 3, by the lines of the solution and the exercises that it builds on; a gradient is harder."""
    work = sources(exercise.right)[exercise.name].count("\n") - 1
    work += len(prerequisites(exercise))
    if exercise.name.endswith("_backward"):
        work += 2
    return 1 + bisect_left((4, 9), work)


def describe(name):
    """Describe the exercise as text: the function's arguments and what it returns, with their shapes."""
    exercise = find(name)
    width = max(map(len, [*exercise.arguments, *exercise.returns]))

    def rows(entries):
        indent = " " * (width + 4)
        begun = [f"  {entry:<{width}}  {text}" for entry, text in entries.items()]
        return [textwrap.fill(row, LINE_CHARACTERS, subsequent_indent=indent) for row in begun]

    came, goes = rows(exercise.arguments), rows(exercise.returns)
    task = [textwrap.fill(exercise.task, LINE_CHARACTERS), "Arguments must not be changed in place."]
    return "\n".join([exercise.signature, "", *task, "", *came, "", "returns", *goes])


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
