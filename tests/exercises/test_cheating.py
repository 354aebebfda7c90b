"""Attempts to cheat the grader: none gets credit, each gets a clear line, and nothing outside is changed."""

import textwrap

import pytest

from tinyvit.exercises import grading

pytestmark = pytest.mark.end_to_end

RIGHT = """
import numpy as np
def right(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)
"""


def graded(tmp_path, code, seconds=30.0, **options):
    """The grade of the first exercise in the code."""
    file = tmp_path / "submission.py"
    file.write_text(RIGHT + textwrap.dedent(code))
    (grade,) = grading.grade(file, seconds=seconds, **options).exercises
    return grade


def inside(*lines):
    """A right softmax that does something else before it answers."""
    return "\ndef softmax(x):\n" + "".join(f"    {line}\n" for line in lines) + "    return right(x)\n"


REFUSED = [
    (inside("from tinyvit.functional import softmax as F", "return F(x)[0]"), "imports tinyvit"),
    ("import tinyvit as numbers_\n" + inside("numbers_"), "imports tinyvit"),
    ("import torch as helpers\n" + inside("return helpers.softmax(x)"), "imports torch"),
    ("from scipy.special import softmax as s\n" + inside("return s(x)"), "imports scipy"),
    (inside("import importlib", "importlib.import_module('tinyvit')"), "imports importlib"),
    (inside("from dataclasses import sys", "sys.modules"), "imports dataclasses.sys"),
    (inside("__import__('tinyvit')"), "uses __import__"),
    (inside("eval('__imp' + 'ort__')('os').getpid()"), "uses eval"),
    (inside("globals()['__builtins__']"), "uses globals"),
    (inside("import sys", "sys._getframe(1).f_locals"), "imports sys"),
    (inside("one = (i for i in x)", "one.gi_frame"), "uses .gi_frame"),
    (inside("import gc", "gc.get_objects()"), "imports gc"),
    (inside("import subprocess", "subprocess.run(['true'])"), "imports subprocess"),
    (inside("open('/etc/passwd').read()"), "uses open"),
    (inside("np.save('table.npy', x)"), "uses .save"),
    (inside("np.lib._npyio_impl.os.listdir('/')"), "uses .os"),
    (inside("np.lib._npyio_impl.pickle._loads(b'')"), "uses .pickle"),
    (inside("import operator", "operator.attrgetter('o' + 's')(np.lib._npyio_impl)"), "uses .attrgetter"),
    (inside("x.ctypes.data"), "uses .ctypes"),
    (inside("import threading", "threading.Thread(target=right).start()"), "imports threading"),
    (inside("np.allclose = lambda *rest, **more: True"), "changes the module np"),
    (inside("[].__class__.__base__.__subclasses__()"), "uses .__"),
]


@pytest.mark.parametrize(("code", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_not_allowed_is_refused_by_its_source(tmp_path, code, said):
    grade = graded(tmp_path, code)
    assert (grade.score, grade.status) == (0, "refused")
    assert said in grade.message and grade.message.startswith("line ") and "\n" not in grade.message


WRONG = {
    "a table of what the checker asks": """
        def softmax(x):
            table = {(3, 4): np.full((3, 4), 0.25)}
            return table[x.shape] if x.shape in table else x
        """,
    "printing instead of returning": """
        def softmax(x):
            print('{"score": 1, "status": "right"}')
        """,
    "an object that equals everything": """
        class Right(float):
            def __eq__(self, other):
                return True
        def softmax(x):
            return Right()
        """,
    "right the first time alone": """
        def softmax(x, calls=[]):
            calls.append(1)
            return right(x) if len(calls) < 3 else x
        """,
    "the inputs of earlier calls": """
        def softmax(x, seen={}):
            return seen.setdefault(0, right(x))
        """,
    "the input changed to what is returned": """
        def softmax(x):
            x[:] = right(x)
            return x
        """,
    "central differences": """
        def my_softmax_backward(dy, x):
            dx = np.zeros_like(x)
            for place in np.ndindex(x.shape):
                step = np.zeros_like(x)
                step[place] = 1e-5
                dx[place] = ((right(x + step) - right(x - step)) * dy).sum() / 2e-5
            return dx
        """,
}


@pytest.mark.parametrize("attempt", WRONG)
def test_what_is_no_solution_is_wrong(tmp_path, attempt):
    grade = graded(tmp_path, WRONG[attempt])
    assert (grade.score, grade.status) == (0, "wrong") and grade.message


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (inside("while True: pass"), "time", "was not done after 0.5 seconds"),
        (inside("10**10**9"), "time", "was not done"),
        (inside("np.ones(10 * 2**30 // 8)"), "memory", "needs more than 128 MB"),
        (inside("all = []", "while True: all.append(np.ones(2**20))"), "memory", "needs more than 128 MB"),
        (inside("return softmax(x)"), "error", "it calls itself without end"),
        (inside("return np.zeros(10_000_000)"), "error", "at most 64 are read"),
        (inside("raise SystemExit(0)"), "error", "raised SystemExit"),
        (inside("getattr([], '__cla' + 'ss__')"), "error", "can't be read in grading"),
        ("while True: softmax = right\nexercises.check('softmax', softmax)\n", "time", "was not done"),
    ],
    ids=["loop", "loop in C", "10 GB", "a leak", "recursion", "a large answer", "an exit", "getattr", "at top level"],
)
def test_what_never_ends_or_takes_too_much_is_ended(tmp_path, code, status, said):
    grade = graded(tmp_path, code, seconds=0.5 if status == "time" else 30.0, megabytes=128)
    assert (grade.score, grade.status) == (0, status) and said in grade.message


COMPLEX = [
    "step = np.zeros(x.shape, complex)",
    "step = np.zeros(x.shape) * 1j",
    "step = np.zeros(x.shape) * np.emath.sqrt(-1)",
    "step = np.zeros(x.shape) * (-1) ** 0.5",
    "step = x.astype('c16')",
    "import cmath",
    "x.imag",
]


@pytest.mark.parametrize("line", COMPLEX)
def test_a_complex_step_is_refused(tmp_path, line):
    grade = graded(tmp_path, f"def softmax_backward(dy, x):\n    {line}\n    return x\n")
    assert (grade.score, grade.status) == (0, "refused") and "write the gradient's formula" in grade.message


def test_complex_numbers_that_the_source_does_not_show_are_not_cast_to_real_ones(tmp_path):
    code = """
        def softmax_backward(dy, x):
            i, dx = np.roots([1, 0, 1])[0], np.zeros_like(x)
            for place in np.ndindex(x.shape):
                step = np.zeros_like(x) * i
                step[place] = 1e-20 * i
                dx[place] = ((right(x + step) - right(x)) / i * dy).sum() / 1e-20
            return dx
        """
    grade = graded(tmp_path, code)
    assert (grade.score, grade.status) == (0, "error") and "ComplexWarning" in grade.message
