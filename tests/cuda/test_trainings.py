"""Every kind of training takes the steps on the device that it takes on the CPU, and no step waits for the device."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import islice

import numpy as np
import pretend_cupy
import pytest
from small_trainings import CASES, base
from steps import advance

from tinyvit import cli
from tinyvit.backend import to_numpy
from tinyvit.training import train
from tinyvit.training.trainer import Trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the runs of a teacher and of a diffusion."""
    path = tmp_path_factory.mktemp("runs")
    train(base(epochs=1, images=200), path / "teacher")
    train(replace(CASES["diffusion"](path), epochs=1, images=200), path / "diffusion")
    return path


def steps_of(config, waiting=nullcontext):
    """The losses of a few steps, the figures of an evaluation, and the state after them."""
    trainer, losses = Trainer(config), []
    with trainer.model.storage.on_device():
        for batch in islice(trainer.batches(), 3):
            with waiting():
                result = advance(trainer, batch)
            losses.append(float(result.loss))
        figures = trainer.evaluate()
    return losses, figures, {name: to_numpy(array) for name, array in trainer.model.state_dict().items()}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_a_training_takes_the_steps_of_one_on_the_cpu_and_never_waits(cupy, folder, case, precision):
    config = replace(CASES[case](folder), batch_size=24, precision=precision)
    waiting = pretend_cupy.nothing_waits if cupy is pretend_cupy.cupy else nullcontext
    (losses, figures, state), expected = steps_of(replace(config, device="cuda"), waiting), steps_of(config)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-9 if precision == "float64" else 1e-3)
    if precision == "float64":
        assert figures == pytest.approx(expected[1], rel=1e-9)
        for name, array in state.items():
            np.testing.assert_allclose(array, expected[2][name], rtol=1e-7, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("command", [
    "evaluate {run} --tta", "predict {run} {run}/curves.png --invert", "inspect {run} --images 2 --out {out}",
    "inspect {run} --images 2 --html {out}.html", "knn {run} --layer all --images 100",
    "features {run} {run}/curves.png --out {out}.npy", "sample {run}/../diffusion --count 2 --steps 3 --out {out}.npy",
])  # fmt: skip
def test_a_command_computes_on_the_device(cupy, folder, tmp_path, capsys, command):
    words = command.format(run=folder / "teacher", out=tmp_path / "out").split()
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--device", "cuda"])
    said = capsys.readouterr()
    assert end.value.code == 0 and said.out and not said.err
