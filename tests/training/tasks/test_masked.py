"""The tasks that hide patches: the masked autoencoder and masked patch prediction."""

import json
from dataclasses import replace

import numpy as np
import pytest
from strategies import redrawn
from task_gradients import assert_gradient_is_that_of_the_complex_step

from tinyvit import Key
from tinyvit import functional as F
from tinyvit.cli import main
from tinyvit.data import load
from tinyvit.models import ViTConfig
from tinyvit.models.mae import MaskedAutoencoder
from tinyvit.models.resnet import ResNetConfig
from tinyvit.training import OptimConfig, TrainConfig, train
from tinyvit.training.finetune import finetune_config
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions
from tinyvit.training.tasks.masked_patches import MaskedPatchesOptions

SHAPE = dict(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=16, depth=1, num_heads=2,
             positions="sincos_2d")  # fmt: skip
MAE = MaskedAutoencoderOptions(decoder_dim=8, decoder_depth=1, decoder_heads=2)
OBJECTIVES = {
    "mae": MAE, "mae, plain pixels": replace(MAE, normalise=False, share=0.5),
    "masked-patches": MaskedPatchesOptions(), "masked-patches, colours": MaskedPatchesOptions(target="colour"),
}  # fmt: skip


def configured(name, **changes):
    common = dict(model=ViTConfig(**SHAPE), objective=OBJECTIVES[name], epochs=2, batch_size=128, device="cpu",
                  threads=1, optim=OptimConfig(lr=3e-3))  # fmt: skip
    return TrainConfig("digits", task=name.partition(",")[0], **common | changes)


def begun(name, **changes):
    """The task, with a random model in float64, and its batch of four images."""
    config = configured(name, **changes)
    task, digits = task_class(config.task)(config), load("digits").train
    model = redrawn(task.build(device="cpu", precision="float64"))
    task.begin(model, 10, digits)
    return task, model, task.batch(digits.normalise(digits.images[:4], "float64"), None, Key(0, 3))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_score_is_the_mean_of_the_losses_of_each_image_alone(name):
    task, model, _ = begun(name)
    digits = load("digits").test  # a batch of 256 and one of 104
    images, losses = digits.normalise(digits.images, "float32"), []
    model.to("float32")
    for i in range(len(images)):
        loss, *_ = task.loss(model, task.batch(images[i : i + 1], None, Key(0).skip(i)), None)
        losses.append(float(loss))
    scores = task.evaluate(model, digits)
    assert list(scores) == [task.headline]
    np.testing.assert_allclose(scores[task.headline], np.mean(losses), rtol=1e-5)


