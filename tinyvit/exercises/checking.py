"""Checks a learner's function and says what is wrong."""

import inspect
import textwrap
from dataclasses import dataclass, field

import numpy as np

from tinyvit.exercises.calling import call, call_by_position
from tinyvit.exercises.catalogue import find
from tinyvit.exercises.general_mistakes import find_missing_keepdims
from tinyvit.exercises.invariants import broken_invariants, only_wrong_output
from tinyvit.exercises.outputs import UnusableOutput, changed_arguments, describe_error, outputs_of
from tinyvit.exercises.recognise import Likeness, recognise
from tinyvit.exercises.slips import find_slips

LINE_CHARACTERS = 100  # of an answer, in characters
MAX_MESSAGE_CHARACTERS = 300  # of an exception, in characters
MAX_PRINTED_LINES = 10  # of what a function printed
MAX_LISTED_OUTPUTS = 12  # outputs that an answer lists one by one


@dataclass(frozen=True)
class Report:
    """The result of a check; true if the function is right.

    name        of the exercise
    right       whether it is right
    answer      what was printed
    mistakes    the names of the mistakes that it looks like
    located     what should hold of a right answer and doesn't, where no mistake was recognised
    exception   what the function raised, with its traceback: `raise report.exception` shows it
    """

    name: str
    right: bool
    answer: str = field(repr=False)
    mistakes: tuple[str, ...] = field(default=(), repr=False)
    located: tuple[str, ...] = field(default=(), repr=False)
    exception: BaseException | None = field(default=None, repr=False)

    def __bool__(self):
        return self.right

    def __str__(self):
        return self.answer


class WrongAnswer(Exception):
    """Ends a check: the paragraphs of the answer, the mistakes found or places, and the exception."""

    def __init__(self, *paragraphs, mistakes=(), located=(), exception=None):
        self.paragraphs, self.exception = paragraphs, exception
        self.mistakes, self.located = tuple(mistakes), tuple(located)


def check(name, function, time_limit=5.0, seed=0):
    """Call `function` on small random arrays, print what a teacher would say, and return a `Report`.

    name         one of `names()`; `describe(name)` says what to write
    function     yours; whatever it does gets an answer, and no traceback
    time_limit   seconds for each call
    seed         of the random arrays

    Raises ValueError for an unknown name or a limit that isn't above 0, TypeError if `function` isn't callable.
    """
    exercise = find(name)
    if not callable(function):
        raise TypeError(
            f"check: expected your function itself, got {type(function).__name__}; "
            f'write check("{name}", my_function), without calling it'
        )
    if not 0 < time_limit < float("inf"):
        raise ValueError(f"check: expected a time limit in seconds above 0, got {time_limit}")
    function, printed = call_by_position(function, exercise.arguments), []
    try:
        check_signature(exercise, function)
        for case in exercise.cases():
            check_case(exercise, function, case, time_limit, seed, printed)
        tried = "; ".join(case.title for case in exercise.cases())
        report = Report(name, True, format_answer(f"{name}: right. (Tried on {tried}.)", *printed_text(printed)))
    except WrongAnswer as found:
        answer = format_answer(f"{name}: not right yet.", *found.paragraphs, *printed_text(printed))
        report = Report(name, False, answer, found.mistakes, found.located, found.exception)
    print(report.answer)
    return report


