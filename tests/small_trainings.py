"""Trainings of a second or two, of every kind of task, model and augmentation, with everything random that there is."""

from dataclasses import replace

import tiny_task  # noqa: F401

from tinyvit.models import FactorisedViViTConfig
from tinyvit.training import PRESETS, OptimConfig
from tinyvit.training.config import switch


def base(**changes):
    """A small ViT on the digits in float64, with everything random that there is, and 64 steps on 85 images."""
    preset = PRESETS["digits"]
    model = replace(preset.model, patch_size=4, embed_dim=16, depth=2, num_heads=2, drop_rate=0.1, drop_path_rate=0.1,
                    positions="learned", dynamic_img_size=True)  # fmt: skip
    config = replace(preset, model=model, batch_size=85, epochs=4, device="cpu", threads=1, precision="float64")
    config = replace(config, optim=OptimConfig(lr=3e-3, warmup=0.1, label_smoothing=0.1, clip_norm=0.5))
    optim = {name[6:]: changes.pop(name) for name in list(changes) if name.startswith("optim_")}
    return replace(config, optim=replace(config.optim, **optim), **changes)


def mixed():
    config = base(optim_accumulate=3, optim_ema=0.9, optim_clip_each=0.3)
    return replace(config, augment=replace(config.augment, crop=1, mixup=0.2, cutmix=0.5, erase=0.2))


def batch_normed():
    config = switch(base(), architecture="resnet")
    return replace(config, model=replace(config.model, depths=(1, 1), width=8))


def of_task(task, **options):
    config = switch(base(), task=task)
    return replace(config, objective=replace(config.objective, **options))


def clip():
    config, small = base(batch_size=70, epochs=5), {"embed_dim": 16, "depth": 1, "text_dim": 16, "text_depth": 1}
    preset = PRESETS["clip-digits"]
    model = replace(preset.model, **small, num_heads=2, text_heads=2, projection_dim=8)
    return replace(preset, model=model, images=900, **{name: getattr(config, name) for name in (
        "batch_size", "epochs", "device", "threads", "precision")})  # fmt: skip


def diffusion():
    preset = PRESETS["dit-digits"]
    model = replace(preset.model, embed_dim=16, depth=1, num_heads=2)
    return replace(preset, model=model, batch_size=85, epochs=4, device="cpu", threads=1, precision="float64")


def segmentation():
    """A segmenter with a part frozen, on images shifted by up to 6 pixels: their numbers of ignored pixels differ."""
    preset, config = PRESETS["segment-digits"], base(images=900, epochs=5)
    backbone = dict(patch_size=8, embed_dim=8, depth=2, num_heads=2, drop_path_rate=0.1)
    model = replace(preset.model, backbone=backbone, head="mask", decoder_dim=8, decoder_depth=1, decoder_heads=2)
    augment, optim = replace(preset.augment, crop=6, rotate=20.0), replace(config.optim, label_smoothing=0.0)
    names = "images", "batch_size", "epochs", "device", "threads", "precision"
    same = {name: getattr(config, name) for name in names}
    return replace(preset, model=model, freeze="embed", augment=augment, optim=optim, evaluate_every=5, **same)


def sizes():
    """An encoder for images at their own sizes, which packs each batch into rows of tokens."""
    preset, config = PRESETS["sized-digits"], base(images=900, epochs=5, optim_accumulate=2)
    model = replace(preset.model, row_tokens=256, embed_dim=8, depth=2, num_heads=2, mlp_hidden=8, full_attention=(1,))
    augment = replace(preset.augment, crop=2, policy="rand", erase=0.2)
    names = "images", "batch_size", "epochs", "device", "threads", "precision", "optim"
    return replace(preset, model=model, augment=augment, **{name: getattr(config, name) for name in names})


def video():
    preset, config = PRESETS["moving-digits"], base(images=1280, batch_size=128, epochs=6)
    model = FactorisedViViTConfig(
        img_size=16, patch_size=8, in_chans=1, num_classes=8, frames=4, embed_dim=8, depth=1, temporal_depth=1,
        num_heads=2, drop_rate=0.1, drop_path_rate=0.1,
    )  # fmt: skip
    return replace(config, dataset=preset.dataset, architecture="factorised_vivit", model=model)


CASES = {  # by name, from a folder with the run `teacher`
    "plain": lambda folder: base(optim_ema=0.9, images=990, batch_size=270, epochs=13),  # of 247 or 248
    "float32": lambda folder: base(precision="float32"),
    "mixed": lambda folder: mixed(),
    "muon": lambda folder: base(optim_name="muon", optim_lr=0.02, optim_keep_patches=0.5),
    "batch-normed": lambda folder: batch_normed(),
    "teacher": lambda folder: of_task("distillation", teacher=str(folder / "teacher")),
    "mae": lambda folder: of_task("mae", decoder_dim=16, decoder_depth=1, decoder_heads=2),
    "masked-patches": lambda folder: of_task("masked-patches", target="colour"),
    "dino": lambda folder: of_task("dino", prototypes=32, hidden=16, bottleneck=8, frozen_last=0.2),
    "brightness": lambda folder: of_task("brightness"),
    "clip": lambda folder: clip(),
    "diffusion": lambda folder: diffusion(),
    "segmentation": lambda folder: segmentation(),
    "video": lambda folder: video(),
    "sizes": lambda folder: sizes(),
    "small-images": lambda folder: base(
        optim_name="sgd", optim_nesterov=True, optim_small_sizes=(4,), optim_small_until=(0.5,), evaluate_every=3
    ),
}
