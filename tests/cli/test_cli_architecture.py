"""The commands on an architecture unknown to the package: two prefix tokens, no blocks, no attention."""

import json

import numpy as np
import pytest
import tiny_architecture
from PIL import Image

from tinyvit import cli

SMALL = ["--architecture", "tiny", "--epochs", "1", "--batch-size", "256", "--threads", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A finished run of the architecture."""
    run = tmp_path_factory.mktemp("tiny") / "run"
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "digits", "--out", str(run), *SMALL])
    assert not end.value.code
    return run


@pytest.fixture
def image(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8)).astype("uint8")).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_the_run_says_its_architecture_and_holds_its_buffer_after_the_last_step(tiny_run):
    config = json.loads((tiny_run / "config.json").read_text())
    assert config["architecture"] == "tiny" and config["model"]["layers"] == 3
    from tinyvit import load

    assert np.abs(load(tiny_run).stem.running_mean.data).max() > 0


def test_inspect_draws_what_the_architecture_has_and_says_why_the_rest_is_left_out(tinyvit, tiny_run):
    status, out, err = tinyvit("inspect", tiny_run, "--images", "2", "--json", "--out", "pictures")
    assert (status, err) == (0, "")
    seen = json.loads(out)
    assert set(seen["pictures"]) == {
        "positions.png", "filters.png", "spectrum.png", "norms.png", "receptive.png", "most-wrong.png"
    }
    reason = "Tiny has no attention over the same patches in every layer"
    assert seen["left_out"] == dict.fromkeys(("attention", "rollout", "class", "distance"), reason)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--layer", "0"], "--layer is about attention, and Tiny has no attention over the same patches in every layer;"),
    (["--head", "0"], "--head is about attention, and Tiny has no attention over the same patches in every layer;"),
    (["--html", "page.html"], "the page explains the steps of a Vision Transformer with one class token"),
])  # fmt: skip
def test_options_of_pictures_that_it_cannot_have_are_refused_in_one_line(tinyvit, tiny_run, arguments, message):
    status, out, err = tinyvit("inspect", tiny_run, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1) and message in err


def test_features_come_from_its_layers_and_have_its_width(tinyvit, tiny_run, image, tmp_path):
    for layer in ("0", "3", "-1"):
        out = tmp_path / f"{layer}.npy"
        status, _, err = tinyvit("features", tiny_run, image, "--layer", layer, "--out", out)
        assert (status, err) == (0, "") and np.load(out).shape == (1, 12)
    np.testing.assert_array_equal(np.load(tmp_path / "3.npy"), np.load(tmp_path / "-1.npy"))
    status, _, err = tinyvit("features", tiny_run, image, "--layer", "4", "--out", tmp_path / "4.npy")
    assert status == 2 and "there is no layer 4; the model has 0 to 3" in err


def test_knn_works_on_every_layer(tinyvit, tiny_run):
    status, out, err = tinyvit("knn", tiny_run, "--layer", "all", "--images", "100", "--json")
    assert (status, err) == (0, "")
    assert [row["layer"] for row in json.loads(out)["layers"]] == [0, 1, 2, 3, None]


def test_predict_and_evaluate_work_on_it(tinyvit, tiny_run, image):
    assert tinyvit("predict", tiny_run, image, "--json")[0] == 0
    status, out, _ = tinyvit("evaluate", tiny_run, "--json")
    assert status == 0 and 0 <= json.loads(out)["test_accuracy"] <= 1


def test_its_layers_are_frozen_by_the_same_option_values(tinyvit, tmp_path):
    from tinyvit import load

    tinyvit("train", "digits", "--out", tmp_path / "frozen", *SMALL, "--freeze", "1", "--optim.layer-decay", "0.5")
    model, fresh = load(tmp_path / "frozen"), tiny_architecture.Tiny(tiny_architecture.TinyConfig())
    same = {name for name, x in model.state_dict().items() if (x == fresh.state_dict()[name]).all()}
    assert same == {name for name in model.state_dict() if name.startswith(("stem.", "floors.0."))}


def test_its_gradients_are_checked(tinyvit):
    status, out, err = tinyvit("gradcheck", "tiny_8", "--directions", "2")
    assert (status, err) == (0, "") and "tiny_8 (" in out and "WRONG" not in out


def test_its_summary_counts_all_its_parameters(tinyvit):
    status, out, err = tinyvit("summary", "tiny_8")
    assert (status, err) == (0, "")
    count = tiny_architecture.Tiny(tiny_architecture.TinyConfig(), device="meta").num_parameters()
    assert f"{count:,}" in out.splitlines()[-1]


@pytest.mark.parametrize(("command", "message"), [
    (["summary", "tiny_9"], "unknown run folder or model 'tiny_9'; did you mean tiny_8?"),
    (["train", "digits", "--architecture", "tinny"], "unknown architecture 'tinny'; did you mean tiny?"),
    (["gradcheck", "mixer"], "unknown run folder or model 'mixer'; expected one of "),
])  # fmt: skip
def test_unknown_names_are_one_line(tinyvit, command, message):
    status, out, err = tinyvit(*command)
    assert (status, out, err.count("\n")) == (2, "", 1) and message in err


def test_an_unknown_architecture_in_a_runs_configuration_is_one_line(tinyvit, tiny_run, tmp_path):
    config = json.loads((tiny_run / "config.json").read_text())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "architecture": "swim"}))
    status, out, err = tinyvit("evaluate", tmp_path / "run")
    assert (status, out, err.count("\n")) == (2, "", 1) and "unknown architecture 'swim'" in err
