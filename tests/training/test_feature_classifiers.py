import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.training import feature_classifiers
from tinyvit.training.feature_classifiers import STRENGTHS, held_out, linear_probe, nearest_neighbours


def clusters(seed, K=3, n=40, D=5, spread=0.1):
    """Shuffled features around K distant centres, labelled by their centre."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(K), n))
    return 3 * np.eye(K, D)[labels] + spread * generator.standard_normal((K * n, D)), labels


FEW = settings(max_examples=5)  # a probe is fitted nine times over
BOTH = pytest.mark.parametrize("classify", [linear_probe, nearest_neighbours])


@BOTH
@FEW
@given(seed=seeds(), K=st.integers(2, 5))
def test_separable_features_are_all_recognised(classify, seed, K):
    train, test = clusters(seed, K), clusters(seed + 1, K)
    found = classify(train, test)
    assert found.accuracy == 1.0
    np.testing.assert_array_equal(found.predicted, test[1])


@BOTH
def test_the_labels_of_the_test_decide_nothing_but_the_accuracy(classify):
    train, test = clusters(0, spread=3), clusters(1, spread=3)
    right, wrong = classify(train, test), classify(train, (test[0], (test[1] + 1) % 3))
    np.testing.assert_array_equal(right.predicted, wrong.predicted)
    assert right.accuracy != wrong.accuracy and right[1:-1] == wrong[1:-1]


# -- the linear probe -----------------------------------------------------------------------------------------------


@given(seed=seeds(), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_the_probe_is_invariant_to_the_scale_and_the_origin_of_each_feature(seed, scale):
    generator = np.random.default_rng(seed)
    factor, shift = scale * generator.uniform(0.5, 2, 5), 10 * generator.standard_normal(5)
    (x, y), (x_test, y_test) = clusters(seed, spread=2), clusters(seed + 1, spread=2)
    plain = linear_probe((x, y), (x_test, y_test), C=0.1)
    moved = linear_probe((x * factor + shift, y), (x_test * factor + shift, y_test), C=0.1)
    np.testing.assert_array_equal(plain.predicted, moved.predicted)


def test_the_strength_is_the_best_on_the_held_out_part_and_the_strongest_of_equally_good_ones():
    found = linear_probe(clusters(0, spread=3), clusters(1, spread=3))
    assert [C for C, _ in found.tried] == list(STRENGTHS)
    best = max(accuracy for _, accuracy in found.tried)
    assert min(C for C, accuracy in found.tried if accuracy == best) == found.C
    again = linear_probe(clusters(0, spread=3), clusters(1, spread=3), C=found.C)
    assert again.tried == () and again.accuracy == found.accuracy


@given(sizes=st.lists(st.integers(1, 30), min_size=2, max_size=5), seed=seeds())
def test_a_fifth_of_each_class_is_held_out_and_none_is_left_without_an_image_to_learn_from(sizes, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if max(sizes) == 1:
        with pytest.raises(ValueError, match="every class has a single training image"):
            held_out(labels, seed)
        return
    held = held_out(labels, seed)
    for label, size in enumerate(sizes):
        count = held[labels == label].sum()
        assert count == (0 if size == 1 else max(1, round(size / 5))) and count < size
    np.testing.assert_array_equal(held, held_out(labels, seed))


def test_a_probe_that_does_not_converge_warns_once_in_one_line(monkeypatch):
    monkeypatch.setattr(feature_classifiers, "MAX_ITERATIONS", 2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        linear_probe(clusters(0, spread=3), clusters(1), C=10)
    (warning,) = said
    assert "the linear probe with C = 10: lbfgs failed to converge" in str(warning.message)
    assert "\n" not in str(warning.message)


@pytest.mark.parametrize("C", [0, -1, float("inf"), float("nan")])
def test_an_invalid_strength_is_refused(C):
    with pytest.raises(ValueError, match="expected a C above 0 and finite, got"):
        linear_probe(clusters(0), clusters(1), C=C)


# -- the nearest neighbours -----------------------------------------------------------------------------------------


@given(seed=seeds(), k=st.integers(1, 30), temperature=st.sampled_from([0.07, 1.0]), K=st.integers(2, 4))
def test_the_vote_of_the_nearest_is_as_counted_by_hand(seed, k, temperature, K):
    (x, y), (x_test, y_test) = clusters(seed, K, n=15, spread=2), clusters(seed + 1, K, n=10, spread=2)
    expected = []
    for query in x_test:
        cosines = [query @ row / (query @ query * (row @ row)) ** 0.5 for row in x]
        votes = np.zeros(K)
        for i in sorted(range(len(x)), key=lambda i: -cosines[i])[:k]:
            votes[y[i]] += np.exp(cosines[i] / temperature)
        expected.append(votes.argmax())
    found = nearest_neighbours((x, y), (x_test, y_test), k=k, temperature=temperature)
    np.testing.assert_array_equal(found.predicted, expected)
    assert found.accuracy == np.mean(np.array(expected) == y_test)


@given(seed=seeds())
def test_only_the_direction_of_features_counts(seed):
    (x, y), test = clusters(seed, spread=2), clusters(seed + 1, spread=2)
    lengths = 2.0 ** np.random.default_rng(seed).integers(-20, 20, (len(x), 1))
    np.testing.assert_array_equal(
        nearest_neighbours((x * lengths, y), test).predicted, nearest_neighbours((x, y), test).predicted
    )


@pytest.mark.parametrize(("options", "message"), [
    ({"k": 0}, r"a k \(--k; by default 20\) from 1 to 120 training images, got 0"),
    ({"k": 121}, r"a k \(--k; by default 20\) from 1 to 120 training images, got 121"),
    ({"temperature": 0}, "a temperature above 0 and finite, got 0"),
    ({"temperature": float("nan")}, "a temperature above 0 and finite, got nan"),
])  # fmt: skip
def test_invalid_votes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(clusters(0), clusters(1), **options)
