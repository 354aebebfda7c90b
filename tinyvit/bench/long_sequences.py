"""How the memory of a training step grows with the number of tokens: `python -m tinyvit.bench.long_sequences`.

A ViT 192 wide, 6 deep, with 3 heads and patches of 4×4, takes one step on an image of 32×32 to 256×256 (or of the sides
that are given), so 65 to 4,097 tokens. Each number is of a process of its own: the most memory that it ever had, less
what it had before the step.
"""

import subprocess
import sys

import numpy as np

from tinyvit import kernels
from tinyvit.backend import Key
from tinyvit.bench.worker import memory
from tinyvit.models import ViT, ViTConfig
from tinyvit.nn import Context, attention
from tinyvit.optim import AdamW
from tinyvit.training import train_step

NEVER = 1 << 62                             # tokens
WAYS = {                                    # (tokens from which on attention goes in tiles, recomputation, kernels)
    "all scores at once": (NEVER, False, "numpy"),
    "in tiles": (1, False, "numpy"),
    "in tiles, recomputed": (1, True, "numpy"),
    "compiled, recomputed": (1, True, "fast"),
}


def prepared(config, recompute):
    """A function without arguments that runs a training step; everything that it needs is allocated."""
    model = ViT(config)
    model.zero_grad()
    optimizer, ctx = AdamW(model), Context(training=True, key=Key(0), recompute=recompute)
    images = np.random.default_rng(0).standard_normal((1, *model.embed.image_shape), "float32")
    return lambda: train_step(model, optimizer, images, np.zeros(1, int), ctx)


def measured(side, way):
    """The peak bytes of a step, for a process that has not done anything else before."""
    attention.TILED_FROM, recompute, level = WAYS[way]
    with kernels.using(level):
        prepared(ViTConfig(8, 4, embed_dim=8, depth=1, num_heads=1), recompute)()  # loads libraries
        step = prepared(ViTConfig(side, 4, embed_dim=192, depth=6, num_heads=3, mlp_ratio=4.0), recompute)
        before = memory("VmRSS")
        step()
    return memory("VmHWM") - before


def main(sides):
    print("tokens", *(way.rjust(21) for way in WAYS))
    for side in sides:
        print(f"{1 + (side // 4) ** 2:6,}", end="")
        for way in WAYS:
            command = [sys.executable, "-m", "tinyvit.bench.long_sequences", str(side), way]
            size = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            print(f"{size / 1e6:>18,.0f} MB", end=" ", flush=True)
        print()


if __name__ == "__main__":
    if sys.argv[-1] in WAYS:
        print(measured(int(sys.argv[1]), sys.argv[2]))
    else:
        main([int(side) for side in sys.argv[1:]] or [32, 64, 128, 256])
