import errno
import os
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photos import photos, random_vit, saved
from strategies import images_for, seeds, vits

from tinyvit import probe
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.nn.block import Block
from tinyvit.training.features import check_new_files, features, features_by_layer, features_of_files, save_features
from tinyvit.training.inference import evaluation_batch
from tinyvit.training.predict import FileResult


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(pool=st.sampled_from(["token", "avg"]), hidden=st.sampled_from([None, 5]), seed=seeds())
def test_the_head_maps_the_features_to_the_logits_bit_for_bit(dtype, pool, hidden, seed):
    model = random_vit(seed, dtype, global_pool=pool, head_hidden=hidden)
    images = images_for(model, seed, 9).astype(dtype)
    found = features(model, images, threads=1)
    assert type(found) is np.ndarray and (found.dtype, found.shape) == (dtype, (9, 8))
    np.testing.assert_array_equal(model.head(found)[0], model(images)[0])


@given(model=vits(), seed=seeds())
def test_features_of_every_layer_agree_with_the_trace(model, seed):
    images = images_for(model, seed, 3)
    trace, depth = probe.trace(model, images), len(model.blocks)
    streams = [trace.values["(embed)"], *(trace.values[f"blocks.{i}"] for i in range(depth)), trace.values["norm"]]
    for layer, tokens in zip([*range(depth + 1), None], streams):
        for pool, expected in (("token", tokens[:, 0]), ("mean", tokens[:, 1:].mean(1))):
            found = features(model, images, layer=layer, pool=pool)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
            if layer is not None:
                again = features(model, images, layer=layer - depth - 1, pool=pool)
                np.testing.assert_array_equal(again, found)


@given(seed=seeds(), layers=st.lists(st.sampled_from([0, 1, 2, 3, -1, None]), min_size=1, max_size=6))
def test_several_layers_at_once_give_the_features_of_each_alone(seed, layers):
    model, dataset = random_vit(seed), photos(5, seed)
    together = features_by_layer(model, dataset, layers)
    assert [x.shape for x in together] == [(5, 8)] * len(layers)
    for i, layer in enumerate(layers):
        np.testing.assert_array_equal(together[i], features(model, dataset, layer=layer))


@pytest.mark.parametrize(("layers", "count"), [([0], 0), ([1], 1), ([2, 0], 2), ([-1], 3), ([None, 0], 3)])
def test_no_block_after_the_layer_is_computed(layers, count, monkeypatch):
    model, computed, forward = random_vit(), [], Block.forward

    def counted(block, *inputs):
        if block.path:  # the batch's size is measured with a block without a model
            computed.append(block.path)
        return forward(block, *inputs)

    monkeypatch.setattr(Block, "forward", counted)
    features_by_layer(model, photos(1), layers)
    assert computed == [f"blocks.{i}" for i in range(count)]


def test_weights_that_are_nan_or_infinite_are_refused_where_they_count():
    model, dataset = random_vit(), photos(3)
    for parameter in model.blocks[2].parameters():
        parameter.data = np.full(parameter.shape, np.nan)
    assert all(np.isfinite(x).all() for x in features_by_layer(model, dataset, [0, 1, 2]))
    with pytest.raises(ValueError, match=r"features of image 0 are NaN or infinite: the weights are damaged"):
        features(model, dataset)


@given(size=st.sampled_from([1, 2, 17]), threads=st.integers(1, 3), layer=st.sampled_from([0, 2, None]), seed=seeds())
def test_features_depend_neither_on_the_batch_nor_on_the_threads(size, threads, layer, seed):
    model, dataset = random_vit(seed), photos(17, seed)
    images = dataset.normalise(dataset.images, "float64")
    expected = features(model, dataset, layer=layer, threads=1)
    for found in (
        features(model, images, layer=layer, threads=threads),
        np.concatenate([features(model, images[i : i + size], layer=layer) for i in range(0, 17, size)]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_images_of_several_batches_are_all_processed_and_in_order():
    model = random_vit()
    count = 2 * evaluation_batch(model) + 1
    dataset = photos(count)
    found = features(model, dataset)
    assert len(found) == count
    for i in (0, count // 2, count - 1):
        np.testing.assert_allclose(found[[i]], features(model, dataset.subset([i])), rtol=1e-12, atol=1e-12)


def test_weights_and_gradients_are_left_unchanged():
    model = random_vit()
    model.storage.gradients()[:] = 7
    before = model.storage.data.copy()
    features_by_layer(model, photos(3), [0, None])
    np.testing.assert_array_equal(model.storage.data, before)
    assert (model.storage.grad == 7).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"layer": 4}, "no layer 4; the model has 0 to 3, or from the end −1 to −4"),
    ({"pool": "max"}, "unknown pool 'max'; expected one of token, mean"),
    ({"threads": 0}, "threads from 1 to 4,096, got 0"),
])  # fmt: skip
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        features(random_vit(), photos(2), **options)
    with pytest.raises(ValueError, match=message):
        list(features_of_files(random_vit(), Preprocessing.from_dataset(photos(1)), [], **options))


