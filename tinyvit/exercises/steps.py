"""Finds the first wrong one of a learner's intermediates."""

import re
import sys
from collections.abc import Mapping

import numpy as np

from tinyvit.exercises.calling import call
from tinyvit.exercises.catalogue import EXERCISES, find
from tinyvit.exercises.checking import Report, ending_text, format_answer, printed_text
from tinyvit.exercises.exercise import namespace, sources
from tinyvit.exercises.general_mistakes import find_factor, find_rearrangement
from tinyvit.exercises.outputs import UnusableOutput, check_output, describe_error, type_text

STEPS_FORM = "return a dict of arrays by the steps' names, or yield each as name, array"


def steps(name):
    """The steps of an exercise as text, in their order: the name of each, what it is, its shape on the first inputs.

    In a backward, a step has the name of what it goes back through; it is the gradient that comes out of that.
    Raises ValueError for an exercise without steps.
    """
    expected = expected_steps(name)
    width = max(map(len, expected))
    rows = [f"  {step:<{width}}  {said}  {value.shape}" for step, (said, value) in expected.items()]
    return "\n".join([f"{find(name).signature}: {STEPS_FORM}", "", *rows])


def check_steps(name, mine, time_limit=5.0, seed=0):
    """Call `mine` as the exercise, print the first of its intermediates that is wrong, and return a `Report`.

    name         one of the exercises that have steps; `steps(name)` says what each is
    mine         takes the exercise's arguments and returns a dict of arrays by the names of the steps, or yields
                 (name, array), so that what was there before an error is still compared. All steps are asked for;
                 if some are left out, the answer says between which the mistake is
    time_limit   seconds for the call
    seed         of the random arrays

    Raises ValueError for an exercise without steps, TypeError if `mine` isn't callable.
    """
    expected = {step: value for step, (_, value) in expected_steps(name, seed).items()}
    if not callable(mine):
        raise TypeError(f"check_steps: expected your function itself, got {type(mine).__name__}")
    exercise, given = find(name), {}
    drawn = exercise.draw(exercise.known_cases[0], seed)
    result = call(lambda *arguments: collect(mine, arguments, given), drawn, time_limit)
    with np.errstate(all="ignore"):
        right, *paragraphs = compare_steps(exercise, expected, given, problem_text(result, given, time_limit))
    exception = None if isinstance(result.exception, UnusableOutput) else result.exception
    report = Report(name, right, format_answer(*paragraphs, *printed_text([result.printed])), exception=exception)
    print(report.answer)
    return report


def expected_steps(name, seed=0):
    """{step: (what it is, its value)} of an exercise's solution, in the order of the steps; ValueError without any.

    A solution's variables are seen where its functions return.
    """
    exercise, calls = find(name), {}
    if not exercise.steps:
        lacking = [other for other, one in EXERCISES.items() if not one.steps]
        raise ValueError(f"the exercise {name!r} has no steps; all have some but these: {', '.join(lacking)}")
    space = namespace(sources(exercise.right))

    def look(frame, event, value):
        if event == "return" and frame.f_globals is space:
            calls.setdefault(frame.f_code.co_name, []).append({**frame.f_locals, "returned": value})

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        with np.errstate(all="ignore"):
            space[name](*exercise.draw(exercise.known_cases[0], seed))
    finally:
        sys.setprofile(before)
    found = {}
    for step, (said, where) in exercise.steps.items():
        function, variable, number = re.fullmatch(r"(\w+)\.(\w+)(?:\[(\d)\])?", where).groups()
        values = [call[variable] if number is None else call[variable][int(number)] for call in calls[function]]
        if step != "blocks":
            found[step] = said, np.asarray(values[0])
            continue
        numbers = range(len(values)) if name == "vit" else reversed(range(len(values)))
        found |= {f"blocks.{i}": (said.format(i), value) for i, value in zip(numbers, values)}
    return found


def collect(mine, arguments, given):
    """Put what the learner's function returns or yields into `given`; raises UnusableOutput if that can't be read."""
    value = mine(*arguments)
    if isinstance(value, Mapping):
        given.update(value)
        return
    if value is None or isinstance(value, (str, np.ndarray)) or not hasattr(value, "__iter__"):
        raise UnusableOutput(f"It returned {type_text(value)}; {STEPS_FORM}.")
    for pair in value:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise UnusableOutput(f"It gave {type_text(pair)} where a name and an array were expected; {STEPS_FORM}.")
        if pair[0] in given:
            raise UnusableOutput(f"It gave {pair[0]} twice.")
        # A copy: the learner may go on in the same array.
        given[pair[0]] = pair[1].copy() if isinstance(pair[1], np.ndarray) else pair[1]


def problem_text(result, given, time_limit):
    """A sentence about how the call ended, if it didn't end well."""
    if isinstance(result.exception, UnusableOutput):
        return str(result.exception)
    last = f" after {[*given][-1]}" if given else ""
    return ending_text(result, time_limit, last) or ("" if given else f"It gave no steps; {STEPS_FORM}.")


def compare_steps(exercise, expected, given, problem):
    """(whether all is right, the paragraphs of the answer)."""
    unknown = [str(step) for step in given if step not in expected]
    notes = [problem] if problem else []
    if unknown:
        notes.append(f"There is no step {', '.join(unknown)}; the steps are {', '.join(expected)}.")
    right, missing = [], []
    for step, value in expected.items():
        if step not in given:
            missing.append(step)
            continue
        wrong = describe_step(exercise, step, given[step], value)
        if wrong:
            return False, opening_text(exercise, right, f"first wrong at {step}."), *wrong, *skipped_text(
                expected, right, step
            ), *notes
        right.append(step)
    if not missing and not notes:
        return True, f"{exercise.name}: all {len(right)} steps are right."
    lacking = [f"Missing: {', '.join(missing)}."] if missing else []
    return False, opening_text(exercise, right, "nothing wrong in what it gave."), *lacking, *notes


def opening_text(exercise, right, found):
    """The answer's first sentences: up to where it is right, and what comes then."""
    way = "back" if exercise.name.endswith("_backward") else "up"
    so_far = f"Right {way} to {right[-1]}; {found}" if right else found[0].upper() + found[1:]
    return f"{exercise.name}: not right yet. {so_far}"


def describe_step(exercise, step, got, value):
    """The paragraphs about what is wrong with one step, none if it is right."""
    case = exercise.known_cases[0]
    try:
        got = check_output(step, got, value.shape)
    except UnusableOutput as problem:
        return [str(problem)]
    wrong = describe_error(got, value, case.tolerance)
    if not wrong:
        return []
    likely = find_factor(case, got, value) if got.shape == value.shape else None
    likely = likely or find_rearrangement(step, case, got, value)
    return [f"  {step}  {wrong}", *([f"It looks like this mistake: {likely[0]}. {likely[1]}"] if likely else [])]


def skipped_text(expected, right, step):
    """A sentence about the steps that were left out between the last right one and the first wrong one."""
    names = list(expected)
    first = names.index(right[-1]) + 1 if right else 0
    left_out = names[first : names.index(step)]
    if left_out:
        return [f"You gave nothing for {', '.join(left_out)}: the mistake is there or in {step}."]
    return ["All before it is right: the mistake is in this step."] if right else []
