"""tinyvit notebooks"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.parsing import parse
from tinyvit.files import expanded, write
from tinyvit.text import printable

FIRST = "00_tour.ipynb"
INSTALLED = ("share", "tinyvit", "notebooks")  # in pip's folder for data, as in setup.cfg


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
    if os.path.lexists(target) and not target.is_dir():
        raise ValueError(f"expected a folder to copy the notebooks to, got {target}")
    if os.path.realpath(target) == os.path.realpath(source):
        raise ValueError(f"{target} is where the notebooks come from; name another folder")
    for file in files:
        blocked = in_the_way(target, target / file)
        if blocked is not None:
            raise ValueError(f"{blocked} is in the way of {target / file}; name another folder")
        if (target / file).exists() and (target / file).samefile(source / file):
            raise ValueError(f"{target / file} is where the notebooks come from; name another folder")
    changed = [file for file in files if differs(source / file, target / file)]
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
    from importlib.metadata import PackageNotFoundError, files

    try:
        installed = [file for file in files("tinyvit") or () if file.parts[-4:] == (*INSTALLED, FIRST)]
    except PackageNotFoundError:
        installed = []
    for file in installed:
        if Path(file.locate()).is_file():
            return Path(file.locate()).resolve().parent
    raise ValueError(
        "this installation has no notebooks; install tinyvit by pip, or take the folder notebooks/ of its repository"
    )


def files_of(source):
    """The files of the series: notebooks, their sources, the trained model, and what they refer to."""
    notebooks, figures = ("[0-9][0-9]_*.ipynb", "[0-9][0-9]_*.py"), ("architecture*.svg", "augmentation.png")
    about = "augmentation.md", *(f"figures/{figure}" for figure in figures)
    patterns = *notebooks, *about, "checkpoint/*", "checkpoint-cifar10/*", "checkpoint-clip/*", "results/*"
    found = [path for pattern in patterns for path in sorted(source.glob(pattern)) if path.is_file()]
    return [path.relative_to(source) for path in found]


def in_the_way(root, place):
    """A folder in place of the file, or a file in place of one of its folders below `root`; None if neither."""
    folders = [folder for folder in place.parents if folder.is_relative_to(root)]
    others = (path for path in folders if os.path.lexists(path) and not path.is_dir())
    return place if place.is_dir() else next(others, None)


def differs(ours, theirs):
    """Whether a file is there already, with other bytes."""
    return theirs.exists() and (not theirs.is_file() or theirs.read_bytes() != ours.read_bytes())
