"""What some choices are worth, measured on the digits: positions, pooling, the place of the norm, the optimizer.

    python notebooks/results/ablations.py        # about 20 minutes on a core; goes on where it was stopped

Each row of a table differs from the others in nothing but what it is named after. It is trained with seeds 0, 1 and 2
on the 1,437 training images, 40 epochs, and judged on the 360 test images. The learning rates of the optimizers were
chosen before, with seed 0, on a fifth of the training images that was set aside. The results are in `ablations.json`;
the notebooks show them as tables.
"""

import json
import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from tinyvit import ViT, ViTConfig
from tinyvit.bench.machine import processor
from tinyvit.models import register
from tinyvit.nn.block import Block, BlockCache
from tinyvit.training import OptimConfig, preset, train
from tinyvit.training.display import Display

FILE = Path(__file__).with_suffix(".json")
SEEDS, EPOCHS = (0, 1, 2), 40


class PostNormBlock(Block):
    """The block of Vaswani et al. 2017: x′ = LayerNorm(x + Attention(x)), y = LayerNorm(x′ + MLP(x′))."""

    def forward(self, x, ctx=None):
        a, c_attn = self.attn(x, ctx)
        a, c_drop1 = self.drop_path1(a, ctx)
        x, c_norm1 = self.norm1(x + a, ctx)
        m, c_mlp = self.mlp(x, ctx)
        m, c_drop2 = self.drop_path2(m, ctx)
        y, c_norm2 = self.norm2(x + m, ctx)
        return y, BlockCache(c_norm1, c_attn, c_drop1, c_norm2, c_mlp, c_drop2)

    def backward(self, dy, cache):
        dsum = self.norm2.backward(dy, cache.norm2)
        dm = self.drop_path2.backward(dsum, cache.drop_path2)
        dx = dsum + self.mlp.backward(dm, cache.mlp)
        dsum = self.norm1.backward(dx, cache.norm1)
        da = self.drop_path1.backward(dsum, cache.drop_path1)
        return dsum + self.attn.backward(da, cache.attn)


@dataclass(frozen=True)
class PostNormConfig(ViTConfig):
    """The shape of a ViT whose norms come after the sums."""


@register("vit_post_norm", PostNormConfig)
class PostNormViT(ViT):
    """A ViT with the same parameters and initial weights, whose norms come after the sums."""

    def __init__(self, config, seed=0, dtype="float32", device="cpu", precision=None):
        super().__init__(config, seed, dtype, device, precision)
        for block in self.blocks:
            block.__class__ = PostNormBlock


class SilentDisplay(Display):
    """Prints nothing but warnings."""

    def start(self, trainer, path): ...

    def step(self, epoch, images, result): ...

    def epoch(self, row): ...

    def finish(self, summary, path, task): ...


# An earlier recipe of the digits: four patches of 4×4, AdamW.
PRESET = preset("digits")
DIGITS = replace(
    PRESET, epochs=EPOCHS, evaluate_every=EPOCHS, threads=1, device="cpu",
    model=replace(PRESET.model, patch_size=4, embed_dim=64, positions="learned", drop_rate=0.1, drop_path_rate=0.2),
    optim=OptimConfig(lr=3e-3, weight_decay=0.05, warmup=0.1, label_smoothing=0.1),
)  # fmt: skip


def shaped(**fields):
    """The training by Muon of a ViT that reads 4×4 patches of 2×2 pixels, with these fields of its shape."""
    optim = replace(DIGITS.optim, name="muon", lr=0.01, adam_lr=0.003)
    return replace(DIGITS, model=replace(DIGITS.model, patch_size=2, **fields), optim=optim)


def optimized(name, momentum=0.9):
    return replace(DIGITS, optim=replace(DIGITS.optim, name=name, momentum=momentum, weight_decay=0.0))


def normed(post, warmup):
    """The training by AdamW of six blocks: the place of the norm matters more the deeper a model is."""
    config = replace(DIGITS, model=replace(DIGITS.model, depth=6))
    if post:
        config = replace(config, architecture="vit_post_norm", model=PostNormConfig(**vars(config.model)))
    return replace(config, optim=replace(config.optim, warmup=warmup))


POSITIONS = {
    "none": "none", "learned, one for each place": "learned", "learned, for row and column": "learned_2d",
    "sines, by number": "sincos_1d", "sines, by row and column": "sincos_2d", "rotary": "rope",
}  # fmt: skip
TABLES = {
    "positions": {name: shaped(positions=kind) for name, kind in POSITIONS.items()},
    "pooling": {
        "class token": shaped(global_pool="token"),
        "mean of the patches": shaped(global_pool="avg"),
    },
    "norm": {
        "before, with warm-up": normed(False, 0.1), "before, without": normed(False, 0.0),
        "after, with warm-up": normed(True, 0.1), "after, without": normed(True, 0.0),
    },
    "optimizer": {
        "SGD": optimized("sgd", 0.0), "SGD with momentum": optimized("sgd"), "Adagrad": optimized("adagrad"),
        "Adam": optimized("adam"),
    },
}  # fmt: skip
RATES = {
    "SGD": (0.1, 0.3, 1.0, 3.0), "SGD with momentum": (0.03, 0.1, 0.3, 1.0), "Adagrad": (0.01, 0.03, 0.1, 0.3),
    "Adam": (0.001, 0.003, 0.01, 0.03),
}  # fmt: skip


def accuracy(config):
    """The accuracy after the last epoch of a training."""
    with tempfile.TemporaryDirectory() as folder:
        summary = train(config, Path(folder) / "run", SilentDisplay())
    if "interrupted" in summary:
        raise SystemExit(summary["interrupted"])
    return summary["validation_accuracy" if config.validation else "test_accuracy"]


def with_rate(config, rate):
    return replace(config, optim=replace(config.optim, lr=rate))


def summarised(runs):
    return {"accuracy": runs, "mean": mean(runs), "std": stdev(runs)}


def main():
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    stored["made with"] = {
        "seeds": SEEDS, "epochs": EPOCHS, "processor": processor(),
        "python": platform.python_version(), "numpy": np.__version__,
    }  # fmt: skip
    for table, rows in TABLES.items():
        results = stored.setdefault(table, {})
        for name, config in rows.items():
            row = results.setdefault(name, {})
            if name in RATES:
                tried = row.setdefault("tried", {})
                for rate in RATES[name]:
                    if str(rate) not in tried:
                        tried[str(rate)] = accuracy(replace(with_rate(config, rate), validation=0.2))
                        FILE.write_text(json.dumps(stored, indent=1) + "\n")
                best = float(max(tried, key=tried.get))
                if row.get("lr") != best:
                    row |= {"lr": best, "accuracy": []}
                config = with_rate(config, best)
            runs = row.get("accuracy", [])
            for seed in SEEDS[len(runs) :]:
                runs.append(accuracy(replace(config, seed=seed)))
                row["accuracy"] = runs
                FILE.write_text(json.dumps(stored, indent=1) + "\n")
            row |= summarised(runs)
            FILE.write_text(json.dumps(stored, indent=1) + "\n")
            print(f"{table:<10} {name:<28} {100 * row['mean']:.2f} ± {100 * row['std']:.2f} %", flush=True)


if __name__ == "__main__":
    main()
