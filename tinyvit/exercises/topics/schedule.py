"""A learning rate that rises, stays, and falls."""

from math import cos, pi

from tinyvit.exercises.exercise import Case, Exercise


def inputs(random, total, warmup):
    return range(total), total, warmup


def without_warmup(random):
    return inputs(random, 20, 0)


def schedule(step, total, warmup):
    if step < warmup:
        return (step + 1) / warmup
    return min(1.0, (total - step) / (0.2 * total))


SCHEDULE = Exercise(
    "schedule",
    "The factor of the learning rate: it rises in a straight line over the warm-up, whose last step has 1 already, "
    "stays at 1, and falls from 1 at step 0.8 · total in a straight line to 0 at step total, if there were one "
    "(Zhai et al. 2022, section 3.5).",
    {"step": "a whole number, counted from 0", "total": "how many steps there are", "warmup": "those of the warm-up"},
    {"factor": "a number"},
    right=schedule,
    shown=(schedule,),
    inputs=inputs,
    sizes=({"total": 1000, "warmup": 100}, {"total": 50, "warmup": 7}),
    traps=(Case("no warm-up", without_warmup),),
    calls=lambda steps, total, warmup: [(step, total, warmup) for step in steps],
    entry="step",
)
EXERCISES = (SCHEDULE,)


def rising(step, warmup):
    return (step + 1) / warmup if step < warmup else 1.0


def falling(step, total):
    return min(1.0, (total - step) / (0.2 * total))


@SCHEDULE.mistake("always 1", "It is to rise over the warm-up, and to fall over the last fifth.")
def constant(step, total, warmup):
    return 1.0


@SCHEDULE.mistake("the warm-up is forgotten", "From 1/warmup at step 0 to 1 at step warmup − 1.")
def no_rise(step, total, warmup):
    return falling(step, total)


@SCHEDULE.mistake("the fall is forgotten", "Over the last fifth of all steps it goes from 1 to 0.")
def no_fall(step, total, warmup):
    return rising(step, warmup)


@SCHEDULE.mistake(
    "the warm-up begins at 0", "Steps count from 0: step / warmup makes the first one useless. Add 1 to the step."
)
def rises_from_0(step, total, warmup):
    return step / warmup if step < warmup else falling(step, total)


@SCHEDULE.mistake("the warm-up in whole numbers", "// rounds down to 0 until the last step; / keeps fractions.")
def rises_at_once(step, total, warmup):
    return (step + 1) // warmup if step < warmup else falling(step, total)


@SCHEDULE.mistake("it falls from the end of the warm-up on", "It stays at 1 until four fifths of all steps are over.")
def falls_at_once(step, total, warmup):
    return rising(step, warmup) if step < warmup else (total - step) / (total - warmup)


@SCHEDULE.mistake(
    "it falls over the last fifth of what is left after the warm-up",
    "The fall takes a fifth of all steps, including the warm-up.",
)
def fifth_of_the_rest(step, total, warmup):
    return min(rising(step, warmup), (total - step) / (0.2 * (total - warmup)))


@SCHEDULE.mistake(
    "it falls over the last four fifths", "The fall begins after four fifths of the steps, not after one."
)
def falls_too_early(step, total, warmup):
    return min(rising(step, warmup), (total - step) / (0.8 * total))


@SCHEDULE.mistake(
    "it falls to 0 at the last step", "At step total − 1 one step of the fall is left; 0 would be at step total."
)
def ends_at_0(step, total, warmup):
    return min(rising(step, warmup), (total - 1 - step) / (0.2 * total - 1))


@SCHEDULE.mistake("it falls one step too early", "At step 0.8 · total it is still 1: (total − step) / (0.2 · total).")
def one_step_early(step, total, warmup):
    return min(rising(step, warmup), (total - step - 1) / (0.2 * total))


@SCHEDULE.mistake("it jumps", "(total − step) / total is 0.2 where it begins to fall; divide by a fifth of total.")
def jumps(step, total, warmup):
    return rising(step, warmup) if step < 0.8 * total else (total - step) / total


@SCHEDULE.mistake("it falls as a cosine", "Use a straight line.")
def falls_as_a_cosine(step, total, warmup):
    return min(rising(step, warmup), 0.5 - 0.5 * cos(pi * falling(step, total)))


@SCHEDULE.mistake(
    "it rises at the end", "(step − 0.8 · total) / (0.2 · total) is the part that has passed: take 1 minus that."
)
def rises_at_the_end(step, total, warmup):
    return rising(step, warmup) if step < 0.8 * total else step / (0.2 * total) - 4
