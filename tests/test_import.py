"""Which modules `import tinyvit` loads, and which way imports run."""

import ast
import os
import re
import runpy
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

import tinyvit
from tinyvit import models

HEAVY = {"scipy", "numba", "cupy", "matplotlib", "sklearn", "torch", "tyro", "pooch", "PIL", "tensorboardX", "onnx"}


def loaded_by(code):
    """The top-level modules that a new process has loaded after running `code`."""
    code += "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split())


@pytest.mark.end_to_end
@pytest.mark.parametrize("code", [
    "import tinyvit.cli",
    "import tinyvit.bench.run, tinyvit.bench.table",
    "import tinyvit as t; t.create_model, t.gradcheck, t.optim.AdamW, t.data.Loader, t.probe, t.training.train_step",
    "import tinyvit.interop",
    "import tinyvit; tinyvit.exercises.check('softmax', print)",
])  # fmt: skip
def test_importing_loads_nothing_heavy(code):
    assert not HEAVY & loaded_by(code)


@pytest.mark.end_to_end
def test_scipy_is_loaded_where_a_gelu_needs_it():
    assert "scipy" in loaded_by("import numpy, tinyvit; tinyvit.functional.gelu(numpy.ones(3))")


@pytest.mark.end_to_end
def test_a_training_of_the_digits_imports_no_more_than_it_uses(tmp_path):
    command = f"-X importtime -m tinyvit train digits --epochs 1 --out {tmp_path / 'run'}"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, check=True, text=True,
                          env=os.environ | {"TINYVIT_KERNELS": "reference"})  # fmt: skip
    names = re.findall(r"\| +(tinyvit(?!\.(?:functional|nn|optim)\b)[.\w]*)$", done.stderr, re.MULTILINE)
    lines_and_tokens = runpy.run_path(str(PACKAGE.parent / ".ci" / "sizes.py"))["lines_and_tokens"]
    assert 40 < len(names) <= 55
    assert sum(lines_and_tokens(Path(find_spec(name).origin))[0] for name in names) <= 4_500


EACH_BY_NAME = """
import os
from tinyvit.models.registry import ARCHITECTURES, list_models
from tinyvit.training.tasks.task import TASKS

for table, name in [(table, name) for table in (ARCHITECTURES, TASKS) for name in table.modules]:
    if not os.fork():
        found = table.find(name)
        os._exit(0 if found is TASKS.get(name) or found[1]() else 1)
    assert os.wait()[1] == 0, name
print(*list_models())
"""


@pytest.mark.end_to_end
def test_each_architecture_and_task_can_be_named_first_and_models_of_all_are_listed():
    done = subprocess.run([sys.executable, "-c", EACH_BY_NAME], capture_output=True, check=True, text=True)
    assert set(done.stdout.split()) == set(models.list_models()) - {"tiny_8"}


def test_the_public_names_are_complete_and_there_are_no_others():
    for name in tinyvit.__all__:
        assert getattr(tinyvit, name) is not None
    assert sorted(dir(tinyvit)) == sorted([*tinyvit.__all__, "__version__"])
    with pytest.raises(AttributeError, match="has no attribute 'autograd'"):
        tinyvit.autograd  # noqa: B018


# -- the layers -------------------------------------------------------------------------------------------------------

PACKAGE = Path(tinyvit.__file__).parent
BACKEND = {"arrays", "keys", "backend"}
DISPATCH = {"dispatch", "levels", "operands"}
BELOW = {*BACKEND, "functional", "kernels", "nn", "models", *DISPATCH}
FILES = {"files", "progress", "registry", "tensors", "text"}
MAY_IMPORT = {
    **{name: set() for name in ("minimal", "text", "files", "arrays", "levels", "progress", "launcher", "validation")},
    "keys": {"arrays"},
    "backend": {"arrays", "keys"},
    "tensors": {*BACKEND, "text"},
    "operands": {*BACKEND},
    "levels": {*BACKEND, "operands"},
    "registry": {"text"},
    "dispatch": {"levels", "operands"},
    "functional": {*BACKEND, *DISPATCH},
    "kernels": {*BACKEND, "functional", "data", *DISPATCH},  # data: of its operations on batches
    "nn": {*BACKEND, "functional", "text", *DISPATCH},
    "gradcheck": {*BACKEND, "functional"},
    "exercises": {*BACKEND, "models", "text", "training"},  # the worked example, and to train a learner's functions
    "models": {"levels", "registry", *BACKEND, "functional", "nn", "validation"},
    "optim": {*BACKEND, "functional", "nn", "validation"},
    "data": {*BACKEND, "levels", "files", "progress", "registry", "text", "validation"},
    "probe": BELOW,
    "interop": BELOW | FILES | {"data", "validation"},  # the preprocessing is stored with the weights
    "training": BELOW | FILES | {"data", "launcher", "optim", "validation", "__init__"},
    "loading": BELOW | FILES | {"data", "interop", "training", "__init__"},
    "bench": BELOW | FILES | {"data", "gradcheck", "optim", "training", "__init__"},
    "cli": BELOW | FILES | {"bench", "data", "exercises", "gradcheck", "interop", "launcher", "optim", "probe",
                            "training", "__init__"},
}  # fmt: skip
SOURCES = {
    str(path.relative_to(PACKAGE)): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
}


def imports(path):
    """Every module that a file imports, wherever in the file; `from a import b` is a.b as well as a."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_files_import_each_other():
    names = {file: f"tinyvit.{file[:-3].replace('/', '.').removesuffix('.__init__')}" for file in SOURCES}
    graph = {}
    for file, own in names.items():
        named = {name for full in imports(SOURCES[file]) for name in (full, full.rpartition(".")[0])}
        graph[own] = {name for name in named & {*names.values()} if not f"{own}.".startswith(f"{name}.")}
    TopologicalSorter(graph).prepare()  # a package comes before the files in it


def layer(file):
    return Path(file).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", SOURCES)
def test_imports_run_one_way(file):
    own = layer(file)
    paths = [f"{name}.__init__".split(".") for name in imports(SOURCES[file])]
    assert {path[1] for path in paths if path[0] == "tinyvit"} <= MAY_IMPORT[own] | {own}


@pytest.mark.parametrize("library, files", [
    ("torch", r"bench/torch_steps\.py"),
    ("cupy", r"backend.*|kernels/.*"),
])  # fmt: skip
def test_a_library_is_imported_in_its_own_files_alone(library, files):
    importers = {file for file in SOURCES for name in imports(SOURCES[file]) if name.partition(".")[0] == library}
    assert importers and all(re.fullmatch(files, file) for file in importers)


def test_every_context_variable_is_in_the_table_of_contributing_with_its_reason():
    called = re.compile(r'ContextVar\("([^"]+)"')
    found = {name for path in SOURCES.values() for name in called.findall(path.read_text(encoding="utf-8"))}
    table = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Context variables")[2]
    assert found == set(re.findall(r"^\| `(tinyvit\.[\w.]+)` \|", table, re.M))
