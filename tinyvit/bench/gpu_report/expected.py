"""The time that each kernel and matrix product of a training step should take on a GPU.

What a step launches is recorded, by whatever is imported as CuPy, and so this follows the code. A launch takes what is
longest of: its arrays moved once, its products computed, its instructions issued. `python tests/expected_times.py`
records a step of the recipe cifar10 on the tests' stand-in for CuPy, without a GPU.
"""

import re
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple

from tinyvit.bench.gpu_report.profile import described
from tinyvit.kernels.cuda.compiled import compiled
from tinyvit.kernels.cuda.source import read


class Card(NamedTuple):
    """Peaks of a card, per second, and how much of each a good kernel reaches."""

    name: str
    bandwidth: float              # bytes
    tensor_cores: float = 989e12  # operations in bfloat16 or float16, dense
    ordinary_cores: float = 67e12  # operations in float32
    exponentials: float = 132 * 16 * 1.755e9
    instructions: float = 132 * 4 * 1.755e9  # of a warp: four a cycle on each of 132 SMs


CARDS = Card("H200", 4.8e12), Card("H100", 3.35e12)
REACHED = {"memory": 0.88, "products": 0.65, "exponentials": 0.75, "instructions": 0.75}
WARPS = 16  # of an SM, four for each scheduler, from which on instructions hardly wait for those before them
START = 1.5e-6  # seconds from the end of one kernel to the first work of the next, queued behind it

# Of the kernels of attention, by a part of their names: products of (Nq, Nk, d), and instructions per score that are no
# product (scale, maximum, exponential, sum, rounding), by hand from the source. The first part that fits counts.
ATTENTION = {"forward": (2, 10), "attention_dq": (3, 10), "dq": (4, 10), "dk_dv": (4, 10), "backward": (5, 16)}

# Kernels that write some of the arrays that they read, and the places of these among their arrays.
IN_PLACE = {"linear_add_bias": (0,), "adam_step": (0, 2, 3), "move_average": (0,)}

# An SM of compute capability 9.0.
REGISTERS, SHARED, THREADS, BLOCKS = 65536, 228 * 1024, 2048, 32
TENSOR_CORES = re.compile(r"\bmultiply\w*\(|\bmma\b")  # in a source: a product of fragments, as nvidia.cuh calls it


class Launch(NamedTuple):
    name: str
    arrays: list               # what it was given
    source: object = None      # a `Source` and its definitions, or None for a product of cuBLAS
    definitions: dict = {}     # noqa: RUF012 (only read)
    threads: int = 0           # of a block
    blocks: int = 0


@contextmanager
def recording(launches):
    """Inside this, every launch of a kernel or product is appended to a list."""
    from tinyvit.kernels.cuda import source

    launch = source.Source.launch

    def recorded(self, name, grid, block, *arguments, **definitions):
        sides = (grid,) if isinstance(grid, int) else grid
        count = 1
        for side in sides:
            count *= side
        if count:
            arrays = [argument for argument in arguments if hasattr(argument, "nbytes")]
            launches.append(Launch(name, list(map(Shape.of, arrays)), self, definitions, block, count))
        return launch(self, name, grid, block, *arguments, **definitions)

    @contextmanager
    def around(name, arrays):
        if name in ("product", "products"):
            launches.append(Launch(name, list(map(Shape.of, arrays))))
        yield

    source.Source.launch = recorded
    try:
        with source.watching(around):
            yield
    finally:
        source.Source.launch = launch


class Shape(NamedTuple):
    """The shape, dtype and size of an array that is not kept itself."""

    shape: tuple
    dtype: str
    nbytes: int

    @classmethod
    def of(cls, array):
        return cls(array.shape, str(array.dtype), array.nbytes)


