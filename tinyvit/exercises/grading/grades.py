"""Compares the outputs of solutions with the right ones, and gives points."""

import io
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from tinyvit.exercises.catalogue import EXERCISES, find
from tinyvit.exercises.grading.hidden import draw, hidden_cases
from tinyvit.exercises.grading.submission import Submission
from tinyvit.exercises.outputs import describe_error

WORKER = "import sys; sys.path[:] = sys.argv[1:]; from tinyvit.exercises.grading.worker import main; main()"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
START_SECONDS = 60.0  # seconds in which Python must have started and drawn the inputs


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
        """The object that `--json` prints."""
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
        raise ValueError(f"grading needs Linux, which limits a solution's memory and time, and this is {sys.platform}")
    if not 0 < seconds <= 3600 or not 16 <= megabytes <= 1 << 20:
        raise ValueError(f"expected above 0 and at most 3600 s and at least 16 MB, got {seconds:g} s and {megabytes}")
    if seed is not None and seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {seed}")
    for name in exercises or ():
        find(name)
    seed = secrets.randbits(32) if seed is None else seed
    submission = Submission(path, EXERCISES)
    asked = list(dict.fromkeys(exercises)) if exercises else list(submission.answers)
    if not asked:
        unread = "".join(f" not Python: {one};" for one in submission.unread)
        raise ValueError(
            f"{path} has no exercise:{unread} expected a function with the name of one, as softmax or my_softmax, "
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
    if answer.forbidden:
        return no_credit("refused", *answer.forbidden)
    order = {"name": exercise.name, "source": answer.source, "expression": answer.expression, "seed": seed,
             "seconds": seconds, "megabytes": megabytes}  # fmt: skip
    report, outputs = run_worker(order)
    right = report["status"] == "right"
    wrong = first_error(exercise, seed, outputs, complete=right)
    if wrong:
        return no_credit("wrong", wrong, answer.line)
    if right:
        return Grade(exercise.name, 1.0, "right", "right")
    title = report.get("title") and f" ({report['title']})"
    return no_credit(report["status"], f"{report['message']}{title or ''}", report.get("line") or answer.line)


def run_worker(order):
    """(how a solution ended, its outputs by case and name), from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tinyvit-grade-") as folder:
        try:
            process = subprocess.run(
                [sys.executable, "-I", "-c", WORKER, *map(os.path.abspath, sys.path)], input=json.dumps(order).encode(),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env={"LANG": "C.UTF-8", **ONE_THREAD},
                timeout=order["seconds"] + START_SECONDS,
            )  # fmt: skip
            written, code = process.stdout, process.returncode
        except subprocess.TimeoutExpired:  # it is killed
            written, code = b"", -signal.SIGKILL
    if code in (-signal.SIGALRM, -signal.SIGKILL) and not written:
        return {"status": "time", "message": f"was not done after {order['seconds']:g} seconds"}, {}
    try:
        with np.load(io.BytesIO(written), allow_pickle=False) as archive:
            outputs = dict(archive)
            return json.loads(str(outputs.pop("report"))), outputs
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return {"status": "error", "message": f"ended its process with status {code} before it answered"}, {}


def first_error(exercise, seed, outputs, complete):
    """The error in the first wrong output, in a line; None if all outputs that came back are right.

    complete   whether all must have come back
    """
    for number, (title, case) in enumerate(hidden_cases(exercise, seed)):
        with np.errstate(all="ignore"):
            right = exercise.answer(exercise.right, draw(exercise, case, seed))
            for name, expected in exercise.label_outputs(right).items():
                got = outputs.get(f"{number} {name}")
                if got is None:
                    return f"{name} is missing ({title})" if complete else None
                problem = describe_error(got, expected, case.tolerance, exercise.entry)
                if problem:
                    return f"{name} {problem} ({title})"
    return None
