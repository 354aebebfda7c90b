import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tinyvit import data
from tinyvit.data import Dataset, augment
from tinyvit.data.augment import Augmentation
from tinyvit.data.images import read_image
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.data.videos import evenly, read_video, video_files
from tinyvit.keys import Key

KINDS = "gif", "png", "webp"


def frames_of(count, size=(6, 8), seed=0):
    """Frames (count, H, W), each of one grey of its own, so that no format loses it."""
    return np.repeat(np.arange(20, 20 + 10 * count, 10, "uint8"), size[0] * size[1]).reshape(count, *size)


def save(path, frames):
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = (Image.fromarray(frame) for frame in frames)
    first.save(path, **({"save_all": True, "append_images": rest} if rest else {}),
               **({"lossless": True} if path.suffix == ".webp" else {}))  # fmt: skip
    return path


def save_frames(folder, frames, names="frame{}.png"):
    folder.mkdir(parents=True, exist_ok=True)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / names.format(i))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_an_animation_is_read_frame_by_frame(tmp_path, kind):
    frames = frames_of(5)
    video = read_video(save(tmp_path / f"clip.{kind}", frames), 1, (6, 8), 5)
    assert video.shape == (1, 5, 6, 8) and video.dtype == "uint8"
    np.testing.assert_array_equal(video[0], frames)


def test_a_folder_of_frames_is_read_in_the_order_of_the_numbers_in_their_names(tmp_path):
    frames = frames_of(12)
    folder = save_frames(tmp_path / "clip", frames)
    np.testing.assert_array_equal(read_video(folder, 1, (6, 8), 12)[0], frames)
    assert read_video(folder, 3, (6, 8), 4).shape == (3, 4, 6, 8)


def test_frames_are_resized_as_images_are(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 30), dtype="uint8")
    folder = save_frames(tmp_path / "clip", pixels)
    video = read_video(folder, 1, 8, 3)
    for i in range(3):
        np.testing.assert_array_equal(video[:, i], read_image(folder / f"frame{i}.png", 1, 8))


@given(count=st.integers(1, 200), frames=st.integers(1, 200))
def test_frames_are_taken_evenly_and_from_the_middle(count, frames):
    if count < frames:
        return
    taken = evenly(count, frames)
    assert len(set(taken)) == frames and taken == sorted(taken) and taken[0] >= 0 and taken[-1] < count
    steps = np.diff(taken)
    assert not len(steps) or steps.max() - steps.min() <= 1
    assert abs(taken[0] - (count - 1 - taken[-1])) <= 1
    assert count > frames or taken == list(range(count))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_video_is_refused_in_one_line(tmp_path, kind):
    still, short = save(tmp_path / f"still.{kind}", frames_of(1)), save(tmp_path / f"short.{kind}", frames_of(3))
    cases = {
        still: "can't be read as a video: it has 1 frame, and the model reads 4; give a longer video, a GIF",
        short: "can't be read as a video: it has 3 frames, and the model reads 4; give a longer video",
        tmp_path / "none.gif": "can't be read as a video: No such file or directory",
        save_frames(tmp_path / "few", frames_of(1)): "has 1 frame, and the model reads 4; give a longer video",
        save_frames(tmp_path / "empty", []): "has 0 frames",
    }
    damaged = tmp_path / f"damaged.{kind}"
    damaged.write_bytes(short.read_bytes()[:40])
    cases[damaged] = "can't be read as a video"
    for path, message in cases.items():
        with pytest.raises(ValueError, match=re.escape(f"{path} {message}")) as error:
            read_video(path, 1, (6, 8), 4)
        assert "\n" not in str(error.value)


def test_a_video_where_a_still_image_is_wanted_is_refused_and_pictures_of_several_pages_are_not(tmp_path):
    clip = save(tmp_path / "clip.gif", frames_of(3))
    with pytest.raises(ValueError, match="it is a video, and the model reads single images; give one of its frames"):
        read_image(clip, 1, 8, still=True)
    assert read_image(clip, 1, 8).shape == (1, 8, 8)
    assert read_image(save(tmp_path / "pages.tiff", frames_of(3)), 1, 8, still=True).shape == (1, 8, 8)
    assert read_image(save(tmp_path / "still.gif", frames_of(1)), 1, 8, still=True).shape == (1, 8, 8)


