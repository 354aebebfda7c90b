"""A learning rate that rises, stays, and falls."""

from tinyvit.exercises.exercise import exercise, require_fit


def inputs(random, total, warmup):
    require_fit(warmup <= total // 2)
    return range(total), total, warmup


@exercise(
    inputs, "total=1000,53,48 warmup=20,7,0,1",
    calls=lambda steps, total, warmup: [(step, total, warmup) for step in steps], entry="step",
)
def schedule(step, total, warmup):
    """The factor of the learning rate in one step of a training (Zhai et al. 2022, section 3.5). In the warm-up, which
    is steps 0 to warmup − 1, it is 1/warmup, 2/warmup, … up to 1. Then it stays at 1 until step 0.8 · total. From there
    it falls on the straight line from 1 at 0.8 · total to 0 at total, which is one step after the last.

      step    a whole number, counted from 0
      total   how many steps there are
      warmup  how many steps the warm-up has; 0: there is none

    returns
      factor  a number
    """
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, (total - step) / (0.2 * total))
