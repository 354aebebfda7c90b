"""One step of Adam or AdamW on a stretch of parameters, in place."""

from tinyvit.functional.dispatch import operation


@operation
def adam_step(theta, g, m, v, t, lr, betas, eps, weight_decay):
    """Step t of Adam along the gradient g, in the notation of Kingma & Ba 2015, algorithm 1:

        θ ← θ − lr · weight_decay · θ
        m ← β₁ m + (1 − β₁) g    v ← β₂ v + (1 − β₂) g²
        m̂ = m / (1 − β₁ᵗ)        v̂ = v / (1 − β₂ᵗ)        θ ← θ − lr m̂ / (√v̂ + ε)

    The first line is the decoupled weight decay of Loshchilov & Hutter 2019, algorithm 2; without decay it is Adam.
    θ, m and v change in place, and nothing is returned.
    """
    beta1, beta2 = betas
    theta *= 1 - lr * weight_decay
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * g * g
    m_hat = m * (1 / (1 - beta1**t))
    v_hat = v * (1 / (1 - beta2**t))
    theta -= lr * m_hat / (v_hat**0.5 + eps)
