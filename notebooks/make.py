"""Make NN_name.ipynb, with its outputs, from NN_name.py, which is what is written and reviewed.

    python notebooks/make.py               all of them
    python notebooks/make.py 01 02         those whose names begin so

Each runs in a kernel of its own, in this folder. The picture of the architecture is drawn anew as well, with the part
framed that a notebook is about. The same source gives the same bytes where it gives the same outputs:
cells are numbered, and no time, no version and no name of a machine is kept. Needs the extra `notebooks`.
"""

import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
SECONDS = 60  # that a notebook may take

ARCHITECTURE = FOLDER / "figures" / "architecture.svg"
# By notebook: left, top, width and height of a frame.
HERE = {"04": (4, 114, 692, 130), "05": (2, 2, 696, 326), "11": (298, 118, 144, 98)}


def sources(beginnings=()):
    """The notebooks' sources in their order; ValueError if a name begins like none of them."""
    every = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
    for beginning in beginnings:
        if not any(path.name.startswith(beginning) for path in every):
            raise ValueError(f"no notebook begins with {beginning!r}; there are: {', '.join(p.stem for p in every)}")
    return [path for path in every if not beginnings or path.name.startswith(tuple(beginnings))]


def executed(source):
    """The notebook of a source, run from top to bottom; raises nbclient's CellExecutionError where a cell fails."""
    notebook = jupytext.read(source)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
    NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": str(FOLDER)}}).execute()
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}  # without the kernel's version
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs):
    """The outputs with what was printed in one piece, which comes in as many as it took time to print."""
    whole = []
    for output in outputs:
        if whole and output.output_type == whole[-1].output_type == "stream" and output.name == whole[-1].name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def framed(left, top, width, height):
    """The picture of the architecture with a frame around the part where one is."""
    frame = (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="10" fill="none" stroke="#c22" '
        f'stroke-width="3" stroke-dasharray="9 5"/><text x="{left + width // 2}" y="{top + 18}" class="k">'
        "you are here</text>\n</svg>"
    )
    return ARCHITECTURE.read_text().replace("</svg>", frame)


def main(beginnings):
    for number, frame in HERE.items():
        ARCHITECTURE.with_stem(f"architecture-{number}").write_text(framed(*frame))
    for source in sources(beginnings):
        start = time.perf_counter()
        notebook = executed(source)
        seconds = time.perf_counter() - start
        path = source.with_suffix(".ipynb")
        nbformat.write(notebook, path)
        slow = f": longer than the {SECONDS} s that it may take" if seconds > SECONDS else ""
        print(f"{path.name}: {len(notebook.cells)} cells, {path.stat().st_size / 1e3:.0f} kB, {seconds:.0f} s{slow}")


if __name__ == "__main__":
    main(sys.argv[1:])