def table(launches, compile=True):
    """{"cards": …, "kernels": rows, the longest first, "launches", "bytes"} of recorded launches.

    compile   whether NVRTC is asked for registers, where CuPy has it
    """
    found, rows = {}, []
    for launch in launches:
        name, operations = described(launch.name, launch.arrays)
        key = name, launch.source and launch.source.file, tuple(launch.definitions.items())
        found.setdefault(key, []).append((launch, operations))
    several = [name for name, *_ in found]
    for (name, file, definitions), group in found.items():
        launch = max((one for one, _ in group), key=lambda one: one.blocks)
        if several.count(name) > 1 and definitions:
            name += f", {' '.join(str(value) for _, value in definitions)}"
        costs = [cost(one, operations, compile) for one, operations in group]
        row = {"name": name, "file": file, "launches": len(group), "threads": launch.threads, "blocks": launch.blocks}
        row |= {what: sum(each[what] for each in costs) for what in costs[0]}
        used = resources(launch.source, launch.definitions).get(launch.name) if compile and launch.source else None
        row |= used or dict.fromkeys(("registers", "spilled", "shared"))
        row["blocks_per_sm"] = blocks_per_sm(row["registers"], launch.threads, row["shared"]) if used else None
        warps = (row["blocks_per_sm"] or BLOCKS) * ceil(launch.threads / 32)
        for card in CARDS:
            times = [seconds(each, card, warps) for each in costs]
            row[f"{card.name}_at_peak"] = sum(peak for peak, _, _ in times)
            row[f"{card.name}_expected"] = sum(expected for _, expected, _ in times)
        row["bound_by"] = seconds(costs[0], CARDS[0], warps)[2]
        rows.append(row)
    rows.sort(key=lambda row: -row[f"{CARDS[0].name}_expected"])
    sums = {what: sum(row[what] for row in rows) for what in ("launches", "bytes", "operations",
            *(f"{card.name}_{kind}" for card in CARDS for kind in ("at_peak", "expected")))}  # fmt: skip
    cards = [card._asdict() for card in CARDS]
    return {"cards": cards, "reached": REACHED, "start": START, "sums": sums, "kernels": rows}


def cost(launch, operations, compile=True):
    """Bytes, operations and instructions of a launch; `operations` are a product's, `compile` is as in `table`."""
    written = [launch.arrays[i] for i in IN_PLACE.get(launch.name, ())]  # besides being read
    size = sum(array.nbytes for array in [*launch.arrays, *written])
    nothing = {"bytes": size, "operations": operations, "on_tensor_cores": 0, "exponentials": 0, "instructions": 0}
    if launch.source is None:
        low = launch.arrays[0].dtype in ("bfloat16", "float16")
        return nothing | {"on_tensor_cores": operations if low else 0}
    heads = [array.shape for array in launch.arrays if len(array.shape) == 4]
    kind = next((kind for kind in ATTENTION if kind in launch.name), None)
    if "attention" not in launch.source.file or kind is None or len(heads) < 3:
        # Each instruction once: without those that a loop repeats.
        once = (resources(launch.source, launch.definitions) if compile else {}).get(launch.name, {"instructions": 0})
        return nothing | {"instructions": once["instructions"] * launch.blocks * ceil(launch.threads / 32)}
    (B, H, queries, d), keys = heads[0], heads[1][2]
    products, instructions = ATTENTION[kind]
    by_fragments = bool(TENSOR_CORES.search(read(launch.source.file)))
    if by_fragments:  # whose rows are filled up
        queries, keys = 16 * ceil(queries / 16), 16 * ceil(keys / 16)
    scores = B * H * queries * keys
    operations = 2 * products * scores * d
    return nothing | {
        "operations": operations,
        "on_tensor_cores": operations if by_fragments else 0,
        "exponentials": scores,
        "instructions": scores * instructions // 32,
    }


