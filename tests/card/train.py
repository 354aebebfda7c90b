"""The recipe cifar10, as CUDA graphs or not, whichever is faster, for as many epochs as fit into TRAIN_FOR seconds."""

import os
import time
from dataclasses import replace

from tinyvit.backend import why_no_gpu
from tinyvit.bench.gpu_report import recipe
from tinyvit.training import preset
from tinyvit.training.trainer import Trainer

began, dry = time.perf_counter(), why_no_gpu() is not None
base = replace(preset("digits"), device="cpu") if dry else replace(
    preset("cifar10"), device="cuda", precision="bfloat16", data_dir=os.environ.get("DATA"))  # fmt: skip
seconds = {}  # of a step
for graph in (False,) if dry else (False, True):
    trial = Trainer(replace(base, cuda_graph=graph))
    with trial.model.storage.on_device():
        seconds[graph] = recipe.seconds_of_a_step(trial, trial.device)
    print(f"{'as a graph' if graph else 'plain'}: {1e3 * seconds[graph]:.2f} ms a batch and step")
graph = min(seconds, key=seconds.get)
left = float(os.environ["TRAIN_FOR"]) - (time.perf_counter() - began)
epochs = max(1, min(base.epochs, 3 if dry else 1000, int(0.85 * left / (seconds[graph] * len(trial.loader)))))
trainer = Trainer(replace(base, cuda_graph=graph, epochs=epochs, evaluate_every=max(1, epochs // 6)))
begun = time.perf_counter()
with trainer.model.storage.on_device():
    for row in recipe.epochs(trainer, begun):
        print(" ".join(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}"
                       for name, value in row.items()))  # fmt: skip
taken = time.perf_counter() - begun
print(f"{epochs} epochs, {trainer.step * base.batch_size / taken:,.0f} images a second with evaluations, {taken:.0f} s")
