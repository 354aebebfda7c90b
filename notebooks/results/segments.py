"""How well attention finds an object: digits on photographs, and the segments of four ViTs' heads.

    python notebooks/results/segments.py DINO_RUN MAE_RUN SUPERVISED_RUN --data-dir FOLDER

A digit, enlarged threefold, is laid in one colour over each of 400 test photographs of CIFAR-10; where it is drawn is
the true mask. A segment is the fewest patches that hold 60 % of what a head takes from the patches, for the class
token or for all patches on average; its overlap with the mask is their intersection over their union (IoU). Block and
head are those with the largest mean on the first 200 images, once among all blocks and once in the last one; stored is
their mean on the others, in `segments.json`, and a picture of eight of them.
"""

import argparse
import json
import platform
from pathlib import Path

import numpy as np

from tinyvit import files, probe
from tinyvit.bench.machine import processor
from tinyvit.data import load
from tinyvit.data.segment_digits import ENLARGED, digits_on
from tinyvit.models import build
from tinyvit.training.trained import load_trained

FILE = Path(__file__).with_suffix(".json")
IMAGES, SHOWN = 400, 8
QUERIES = "token", "avg"


def digits_on_photographs(photographs, drawn, seed=0):
    """Photographs (n, 3, H, W) with a digit of (n, 1, 8, 8) on each, and the digits' masks (n, H, W), by `digits_on`.

    Their places are random, and so are their colours, one of eight: channels with all or no light.
    """
    generator, (count, channels, H, W) = np.random.default_rng(seed), photographs.shape
    side = ENLARGED * drawn.shape[2]
    places, colours = [], []
    for _ in range(count):
        places.append(generator.integers(0, (H - side + 1, W - side + 1)))
        colours.append(255 * generator.integers(0, 2, (channels, 1, 1)))
    return digits_on(photographs, drawn, places, colours)


def segments_of(model, images):
    """The segments of each head of a model, (queries, blocks, heads, n, rows, columns), for images as it sees them."""
    attention = probe.trace(model, images).attention
    maps = [probe.over_patches(attention, model.config.grid, query, model.num_prefix_tokens) for query in QUERIES]
    return probe.attention_segments(np.stack(maps).swapaxes(2, 3))


def best_head(segments, masks):
    """Which head's segments (..., n, rows, columns) overlap most with the first half of the n masks, a tuple, and its
    mean overlap with the second half."""
    found, half = probe.overlap(segments, masks), len(masks) // 2
    first = found[..., :half].mean(-1)
    head = tuple(int(i) for i in np.unravel_index(first.argmax(), first.shape))
    return head, float(found[head][half:].mean())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dino", metavar="DINO_RUN", help="a run of the task dino on CIFAR-10")
    parser.add_argument("mae", metavar="MAE_RUN", help="a run of the task mae on CIFAR-10")
    parser.add_argument("supervised", metavar="SUPERVISED_RUN", help="a run of a ViT with a class token on CIFAR-10")
    parser.add_argument("--data-dir", help="folder with CIFAR-10")
    options = parser.parse_args(arguments)
    photographs, digits = load("cifar10", options.data_dir).test, load("digits").train
    images, masks = digits_on_photographs(photographs.images[:IMAGES], digits.images[:IMAGES])
    paths = {"DINO": options.dino, "MAE": options.mae, "supervised": options.supervised}
    models = {name: load_trained(path, "cpu").model for name, path in paths.items()}
    models["random"] = build(models["DINO"].config, seed=0)
    pixels, rows, shown = photographs.normalise(images), [], []
    for name, model in models.items():
        segments = segments_of(model, pixels)
        for blocks, some in (("all", segments), ("last", segments[:, -1:])):
            (query, block, head), mean = best_head(some, masks)
            block += segments.shape[1] - some.shape[1]
            rows.append({"model": name, "blocks": blocks, "query": QUERIES[query], "block": block, "head": head,
                         "overlap": round(mean, 6)})  # fmt: skip
            print(rows[-1], flush=True)
            if blocks == "all":
                shown.append(segments[query, block, head, -SHOWN:])
    made = {"processor": processor(), "python": platform.python_version(), "numpy": np.__version__}
    lines = ",\n".join(json.dumps(row) for row in rows)
    files.write(FILE, f'{{"made with": {json.dumps(made)},\n"rows": [\n{lines}\n]}}\n'.encode())
    figure = probe.draw_segments(images[-SHOWN:] / 255, masks[-SHOWN:], shown, list(models))
    figure.savefig(FILE.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
