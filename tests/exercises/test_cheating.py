"""Attempts to cheat the grader: none gets credit, each gets a clear line, and nothing outside is changed."""

import os
import textwrap
from pathlib import Path

import pytest

from tinyvit.exercises import grading
from tinyvit.exercises.grading import exchange

pytestmark = pytest.mark.end_to_end

PACKAGE = str(Path(grading.__file__).parents[3])
RIGHT = """
import numpy as np
def right(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)
"""
GRADIENT = """
def my_softmax_backward(dy, x):
    probs = right(x)
    return probs * (dy - (dy * probs).sum(-1, keepdims=True))
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


OBJECT = "next(one for one in [].__class__.__base__.__subclasses__() if one.__name__ == '_wrap_close')"
REFUSED = {
    "the package's own": (inside("from tinyvit.functional import softmax as F", "return F(x)[0]"), "imports tinyvit"),
    "the exercise's own answer": (
        inside("from tinyvit.exercises.catalogue import find", "return find('softmax').right(x)"),
        "imports tinyvit",
    ),
    "the package under another name": ("import tinyvit as numbers_\n" + inside("numbers_"), "imports tinyvit"),
    "torch under another name": ("import torch as helpers\n" + inside("return helpers.softmax(x)"), "imports torch"),
    "a part of jax": ("from jax.nn import softmax as s\n" + inside("return s(x)"), "imports jax"),
    "scipy's softmax": ("from scipy.special import softmax as s\n" + inside("return s(x)"), "imports scipy"),
    "importlib": (inside("import importlib", "importlib.import_module('tinyvit')"), "imports importlib"),
    "__import__": (inside("__import__('tinyvit')"), "uses __import__"),
    "eval": (inside("eval('__imp' + 'ort__')('os').getpid()"), "uses eval"),
    "exec": (inside("exec('import os')"), "uses exec"),
    "builtins from globals": (inside("globals()['__builtins__']"), "uses globals"),
    "frames": (inside("import sys", "sys._getframe(1).f_locals"), "imports sys"),
    "a traceback's frame": (
        inside("try:", "    1 / 0", "except ZeroDivisionError as error:", "    error.__traceback__.tb_frame"), "uses .",
    ),
    "a generator's frame": (inside("one = (i for i in x)", "one.gi_frame"), "uses .gi_frame"),
    "the memory": (inside("import gc", "gc.get_objects()"), "imports gc"),
    "a subprocess": (inside("import subprocess", "subprocess.run(['true'])"), "imports subprocess"),
    "fork": (inside("import os", "os.fork()"), "imports os"),
    "a file": (inside("open('/etc/passwd').read()"), "uses open"),
    "the package's source": (inside("from pathlib import Path", "Path('/').read_text()"), "imports pathlib"),
    "the network": (inside("import socket", "socket.socket()"), "imports socket"),
    "pickles": (inside("import pickle", "pickle.loads(b'')"), "imports pickle"),
    "numpy's files": (inside("np.save('table.npy', x)"), "uses .save"),
    "numpy's ctypes": (inside("np.ctypeslib.load_library"), "uses .ctypeslib"),
    "memory by ctypes": (inside("import ctypes", "ctypes.string_at(0)"), "imports ctypes"),
    "an array's ctypes": (inside("x.ctypes.data"), "uses .ctypes"),
    "signals": (inside("import signal", "signal.raise_signal(9)"), "imports signal"),
    "atexit": (inside("import atexit", "atexit.register(print)"), "imports atexit"),
    "threads": (inside("import threading", "threading.Thread(target=right).start()"), "imports threading"),
    "sleeping": (inside("import time", "time.sleep(60)"), "imports time"),
    "numpy is changed": (inside("np.allclose = lambda *rest, **more: True"), "changes the module np"),
    "subclasses": (inside(f"{OBJECT}.__init__"), "uses .__"),
}  # fmt: skip
# Ways around what is read in the source: names made at run time, and attributes of functions of Python.
SLY = {
    "getattr with a name made at run time": (inside("getattr([], '__cla' + 'ss__')"), "raised AttributeError"),
    "a file by numpy's own modules": (inside("np.lib._npyio_impl.os.listdir('/')"), "asks the system for os.listdir"),
    "a file": (inside("np.lib._npyio_impl.os.open('/etc/passwd', 0)"), "opens a file (/etc/passwd)"),
    "a file to write": (inside("np.lib._npyio_impl.os.open('OUTSIDE', 65)"), "opens a file"),
    "another process's memory": (inside("np.lib._npyio_impl.os.open('/proc/PARENT/mem', 2)"), "opens a file (/proc/"),
    "a fork": (inside("np.lib._npyio_impl.os.fork()"), "starts a process"),
    "a fork bomb": (inside("while True: np.lib._npyio_impl.os.fork()"), "starts a process"),
    "a shell": (inside("np.lib._npyio_impl.os.system('touch OUTSIDE')"), "starts a process"),
    "a signal to the parent": (inside("np.lib._npyio_impl.os.kill(PARENT, 9)"), "sends a signal"),
    "frames, caught": (inside(
        "import operator", "try: operator.attrgetter('_get' + 'frame')(np.lib._npyio_impl.os.sys)(1)",
        "except BaseException: pass",
    ), "looks at frames"),
    "a thread": (inside("np.lib._npyio_impl.os.sys.modules['_thread'].start_new_thread(right, (x,))"), "thread"),
    "the C library": (inside("np.lib._npyio_impl.os.sys.modules['ctypes'].CDLL(None)"), "uses ctypes"),
    "the package, with imports mended": (
        inside(
            "sys = np.lib._npyio_impl.os.sys",
            "sys.meta_path.append(sys.modules['_frozen_importlib_external'].PathFinder)",
            "sys.path.append('PACKAGE')",
            "return sys.modules['_frozen_importlib']._gcd_import('tinyvit.functional').softmax(x)[0]",
        ),
        "asks the system for os.listdir",
    ),
    "a pickle": (inside("np.lib._npyio_impl.pickle._loads(b'cos\\nsystem\\n.')"), "unpickles"),
    "an exit": (inside("raise SystemExit(0)"), "raised SystemExit"),
    "an early end": (inside("np.lib._npyio_impl.os.abort()"), "ended its process by signal 6"),
    "a fake answer": (inside(
        "for fd in range(3, 9):", "    try: np.lib._npyio_impl.os.write(fd, b'0' * 80)", "    except OSError: pass",
    ), "can't be read"),
}  # fmt: skip


@pytest.mark.parametrize("attempt", REFUSED)
def test_what_is_not_allowed_is_refused_by_its_source(tmp_path, attempt):
    code, said = REFUSED[attempt]
    grade = graded(tmp_path, code)
    assert (grade.score, grade.status) == (0, "refused")
    assert said in grade.message and grade.message.startswith("line ") and "\n" not in grade.message


@pytest.mark.parametrize("attempt", SLY)
def test_what_gets_past_the_source_ends_the_process(tmp_path, attempt):
    outside = tmp_path / "outside"
    code, said = SLY[attempt]
    grade = graded(
        tmp_path, code.replace("OUTSIDE", str(outside)).replace("PARENT", str(os.getpid())).replace("PACKAGE", PACKAGE)
    )
    assert grade.score == 0 and grade.status in ("refused", "error")
    assert said in grade.message and "\n" not in grade.message
    assert not outside.exists()


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
    "an array that equals everything": """
        class Right(np.ndarray):
            shape = property(lambda self: (3, 4))
            def __array__(self, *rest, **more):
                return right(self)
        def softmax(x):
            return np.zeros(1).view(Right)
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
}


