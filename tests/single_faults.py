"""Single faults in the mathematics, drawn by a seed: which of them do the tests find?

    python tests/single_faults.py [--count 40] [--seed 0] [--only 3 7] [--revision HEAD]

A fault changes one operator, axis, index or constant of `functional/`, `nn/`, `kernels/` (Python), `optim/`,
`training/step.py` or `training/parts.py` in a copy of a revision. The tests run there until one fails, first those of
that file, then those that are near.
"""

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("functional", "nn", "kernels", "optim", "training/step.py", "training/parts.py")
NEAR = ("functional", "test_gradcheck.py", "kernels", "nn", "optim", "models", "training/test_step.py")
INSTEAD = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "@": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
           "==": "!=", "!=": "==", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "**": "*", "%": "*", "and": "or",
           "or": "and", "True": "False", "False": "True", "is": "is not"}  # fmt: skip
# Lines with faults that change no result; others are drawn for them.
EQUIVALENT = {
    "if windows.stride != (1, 1) or min(margins) <= 0:",  # another way to the same gradient
    "return turned.reshape(-2, *turned.shape[2:])",  # NumPy infers any negative side
    "chunk = CHUNK if array_module(data) is np else where.stop + where.start",  # a chunk too long is cut
    "log_probs = shifted - xp.log(xp.exp(shifted).sum(+1, keepdims=True))",  # of two axes the last
    "xp, step = library(self.device), ALIGNMENT_BYTES * self.dtype.itemsize",  # room that isn't used
    "tall = g.shape[-2] > g.shape[-2]",  # the larger product, with the same result
    "return dx if (3 * rows, 2 * columns) == (H, W) else dx[:, :H, :W].copy()",  # the same numbers in a copy
}


def faults_of(name, text):
    """(file, line, column, old, new) of each fault in a file that is still Python; messages of errors have none."""
    silent = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
    said = {line for node in ast.walk(ast.parse(text)) if isinstance(node, silent)
            for line in range(node.lineno, node.end_lineno + 1)}  # fmt: skip
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        number = token.type == tokenize.NUMBER
        new = repr(2 * float(token.string) if set(".e") & set(token.string) else int(token.string) + 1) if (
            number and re.fullmatch(r"[\d.e-]+", token.string)) else INSTEAD.get(token.string)  # fmt: skip
        if new and token.start[0] not in said:
            fault = name, *token.start, token.string, new
            try:
                compile(changed(text, fault), name, "exec")
            except (SyntaxError, ValueError):  # a star before arguments
                continue
            yield fault


def changed(text, fault):
    """The text of the file with the fault in it."""
    _, line, column, old, new = fault
    lines = text.splitlines(keepends=True)
    before, after = lines[line - 1][:column], lines[line - 1][column + len(old) :]
    return "".join([*lines[: line - 1], before, new, after, *lines[line:]])


def drawn(package, seed):
    """All faults but equivalent ones, in the order in which they are drawn."""
    names = sorted(path.relative_to(package).as_posix() for place in PLACES
                   for path in ([package / place] if place.endswith(".py") else (package / place).rglob("*.py"))
                   if "cuda" not in path.parts)  # fmt: skip
    texts = {name: (package / name).read_text(encoding="utf-8") for name in names}
    found = [fault for name in names for fault in faults_of(name, texts[name])]
    random.Random(seed).shuffle(found)
    return [fault for fault in found
            if changed(texts[fault[0]], fault).splitlines()[fault[1] - 1].strip() not in EQUIVALENT]  # fmt: skip


def found_by(folder, tests):
    """The first of the tests that fails, or None."""
    # A notebook shows the text of functions: its tests notice any change.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "auto", "-p", "no:cacheprovider",
               "--ignore=tests/test_notebooks.py", *tests]  # fmt: skip
    environment = os.environ | {"CI": "true", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    except subprocess.TimeoutExpired:
        return "out of time"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else (done.returncode and f"status {done.returncode}") or None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of faults, from 0")
    parser.add_argument("--revision", default="HEAD")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        archive = subprocess.run(["git", "archive", options.revision], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        faults, near = drawn(folder / "tinyvit", options.seed), [f"tests/{one}" for one in NEAR]
        assert found_by(folder, []) is None, "the tests fail without a fault"
        for i in options.only or range(options.count):
            name, line, column, old, new = fault = faults[i]
            file = folder / "tinyvit" / name
            text = file.read_text(encoding="utf-8")
            file.write_text(changed(text, fault), encoding="utf-8")
            own = f"tests/{name.rpartition('/')[0]}/test_{file.name}"
            test = found_by(folder, [own, *near] if (folder / own).exists() else near) or found_by(folder, [])
            file.write_text(text, encoding="utf-8")
            missed += test is None
            print(f"{i:3} {name}:{line}:{column} {old} → {new}: {test or 'NOT FOUND'}", flush=True)
    print(f"{missed} not found")
    sys.exit(missed > 2)


if __name__ == "__main__":
    main()
