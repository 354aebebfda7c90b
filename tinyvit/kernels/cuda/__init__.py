"""Kernels in CUDA, for arrays of CuPy in float32, bfloat16 and float16.

Imported when the first of them is needed. Each operation is a `.cu` file, which is what the GPU gets, and a `.py` file
that launches it. None adds by atomics: the order of additions, and so every bit, is the same in every run. What no
measurement has shown to pay has no kernel: the reference implementation runs on CuPy, in low precision by
`through_float32`.
"""

from tinyvit.kernels.cuda import (
    adam,
    attention,
    attention_dropout,
    augment,
    cast,
    column_sums,
    conditions,
    conv,
    cross_entropy,
    depthwise,
    dropout,
    elementwise,
    flat,
    fused_attention,
    layernorm,
    linear,
    losses,
    muon,
    positions,
    tensor_attention,
    through_float32,
    tokens,
)
