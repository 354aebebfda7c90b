"""The mistakes of a composite exercise that are those of its parts.

Nothing is written twice: the solution of a composite calls the solutions of its parts, and is run with a part replaced
by the wrong formula of that part's own exercise. `layernorm_backward` without its mean's term, put into
`block_backward`, gives what a learner's block gives with that layer norm: everywhere, or in one place alone.
"""

from functools import cache, partial
from types import FunctionType

from tinyvit.exercises import solutions
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import Mistake, edited
from tinyvit.exercises.topics import multi_head_attention as heads


def edit_of(name, hint, edit):
    return Mistake(name, hint, edited(edit[0], (edit,)))


ORDER = "(B, N, D) is (B, N, H, d) in memory; a transpose stands between that and (B, H, N, d), there and back."
HELPERS = {
    "split_heads": [
        edit_of("heads are split by a reshape without transpose", ORDER, heads.BY_RESHAPE),
        edit_of("heads are interleaved", "D is H times d; you read it as d times H.", heads.INTERLEAVED),
    ],
    "join_heads": [edit_of("heads are joined by a reshape without transpose", ORDER, heads.JOINED_BY_RESHAPE)],
}

# Where a part is called more than once: the place's name, and which calls are made there, counted from 0.
PLACES = {
    "mlp_backward": {"weight2": {"linear_backward": {0}}, "weight1": {"linear_backward": {1}}},
    "multi_head_attention_backward": {
        "proj": {"linear_backward": {0}},
        "qkv": {"linear_backward": {1}},
        "on the way back": {"split_heads": {3}, "join_heads": {1, 2, 3}},
        "on the way forward": {"split_heads": {0, 1, 2}, "join_heads": {0}},
    },
    "block": {"norm1": {"layernorm": {0}}, "norm2": {"layernorm": {1}}},
    "block_backward": {
        "norm1": {"layernorm": {0}, "layernorm_backward": {1}},
        "norm2": {"layernorm": {1}, "layernorm_backward": {0}},
        "mlp.fc2": {"linear_backward": {0}},
        "mlp.fc1": {"linear_backward": {1}},
        "attn.proj": {"linear_backward": {2}},
        "attn.qkv": {"linear_backward": {3}},
        "on the way back": {"split_heads": {6}, "join_heads": {2, 3, 4}},
    },
    "vit_backward": {"the last norm": {"layernorm_backward": {0}}, "the head": {"linear_backward": {0}}},
}


@cache
def mistakes_of_parts(name):
    """The mistakes of all parts of the exercise of that name, as its own."""
    made = []
    parts = parts_of(name)
    for part in parts:
        forward = part.removesuffix("_backward")
        for mistake in wrong_forms(part):
            everywhere = {part: (mistake, None)}
            twin = [other for other in wrong_forms(forward) if other.name == mistake.name and forward in parts]
            if twin and forward != part:
                made.append(as_own(name, mistake, f"{forward} and {part}", everywhere | {forward: (twin[0], None)}))
            made.append(as_own(name, mistake, part, everywhere))
            for place, calls in PLACES.get(name, {}).items():
                if part in calls:
                    made.append(as_own(name, mistake, f"{part}, {place}", {part: (mistake, calls[part])}))
                    if twin and forward in calls and forward != part:
                        both = {part: (mistake, calls[part]), forward: (twin[0], calls[forward])}
                        made.append(as_own(name, mistake, f"{forward} and {part}, {place}", both))
    if {"split_heads", "join_heads"} <= set(parts):
        both = {part: (HELPERS[part][0], None) for part in ("split_heads", "join_heads")}
        said = Mistake("heads are split and joined by a reshape without transpose", ORDER, None)
        made.append(as_own(name, said, "split and join", both))
    return made


def as_own(name, mistake, where, replaced):
    return Mistake(f"{mistake.name} ({where})", mistake.hint, partial(with_parts, name, replaced))


def wrong_forms(part):
    return HELPERS[part] if part in HELPERS else EXERCISES[part].mistakes if part in EXERCISES else []


def parts_of(name):
    """The functions that a solution calls, and those that these call."""
    found, ahead = [], [name]
    while ahead:
        for called in getattr(solutions, ahead.pop()).__code__.co_names:
            if called not in found and isinstance(getattr(solutions, called, None), FunctionType):
                found.append(called)
                ahead.append(called)
    return found


def with_parts(name, replaced, *arguments):
    """The solution of that name with parts replaced by wrong ones.

    replaced   the mistake by the part's name, and in which of its calls it is made; None: in all
    """
    space = dict(vars(solutions))
    for function, value in vars(solutions).items():
        if isinstance(value, FunctionType):
            space[function] = FunctionType(value.__code__, space, function, value.__defaults__)
    for part, (mistake, calls) in replaced.items():
        space[part] = partly_wrong(space[part], EXERCISES.get(part), mistake, calls)
    return space[name](*arguments)


def partly_wrong(right, exercise, mistake, calls):
    """A part that makes the mistake in some of its calls."""
    made = 0

    def function(*arguments):
        nonlocal made
        made += 1
        if calls is not None and made - 1 not in calls:
            return right(*arguments)
        wrong = mistake.formula(*arguments)
        if not isinstance(wrong, dict):
            return wrong
        outputs = right(*arguments)
        outputs = dict(zip(exercise.returns, outputs if len(exercise.returns) > 1 else (outputs,)))
        for output, value in wrong.items():
            outputs[output] = {**outputs[output], **value} if isinstance(value, dict) else value
        return tuple(outputs.values()) if len(outputs) > 1 else next(iter(outputs.values()))

    return function
