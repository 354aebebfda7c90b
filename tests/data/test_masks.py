import numpy as np
import pytest
from PIL import Image

from tinyvit.arrays import IGNORED
from tinyvit.data import Dataset, choose, hold_out, load, resize_dataset


def write(folder, *names, side=8, most=3):
    """Images, and masks of the same names whose labels are the images' grey levels."""
    generator = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name in names:
        labels = generator.integers(0, most, (side, side)).astype("uint8")
        labels[0, 0] = IGNORED
        Image.fromarray(labels).save(folder / "images" / f"{name}.tif")
        Image.fromarray(labels).save(folder / "masks" / f"{name}.png")


def read(folder, size=8, channels=1, **options):
    return load("folder", folder, size, channels, masks=True, **options)


def test_masks_are_read_beside_their_images_and_a_fifth_is_set_aside(tmp_path):
    write(tmp_path, *"abcdefghij")
    train, test = read(tmp_path)
    assert (len(train), len(test)) == (8, 2) and train.classes == ("0", "1", "2")
    for part in (train, test):
        np.testing.assert_array_equal(part.images[:, 0], part.labels)
        assert (part.labels[:, 0, 0] == IGNORED).all()
    (tmp_path / "classes.txt").write_text("sky\nsea\nland\n")
    assert read(tmp_path).train.classes == ("sky", "sea", "land")


def test_folders_for_training_and_test_may_have_files_of_the_same_name(tmp_path):
    write(tmp_path / "train", "a", "b")
    write(tmp_path / "val", "b", side=6)
    train, test = read(tmp_path, 4, crop=None)
    assert len(train) == 2 and len(test) == 1 and train.labels.shape == (2, 4, 4)


@pytest.mark.parametrize("crop", [1.0, 0.5, None])
def test_a_mask_is_resized_and_cut_like_its_image(tmp_path, crop):
    write(tmp_path, *"abcde", side=12)
    train, _ = read(tmp_path, (6, 4), resample="nearest", crop=crop)
    np.testing.assert_array_equal(train.images[:, 0], train.labels)


def test_a_data_set_is_resized_with_its_masks():
    labels = np.arange(4).reshape(1, 2, 2)
    dataset = Dataset(labels[:, None].astype("uint8"), labels, tuple("abcd"), (0.5,), (0.2,))
    resized = resize_dataset(dataset, 4, "nearest")
    np.testing.assert_array_equal(resized.labels, labels.repeat(2, 1).repeat(2, 2))
    np.testing.assert_array_equal(resized.labels, resized.images[:, 0])


def test_images_with_masks_are_chosen_and_held_out_whatever_their_labels(tmp_path):
    write(tmp_path, *"abcdefghij")
    split = read(tmp_path)
    assert [len(part) for part in hold_out(split, 0.25)] == [6, 2]
    assert len(choose(split, images=5).train) == 5
    with pytest.raises(ValueError, match="some of the classes can be chosen of images, not of pixels, got"):
        choose(split, ("0", "1"))


@pytest.mark.parametrize("spoil, message", [
    (lambda mask: mask.unlink(), r"b\.tif has no mask; expected one of the same name in .*masks"),
    (Image.new("RGB", (8, 8)).save, "b.png can't be read as a mask: expected one channel of class numbers .* mode RGB"),
    (Image.new("L", (6, 8)).save, r"b.png can't .* expected the size of its image b\.tif, got 8×6 and 8×8 pixels"),
    (Image.new("L", (8, 8), 7).save, r"b.png can't .* it has the label 7, and classes\.txt names 3 classes, 0 to 2"),
    (lambda mask: Image.new("L", (8, 8)).save(mask, "JPEG"), "b.png can't .* JPEG changes numbers of classes"),
    (lambda mask: mask.write_bytes(b"no image"), "b.png can't be read as a mask: expected AVIF"),
])  # fmt: skip
def test_a_mask_that_does_not_fit_is_named(tmp_path, spoil, message):
    write(tmp_path, *"abc")
    (tmp_path / "classes.txt").write_text("sky\nsea\nland\n")
    spoil(tmp_path / "masks" / "b.png")
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_classes_without_names_are_those_of_the_masks_for_training(tmp_path):
    write(tmp_path / "train", "a", "b")
    write(tmp_path / "test", "a", most=4)
    with pytest.raises(ValueError, match="a mask of the test has the label 3, and those for training 2 at most"):
        read(tmp_path)
    write(tmp_path / "train", "a", "b", most=1)  # 0 and 255, as many programs write background and foreground
    with pytest.raises(ValueError, match="at least two classes, from 0 on, got no label but 0, and 255"):
        read(tmp_path)


def test_a_folder_of_another_layout_is_refused(tmp_path):
    for folder, message in ((None, "needs --data-dir"), (tmp_path, "holds no images with masks")):
        with pytest.raises(ValueError, match=f"{message}.* folders images/ and masks/"):
            read(folder)


def test_labels_of_pixels_are_checked_where_a_data_set_is_made():
    images, about = np.zeros((2, 1, 4, 4), "uint8"), (tuple("ab"), (0.5,), (0.2,))
    Dataset(images, np.full((2, 4, 4), IGNORED), *about)
    with pytest.raises(ValueError, match="expected labels from 0 to 1, got '0 to 2'"):
        Dataset(images, np.arange(32).reshape(2, 4, 4) % 3, *about)
    with pytest.raises(ValueError, match=r"expected integer labels \(2,\) or \(2, 4, 4\), got 'int64 \(2, 2, 4\)'"):
        Dataset(images, np.zeros((2, 2, 4), int), *about)
