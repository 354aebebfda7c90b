"""What is stored and computed in low precision on a GPU, and what stays float32."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from running_statistics import squares, vit_with_running_norm
from steps import Killed, StopsAfter

import tinyvit
from tinyvit import Context, Key, ViT, ViTConfig, backend, nn, optim
from tinyvit.arrays import array_module
from tinyvit.nn.precision import GPU_ONLY, MASTER, PRECISIONS
from tinyvit.optim import loss_scale
from tinyvit.training import PRESETS, OptimConfig, classification, resume, train, train_step
from tinyvit.training.divergence import Diverged, Faults
from tinyvit.training.tasks.classification import Classification
from tinyvit.training.trained import load_trained

SHAPE = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=16, depth=1, num_heads=2)
LOW = ("bfloat16", "float16")
DRAW = np.random.default_rng(0)
IMAGES, LABELS = DRAW.standard_normal((6, 1, 8, 8), "float32"), DRAW.integers(0, 3, 6)
TINY = replace(
    PRESETS["digits"], model=replace(SHAPE, num_classes=10, num_heads=4, drop_rate=0.1, drop_path_rate=0.2), epochs=1,
    batch_size=512, device="cuda", save_minutes=0.0, optim=OptimConfig(lr=3e-3, warmup=0.1, label_smoothing=0.1),
)  # fmt: skip


def on_gpu(*arrays):
    return [backend.to_device(x, "cuda") for x in arrays]


def one_step(model, optimizer, step=0, **options):
    return train_step(model, optimizer, *on_gpu(IMAGES, LABELS), Context(True, Key(0, step)), **options)


@pytest.mark.parametrize("precision", LOW)
def test_matrices_are_rounded_and_all_else_stays_float32(cupy, precision):
    model = ViT(SHAPE, device="cuda", precision=precision)
    assert (model.dtype, model.precision, model.storage.compute_dtype) == ("float32", precision, precision)
    for name, parameter in model.named_parameters():
        is_matrix = name.endswith("weight") and "norm" not in name
        assert parameter.is_matrix == is_matrix
        assert parameter.value.dtype == (precision if is_matrix else "float32"), name
        assert parameter.data.dtype == parameter.grad.dtype == "float32"
    optimizer = optim.SGD(model, 0.1)
    before = {name: p.value.get() for name, p in model.named_parameters()}
    for _ in range(2):  # the head starts at zero; from the second step on the rest gets gradients, too
        result = one_step(model, optimizer)
    assert result.loss.dtype == result.grad_norm.dtype == result.metrics["accuracy"].dtype == "float32"
    for name, p in model.named_parameters():
        assert (p.value.get() != before[name]).any(), name
        np.testing.assert_array_equal(p.value.get(), p.data.get().astype(p.value.dtype))


@pytest.mark.parametrize("precision", LOW)
def test_activations_and_their_gradients_are_in_the_precision(cupy, precision):
    model, seen = ViT(SHAPE, device="cuda", precision=precision), {}

    class Observer:
        def value(self, path, y):
            seen[path, "value"] = y.dtype

        def gradient(self, path, dy, dx):
            seen[path, "gradient"] = dx.dtype

    logits, cache = model(on_gpu(IMAGES)[0], Context(observer=Observer()))
    nn.watch(model, Observer()).backward(logits, cache)
    assert len(seen) > 20 and {*seen.values()} == {model.storage.compute_dtype}, seen


def test_tf32_is_on_in_forward_and_backward_and_nowhere_else(cupy):
    seen = []
    observer = SimpleNamespace(
        value=lambda path, y: seen.append((path, backend.scope().products)),
        gradient=lambda path, dy, dx: seen.append((path, backend.scope().products)),
    )
    model = ViT(SHAPE, device="cuda", precision="tf32")
    logits, cache = model(on_gpu(IMAGES)[0], Context(observer=observer))
    nn.watch(model, observer).backward(logits, cache)
    assert {numbers for path, numbers in seen if path} == {"tf32"} and backend.scope().products == "float32"
    assert model.dtype == model.storage.compute_dtype == "float32" and model.precision == "tf32"


def test_a_model_moves_from_precision_to_precision_and_keeps_its_weights(cupy):
    model = ViT(SHAPE, device="cuda", precision="float16")
    optimizer = optim.AdamW(model)
    before = {name: x.get() for name, x in model.state_dict().items()}
    for precision in ("bfloat16", "tf32", "float32", "float16"):
        assert model.to(precision=precision).precision == precision
        assert (optimizer.rebind().loss_scale is not None) == (precision == "float16")
        one_step(model, optimizer)
        model.load_state_dict(before)
    assert model.to(device="cuda:0").precision == "float16"
    with pytest.raises(ValueError, match="precision 'float16' needs a GPU; on the CPU take float32"):
        model.to(device="cpu")
    assert model.to(device="cpu", precision="float32").device == "cpu"
    for name, x in model.state_dict().items():
        np.testing.assert_array_equal(x, before[name])


# -- the scale of the loss ------------------------------------------------------------------------------------------


def overflowing(limit):
    """Cross-entropy whose gradients overflow if the loss is scaled by more than `limit`."""

    def objective(model, images, targets, ctx):
        loss, backward, metrics = classification()(model, images, targets, ctx)

        def backward_of_some(dloss):
            xp = array_module(loss)
            factor = xp.where(xp.asarray(dloss > limit), float("inf"), 1.0)
            backward(dloss * factor.astype(loss.dtype))

        return loss, backward_of_some, metrics

    return objective


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):  # NumPy, of which the stand-in is made, warns of what overflows
        yield


def test_too_large_a_scale_skips_steps_until_it_fits_and_does_not_end_the_training(cupy):
    model = ViT(SHAPE, device="cuda", precision="float16")
    optimizer, faults, applied = optim.AdamW(model), Faults(), []
    before = model.storage.data.get()
    for step in range(16):
        result = one_step(model, optimizer, step, objective=overflowing(2.0**12))
        applied.append(bool(result.applied))
        assert not faults.saw(result)
        if not applied[-1]:
            np.testing.assert_array_equal(model.storage.data.get(), before)
        before = model.storage.data.get()
    assert applied == [False] * 4 + [True] * 12
    assert float(optimizer.loss_scale.scale) == 2.0**12
    assert int(optimizer.t) == 12 and int(faults.skipped) == 4 and int(faults.streak) == 0
    restored = optim.AdamW(model)
    restored.load_state_dict(optimizer.state_dict())
    assert float(restored.loss_scale.scale) == 2.0**12


@pytest.mark.parametrize(("first", "then"), [("float16", "bfloat16"), ("tf32", "float16"), ("bfloat16", "float32")])
def test_a_checkpoint_can_be_resumed_in_any_other_precision(cupy, tmp_path, first, then):
    with pytest.raises(Killed):
        train(replace(TINY, precision=first), tmp_path / "run", StopsAfter(1, Killed))
    summary = resume(tmp_path / "run", precision=then)
    assert summary["precision"] == then and summary["steps"] == 3


def test_a_run_that_diverges_in_float16_is_advised_to_take_bfloat16(cupy, tmp_path, monkeypatch):
    monkeypatch.setattr("tinyvit.training.divergence.STEPS_PER_READ", 1)
    monkeypatch.setattr("tinyvit.training.divergence.MAX_SKIPPED_STEPS", 1)
    overflow = overflowing(0.0)
    monkeypatch.setattr(Classification, "loss", lambda task, model, batch, ctx: overflow(model, *batch.values(), ctx))
    monkeypatch.setattr(loss_scale, "INITIAL_SCALE", 1.0)
    with pytest.raises(Diverged, match="the precision float16: .* or --precision bfloat16"):
        train(replace(TINY, precision="float16"), tmp_path / "run")


# -- without a GPU --------------------------------------------------------------------------------------------------


def test_a_precision_that_does_not_suit_the_device_or_the_dtype_is_refused(cupy, monkeypatch):
    monkeypatch.setattr("tinyvit.nn.precision.capability", lambda device: (7, 5))
    for precision in GPU_ONLY:
        with pytest.raises(ValueError, match=f"^precision '{precision}' needs a GPU; on the CPU take float32$"):
            ViT(SHAPE, precision=precision)
    for precision in ("tf32", "bfloat16"):
        with pytest.raises(ValueError, match="needs a GPU of compute capability 8.0 or later, and cuda:0 has 7.5"):
            ViT(SHAPE, device="cuda", precision=precision)
    ViT(SHAPE, device="cuda", precision="float16")
    with pytest.raises(ValueError, match=f"unknown precision 'float8'; expected one of {', '.join(PRECISIONS)}"):
        ViT(SHAPE, precision="float8")
    with pytest.raises(ValueError, match="precision 'float32' keeps its weights in float32, got dtype float64"):
        ViT(SHAPE, dtype="float64", precision="float32")
    with pytest.raises(ValueError, match="unknown dtype 'bfloat16'; .* ask for it by precision="):
        ViT(SHAPE, dtype="bfloat16")


@pytest.mark.parametrize(("has", "expected"), [((9, 0), "bfloat16"), ((7, 5), "float16"), ((6, 1), "float32")])
def test_auto_takes_the_precision_of_the_matrix_units(cupy, monkeypatch, tmp_path, capsys, has, expected):
    monkeypatch.setattr("tinyvit.nn.precision.capability", lambda device: has)
    monkeypatch.setattr("tinyvit.kernels.cuda.source.capability_of", lambda device: has)
    config = replace(PRESETS["digits"], device="cuda", epochs=1, images=60, batch_size=30, save_minutes=0.0)
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(1, Killed))
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert (saved["precision"], saved["cuda_graph"]) == (expected, "auto")
    said = capsys.readouterr().out
    assert f"({expected} by auto: " in said and "replayed as a CUDA graph" in said
    monkeypatch.setattr("tinyvit.nn.precision.capability", lambda device: (6, 1))
    if expected == "bfloat16":
        with pytest.raises(ValueError, match="'bfloat16' needs a GPU of compute capability 8.0 .* cuda:0 has 6.1"):
            resume(tmp_path / "run")
    resume(tmp_path / "run", device="cpu", precision="float32")  # without a loss scale, if there was one
    (tmp_path / "run/config.json").write_text(json.dumps(saved))
    there = "float32" if expected == "bfloat16" else expected
    assert [load_trained(tmp_path / "run", device).model.precision for device in ("cuda", "cpu")] == [there, "float32"]


@pytest.mark.parametrize("precision", ["float32", "float64", *GPU_ONLY])
def test_a_model_saved_from_a_gpu_has_the_same_bits_there_and_on_a_cpu(cupy, tmp_path, precision):
    model = ViT(SHAPE, dtype=MASTER[precision], device="cuda", precision=precision)
    tinyvit.save(model, tmp_path / "saved")
    for device, there in (("cuda", precision), ("cpu", MASTER[precision])):
        loaded = tinyvit.load(tmp_path / "saved", device=device)
        assert loaded.precision == there
        for name, array in loaded.state_dict().items():
            np.testing.assert_array_equal(backend.to_numpy(array), model.state_dict()[name].get(), strict=True)


@pytest.mark.parametrize("precision", ["float32", *LOW])
def test_running_statistics_stay_float32_and_a_skipped_step_leaves_them_unchanged(cupy, precision):
    images = np.random.default_rng(0).standard_normal((6, 2, 4, 4)).astype("float32")
    ctx, expected = Context(training=True, key=Key(0)), vit_with_running_norm("float32")
    train_step(expected, optim.SGD(expected, 0.1), images, np.zeros(6, int), ctx, objective=squares)
    model = vit_with_running_norm("float32", device="cuda", precision=precision)
    optimizer = optim.SGD(model, 0.1)
    for batch in (images, np.where(images > 1, np.inf, images)):
        arrays = on_gpu(batch, np.zeros(6, int))
        result = train_step(model, optimizer, *arrays, ctx, objective=squares, accumulate=2)
        assert bool(result.applied) == np.isfinite(batch).all()
        for (name, buffer), (_, other) in zip(model.named_buffers(), expected.named_buffers()):
            assert buffer.data.dtype == "float32"
            np.testing.assert_allclose(buffer.data.get(), other.data, rtol=1.6e-2, atol=1.6e-2, err_msg=name)
