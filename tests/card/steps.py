"""Counts the CUDA calls of a training step in many configurations; run by null.py.

    python tests/card/null.py tests/card/steps.py [part of a name …]
"""

import json
import sys
import time
from dataclasses import replace

import null
import numpy as np

from tinyvit import backend
from tinyvit.data import Augmentation, Dataset, Split
from tinyvit.training import preset, trainer
from tinyvit.training.config import OptimConfig
from tinyvit.training.step import train_step

backend.why_no_kernel = lambda *args: None
draw = np.random.default_rng(0)


def images(count):
    pixels, labels = draw.integers(0, 255, (count, 3, 32, 32), "uint8"), draw.integers(0, 10, count)
    return Dataset(pixels, labels, tuple("abcdefghij"), (0.5,) * 3, (0.2,) * 3)


split = Split(images(4000), images(600))
trainer.load_split = lambda config: split
trainer.with_absolute_paths = lambda config: config

base = replace(preset("cifar10"), device="cuda", precision="bfloat16", batch_size=256, cuda_graph=False)
model, optim = replace(base.model, depth=2), base.optim
base = replace(base, model=model)
CONFIGS = {
    **{name: replace(base, precision=name) for name in ("float32", "tf32", "bfloat16", "float16", "float64")},
    **{name: replace(base, optim=OptimConfig(name=name, lr=0.01)) for name in ("sgd", "adagrad", "adam", "muon")},
    **{f"positions {name}": replace(base, model=replace(model, positions=name))
       for name in ("learned_2d", "sincos_1d", "rope", "none")},
    **{f"{heads} heads": replace(base, model=replace(model, num_heads=heads)) for heads in (4, 6)},
    "clip": replace(base, optim=replace(optim, clip_norm=1.0)),
    "token pool": replace(base, model=replace(model, global_pool="token")),
    "dropout": replace(base, model=replace(model, drop_rate=0.1, attn_drop_rate=0.1)),
    "patch 1": replace(base, batch_size=8, model=replace(model, patch_size=1)),
    "odd width": replace(base, model=replace(model, embed_dim=180, num_heads=12)),
    "policy": replace(base, augment=Augmentation(crop=4, flip=True, policy="rand", operations=2)),
    "recompute": replace(base, recompute=True),
    "small sizes": replace(base, model=replace(model, dynamic_img_size=True), optim=replace(
        optim, small_sizes=(16,), small_until=(0.5,),
    )),
    "accumulate": replace(base, optim=replace(optim, accumulate=2, keep_patches=0.5)),
}  # fmt: skip
for name in ("float32", "bfloat16", "float16", "muon", "positions rope", "dropout", "recompute"):
    CONFIGS[f"{name} as a graph"] = replace(CONFIGS[name], cuda_graph=True)


def counts_of_a_step(config, steps=4):
    """The counts of a step and its batch, and milliseconds of this process, once CuPy's pool has all blocks it needs.

    How many those are depends on when the thread that makes batches ahead has run.
    """
    training = trainer.Trainer(config)
    with training.model.storage.on_device():
        batches = iter(training.batches())
        for warm_up in (True, False, False):
            null.reset()
            began = time.thread_time()
            for _ in range(steps):
                step = training.next_step(*next(batches))
                training.finish_step(step, train_step(**step))
            found = {name: count / steps for name, count in null.counts().items() if count}
            if not warm_up and "malloc" not in found:
                break
    return found | {"host ms": round(1e3 * (time.thread_time() - began) / steps, 1)}


for name, config in CONFIGS.items():
    if not sys.argv[1:] or any(part in name for part in sys.argv[1:]):
        print(json.dumps({"step": name, **counts_of_a_step(config)}), flush=True)
