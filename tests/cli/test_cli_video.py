"""Videos on the command line, from training to prediction."""

import json

import numpy as np
import pytest
from PIL import Image

from tinyvit import cli, data, load

SMALL = ["--epochs", "1", "--images", "2048", "--batch-size", "64", "--model.depth", "1", "--model.embed-dim", "24",
         "--model.frames", "4", "--model.patch-size", "8"]  # fmt: skip


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """A folder with a run that was trained on moving digits, a clip as a GIF and as a folder of frames, and others."""
    root = tmp_path_factory.mktemp("moving")
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["train", "moving-digits", "--out", str(root / "run"), *SMALL])
    pictures = [Image.fromarray(frame).resize((48, 48), 0) for frame in clip()]
    pictures[0].save(root / "clip.gif", save_all=True, append_images=pictures[1:])
    pictures[0].save(root / "still.png")
    pictures[0].save(root / "still.gif")
    pictures[0].save(root / "short.gif", save_all=True, append_images=pictures[1:3])
    for folder, count in (("frames", 4), ("few", 2), ("different", 4)):
        (root / folder).mkdir()
        for i in range(count):
            side = 48 + (folder == "different" and i == 3)
            pictures[i].resize((48, side)).save(root / folder / f"{i}.png")
    return root


def clip():
    """The frames (4, 16, 16) of the first test clip, uint8 of 0 to 255."""
    return (data.load("moving-digits", frames=4).test.images[0, 0] * (255 / 16)).astype("uint8")


def test_a_run_says_what_it_reached(moving):
    summary = json.loads((moving / "run" / "summary.json").read_text())
    assert 0 <= summary["test_accuracy"] <= 1 and summary["parameters"] > 0
    assert json.loads((moving / "run" / "preprocessing.json").read_text())["frames"] == 4


def test_a_gif_and_a_folder_of_its_frames_are_predicted_alike(tinyvit, moving):
    status, out, err = tinyvit("predict", moving / "run", moving / "clip.gif", moving / "frames", "--json")
    first, second = map(json.loads, out.splitlines())
    assert (status, err) == (0, "")
    assert first["image"] == str(moving / "clip.gif") and second["image"] == str(moving / "frames")
    assert [one["class"] for one in first["top"]] == [one["class"] for one in second["top"]]
    for one, other in zip(first["top"], second["top"]):
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


@pytest.mark.parametrize("name, message", [
    ("still.png", "is a still image, and the model reads videos of 4 frames; give a GIF or a folder of frames"),
    ("still.gif", "is a still image, and the model reads videos of 4 frames; give a GIF or a folder of frames"),
    ("short.gif", "has 3 frames, and the model reads 4; give a longer video"),
    ("few", "has 2 frames, and the model reads 4; give a longer video"),
    ("different", "has frames of different sizes, 48×48 and 49×48; make them of one size"),
    ("nothing.gif", "doesn't exist; give a GIF or a folder of frames"),
])  # fmt: skip
@pytest.mark.parametrize("command", [("predict",), ("features", "--out", "features.npy")])
def test_what_is_no_video_for_the_model_is_refused(refused, moving, name, message, command):
    command, *options = command
    assert f"{moving / name} {message}" in refused(command, moving / "run", moving / name, *options)


def test_a_video_for_a_model_of_images_is_refused(refused, run, moving):
    expected = "clip.gif can't be read as an image: it is a video, and the model reads single images"
    assert expected in refused("predict", run, moving / "clip.gif")
    assert expected in refused("features", run, moving / "clip.gif", "--out", "features.npy")


