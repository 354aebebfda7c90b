"""Where a step's time goes, kernel by kernel."""

from collections import defaultdict
from contextlib import contextmanager

from tinyvit import functional as F
from tinyvit.backend import library
from tinyvit.bench.gpu_report.card import synchronize

SHOWN = 25
SIDE, SMALL, PRODUCTS = 8192, 64, 3  # each product takes 20 ms or more in float32: in all as long as queueing a step


def of_a_step(step, settings):
    """{"bytes": what the kernels and products read and wrote, "kernels": the longest ones}.

    Each kernel's bytes are those of the arrays that it was given, each once. What CuPy computes by itself is not seen:
    it is in what is left of the step's time.
    """
    device = settings.device
    if device == "cpu":
        return {"bytes": None, "kernels": []}
    from tinyvit.kernels.cuda import source

    cupy, launches = library(device), []

    @contextmanager
    def watch(name, arrays):
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        yield
        ended.record()
        launches.append((name, sum(array.nbytes for array in arrays), begun, ended))

    x = cupy.ones((SMALL if settings.dry_run else SIDE,) * 2, "float32")
    for _ in range(PRODUCTS):  # the card works on these while the step is queued, and then on kernel after kernel
        F.linear(x, x)
    with source.watching(watch):
        step()
    synchronize(device)
    found = defaultdict(lambda: [0, 0, 0.0])
    for name, size, begun, ended in launches:
        entry = found[name]
        entry[0] += 1
        entry[1] += size
        entry[2] += cupy.cuda.get_elapsed_time(begun, ended) / 1e3
    rows = sorted(
        ({"name": name, "launches": n, "bytes": size, "seconds": taken} for name, (n, size, taken) in found.items()),
        key=lambda row: -row["seconds"],
    )
    return {"bytes": sum(row["bytes"] for row in rows), "kernels": rows[:SHOWN]}