def check_signature(exercise, function):
    """Raise WrongAnswer if the function can't take the exercise's arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C have no signature
        return
    try:
        signature.bind(*exercise.arguments)
    except TypeError as error:
        raise WrongAnswer(
            f"It is called as {exercise.signature}, by position, and yours takes {signature}: "
            f"{end_sentence(str(error))}"
        ) from None


def check_case(exercise, function, case, time_limit, seed, printed):
    """Raise WrongAnswer if the function is wrong on one set of inputs."""
    given, asked = exercise.draw(case, seed), []
    result = call(lambda *arguments: exercise.answer(function, arguments, asked), given, time_limit)
    printed.append(result.printed)
    on = case_text(exercise, case)
    if result.out_of_time:
        at = f"was still at {result.line} after" if result.line else "was not done after"
        raise WrongAnswer(f"It did not return{on}: it {at} {time_limit:g} seconds. Does a loop never end?")
    if result.exception is not None:
        said = find_scalar_function(result.exception) or find_missing_keepdims(message_text(result.exception))
        shown, mistakes = list(mistake_text([Likeness((said,), ())], 1)) if said else [], [said[0]] if said else []
        if not shown:
            shown, mistakes = try_equal_sizes(exercise, function, case, result.exception, time_limit, seed)
        came = exercise.draw(case, seed) if exercise.calls is None else asked[-1]  # new ones: it may have changed them
        text = exception_text(exercise, case, result, came)
        raise WrongAnswer(*text, *shown, mistakes=mistakes, exception=result.exception)
    touched = changed_arguments(exercise.arguments, exercise.draw(case, seed), given)
    in_place, spoilt = (in_place_note(touched), ["inputs are changed in place"]) if touched else ([], [])
    try:
        problems, alike, locate = compare(exercise, case, result.value, seed)
    except UnusableOutput as problem:
        raise WrongAnswer(f"{problem}{on and f' That was{on}.'}", *in_place, mistakes=spoilt) from None
    if any(problems.values()):
        head = [f"Right on ordinary numbers; not right{on}."] if on else []
        found, mistakes = mistake_text(alike, len(problems)), mistake_names(alike)
        located = [] if mistakes else locate()
        paragraphs = *head, output_table(problems), *found, *located, *in_place
        raise WrongAnswer(*paragraphs, mistakes=[*mistakes, *spoilt], located=located)
    if touched:
        raise WrongAnswer(f"What it returns is right{on}.", *in_place, mistakes=spoilt)


def compare(exercise, case, value, seed):
    """(the error of each output or None, mistakes that the wrong ones look like, a function that locates others).

    That function returns sentences: a broken invariant, a step of the solution that, changed in one place, gives the
    learner's numbers, or the only wrong output. Raises UnusableOutput as `outputs_of` does.
    """

    def arguments():
        return exercise.draw(case, seed)

    def locate():
        with np.errstate(all="ignore"):
            found = broken_invariants(exercise, case, arguments(), got, expected, wrong)
        found = found or find_slips(exercise, case, arguments, got, wrong)
        return found or only_wrong_output(wrong, len(problems))

    # The learner may have set NumPy to raise or warn on overflow; the comparison must do neither.
    with np.errstate(all="ignore"):
        right = exercise.answer(exercise.right, arguments())
        got, expected = outputs_of(exercise, right, value), exercise.label_outputs(right)
        problems = {name: describe_error(got[name], one, case.tolerance, exercise.entry)
                    for name, one in expected.items()}  # fmt: skip
        wrong = [name for name, problem in problems.items() if problem]
        return problems, recognise(exercise, case, arguments, got, expected, wrong) if wrong else [], locate


def exception_text(exercise, case, result, arguments):
    """The paragraphs about an exception."""
    error = result.exception
    at = f" in {result.line}" if result.line else ""
    said = f": {message_text(error)}" if message_text(error) else ""
    given = [shown for shown in map(argument_text, exercise.arguments, arguments) if shown]
    happened = end_sentence(f"It raised {type(error).__name__}{at}{case_text(exercise, case)}{said}")
    return [happened, *([f"It was given {', '.join(given)}."] if given else [])]


def argument_text(name, value):
    """An argument in an answer: an array's shape, a function's name, a number; nothing for a dict."""
    if isinstance(value, np.ndarray):
        return f"{name} {value.shape}"
    if callable(value):
        return f"{name} = {value.__name__}"
    return "" if isinstance(value, dict) else f"{name} = {value}"


def end_sentence(sentence):
    """The sentence with a full stop, unless it already ends with punctuation."""
    return sentence if sentence.endswith((".", "?", "!", "…")) else f"{sentence}."


def message_text(error):
    """An exception's message, shortened to `MAX_MESSAGE_CHARACTERS` characters."""
    try:
        text = str(error)
    except Exception:  # the learner may have written __str__
        return "(its message can't be read)"
    return textwrap.shorten(text, MAX_MESSAGE_CHARACTERS, placeholder=" …")


