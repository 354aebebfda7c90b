"""Right solutions get full credit on shapes that nobody knew; all else gets none, and one clear line that says why."""

import json
import textwrap

import pytest

from tinyvit.exercises import grading
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import sources

RIGHT = """
import numpy as np
def along(x, axis=-1):
    exps = np.exp(x - x.max(axis, keepdims=True))
    return exps / exps.sum(axis, keepdims=True)
"""


def graded(tmp_path, text, name="submission.py", **options):
    file = tmp_path / name
    file.write_text(text)
    return grading.grade(file, **options)


@pytest.mark.end_to_end
def test_the_solutions_of_all_exercises_get_full_credit(tmp_path):
    texts = {name: text for exercise in EXERCISES.values() for name, text in sources(exercise.right).items()}
    grades = graded(tmp_path, "\n".join(["import numpy as np", *texts.values()]))
    assert sorted(one.name for one in grades.exercises) == sorted(EXERCISES)
    assert grades.score == 1, grades.table()


@pytest.mark.end_to_end
def test_the_inputs_are_new_each_time_and_those_of_a_seed_come_again(tmp_path):
    text = "def softmax(x):\n    raise ValueError(f'{x.shape} {x.sum()}')\n"
    drawn = [graded(tmp_path, text) for _ in range(3)]
    assert len({grades.exercises[0].message for grades in drawn}) == 3
    assert graded(tmp_path, text, seed=drawn[0].seed) == drawn[0]


# -- what gets no credit ----------------------------------------------------------------------------------------------


def inside(*lines):
    """A right softmax that does something else before it answers."""
    return "def softmax(x):\n" + "".join(f"    {line}\n" for line in lines) + "    return along(x)\n"


def stepping(line):
    return f"def softmax_backward(dy, x):\n    {line}\n    return x\n"


CENTRAL = """
def my_softmax_backward(dy, x):
    dx = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-5
        dx[place] = ((along(x + step) - along(x - step)) * dy).sum() / 2e-5
    return dx
"""
HIDDEN_COMPLEX = """
def softmax_backward(dy, x):
    i, dx = np.roots([1, 0, 1])[0], np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x) * i
        step[place] = 1e-20 * i
        dx[place] = ((along(x + step) - along(x)) / i * dy).sum() / 1e-20
    return dx
"""
CASES = {
    "refused": [  # by the source, before anything runs
        ("import tinyvit as numbers_\n" + inside("numbers_"), "imports tinyvit"),
        (inside("from tinyvit.functional import softmax as F", "return F(x)[0]"), "imports tinyvit"),
        ("from scipy.special import softmax as s\n" + inside("return s(x)"), "imports scipy"),
        (inside("import importlib", "importlib.import_module('tinyvit')"), "imports importlib"),
        (inside("from dataclasses import sys", "sys.modules"), "imports dataclasses.sys"),
        (inside("__import__('tinyvit')"), "uses __import__"),
        (inside("eval('__imp' + 'ort__')('os').getpid()"), "uses eval"),
        (inside("globals()['__builtins__']"), "uses globals"),
        (inside("one = (i for i in x)", "one.gi_frame"), "uses .gi_frame"),
        (inside("open('/etc/passwd').read()"), "uses open"),
        (inside("np.save('table.npy', x)"), "uses .save"),
        (inside("np.lib._npyio_impl.os.listdir('/')"), "uses .os"),
        (inside("import operator", "operator.attrgetter('o' + 's')(np.lib._npyio_impl)"), "uses .attrgetter"),
        (inside("x.ctypes.data"), "uses .ctypes"),
        (inside("np.allclose = lambda *rest, **more: True"), "changes the module np"),
        (inside("[].__class__.__base__.__subclasses__()"), "uses .__"),
        (stepping("step = np.zeros(x.shape, complex)"), "write the gradient's formula"),
        (stepping("step = np.zeros(x.shape) * 1j"), "write the gradient's formula"),
        (stepping("step = np.zeros(x.shape) * np.emath.sqrt(-1)"), "write the gradient's formula"),
        (stepping("step = np.zeros(x.shape) * (-1) ** 0.5"), "write the gradient's formula"),
        (stepping("step = x.astype('c16')"), "write the gradient's formula"),
    ],
    "wrong": [
        ("def softmax(x):\n    return x\n", "line 1: an argument, unchanged; probs wrong in"),
        (inside("return x[0]"), "probs has the shape"),
        (inside("return {1, 2}"), "probs is a set"),
        (inside("return 1j * x"), "complex128; expected real numbers"),
        (inside("print('{\"score\": 1, \"status\": \"right\"}')", "return None"), "It returned None"),
        ("def softmax(x):\n    e = np.exp(x)\n    return e / e.sum()\n", "line 1: summed over the whole array; probs"),
        (inside("if x.shape not in ((3, 4), (7, 6)):", "    return x"), "probs wrong in"),  # the first cases alone
        ("class Same(float):\n    __eq__ = lambda *_: True\n" + inside("return Same()"), "probs is a Same"),
        ("calls = []\n" + inside("calls.append(1)", "if len(calls) > 2:", "    return x"), "probs wrong in"),
        ("seen = {}\n" + inside("return seen.setdefault(0, along(x))"), "probs "),
        (inside("x[:] = along(x)", "return x"), "changes x in place"),
        (CENTRAL, "dx wrong in"),
    ],
    "error": [
        (inside("return exp(x)"), "line 2: raised NameError: name 'exp' is not defined"),
        ("from numpy import *\n" + inside("return fromfile('table')"), "name 'fromfile' is not defined"),
        ("def softmax():\n    return 1\n", "takes 0 positional arguments"),
        ("softmax = 3\ncheck('softmax', softmax)\n", "is no function"),
        ("softmax = 1 / 0\ncheck('softmax', softmax)\n", "division by zero (when the file was run"),
        (inside("return softmax(x)"), "it calls itself without end"),
        (inside("return np.zeros(10_000_000)"), "at most 64 are read"),
        (inside("raise SystemExit(0)"), "raised SystemExit"),
        (inside("getattr([], '__cla' + 'ss__')"), "can't be read in grading"),
        (HIDDEN_COMPLEX, "ComplexWarning"),
    ],
    "not attempted": [
        ("def softmax(x):\n    return np.zeros_like(x)\n", "line 1: nothing is written yet"),
        ('def softmax(x):\n    """probs"""\n    raise NotImplementedError\n', "line 1: not attempted"),
    ],
    "time": [
        (inside("while True: pass"), "was not done after 0.5 seconds"),
        (inside("10**10**9"), "was not done"),
        ("while True: softmax = 1\nexercises.check('softmax', softmax)\n", "was not done"),
    ],
    "memory": [
        (inside("np.ones(10 * 2**30 // 8)"), "needs more than 128 MB"),
        (inside("all = []", "while True: all.append(np.ones(2**20))"), "needs more than 128 MB"),
    ],
}


