"""Adam's step in one pass over the flat arrays."""

from math import inf, log

from tinyvit.functional.adam import adam_step, debiasing
from tinyvit.functional.flat import require_alike
from tinyvit.kernels.cuda.source import Source, blocks, pack_of

SOURCE = Source("adam.cu", [{"PACK": 1}, {"PACK": 4}])
BLOCK = 256


def adam_step_cuda(theta, g, m, v, t, lr, betas, eps, weight_decay, where=True):
    require_alike(adam_step, theta=theta, g=g, m=m, v=v)
    arrays = (theta, g, m, v)
    flat = all(array.dtype == "float32" and array.flags.c_contiguous for array in arrays)
    if not flat or isinstance(where, bool):  # not an optimizer's arrays
        if where is False or not flat:
            return adam_step.reference(theta, g, m, v, t, lr, betas, eps, weight_decay, where)
        where = None
    on_host = isinstance(t, int)
    pack = pack_of(theta.size, *arrays)
    SOURCE.launch(
        "adam_step", blocks(theta.size, pack * BLOCK), BLOCK, *arrays, theta.size, None if on_host else t, where,
        *(0.0 if on_host else log(beta) if beta else -inf for beta in betas),
        *(float(debiasing(beta, t, "float32")) if on_host else 0.0 for beta in betas),
        *(float(factor) for beta in betas for factor in (beta, 1 - beta)),
        float(lr), float(eps), float(1 - lr * weight_decay), PACK=pack,
    )  # fmt: skip


adam_step.register(("cupy", "float32"), adam_step_cuda)
