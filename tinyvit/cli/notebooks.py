"""tinyvit notebooks"""

from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.parsing import parse
from tinyvit.files import expanded, write
from tinyvit.text import printable

FIRST = "00_tour.ipynb"
INSTALLED = ("share", "tinyvit", "notebooks")  # in pip's folder for data, as in setup.cfg
PATTERNS = (
    "[0-9][0-9]_*.ipynb", "[0-9][0-9]_*.py", "augmentation.md", "figures/architecture*.svg", "figures/augmentation.png",
    "checkpoint*/*", "results/*",
)  # fmt: skip


@dataclass(frozen=True)
class NotebooksOptions:
    """Copy the series of notebooks, with the small trained model that they look into, to a folder of your own."""

    folder: Annotated[Positional[str], arg(metavar="DIR")] = "tinyvit-notebooks"
    """The folder, which is made if there is none."""
    force: bool = False
    """Replace notebooks in the folder that you have changed: your changes are lost."""


def notebooks(rest):
    """tinyvit notebooks [DIR]"""
    options = parse(NotebooksOptions, rest, "tinyvit notebooks")
    source, target = series(), expanded(options.folder)
    files = files_of(source)
    there = [file for file in files if (target / file).exists()]
    changed = [file for file in there if (target / file).read_bytes() != (source / file).read_bytes()]
    if changed and not options.force:
        raise ValueError(
            f"{len(changed)} of the files in {target} are not as they come, and are kept: "
            f"{', '.join(map(str, changed))}; name another folder, or replace them by --force"
        )
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        write(target / file, (source / file).read_bytes())
    count = sum(file.suffix == ".ipynb" for file in files)
    print(
        f"{count} notebooks, and a small trained model to look into, are in {printable(target)}\n"
        f"  pip install 'tinyvit[notebooks]'    once\n"
        f"  jupyter lab {printable(target / FIRST)}"
    )


def series():
    """The folder of the notebooks: in a checkout beside the package, else where pip has put it."""
    beside = Path(__file__).parents[2] / "notebooks"
    if (beside / FIRST).is_file():
        return beside
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("tinyvit") or ():
            if file.parts[-4:] == (*INSTALLED, FIRST) and file.locate().is_file():
                return file.locate().resolve().parent
    raise ValueError(
        "this installation has no notebooks; install tinyvit by pip, or take the folder notebooks/ of its repository"
    )


def files_of(source):
    """The files of the series: notebooks, their sources, the trained model, and what they refer to."""
    found = [path for pattern in PATTERNS for path in sorted(source.glob(pattern)) if path.is_file()]
    return [path.relative_to(source) for path in found]