def find_scalar_function(error):
    """(mistake, hint) for a function of `math`, or float(), that got a whole array; None for any other exception."""
    if not isinstance(error, TypeError) or "can be converted to Python scalars" not in message_text(error):
        return None
    return "a function of one number gets an array", (
        "The functions of Python's math, and float(), take one number. NumPy's take arrays: np.exp, np.sqrt, np.tanh. "
        "NumPy has no erf: scipy.special.erf takes arrays, and so does np.vectorize(math.erf)."
    )


def try_equal_sizes(exercise, function, case, error, time_limit, seed):
    """(paragraphs, mistakes) for a shape error: the function is called again with equal sizes."""
    if not isinstance(error, ValueError) or exercise.equal is None or case_text(exercise, case):
        return [], []
    equal = exercise.case_of("equal sizes", exercise.equal)
    result = call(function, exercise.draw(equal, seed), time_limit)
    if result.out_of_time or result.exception is not None:
        return [], []
    try:
        problems, alike, _ = compare(exercise, equal, result.value, seed)
    except UnusableOutput:
        return [], []
    if not any(problems.values()):
        return ["With equal sizes it is right. Are two axes mixed up?"], []
    head = ["With equal sizes it runs, and shows the mistake:"] if alike else []
    return [*head, *mistake_text(alike, len(problems))], mistake_names(alike)


def case_text(exercise, case):
    """The special feature of a case, as the end of a sentence; empty for the first, ordinary case."""
    return "" if case.title == exercise.cases()[0].title else f" with {case.title}"


def in_place_note(names):
    return [
        f"It changes {' and '.join(names)} in place, but the caller still needs the old values: write x = x - y "
        "instead of x -= y, or work on x.copy()."
    ]


def output_table(problems):
    """One line per output; if there are many, only the wrong ones."""
    if len(problems) > MAX_LISTED_OUTPUTS:
        right = sum(problem is None for problem in problems.values())
        problems = {name: problem for name, problem in problems.items() if problem}
        problems |= {f"{right} others" if right > 1 else "the other one": None} if right else {}
    width = max(map(len, problems))
    return "\n".join(f"  {name:<{width}}  {problem or 'right'}" for name, problem in problems.items())


def mistake_text(alike, outputs):
    """The paragraphs about mistakes, for an exercise with this many outputs."""
    for mistakes, names in alike:
        which = "It looks"
        if 1 < outputs <= MAX_LISTED_OUTPUTS:
            *first, last = names
            which = f"{', '.join(first)} and {last} look" if first else f"{last} looks"
        for said, (mistake, hint) in zip((f"{which} like this mistake", "Together with it, this one"), mistakes):
            yield f"{said}: {mistake}."
            yield textwrap.indent(textwrap.fill(hint, LINE_CHARACTERS - 2), "  ")


def mistake_names(alike):
    return list(dict.fromkeys(mistake for likeness in alike for mistake, _ in likeness.mistakes))


def printed_text(printed):
    """Paragraphs with the function's output, from the first call that printed anything."""
    text = next((text for text in printed if text.strip()), "")
    lines = text.rstrip().splitlines()
    shown = "\n".join([*lines[:MAX_PRINTED_LINES], *(["…"] if len(lines) > MAX_PRINTED_LINES else [])])
    return ["Your function printed:", textwrap.indent(shown, "  | ")] if text else []


def format_answer(*paragraphs):
    """Paragraphs one below the other; those with an indent keep their lines."""
    return "\n".join(p if p.startswith("  ") else textwrap.fill(p, LINE_CHARACTERS) for p in paragraphs)
