"""The text of a benchmark, and the files that it leaves in a folder."""

import contextlib
import json
import sys

from tinyvit.bench import picture, scaling
from tinyvit.bench.run import run
from tinyvit.bench.table import case_table, heading, scaling_table
from tinyvit.files import write
from tinyvit.progress import tqdm

ROUNDS_OF_SCALING = 3


def describe(settings):
    """The settings as a dict for JSON."""
    _, _, left_out = settings.contestants
    return {
        "cases": [case.name for case in settings.cases],
        "kernels": list(settings.levels),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "precision": settings.precision,
        "left_out": left_out,
    }


def carry_out(settings, machine, with_scaling=False, show=lambda text: None):
    """Run everything; returns (the result as a dict for JSON, its text). `show` is given the text piece by piece."""
    grid = scaling.settings_for(settings, min(settings.rounds, ROUNDS_OF_SCALING)) if with_scaling else None
    stated = describe(settings) | ({"rounds_of_scaling": grid.rounds} if grid else {})
    result = {"machine": machine, "settings": stated, "cases": []}
    texts = [heading(machine, stated)]
    with progress(settings.turns + (grid.turns if grid else 0)) as bar:

        def tell(text):
            with tqdm.external_write_mode(sys.stdout):
                show(text)

        tell(texts[0])
        for case in run(settings, bar.update):
            result["cases"].append(case)
            texts.append(case_table(case))
            tell("\n" + texts[-1])
        if grid:
            result["scaling"] = scaling.measure(grid, bar.update)
            texts.append(scaling_table(result["scaling"]))
            tell("\n" + texts[-1])
    return result, "\n\n".join(texts) + "\n"


@contextlib.contextmanager
def progress(turns):
    """A progress bar on stderr, if that is a terminal."""
    with tqdm(
        total=turns, unit=" turns", disable=not sys.stderr.isatty(), leave=False, dynamic_ncols=True,
        bar_format="{percentage:3.0f} % |{bar}| {n}/{total} turns, {remaining} left",
    ) as bar:  # fmt: skip
        yield bar


def failures(result):
    """Whether a measurement failed that should have worked."""
    rows = [row for line in result["cases"] + result.get("scaling", []) for row in line["results"]]
    cases = result["cases"]
    return any(row["failed"] for row in rows) or any(one["floor"]["problems"] or one["disagreement"] for one in cases)


def save(result, text, folder):
    """Write bench.json, bench.txt and, if it was measured, scaling.png; returns their names."""
    content = (json.dumps(result, indent=1, allow_nan=False) + "\n").encode()
    files = {"bench.json": content, "bench.txt": text.encode()}
    if "scaling" in result:
        machine, settings = result["machine"], result["settings"]
        files["scaling.png"] = picture.draw(
            result["scaling"],
            f"{machine['processor']}, {settings['threads']} threads, {settings['precision']}; "
            f"what does not grow: {', '.join(f'{axis} {size}' for axis, size in scaling.MIDDLE.items())}",
        )
    for name, content in files.items():
        write(folder / name, content)
    return list(files)
