"""How the package's docstrings begin."""

import ast
import re
from pathlib import Path

import tinyvit

FORBIDDEN = re.compile(r"(What|Of|The same|Where|In the)\b")
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef


def test_docstrings_begin_with_what_is_returned_or_done():
    found = [
        f"{path}: {text.splitlines()[0]}" for path in sorted(Path(tinyvit.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, DOCUMENTED)
        if (text := ast.get_docstring(node)) and FORBIDDEN.match(text)
    ]  # fmt: skip
    assert found == []
