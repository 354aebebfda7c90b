"""How the memory of a training step grows with the number of tokens: `python -m tinyvit.bench.long_sequences`.

A ViT 192 wide, 6 deep, with 3 heads and patches of 4×4, takes one step on images of 32×32 to 256×256, so 65 to 4,097
tokens. Each number is of a process of its own: the most memory that it ever had, less what it had before the step.
"""

import argparse
import json
import subprocess
import sys

import numpy as np

from tinyvit import kernels, optim
from tinyvit.backend import Key
from tinyvit.bench import memory
from tinyvit.models import ViT, ViTConfig
from tinyvit.models.summary import activation_bytes
from tinyvit.nn import Context, attention
from tinyvit.training import train_step

SIDES = 32, 64, 128, 256                    # of the images, in pixels
NEVER = 1 << 62                             # tokens
WAYS = {                                    # (tokens from which on attention goes in tiles, recomputation, kernels)
    "all scores at once": (NEVER, False, "numpy"),
    "in tiles": (1, False, "numpy"),
    "in tiles, recomputed": (1, True, "numpy"),
    "compiled, recomputed": (1, True, "fast"),
}
COLUMN = 27                                 # characters


def config_of(side):
    return ViTConfig(side, 4, embed_dim=192, depth=6, num_heads=3, mlp_ratio=4.0)


def prepared(config, batch_size, recompute):
    """A function without arguments that runs a training step; everything that it needs is allocated."""
    model = ViT(config)
    model.zero_grad()
    optimizer = optim.AdamW(model)
    shape = (batch_size, *model.embed.image_shape)
    images = np.random.default_rng(0).standard_normal(shape, "float32")
    targets = np.arange(batch_size) % config.num_classes
    ctx = Context(training=True, key=Key(0), recompute=recompute)
    return lambda: train_step(model, optimizer, images, targets, ctx)


def measured(side, way, batch_size):
    """(peak bytes of a step, bytes of its activations according to the model's summary).

    For a process that has not done anything else before. Temporary arrays come on top of the activations.
    """
    attention.TILED_FROM, recompute, level = WAYS[way]
    with kernels.using(level):
        prepared(ViTConfig(8, 4, embed_dim=8, depth=1, num_heads=1), 1, recompute)()  # loads libraries
        config = config_of(side)
        step = prepared(config, batch_size, recompute)
        before = memory.resident()
        if before is None:
            raise ValueError("this system doesn't say how much memory a process takes; Linux does")
        step()
        return memory.peak() - before, activation_bytes(ViT(config, device="meta"), batch_size, recompute)


def in_a_new_process(*arguments):
    """The result of `measured` in a new process; ValueError with its last line of stderr."""
    code = f"import json, tinyvit.bench.long_sequences as b; print(json.dumps(b.measured(*{arguments!r})))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if ended.returncode:
        reason = ended.stderr.strip().splitlines() or [f"it ended with status {ended.returncode}"]
        raise ValueError(f"a step {arguments} failed: {reason[-1]}")
    return json.loads(ended.stdout)


def table(sides, batch_size, measure=in_a_new_process):
    """The lines of the table, one after the other as they are measured."""
    yield f"memory of a training step, batch size {batch_size}; in parentheses its activations as `tinyvit summary` has"
    yield "them, and behind that how many times as much it is as in the row above"
    yield ""
    ways = [way for way, (_, _, level) in WAYS.items() if level in kernels.available()]
    yield "tokens" + "".join(way.rjust(COLUMN) for way in ways)
    above = dict.fromkeys(ways)
    for side in sides:
        rows, columns = config_of(side).grid
        line = f"{1 + rows * columns:6,}"
        for way in ways:
            found, activations = measure(side, way, batch_size)
            growth = "" if above[way] is None else f" ×{found / above[way]:.1f}"
            line += f"{found / 1e6:,.0f} MB ({activations / 1e6:,.0f} MB){growth}".rjust(COLUMN)
            above[way] = found
        yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = refuse
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES, help="sides of the images, in pixels")
    options = parser.parse_args()
    if options.batch_size < 1:
        refuse(f"the batch size must be at least 1, got {options.batch_size}")
    try:
        for line in table(options.sides, options.batch_size):
            print(line, flush=True)
    except ValueError as error:
        refuse(error)


def refuse(message):
    """End as every command does: one line, exit status 2."""
    print(f"long_sequences: error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