@pytest.mark.parametrize(("images", "message"), [
    (np.zeros((0, 3, 4, 4)), r"n at least 1, got \(0, 3, 4, 4\)"),
    (np.zeros((3, 4, 4)), r"normalised images \(n, C, H, W\) with n at least 1, got \(3, 4, 4\)"),
    (["photo.jpg"], "got list"),
    (np.zeros((1, 3, 4, 5)), r"expected images \(B, 3, 4, 4\), got \(1, 3, 4, 5\)"),
    (np.zeros((1, 3, 4, 4), "uint8"), "expected normalised images of floating-point numbers .*, got uint8"),
])  # fmt: skip
def test_images_that_do_not_fit_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        features(random_vit(), images)


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [0, -1, None])
def test_files_are_prepared_as_the_images_of_the_data_set_are(tmp_path, layer):
    model, dataset = random_vit(), photos(67)
    paths = saved(dataset, tmp_path)
    found = list(features_of_files(model, Preprocessing.from_dataset(dataset), paths, layer=layer, pool="mean"))
    assert [file.path for file in found] == paths and not any(file.error for file in found)
    expected = features(model, dataset, layer=layer, pool="mean")
    np.testing.assert_allclose([file.result for file in found], expected, rtol=1e-12, atol=1e-12)


def test_a_file_whose_features_are_nan_or_infinite_is_named(tmp_path):
    model, dataset = random_vit(), photos(1)
    model.encode.norm.bias.data = np.full(8, np.inf)
    with pytest.raises(ValueError, match=r"features of image .*000\.png are NaN or infinite"):
        list(features_of_files(model, Preprocessing.from_dataset(dataset), saved(dataset, tmp_path)))


@pytest.mark.parametrize("n", [1, 11])
def test_saved_features_are_loaded_again_with_a_name_in_any_encoding_for_each_row(tmp_path, n):
    array = np.random.default_rng(0).standard_normal((n, 3))
    paths = [os.fsdecode(b"caf\xe9%d.png" % i) for i in range(n)]
    files = (FileResult(path, row) for path, row in zip(paths, array))
    assert save_features(files, tmp_path / "f.npy", tmp_path / "f.txt") == (n, 3)
    for mapped in (None, "r"):
        loaded = np.load(tmp_path / "f.npy", mmap_mode=mapped)
        np.testing.assert_array_equal(loaded, array.astype("float32"), strict=True)
    assert os.fsdecode((tmp_path / "f.txt").read_bytes()).splitlines() == paths


def test_without_rows_or_after_an_error_nothing_is_written(tmp_path, monkeypatch):
    def broken():
        yield FileResult("0.png", np.zeros(2))
        raise ValueError("the weights are damaged")

    assert save_features([], tmp_path / "f.npy", tmp_path / "f.txt") == (0, None)
    with pytest.raises(ValueError, match="the weights are damaged"):
        save_features(broken(), tmp_path / "f.npy", tmp_path / "f.txt")

    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match=r"f\.txt can't be written: No space.*make room"):
        save_features([FileResult("0.png", np.zeros(2))], tmp_path / "f.npy", tmp_path / "f.txt")
    assert not any(tmp_path.iterdir())


def test_output_files_must_be_new_and_in_an_existing_folder(tmp_path):
    assert check_new_files(tmp_path / "f.npy") == (tmp_path / "f.npy", tmp_path / "f.txt")
    assert check_new_files(str(tmp_path / "f.npy"), "n")[1].name == "n"
    for name in ("old.npy", "other.txt"):
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / "link.npy").symlink_to(tmp_path / "nowhere")
    for out, names, message in (
        ("old.npy", None, "old.npy is there already; choose another place"),
        ("link.npy", None, "link.npy is there already"),
        ("other.npy", None, "other.txt is there already"),
        ("f.npz", None, r"a \.npy file, got --out .*f\.npz; expected a name such as features\.npy"),
        ("nowhere/f.npy", None, "f.npy is in .*nowhere, which doesn't exist"),
        ("f.npy", "nowhere/n", "n is in .*nowhere, which doesn't exist; .*--names"),
        ("f.npy", "f.npy", "features and names would both be written to .*f.npy"),
    ):
        with pytest.raises(ValueError, match=message):
            check_new_files(tmp_path / out, None if names is None else tmp_path / names)
