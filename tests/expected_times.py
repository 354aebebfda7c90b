"""The table of expected times of a training step of cifar10 on a GPU, made without one.

    python tests/expected_times.py [--batch-size 1024] [--precision bfloat16] [--out notebooks/results]

The stand-in for CuPy records what a step launches, with the shapes of all arrays; its kernels and products do nothing
here, and its memory is never filled. Registers are NVRTC's, where the real CuPy is installed. Writes gpu-expected.txt
and gpu-expected.json.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]

import pretend_cupy  # noqa: E402
from emulated_cuda import emulator  # noqa: E402


def do_nothing():
    """Make kernels and products of the stand-in do nothing, and its memory unfilled."""
    pretend_cupy.RawModule.get_function = lambda module, name: lambda *launch, **options: None
    emulator.Module.__init__ = lambda module, text: None
    for name in ("gemmEx", "gemmStridedBatchedEx"):
        setattr(pretend_cupy.cupy.cuda.cublas, name, lambda *arguments: None)

    def unfilled(shape, dtype, order="C"):
        host = np.zeros(shape, dtype, order)  # pages that nobody touches take no memory
        return pretend_cupy.ndarray(host, pretend_cupy.Memory(host.reshape(-1, order=order).view("uint8"), slice(0, 0)))

    pretend_cupy.guarded = unfilled


def launches_of_a_step(batch_size, precision):
    """The launches of the recipe's second batch, and those of its second step."""
    from tinyvit import backend
    from tinyvit.bench.gpu_report import expected, recipe
    from tinyvit.data import Dataset, Split
    from tinyvit.training import preset, trainer

    def images(count):
        pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), "uint8")
        return Dataset(pixels, np.arange(count) % 10, tuple("abcdefghij"), (0.5,) * 3, (0.2,) * 3)

    split = Split(images(3 * batch_size), images(64))
    trainer.load_split = lambda config: split
    backend.why_no_kernel = lambda *arguments: None  # the tries of a product and a kernel, which do nothing here
    adamw = replace(preset("cifar10").optim, name="adamw")
    config = replace(preset("cifar10"), device="cuda", precision=precision, batch_size=batch_size, optim=adamw)
    trained = trainer.Trainer(config)
    batches, found = iter(trained.batches()), ([], [])
    recipe.take_step(trained, next(batches))
    with expected.recording(found[0]):
        batch = next(batches)
    with expected.recording(found[1]):
        recipe.take_step(trained, batch)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--precision", default="bfloat16", choices=("bfloat16", "float16", "tf32", "float32"))
    parser.add_argument("--out", type=Path, default=FOLDER.parent / "notebooks" / "results")
    options = parser.parse_args()
    do_nothing()
    sys.modules.update(pretend_cupy.MODULES)
    of_batch, of_step = launches_of_a_step(options.batch_size, options.precision)
    for name in pretend_cupy.MODULES:  # from here on the real CuPy, for its compiler, if it is installed
        del sys.modules[name]
    from tinyvit.bench.gpu_report import expected

    found = expected.table(of_step)
    title = (
        f"Expected times of a training step of cifar10 (192/9/12, MLP ×2) with AdamW, batch {options.batch_size}, "
        f"{options.precision}:\npython tests/expected_times.py"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    text = expected.text(found, title) + f"  and for the batch: {len(of_batch)} launches of kernels of ours\n"
    (options.out / "gpu-expected.txt").write_text(text, encoding="utf-8")
    (options.out / "gpu-expected.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
