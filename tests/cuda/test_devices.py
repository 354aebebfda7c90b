"""Models, optimizers, averages, data and checkpoints on a GPU, on a second GPU, and moved between devices."""

from dataclasses import replace

import numpy as np
import pretend_cupy
import pytest
from steps import Killed, StopsAfter

from tinyvit import Context, Key, ViT, ViTConfig, backend, data, optim
from tinyvit.data import Augmentation, Loader
from tinyvit.training import PRESETS, evaluate, resume, train, train_step
from tinyvit.training.config import OptimConfig
from tinyvit.training.trained import load_trained

SHAPE = ViTConfig(
    img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=16, depth=2, num_heads=2, drop_rate=0.1,
    drop_path_rate=0.1,
)  # fmt: skip
DRAW = np.random.default_rng(0)
IMAGES, LABELS = DRAW.standard_normal((6, 1, 8, 8), "float32"), DRAW.integers(0, 3, 6)
OPTIMIZERS = [optim.SGD, optim.Adagrad, optim.AdamW, optim.Muon]


def take_steps(model, optimizer, average, steps):
    batch = [backend.to_device(x, model.device) for x in (IMAGES, LABELS)]
    for i in steps:
        result = train_step(model, optimizer, *batch, Context(True, Key(0, i)), clip_norm=1.0)
        average.update(result.applied)
    return result


def on_host(state):
    return {name: backend.to_numpy(x) for name, x in state.items()}


def everything(model, optimizer, average):
    parts = {"model": model, "optimizer": optimizer, "average": average}
    return {f"{part}.{name}": x for part, owner in parts.items() for name, x in on_host(owner.state_dict()).items()}


def assert_same(got, expected, **tolerance):
    assert got.keys() == expected.keys()
    for name, x in got.items():
        np.testing.assert_allclose(x, expected[name], err_msg=name, **tolerance or dict(rtol=0, atol=0))


@pytest.fixture
def second_gpu(cupy, monkeypatch):
    """The name of a GPU that is not the current one."""
    if cupy is pretend_cupy.cupy:
        monkeypatch.setattr(pretend_cupy.Device, "count", 2)
    elif cupy.cuda.runtime.getDeviceCount() < 2:
        return "cuda:0"  # a real machine with one GPU has no other to test
    return "cuda:1"


def test_everything_happens_on_the_models_gpu_whichever_is_current(second_gpu):
    model = ViT(SHAPE, device=second_gpu)
    optimizer, average = optim.AdamW(model), optim.EMA(model)
    take_steps(model, optimizer, average, range(2))
    with average.apply():
        probs = model.predict(backend.to_device(IMAGES, second_gpu))
    arrays = [probs, model.storage.grad, average.average, *optimizer.state, optimizer.t, *model.state_dict().values()]
    assert {backend.device_of(x) for x in arrays} == {model.device} == {second_gpu}
    for owner in (model, optimizer, average):
        owner.load_state_dict(owner.state_dict())
    logits, cache = model(backend.to_device(IMAGES, second_gpu))
    model.zero_grad()
    assert backend.device_of(model.backward(logits, cache)) == second_gpu
    images = DRAW.integers(0, 255, (9, 1, 8, 8), "uint8")
    dataset = data.Dataset(images, DRAW.integers(0, 3, 9), ("a", "b", "c"), (0.5,), (0.2,))
    augmentation = Augmentation(crop=1, flip=True, policy="rand", erase=0.5, mixup=0.2)
    for batch in Loader(dataset, 4, shuffle=True, augment=augmentation, device=second_gpu).epoch():
        assert {backend.device_of(x) for x in batch} == {second_gpu}
    evaluate(model, dataset)
    evaluate(model, dataset, tta=True)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_model_its_optimizer_and_its_average_move_there_and_back_bit_for_bit(second_gpu, make):
    model = ViT(SHAPE)
    parts = model, make(model, 1e-2), optim.EMA(model, 0.9)
    take_steps(*parts, range(2))
    before = everything(*parts)
    for device, dtype in ((second_gpu, "float32"), ("cuda:0", "float64"), ("cpu", "float32")):
        model.to(dtype, device)
        with pytest.raises(ValueError, match=r"call rebind\(\)"):
            parts[1].step()
        assert parts[1].rebind() is parts[1] and parts[2].rebind() is parts[2]
        if dtype == "float32":
            assert_same(everything(*parts), before)
        assert model.device == device
    take_steps(*parts, range(2, 4))
    stayed = ViT(SHAPE)
    others = stayed, make(stayed, 1e-2), optim.EMA(stayed, 0.9)
    take_steps(*others, range(4))
    assert_same(everything(*parts), everything(*others))


# -- trainings --------------------------------------------------------------------------------------------------------

CONFIG = replace(
    PRESETS["digits"], model=replace(PRESETS["digits"].model, patch_size=4, embed_dim=16, depth=1, drop_rate=0.1),
    epochs=1, batch_size=512, threads=1, precision="float32", save_minutes=0.0, augment=Augmentation(crop=1, mixup=0.2),
    optim=OptimConfig(lr=5e-3, ema=0.9, label_smoothing=0.1),
)  # fmt: skip


@pytest.mark.parametrize(("first", "then"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_of_either_device_can_be_resumed_on_the_other(cupy, tmp_path, first, then, capsys):
    whole = train(replace(CONFIG, device="cpu"), tmp_path / "whole")
    with pytest.raises(Killed):
        train(replace(CONFIG, device=first), tmp_path / "run", StopsAfter(1, Killed))
    summary = resume(tmp_path / "run", device=then)
    assert summary["device"] == ("cpu" if then == "cpu" else "cuda:0")
    assert summary["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-4)
    states = [load_trained(tmp_path / run, "cpu").model.state_dict() for run in ("run", "whole")]
    assert_same(*states, rtol=2e-3, atol=2e-3)
    out = capsys.readouterr().out
    assert "float32, on cpu with up to 1 thread" in out and "float32, on cuda:0, " in out
