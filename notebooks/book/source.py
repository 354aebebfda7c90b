"""The contents of the annotated source: the files of each page, their definitions, and the formulas of each.

Source files are read, not imported, so that nothing runs.
"""

import ast
import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

NOTEBOOKS = Path(__file__).resolve().parents[1]
ROOT = NOTEBOOKS.parent
PACKAGE = ROOT / "tinyvit"

# The files of functional/ by what they are about. One that is missing here is shown under `OTHERS`, and a test fails.
OPERATIONS = {
    "Linear layers and activations": "linear gelu relu tanh sigmoid",
    "Attention": "softmax attention tiled_attention packing heads relative_bias rope dot_products",
    "Normalisation": "layernorm batchnorm groupnorm layer_scale modulation",
    "Patches, tokens, positions":
        "patches tubelets tokens embedding conditions positions masking merge_patches shifted_windows",
    "Convolution and pooling": "conv conv_transpose pooling pad windows scale_channels interpolation",
    "Dropout": "dropout",
    "Diffusion": "diffusion",
    "Losses": "cross_entropy pixel_cross_entropy distillation dino contrastive variational_bound",
    "Optimizer steps and sums": "adam muon flat sums chunks cast gathering",
}
OTHERS = "More operations"
FOLDERS = {"nn": "Layers", "models": "Architectures", "optim": "Optimizers"}
FILES = ("minimal", "gradcheck", "dispatch", "operands")


class Page(NamedTuple):
    """A page of the annotated source that introduces files; each has a page of its own below it."""

    document: str
    title: str
    files: list  # of paths without .py, relative to the package


class Definition(NamedTuple):
    """A function or class at the top of a file, or the imports or other statements between them, without a name."""

    name: str
    kind: str  # "operation", "function", "class", "imports" or "statements"
    code: str  # without its docstring
    doc: str
    methods: tuple


class Formula(NamedTuple):
    """A formula that a notebook tags with the name of the function that computes it."""

    latex: str
    document: str
    heading: str


@cache
def pages():
    """The pages of the annotated source in their order."""
    present = sorted(path.stem for path in (PACKAGE / "functional").glob("*.py") if path.stem != "__init__")
    groups = {title: [name for name in names.split() if name in present] for title, names in OPERATIONS.items()}
    groups[OTHERS] = [name for name in present if not any(name in names for names in groups.values())]
    found = [
        Page(f"source/{title.lower().replace(',', '').replace(' ', '-')}", title, [f"functional/{n}" for n in names])
        for title, names in groups.items() if names
    ]  # fmt: skip
    for folder, title in FOLDERS.items():
        names = sorted(path.stem for path in (PACKAGE / folder).glob("*.py") if path.stem != "__init__")
        if names:
            found.append(Page(f"source/{folder}", title, [f"{folder}/{name}" for name in names]))
    return [*found, Page("source/whole", "On one page, and how it is checked", list(FILES))]


def document_of(file):
    """The document of a source file, given relative to the package and without .py."""
    return f"source/files/{file}"


def page_of(path):
    """(document, anchor) of a file or folder of the package, given relative to the repository; else (None, None)."""
    if not path.startswith("tinyvit"):
        return None, None
    inside = path.removeprefix("tinyvit").removeprefix("/").removesuffix(".py")
    if any(inside in page.files for page in pages()):
        return document_of(inside), None
    if inside in FOLDERS:
        return f"source/{inside}", None
    if inside == "functional":
        return "source/index", None
    return "source/package", inside.split("/")[0] or None


@cache
def definitions(file):
    """The docstring of a source file and its definitions, in their order."""
    text = (PACKAGE / f"{file}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    doc = ast.get_docstring(tree) or ""
    end = tree.body[0].end_lineno if doc else 0
    found = []

    def statements(until):
        code = "\n".join(lines[end:until]).strip("\n")
        if code.strip():
            imports = all(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.parse(code).body)
            found.append(Definition("", "imports" if imports else "statements", code, "", ()))

    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            while start > end and lines[start - 1].startswith("#"):  # a comment about it
                start -= 1
            statements(start)
            found.append(definition(node, lines[start : node.end_lineno], start))
            end = node.end_lineno
    statements(len(lines))
    return doc, found


def definition(node, lines, start):
    """The definition of a node of the syntax tree that stands in `lines`, the first of which has number `start`."""
    doc = ast.get_docstring(node) or ""
    if doc and len(node.body) > 1:
        text = node.body[0]
        after = text.end_lineno - start
        while not lines[after].strip():
            after += 1
        lines = lines[: text.lineno - 1 - start] + lines[after:]
    methods = ()
    if isinstance(node, ast.ClassDef):
        kind = "class"
        # Once each: a property and its setter share a name.
        methods = tuple(dict.fromkeys(part.name for part in node.body if isinstance(part, ast.FunctionDef)))
    else:
        kind = "operation" if any("operation" in ast.unparse(one) for one in node.decorator_list) else "function"
    return Definition(node.name, kind, "\n".join(lines), inspect.cleandoc(doc), methods)


@cache
def names():
    """For every name that formulas and docstrings use, `softmax` or `Block.forward`, the object that has it."""
    found = {}
    for page in pages():
        for file in page.files:
            module = "tinyvit." + file.replace("/", ".")
            for one in definitions(file)[1]:
                if one.name:
                    found.setdefault(one.name, f"{module}.{one.name}")
                for method in one.methods:
                    found.setdefault(f"{one.name}.{method}", f"{module}.{one.name}.{method}")
    return found


@cache
def notebooks():
    """The notebooks' documents, by number; where two have one, the last."""
    return {path.name[:2]: path.stem for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))}


@cache
def formulas():
    """The formulas of every function that has some, by its name."""
    found = {}
    for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        heading = ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown":
                continue
            text = "".join(cell["source"])
            for match in re.finditer(r"^#+ (?P<heading>[^\n]*)|\$\$(?P<latex>.*?)\$\$", text, re.MULTILINE | re.DOTALL):
                if match["latex"] is None:
                    heading = match["heading"]
                    continue
                latex, computed_by = without_tags(match["latex"])
                for name in computed_by:
                    found.setdefault(name, []).append(Formula(latex, path.stem, heading))
    return found


def without_tags(latex):
    """A formula without its tags, and the names in them."""
    pattern = r"\s*\\tag\{(.*?)\}"
    tagged = [name.strip() for tag in re.findall(pattern, latex) for name in tag.replace(r"\_", "_").split(",")]
    return re.sub(pattern, "", latex).strip(), tagged


def blocks(doc):
    """(kind, text) of the parts of a docstring: "words", "formula" for what is indented, and for arguments that are
    explained in two columns "columns", with pairs instead of a text."""
    for block in re.split(r"\n\s*\n", doc):
        lines = block.splitlines()
        if not block.strip():
            continue
        columns = [re.match(r"(\S.*?) {2,}(\S.*)", line) for line in lines]
        if all(line.startswith("    ") for line in lines) or any(line.startswith("- ") for line in lines):
            yield "formula", inspect.cleandoc(block)
        elif columns[0] and all(match or line.startswith("  ") for match, line in zip(columns, lines)):
            pairs = []
            for match, line in zip(columns, lines):
                if match:
                    pairs.append(match.groups())
                else:
                    pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}")
            yield "columns", pairs
        else:
            yield "words", " ".join(line.strip() for line in lines)
