"""Where a step's time goes: kernel by kernel, and matrix product by matrix product."""

from collections import defaultdict
from contextlib import contextmanager
from math import prod

from tinyvit.backend import library, products_in
from tinyvit.bench.gpu_report.card import synchronize

SHOWN = 40

# A driver lets about 1,024 commands wait for the card; the next launch then blocks until the card has taken one. From
# there on the card works as fast as Python queues, and the gap between two launches would count as a kernel's time,
# since events surround it. Each launch here is three commands: an event, the kernel, an event. So after PENDING of them
# the queue is emptied, and the next ones wait behind long products again. What is left of the 1,024 is for those
# products and for CuPy's own kernels, which nobody counts.
PENDING = 256
SIDE, SMALL, PRODUCTS = 8192, 64, 3  # each takes about 20 ms in float32: longer than PENDING launches are queued


def of_a_step(step, settings):
    """{"bytes": what kernels and products read and wrote, "late": …, "kernels": the longest ones}.

    Each kernel's bytes are those of the arrays that it was given, each once; a product's operations are its
    multiplications and additions. What CuPy computes by itself is not seen: it is in what is left of the step's time.
    `late` counts the times at which the card had finished everything before it was given more: where it isn't 0,
    times of kernels contain gaps.
    """
    if settings.device == "cpu":
        return {"bytes": None, "late": 0, "kernels": []}
    from tinyvit.kernels.cuda import source

    clock = Clock(settings.device, SMALL if settings.dry_run else SIDE)
    with source.watching(clock.around):
        step()
    clock.wait()
    found = defaultdict(lambda: [0, 0, 0, 0.0])
    for name, operations, size, begun, ended in clock.launches:
        entry = found[name]
        entry[0] += 1
        entry[1] += operations
        entry[2] += size
        entry[3] += clock.cupy.cuda.get_elapsed_time(begun, ended) / 1e3
    keys = "launches", "operations", "bytes", "seconds"
    rows = [{"name": name, **dict(zip(keys, entry))} for name, entry in found.items()]
    rows.sort(key=lambda row: -row["seconds"])
    return {"bytes": sum(row["bytes"] for row in rows), "late": clock.late, "kernels": rows[:SHOWN]}


class Clock:
    """Events around each launch of a step, at most PENDING of which wait for the card at a time.

    launches   (name, operations, bytes, event before, event after) of each
    """

    def __init__(self, device, side):
        self.device, self.cupy, self.launches, self.late = device, library(device), [], 0
        self.operand = self.cupy.ones((side, side), "float32")
        self.result = self.cupy.empty((side, side), "float32")
        self.lead = None  # an event after the products that keep the card busy
        self.leading = False

    @contextmanager
    def around(self, name, arrays):
        if self.leading:  # the products that keep the card busy are launched like all others
            yield
            return
        if len(self.launches) % PENDING == 0:
            self.wait()
            self.keep_busy()
        begun, ended = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        begun.record()
        yield
        ended.record()
        self.launches.append((*described(name, arrays), sum(array.nbytes for array in arrays), begun, ended))

    def keep_busy(self):
        """Queue products that take the card longer than it takes to queue the next launches."""
        from tinyvit.kernels.cuda.products import multiply

        self.leading = True
        with products_in("float32"):
            for _ in range(PRODUCTS):
                multiply(self.operand, self.operand, self.result)
        self.leading = False
        self.lead = self.cupy.cuda.Event()
        self.lead.record()

    def wait(self):
        """Empty the queue; first note whether the products ended while launches were still being queued."""
        if self.lead is not None:
            self.late += self.lead.done
        synchronize(self.device)


def described(name, arrays):
    """A launch's name, which for products contains their shapes, and its multiplications and additions, or 0."""
    if name not in ("product", "products"):
        return name, 0
    a, b, out = arrays
    (*batches, m, k), n = a.shape, b.shape[-1]
    many = f"{prod(batches)} of " if batches else ""
    return f"product {many}{m}×{k}×{n}, {short(a)} → {short(out)}", 2 * prod(batches) * m * k * n


def short(x):
    return {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[str(x.dtype)]
