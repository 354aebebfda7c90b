"""The factor of the learning rate at each step: a linear warm-up, then what the name says.

step    counts from 0
total   steps of the whole training
warmup  steps of the warm-up; the last of them already has the full rate
final   the factor after the last step
"""

from math import cos, pi

CYCLE_FRACTION = 9 / 11  # of the steps after the warm-up are the cycle's way down
CYCLE_END = 0.1  # where it ends


def warmup_constant(step, total, warmup=0, final=1.0):
    """1 to the end, whatever `final` is."""
    return _warmup_then(step, total, warmup, 1.0, lambda progress: 1.0)


def warmup_linear(step, total, warmup=0, final=0.0):
    """A straight line from 1 to `final`."""
    return _warmup_then(step, total, warmup, final, lambda progress: 1 - progress)


def warmup_cosine(step, total, warmup=0, final=0.0):
    """Half a cosine from 1 to `final`. Loshchilov & Hutter 2017, eq. 5, without restarts."""
    return _warmup_then(step, total, warmup, final, lambda progress: 0.5 * (1 + cos(pi * progress)))


def warmup_one_cycle(step, total, warmup=0, final=0.0):
    """A straight line from 1 to a tenth, and a flatter one from there to `final`. Smith & Topin 2018.

    The warm-up is the cycle's way up; the way down takes 9/11 of the steps after it, and the rest is the paper's last
    phase, far below the cycle. A warm-up of 45 % makes both ways equally long, as in the paper, and leaves 10 % for
    the end. A cyclical momentum (Smith 2018) is left out: a schedule sets only the learning rate.
    """
    return _warmup_then(step, total, warmup, final, _cycle)


def _cycle(progress):
    if progress < CYCLE_FRACTION:
        return 1 - (1 - CYCLE_END) * progress / CYCLE_FRACTION
    return CYCLE_END * (1 - progress) / (1 - CYCLE_FRACTION)


def _warmup_then(step, total, warmup, final, decay):
    if not 0 <= warmup <= total:
        raise ValueError(f"expected a warm-up of 0 to {total} steps, got {warmup}")
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (1 - final) * decay(progress)


SCHEDULES = {
    "constant": warmup_constant,
    "linear": warmup_linear,
    "cosine": warmup_cosine,
    "one-cycle": warmup_one_cycle,
}
