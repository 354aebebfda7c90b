"""One step of Adam or AdamW on a stretch of parameters, in place."""

from tinyvit.arrays import array_module
from tinyvit.dispatch import operation
from tinyvit.functional.flat import require_alike


@operation(arrays="theta g m v", in_place="theta m v")
def adam_step(theta, g, m, v, t, lr, betas, eps, weight_decay, where=True):
    """Step t of Adam along the gradient g, in the notation of Kingma & Ba 2015, algorithm 1:

        θ ← θ − lr · weight_decay · θ
        m ← β₁ m + (1 − β₁) g    v ← β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ)        v̂ = v / (1 − β₂ᵗ)        θ ← θ − lr m̂ / (√v̂ + ε)

    The first line is the decoupled weight decay of Loshchilov & Hutter 2019, algorithm 2; without decay it is Adam.
    θ, m and v change in place, and nothing is returned. On a GPU t may be an integer scalar there. Derived in
    notebooks/06.

    where   False changes nothing; a boolean scalar on a GPU decides there
    """
    require_alike(adam_step, theta=theta, g=g, m=m, v=v)
    if where is False:
        return
    before = [] if where is True else [(array, array.copy()) for array in (theta, m, v)]
    beta1, beta2 = betas
    theta *= 1 - lr * weight_decay
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * g * g
    m_hat = m * debiasing(beta1, t, m.dtype)
    v_hat = v * debiasing(beta2, t, v.dtype)
    theta -= lr * m_hat / (v_hat**0.5 + eps)
    for array, old in before:
        array_module(array).copyto(array, old, where=~where)


def debiasing(beta, t, dtype):
    """1 / (1 − βᵗ): a float, or where t is a scalar on a GPU one of this dtype there."""
    if isinstance(t, int):
        return 1 / (1 - beta**t)
    # At t = 0 there is nothing to correct; the caller discards the result.
    return (1 / (1 - beta ** array_module(t).maximum(t, 1))).astype(dtype)
