import json
import shutil

import numpy as np
import pytest
from PIL import Image

from tinyvit import data, probe
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.trained import load_trained

ALWAYS = ["rollout.png", "class.png", "positions.png", "filters.png"]
OF_TEST_IMAGES = ["distance.png", "spectrum.png", "norms.png", "receptive.png", "most-wrong.png"]
MEANS = ("--images", "3")


@pytest.fixture
def numbers(tinyvit):
    """The object that `inspect … --json` prints."""

    def of(*arguments):
        status, out, err = tinyvit("inspect", *arguments, *MEANS, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return of


@pytest.fixture
def own_run(run, tmp_path):
    """A writable copy of the run."""
    return shutil.copytree(run, tmp_path / "own")


def is_picture(path):
    with Image.open(path) as picture:
        picture.load()
        return picture.format == "PNG" and np.ptp(np.asarray(picture.convert("L"))) > 50


def test_all_pictures_are_written_into_the_run_and_named_in_the_table(tinyvit, own_run):
    status, out, err = tinyvit("inspect", own_run, *MEANS)
    assert (status, err) == (0, "")
    expected = {"attention.png", *ALWAYS, *OF_TEST_IMAGES}
    assert {path.name for path in (own_run / "inspect").iterdir()} == expected
    assert all(is_picture(own_run / "inspect" / name) for name in expected)
    assert f"written to {own_run / 'inspect'}" in out and all(f"  {name} " in out for name in expected)
    assert "test image 0" in out and "mean of 3 images" in out


def test_the_row_of_gradients_says_over_which_tokens_its_means_are_and_which_have_one(tinyvit, own_run):
    _, out, _ = tinyvit("inspect", own_run, *MEANS)
    (line,) = [line for line in out.splitlines() if line.strip().startswith("gradients")]
    model = load_trained(own_run, device="cpu").model
    pool, tokens = model.config.global_pool, 1 + model.config.grid[0] * model.config.grid[1]
    said = {"token": "only the class token has one", "avg": "only the patches have one"}[pool]
    assert f"mean norm over all {tokens} tokens: " in line and line.endswith(f"after the last, where {said}")


def test_pictures_replace_older_ones_in_the_given_folder_and_touch_nothing_else(numbers, own_run, tmp_path):
    before = {path: path.read_bytes() for path in own_run.rglob("*") if path.is_file()}
    there = tmp_path / "some" / "where"
    there.mkdir(parents=True)
    (there / "rollout.png").write_text("old")
    (there / "mine.txt").write_text("mine")
    assert numbers(own_run, "--out", there)["out"] == str(there)
    assert is_picture(there / "rollout.png") and (there / "mine.txt").read_text() == "mine"
    assert {path: path.read_bytes() for path in own_run.rglob("*") if path.is_file()} == before


def test_the_numbers_are_those_of_the_probe(numbers, run):
    found = numbers(run, "--out", "here", "--image", "5")
    model, test = load_trained(run, "cpu").model, data.digits().test
    trace = probe.trace(model, test.normalise(test.images[5:6]))
    predicted = int(trace.logits[0].argmax())
    assert found["label"] == str(test.labels[5]) and found["predicted"] == found["class"] == str(predicted)
    assert found["probability"] == pytest.approx(trace.probabilities[0, predicted], rel=1e-5)
    rollout = probe.over_patches(probe.attention_rollout(trace.attention), trace.grid, "avg")[0]
    np.testing.assert_allclose(found["rollout"], rollout, rtol=1e-5)
    rows = [0, 179, 359]
    trace = probe.trace(model, test.normalise(test.images[rows]))
    distance = probe.mean_attention_distance(trace.attention, trace.grid, 4).mean(1)
    np.testing.assert_allclose(found["attention_distance"], distance, rtol=1e-5)
    assert found["images"] == 3
    wrong = probe.most_wrong(logits_of(model, test), test.labels)
    assert [entry["image"] for entry in found["most_wrong"]] == wrong.rows.tolist()
    assert found["wrong"] == (logits_of(model, test).argmax(1) != test.labels).sum()
    assert found["left_out"] == {} and "attention.png" in found["pictures"]


def test_a_layer_and_a_head_are_drawn_alone_and_patch_by_patch(numbers, run):
    assert "attention-head-3.png" in numbers(run, "--out", "a", "--head", "3")["pictures"]
    both = numbers(run, "--out", "a", "--layer", "0", "--head", "3")["pictures"]
    assert {"attention-layer-0-head-3.png", "patches-layer-0-head-3.png"} < set(both)


def test_the_requested_class_is_the_one_whose_evidence_is_shown(numbers, run):
    seven, two = (numbers(run, "--out", "a", "--class", name) for name in ("7", "2"))
    assert (seven["class"], two["class"]) == ("7", "2")
    assert seven["class_attention"] != two["class_attention"] and seven["rollout"] == two["rollout"]


def test_an_image_file_is_prepared_as_predict_does(numbers, tinyvit, run):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 16), dtype="uint8")).save("mine.png")
    found = numbers(run, "--out", "a", "--image", "mine.png")
    assert found["image"] == "mine.png" and found["label"] is None
    top = json.loads(tinyvit("predict", run, "mine.png", "--json")[1])["top"][0]
    assert found["predicted"] == top["class"] and found["probability"] == pytest.approx(top["probability"], rel=1e-5)


