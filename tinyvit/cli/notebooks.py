"""tinyvit notebooks"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.files import check_folder, expand_path, write
from tinyvit.text import list_names, printable
from tinyvit.training.run_folder import FIRST_NOTEBOOK, notebooks_folder

PATTERNS = (
    "[0-9][0-9]_*.ipynb", "[0-9][0-9]_*.py", "augmentation.md", "figures/architecture*.svg", "figures/augmentation.png",
    "checkpoint*/*", "results/*",
)  # fmt: skip


@dataclass(frozen=True)
class Notebooks:
    """Copy the series of notebooks, with the small trained model that they look into, to a folder of your own."""

    folder: Annotated[Positional[str], arg(metavar="[DIR]")] = "tinyvit-notebooks"
    """The folder, which is made if there is none."""
    force: bool = False
    """Replace notebooks in the folder that you have changed: your changes are lost."""

    def __call__(self):
        source, target = notebooks_folder(), expand_path(self.folder)
        if source is None:
            raise ValueError("this installation has no notebooks; install tinyvit by pip, or take notebooks/ of its "
                             "repository")  # fmt: skip
        files = files_of(source)
        write_all({target / file: (source / file).read_bytes() for file in files}, self.force)
        count = sum(file.suffix == ".ipynb" for file in files)
        print(
            f"{count} notebooks, and a small trained model to look into, are in {printable(target)}\n"
            f"  pip install 'tinyvit[notebooks]'    once\n"
            f"  jupyter lab {printable(target / FIRST_NOTEBOOK)}"
        )


def write_all(files, force):
    """Write {path: bytes}; ValueError for files that are there with other contents, unless forced."""
    kept = [] if force else [path for path, new in files.items() if path.exists() and path.read_bytes() != new]
    if kept:
        names = list_names(map(str, kept))
        raise ValueError(f"files with other contents are there already: {names}; choose another folder, "
                         "or replace them with --force")  # fmt: skip
    for path, content in files.items():
        check_folder(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content)


def files_of(source):
    """The files of the series: notebooks, their sources, the trained model, and what they refer to."""
    found = [path for pattern in PATTERNS for path in sorted(source.glob(pattern)) if path.is_file()]
    return [path.relative_to(source) for path in found]
