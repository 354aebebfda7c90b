"""Right solutions get full credit on shapes that nobody knew, and messages say what is wrong and where."""

import json

import pytest

from tinyvit import exercises
from tinyvit.exercises import grading
from tinyvit.exercises.catalogue import EXERCISES
from tinyvit.exercises.exercise import sources
from tinyvit.exercises.grading.hidden import hidden_sizes

SOFTMAX = """
import numpy as np
from tinyvit import exercises, gradcheck

x = gradcheck.of_no_use_here()

def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)

exercises.check("softmax", softmax)
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


@pytest.mark.parametrize("name", EXERCISES)
def test_hidden_sizes_are_drawn_anew_and_are_not_those_of_the_exercise(name):
    exercise = EXERCISES[name]
    first, second = (hidden_sizes(exercise, seed) for seed in (1, 2))
    if not any(exercise.sizes):
        assert not first
        return
    assert first == hidden_sizes(exercise, 1) and len({str(one) for one in first + second}) > 1
    for sizes in first + second:
        assert sizes not in exercise.sizes and sizes.keys() in [own.keys() for own in exercise.sizes]


@pytest.mark.parametrize(("name", "fit"), [
    ("group_norm", lambda sizes: sizes["C"] % sizes["G"] == 0),
    ("patchify_backward", lambda sizes: sizes["H"] % sizes["P"] == sizes["W"] % sizes["Q"] == 0),
    ("max_pool2d_backward", lambda sizes: sizes["P"] <= min(sizes["H"], sizes["W"])),
    ("window_reverse", lambda sizes: sizes["s"] < sizes["p"]),
])  # fmt: skip
def test_hidden_sizes_fit_together(name, fit):
    assert all(fit(sizes) for seed in range(30) for sizes in hidden_sizes(EXERCISES[name], seed))


@pytest.mark.end_to_end
@pytest.mark.parametrize(("code", "status", "said"), [
    ("def softmax(x):\n    return x\n", "wrong", "line 1: probs wrong in"),
    ("def softmax(x):\n    return x[0]\n", "wrong", "probs has the shape"),
    ("def softmax(x):\n    pass\n", "wrong", "It returned None"),
    ("def softmax(x):\n    return {1, 2}\n", "wrong", "probs is a set"),
    ("def softmax(x):\n    return 1j * x\n", "wrong", "complex128; expected real numbers"),
    ("def softmax(x):\n    return np.exp(x)\n", "error", "line 2: raised NameError: name 'np' is not defined"),
    ("def softmax():\n    return 1\n", "error", "takes 0 positional arguments"),
    ("softmax = 3\ncheck('softmax', softmax)\n", "error", "is no function"),
    ("softmax = 1 / 0\ncheck('softmax', softmax)\n", "error", "line 1: raised ZeroDivisionError"),
], ids=range(9))  # fmt: skip
def test_a_message_says_what_is_wrong_and_where(tmp_path, code, status, said):
    (grade,) = graded(tmp_path, code).exercises
    assert (grade.score, grade.status) == (0, status) and said in grade.message


@pytest.mark.end_to_end
def test_letters_of_sizes_and_later_annotations_are_no_reason_to_refuse(tmp_path):
    code = """from __future__ import annotations
import numpy as np
from matplotlib import pyplot as x
dy = x.nothing
def my_centre_backward(dy: Unknown) -> Unknown:
    sizes = dict(zip("ND", dy.shape)) | {"F": 1}
    return dy - dy.sum(-1, keepdims=True) / sizes["D"]
"""
    (grade,) = graded(tmp_path, code + "gelu = 3\nfrom matplotlib import mlp\n").exercises
    assert grade.status == "right", grade


@pytest.mark.end_to_end
@pytest.mark.parametrize("code", [
    "softmax = functools.partial(along, axis=-1)",
    "rows = partial(along, axis=-1)\nmy_softmax = rows",
    "class Along:\n    def __call__(self, x):\n        return along(x, -1)\nsoftmax = Along()",
    "class Other:\n    def gelu(self):\n        pass\ndef softmax(x, *, axis=-1):\n    return along(x, axis)",
], ids=["partial", "another name", "instance", "method"])  # fmt: skip
def test_a_function_may_be_made_in_any_way(tmp_path, code):
    along = SOFTMAX.replace("softmax(x)", "along(x, axis)").replace("-1", "axis").partition("exercises.check")[0]
    grades = graded(tmp_path, f"import functools\nfrom functools import partial\n{along}{code}\n")
    assert [(one.name, one.status) for one in grades.exercises] == [("softmax", "right")]


@pytest.mark.end_to_end
def test_arguments_that_are_taken_by_name_alone_get_theirs(tmp_path):
    code = """def layernorm(x, weight, *, eps=1e-6, bias):
    centred = x - x.mean(-1, keepdims=True)
    return weight * centred / ((centred**2).mean(-1, keepdims=True) + eps) ** 0.5 + bias
"""
    (grade,) = graded(tmp_path, code).exercises
    names = {}
    exec(code, names)
    assert grade.status == "right" and exercises.check("layernorm", names["layernorm"]), grade


@pytest.mark.end_to_end
def test_an_exercise_that_is_asked_for_and_missing_gives_no_points(tmp_path):
    grades = graded(tmp_path, SOFTMAX, exercises=("softmax", "gelu"))
    assert [(one.name, one.score, one.status) for one in grades.exercises] == [
        ("softmax", 1, "right"), ("gelu", 0, "missing")
    ]  # fmt: skip
    assert grades.score == 0.5 and "1 of 2 right" in grades.table()


@pytest.mark.end_to_end
def test_a_notebook_runs_only_what_its_exercises_need(tmp_path):
    outside = tmp_path / "outside"
    cells = [
        "%matplotlib inline\n!ls\nimport numpy as np",
        f"%%bash\ntouch {outside}",
        f"open({str(outside)!r}, 'w')\nraise SystemExit",
        "HALF = 0.5",
        "def helper(x):\n    return np.exp(x - x.max(-1, keepdims=True))",
        "def my_softmax(x):\n    return helper(x) * HALF * 2 / helper(x).sum(-1, keepdims=True)",
        "exercises.check('softmax', my_softmax)",
        "def my_gelu(x):\n\n    return oops(x)",
        "def broken(:",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]}
    grades = graded(tmp_path, json.dumps(notebook), "submission.ipynb")
    found = {one.name: one for one in grades.exercises}
    assert found["softmax"].status == "right" and not outside.exists()
    assert found["gelu"].message.startswith("cell 8, line 3: raised NameError")
    assert grades.unread == ("cell 9, line 1: invalid syntax",)


def test_what_can_not_be_graded_is_refused_with_what_was_expected(tmp_path):
    with pytest.raises(ValueError, match="has no exercise: expected a function"):
        graded(tmp_path, "x = 1\n")
    with pytest.raises(ValueError, match="no notebook: expected JSON with cells"):
        graded(tmp_path, "[1", "submission.ipynb")
    with pytest.raises(ValueError, match=r"FILE.py or FILE.ipynb, got .*\.txt"):
        graded(tmp_path, "", "submission.txt")
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        graded(tmp_path, SOFTMAX, exercises=("softmaxx",))
    with pytest.raises(ValueError, match="expected 0 to 3600 seconds"):
        graded(tmp_path, SOFTMAX, seconds=0)
