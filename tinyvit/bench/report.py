"""The text of a benchmark, and the files that it leaves in a folder."""

import json
import sys

from tinyvit.bench import scaling
from tinyvit.bench.run import run
from tinyvit.bench.table import case_table, heading, scaling_table
from tinyvit.files import write
from tinyvit.progress import tqdm


def carry_out(settings, machine, with_scaling=False, show=lambda text: None):
    """Run everything; returns (the result as a dict for JSON, its text). `show` is given the text piece by piece."""
    grid = scaling.settings_for(settings) if with_scaling else None
    stated = {
        "cases": [case.name for case in settings.cases],
        "kernels": list(settings.levels),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "precision": settings.precision,
        "left_out": settings.contestants[-1],
        **({"rounds_of_scaling": grid.rounds} if grid else {}),
    }
    result, texts = {"machine": machine, "settings": stated, "cases": []}, []
    turns = settings.turns + (grid.turns if grid else 0)
    with tqdm(total=turns, unit=" turns", disable=not sys.stderr.isatty(), leave=False, dynamic_ncols=True) as bar:

        def tell(text):
            texts.append(text)
            with tqdm.external_write_mode(sys.stdout):
                show(text)

        tell(heading(machine, stated))
        for case in run(settings, bar.update):
            result["cases"].append(case)
            tell(f"\n{case_table(case)}")
        if grid:
            result["scaling"] = scaling.measure(grid, bar.update)
            tell(f"\n{scaling_table(result['scaling'])}")
    return result, "\n".join(texts) + "\n"


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
        settings, middle = result["settings"], ", ".join(f"{axis} {size}" for axis, size in scaling.MIDDLE.items())
        caption = f"{result['machine']['processor']}, {settings['threads']} threads, {settings['precision']}"
        files["scaling.png"] = scaling.draw(result["scaling"], f"{caption}; what does not grow: {middle}")
    for name, content in files.items():
        write(folder / name, content)
    return list(files)
