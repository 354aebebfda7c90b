import tracemalloc

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import ViT, ViTConfig, nn, optim
from tinyvit.keys import Key
from tinyvit.training import classification, train_step
from tinyvit.training.freezing import freeze_parts, frozen_parts

DEPTH = 3
PARTS = DEPTH + 4  # embed, blocks, norm, pool, head
CONFIG = ViTConfig(
    img_size=8, patch_size=4, in_chans=2, num_classes=3, embed_dim=8, depth=DEPTH, num_heads=2, drop_rate=0.2,
    drop_path_rate=0.2,
)  # fmt: skip
WORDS = ["embed", "1", "2", "3", "trunk"]


def made(frozen=0):
    """A model with random weights and this many parts frozen."""
    model = redrawn(ViT(CONFIG, dtype="float64"))
    freeze_parts(model, frozen)
    return model


def batch():
    generator = np.random.default_rng(1)
    return generator.standard_normal((4, 2, 8, 8)), generator.integers(0, 3, 4)


@pytest.mark.parametrize("word", WORDS)
def test_freezing_covers_whole_parts_from_the_first_on(word):
    model = made(frozen_parts(word, ViT(CONFIG, device="meta")))
    names = {name for name, parameter in model.named_parameters() if not parameter.trainable}
    blocks = {"embed": 0, "trunk": DEPTH}.get(word, word)
    expected = {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    expected |= {name for i in range(int(blocks)) for name, _ in model.named_parameters() if f"blocks.{i}." in name}
    if word == "trunk":
        expected |= {"norm.weight", "norm.bias"}
    assert names == expected


@pytest.mark.parametrize("word", ["0", "4", "-1", "1.5", "head", "", "Embed", "²"])
def test_an_invalid_freeze_option_is_refused(word):
    with pytest.raises(ValueError, match=r"freeze must be embed .*; the model has 3 layers, got '"):
        frozen_parts(word, ViT(CONFIG, device="meta"))


class Record:
    """An observer that notes whose backward ran."""

    def __init__(self):
        self.paths = []

    def gradient(self, path, dy, dx):
        self.paths.append(path)


@pytest.mark.parametrize("frozen", range(1, PARTS))
def test_no_backward_runs_in_frozen_parts(frozen):
    model, record = made(frozen), Record()
    _, backward, _ = classification(frozen=frozen)(nn.watch(model, record), *batch(), nn.Context())
    backward(1.0)
    below = {path for _, part in model.parts()[:frozen] for path in paths_of(part)}
    assert record.paths and not below & set(record.paths)


def paths_of(part):
    return {module.path for _, module in part.named_modules()}


def bytes_held(frozen):
    """Bytes of the arrays that a forward keeps for its backward.

    Arrays below 1 KiB and Python's own objects are left out: how many of them are new varies, since NumPy and Python
    reuse freed ones.
    """
    model, images = made(frozen), np.random.default_rng(1).standard_normal((64, 2, 8, 8))
    ctx = nn.Context(training=True, key=Key(7))
    model.forward_above(images, frozen, ctx)  # fill the permanent caches
    tracemalloc.start()
    held = model.forward_above(images, frozen, ctx)
    traces = tracemalloc.take_snapshot().traces
    tracemalloc.stop()
    assert held
    return sum(trace.size for trace in traces if trace.domain == np.lib.tracemalloc_domain and trace.size >= 1024)


def test_nothing_is_cached_for_frozen_parts():
    held = [bytes_held(frozen) for frozen in range(1, PARTS)]
    assert held == sorted(held, reverse=True) and held[-1] < held[0] / 20


@pytest.mark.parametrize("make", [
    lambda model: optim.SGD(model, 0.1, 0.9, weight_decay=0.1), lambda model: optim.AdamW(model, 0.1),
    lambda model: optim.Muon(model, 0.1),
])  # fmt: skip
@pytest.mark.parametrize("frozen", range(PARTS))
def test_frozen_parameters_keep_their_bits_and_all_others_move(make, frozen):
    model = made(frozen)
    optimizer, before = make(model), model.state_dict()
    for step in range(2):
        ctx = nn.Context(training=True, key=Key(0, step))
        train_step(model, optimizer, *batch(), ctx, objective=classification(frozen=frozen), clip_norm=1.0, threads=1)
    for name, parameter in model.named_parameters():
        assert (parameter.data == before[name]).all() != parameter.trainable, name
