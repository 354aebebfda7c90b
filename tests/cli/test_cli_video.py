"""Videos on the command line, from training to prediction."""

import json

import numpy as np
import pytest
from PIL import Image

from tinyvit import data, load

SMALL = ["--model.depth", "1", "--model.embed-dim", "24"]


@pytest.fixture
def moving(trained):
    """A run that was trained on moving digits."""
    return trained("moving-digits", "--images", "2048", *SMALL, "--model.frames", "4", "--model.patch-size", "8")


@pytest.fixture
def clips(tmp_path):
    """A clip as a GIF and as a folder of frames, and others that don't fit the model."""
    frames = (data.load("moving-digits", frames=4).test.images[0, 0] * (255 / 16)).astype("uint8")
    pictures = [Image.fromarray(frame).resize((48, 48), 0) for frame in frames]
    pictures[0].save(tmp_path / "clip.gif", save_all=True, append_images=pictures[1:])
    pictures[0].save(tmp_path / "still.png")
    pictures[0].save(tmp_path / "short.gif", save_all=True, append_images=pictures[1:3])
    (tmp_path / "frames").mkdir()
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / "frames" / f"{i}.png")
    return tmp_path


def test_a_gif_and_a_folder_of_its_frames_are_predicted_alike_and_other_commands_work(succeeds, as_json, moving, clips):
    first, second = map(json.loads, succeeds("predict", moving, "clip.gif", "frames", "--json").splitlines())
    assert (first["image"], second["image"]) == ("clip.gif", "frames")
    assert [one["class"] for one in first["top"]] == [one["class"] for one in second["top"]]
    for one, other in zip(first["top"], second["top"]):
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)
    assert json.loads((moving / "preprocessing.json").read_text())["frames"] == 4
    summary = json.loads((moving / "summary.json").read_text())
    assert as_json("evaluate", moving)["test_accuracy"] == summary["test_accuracy"]
    assert as_json("features", moving, "clip.gif", "frames", "--out", "f.npy")["features"] == 24
    assert f"{summary['parameters']:,}" in succeeds("summary", moving)
    assert "frames      8" in succeeds("data", "moving-digits")


@pytest.mark.parametrize("command, said", [
    ("predict RUN still.png", "still.png can't be read as a video: it has 1 frame, and the model reads 4"),
    ("predict RUN nothing.gif", "nothing.gif can't be read as a video: No such file or directory"),
    ("features RUN short.gif --out f.npy", "short.gif can't be read as a video: it has 3 frames, and the model"),
    ("inspect RUN", "features, knn, probe-linear and summary work with it"),
    ("inspect RUN --html page.html", "inspect looks at single images"),
    ("predict DIGITS clip.gif", "clip.gif can't be read as an image: it is a video, and the model reads single images"),
])  # fmt: skip
def test_what_does_not_fit_the_model_is_refused(refused, moving, run, clips, command, said):
    assert said in refused(*({"RUN": moving, "DIGITS": run}.get(word, word) for word in command.split()))


@pytest.mark.parametrize("architecture", ["vivit", "factorised_vivit"])
def test_a_model_of_videos_starts_from_a_run_on_images(succeeds, refused, trained, architecture):
    shape = [*SMALL, "--model.num-heads", "2"]
    source = trained("digits", *shape, "--model.patch-size", "4", "--model.positions", "learned")
    first = ["train", "moving-digits", "--architecture", architecture, "--model.patch-size", "4", "--model.mlp-ratio",
             "2.0", "--images", "64", "--epochs", "1", "--init.run", source, *shape]  # fmt: skip
    succeeds(*first, "--out", "videos", "--freeze", "1", "--init.inflate", "average")
    images, videos = load(source), load("videos")
    filters = videos.state_dict()["patch_embed.proj.weight"]
    for t in range(2):
        np.testing.assert_allclose(2 * filters[:, :, t], images.state_dict()["patch_embed.proj.weight"], rtol=1e-6)
    np.testing.assert_array_equal(videos.state_dict()["blocks.0.mlp.fc1.weight"],
                                  images.state_dict()["blocks.0.mlp.fc1.weight"])  # fmt: skip
    assert "the ViT doesn't fit the" in refused(*first, "--out", "x", "--model.embed-dim", "12")
