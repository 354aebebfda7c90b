"""Small work for compute-sanitizer: every operation, and steps of a small ViT, each array in memory of its own."""

import cupy
import numpy as np

from tinyvit import kernels
from tinyvit.backend import to_device
from tinyvit.bench.gpu_report import comparison
from tinyvit.keys import Key
from tinyvit.models import ViT, ViTConfig
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training import train_step

cupy.cuda.set_allocator(None)  # no pool: the end of each array is that of an allocation, which memcheck knows
for precision in ("bfloat16", "float32", "float16"):
    for heads, drop in ((4, 0.0), (2, 0.1)):
        config = ViTConfig(img_size=16, patch_size=4, in_chans=3, num_classes=10, embed_dim=64, depth=2,
                           num_heads=heads, mlp_ratio=2.0, drop_path_rate=0.2, drop_rate=drop)  # fmt: skip
        model = ViT(config, device="cuda:0", precision=precision)
        images = to_device(np.random.default_rng(0).standard_normal((3, 3, 16, 16), "float32"), "cuda:0")
        optimizer = AdamW(model)
        for step in range(2):
            result = train_step(model, optimizer, images, cupy.arange(3), Context(True, Key(0, step)), clip_norm=1.0)
        print(precision, heads, "heads: loss", float(result.loss), flush=True)
with kernels.using("numpy"):
    for dtype in ("bfloat16", "float32"):
        rows = list(comparison.operations("cuda:0", dtype))
        print(dtype, len(rows), "operations; wrong:", [row["name"] for row in rows if not row["ok"]], flush=True)
