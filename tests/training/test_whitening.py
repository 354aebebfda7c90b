from dataclasses import replace

import numpy as np
import pytest

from tinyvit import ViTConfig, nn
from tinyvit import functional as F
from tinyvit.data import Dataset
from tinyvit.models import BiTConfig, HybridConfig, ResNetConfig, build
from tinyvit.models.architecture import Architecture
from tinyvit.training import TrainConfig
from tinyvit.training.config import InitConfig
from tinyvit.training.trainer import Trainer
from tinyvit.training.whitening import whiten, whitening_filters


def dataset(count=300, side=12, seed=0):
    """Images of random shades whose neighbours are alike."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (count, 3, -(-side // 2), -(-side // 2))).repeat(2, 2).repeat(2, 3)
    images = (coarse[:, :, :side, :side] + random.integers(0, 60, (count, 3, side, side))) % 256
    return Dataset(images.astype("uint8"), np.zeros(count, "int64"), ("one",), (0.5,) * 3, (0.25,) * 3)


def answers(filters, data, patch):
    """What filters (O, C, P, Q) say of every patch: (patches, O)."""
    patches, _ = F.patchify(data.normalise(data.images, "float64"), (patch, patch))
    return patches.reshape(-1, patches.shape[-1]) @ filters.reshape(len(filters), -1).T


@pytest.mark.parametrize("patch", [1, 2, 3])
def test_what_whitening_filters_say_is_uncorrelated_with_unit_variance(patch):
    data = dataset()
    said = answers(whitening_filters(data, (patch, patch), eps=0)[::2], data, patch)
    assert said.shape[1] == 3 * patch**2
    np.testing.assert_allclose(said.T @ said / len(said), np.eye(said.shape[1]), atol=1e-9)


def test_filters_come_with_both_signs_and_the_largest_variance_first():
    data = dataset()
    filters = whitening_filters(data, (2, 2))
    np.testing.assert_array_equal(filters[1::2], -filters[::2])
    kept = (answers(filters[::2], data, 2) ** 2).mean(0)                       # λ / (λ + ε) < 1
    assert (np.diff(kept) <= 1e-12).all() and 0 < kept.min() < kept.max() < 1


def test_a_patch_that_never_varies_is_not_amplified_without_bound():
    even = replace(dataset(10, 4), images=np.full((10, 3, 4, 4), 200, "uint8"))
    assert np.abs(whitening_filters(even, (2, 2))).max() < 10.001              # 1 / √ε


@pytest.mark.parametrize("config, name", [
    (ViTConfig(img_size=12, patch_size=4, embed_dim=8, depth=1, num_heads=2), "patch_embed.proj.weight"),
    (ResNetConfig(img_size=12, width=4, depths=(1,)), "conv1.weight"),
    (ResNetConfig(img_size=12, width=4, depths=(1,), stem="conv4"), "conv1.weight"),
    (BiTConfig(img_size=12, width=32, depths=(1,)), "stem.conv.weight"),
    (HybridConfig(img_size=12, patch_size=4, backbone_width=4, embed_dim=8, depth=1, num_heads=2),
     "patch_embed.backbone.conv1.weight"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_the_filters_that_read_the_images_are_replaced_and_nothing_else(config, name):
    model, data = build(config), dataset()
    before = model.state_dict()
    whiten(model, data)
    after = model.state_dict()
    assert [key for key in before if not np.array_equal(before[key], after[key])] == [name]
    expected = whitening_filters(data, after[name].shape[2:])[: len(after[name])]
    np.testing.assert_allclose(after[name][: len(expected)], expected, rtol=1e-6)
    np.testing.assert_array_equal(after[name][len(expected) :], before[name][len(expected) :])


class NoFilters(Architecture):
    """Has no part that reads the images by filters."""

    def __init__(self):
        self.config = ViTConfig()
        self.norm = nn.LayerNorm(4)
        self.materialize(0)

    def parts(self):
        return [("norm", self.norm)]


def test_what_cannot_be_whitened_is_refused():
    with pytest.raises(ValueError, match="init.whiten needs filters that read the images, and a NoFilters"):
        whiten(NoFilters(), dataset())
    with pytest.raises(ValueError, match="init.whiten is for weights that are drawn by the seed, not for those of"):
        InitConfig(run="somewhere", whiten=True)


def test_a_training_starts_from_whitening_filters_only_if_asked():
    shape = ResNetConfig(img_size=8, in_chans=1, width=8, depths=(1,))
    config = TrainConfig(dataset="digits", architecture="resnet", model=shape)
    asked = Trainer(replace(config, init=InitConfig(whiten=True)))
    weights = asked.model.state_dict()["conv1.weight"]
    np.testing.assert_allclose(weights, whitening_filters(asked.split.train, (3, 3))[:8], rtol=1e-6)
    assert not np.array_equal(weights, Trainer(config).model.state_dict()["conv1.weight"])
