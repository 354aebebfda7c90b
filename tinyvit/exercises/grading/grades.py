"""Compares the outputs of a submission's solutions with the package's, and gives points."""

import os
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from tinyvit.backend import Key
from tinyvit.exercises.catalogue import EXERCISES, find
from tinyvit.exercises.grading.process import Ended, Solution
from tinyvit.exercises.grading.rules import EXAMPLE
from tinyvit.exercises.grading.submission import Submission, forbidden
from tinyvit.exercises.outputs import Unusable, changed, outputs_of, wrong_with
from tinyvit.functional import reference
from tinyvit.models import worked_example

TRIES = 5000  # of drawing sizes that fit together
MORE = 4  # by which a side may exceed the exercise's own, or by half of that
USES_EXAMPLE = "worked_example_backward"
PARSING = threading.Lock()  # CPython 3.11's parser counts how deep it is for all threads together


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise.

    name     of the exercise
    score    1 or 0
    status   right; wrong; missing; refused (it does what is not allowed); error; time; memory
    message  why, in a line
    """

    name: str
    score: float
    status: str
    message: str


@dataclass(frozen=True)
class Grades:
    """The grades of a submission; `seed` repeats them, `unread` names what isn't Python."""

    file: str
    seed: int
    exercises: tuple[Grade, ...]
    unread: tuple[str, ...] = ()

    @property
    def score(self):
        """From 0 to 1, the mean over the exercises."""
        return sum(one.score for one in self.exercises) / max(1, len(self.exercises))

    def table(self):
        """A line per exercise, and the score."""
        width = max([len("exercise"), *(len(one.name) for one in self.exercises)])
        rows = [f"{one.name:<{width}}  {one.score:>5.0f}  {one.message}" for one in self.exercises]
        right = sum(one.score for one in self.exercises)
        total = f"{'score':<{width}}  {self.score:>5.2f}  {right:.0f} of {len(self.exercises)} right, seed {self.seed}"
        return "\n".join([f"{'exercise':<{width}}  score", *rows, total])

    def as_json(self):
        """What `--json` prints."""
        return {"score": self.score, **asdict(self)}


def grade(path, exercises=None, seed=None, seconds=10.0, megabytes=512):
    """Grade a script or a notebook and return its `Grades`.

    exercises   the names of those that are asked for; None: all that the file has
    seed        of the shapes and numbers, to repeat a grading; None: a new one
    seconds     for all calls of one exercise
    megabytes   of memory that a solution may take

    Raises ValueError if the file isn't a script or a notebook, has no exercise, or an argument is out of range, and
    OSError if it can't be read. What the solutions do is never raised.
    """
    if sys.platform != "linux":
        raise ValueError(f"grading needs the limits that Linux sets to a process, and this is {sys.platform}")
    if not 0 < seconds <= 3600 or not 16 <= megabytes <= 1 << 20:
        raise ValueError(f"expected 0 to 3600 seconds and at least 16 MB, got {seconds:g} and {megabytes}")
    if seed is not None and seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {seed}")
    for name in exercises or ():
        find(name)
    seed = secrets.randbits(32) if seed is None else seed
    submission = Submission(path, EXERCISES)
    asked = list(dict.fromkeys(exercises)) if exercises else list(submission.answers)
    if not asked and not submission.unread:
        raise ValueError(
            f"{path} has no exercise: expected a function with the name of one, as softmax or my_softmax, "
            "or exercises.check(name, function)"
        )
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # each waits for a process
        graded = threads.map(lambda name: grade_one(submission, find(name), seed, seconds, megabytes), asked)
        return Grades(str(path), seed, tuple(graded), tuple(submission.unread))


