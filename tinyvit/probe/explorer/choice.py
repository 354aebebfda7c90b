"""Which images to look at."""

import numpy as np


def choose(probabilities, labels, count):
    """`count` rows of `probabilities` (n, K) with `labels` (n,), those worth looking at first.

    In turns: two that are recognised, of one class after the other, the first of each; then one that is not, the one
    whose label got the smallest probability first. If there are none of a kind, the other kind goes on.
    """
    rows = np.arange(len(labels))
    right = probabilities.argmax(1) == labels
    of_label = probabilities[rows, labels]
    nth_of_class = np.array([(right[:i] & (labels[:i] == labels[i])).sum() for i in rows], int)
    recognised = [int(i) for i in np.lexsort((rows, labels, nth_of_class)) if right[i]]
    mistaken = [int(i) for i in np.lexsort((rows, of_label)) if not right[i]]
    chosen = []
    while len(chosen) < count and (recognised or mistaken):
        wants_mistaken = len(chosen) % 3 == 2
        kind = mistaken if mistaken and (wants_mistaken or not recognised) else recognised
        chosen.append(kind.pop(0))
    return chosen
