"""Checks a learner's function and says what is wrong."""

import inspect
import textwrap
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from tinyvit.exercises.calling import call, call_by_position
from tinyvit.exercises.catalogue import find
from tinyvit.exercises.general_mistakes import NOT_WRITTEN, find_in_message
from tinyvit.exercises.invariants import broken_invariants, only_wrong_output
from tinyvit.exercises.outputs import Attempt, UnusableOutput, changed_arguments
from tinyvit.exercises.recognise import recognise, recognise_equal

LINE_CHARACTERS = 100  # of an answer, in characters
MAX_MESSAGE_CHARACTERS = 300  # of an exception, in characters
MAX_LINES = 12  # of an answer
MAX_PRINTED_LINES = 3  # of what a function printed
MAX_LISTED_OUTPUTS = 5  # outputs that an answer lists one by one


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


class WrongAnswer(Exception):
    """Ends a check: the paragraphs of the answer, the mistakes found or places, and the exception."""

    def __init__(self, *paragraphs, mistakes=(), located=(), exception=None):
        self.paragraphs, self.exception = paragraphs, exception
        self.mistakes, self.located = tuple(mistakes), tuple(located)


# The learner may have set NumPy to raise or warn on overflow; the comparison must do neither.
@np.errstate(all="ignore")
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
        for case in exercise.cases(seed):
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
        own = inspect.signature(function, follow_wrapped=False)
        own.bind(*exercise.arguments)
    except ValueError:  # functions written in C have no signature
        return
    except TypeError as error:
        raise WrongAnswer(
            f"It is called as {exercise.signature}, by position, and yours takes {own}: "
            f"{end_sentence(str(error))}"
        ) from None


def check_case(exercise, function, case, time_limit, seed, printed):
    """Raise WrongAnswer if the function is wrong on one set of inputs."""
    drawn, asked = exercise.draw(case, seed), []
    given = deepcopy(drawn)
    result = call(lambda *arguments: exercise.answer(function, arguments, asked), given, time_limit)
    printed.append(result.printed)
    on = "" if case is exercise.known_cases[0] else f" with {case.title}"  # the end of a sentence
    ended = ending_text(result, time_limit, on)
    if result.exception is not None:
        came = drawn if exercise.calls is None else asked[-1]
        texts = [text for text in map(argument_text, exercise.arguments, came) if text]
        shown, mistakes = explain_exception(exercise, function, case, result.exception, time_limit, seed)
        came = [f"It was given {', '.join(texts)}."] * bool(texts)
        raise WrongAnswer(*shown, ended, *came, mistakes=mistakes, exception=result.exception)
    if ended:
        raise WrongAnswer(ended)
    touched = changed_arguments(exercise.arguments, drawn, given)
    spoilt = ["inputs are changed in place"] if touched else []
    in_place = [
        f"It changes {' and '.join(touched)} in place, but the caller still needs the old values: write x = x - y "
        "instead of x -= y, or work on x.copy()."
    ] * bool(touched)
    try:
        attempt = Attempt(exercise, case, drawn, result.value)
    except UnusableOutput as problem:
        raise WrongAnswer(f"{problem}{on and f' That was{on}.'}", *in_place, mistakes=spoilt) from None
    if attempt.wrong:
        other = exercise.known_cases[0 if on else 1]
        attempt.witness = attempt_on(exercise, function, other, time_limit, seed)
        found, mistakes = describe_mistakes(attempt)
        located = [] if mistakes else (broken_invariants(attempt) or only_wrong_output(attempt))[:2]
        head = [f"Right on ordinary numbers; not right{on}."] if on and case.mistake[0] not in mistakes else []
        paragraphs = *found, *head, *located, output_table(attempt.problems), *in_place
        raise WrongAnswer(*paragraphs, mistakes=[*mistakes, *spoilt], located=located)
    if touched:
        raise WrongAnswer(f"What it returns is right{on}.", *in_place, mistakes=spoilt)


