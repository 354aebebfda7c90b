"""A process that computes on command: `python -m tinyvit.bench.worker`.

It reads one command per line and answers each with a line, both JSON:

    {"do": "prepare", "work": …, "case": …, "precision": …, "threads": …}   {"before": bytes}
    {"do": "warm", "seconds": s}                                             {"seconds": a step's, "value": the 2nd's}
    {"do": "turn", "repeats": n}                                             {"seconds": a step's, "value": the largest}
    {"do": "peak"}                                                           {"peak": bytes}

or, where that can't be done, {"problem": a line}. It ends at once, in the middle of a step if need be, when its input
is closed.
"""

import json
import os
import queue
import sys
import threading
import time
from functools import partial

from tinyvit.bench import memory
from tinyvit.bench.cases import from_dict

LEAST_STEPS = 2  # to warm up: the first allocates, the second finds everything in place


def main():
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    commands = queue.Queue()
    threading.Thread(target=read_into, args=(commands,), daemon=True).start()
    worker = Work()
    while True:
        command = commands.get()
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            answer = {"problem": in_a_line(error)}
        print(json.dumps(answer), file=channel, flush=True)


def read_into(commands):
    for line in sys.stdin:
        commands.put(json.loads(line))
    os._exit(0)


class Work:
    """The work of a process; its methods are the commands."""

    def prepare(self, work, case, precision, threads):
        make = MAKERS[work](threads)
        before = memory.resident()  # libraries are loaded, nothing is computed yet
        self.step = make(from_dict(case), precision)
        return {"before": before}

    def warm(self, seconds):
        """Take steps for this many seconds, at least two."""
        times, values = [], []
        while len(times) < LEAST_STEPS or sum(times) < seconds:
            started = time.perf_counter()
            values.append(self.step())
            times.append(time.perf_counter() - started)
        return {"seconds": min(times), "value": values[LEAST_STEPS - 1]}

    def turn(self, repeats):
        started = time.perf_counter()
        values = [self.step() for _ in range(repeats)]
        return {"seconds": (time.perf_counter() - started) / repeats, "value": max(values)}

    def peak(self):
        return {"peak": memory.peak()}


def tinyvit(threads):  # how many, and which kernels, is in its environment
    from tinyvit.bench.steps import load, prepare

    load()
    return prepare


def products(threads):
    from tinyvit.bench.products import prepare

    return prepare


def torch(threads, compiled=False, **options):
    from tinyvit.bench.torch_steps import load, prepare

    load()
    return partial(prepare, threads=threads, compiled=compiled, **options)


def torch_products(threads):
    from tinyvit.bench.torch_steps import products

    return partial(products, threads=threads)


MAKERS = {"tinyvit": tinyvit, "products": products, "torch": torch, "compile": partial(torch, compiled=True),
          "channels_last": partial(torch, memory_format="channels_last"), "torch_products": torch_products}  # fmt: skip


def in_a_line(error, longest=110):
    """An error in one line of limited length."""
    text = next((" ".join(line.split()) for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        text = f"out of memory; take a smaller --batch-size ({text.rpartition('DefaultCPUAllocator: ')[2]})"
    else:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


if __name__ == "__main__":
    main()