def grade_one(submission, exercise, seed, seconds, megabytes):
    """The Grade of one exercise."""

    def no_credit(status, message, line=0):
        place = submission.place(line)
        return Grade(exercise.name, 0.0, status, f"{place}: {message}" if place else message)

    answer = submission.answers.get(exercise.name)
    if answer is None:
        return no_credit("missing", "no function of that name")
    backward, example = exercise.name.endswith("_backward"), exercise.name == USES_EXAMPLE
    with PARSING:
        found = forbidden(answer, backward, (EXAMPLE,) if example else ())
    if found:
        return no_credit("refused", *found)
    given, title = constants() if example else None, ""
    order = vars(answer) | {"names": [*exercise.arguments], "example": given, "backward": backward}
    try:
        with Solution(order, seconds, megabytes) as solution:
            cases = hidden_cases(exercise, seed)
            for title, case in [*cases, ("the first inputs again", cases[0][1])]:
                why = wrong(exercise, case, solution, seed)
                if why:
                    return no_credit("wrong", f"{why} ({title})", answer.line)
    except Ended as ended:
        return no_credit(ended.status, f"{ended}{title and f' ({title})'}", ended.line or answer.line)
    return Grade(exercise.name, 1.0, "right", "right")


def wrong(exercise, case, solution, seed):
    """What is wrong with a solution's outputs for a case, in a line; None if they are right."""

    def arguments():
        return [moved(one, seed) if callable(one) else one for one in exercise.draw(case, seed)]

    with np.errstate(all="ignore"):
        with reference():
            right = exercise.answer(exercise.right, arguments())
        given = arguments()
        value = exercise.answer(solution, given)
        try:
            got = outputs_of(exercise, right, value)
        except Unusable as problem:
            return str(problem)
        expected = exercise.labelled(right)
        problems = {name: wrong_with(got[name], expected[name], case.tolerance, exercise.entry) for name in expected}
    for name, problem in problems.items():
        if problem:
            return f"{name} {problem}"
    if exercise.calls is None:
        same_kinds = zip(given, solution.after, strict=True)
        if not all(callable(old) or isinstance(new, type(old)) for old, new in same_kinds):
            return "changes its arguments in place"
        touched = changed(exercise.arguments, given, solution.after)
        if touched:
            return f"changes {', '.join(touched)} in place"
    return None


class moved:
    """A function that was handed out, in other places: nobody can tell which one it was."""

    def __init__(self, function, seed):
        random = Key(seed, path="exercises.grading.moved").generator()
        self.function, self.scale, self.shift = function, *map(float, random.uniform(0.6, 1.4, 2))

    def __call__(self, x):
        return self.function(self.scale * x + self.shift)


def constants():
    """The arrays of the worked example."""
    return {name: value for name, value in vars(worked_example).items() if isinstance(value, np.ndarray)}


def hidden_cases(exercise, seed):
    """(title, case) of all that a solution is tried on: shapes that were drawn, the exercise's own sizes, traps."""
    drawn = [exercise.case_of(f"shapes {number}", sizes) for number, sizes in enumerate(hidden_sizes(exercise, seed))]
    titles = [(", ".join(f"{letter} = {side}" for letter, side in case.sizes.items()), case) for case in drawn]
    own = [(case.title, case) for case in exercise.cases()]
    return [*titles, *own]


def hidden_sizes(exercise, seed, count=2):
    """Sizes that were drawn at random, other than the exercise's own; none for an exercise without sizes.

    Some may be equal; those of the exercise itself, which are tried too, are all different. Which sizes fit together
    only the exercise knows: those are taken that its right answer accepts.
    """
    if not any(exercise.sizes):
        return []
    random = Key(seed, path=f"exercises.grading.{exercise.name}").generator()
    found = []
    for attempt in range(TRIES):
        own = exercise.sizes[attempt % len(exercise.sizes)].items()
        sizes = {letter: side + int(random.integers(max(MORE, side // 2), endpoint=True)) for letter, side in own}
        if sizes not in (*exercise.sizes, *found) and accepted(exercise, exercise.case_of("a try", sizes), seed):
            found.append(sizes)
            if len(found) == count:
                return found
    raise AssertionError(f"no sizes fit the exercise {exercise.name}")


def accepted(exercise, case, seed):
    """Whether the right answer takes a case's inputs, and is finite on them."""
    try:
        with np.errstate(all="ignore"), reference():
            right = exercise.answer(exercise.right, exercise.draw(case, seed))
    except (ValueError, ArithmeticError):
        return False
    if exercise.calls is not None:
        return bool(np.isfinite(right).all())
    return all(np.isfinite(output).all() for output in exercise.labelled(right).values())