def test_an_image_file_needs_no_data_set_and_pictures_that_do_are_reported_as_left_out(numbers, tinyvit, own_run):
    config = json.loads((own_run / "config.json").read_text())
    (own_run / "config.json").write_text(json.dumps({**config, "dataset": "folder", "data_dir": "gone"}))
    Image.fromarray(np.full((8, 8), 200, "uint8")).save("mine.png")
    found = numbers(own_run, "--image", "mine.png")
    assert set(found["pictures"]) == {"attention.png", *ALWAYS}
    assert set(found["left_out"]) == {"distance", "spectrum", "norms", "receptive", "most-wrong"}
    assert "gone" in found["left_out"]["norms"]
    status, out, _ = tinyvit("inspect", own_run, "--image", "mine.png")
    assert status == 0 and "  no most-wrong: " in out


@pytest.mark.parametrize(("positions", "global_pool"), [
    ("learned", "token"), ("learned_2d", "avg"), ("sincos_1d", "token"), ("sincos_2d", "avg"), ("rope", "token"),
    ("none", "avg"),
])  # fmt: skip
def test_every_kind_of_positions_and_pooling_can_be_inspected(tinyvit, numbers, positions, global_pool):
    status, _, err = tinyvit(
        "train", "digits", "--epochs", "1", "--batch-size", "512", "--model.depth", "1", "--model.embed-dim", "16",
        "--model.patch-size", "2", "--model.positions", positions, "--model.global-pool", global_pool, "--out", "r",
    )  # fmt: skip
    assert (status, err) == (0, "")
    found = numbers("r")
    if positions in ("rope", "none"):
        assert list(found["left_out"]) == ["positions"] and positions in found["left_out"]["positions"]
        assert "positions.png" not in found["pictures"]
    else:
        assert found["left_out"] == {} and "positions.png" in found["pictures"]
    assert np.shape(found["rollout"]) == np.shape(found["class_attention"]) == (4, 4)


