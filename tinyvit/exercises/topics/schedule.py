"""A learning rate that rises, stays, and falls."""

from tinyvit.exercises.exercise import Case, exercise, lesson


def inputs(random, total, warmup):
    return range(total), total, warmup


def without_warmup(random):
    return inputs(random, 20, 0)


@exercise(
    inputs, ({"total": 1000, "warmup": 100}, {"total": 50, "warmup": 7}), traps=(Case("no warm-up", without_warmup),),
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


lesson(schedule, """
Hints:
  Steps are counted from 0, and the last step of the warm-up has 1 already. What has step 0 of a warm-up of 10?
  Two straight lines with a flat part between them.
  In the warm-up (s + 1)/w; later the smaller of 1 and (T − s) / (T/5).

Mistakes:
  always 1
    It is to rise over the warm-up, and to fall over the last fifth.
    `return 1.0`
  the warm-up is forgotten
    From 1/warmup at step 0 to 1 at step warmup − 1.
    `warmup = 0`
  the fall is forgotten
    Over the last fifth of all steps it goes from 1 to 0.
    `(total - step) / (0.2 * total)` → `1.0`
  the warm-up begins at 0
    Steps count from 0: step / warmup makes the first one useless. Add 1 to the step.
    `(step + 1)` → `step`
  the warm-up in whole numbers
    // rounds down to 0 until the last step; / keeps fractions.
    `/ warmup` → `// warmup`
  it falls from the end of the warm-up on
    It stays at 1 until four fifths of all steps are over.
    `0.2 * total` → `total - warmup`
  it falls over the last fifth of what is left after the warm-up
    The fall takes a fifth of all steps, including the warm-up.
    `0.2 * total` → `0.2 * (total - warmup)`
  it falls over the last four fifths
    The fall begins after four fifths of the steps, not after one.
    `0.2` → `0.8`
  it falls to 0 at the last step
    At step total − 1 one step of the fall is left; 0 would be at step total.
    `(total - step) / (0.2 * total)` → `(total - 1 - step) / (0.2 * total - 1)`
  it falls one step too early
    At step 0.8 · total it is still 1: (total − step) / (0.2 · total).
    `(total - step)` → `(total - step - 1)`
  it jumps
    (total − step) / total is 0.2 where it begins to fall; divide by a fifth of total.
    `min(1.0, (total - step) / (0.2 * total))` → `1.0 if step < 0.8 * total else (total - step) / total`
  it falls as a cosine
    Use a straight line.
    `min(1.0, (total - step) / (0.2 * total))` → `0.5 - 0.5 * np.cos(np.pi * min(1.0, (total - step) / (0.2 * total)))`
  it rises at the end
    (step − 0.8 · total) / (0.2 · total) is the part that has passed: take 1 minus that.
    `(total - step) / (0.2 * total)` → `1.0 if step < 0.8 * total else step / (0.2 * total) - 4`
""")
