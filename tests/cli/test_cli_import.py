import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from small_weights import CONFIG, PREPARED, WEIGHTS, weights_of

from tinyvit import interop
from tinyvit.backend import to_numpy
from tinyvit.data import image_files, read_image
from tinyvit.tensors import write_tensors
from tinyvit.training.trained import load_trained

FORMATS = {"timm": "timm", "huggingface": "huggingface", "npz": "weights.npz"}


@pytest.fixture
def sources(tmp_path):
    """The same weights in every format."""
    for form, name in FORMATS.items():
        interop.save(WEIGHTS, tmp_path / name, form)
    return tmp_path


@pytest.fixture
def imported(sources, tinyvit):
    """A run imported from timm's weights, whose images are stretched."""
    assert tinyvit("import", "timm", "--out", "run") == (0, RUN_OF_TIMM, "")
    return sources / "run"


RUN_OF_TIMM = """read as timm: 3,315 parameters, images of 8×12, 3 classes
written to run: tinyvit predict run IMAGE…
"""


@pytest.fixture
def photos(tmp_path):
    """A folder of noise with one sub-folder per class, larger than the model's images and of another shape."""
    generator = np.random.default_rng(0)
    for name in ("dog", "cat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            pixels = generator.integers(0, 256, (int(generator.integers(20, 40)), 30, 3)).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def weights_in(run):
    return (run / "model.safetensors").read_bytes()


@pytest.mark.parametrize("form", FORMATS)
def test_exported_weights_are_imported_bit_for_bit(tinyvit, imported, form):
    size = ["--img-size", "8", "12"] if form == "npz" else []
    out = f"again-{FORMATS[form]}"
    status, text, err = tinyvit("export", "run", "--format", form, "--out", out)
    assert (status, err) == (0, "") and f"written to {out}: 3,315 parameters\nload it: " in text
    assert tinyvit("import", out, "--out", "back", *size)[0] == 0
    assert weights_in(imported.parent / "back") == weights_in(imported)
    assert tinyvit("import", FORMATS[form], "--out", "first", *size)[0] == 0
    assert weights_in(imported.parent / "first") == weights_in(imported)


def test_a_run_says_where_its_weights_came_from(imported, sources):
    content = (sources / "timm" / "model.safetensors").read_bytes()
    about = json.loads((imported / "imported.json").read_text())
    assert about["files"]["model.safetensors"] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert (about["format"], about["source"], about["notes"], about["given"]) == ("timm", "timm", [], {})
    assert about["versions"].keys() == {"tinyvit", "numpy"}
    trained = load_trained(imported, "cpu")
    assert trained.config.model == CONFIG and trained.config.dataset == "folder"
    assert trained.preprocessing == PREPARED


def test_what_the_source_leaves_open_is_noted_and_can_be_given(tinyvit, sources):
    interop.save(weights_of(replace(CONFIG, activation="gelu")), sources / "plain", "timm")
    given = ["--num-heads", "3", "--img-size", "8", "12", "--mean", "0.1", "0.2", "0.3", "--std", "0.5", "0.5", "0.5"]
    status, out, err = tinyvit("import", "plain/model.safetensors", "--out", "run", *given)
    assert (status, err) == (0, "")
    notes = out.splitlines()[:-2]
    assert notes and all(line.startswith("note: ") for line in notes)
    about = json.loads((sources / "run" / "imported.json").read_text())
    assert [f"note: {note}" for note in about["notes"]] == notes
    assert about["given"] == {"num_heads": 3, "img_size": [8, 12], "mean": [0.1, 0.2, 0.3], "std": [0.5] * 3}
    trained = load_trained(sources / "run", "cpu")
    assert (trained.preprocessing.mean, trained.config.model.num_heads) == ((0.1, 0.2, 0.3), 3)


@pytest.mark.parametrize("form", FORMATS)
def test_one_mean_and_one_std_are_for_all_channels(tinyvit, sources, form):
    given = ["--mean", "0.25", "--std", "0.5", *(["--img-size", "8", "12"] if form == "npz" else [])]
    assert tinyvit("import", FORMATS[form], "--out", "run", *given)[0] == 0
    prepared = load_trained(sources / "run", "cpu").preprocessing
    assert (prepared.mean, prepared.std) == ((0.25,) * 3, (0.5,) * 3)


UNUSABLE = [("timm", "config.json", "std", "pretrained_cfg"),
            ("huggingface", "preprocessor_config.json", "image_std", None)]  # fmt: skip


@pytest.mark.parametrize(("form", "file", "field", "part"), UNUSABLE)
@pytest.mark.parametrize("value, usable", [([0, 1, 1], False), ([0.5], True), ([1, 2], False)])
def test_unusable_channel_statistics_of_the_source_are_replaced_by_the_options(
    tinyvit, refused, sources, form, file, field, part, value, usable
):  # fmt: skip
    path = sources / form / file
    about = json.loads(path.read_text())
    (about[part] if part else about)[field] = value
    path.write_text(json.dumps(about))
    if not usable:
        line = refused("import", form, "--out", "run")
        assert re.search(rf"{field} in .*{file} is .*; expected a positive .* for each of 3 channels.*; --std", line)
    given = [] if usable else ["--std", "0.1", "0.2", "0.3"]
    assert tinyvit("import", form, "--out", "run", *given)[0] == 0
    assert load_trained(sources / "run", "cpu").preprocessing.std == ((0.5,) * 3 if usable else (0.1, 0.2, 0.3))


def test_the_suggested_next_command_can_be_pasted(tinyvit, sources):
    status, out, _ = tinyvit("import", "timm", "--out", "a run")
    assert status == 0 and out.endswith("written to a run: tinyvit predict 'a run' IMAGE…\n")


def test_float64_weights_make_a_float64_run(tinyvit, sources):
    weights = weights_of(dtype="float64")
    interop.save(weights, sources / "double", "timm")
    assert tinyvit("import", "double", "--out", "run")[0] == 0
    trained = load_trained(sources / "run", "cpu")
    assert trained.model.dtype == "float64"
    for name, array in trained.model.state_dict().items():
        np.testing.assert_array_equal(to_numpy(array), weights.state[name], strict=True)


# -- using it ----------------------------------------------------------------------------------------------------------


def by_hand(model, path, prepared):
    """The probabilities of an image file, computed step by step."""
    image = read_image(path, 3, (8, 12), resample=prepared.resample, crop=prepared.crop)
    mean, std = (np.array(x)[:, None, None] for x in (prepared.mean, prepared.std))
    return to_numpy(model.predict(((image / 255 - mean) / std)[None].astype("float32")))[0]


def test_predict_prepares_images_as_the_source_says(tinyvit, imported, photos):
    model = load_trained(imported, "cpu").model
    _, out, _ = tinyvit("predict", "run", photos, "--json", "--device", "cpu")
    for line in map(json.loads, out.splitlines()):
        expected = by_hand(model, line["image"], PREPARED)
        for entry in line["top"]:
            assert entry["probability"] == pytest.approx(expected[PREPARED.classes.index(entry["class"])], rel=1e-4)


@pytest.mark.parametrize("names", [{"cat": "cat", "dog": "dog"}, {"cat": "0", "dog": "1"}, {"cat": "cat", "dog": "1"}])
def test_evaluate_measures_a_folder_of_some_of_the_classes_by_name_or_number(tinyvit, imported, photos, names):
    for name, new in names.items():
        (photos / name).rename(photos / "aside")
        (photos / "aside").rename(photos / new)
    (photos / "train").mkdir()
    (photos / "test").mkdir()
    for name in names.values():
        shutil.copytree(photos / name, photos / "test" / name)
        (photos / name).rename(photos / "train" / name)
    status, out, err = tinyvit("evaluate", "run", "--data-dir", photos, "--json", "--device", "cpu")
    assert (status, err) == (0, "")
    model, losses, right = load_trained(imported, "cpu").model, [], 0
    for label, name in enumerate(names.values()):
        for path in image_files(photos / "test" / name):
            p = by_hand(model, path, PREPARED)
            losses.append(-np.log(p[label]))
            right += p.argmax() == label
    scores = json.loads(out)
    assert scores["images"] == 20 and scores["test_accuracy"] == right / 20
    assert scores["test_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert scores["per_class"].keys() == {"cat", "dog", "eel"} and scores["per_class"]["eel"] is None
    _, table, _ = tinyvit("evaluate", "run", "--data-dir", photos, "--device", "cpu")
    shown = {line.split()[0] for line in table.partition("most often taken for")[2].splitlines()[1:]}
    taken = np.array(scores["confusion"]).sum(0) > 0
    assert shown == {"cat", "dog"} | ({"eel"} if taken[2] else set())


def test_evaluate_refuses_a_folder_of_other_classes(refused, imported, photos):
    (photos / "cat").rename(photos / "crane")
    line = refused("evaluate", "run", "--data-dir", photos)
    assert "the model has no class 'crane' (1 of 2 folders have names that are not among its classes)" in line
    (photos / "crane").rename(photos / "1")
    assert "two of the folders 1, dog stand for the same class" in refused("evaluate", "run", "--data-dir", photos)
    assert "needs --data-dir" in refused("evaluate", "run")


def test_a_model_without_a_head_is_imported_and_names_no_classes(tinyvit, refused, sources, photos):
    interop.save(weights_of(replace(CONFIG, num_classes=0)), sources / "headless", "huggingface")
    status, out, _ = tinyvit("import", "headless", "--out", "run")
    assert status == 0 and "no head" in out and out.endswith("tinyvit features run IMAGE… --out FEATURES.npy\n")
    for command in (["predict", "run", photos], ["evaluate", "run", "--data-dir", photos],
                    ["inspect", "run", "--html", "page.html", "--data-dir", photos]):  # fmt: skip
        assert "run: the model has no head (num_classes is 0): it gives features; tinyvit fea" in refused(*command)
    for source in (["--image", photos / "cat" / "0.png"], ["--data-dir", photos, "--images", "1"]):
        status, out, _ = tinyvit("inspect", "run", *source, "--json")
        left_out = json.loads(out)["left_out"]
        assert status == 0 and "the model has no head" in left_out["class"] and "attention" not in left_out
    for form in ("timm", "huggingface"):
        status, out, _ = tinyvit("export", "run", "--format", form, "--out", f"again-{form}")
        assert status == 0 and ("add_pooling_layer=False" in out) == (form == "huggingface")
        assert tinyvit("import", f"again-{form}", "--out", f"back-{form}")[0] == 0
        assert weights_in(sources / f"back-{form}") == weights_in(sources / "run")


# -- refused input -----------------------------------------------------------------------------------------------------


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_existing_files_and_folders_are_never_written_to(refused, imported, sources):
    (sources / "file").write_text("mine")
    (sources / "empty").mkdir()
    (sources / "link").symlink_to(sources / "empty")
    (sources / "loop").symlink_to("loop")
    before = contents(sources)
    for out in ("run", "file", "link", "loop", "timm", "empty", ".", "..", "/", "empty/"):
        line = refused("import", "timm", "--out", out)
        assert f"{out.rstrip('/') or out} is there already; choose another place" in line
    assert contents(sources) == before


def test_a_failed_import_leaves_nothing_behind(refused, sources, monkeypatch):
    before = contents(sources)

    def full(path, arrays):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("tinyvit.tensors.write_tensors", full)
    for out in ("run", "new/folder/run"):
        message = f"tinyvit: error: {out} can't be written: No space left on device; nothing of it is left"
        assert refused("import", "timm", "--out", out).startswith(message)
        assert contents(sources) == before


def test_an_imported_run_is_not_trained_on_from_scratch(refused, imported, photos):
    before = contents(imported)
    line = refused("train", "--resume", "run", "--data-dir", photos)
    assert "run was imported, not trained; go on with it by tinyvit finetune run" in line
    assert "already holds a run (config.json" in refused("train", "digits", "--out", "run")
    assert {path: content for path, content in contents(imported).items() if path.name != ".lock"} == before


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.safetensors", b"", "is empty; expected a .safetensors"),
        ("model.safetensors", b"<!DOCTYPE html>", "is a web page"),
        ("model.safetensors", b"\x80\x02}.", "is a pickle.* weights_only=True.*model.safetensors$"),
        ("config.json", b"{", "config.json is damaged or not JSON"),
        ("config.json", b'{"model_type": "beit"}', "config.json has model_type 'beit'; tinyvit reads .*vit"),
        ("config.json", b'{"architecture": "regnety_016"}', "'regnety_016'"),
    ],
)
def test_an_unreadable_source_is_refused_in_one_line(refused, sources, name, content, reason):
    (sources / "timm" / name).write_bytes(content)
    assert re.search(reason, refused("import", "timm", "--out", "run"))
    assert not (sources / "run").exists()


