"""Every notebook runs, its .ipynb matches its source, and its derivations are of the package's own code."""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

import jupytext
import nbformat
import pytest

from tinyvit import exercises, functional, models, nn
from tinyvit.exercises.catalogue import BY_TOPIC, EXERCISES, NOTEBOOKS
from tinyvit.nn.module import Module

FOLDER = Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
HANGS = 600  # seconds after which a notebook is taken to hang; make.py says if one takes over 60
LARGEST = 1100  # kB of an .ipynb, most of which are photographs at 144 dpi

WAYS = ("forward", "backward")
HOLD_WEIGHTS = {"Linear.forward", "Linear.backward"}  # they pass their weights to the function, which has the formula

LONG = (
    "07_cifar10", "11_convolutions", "13_windows", "14_convolution_to_attention", "16_two_views",
    "18_images_out_of_noise", "19_tubelets", "21_broken_trainings", "22_dense_prediction",
    "23_native_size",
)  # over 10 s
every_notebook = pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])


def made(source):
    """The .ipynb that belongs to a source."""
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def printed(notebook):
    """All text that a notebook's cells have printed."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def written(notebook):
    """All text of a notebook's Markdown cells."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def tags(text):
    """The names of the functions that compute the formulas of a text, from their tags."""
    tagged = re.findall(r"\\tag\{(.*?)\}", text)
    return {name for names in tagged for name in names.replace("\\_", "_").split(", ")}


def members(package):
    """All members of a package's modules, by name."""
    found = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        found |= vars(importlib.import_module(module.name))
    return found


FUNCTIONS = {name: op for name, op in members(functional).items() if inspect.isfunction(op)}
COMPOSITIONS = {
    name: layer for name, layer in (members(nn) | members(models)).items()
    if inspect.isclass(layer) and issubclass(layer, Module)
}  # fmt: skip
CODE = FUNCTIONS | {  # by the names that formulas carry: softmax, Block.forward
    f"{name}.{way}": vars(layer)[way] for name, layer in COMPOSITIONS.items() for way in WAYS
    if way in vars(layer)  # what is inherited has its formula where it is defined
}  # fmt: skip


