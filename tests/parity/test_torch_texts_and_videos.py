"""Operations on texts, pairs and videos against PyTorch's autograd, in float64."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds, tokens
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F

pytestmark = pytest.mark.parity


@given(words=SIZES, width=SIZES, shape=st.tuples(SIZES, SIZES), seed=seeds())
def test_embedding_is_that_of_torch(words, width, shape, seed):
    index = np.random.default_rng(seed).integers(0, words, shape)

    def theirs(weight):
        return T.embedding(torch.tensor(index), weight)

    assert_same_as_torch(F.embedding, theirs, normal(seed, (words, width)), index=index)


@given(x=tokens())
def test_quick_gelu_is_a_product_with_torchs_sigmoid(x):
    assert_same_as_torch(F.quick_gelu, lambda x: x * torch.sigmoid(1.702 * x), x)


@given(shape=st.tuples(SIZES, SIZES, SIZES), scale=st.sampled_from([-1.0, 0.5, 4.0, 5.0]), seed=seeds())
def test_similarity_is_a_product_of_torch_with_a_clamped_scale(shape, scale, seed):
    B, K, D = shape

    def theirs(images, texts, s):
        return T.linear(images, texts) * s.clamp(max=log(100)).exp()

    assert_same_as_torch(F.similarity, theirs, *normal(seed, (B, D), (K, D)), np.array([scale]))


@given(B=SIZES, seed=seeds())
def test_contrastive_loss_is_the_mean_of_two_cross_entropies_of_torch(B, seed):
    pair = torch.arange(B)

    def theirs(logits):
        return (T.cross_entropy(logits, pair) + T.cross_entropy(logits.T, pair)) / 2

    assert_same_as_torch(F.contrastive_loss, theirs, normal(seed, (B, B)))
    texts = np.random.default_rng(seed).integers(0, 3, B)
    alike = texts[:, None] == texts
    pair = torch.tensor(alike / alike.sum(1))  # probabilities
    assert_same_as_torch(F.contrastive_loss, theirs, normal(seed, (B, B)), alike=alike)


@given(x=tokens())
def test_gather_batch_of_a_whole_batch_is_torchs_clone(x):
    assert_same_as_torch(F.gather_batch, torch.clone, x)


@given(counts=st.tuples(*[st.integers(1, 3)] * 3), sides=st.tuples(*[st.integers(1, 3)] * 3), B=SIZES, C=SIZES,
       seed=seeds())  # fmt: skip
def test_tubelets_and_from_tubelets_are_torchs_unfold_and_its_inverse(counts, sides, B, C, seed):
    size = tuple(count * side for count, side in zip(counts, sides))

    def cut(x):
        for axis, side in zip((2, 3, 4), sides):
            x = x.unfold(axis, side, side)                     # (B, C, t, h, w, S, P, Q) in the end
        return x.permute(0, 2, 3, 4, 1, 5, 6, 7).flatten(4).flatten(1, 3)

    def joined(x):
        x = x.unflatten(2, (C, *sides)).unflatten(1, counts).permute(0, 4, 1, 5, 2, 6, 3, 7)
        return x.flatten(6).flatten(4, 5).flatten(2, 3)

    videos = normal(seed, (B, C, *size))
    assert_same_as_torch(F.tubelets, cut, videos, tubelet=sides)
    cut_up = cut(torch.tensor(videos)).numpy()
    assert_same_as_torch(F.from_tubelets, joined, cut_up, tubelet=sides, size=size)


@given(shape=st.tuples(SIZES, SIZES, SIZES), frames=st.integers(1, 4), seed=seeds())
def test_split_frames_and_join_frames_are_torchs_reshapes(shape, frames, seed):
    B, n, D = shape
    whole, single = normal(seed, (B, frames * n, D), (B * frames, n, D))

    def split(x):
        return x.unflatten(1, (frames, n)).flatten(0, 1)

    assert_same_as_torch(F.split_frames, split, whole, frames=frames)
    assert_same_as_torch(F.join_frames, lambda x: x.unflatten(0, (B, frames)).flatten(1, 2), single, frames=frames)
