import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import seeds, splits

from tinyvit import data

NAMES = ("ant", "bee", "cat", "dog", "elk")


some_classes = st.lists(st.sampled_from(NAMES), min_size=2, unique=True).map(tuple)


@given(split=splits(), classes=some_classes)
def test_images_of_the_chosen_classes_keep_their_order_and_their_class_names(split, classes):
    chosen = data.choose(split, classes)
    for part, whole in zip(chosen, split):
        assert (part.classes, part.mean, part.std, part.scale) == (classes, whole.mean, whole.std, whole.scale)
        names = [NAMES[label] for label in whole.labels]
        rows = [row for row, name in enumerate(names) if name in classes]
        np.testing.assert_array_equal(part.images, whole.images[rows])
        assert [classes[label] for label in part.labels] == [names[row] for row in rows]


@given(split=splits(), classes=some_classes, each=st.integers(1, 12), seed=seeds())
def test_the_requested_number_of_training_images_is_kept_equally_many_of_each_class(split, classes, each, seed):
    assume(each <= np.bincount(split.train.labels).min())
    chosen, whole = data.choose(split, classes, each * len(classes), seed), data.choose(split, classes)
    np.testing.assert_array_equal(np.bincount(chosen.train.labels), [each] * len(classes))
    np.testing.assert_array_equal(chosen.test.images, whole.test.images)
    rows = np.searchsorted(whole.train.images.ravel(), chosen.train.images.ravel())  # they are numbered
    np.testing.assert_array_equal(whole.train.images[rows], chosen.train.images)
    np.testing.assert_array_equal(whole.train.labels[rows], chosen.train.labels)


@given(split=splits(), seed=seeds())
def test_a_larger_selection_contains_the_smaller_one(split, seed):
    fewer, more = (set(data.choose(split, images=n * len(NAMES), seed=seed).train.images.flat) for n in (1, 3))
    assert fewer < more


@given(split=splits(), seed=seeds())
def test_which_images_of_a_class_are_drawn_does_not_depend_on_the_other_classes(split, seed):
    def of_ants(classes):
        train = data.choose(split, classes, 2 * len(classes), seed).train
        return set(train.images[train.labels == classes.index("ant")].flat)

    assert of_ants(("ant", "bee")) == of_ants(("elk", "cat", "ant"))


@given(split=splits())
def test_without_a_selection_nothing_changes(split):
    assert data.choose(split) is split


@pytest.mark.parametrize(("classes", "images", "message"), [
    (("1", "one"), None, r"no class 'one'; expected one of 0, 1, 2"),
    (("1", "2", "1"), None, "each class once, got 1 2 times"),
    (("1",), None, "at least two classes, got 1"),
    ((), None, "at least two classes, got none"),
    (None, 0, "equally many images of each of 10 classes, such as 10 in all, got 0"),
    (None, -10, "such as 10 in all, got -10"),
    (None, 1004, "such as 1000 in all, got 1004"),
    (("1", "2"), 7, "each of 2 classes, such as 8 in all, got 7"),
    (("1", "2"), 600, r"at most \d+ images of each class, as many as class 1 has, got 300"),
])  # fmt: skip
def test_an_impossible_selection_is_refused_with_what_is_available(classes, images, message):
    with pytest.raises(ValueError, match=message):
        data.choose(data.digits(), classes, images)


def test_a_misspelt_class_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match=r"no class 'catt'; did you mean cat\?"):
        data.choose(data.Split(*[data.Dataset(np.zeros((1, 1, 1, 1)), np.zeros(1, int), NAMES, (0.5,), (0.5,))] * 2),
                    ("catt", "dog"))  # fmt: skip
