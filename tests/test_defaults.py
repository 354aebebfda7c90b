"""The defaults of what computes, which results depend on wherever nothing else is asked for."""

import inspect

from tinyvit import functional, nn, optim

DEFAULTS = """
attention_dropout rate=0.0
avg_pool2d padding=0
batch_norm eps=1e-05
batch_norm_running eps=1e-05
conv2d stride=1
conv2d padding=0
conv2d groups=1
conv_transpose2d stride=1
cross_entropy label_smoothing=0.0
dino_loss temperature=0.1
distillation temperature=1.0
first_tokens count=2
from_windows shift=0
grid_positions prefix=1
group_norm eps=1e-05
insert_tokens at=1
layernorm eps=1e-06
max_pool2d padding=0
pixel_cross_entropy ignore=255
pool_mean prefix=1
resize_positions method=bilinear
resize_positions prefix=1
rmsnorm eps=1e-06
rope theta=100.0
rope_halves theta=10000.0
sincos_1d prefix=1
sincos_2d prefix=1
sincos_3d prefix=1
split_heads parts=3
standardize_weight eps=1e-06
standardize_weight_original eps=1e-05
step_back variance=0.0
tiled_attention tile=256
timestep_embedding dim=256
timestep_embedding period=10000
to_windows shift=0
window_masks device=cpu
window_masks dtype=float32
Attention qkv_bias=True
Attention attn_drop=0.0
Attention proj_drop=0.0
BatchNorm2d eps=1e-05
BatchNorm2d momentum=0.1
Block qkv_bias=True
Block activation=gelu
Block norm_eps=1e-06
Block drop=0.0
Block attn_drop=0.0
Block drop_path=0.0
Context training=False
Context keep_caches=True
Context recompute=False
Conv2d stride=1
Conv2d groups=1
Conv2d bias=False
DropPath rate=0.0
Dropout rate=0.0
GroupNorm eps=1e-05
LayerNorm eps=1e-06
Linear bias=True
Mlp activation=gelu
Mlp drop=0.0
Parameter lr_scale=1.0
PatchEmbed bias=True
RecomputedCache updates=()
StandardizedConv2d stride=1
StandardizedConv2d epsilon=variance
StandardizedConv2d eps=1e-06
Storage dtype=float32
Storage device=cpu
Adagrad lr=0.01
Adagrad eps=1e-10
Adagrad weight_decay=0.0
Adam lr=0.001
Adam betas=(0.9, 0.999)
Adam eps=1e-08
AdamW lr=0.001
AdamW betas=(0.9, 0.999)
AdamW eps=1e-08
AdamW weight_decay=0.01
EMA decay=0.999
EMA warmup=True
Muon lr=0.02
Muon momentum=0.95
Muon nesterov=True
Muon weight_decay=0.01
Muon adam_lr=0.0003
Muon betas=(0.9, 0.95)
Muon eps=1e-08
Muon iterations=5
Optimizer weight_decay=0.0
SGD momentum=0.0
SGD nesterov=False
SGD weight_decay=0.0
warmup_constant warmup=0
warmup_constant final=1.0
warmup_cosine warmup=0
warmup_cosine final=0.0
warmup_linear warmup=0
warmup_linear final=0.0
warmup_one_cycle warmup=0
warmup_one_cycle final=0.0
"""


def test_the_defaults_are_those_that_results_were_made_with():
    found = [
        f"{name} {p.name}={p.default}" for package in (functional, nn, optim)
        for name, thing in sorted(vars(package).items()) if callable(thing)
        for p in inspect.signature(thing).parameters.values() if isinstance(p.default, (int, float, str, tuple))
    ]  # fmt: skip
    assert found == DEFAULTS.split("\n")[1:-1]
