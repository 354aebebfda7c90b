"""Classifiers on fixed features: logistic regression, and nearest neighbours.

Both are scikit-learn's, and neither sees the labels of the test images.
"""

import warnings
from typing import NamedTuple

import numpy as np

from tinyvit.keys import Key

STRENGTHS = tuple(10.0**power for power in range(-5, 4))  # values of C to choose from
HELD_OUT_SHARE = 0.2                                      # of each class that C is chosen on
MAX_ITERATIONS = 10_000
TOLERANCE = 1e-6  # largest entry of the mean loss's gradient; at scikit-learn's 1e-4 large C's would hardly begin
NEIGHBOURS, TEMPERATURE = 20, 0.07
WORKING_MEMORY_MIB = 64                                   # of distances that are there at a time


class LinearProbe(NamedTuple):
    """accuracy    share of the test images that are classified correctly
    C           inverse strength of the regularisation
    tried       (C, accuracy on the part held out of the training set) of each C, ascending; none if C was given
    predicted   (n,) labels of the test images
    """

    accuracy: float
    C: float
    tried: tuple[tuple[float, float], ...]
    predicted: np.ndarray


def linear_probe(train, test, *, C=None, seed=0):
    """Fit logistic regression on features and evaluate it on others: a `LinearProbe`.

    Chen et al. 2020, "A simple framework for contrastive learning of visual representations", appendix B.8.

    train, test   (features (n, D), labels (n,)) each
    C             scikit-learn's inverse strength of the L2 regularisation, min ½‖W‖² + C Σᵢ −log p(yᵢ | xᵢ). By default
                  the one of `STRENGTHS` that does best on a fifth of each class of the training set, which `seed`
                  chooses; of equally good ones the smallest. The test set has no part in it

    Features are standardised: mean 0 and variance 1 over what is learned from. With C settled it learns from the whole
    training set. Solved by L-BFGS until it converges; a UserWarning says so if it doesn't.

    Raises ValueError for labels of one class only, and where no class has two images, so that none can be held out.
    """
    (features, labels), (test_features, test_labels) = in_float64(train), in_float64(test)
    tried = ()
    if C is None:
        held = held_out(labels, seed)
        found = fit_logistic(features[~held], labels[~held], STRENGTHS)
        tried = tuple((C, float(model.score(features[held], labels[held]))) for C, model in found)
        C = max(tried, key=lambda pair: pair[1])[0]
    check_strength(C)
    ((_, model),) = fit_logistic(features, labels, [C])
    predicted = model.predict(test_features)
    return LinearProbe(float((predicted == test_labels).mean()), C, tried, predicted)


def fit_logistic(features, labels, strengths):
    """(C, classifier) for each C, in order. Each starts from the weights of the one before, which is faster."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(max_iter=MAX_ITERATIONS, tol=TOLERANCE, warm_start=True)
    model = make_pipeline(StandardScaler(), regression)
    for C in strengths:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ConvergenceWarning)
            model.set_params(logisticregression__C=C).fit(features, labels)
        for text in {str(warning.message).partition("\n")[0] for warning in said}:  # the rest is general advice
            warnings.warn(f"the linear probe with C = {C:g}: {text}", stacklevel=3)
        yield C, model


def check_strength(C):
    """Raise ValueError unless C is a strength of regularisation."""
    if not 0 < C < float("inf"):
        raise ValueError(f"expected a C above 0 and finite, got {C}")


def held_out(labels, seed=0):
    """Which of the training images C is chosen on: a fifth of each class, of two images or more at least one.

    Raises ValueError where no class has two.
    """
    generator, held = Key(seed).at("hold out").generator(), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) > 1:
            held[rows[: max(1, round(HELD_OUT_SHARE * len(rows)))]] = True
    if not held.any():
        raise ValueError("every class has a single training image, so there is none to choose C on; give C")
    return held


class NearestNeighbours(NamedTuple):
    """accuracy    share of the test images that are classified correctly
    predicted   (n,) labels of the test images
    """

    accuracy: float
    predicted: np.ndarray


def nearest_neighbours(train, test, *, k=NEIGHBOURS, temperature=TEMPERATURE):
    """Label features as their k nearest neighbours are labelled, and compare: `NearestNeighbours`.

    train, test   (features (n, D), labels (n,)) each
    k             training images that vote on a test image: those with the largest cosine similarity s
    temperature   τ of the votes' weights exp(s/τ); the label with the largest sum wins, of equal ones the lowest

    Wu et al. 2018, "Unsupervised feature learning via non-parametric instance discrimination", section 3.4, where k is
    200. Features are taken as they are, neither centred nor scaled but to length 1.

    Raises ValueError for a k below 1 or above the number of training images.
    """
    from sklearn import config_context
    from sklearn.neighbors import KNeighborsClassifier

    train, (test_features, test_labels) = in_float64(train), in_float64(test)
    check_votes(len(train[0]), k, temperature)

    def votes(distances):  # 1 − s; those of an image times any factor say the same, and this one lets none overflow
        return np.exp((distances.min(1, keepdims=True) - distances) / temperature)

    model = KNeighborsClassifier(k, metric="cosine", algorithm="brute", weights=votes).fit(*train)
    with config_context(working_memory=WORKING_MEMORY_MIB):
        predicted = model.predict(test_features)
    return NearestNeighbours(float((predicted == test_labels).mean()), predicted)


def check_votes(images, k, temperature):
    """Raise ValueError unless k of the training images can vote at this temperature."""
    if not 1 <= k <= images:
        raise ValueError(f"expected a k (--k; by default {NEIGHBOURS}) from 1 to {images} training images, got {k}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"expected a temperature above 0 and finite, got {temperature}")


def in_float64(examples):
    """Features (n, D) in float64, and their labels (n,)."""
    features, labels = examples
    return np.asarray(features, "float64"), np.asarray(labels)
