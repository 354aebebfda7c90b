"""Results as text for a terminal of 120 columns."""

BASE = "torch"  # whose time the others' are compared with


def heading(machine, settings):
    """The lines above the table."""
    names = {"python": "Python", "numpy": "NumPy", "blas": "BLAS", "numba": "numba", "torch": "PyTorch", "timm": "timm"}
    load = "" if machine["load"] is None else f", load {machine['load']:.1f} before"
    return "\n".join([
        f"  processor   {machine['processor'] or 'unknown'}, {count(machine['cores'], 'core')}{load}, "
        f"{size(machine['memory_bytes'])} of memory",
        f"  computed    in float32 with up to {count(settings['threads'], 'thread')}, in turns, "
        f"{count(settings['rounds'], 'round')}",
        f"  versions    {', '.join(f'{title} {machine[name]}' for name, title in names.items() if machine[name])}",
        *(f"  {why}" for why in settings["left_out"].values()),
    ])  # fmt: skip


def case_table(result):
    """One case: one line per contestant, the floor, and what went wrong."""
    rows, floor = result["results"], result["floor"]
    header = ["computed by", "median", "quartiles", "samples/s", "PyTorch/this", "of the floor", "peak memory",
              "less libraries"]  # fmt: skip
    lines = [cells(row) for row in rows if row["median"] is not None]
    if floor["seconds"] is not None:
        rate = f"at {floor['operations_per_second'] / 1e9:,.0f} Gflop/s"
        lines.append(["the floor", duration(floor["seconds"]), rate, *5 * [""]])
    if not any(row["name"] == BASE and row["median"] for row in rows):
        header, *lines = ([*line[:4], *line[5:]] for line in [header, *lines])
    problems = {row["title"]: row["problem"] for row in rows if row["problem"]} | floor["problems"]
    return "\n".join([
        f"{result['case']}: {result['title']}; {2 * result['multiply_adds'] / 1e9:,.1f} Gflop", *columns(header, lines),
        *(f"  {name}: {problem}" for name, problem in problems.items()),
        *([f"  {result['disagreement']}"] if result["disagreement"] else []),
    ])  # fmt: skip


def columns(header, rows):
    """The lines of a table: rows of text below a header, the first column on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    for row in (header, ["─" * width for width in widths], *rows):
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths))
        yield "  ".join(["", first.lstrip().ljust(widths[0]), *others]).rstrip()


def cells(row):
    """The cells of a contestant's line."""
    against = 1.0 if row["name"] == BASE else row["ratios"].get(BASE)
    return [
        row["title"],
        duration(row["median"]),
        "–".join(map(duration, row["quartiles"])),
        f"{row['per_second']:,.0f}" if row["per_second"] >= 100 else f"{row['per_second']:.3g}",
        "–" if against is None else f"{against:.2f}",
        "–" if row["of_floor"] is None else f"{100 * row['of_floor']:.0f} %",
        size(row["peak_bytes"]),
        size(memory_growth(row)),
    ]


def memory_growth(row):
    """Memory that the work took: the process's peak minus its use before; None if that isn't known."""
    peak, before = row["peak_bytes"], row["bytes_before"]
    return None if peak is None or before is None else peak - before


def count(number, noun):
    return f"{number} {noun}{'s' * (number != 1)}"


def duration(seconds):
    """Seconds with three significant digits, in ms below one second."""
    value, unit = (seconds, "s") if seconds >= 1 else (1e3 * seconds, "ms")
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def size(bytes):
    """Bytes in MB or GB, or a dash."""
    return "–" if bytes is None else f"{bytes / 1e9:,.1f} GB" if bytes >= 1e10 else f"{bytes / 1e6:,.0f} MB"
