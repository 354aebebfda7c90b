"""Compares the outputs of solutions with the right ones, and gives points."""

import csv
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
from pathlib import Path
from threading import Lock

import numpy as np

from tinyvit.exercises.catalogue import EXERCISES, find
from tinyvit.exercises.general_mistakes import NOT_WRITTEN
from tinyvit.exercises.grading.hidden import draw, hidden_cases
from tinyvit.exercises.grading.submission import Submission
from tinyvit.exercises.outputs import Attempt
from tinyvit.exercises.recognise import recognise, recognise_equal

WORKER = "import sys; sys.path[:] = sys.argv[1:]; from tinyvit.exercises.grading.worker import main; main()"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
RECOGNISING = Lock()  # solutions are changed in place meanwhile
START_SECONDS = 60.0  # seconds in which Python must have started and drawn the inputs


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise.

    name     of the exercise
    score    from 0 to 1: the share of the outputs that are right
    status   right; wrong; missing; not attempted; refused (it does what is not allowed); error; time; memory
    message  why, in a line
    """

    name: str
    score: float
    status: str
    message: str


@dataclass(frozen=True)
class Grades:
    """The grades of a submission; `seed` repeats them.

    unread    what isn't Python, or no notebook
    ungraded  what looks like a solution and isn't graded, and why
    """

    file: str
    seed: int
    exercises: tuple[Grade, ...]
    unread: tuple[str, ...] = ()
    ungraded: tuple[str, ...] = ()

    @property
    def score(self):
        """From 0 to 1, the mean over the exercises."""
        return sum(one.score for one in self.exercises) / max(1, len(self.exercises))

    def table(self):
        """A line per exercise, and the score."""
        width = max([len("exercise"), *(len(one.name) for one in self.exercises)])
        rows = [f"{one.name:<{width}}  {one.score:>5.3g}  {one.message}" for one in self.exercises]
        right = sum(one.status == "right" for one in self.exercises)
        total = f"{'score':<{width}}  {self.score:>5.2f}  {right} of {len(self.exercises)} right, seed {self.seed}"
        return "\n".join([f"{'exercise':<{width}}  score", *rows, total, *self.notes()])

    def notes(self):
        """A line for each thing that wasn't read or isn't graded, and for a file without exercises."""
        notes = [f"not read: {why}" for why in self.unread] + [f"not graded: {why}" for why in self.ungraded]
        expected = "expected a function with the name of one, as softmax or my_softmax, or exercises.check(name, it)"
        return notes if self.exercises else [*notes, f"no exercise: {expected}"]

    def not_right(self):
        """A line for each exercise that isn't right, with its score and why, one for those missing, and the notes."""
        said = [one for one in self.exercises if one.status not in ("right", "missing")]
        missing = ", ".join(one.name for one in self.exercises if one.status == "missing")
        wrong = [f"{one.name} {one.score:.3g}: {one.message}" for one in said]
        return wrong + [f"missing: {missing}"] * bool(missing) + self.notes()

    def as_json(self):
        """The object that `--json` prints."""
        return {"score": self.score, **asdict(self)}


def class_table(grades):
    """A line per submission with its score, and below it one for each exercise that isn't right; then the mean."""
    width = max(len("file"), *(len(one.file) for one in grades))
    lines = [f"{'file':<{width}}  score"]
    for one in grades:
        lines.append(f"{one.file:<{width}}  {one.score:>5.2f}")
        lines += [f"  {note}" for note in one.not_right()]
    return "\n".join([*lines, f"{'mean':<{width}}  {np.mean([one.score for one in grades]):>5.2f}"])


