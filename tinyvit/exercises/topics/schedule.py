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
    """The factor of the learning rate: it rises in a straight line over the warm-up, whose last step has 1 already,
    stays at 1, and falls from 1 at step 0.8 · total in a straight line to 0 at step total, if there were one (Zhai et
    al. 2022, section 3.5).

      step    a whole number, counted from 0
      total   how many steps there are
      warmup  those of the warm-up

    returns
      factor  a number
    """
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, (total - step) / (0.2 * total))