@pytest.mark.parametrize("arguments, message", [
    (("moving-digits", "--architecture", "vit"),
     "but the data set holds videos (1, 8, 16, 16); take another data set, or another model: --architecture vivit"),
    (("digits", "--architecture", "vivit"),
     "but the data set holds images (1, 8, 8); take another data set, or another model: --architecture vit reads"),
    (("moving-digits", "--model.tubelet-frames", "3"), "is not a multiple of the tubelet 3×4×4; take one of 9×16×16"),
    (("moving-digits", "--augment.policy", "rand"), "augment.policy is for images; for videos it must be 'none'"),
    (("moving-digits", "--data-dir", "."), "moving-digits are built in; leave out --data-dir"),
    (("moving-digits", "--init.whiten"), "init.whiten needs filters that read the images, and a ViViT has none"),
    (("moving-digits", "--task", "mae"), "architecture must be vit for the task 'mae'"),
])  # fmt: skip
def test_trainings_that_do_not_fit_are_refused(refused, arguments, message):
    assert message in refused("train", *arguments, "--out", "run")


@pytest.mark.parametrize("command", [("inspect",), ("inspect", "--html", "page.html")])
def test_inspect_refuses_videos(refused, moving, command):
    command, *options = command
    assert "inspect looks at single images" in refused(command, moving / "run", *options)


def test_other_commands_work(tinyvit, moving):
    status, out, err = tinyvit("evaluate", moving / "run", "--json")
    assert (status, err) == (0, "")
    summary = json.loads((moving / "run" / "summary.json").read_text())
    assert json.loads(out)["test_accuracy"] == summary["test_accuracy"]
    status, _, err = tinyvit("features", moving / "run", moving / "clip.gif", moving / "frames", "--out", "f.npy")
    assert (status, err) == (0, "")
    assert np.load("f.npy").shape == (2, 24)
    assert tinyvit("summary", moving / "run")[0] == tinyvit("summary", "vivit_base_patch16x2_224")[0] == 0
    assert "frames     8" in tinyvit("data", "moving-digits")[1]


@pytest.mark.parametrize("architecture", ["vivit", "factorised_vivit"])
def test_a_model_of_videos_starts_from_a_run_on_images(tinyvit, refused, tmp_path, architecture):
    shape = ["--model.embed-dim", "24", "--model.depth", "1", "--model.num-heads", "2", "--epochs", "1"]
    assert tinyvit("train", "digits", "--out", "images", *shape)[0] == 0
    more = ["--architecture", architecture, "--model.patch-size", "4", "--model.mlp-ratio", "2.0", "--images", "64"]
    first = ["train", "moving-digits", *more, *shape]
    status, _, err = tinyvit(*first, "--out", "videos", "--init.run", "images", "--freeze", "1", "--init.inflate",
                             "average", "--epochs", "1")  # fmt: skip
    assert (status, err) == (0, "")
    images, videos = load("images"), load("videos")
    filters = videos.state_dict()["patch_embed.proj.weight"]
    for t in range(2):
        np.testing.assert_allclose(2 * filters[:, :, t], images.state_dict()["patch_embed.proj.weight"], rtol=1e-6)
    np.testing.assert_array_equal(videos.state_dict()["blocks.0.mlp.fc1.weight"],
                                  images.state_dict()["blocks.0.mlp.fc1.weight"])  # fmt: skip
    assert "the ViT doesn't fit the" in refused(*first, "--out", "x", "--init.run", "images", "--model.embed-dim", "12")


def test_a_folder_of_videos_is_trained_on(tinyvit, tmp_path):
    for name, step in (("brighter", 1), ("darker", -1)):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(6):
            frames = [Image.fromarray(np.full((12, 12), 20 + 25 * t + i, "uint8")) for t in range(8)][::step]
            frames[0].save(tmp_path / "own" / name / f"{i}.gif", save_all=True, append_images=frames[1:])
    status, _, err = tinyvit(
        "train", "moving-digits", "--dataset", "folder", "--data-dir", tmp_path / "own", "--out", "run", *SMALL[:2],
        "--batch-size", "5", "--model.depth", "1", "--model.embed-dim", "24", "--model.img-size", "8",
    )  # fmt: skip
    assert (status, err) == (0, "")
    status, out, _ = tinyvit("predict", "run", tmp_path / "own", "--json", "--top", "1")
    assert status == 0 and len(out.splitlines()) == 12