def attempt_on(exercise, function, case, time_limit, seed):
    """The Attempt of a function for one more case; None if it gives no outputs there."""
    drawn = exercise.draw(case, seed)
    result = call(lambda *arguments: exercise.answer(function, arguments), deepcopy(drawn), time_limit)
    if result.out_of_time or result.exception is not None:
        return None
    try:
        return Attempt(exercise, case, drawn, result.value)
    except UnusableOutput:
        return None


def ending_text(result, time_limit, where):
    """A sentence about a call that raised something or never ended; empty for any other."""
    if result.out_of_time:
        at = f"was still at {result.line} after" if result.line else "was not done after"
        return f"It did not return{where}: it {at} {time_limit:g} seconds. Does a loop never end?"
    if result.exception is None:
        return ""
    said, at = message_text(result.exception), f" in {result.line}" if result.line else ""
    return end_sentence(f"It raised {type(result.exception).__name__}{at}{where}{said and f': {said}'}")


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


def explain_exception(exercise, function, case, error, time_limit, seed):
    """(paragraphs, names of mistakes) for an exception; for a shape error the function is called with equal sizes."""
    said = NOT_WRITTEN if isinstance(error, NotImplementedError) else find_in_message(message_text(error))
    if said:
        return list(mistake_text({(said,): ()}, 1)), [said[0]]
    if not isinstance(error, ValueError) or not exercise.equal_cases or case is not exercise.known_cases[0]:
        special = case is not exercise.known_cases[0]
        return list(mistake_text({(case.mistake,): ()}, 1)) * special, [case.mistake[0]] * special
    attempt, witness = (attempt_on(exercise, function, one, time_limit, seed) for one in exercise.equal_cases)
    if attempt is None:
        return [], []
    attempt.witness = witness
    return describe_mistakes(attempt, recognise_equal)


def output_table(problems):
    """One line per output; if there are many, the first wrong ones, and how many others there are."""
    wrong = [name for name, problem in problems.items() if problem]
    shown = [*problems] if len(problems) <= MAX_LISTED_OUTPUTS else wrong[: MAX_LISTED_OUTPUTS - 1]
    width = max(map(len, shown))
    lines = [f"  {name:<{width}}  {problems[name] or 'right'}" for name in shown]
    if len(shown) < len(problems):
        lines.append(f"  In all, {len(wrong)} of {len(problems)} are wrong.")
    return "\n".join(lines)


def describe_mistakes(attempt, recognise=recognise):
    """(paragraphs, names) of the mistakes that wrong outputs look like."""
    alike = recognise(attempt)
    names = dict.fromkeys(name for mistakes in alike for name, _ in mistakes)
    return list(mistake_text(alike, len(attempt.problems))), list(names)


def mistake_text(alike, outputs):
    """The paragraphs about mistakes, for an exercise with this many outputs."""
    for mistakes, names in alike.items():
        which = "It looks"
        if 1 < outputs <= MAX_LISTED_OUTPUTS:
            *first, last = names
            which = f"{', '.join(first)} and {last} look" if first else f"{last} looks"
        for said, (mistake, hint) in zip((f"{which} like this mistake", "Together with it, this one"), mistakes):
            yield f"{said}: {mistake}."
            yield textwrap.indent(textwrap.fill(hint, LINE_CHARACTERS - 2), "  ")


def printed_text(printed):
    """Paragraphs with the function's output, from the first call that printed anything."""
    text = next((text for text in printed if text.strip()), "")
    lines = text.rstrip().splitlines()
    shown = "\n".join([*lines[:MAX_PRINTED_LINES], *(["…"] if len(lines) > MAX_PRINTED_LINES else [])])
    return ["Your function printed:", textwrap.indent(shown, "  | ")] if text else []


def format_answer(*paragraphs):
    """Paragraphs one below the other; those with an indent keep their lines. At most `MAX_LINES` lines."""
    text = "\n".join(p if p.startswith("  ") else textwrap.fill(p, LINE_CHARACTERS) for p in paragraphs)
    lines = text.split("\n")
    return "\n".join([*lines[: MAX_LINES - 1], "  …"] if len(lines) > MAX_LINES else lines)