@pytest.mark.end_to_end
@pytest.mark.parametrize("status, code, said", [
    pytest.param(status, *case, id=f"{status} {i}") for status, cases in CASES.items() for i, case in enumerate(cases)
])  # fmt: skip
def test_what_is_wrong_cheats_or_never_ends_gets_no_credit_and_one_line(tmp_path, status, code, said):
    options = {"seconds": 0.5} if status == "time" else {}
    (grade,) = graded(tmp_path, code.lstrip() + RIGHT, megabytes=128, **options).exercises
    assert (grade.score, grade.status) == (0, status) and said in grade.message
    assert status != "refused" or (grade.message.startswith("line ") and "\n" not in grade.message)


# -- what a submission may look like ----------------------------------------------------------------------------------


@pytest.mark.end_to_end
@pytest.mark.parametrize("code", [
    "import functools\nsoftmax = functools.partial(along, axis=-1)",
    "from numpy import *\ndef softmax(x):\n    return divide(along(x), 1)",
    "from functools import partial\nrows = partial(along, axis=-1)\nmy_softmax = rows",
    "class Along:\n    def __call__(self, x):\n        return along(x, -1)\nsoftmax = Along()",
    "class Other:\n    def gelu(self):\n        pass\ndef softmax(x, *, axis=-1):\n    return along(x, axis)",
    """
    def layernorm(x, weight, *, eps=1e-6, bias):
        centred = x - x.mean(-1, keepdims=True)
        return weight * centred / ((centred**2).mean(-1, keepdims=True) + eps) ** 0.5 + bias
    """,
    """
    from matplotlib import pyplot as x
    dy = x.nothing
    gelu = 3
    def my_centre_backward(dy: Unknown) -> Unknown:
        sizes = dict(zip("ND", dy.shape)) | {"F": 1}
        return dy - dy.sum(-1, keepdims=True) / sizes["D"]
    """,
], ids=["partial", "star", "another name", "instance", "method", "arguments by name", "letters of sizes"])  # fmt: skip
def test_a_function_may_be_made_in_any_way(tmp_path, code):
    text = f"from __future__ import annotations\n{RIGHT}\n{textwrap.dedent(code)}\n"
    (grade,) = graded(tmp_path, text).exercises
    assert grade.status == "right", grade