def test_the_videos_of_a_folder_are_its_animations_and_the_folders_of_frames_in_it(tmp_path):
    one, two = save(tmp_path / "a" / "1.gif", frames_of(3)), save(tmp_path / "a" / "2.webp", frames_of(2))
    still = save(tmp_path / "a" / "3.png", frames_of(1))
    folder = save_frames(tmp_path / "b" / "clip", frames_of(3))
    assert [*video_files(tmp_path)] == [one, two, still, folder]
    assert [*video_files(folder)] == [folder]


def test_a_folder_of_classes_is_a_data_set_of_videos(tmp_path):
    for name, step in (("brighter", 1), ("darker", -1)):
        for i in range(6):
            frames = frames_of(6)[::step] + np.uint8(i)
            save(tmp_path / name / f"{i}.gif", frames) if i < 3 else save_frames(tmp_path / name / f"clip{i}", frames)
    split = data.load("folder", tmp_path, (6, 8), 1, 4)
    assert split.train.images.shape == (10, 1, 4, 6, 8) and split.test.images.shape == (2, 1, 4, 6, 8)
    for part in split:
        brighter = np.diff(part.images[:, 0, :, 0, 0].astype(int)) > 0
        np.testing.assert_array_equal(brighter, np.repeat(part.labels[:, None] == 0, 3, axis=1))


# -- arrays of videos -------------------------------------------------------------------------------------------------


def dataset_of(shape=(5, 2, 3, 6, 8)):
    generator = np.random.default_rng(0)
    return Dataset(generator.integers(0, 256, shape, dtype="uint8"), np.arange(shape[0]) % 2, ("a", "b"),
                   (0.4, 0.5)[: shape[1]], (0.2, 0.3)[: shape[1]])  # fmt: skip


@pytest.mark.parametrize("options", [
    {"crop": 2}, {"flip": True}, {"crop": 1, "flip": True, "erase": 0.7}, {"mixup": 0.5}, {"cutmix": 1.0}, {},
])  # fmt: skip
def test_what_is_done_to_a_video_is_done_to_all_of_its_frames_alike(options):
    clips, changes = dataset_of(), Augmentation(**options)
    changed, targets = augment.augment(clips.images, clips.labels, changes, clips, Key(3))
    assert changed.shape == clips.images.shape
    for t in range(3):
        frames = replace(clips, images=clips.images[:, :, t])
        alone, same = augment.augment(frames.images, frames.labels, changes, frames, Key(3))
        np.testing.assert_array_equal(changed[:, :, t], alone)
        np.testing.assert_array_equal(targets, same)


def test_preprocessing_of_videos_is_written_and_read_and_one_without_frames_is_of_images():
    clips = dataset_of()
    prepared = Preprocessing.from_dataset(clips)
    assert (prepared.frames, prepared.img_size, prepared.shape) == (3, (6, 8), (2, 3, 6, 8))
    assert Preprocessing.from_json(prepared.to_json(), "x") == prepared
    said = json.loads(prepared.to_json())
    del said["frames"]
    assert Preprocessing.from_json(json.dumps(said), "x") == replace(prepared, frames=None)
    np.testing.assert_array_equal(prepared(clips.images), clips.normalise(clips.images))
    with pytest.raises(ValueError, match="frames must be a positive int or None, got 0"):
        replace(prepared, frames=0)


def test_videos_in_python_are_lists_of_frames_or_arrays(tmp_path):
    prepared = Preprocessing(("a",), 1, (6, 8), (0.5,), (0.5,), frames=3)
    frames = frames_of(6)
    expected = frames[[1, 3, 5]][None, None]
    several = np.concatenate([expected, expected])
    pictures = [Image.fromarray(frame) for frame in frames]
    for one in (frames, [*frames], pictures, frames[..., None]):
        np.testing.assert_array_equal(prepared.pixels(one), expected)
    for two in ([frames, frames], [pictures, [*frames]], np.stack([frames, frames])[..., None], several):
        np.testing.assert_array_equal(prepared.pixels(two), several)
    for wrong, message in (
        (frames[:2], "the video has 2 frames, and the model reads 3"),
        (frames[0], "expected a PIL image or a uint8 array, got uint8"),
        ([], "expected videos as a list or an array, got []"),
        (pictures[0], "expected videos as a list or an array, got <PIL.Image"),
        (frames / 255, "expected videos of 0 to 255 as uint8, got float64 (6, 6, 8)"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            prepared.pixels(wrong)
