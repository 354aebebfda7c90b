"""CIFAR-10 and CIFAR-100 in their official binary layout.

Each file is a row of records: the label (CIFAR-100: the coarse one, then the fine one), then the red, the green and the
blue plane of 32×32 pixels, row by row. Krizhevsky 2009, "Learning multiple layers of features from tiny images".
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tinyvit.data import cache, cifar_files
from tinyvit.data.cifar_files import PARQUET
from tinyvit.data.dataset import Dataset, Split
from tinyvit.files import expand_path

OFFICIAL_HOST, HUGGING_FACE = "https://www.cs.toronto.edu/~kriz", "https://huggingface.co/datasets/uoft-cs"


class Part(NamedTuple):
    """A .bin file: its name, its images, and the checksum of the official one."""

    name: str
    images: int
    checksum: str


@dataclass(frozen=True)
class Cifar:
    """One of the two CIFARs. The last label is the target, the last part is the test."""

    name: str
    title: str
    folder: str
    archive: str
    parts: tuple[Part, ...]
    labels: tuple[str, ...]  # the bytes before the pixels, by their columns in the parquet copy
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # of the training images, channel by channel, as a fraction of 255
    std: tuple[float, ...]
    sources: tuple[dict[str, str], ...]  # each the addresses of its files, with their SHA256, in the order of trial

    @property
    def record(self):
        """Bytes of an image with its labels."""
        return len(self.labels) + 3 * 32 * 32

    @property
    def names(self):
        return [part.name for part in self.parts]

    def size(self, name):
        """Bytes of a file."""
        return next(part.images for part in self.parts if part.name == name) * self.record


# What is downloaded is verified by SHA256, the archives' and the parquet files'; several independent projects publish
# each of them. What is read counts as official by the checksums of the .bin files: of CIFAR-10's, many publish the
# SHA1; of CIFAR-100's, one the SHA256. None of these was compared with a download from here. The script that made the
# parquet copy went through the original's batches in the order of a tar file, so read_parquet puts them back by
# checksum; where that fails, the images stay in the order in which they came and don't count as official.
CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    parts=(
        Part("data_batch_1.bin", 10_000, "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
        Part("data_batch_2.bin", 10_000, "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
        Part("data_batch_3.bin", 10_000, "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
        Part("data_batch_4.bin", 10_000, "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e"),
        Part("data_batch_5.bin", 10_000, "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628"),
        Part("test_batch.bin", 10_000, "sha1:67eb016db431130d61cd03c7ad570b013799c88c"),
    ),
    labels=("label",),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    sources=(
        {f"{HUGGING_FACE}/cifar10/resolve/0b2714987fa478483af9968de7c934580d0bb9a2/plain_text/{PARQUET[0]}":
             "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883",
         f"{HUGGING_FACE}/cifar10/resolve/0b2714987fa478483af9968de7c934580d0bb9a2/plain_text/{PARQUET[1]}":
             "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de"},
        {f"{OFFICIAL_HOST}/cifar-10-binary.tar.gz":
             "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
)  # fmt: skip

FINE_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905 (a hundred quotation marks say nothing)
)

CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-binary",
    archive="cifar-100-binary.tar.gz",
    parts=(
        Part("train.bin", 50_000, "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        Part("test.bin", 10_000, "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ),
    labels=("coarse_label", "fine_label"),
    classes=FINE_CLASSES,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    sources=(
        {f"{HUGGING_FACE}/cifar100/resolve/aadb3af77e9048adbea6b47c21a81e47dd092ae5/cifar100/{PARQUET[0]}":
             "694865d6b990e234804f01268586c41e88bcbbb75e20858432c05ad4081aca23",
         f"{HUGGING_FACE}/cifar100/resolve/aadb3af77e9048adbea6b47c21a81e47dd092ae5/cifar100/{PARQUET[1]}":
             "98776c529bb146a9c791229df74a5cf076be9b43d82dbbd334b6a7788d73dc68"},
        {f"{OFFICIAL_HOST}/cifar-100-binary.tar.gz":
             "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
    ),
)  # fmt: skip

CIFARS = {spec.name: spec for spec in (CIFAR10, CIFAR100)}


def cifar(name, data_dir=None):
    """CIFAR-10 or, with its 100 fine classes, CIFAR-100: 50,000 and 10,000 images of 32×32 pixels.

    name       "cifar10" or "cifar100"
    data_dir   the folder of the .bin files, a folder that holds that folder, the archive or the parquet copy, or the
               archive itself; by default the cache folder, into which the data are downloaded if they aren't there

    Raises ValueError if the files are missing, cut off, or not this data set, or if no source can be reached. Nothing
    is unpickled, and paths in an archive are ignored.
    """
    spec = CIFARS[name]
    if data_dir is None:
        return as_split(spec, cache.obtain(spec, cache.cache_folder()).rows)
    path = expand_path(data_dir)
    kept = cache.find_cached(spec, path)
    return as_split(spec, kept.rows if kept else cifar_files.read(spec, path))


def as_split(spec, rows):
    """Rows of records by file as data sets."""
    *train, test = (rows[name] for name in spec.names)
    return Split(as_dataset(spec, np.concatenate(train)), as_dataset(spec, test))


def as_dataset(spec, rows):
    """Records (n, bytes) as a Dataset."""
    labels = len(spec.labels)
    images = np.ascontiguousarray(rows[:, labels:]).reshape(-1, 3, 32, 32)
    return Dataset(images, rows[:, labels - 1].astype("int64"), spec.classes, spec.mean, spec.std)