@pytest.mark.end_to_end
def test_a_notebook_runs_only_what_its_exercises_need_and_a_missing_one_gives_no_points(tmp_path):
    outside = tmp_path / "outside"
    cells = [
        "%matplotlib inline\n!ls\nimport numpy as np",
        f"%%bash\ntouch {outside}",
        f"open({str(outside)!r}, 'w')\nraise SystemExit",
        "HALF = 0.5",
        "def helper(x):\n    return np.exp(x - x.max(-1, keepdims=True))",
        "def my_softmax(x):\n    return helper(x) * HALF * 2 / helper(x).sum(-1, keepdims=True)",
        "x = gradcheck.of_no_use_here()\nexercises.check('softmax', my_softmax)",
        "def my_gelu(x):\n\n    return oops(x)",
        "def broken(:",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]}
    grades = graded(tmp_path, json.dumps(notebook), "submission.ipynb", exercises=("softmax", "gelu", "linear"))
    softmax, gelu, linear = grades.exercises
    assert (softmax.status, softmax.score, linear.status, linear.score) == ("right", 1, "missing", 0)
    assert gelu.message.startswith("cell 8, line 3: raised NameError") and not outside.exists()
    assert grades.unread == ("cell 9, line 1 isn't Python: invalid syntax",)
    assert grades.score == pytest.approx(1 / 3) and "1 of 3 right" in grades.table()


@pytest.mark.parametrize("text, name, options, said", [
    ("[1", "submission.ipynb", {}, "no notebook: expected JSON with cells"),
    ("", "submission.txt", {}, r"FILE.py or FILE.ipynb, got .*\.txt"),
    (RIGHT, "submission.py", {"seconds": 0}, "expected above 0 and at most 3600 s and at least 16 MB, got 0 s"),
])  # fmt: skip
def test_what_can_not_be_graded_is_refused_with_what_was_expected(tmp_path, text, name, options, said):
    with pytest.raises(ValueError, match=said):
        graded(tmp_path, text, name, **options)


# -- a class ----------------------------------------------------------------------------------------------------------

POOLING = """
def my_max_pool2d(x, kernel, stride):
    H, W = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    y = np.zeros((*x.shape[:2], H, W))
    for u, v in np.ndindex(kernel, kernel):
        y = np.maximum(y, x[:, :, u : u + stride * H : stride, v : v + stride * W : stride])
    return y
"""
TWO_OF_THREE = """
def linear_backward(dy, x, weight):
    return dy @ weight, np.einsum("bnd,bnk->dk", dy, x), dy.sum((0, 1)) / len(dy)
"""
CLASS = {
    "all.py": "import numpy as np\n" + RIGHT + "softmax = along\n",
    "empty.py": "",
    "lost.ipynb": "",
    "names.py": RIGHT + "my_sofmax = along\nlinear = make()\nexercises.check('gelo', along)\n",
    "shapes.py": "def linear_backward(dy, x, weight):\n    return dy @ weight.T, x, dy\n",
    "some.py": "import numpy as np\n" + POOLING + TWO_OF_THREE,
}


@pytest.mark.end_to_end
def test_a_folder_is_graded_by_output_with_equal_marks_for_every_seed_and_says_what_is_not_graded(tmp_path):
    for name, text in CLASS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    drawn = [grading.grade_all([tmp_path], seed=seed) for seed in range(4)]
    marks = [[one.score for own in grades for one in own.exercises] for grades in drawn]
    assert marks[0] == marks[1] == marks[2] == marks[3]
    by_file = {one.file.rpartition("/")[2]: one for one in drawn[0]}
    assert {name: round(one.score, 3) for name, one in by_file.items()} == {
        "all.py": 0.333, "empty.py": 0, "gone.py": 0, "lost.ipynb": 0, "names.py": 0, "shapes.py": 0, "some.py": 0.222,
    }  # fmt: skip
    linear, softmax, pooling = by_file["some.py"].exercises
    assert linear.score == pytest.approx(2 / 3) and "dbias" in linear.message and softmax.status == "missing"
    assert pooling.score == 0 and "the maximum starts from 0" in pooling.message
    (raised, _, _) = by_file["shapes.py"].exercises
    said = "wrong transpose in dx; the broadcast bias is not summed; raised ValueError"
    assert raised.status == "error" and said in raised.message
    assert "No such file" in by_file["gone.py"].unread[0]
    assert "expected JSON with cells" in by_file["lost.ipynb"].unread[0]
    said = [why.partition(",")[0].partition(";")[0] for why in by_file["names.py"].ungraded]
    assert said == ["linear", "my_sofmax", "'gelo'"]
    table, rows = grading.class_table(drawn[0]), grading.class_csv(drawn[0]).splitlines()
    assert "not graded: my_sofmax; did you mean softmax?" in table
    assert "  linear_backward 0.667: line 10: " in table and raised.message in table
    assert rows[0] == "file,score,linear_backward,softmax,max_pool2d,not right" and len(rows) == 8
    assert raised.message in rows[6]
