"""The commands on other architectures, of which one is unknown to the package: trained on the digits, looked into,
fine-tuned, exported."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_architecture

from tinyvit import load
from tinyvit.tensors import load_tensors

TOKENS = ["spectrum", "norms"]
VIT = ["attention", "rollout", "class", "distance", "positions", *TOKENS]
SHAPES = {  # options, pictures besides those that all have, layers with features, what export says
    "tiny": ("--model.layers 3", ["positions", *TOKENS], 5, "can't be written in the format 'huggingface'"),
    "deit": ("--model.embed-dim 16 --model.depth 2 --model.num-heads 2 --model.num-registers 2", VIT, 4,
             "num_registers 2"),
    "swin": ("--model.patch-size 1 --model.embed-dim 8 --model.depths 2 1 --model.num-heads 1 2 --model.window-size 4",
             ["features"], 6, "SwinForImageClassification.from_pretrained"),
    "coatnet": ("--model.stem-width 4 --model.stages CT --model.depths 1 1 --model.widths 8 16 --model.strides 1 2 "
                "--model.head-dim 8", ["features"], 4, "can't be written in the format 'huggingface'"),
    "resnet": ("--model.width 4 --model.depths 1 1", ["features"], 4, "has no place for stem 'conv3'"),
    "hybrid": ("--model.img-size 8 --model.patch-size 4 --model.embed-dim 8 --model.depth 1 --model.num-heads 2 "
               "--model.backbone-width 4 --model.backbone-depths 1 1", ["features", *VIT], 3, "can't be written"),
}  # fmt: skip


@pytest.fixture(params=SHAPES)
def architecture(request):
    return request.param


@pytest.fixture
def run(trained, architecture):
    """A finished run of the architecture."""
    return trained("digits", "--architecture", architecture, "--device", "cpu", *SHAPES[architecture][0].split())


def test_all_that_the_architecture_has_is_drawn_and_its_layers_are_probed(as_json, succeeds, run, architecture, photos):
    _, pictures, layers, _ = SHAPES[architecture]
    seen = as_json("inspect", run, "--images", "2", "--out", "pictures")
    expected = {"filters", "receptive", "most-wrong", *pictures}
    assert set(seen["pictures"]) == {f"{name}.png" for name in expected}
    assert set(seen["left_out"]) == set(VIT) - expected
    reason = "has no attention over the same patches in every layer"
    assert "attention" in expected or seen["left_out"]["attention"].endswith(reason)
    assert len(as_json("knn", run, "--layer", "all", "--images", "100")["layers"]) == layers
    succeeds("features", run, photos, "--layer", "-1", "--out", "last.npy")
    assert 0 <= as_json("evaluate", run)["test_accuracy"] <= 1
    assert f"{load(run).num_parameters():,}" in succeeds("summary", run).splitlines()[-1]


@pytest.mark.parametrize("architecture", list(SHAPES)[1:], indirect=True)
@pytest.mark.parametrize("options", ["--classes 3 8", "--img-size 12"])
def test_it_is_fine_tuned_on_other_classes_and_on_images_of_another_size(succeeds, run, architecture, options):
    options = f"--data digits --epochs 1 --images 60 --device cpu --out tuned {options}"
    succeeds("finetune", run, *options.split())
    with open("tuned/config.json") as file:
        config = json.load(file)
    assert config["architecture"] == architecture
    assert config["model"]["num_classes"] == (2 if "--classes" in options else 10)


def test_its_weights_go_out_and_come_back_or_are_refused(tinyvit, refused, run, architecture):
    command, said = ["export", run, "--format", "huggingface", "--out", "folder"], SHAPES[architecture][-1]
    if "from_pretrained" not in said:
        assert said in refused(*command)
        return
    assert said in tinyvit(*command)[1]
    assert tinyvit("import", "folder", "--out", "back")[0] == 0
    before, after = (load_tensors(path / "model.safetensors") for path in (run, Path("back")))
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)


@pytest.mark.parametrize("architecture", ["tiny"], indirect=True)
def test_options_of_pictures_that_it_cannot_have_are_refused(refused, run):
    for options, said in (
        ("--block 0", "there is no block to draw; Tiny has no attention over the same patches in every layer"),
        ("--head 0", "there is no head to draw; Tiny has no attention over the same patches in every layer"),
        ("--html page.html", "the page explains the steps of a plain Vision Transformer"),
    ):
        assert said in refused("inspect", run, *options.split())


def test_of_an_unknown_architecture_gradients_are_checked_and_layers_frozen(succeeds, trained):
    out = succeeds("gradcheck", "tiny_8", "--directions", "2")
    assert "tiny_8 (" in out and "WRONG" not in out
    frozen = trained("digits", "--architecture", "tiny", "--freeze", "1", "--optim.layer-decay", "0.5")
    state, fresh = load(frozen).state_dict(), tiny_architecture.Tiny(tiny_architecture.TinyConfig()).state_dict()
    same = {name for name, x in state.items() if (x == fresh[name]).all()}
    assert same == {name for name in state if name.startswith(("stem.", "floors.0."))}