@pytest.mark.parametrize("positions", ["sincos_2d", "rope"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_of_the_loss_is_that_of_the_complex_step(name, positions):
    assert_gradient_is_that_of_the_complex_step(*begun(name, model=ViTConfig(**SHAPE | {"positions": positions})))


@pytest.mark.parametrize("positions", ["sincos_2d", "rope"])
def test_the_order_in_which_the_autoencoder_sees_patches_does_not_matter(positions):
    _, model, batch = begun("mae", model=ViTConfig(**SHAPE | {"positions": positions}))
    order, turned = batch["order"], batch["order"].copy()
    turned[:, :4] = order[:, 3::-1]
    pixels, other = (model(batch["images"], places, 4)[0] for places in (order, turned))
    np.testing.assert_allclose(other, pixels, atol=1e-12)


@pytest.mark.parametrize("name", ["mae", "mae, plain pixels"])
def test_the_autoencoder_computes_with_visible_patches_alone(name):
    task, model, batch = begun(name)
    order, patches = batch["order"], F.patchify.reference(batch["images"], 2)[0]
    visible = 16 - round(task.config.objective.share * 16)
    rows = np.arange(4)[:, None]
    changed = patches.copy()
    changed[rows, order[:, visible:]] = np.random.default_rng(0).standard_normal((4, 16 - visible, 4))
    before, cache = model(batch["images"], order, visible)
    after, _ = model(F.unpatchify.reference(changed, 2)[0], order, visible)
    np.testing.assert_array_equal(before, after)
    assert cache.encode.blocks[0].attn.heads.probs.shape == (4, 2, 1 + visible, 1 + visible)
    loss, *_ = task.loss(model, batch, None)
    targets = patches[rows, order[:, visible:]]
    if task.config.objective.normalise:
        targets = (targets - targets.mean(-1, keepdims=True)) / np.sqrt(targets.var(-1, ddof=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(loss, ((before - targets) ** 2).mean(), rtol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_image_has_a_mask_of_its_own_that_depends_on_the_step_alone(name):
    task, _, batch = begun(name)
    images = batch["images"]
    hidden = [task.batch(images, None, key) for key in (Key(0, 3), Key(0, 3), Key(0, 4), Key(1, 3))]
    (what,) = {"order", "where"} & set(batch)
    first, again, *others = (arrays[what] for arrays in hidden)
    np.testing.assert_array_equal(first, again)
    assert len({tuple(row) for row in first}) == 4
    assert not any((first == other).all(1).any() for other in others)


@pytest.mark.parametrize("target", ["classes", "colour"])
def test_of_the_patches_to_guess_most_are_replaced_some_swapped_and_some_kept(target):
    config = configured("masked-patches", objective=MaskedPatchesOptions(0.625, target))
    task, digits = task_class(config.task)(config), load("digits").train
    task.begin(task.build(device="cpu"), 10, digits)
    images = np.random.default_rng(0).random((6, 1, 8, 8))
    batch = task.batch(images, None, Key(0, 3))
    before, after = (F.patchify.reference(x, 2)[0] for x in (images, batch["images"]))
    assert batch["where"].shape == (6, 10) and batch["mask"].sum(1).tolist() == [8] * 6
    differ = (before != after).any(-1)
    assert differ.sum(1).tolist() == [1] * 6, "10 % of ten patches are overwritten by another"
    for image in range(6):
        (swapped,) = np.flatnonzero(differ[image])
        sources = np.flatnonzero((before[image] == after[image, swapped]).all(-1))
        assert swapped in batch["where"][image] and not batch["mask"][image, swapped] and len(sources) == 1
        assert set(np.flatnonzero(batch["mask"][image])) < set(batch["where"][image])
    colours = before.mean(-1)[np.arange(6)[:, None], batch["where"]]
    if target == "colour":
        np.testing.assert_allclose(batch["targets"][..., 0], colours)
    else:  # as the data set's pixels, of eight levels
        raw = colours * digits.std[0] + digits.mean[0]
        np.testing.assert_array_equal(batch["targets"], np.clip(np.floor(8 * raw), 0, 7))


def test_a_class_has_three_bits_of_each_channel():
    config = replace(configured("masked-patches"), model=ViTConfig(**dict(SHAPE, in_chans=3)))
    task = task_class(config.task)(config)
    task.train = load("digits").train
    task.train = replace(task.train, images=np.zeros((1, 3, 8, 8)), labels=np.zeros(1, int), mean=(0.0,) * 3,
                           std=(1.0,) * 3)  # fmt: skip
    for colour, number in (((0, 0, 0), 0), ((1, 1, 1), 511), ((0.99, 0, 0), 7 * 64), ((0, 0.13, 0.5), 8 + 4)):
        patches = np.repeat(np.array(colour, float), 4).reshape(1, 1, 12)
        assert task.targets(patches) == [[number]]
    assert task.build(device="cpu").head.weight.value.shape == (512, 16)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_training_gets_better_and_the_same_weights_have_the_same_score(name, tmp_path):
    summary = train(configured(name, epochs=6), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["test_loss"] < 0.95 * rows[0]["test_loss"] and summary["test_loss"] == rows[-1]["test_loss"]
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(tmp_path / "run"), "--device", "cpu"])
    assert ended.value.code == 0


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["mae", "masked-patches"])
def test_the_next_commands_use_what_was_learned(name, tmp_path, capsys):
    train(configured(name), tmp_path / "run")
    config = finetune_config(str(tmp_path / "run"), "digits", images=200, epochs=20, device="cpu",
                             optim=OptimConfig(lr=3e-3))  # fmt: skip
    assert config.task == "classification" and config.model.num_classes == 10
    assert train(config, tmp_path / "tuned")["test_accuracy"] > 0.1
    for command in ("knn", "probe-linear"):
        with pytest.raises(SystemExit) as ended:
            main([command, str(tmp_path / "run"), "--images", "200", "--device", "cpu", "--json"])
        assert ended.value.code == 0
    assert '"test_accuracy"' in capsys.readouterr().out


@pytest.mark.parametrize("task", ["mae", "masked-patches"])
@pytest.mark.parametrize("change, message", [
    (dict(share=1.0), r"objective\.share 1\.0 hides 16 of 16 patches; hide some, not all"),
    (dict(share=0.01), r"objective\.share 0\.01 hides 0 of 16 patches"),
    (dict(share=1.2), r"objective\.share must be .* got 1\.2"),
    (dict(keep_patches=0.5), "optim.keep-patches must be 1"),
    (dict(small_sizes=(2,), small_until=(0.5,)), r"hides . of 1 patches"),
    (dict(architecture="resnet"), "architecture must be vit"),
])  # fmt: skip
def test_what_can_not_be_trained_is_refused(task, change, message):
    options = {"share": change["share"]} if "share" in change else {}
    model = ViTConfig(**SHAPE, dynamic_img_size=True)
    if "architecture" in change:
        model = ResNetConfig(img_size=8, in_chans=1, depths=(1,), width=4)
    optim = OptimConfig(**{key: change[key] for key in ("keep_patches", "small_sizes", "small_until") if key in change})
    with pytest.raises(ValueError, match=message):
        TrainConfig("digits", model, change.get("architecture", "vit"), task,
                    task_class(task).options(**options), optim=optim)  # fmt: skip


def test_patches_of_one_number_can_not_be_normalised():
    model = ViTConfig(**SHAPE | {"patch_size": 1})
    assert TrainConfig("digits", model, "vit", "mae", replace(MAE, normalise=False))
    with pytest.raises(ValueError, match="objective.normalise makes 0 of a patch that is a single number; .* got 1"):
        TrainConfig("digits", model, "vit", "mae", MAE)


@pytest.mark.parametrize("dim, heads", [(6, 2), (8, 3)])
def test_a_decoder_that_can_not_be_built_is_refused(dim, heads):
    with pytest.raises(ValueError, match=f"decoder-dim must be a multiple of 4 and of the {heads} .* got {dim}"):
        MaskedAutoencoderOptions(decoder_dim=dim, decoder_heads=heads)


@pytest.mark.parametrize("name", ["mae", "mae, plain pixels"])
def test_a_reconstruction_keeps_what_was_seen_and_guesses_the_rest(name):
    task, model, batch = begun(name)
    images = batch["images"]
    seen, guessed = (F.patchify.reference(x, 2)[0] for x in task.reconstruct(model, images))
    patches, share = F.patchify.reference(images, 2)[0], task.config.objective.share
    hidden = (seen == 0).all(-1) & (patches != 0).any(-1)
    assert hidden.sum(1).max() <= share * 16
    np.testing.assert_array_equal(guessed[seen.any(-1)], patches[seen.any(-1)])
    assert (guessed[hidden] != patches[hidden]).all()
    again, _ = task.reconstruct(model, images)
    np.testing.assert_array_equal(again, F.unpatchify.reference(seen, 2)[0])


def test_a_decoder_that_guesses_right_reconstructs_the_image(monkeypatch):
    task, model, batch = begun("mae")
    monkeypatch.setattr(type(model), "forward", lambda self, images, order, visible, ctx=None: (
        task.targets(images, order[:, visible:]), None))  # fmt: skip
    _, guessed = task.reconstruct(model, batch["images"])
    np.testing.assert_allclose(guessed, batch["images"], atol=1e-12)


@pytest.mark.end_to_end
def test_inspect_draws_reconstructions_of_an_autoencoder(tmp_path, capsys):
    train(configured("mae", epochs=1), tmp_path / "mae")
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path / "mae"), "--images", "2", "--reconstructions", "3", "--json", "--device", "cpu"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended.value.code == 0 and len(found["reconstructed"]) == 3
    assert (tmp_path / "mae" / "inspect" / "reconstructions.png").stat().st_size > 1000
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path / "mae"), "--reconstructions", "0"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "tinyvit: error: reconstructions must be at least 1, got 0\n"


def test_the_papers_model_has_as_many_parameters_as_the_original():
    vit = ViTConfig(img_size=224, patch_size=16, num_classes=0, embed_dim=768, depth=12, num_heads=12, mlp_ratio=4.0,
                    positions="sincos_2d")  # fmt: skip
    model = MaskedAutoencoder(vit, 512, 8, 16, device="meta")
    fixed = sum(np.prod(buffer.shape) for _, buffer in model.named_buffers())
    assert fixed == 197 * (768 + 512) and model.num_parameters() + fixed == 111_907_840
