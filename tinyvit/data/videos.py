"""Videos as the arrays that a model reads: animations, such as a GIF, and folders of frames, by Pillow."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from tinyvit.data.images import MAX_THREADS, as_pixels, fit_image, image_files, is_animation, read_image, read_opened


def read_video(path, channels, size, frames, *, resample="bicubic", crop=1.0):
    """An animation, or a folder of its frames, as uint8 (C, T, H, W).

    frames   T: so many are taken, evenly over the whole video
    channels, size, resample, crop   as for `read_image`

    The frames of a folder are its image files in the order of their names, numbers in them by their value.

    Each is resized by itself. Raises ValueError, naming the file or folder, for a still image, too few frames, and what
    can't be read.
    """
    path, prepared = Path(path), dict(channels=channels, size=size, resample=resample, crop=crop)
    if path.is_dir():
        files = sorted((file for file in image_files(path) if file.parent == path), key=in_order)
        return stack_frames(path, files, frames, partial(read_image, **prepared))

    def read(image):
        def frame(number):
            image.seek(number)
            return fit_image(image, **prepared)

        image.load()  # raises if it is damaged
        return stack_frames("it", range(image.n_frames if is_animation(image) else 1), frames, frame)

    return read_opened(path, read, "a video")


def read_all(paths, threads=None, **options):
    """The image at each path, or the video where `frames` is among the options, by several threads: a list of arrays,
    with the ValueError in place of one that can't be read. options   as for `read_image` and `read_video`"""
    read = read_video if "frames" in options else read_image

    def attempt(path):
        try:
            return read(path, **options)
        except ValueError as error:
            return error

    with ThreadPoolExecutor(threads or min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(attempt, paths))


def as_video(video, frames, **options):
    """The frames of a video, a list of PIL images or uint8 arrays (H, W) or (H, W, C), or one array of them, as uint8
    (C, T, H, W), chosen as `read_video` does; ValueError for too few of them. options   as for `as_pixels`"""
    return stack_frames("the video", list(video), frames, partial(as_pixels, **options))


def stack_frames(name, video, frames, read):
    """`frames` of a sequence of frames, evenly chosen, each as `read` returns it: uint8 (C, T, H, W)."""
    if (count := len(video)) < frames:
        found = f"{count} frame{'s' * (count != 1)}"
        advice = "give a longer video, a GIF or a folder of frames"
        raise ValueError(f"{name} has {found}, and the model reads {frames}; {advice}")
    return np.stack([read(video[i]) for i in evenly(count, frames)], axis=1)


def in_order(path):
    """A key that sorts frame2 before frame10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def evenly(count, frames):
    """Which of `count` frames are taken: each the one in the middle of its share, all of them if there are no more."""
    return [(2 * i + 1) * count // (2 * frames) for i in range(frames)]


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
    """Whether an image file is an animation that can be read."""
    with suppress(ValueError):
        return read_opened(path, is_animation, "an animation")
