from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from small_weights import CONFIG, GIVEN, PLACES, PREPARED, WEIGHTS, weights_of

from tinyvit import interop

FORMATS = list(PLACES)


def same(state, other):
    """Whether two states have the same bits under the same names."""
    def bits(array):
        return array.dtype, array.shape, array.tobytes()

    return state.keys() == other.keys() and all(bits(array) == bits(other[name]) for name, array in state.items())


def expected(form):
    """The preprocessing that a format can store."""
    half = (0.5,) * 3
    return PREPARED if form != "npz" else replace(PREPARED, classes=("0", "1", "2"), mean=half, std=half,
                                                  resample="bilinear")  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_saved_weights_are_loaded_bit_for_bit(tmp_path, form, dtype):
    written = weights_of(dtype=dtype)
    interop.save(written, tmp_path / PLACES[form], form)
    weights = interop.load(tmp_path / PLACES[form], **GIVEN[form])
    assert weights.config == CONFIG and weights.preprocessing == expected(form)
    assert same(weights.state, written.state)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_becomes_float32_exactly(saved, tmp_path, kind):
    import ml_dtypes

    dtype = np.dtype(kind if kind == "float16" else ml_dtypes.bfloat16)
    halves = {name: array.astype(dtype) for name, array in WEIGHTS.state.items()}
    save_file(halves, tmp_path / "w.safetensors")
    state = interop.load(tmp_path / "w.safetensors", num_heads=3, img_size=(8, 12)).state
    assert same(state, {name: array.astype("float32") for name, array in halves.items()})
    np.savez(tmp_path / "w.npz", **{name: x.astype(dtype) for name, x in np.load(saved / PLACES["npz"]).items()})
    assert same(interop.load(tmp_path / "w.npz", img_size=(8, 12)).state, state)


def test_timms_file_alone_is_read_if_what_it_lacks_is_given(saved, tmp_path):
    file = saved / "timm" / "model.safetensors"
    weights = interop.load(file, num_heads=3, img_size=(8, 12), mean=PREPARED.mean, std=PREPARED.std)
    assert same(weights.state, WEIGHTS.state)
    assert weights.config == replace(CONFIG, activation="gelu")  # timm's own
    assert (weights.preprocessing.mean, weights.preprocessing.std) == (PREPARED.mean, PREPARED.std)
    assert weights.notes
    with pytest.raises(ValueError, match=r"model\.safetensors: .*give --num-heads"):
        interop.load(file, img_size=(8, 12))


def test_what_the_source_specifies_must_not_be_given(saved):
    with pytest.raises(ValueError, match="huggingface already says num_heads and img_size; leave out num_heads, img_"):
        interop.load(saved / "huggingface", num_heads=3, img_size=8, mean=0.5)


def test_arrays_stored_in_the_needed_layout_are_not_copied(saved):
    for name, array in interop.load(saved / "timm").state.items():
        assert not array.flags.owndata and not array.flags.writeable, name


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMATS)
def test_weights_that_are_nan_or_infinite_are_refused_by_name(tmp_path, form, number, monkeypatch):
    monkeypatch.setattr("tinyvit.interop.saving.check_weights", lambda weights: None)  # others write them
    state = {name: array.copy() for name, array in WEIGHTS.state.items()}
    state["norm.bias"][[2, 5]] = number
    interop.save(WEIGHTS._replace(state=state), tmp_path / PLACES[form], form)
    with pytest.raises(ValueError, match=r"diverged: it has numbers that are NaN or infinite in norm\.bias"):
        interop.load(tmp_path / PLACES[form], **GIVEN[form])


@pytest.mark.parametrize(("name", "array", "message"), [
    ("cls_token", np.ones((1, 1, 12), "int8"), r"expected floating-point numbers, got cls_token \(int8\)"),
    ("head.weight", np.array(1.0), r"a\.safetensors: len"),
])  # fmt: skip
def test_integers_and_arrays_of_too_few_dimensions_are_refused(tmp_path, name, array, message):
    save_file({**WEIGHTS.state, name: array}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=message):
        interop.load(tmp_path / "a.safetensors", num_heads=3, img_size=(8, 12))


def test_weights_that_do_not_fit_in_memory_as_float32_are_refused_before_they_are_read(tmp_path, monkeypatch):
    save_file({name: array.astype("float16") for name, array in WEIGHTS.state.items()}, tmp_path / "a.safetensors")
    monkeypatch.setattr("tinyvit.backend.physical_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"a\.safetensors as float32 needs .* GiB, but this machine has"):
        interop.load(tmp_path / "a.safetensors", num_heads=3, img_size=(8, 12))


@pytest.mark.parametrize(("mean", "std"), [((0.5, 0.4), None), (None, (0.5, 0.5)), (None, (0.5, 0, 0.5)),
                                           ((np.nan,) * 3, None), ("0.5", None), (None, (0.5, None, 0.5)), ({}, None),
                                           (None, True), (0.5j, None), (((0.5, 0.4), 0.3), None)])  # fmt: skip
def test_a_mean_or_std_that_does_not_fit_is_refused(saved, mean, std):
    with pytest.raises(ValueError, match="timm: the (mean|std) that was given is .*; expected a .* for each of 3 ch"):
        interop.load(saved / "timm", mean=mean, std=std)


@pytest.mark.parametrize("path", ["nowhere", "nowhere/w.npz"])
def test_a_path_that_does_not_exist_is_named(tmp_path, path):
    with pytest.raises(ValueError, match=rf"{path} doesn't exist; expected a \.safetensors, the original's \.npz"):
        interop.load(tmp_path / path)


def test_a_hub_name_is_refused_since_nothing_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="not downloaded: hf download an/vit.in1k --local-dir vit.in1k, and give that"):
        interop.load("an/vit.in1k")
    (tmp_path / "here").mkdir()
    for path in ("here/vit", "an/vit.npz", "../vit", "vit", "an/vit/b"):  # what was a path all along
        with pytest.raises(ValueError, match="doesn't exist; expected a"):
            interop.load(path)


HOSTILE = "\x1b[31mred\x07\n\u202e"


def test_control_characters_in_names_in_a_file_are_escaped(saved, tmp_path):
    save_file({**load_file(saved / "timm" / "model.safetensors"), HOSTILE: np.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"unexpected: .*\\x1b\[31mred\\x07\\n") as error:
        interop.load(tmp_path / "a.safetensors", num_heads=3, img_size=(8, 12))
    assert str(error.value).isprintable()