@pytest.mark.end_to_end
@pytest.mark.parametrize("source", [
    pytest.param(path, marks=pytest.mark.full if path.stem in LONG else ()) for path in SOURCES
], ids=[path.stem for path in SOURCES])  # fmt: skip
def test_it_runs_as_a_script_without_a_warning(source, tmp_path):
    # It finds no data set, even if this machine has some: `tests/full` runs what needs one and minutes.
    environment = {**os.environ, "MPLBACKEND": "agg", "TINYVIT_DATA": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-B", "-W", "error", source.name]
    done = subprocess.run(command, cwd=FOLDER, env=environment, timeout=HANGS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@every_notebook
def test_the_ipynb_is_its_source_after_one_run_without_errors_and_holds_no_paths(source):
    notebook = made(source)
    cells = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (notebook, jupytext.read(source))]
    assert cells[0] == cells[1], f"python notebooks/make.py {source.stem}"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    for output in (output for cell in code for output in cell.outputs):
        assert output.output_type != "error" and output.get("name") != "stderr", output
    assert source.with_suffix(".ipynb").stat().st_size < LARGEST * 1000
    assert [cell.id for cell in notebook.cells] == [f"cell-{n:02}" for n in range(len(notebook.cells))]
    assert not any(cell.metadata for cell in notebook.cells)
    assert not re.search(r"/(home|Users|tmp|opt|root|usr)/", printed(notebook))


def test_the_framed_pictures_are_of_the_architectures_picture(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    make = importlib.import_module("make")
    for number, frame in make.HERE.items():
        picture = make.ARCHITECTURE.with_stem(f"architecture-{number}")
        assert picture.read_text() == make.framed(*frame) != make.ARCHITECTURE.read_text()
        assert any(f"(figures/{picture.name})" in source.read_text() for source in SOURCES)


@every_notebook
def test_each_formula_of_a_layer_is_code_of_the_package_and_shown(source):
    notebook = made(source)
    shown = printed(notebook)
    for name in tags(written(notebook)):
        assert name in CODE, f"there is no function or layer {name}"
        assert inspect.getsource(CODE[name]) in shown, f"the code of {name} is not shown, or not as it is now"


@every_notebook
def test_a_composition_whose_code_is_shown_has_its_formula_in_the_same_notebook(source):
    notebook = made(source)
    shown = printed(notebook)
    compositions = {name for name, code in CODE.items() if name not in FUNCTIONS and inspect.getsource(code) in shown}
    assert compositions - HOLD_WEIGHTS <= tags(written(notebook))


@every_notebook
def test_what_a_docstring_says_is_derived_in_a_notebook_is_derived_there(source):
    def is_promised(what):
        return f"notebooks/{source.name[:2]}" in (inspect.getdoc(what) or "")

    promised = {name for name, op in FUNCTIONS.items() if is_promised(op)}
    promised |= {f"{name}_backward" for name in promised} & set(FUNCTIONS)
    promised |= {name for name in CODE if is_promised(COMPOSITIONS.get(name.partition(".")[0]))}
    assert promised <= tags(written(made(source)))


@every_notebook
def test_there_are_two_exercises_or_more_that_the_package_checks(source):
    text = written(made(source)).partition("## Exercises")[2]
    assert len(re.findall(r"^\*\*\d+\.\*\* ", text, re.MULTILINE)) >= 2
    assert sum(called.startswith("exercises.check") for called, _ in calls(source)) >= 2


# -- checks of the learner's functions and numbers --------------------------------------------------------------------


def calls(source):
    """Every `a.b(…)` in a source, as ("a.b", the call)."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func), node


def checked(source, check="exercises.check"):
    """(exercise, the learner's function) of each check in a notebook."""
    found = [call.args[:2] for called, call in calls(source) if called == check]
    return [(exercise.value, function.id) for exercise, function in found]


CHECKED = [(source, *names) for source in SOURCES for names in checked(source)]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_exercise_stands_in_the_notebook_that_the_list_of_exercises_names(notebook):
    asked = {exercise for exercise, _ in checked(FOLDER / f"{notebook}.py")}
    assert asked >= {one.name for topic in NOTEBOOKS[notebook].split() for one in BY_TOPIC[topic]}


def test_the_syllabus_names_exercises_that_there_are():
    rows = re.findall(r"^\| .*", (FOLDER / "guide" / "syllabus.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 40 and named <= {*EXERCISES}


@every_notebook
def test_no_notebook_has_a_checker_of_its_own_that_calls_the_learners_function(source):
    learners = {node.name for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
                if isinstance(node, ast.FunctionDef) and node.name.startswith("my_")}  # fmt: skip
    checks = [*checked(source), *checked(source, "exercises.check_steps")]
    assert learners == {function for _, function in checks}


@every_notebook
def test_a_number_that_is_asked_for_goes_to_its_check_alone_which_answers_whatever_it_is(source):
    """What the check says to anything is tested in exercises/test_number_answers.py."""
    asked = checked(source, "exercises.check_number")
    uses = [node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)]
    for shown, name in asked:
        assert shown == name and [type(node.ctx) for node in uses if node.id == name] == [ast.Store, ast.Load]
    assert printed(made(source)).count("in place of None.") == len(asked)


@pytest.mark.parametrize("source, exercise, function", CHECKED, ids=[f"{s.stem[:2]}-{e}" for s, e, _ in CHECKED])
def test_the_unfinished_function_has_the_exercises_arguments_and_the_stored_answer(source, exercise, function):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (stub,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    assert [argument.arg for argument in stub.args.args] == list(EXERCISES[exercise].arguments)
    used = {node.id for node in ast.walk(stub) if isinstance(node, ast.Name)}
    imports = [
        node for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and used & {one.asname or one.name for one in node.names}
    ]  # fmt: skip
    space = {}
    exec(ast.unparse(ast.Module([*imports, stub], [])), space)
    answer = exercises.check(exercise, space[function]).answer
    assert "nothing is written yet" in " ".join(answer.split()) or exercise == "kahan_sum"  # it begins with a sum
    assert answer in printed(made(source))


def test_the_notebook_on_transfer_was_executed_with_its_data_set():
    shown = printed(made(FOLDER / "10_transfer.py"))
    assert "was not found" not in shown
    for row in json.loads((FOLDER / "results" / "transfer.json").read_text())["rows"]:
        percents = [100 * accuracy for accuracy in row["accuracies"]]
        (line,) = (line for line in shown.splitlines() if line.startswith(f"{row['way']}  "))
        assert f"{mean(percents):.1f} % ± {stdev(percents):.1f}" in line


def test_every_docstring_that_names_a_notebook_names_one_that_exists():
    for path in (FOLDER.parent / "tinyvit").rglob("*.py"):
        for number in re.findall(r"notebooks/(\d\d)", path.read_text(encoding="utf-8")):
            assert any(source.name.startswith(number) for source in SOURCES), f"{path} names notebooks/{number}"
