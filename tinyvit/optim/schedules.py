"""What the learning rate is multiplied with, step by step: a linear warm-up, then a decay.

step    counts from 0
total   steps of the whole training
warmup  steps of the warm-up; the last of them already runs at the full rate
final   the factor that is reached after the last step
"""

from math import cos, pi


def warmup_cosine(step, total, warmup=0, final=0.0):
    """Half a cosine from 1 to `final`. Loshchilov & Hutter 2017, eq. 5, without restarts."""
    return _warmup_then(step, total, warmup, final, lambda progress: 0.5 * (1 + cos(pi * progress)))


def warmup_linear(step, total, warmup=0, final=0.0):
    """A straight line from 1 to `final`."""
    return _warmup_then(step, total, warmup, final, lambda progress: 1 - progress)


def _warmup_then(step, total, warmup, final, decay):
    if not 0 <= warmup <= total:
        raise ValueError(f"expected a warm-up of 0 to {total} steps, got {warmup}")
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (1 - final) * decay(progress)


SCHEDULES = {"cosine": warmup_cosine, "linear": warmup_linear}
