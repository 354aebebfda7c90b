"""tinyvit data"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.data import BUILT_IN, DATASETS, cache, cifar, cifar_files, load
from tinyvit.files import expand_path
from tinyvit.training.display import table


@dataclass(frozen=True)
class Data:
    """Fetch a data set, or take over a copy of your own, into the cache folder, where every command looks for it.
    The cache folder is TINYVIT_DATA, or else the platform's."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """The data set: digits, moving-digits, coloured-digits, segment-digits, sized-digits, cifar10 or cifar100."""
    source: Annotated[str | None, arg(name="from")] = None
    """A file or folder that you have: it is read, checked and copied, and nothing is downloaded."""
    data_dir: str | None = None
    """Folder to look in and to put the data into, instead of the cache folder."""

    def __call__(self):
        name = self.name
        if name in cifar.CIFARS:
            split, rows = self.fetched(cifar.CIFARS[name])
        elif name in DATASETS and name not in BUILT_IN:
            raise ValueError(f"{name} is made of files of your own: nothing is downloaded; train with --data-dir")
        elif name in BUILT_IN and (self.source or self.data_dir):
            raise ValueError(f"{name} is built in: it takes neither --from nor --data-dir")
        else:
            split, rows = load(name), [("stored in", "scikit-learn: it is built in, nothing is downloaded")]
        print(table([*describe(name, split), *rows]))

    def fetched(self, spec):
        """The data set, and rows about its files."""
        root = expand_path(self.data_dir) if self.data_dir else cache.cache_folder()
        kept = cache.take_over(spec, expand_path(self.source), root) if self.source else cache.obtain(spec, root)
        if cifar_files.is_official(spec, kept.rows):
            state = "official: byte by byte the original's images and labels"
        else:
            state = "not the official files: whole and readable, not the original's bytes (say so beside an accuracy)"
        came_from = [("came from", kept.source)] if kept.source else []
        return cifar.as_split(spec, kept.rows), [("stored in", str(kept.path)), *came_from, ("checksums", state)]


def describe(name, split):
    """The rows that every data set has."""
    train = split.train.images
    channels, *frames, height, width = train[0].shape
    sizes = f"{height}×{width}"
    if train.ndim == 1:
        sides = [side for image in train for side in image.shape[1:]]
        sizes = f"sides from {min(sides)} to {max(sides)}"
    classes = split.train.classes
    shown = ", ".join(classes) if len(classes) <= 10 else f"{', '.join(classes[:4])}, …, {classes[-1]}"
    return [
        ("data set", name),
        ("videos" if frames else "images", f"{len(split.train):,} training and {len(split.test):,} test"),
        *([("frames", str(*frames))] if frames else []),
        ("pixels", f"{sizes}, {channels} channel{'s' * (channels != 1)}"),
        ("classes", f"{len(classes)}: {shown}"),
        ("size", f"{sum(image.nbytes for part in split for image in part.images) / 1e6:,.1f} MB of pixels"),
    ]