def test_a_model_of_a_single_patch_has_no_spectrum_and_says_so(tinyvit, numbers):
    tinyvit("train", "digits", "--epochs", "1", "--model.depth", "1", "--model.patch-size", "8", "--out", "r")
    found = numbers("r", "--layer", "0", "--head", "0")
    assert found["left_out"] == {"spectrum": "patches in a single row or column have no diagonal"}
    assert found["attention_distance"] == [[0.0] * 4]


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "said"), [
    (["--layer", "1"], "there is no layer 1; the model has layer 0 only"),
    (["--layer", "-1"], "there is no layer -1; the model has layer 0 only"),
    (["--head", "4"], "there is no head 4; the model has heads 0 to 3 in each layer"),
    (["--class", "cat"], "there is no class 'cat'; the model has: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
    (["--class", "-1"], "there is no class '-1'; the model has: 0, 1,"),
    (["--image", "360"], "there is no test image 360; there are images 0 to 359"),
    (["--image", "-1"], "there is no test image -1; there are images 0 to 359"),
    (["--image", "nowhere.png"], "nowhere.png"),
    (["--images", "0"], "expected means over 1 to 1,000 images, got --images 0"),
    (["--images", "1000000000"], "expected means over 1 to 1,000 images, got --images 1000000000"),
    (["--layer", "9" * 30], "there is no layer 9999"),
    (["--layer", "first"], "--layer"),
    (["--lyer", "0"], "did you mean --layer"),
])  # fmt: skip
def test_what_the_run_lacks_is_refused_with_what_it_has(refused, own_run, arguments, said):
    assert said in refused("inspect", own_run, *arguments)
    assert not (own_run / "inspect").exists()


def test_an_output_folder_that_is_a_file_is_refused(refused, run, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "file is a file; choose a folder with --out" in refused("inspect", run, "--out", "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "loop").symlink_to("loop")
    for command in (["inspect", run], ["train", "digits"], ["bench"]):
        assert "loop is a link to itself, or to nothing; choose a folder" in refused(*command, "--out", "loop")


CONVOLUTIONS = {
    "resnet": (["--model.width", "4", "--model.depths", "1", "1"], ["stem", "layer1.0", "layer2.0"]),
    "hybrid": (
        ["--model.img-size", "8", "--model.patch-size", "4", "--model.embed-dim", "8", "--model.depth", "1",
         "--model.num-heads", "2", "--model.backbone-width", "4", "--model.backbone-depths", "1", "1"],
        ["stem", "layer1.0", "layer2.0", "embed", "blocks.0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", CONVOLUTIONS)
def test_of_a_network_with_convolutions_feature_maps_filters_and_receptive_fields_are_drawn(
    tinyvit, numbers, architecture
):
    options, layers = CONVOLUTIONS[architecture]
    arguments = "--architecture", architecture, "--epochs", "1", "--images", "100", *options, "--out", "r"
    assert tinyvit("train", "digits", *arguments)[0] == 0
    found = numbers("r", "--out", "pictures")
    expected = {"features", "filters", "receptive", "most-wrong"}
    of_tokens = {"attention", "rollout", "class", "distance", "positions", "spectrum", "norms"}
    there, missing = (expected | of_tokens, set()) if architecture == "hybrid" else (expected, of_tokens)
    assert (set(found["pictures"]), set(found["left_out"])) == ({f"{name}.png" for name in there}, missing)
    assert all(is_picture(f"pictures/{name}.png") for name in expected)
    assert list(found["receptive_field"]) == layers and list(found["most_varied_channels"]) == layers[:3]
    model, test = load_trained("r", "cpu").model, data.digits().test
    fields = probe.effective_receptive_field(model, test.normalise(test.images[[0, 179, 359]]))
    sides = [float(probe.receptive_side(field)) for field in fields.values()]
    np.testing.assert_allclose(list(found["receptive_field"].values()), sides)


def test_images_are_not_traced_for_means_that_the_model_has_none_of(tinyvit, numbers, monkeypatch):
    options, _ = CONVOLUTIONS["resnet"]
    arguments = "--architecture", "resnet", "--epochs", "1", "--images", "100", *options, "--out", "r"
    assert tinyvit("train", "digits", *arguments)[0] == 0
    traced, trace = [], probe.trace
    monkeypatch.setattr(probe, "trace", lambda *given, **named: traced.append(1) or trace(*given, **named))
    assert numbers("r", "--out", "pictures")["images"] == 3
    assert len(traced) == 2  # the image itself, and the first of the others
