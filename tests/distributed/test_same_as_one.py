"""Several ranks train what one process trains: every kind of task, model and augmentation."""

import json
import sys

import numpy as np
import pytest
from launching import HERE, SMALL, finish, mpiexec, tinyvit

from tinyvit.bench.ranks import main

pytestmark = pytest.mark.mpi

EXACT = [
    "plain", "mixed", "muon", "batch-normed", "teacher", "mae", "masked-patches", "dino", "brightness",
    "clip", "diffusion", "segmentation", "sizes", "video", "small-images",
]  # fmt: skip


def results(command, out, folder, *cases):
    status, _, err = finish([*command, sys.executable, HERE / "worker.py", out, folder, *cases])
    assert status == 0, err
    with np.load(out) as found:
        return dict(found)


@pytest.fixture(scope="module")
def alone(teacher):
    return results([], teacher.parent / "alone.npz", teacher.parent)


# More ranks than cores take turns, so they train what is joined in different ways, and no more.
FEW = "plain", "float32", "batch-normed", "teacher", "brightness", "clip"


@pytest.fixture(scope="module", params=[(2, ()), *(pytest.param((n, FEW), marks=pytest.mark.full) for n in (3, 4))])
def together(request, teacher):
    ranks, cases = request.param
    return results(mpiexec(ranks), teacher.parent / f"{ranks}.npz", teacher.parent, *cases)


def test_the_losses_scores_and_weights_are_those_of_one_process(alone, together):
    assert {name.split()[0] for name in together} >= set(FEW)
    for name, got in together.items():
        (case, kind, *_), expected = name.split(), alone[name]
        bound = {"losses": 1e-12}.get(kind, 1e-10) if case in EXACT else {"losses": 5e-6}.get(kind, 5e-3)
        assert kind != "losses" or len(expected) >= 50
        np.testing.assert_allclose(got, expected, rtol=0, atol=bound, err_msg=name)


def test_the_cases_are_those_that_are_compared(alone):
    assert {name.split()[0] for name in alone} == {*EXACT, "float32"}
    for case in EXACT:
        assert np.ptp(alone[f"{case} losses"]) > 1e-3, f"{case} doesn't change its loss"


def rows(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in ("seconds", "data_wait")} for row in found]


def test_a_training_resumes_with_as_many_ranks_bit_for_bit_and_with_others_on_the_same_curve(teacher):
    folder, options = teacher.parent, [*SMALL, "--precision", "float64", "--optim.ema", "0.9", "--augment.mixup", "0.3"]
    train = tinyvit("train", "digits", *options, "--epochs", 4)
    assert finish([*mpiexec(2), *train, "--out", folder / "whole"])[0] == 0
    for ranks in (2, 3):
        run = folder / f"stopped-{ranks}"
        # The schedule is for four epochs; the run is stopped by taking its last checkpoints and results away.
        assert finish([*mpiexec(2), *train, "--out", run])[0] == 0
        for file in [*run.glob("checkpoints/step-*-epoch-4.*"), run / "model.safetensors", run / "summary.json"]:
            file.unlink()
        resume = tinyvit("train", "--resume", run)  # with an option that need not be alike
        status, out, err = finish([*mpiexec(1), *resume, "--threads", "1", ":", "-n", str(ranks - 1), *resume])
        assert status == 0 and "going on after step" in out, err
        weights = [(folder / name / "model.safetensors").read_bytes() for name in ("whole", run.name)]
        if ranks == 2:
            assert weights[0] == weights[1] and rows(run) == rows(folder / "whole")
        else:
            for row, expected in zip(rows(run), rows(folder / "whole"), strict=True):
                assert row == pytest.approx(expected, rel=0, abs=1e-10)
    status, out, _ = finish(tinyvit("evaluate", folder / "whole", "--json"))
    assert status == 0
    several = finish([*mpiexec(3), *tinyvit("evaluate", folder / "whole", "--json")])
    assert several[0] == 0, several[2]
    got = json.loads(several[1])
    for name, value in json.loads(out).items():  # those of a class are counts, and their ratios
        assert got.pop(name) == (pytest.approx(value, abs=1e-12) if isinstance(value, float) else value), name
    assert not got
    # The first rank alone draws, when the others have nothing more to do.
    drawn = finish([*mpiexec(2), *tinyvit("evaluate", folder / "whole", "--confusion", "/proc/it.png")])
    assert drawn[0] == 2 and "it.png can't be written" in drawn[2] and drawn[2].count("\n") == 1, drawn


def test_features_are_those_of_one_process_in_their_order(teacher):
    from PIL import Image

    from tinyvit.data.digits import digits

    folder = teacher.parent / "images"
    folder.mkdir()
    for number, image in enumerate(digits().test.images[:7]):
        Image.fromarray((image[0] * 15).astype("uint8")).save(folder / f"{number}.png")
    for name, command in (("one", []), ("three", mpiexec(3))):
        out = teacher.parent / f"{name}.npy"
        status, _, err = finish([*command, *tinyvit("features", teacher, folder, "--out", out, "--device", "cpu")])
        assert status == 0, err
    one, three = (np.load(teacher.parent / f"{name}.npy") for name in ("one", "three"))
    assert len(one) == 7 and (teacher.parent / "three.txt").is_file()
    np.testing.assert_allclose(three, one, rtol=0, atol=1e-12)


def test_the_benchmark_times_a_step_of_each_number_of_ranks(capsys):
    main(ranks=(1, 2), epochs=1)
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["1", "2"] and all(float(row.split()[1]) > 0 for row in rows)
