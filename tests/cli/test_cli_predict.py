import json
import re

import numpy as np
import pytest
from PIL import Image

from tinyvit import cli, data


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Test digits as image files, named after their digit."""
    folder = tmp_path_factory.mktemp("photos")
    test = data.digits().test
    for i in range(5):
        Image.fromarray(np.rint(test.images[i, 0] * (255 / 16)).astype("uint8")).save(folder / f"{i}.png")
    return folder


def objects(tinyvit, *arguments):
    """The objects that `predict … --json` prints."""
    status, out, err = tinyvit("predict", *arguments, "--json")
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_json_is_an_object_a_line_for_each_image(tinyvit, run, photos):
    lines = objects(tinyvit, run, photos)
    assert [line["image"] for line in lines] == [str(photos / f"{i}.png") for i in range(5)]
    for line in lines:
        shares = [entry["probability"] for entry in line["top"]]
        assert len(shares) == 5 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1 + 1e-12
        assert {entry["class"] for entry in line["top"]} < set("0123456789")


def test_text_says_the_same_as_json(tinyvit, run, photos):
    (line,) = objects(tinyvit, run, photos / "0.png")
    status, out, err = tinyvit("predict", run, photos / "0.png")
    assert (status, err) == (0, "")
    first, *rows = out.splitlines()
    assert first == str(photos / "0.png")
    expected = [(entry["class"], f"{100 * entry['probability']:.2f}") for entry in line["top"]]
    assert [re.match(r"  (\d) +([\d.]+) %", row).groups() for row in rows] == expected
    for row, entry in zip(rows, line["top"]):
        assert row.count("█") == round(20 * entry["probability"])


def test_options_may_come_before_and_after_run_and_images(tinyvit, run, photos):
    expected = tinyvit("predict", run, photos / "0.png", photos / "1.png", "--json", "--top", "2")
    assert expected[0] == 0 and len(expected[1].splitlines()) == 2
    assert tinyvit("predict", "--json", run, "--top=2", photos / "0.png", photos / "1.png") == expected
    assert tinyvit("predict", "--top", "2", "--json", run, "--", photos / "0.png", photos / "1.png") == expected


def test_averaging_over_mirror_images_changes_predictions_except_for_symmetric_images(tinyvit, run, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8)).astype("uint8")
    Image.fromarray(pixels).save(tmp_path / "any.png")
    Image.fromarray(np.concatenate([pixels[:, :4], pixels[:, 3::-1]], 1)).save(tmp_path / "symmetric.png")
    plain, averaged = (
        {line["image"]: line["top"][0]["probability"] for line in objects(tinyvit, run, ".", *tta)}
        for tta in ([], ["--tta"])
    )
    assert averaged["symmetric.png"] == pytest.approx(plain["symmetric.png"], rel=1e-5)
    assert averaged["any.png"] != pytest.approx(plain["any.png"], rel=1e-3)


def test_the_likeliest_class_is_that_of_the_evaluation(tinyvit, run, tmp_path):
    """All test images as files: as many are right as in evaluate, up to the rounding to eight bits."""
    test = data.digits().test
    for i, image in enumerate(test.images):
        Image.fromarray(np.rint(image[0] * (255 / 16)).astype("uint8")).save(tmp_path / f"{i:03}.png")
    lines = objects(tinyvit, run, tmp_path, "--top", "1")
    right = sum(line["top"][0]["class"] == str(label) for line, label in zip(lines, test.labels))
    summary = json.loads((run / "summary.json").read_text())
    assert len(lines) == 360 and abs(right - 360 * summary["test_accuracy"]) <= 2


def test_unreadable_files_are_named_the_others_are_predicted_and_the_status_is_2(tinyvit, run, photos, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    status, out, err = tinyvit("predict", run, "bad.png", photos / "0.png", "missing.png", "empty", "--json")
    assert status == 2
    assert [json.loads(line)["image"] for line in out.splitlines()] == [str(photos / "0.png")]
    errors = err.splitlines()
    assert len(errors) == 3 and all(line.startswith("tinyvit: error: ") for line in errors)
    assert "bad.png can't be read" in errors[0] and "missing.png doesn't exist" in errors[1]
    assert "empty holds no images" in errors[2]


# -- refused input --------------------------------------------------------------------------------------------------


def test_an_invalid_command_line_is_refused(refused, run, photos):
    image = photos / "0.png"
    for arguments, message in (
        ([], "missing RUN: The folder of a run"),
        ([run], "expected a run folder and images.* and no image"),
        ([run, image, "--top", "0"], "at least 1 class of each image, got top 0"),
        ([run, image, "--top", "few"], "--top.*'few'"),
        ([run, image, "--topp", "3"], "--topp.*did you mean --top"),
    ):
        assert re.search(message, refused("predict", *arguments))


def test_a_damaged_preprocessing_is_refused_by_its_name(refused, damaged, photos):
    line = refused("predict", damaged("preprocessing.json", b'{"classes": 3}'), photos)
    assert "preprocessing.json doesn't say how images are prepared" in line


# -- a folder of images, from training to prediction ----------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder of pictures of all sizes and modes, bright at the top or at the bottom, and a run trained on them."""
    root = tmp_path_factory.mktemp("own")
    generator = np.random.default_rng(0)
    for name in ("bottom", "top"):
        (root / "pictures" / name).mkdir(parents=True)
        for i in range(40):
            height, width = generator.integers(10, 40, 2)
            pixels = generator.integers(0, 80, (height, width, 3)).astype("uint8")
            half = slice(height // 2) if name == "top" else slice(height // 2, None)
            pixels[half] += np.uint8(150)
            image = Image.fromarray(pixels).convert(("RGB", "L", "P", "RGBA")[i % 4])
            image.save(root / "pictures" / name / f"{i}.{('png', 'webp', 'gif', 'tiff')[i // 4 % 4]}")
    arguments = [
        "train", "digits", "--dataset", "folder", "--data-dir", str(root / "pictures"), "--out", str(root / "run"),
        "--epochs", "12", "--batch-size", "16", "--model.in-chans", "3", "--model.num-classes", "2",
        "--model.depth", "1", "--model.embed-dim", "16", "--augment.crop", "0",
    ]  # fmt: skip
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(arguments)
    return root


def test_a_model_of_a_folder_is_trained_and_evaluated_and_predicts_without_the_folder(tinyvit, own, tmp_path):
    status, out, err = tinyvit("evaluate", own / "run", "--json")
    assert (status, err) == (0, "")
    scores = json.loads(out)
    assert scores["images"] == 16 and scores["dataset"] == "folder" and set(scores["per_class"]) == {"bottom", "top"}
    assert scores["test_accuracy"] == json.loads((own / "run" / "summary.json").read_text())["test_accuracy"] >= 0.9

    (own / "pictures").rename(own / "elsewhere")
    try:
        sky = np.full((300, 200, 3), 30, "uint8")
        sky[:150] = 220
        Image.fromarray(sky).save("sky.jpg")
        (line,) = objects(tinyvit, own / "run", "sky.jpg")
        assert line["top"][0]["class"] == "top" and len(line["top"]) == 2
        status, _, err = tinyvit("evaluate", own / "run")
        assert status == 2 and "pictures doesn't exist" in err
        assert tinyvit("evaluate", own / "run", "--data-dir", own / "elsewhere", "--json")[1] == out
    finally:
        (own / "elsewhere").rename(own / "pictures")
