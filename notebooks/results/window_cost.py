"""How long a ViT and a Swin take for an image, by its size, drawn in notebook 13.

    python notebooks/results/window_cost.py                     # two minutes of a core

A forward and a backward of one image in float32 with one thread. All sizes of both models take turns, and the median of
their times is kept, in `window_cost.json`.
"""

import json
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from tinyvit import ViTConfig, files, levels
from tinyvit.bench.machine import processor
from tinyvit.models import SwinConfig, build
from tinyvit.models.summary import summarize

FILE = Path(__file__).with_suffix(".json")
SIZES = 32, 64, 96, 128, 192, 256
ROUNDS = 7


def configured(model, side):
    """A model for images of this side: patches of 4×4 pixels, 96 wide, 4 deep, MLP ×2."""
    common = dict(img_size=side, patch_size=4, embed_dim=96, mlp_ratio=2.0)
    if model == "ViT":
        return ViTConfig(**common, depth=4, num_heads=3)
    return SwinConfig(**common, depths=(4,), num_heads=(3,), window_size=4)


def step(config):
    """A function that runs a forward and a backward of one image."""
    model = build(config)
    images = np.random.default_rng(0).standard_normal((1, 3, config.img_size, config.img_size), dtype="float32")

    def run():
        logits, cache = model(images)
        model.backward(logits, cache)

    return run


def measured(sizes, rounds):
    """A row for each model and size: its name, pixels to a side, multiply-adds of a forward and median seconds."""
    cases = [(model, side) for side in sizes for model in ("ViT", "Swin")]
    steps = {case: step(configured(*case)) for case in cases}
    seconds = {case: [] for case in cases}
    with threadpool_limits(1):
        for number in range(rounds + 1):  # the first loads the kernels
            for case in cases:
                start = time.perf_counter()
                steps[case]()
                if number:
                    seconds[case].append(time.perf_counter() - start)
    counts = {case: sum(row.multiply_adds for row in summarize(build(configured(*case), device="meta")))
              for case in cases}  # fmt: skip
    return [{"model": model, "side": side, "multiply_adds": counts[model, side],
             "seconds": round(median(seconds[model, side]), 6)} for model, side in cases]  # fmt: skip


def main():
    rows = measured(SIZES, ROUNDS)
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__,
            "kernels": levels.level(), "threads": 1, "rounds": ROUNDS}  # fmt: skip
    lines = ",\n".join(json.dumps(row) for row in rows)
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"rows": [\n{lines}\n]}}\n'.encode())
    for row in rows:
        print(f"{row['model']:<5} {row['side']:>4} pixels {1000 * row['seconds']:>9.1f} ms")


if __name__ == "__main__":
    main()