def seconds(cost, card, warps=WARPS):
    """(at the card's peaks, expected, what decides) for one launch of a kernel of which an SM has so many warps."""
    ordinary = cost["operations"] - cost["on_tensor_cores"]
    peaks = {
        "memory": cost["bytes"] / card.bandwidth,
        "products": cost["on_tensor_cores"] / card.tensor_cores,
        # A multiply-add of a warp is one instruction, and so competes with all others.
        "instructions": cost["instructions"] / card.instructions + ordinary / card.ordinary_cores,
        "exponentials": cost["exponentials"] / card.exponentials,
    }
    expected = {what: time / REACHED[what] for what, time in peaks.items()}
    expected["instructions"] *= max(1.0, WARPS / warps) if warps else 1.0
    decides = max(expected, key=expected.get)
    return max(peaks.values()), expected[decides] + START, decides


def resources(source, definitions):
    return compiled(source.text(**definitions))


def blocks_per_sm(registers, threads, shared):
    """How many blocks of a kernel fit on an SM at a time."""
    warps = ceil(threads / 32)
    fit = [REGISTERS // (ceil(registers / 8) * 8 * 32 * warps), THREADS // (32 * warps), BLOCKS]
    return min(*fit, *([SHARED // (shared + 1024)] if shared else []))  # CUDA takes 1 kB of each block's


def text(found, title):
    """The table, 120 columns wide."""
    (first, other), sums = (card.name for card in CARDS), found["sums"]
    moved, computed = sums["bytes"] / 1e9, sums["operations"] / 1e12
    reached = ", ".join(f"{what} {100 * share:.0f} %" for what, share in REACHED.items())
    lines = [title, "", "Peaks"]
    for card in CARDS:
        rates = card.tensor_cores / 1e12, card.ordinary_cores / 1e12
        lines.append(f"  {card.name}: {card.bandwidth / 1e12:g} TB/s, {rates[0]:g} Tflop/s in bfloat16 (dense), "
                     f"{rates[1]:g} Tflop/s in float32")  # fmt: skip
    lines += [
        "A kernel takes the longest of what it moves, multiplies on tensor cores, and issues as instructions; under",
        f"H200 and H100 with {START * 1e6:g} µs a launch, and these shares of the peaks:",
        f"{reached} ({WARPS} warps on an SM or more; of fewer, less).",
        "Instructions are those of the PTX, each once, without what loops repeat; of attention, by hand, per score.",
        "What CuPy computes by itself is not in the table. thr: threads of a block; /SM: blocks on an SM of sm_90.",
        "",
        f"{'kernel, or product m × k × n':<46} {'n':>3} {'MB':>6} {'Gflop':>6} {'peak':>6} {first:>6} {other:>6}"
        f"  {'bound by':<12} {'regs':>4} {'spill':>5} {'thr':>4} {'/SM':>3}",
        f"{'':<46} {'':>3} {'':>6} {'':>6} {'µs':>6} {'µs':>6} {'µs':>6}",
    ]  # fmt: skip
    for row in found["kernels"]:
        used = [row["registers"], row["spilled"], row["threads"], row["blocks_per_sm"]]
        shown = ["" if number is None else number for number in (used if row["file"] else [None] * 4)]
        lines.append((
            f"{row['name'][:46]:<46} {row['launches']:>3} {row['bytes'] / 1e6:>6.0f} {row['operations'] / 1e9:>6.1f} "
            f"{1e6 * row[f'{first}_at_peak']:>6.0f} {1e6 * row[f'{first}_expected']:>6.0f} "
            f"{1e6 * row[f'{other}_expected']:>6.0f}  {row['bound_by']:<12} "
            f"{shown[0]:>4} {shown[1]:>5} {shown[2]:>4} {shown[3]:>3}"
        ).rstrip())  # fmt: skip
    lines += ["", f"in all: {sums['launches']} launches, {moved:.1f} GB, {computed:.2f} Tflop"]
    lines += [f"  {card.name}: {1e3 * sums[f'{card.name}_at_peak']:.2f} ms at the peaks, "
              f"{1e3 * sums[f'{card.name}_expected']:.2f} ms expected" for card in CARDS]  # fmt: skip
    return "\n".join(lines) + "\n"
