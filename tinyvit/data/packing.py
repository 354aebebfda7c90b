"""Images of several sizes, packed into rows of tokens for a model that reads images at their own size."""

import numpy as np

from tinyvit.data.loader import Batch


def packed_batches(dataset, patch_size, most_tokens, key=None, dtype="float32"):
    """Batches of a `Dataset` with images of several sizes, each a row of at most `most_tokens` tokens of a QwenVision.

    key   of a random order of the images, such as `Key(seed, epoch)`; None: they stay in theirs

    A row ends before the image that would make it too long. A batch's images are an array of objects (B,), normalised
    arrays (C, H, W), as `model(images)` and `train_step(model, optimizer, images, targets)` take them. Its loss is the
    mean over images; of several rows, weigh each by its number of images. Dehghani et al. 2023, "Patch n' Pack: NaViT",
    section 2.1.

    Raises ValueError for an image that is longer than a row.
    """
    tokens = [image[0].size // patch_size**2 for image in dataset.images]
    if max(tokens) > most_tokens:
        _, height, width = dataset.images[np.argmax(tokens)].shape
        raise ValueError(f"an image of {height}×{width} pixels has {max(tokens)} patches, and a row at most "
                         f"{most_tokens}; make images smaller, or rows longer")  # fmt: skip
    order = range(len(dataset)) if key is None else key.generator().permutation(len(dataset))
    rows = [[]]
    used = 0
    for number in order:
        used += tokens[number]
        if used > most_tokens:
            rows.append([])
            used = tokens[number]
        rows[-1].append(number)
    for row in rows:
        images = (dataset.normalise(dataset.images[number][None], dtype)[0] for number in row)
        yield Batch(np.fromiter(images, object, len(row)), dataset.labels[row])