@pytest.mark.parametrize("attempt", WRONG)
def test_what_is_no_softmax_is_wrong(tmp_path, attempt):
    grade = graded(tmp_path, WRONG[attempt])
    assert (grade.score, grade.status) == (0, "wrong") and grade.message


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (inside("while True: pass"), "time", "was not done after 0.5 seconds"),
        (
            inside("while True:", "    try:", "        while True: pass", "    except BaseException: pass"),
            "time",
            "0.5",
        ),
        (inside("10**10**9"), "time", "was not done"),
        (inside("np.ones(10 * 2**30 // 8)"), "memory", "needs more than 128 MB"),
        (inside("all = []", "while True: all.append(np.ones(2**20))"), "memory", "needs more than 128 MB"),
        (inside("return softmax(x)"), "error", "it calls itself without end"),
        (inside("return np.zeros(10_000_000)"), "error", "at most 64 are read"),
        ("while True: softmax = right\nexercises.check('softmax', softmax)\n", "time", "was not done"),
    ],
    ids=["loop", "loop that catches", "loop in C", "10 GB", "a leak", "recursion", "a large answer", "at top level"],
)
def test_what_never_ends_or_takes_too_much_is_ended(tmp_path, code, status, said):
    grade = graded(tmp_path, code, seconds=0.5 if status == "time" else 30.0, megabytes=128)
    assert (grade.score, grade.status) == (0, status) and said in grade.message


