"""Results as text for a terminal of 120 columns."""

from tinyvit.training.display import table

COLUMNS = (
    "computed by", "median", "quartiles", "{unit}/s", "PyTorch/this", "of the floor", "peak memory", "less libraries",
)  # fmt: skip
BASE = "torch"  # whose time the others' are compared with


def heading(machine, settings):
    """The lines above the table."""
    versions = [f"Python {machine['python']}", f"NumPy {machine['numpy']} with {machine['blas'] or 'an unknown BLAS'}"]
    extras = (("numba", "numba"), ("torch", "PyTorch"))
    versions += [f"{title} {machine[name]}" for name, title in extras if machine[name]]
    cores = machine["cores"]
    load = "" if machine["load"] is None else f", load {machine['load']:.1f} before"
    rows = [
        ("processor", f"{machine['processor'] or 'unknown'}, {cores} core{'s' * (cores > 1)}"
                      f"{load}, {size(machine['memory_bytes'])} of memory"),
        ("computed", f"in {settings['precision']} with up to {settings['threads']} "
                     f"thread{'s' * (settings['threads'] > 1)}, in turns, {rounds_of(settings)}"),
        ("versions", ", ".join(versions)),
    ]  # fmt: skip
    return table(rows) + "".join(f"\n  {why}" for why in settings["left_out"].values())


def rounds_of(settings):
    """How many rounds the cases had, and the points of `scaling` if there were any."""
    rounds, more = settings["rounds"], settings.get("rounds_of_scaling")
    plural = "s" * (rounds > 1)
    return f"{rounds} round{plural}" if more is None else f"{rounds} round{plural} ({more} for scaling)"


def case_table(result):
    """One case: one line per contestant, the floor, and what went wrong."""
    rows, floor = result["results"], result["floor"]
    names = {row["name"]: row["title"] for row in rows}
    base = BASE if any(row["name"] == BASE and row["median"] for row in rows) else None
    header = [cell.format(unit=result["unit"]) for cell in COLUMNS]
    lines = [cells(row, base) for row in rows if row["median"] is not None]
    if floor["seconds"] is not None:
        rate = f"at {floor['operations_per_second'] / 1e9:,.0f} Gflop/s"
        lines.append(["the floor", duration(floor["seconds"]), rate, *5 * [""]])
    if base is None:
        for line in (header, *lines):
            del line[4]
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]

    def text(line):
        padded = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        return ("  " + "  ".join(padded)).rstrip()

    rule = ["─" * width for width in widths]
    problems = [f"  {names[row['name']]}: {row['problem']}" for row in rows if row["problem"]]
    problems += [f"  {name}: {problem}" for name, problem in floor["problems"].items()]
    problems += [f"  {result['disagreement']}"] if result["disagreement"] else []
    title = f"{result['case']}: {result['title']}; {2 * result['multiply_adds'] / 1e9:,.1f} Gflop"
    return "\n".join([title, text(header), text(rule), *map(text, lines), *problems])


def scaling_table(lines):
    """The points of `scaling.measure`: a line each, with time and memory of every contestant."""
    titles = {row["name"]: row["title"] for line in lines for row in line["results"]}
    header = "".join(f"  {title:>20}  {'memory':>9}" for title in titles.values())
    texts = [f"{'a training step with':<22}{header}"]
    for line in lines:
        cells = [(f"{duration(row['median'])}", size(grown(row))) if row["median"] else ("–", "–")
                 for row in line["results"]]  # fmt: skip
        columns = "".join(f"  {time:>20}  {memory:>9}" for time, memory in cells)
        texts.append(f"  {line['axis']:<8}{line['size']:>7,}     {columns}")
    problems = {f"  {line['axis']} {line['size']:,}, {row['title']}: {row['problem']}": None
                for line in lines for row in line["results"] if row["problem"]}  # fmt: skip
    return "\n".join([*texts, *problems])


def cells(row, base):
    """The cells of a contestant's line."""
    against = row["ratios"].get(base) if row["name"] != base else 1.0
    return [
        row["title"],
        duration(row["median"]),
        duration(*row["quartiles"]),
        number(row["per_second"]),
        "–" if against is None else f"{against:.2f}",
        "–" if row["of_floor"] is None else f"{100 * row['of_floor']:.0f} %",
        size(row["peak_bytes"]),
        size(grown(row)),
    ]


def grown(row):
    """Memory that the work took: the process's peak minus its use before; None if that isn't known."""
    peak, before = row["peak_bytes"], row["bytes_before"]
    return None if peak is None or before is None else peak - before


def duration(*seconds):
    """Seconds, or a range of them, with three significant digits, in ms below one second."""
    unit, scale = ("s", 1) if seconds[0] >= 1 else ("ms", 1e3)
    return "–".join(three_digits(scale * value) for value in seconds) + f" {unit}"


def three_digits(value):
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{decimals}f}"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def size(count):
    """Bytes in MB or GB, or a dash."""
    return "–" if count is None else f"{count / 1e9:,.1f} GB" if count >= 1e10 else f"{count / 1e6:,.0f} MB"
