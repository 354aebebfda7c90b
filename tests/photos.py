"""A few photos of noise in six classes, as a data set and as files, and a random ViT that reads them."""

import numpy as np
from PIL import Image
from strategies import redrawn

from tinyvit import ViT, ViTConfig
from tinyvit.data import Dataset

CLASSES = ("cat", "dog", "cow", "emu", "fox", "gnu")
CONFIG = ViTConfig(img_size=4, patch_size=2, num_classes=6, embed_dim=8, depth=3, num_heads=2)


def random_vit(seed=0, dtype="float64", **fields):
    return redrawn(ViT(ViTConfig(**{**vars(CONFIG), **fields}), dtype=dtype), seed)


def photos(size, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 3, 4, 4)).astype("uint8")
    return Dataset(images, generator.integers(0, 6, size), CLASSES, (0.4, 0.5, 0.6), (0.2, 0.2, 0.3))


def saved(dataset, folder):
    """The images of a data set as files; their paths."""
    paths = [folder / f"{i:03}.png" for i in range(len(dataset))]
    for path, image in zip(paths, dataset.images):
        Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(path)
    return paths