def class_csv(grades):
    """The scores as comma-separated values, a row per submission and a column per exercise, and why in the last one."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(["file", "score", *(own.name for own in grades[0].exercises), "not right"])
    for one in grades:
        scores = (f"{own.score:.4g}" for own in one.exercises)
        rows.writerow([one.file, f"{one.score:.4g}", *scores, " | ".join(one.not_right())])
    return written.getvalue()


def files_in(paths):
    """The scripts and notebooks among these paths and in these folders; ValueError for a folder without any."""
    found = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = [one for one in path.rglob("*") if one.suffix in (".py", ".ipynb")]
        if not inside:
            raise ValueError(f"{path} has no script and no notebook")
        found += sorted(one for one in inside if ".ipynb_checkpoints" not in one.parts)
    return found


def grade(path, exercises=None, seed=None, seconds=10.0, megabytes=512):
    """Grade a script or a notebook and return its `Grades`.

    exercises   the names of those that are asked for; None: all that the file has
    seed        of the shapes and numbers, to repeat a grading; None: a new one
    seconds     for all calls of one exercise
    megabytes   of memory that a solution may take

    Raises ValueError if the file isn't a script or a notebook, can't be read or isn't Python and has no exercise, or an
    argument is out of range. What the solutions do is never raised.
    """
    return grade_all([path], exercises, seed, seconds, megabytes)[0]


def grade_all(paths, exercises=None, seed=None, seconds=10.0, megabytes=512):
    """Grade several files, or the files in folders, and return a list of their `Grades`.

    As `grade`, but by default those exercises are asked of each file that any of them has.
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
    handed_in = [Submission(path, EXERCISES) for path in files_in(paths)]
    attempted = {name for one in handed_in for name in one.answers}
    asked = exercises or [name for name in EXERCISES if name in attempted]
    asked = list(dict.fromkeys(asked))
    if len(handed_in) == 1 and handed_in[0].unread and not asked:
        raise ValueError(f"{handed_in[0].path} has no exercise: {'; '.join(handed_in[0].unread)}")
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # each waits for a process
        graded = [
            threads.map(lambda name, one=one: grade_one(one, find(name), seed, seconds, megabytes), asked)
            for one in handed_in
        ]
        return [
            Grades(
                file=str(one.path),
                seed=seed,
                exercises=tuple(own),
                unread=tuple(one.unread),
                ungraded=tuple(one.ungraded),
            )
            for one, own in zip(handed_in, graded)
        ]


def grade_one(submission, exercise, seed, seconds, megabytes):
    """The Grade of one exercise."""

    def grade_of(status, message, line=0, score=0.0):
        place = submission.place(line)
        return Grade(exercise.name, score, status, f"{place}: {message}" if place else message)

    answer = submission.answers.get(exercise.name)
    if answer is None:
        return grade_of("missing", "no function of that name")
    if answer.is_empty:
        return grade_of("not attempted", "not attempted: the function does nothing", answer.line)
    if answer.forbidden:
        return grade_of("refused", *answer.forbidden)
    order = {"name": exercise.name, "source": answer.source, "expression": answer.expression, "seed": seed,
             "seconds": seconds, "megabytes": megabytes}  # fmt: skip
    report, outputs = run_worker(order)
    right = report["status"] == "right"
    score, wrong = compare_outputs(exercise, seed, outputs, complete=right)
    if wrong:
        status = "not attempted" if wrong.startswith(NOT_WRITTEN[0]) else "wrong"
        return grade_of(status, wrong, answer.line, score * right)
    if right:
        return Grade(exercise.name, 1.0, "right", "right")
    title = report.get("title") and f" ({report['title']})"
    message = "; ".join([*mistakes_where_equal(exercise, seed, outputs), f"{report['message']}{title or ''}"])
    return grade_of(report["status"], message, report.get("line") or answer.line)


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


def compare_outputs(exercise, seed, outputs, complete):
    """(the share of the outputs that are right, the first error in a line; "" if all that came back are right).

    complete   whether all must have come back
    """
    names, wrong, text, first, witness = set(), set(), "", None, None
    with np.errstate(all="ignore"):
        for number, (title, case) in enumerate(hidden_cases(exercise, seed)):
            if first is not None and number >= len(exercise.known_cases):
                break  # with cases that depend on the seed, the share would, too
            try:
                attempt = attempt_on(exercise, case, seed, outputs, f"{number} ")
            except KeyError as lacking:
                if complete:
                    return 0.0, f"{lacking.args[0]} is missing ({title})"
                break
            names.update(attempt.expected)
            wrong.update(attempt.wrong)
            if first is None and attempt.wrong:
                first, text = attempt, f"{attempt.wrong[0]} {attempt.problems[attempt.wrong[0]]} ({title})"
            elif witness is None:
                witness = attempt
        if first is None:
            return 1.0, ""
        first.witness = witness
        return 1 - len(wrong) / len(names), "; ".join([*names_of(first, recognise), text])


def attempt_on(exercise, case, seed, outputs, prefix):
    """The Attempt that a solution's process made of a case; its outputs there begin with a prefix. KeyError for one
    that lacks."""
    got = {name.removeprefix(prefix): output for name, output in outputs.items() if name.startswith(prefix)}
    return Attempt(exercise, case, draw(exercise, case, seed), got=got)


def names_of(attempt, recognise):
    """The names of the mistakes that wrong outputs look like."""
    with RECOGNISING:
        return [*dict.fromkeys(name for found in recognise(attempt) for name, _ in found)]


def mistakes_where_equal(exercise, seed, outputs):
    """The names of the mistakes of a solution that raised an error, as far as it was tried with equal sizes."""
    cases = enumerate(exercise.equal_cases)
    try:
        first, witness = (attempt_on(exercise, case, seed, outputs, f"equal {number} ") for number, case in cases)
    except (KeyError, ValueError):  # it raised one there, too, or there are no such cases
        return []
    first.witness = witness
    with np.errstate(all="ignore"):
        return names_of(first, recognise_equal)

