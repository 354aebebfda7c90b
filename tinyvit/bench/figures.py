"""Summary statistics of a run: medians, quartiles, ratios, and the lower bound of matrix products alone."""

from statistics import median, quantiles


def known(values):
    """The values that are not None."""
    return [value for value in values if value is not None]


def middle(values):
    """The median of the known values, or None."""
    values = known(values)
    return median(values) if values else None


def quartiles(values):
    """[lower, upper] quartile of the known values, or None."""
    values = known(values)
    if len(values) < 2:
        return 2 * values if values else None
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return [lower, upper]


def ratio(theirs, ours):
    """The median over rounds of their time divided by ours: above 1 where we are faster. None without a common round.

    Both times of a round were taken within moments of each other, so slower changes of the machine's speed cancel.
    """
    return middle(
        their / our if their is not None and our is not None else None for their, our in zip(theirs, ours)
    )


def best_rate(rates):
    """Floating-point operations a second: of each round the best library's, and of those the median.

    rates   one list by round for each library. The median, as for the steps, so that the noise of the machine
            is in both of what is compared
    """
    return middle(max(known(round_), default=None) for round_ in zip(*rates))


def floor_seconds(multiply_adds, rate):
    """Seconds for the matrix products alone at a rate: 2 operations for each multiply-add. None without a rate."""
    return None if rate is None else 2 * multiply_adds / rate


def quotient(numerator, denominator):
    """A quotient, or None where a value is missing or the denominator is zero."""
    return None if numerator is None or not denominator else numerator / denominator