def test_an_invalid_command_line_is_refused(refused, imported):
    alone = ["timm/model.safetensors", "--out", "x"]
    for arguments, message in (
        ([], "missing SOURCE: The weights"),
        (["timm"], "--out"),
        (["nowhere", "--out", "x"], "nowhere doesn't exist"),
        (["run", "--out", "x"], "run is a run of tinyvit already; use it as it is"),
        ([*alone, "--img-size", "8", "12", "--num-heads", "0"], "num_heads must be a positive int, got 0"),
        (alone, "how many heads there are; give --num-heads"),
        (["timm", "--out", "x", "--num-heads", "5"], "timm: .*says num_heads 3.* 5 was given"),
        (["timm", "--out", "x", "--img-size", "9", "9"], "timm: image size 9×9 is not a multiple of the patch size"),
        (["timm", "--out", "x", "--img-size", "0"], "timm: expected a size as a positive int"),
        (["weights.npz", "--out", "x", "--img-size", "0"], "weights.npz: expected a size as a positive int"),
        (["weights.npz", "--out", "x"], "6 patches don't form a square.*--img-size HEIGHT WIDTH"),
        (["timm", "--out", "x", "--mean", "0.5", "0.4"], "mean that was given is .* expected a finite number for each"),
        (["timm", "--out", "x", "--mean", "nan"], "mean that was given is .*nan.* expected a finite number"),
        (["timm", "--out", "x", "--std", "0"], "std that was given is .* expected a positive finite number"),
        (["timm", "--out", "x", "--mean", "much"], "--mean.*'?much'?"),
    ):
        assert re.search(message, refused("import", *arguments)), message
        assert not (imported.parent / "x").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="memory has to be limited")
def test_weights_are_imported_in_less_memory_than_they_take(tmp_path):
    """A ViT-B of 346 MB in a process limited to 200 MB: arrays are written from the mapped file."""
    from tinyvit import create_model
    from tinyvit.interop.names import own_shapes

    shapes = own_shapes(create_model("vit_base_patch16_224", device="meta").config)
    write_tensors(tmp_path / "vit.safetensors", {name: np.zeros(shape, "float32") for name, shape in shapes.items()})
    assert (tmp_path / "vit.safetensors").stat().st_size > 340e6
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (200_000_000, 200_000_000)); "
    command = "from tinyvit import cli; cli.main(['import', 'vit.safetensors', '--out', 'run'])"
    process = subprocess.run([sys.executable, "-c", limited + command], cwd=tmp_path, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert (tmp_path / "run" / "model.safetensors").stat().st_size > 340e6
