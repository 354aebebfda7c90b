"""Videos as the arrays that a model reads: animations, such as a GIF, and folders of frames, by Pillow."""

import re
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from tinyvit.data.images import (
    as_pixels,
    check_channels,
    fitted,
    height_width,
    image_files,
    is_animation,
    open_image,
    opened,
    read_all,
    read_image,
)

WANTED = "give a GIF or a folder of frames"


def read_video(path, channels, size, frames, *, resample="bicubic", crop=1.0):
    """An animation, or a folder of its frames, as uint8 (C, T, H, W).

    frames   T: so many are taken, evenly over the whole video
    channels, size, resample, crop   as for `read_image`

    The frames of a folder are its image files in the order of their names, numbers in them by their value.

    Each is resized by itself. Raises ValueError, naming the file or folder, for a still image, too few frames, and what
    can't be read.
    """
    path, size = Path(path), height_width(size)
    check_channels(channels)
    if path.is_dir():
        return of_folder(path, channels, size, frames, resample, crop)

    def read(image):
        count = image.n_frames if is_animation(image) else 1
        if count == 1:
            image.load()  # raises if it is damaged
            return None
        chosen = evenly(count, frames) if count >= frames else ()
        return count, [fitted(at_frame(image, i), channels, size, resample, crop) for i in chosen]

    found = opened(path, read, "a video", WANTED)
    if found is None:
        raise ValueError(f"{path} is a still image, and the model reads videos of {frames} frames; {WANTED}")
    check_count(path, found[0], frames)
    return np.stack(found[1], axis=1)


def read_videos(paths, channels, size, frames, threads=None, **options):
    """read_video(path) for each path, by several threads: a list of arrays, with the ValueError in place of a video
    that can't be read. options   resample and crop, as for `read_video`"""
    read = partial(read_video, channels=channels, size=height_width(size), frames=frames, **options)
    return read_all(read, paths, threads)


def at_frame(image, number):
    """Frame `number` of an animation that Pillow has opened, as an image of its own."""
    image.seek(number)
    return image.copy()


def of_folder(folder, channels, size, frames, resample, crop):
    """The video (C, T, H, W) whose frames are the image files of a folder."""
    files = sorted((file for file in image_files(folder) if file.parent == folder), key=in_order)
    if not files:
        raise ValueError(f"{folder} holds no images that could be the frames of a video")
    check_count(folder, len(files), frames)
    chosen = [files[i] for i in evenly(len(files), frames)]
    return np.stack([read_image(file, channels, size, resample=resample, crop=crop) for file in chosen], axis=1)


def in_order(path):
    """A key that sorts frame2 before frame10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def as_video(video, channels, size, frames, resample="bicubic", crop=1.0):
    """The frames of a video, a list of PIL images or uint8 arrays (H, W) or (H, W, C), or one array of them, as uint8
    (C, T, H, W), chosen as `read_video` does; ValueError for too few of them."""
    video = list(video)
    check_count("the video", len(video), frames)
    chosen = [video[i] for i in evenly(len(video), frames)]
    return np.stack([as_pixels(frame, channels, size, resample, crop) for frame in chosen], axis=1)


def evenly(count, frames):
    """Which of `count` frames are taken: each the one in the middle of its share, all of them if there are no more."""
    return [(2 * i + 1) * count // (2 * frames) for i in range(frames)]


def check_count(name, count, frames):
    """Raise ValueError for a video of fewer frames than are read."""
    if count < frames:
        raise ValueError(
            f"{name} has {count} frame{'s' * (count != 1)}, and the model reads {frames}; give a longer video"
        )


def video_files(folder):
    """The videos in a folder and the folders in it: its animations; or, of a folder with images but no animation, the
    folder itself, whose frames they are."""
    for parent, files in groupby(image_files(folder), key=lambda file: file.parent):
        files = list(files)
        if any(map(moves, files)):
            yield from files
        else:
            yield parent


def moves(path):
    """Whether an image file is an animation; False for one that can't be read."""
    try:
        with path.open("rb") as file:
            return is_animation(open_image(file))
    except Exception:  # Pillow raises many kinds for a damaged file
        return False