NUMERICAL = {
    "a complex step": """
        def my_softmax_backward(dy, x):
            dx = np.zeros_like(x)
            for place in np.ndindex(x.shape):
                step = np.zeros(x.shape, complex)
                step[place] = 1e-20j
                dx[place] = (right(x + step).imag * dy).sum() / 1e-20
            return dx
        """,
    "a complex step without the word": """
        def my_softmax_backward(dy, x):
            dx, i = np.zeros_like(x), np.emath.sqrt(-1)
            for place in np.ndindex(x.shape):
                step = np.zeros_like(x) * i
                step[place] = 1e-20 * i
                dx[place] = ((right(x + step) - right(x)) / i * dy).sum() / 1e-20
            return dx
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
    "differences in place": """
        def my_softmax_backward(dy, x):
            dx, x = np.zeros_like(x), x.copy()
            for place in np.ndindex(x.shape):
                x[place] += 1e-5
                up = right(x)
                x[place] -= 1e-5
                dx[place] = ((up - right(x)) * dy).sum() / 1e-5
            return dx
        """,
}


@pytest.mark.parametrize("attempt", NUMERICAL)
def test_a_gradient_by_numbers_is_refused(tmp_path, attempt):
    grade = graded(tmp_path, NUMERICAL[attempt])
    assert (grade.score, grade.status) == (0, "refused")
    assert "write the gradient's formula" in grade.message


def test_a_right_gradient_gets_full_credit(tmp_path):
    assert graded(tmp_path, GRADIENT).status == "right"


def test_a_solution_is_handed_out_no_answer(tmp_path):
    """The process of a solution has none of the package's modules, even for one that finds sys."""
    code = """
        def softmax(x):
            modules = np.lib._npyio_impl.os.sys.modules
            return right(x) if not any(name.startswith("tinyvit") for name in modules) else x
        """
    assert graded(tmp_path, code).status == "right"


MESSAGES = [
    {}, {"value": None}, {"value": 1.0, "after": 3}, {"value": 1.0, "after": []}, {"raised": 3, "line": -7},
    {"asks": 0, "arguments": [1]}, {"asks": "x"}, {"refused": None}, 7, None, {"raised": "x", "line": 10**9},
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_messages_that_a_solution_writes_itself_do_not_end_the_grader(tmp_path, message):
    """The pipe's number is found by trying; what is written there is read as the worker's message, and no more."""
    written = exchange.pack(message)
    tries = [f"for number in range(3, 9):\n        try: os.write(number, {written!r})\n        except OSError: pass"]
    grade = graded(tmp_path, inside("os = np.lib._npyio_impl.os", *tries))
    assert grade.score == 0 and grade.message and "\n" not in grade.message
