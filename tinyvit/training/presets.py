"""Named training runs, each with its reason and its measured result. What a run doesn't name has its default.

A result is the accuracy on the test images after the last epoch, on two CPU cores; its log is in
`notebooks/results/`, with what else was tried.
"""

from collections import UserDict

from tinyvit.registry import look_up
from tinyvit.training.config import from_values

CIFAR = dict(img_size=32, in_chans=3, num_classes=10)
SMALL = CIFAR | dict(
    embed_dim=192, depth=9, num_heads=12, global_pool="avg", positions="sincos_2d", drop_path_rate=0.1
)  # fmt: skip
DIGITS = dict(img_size=8, patch_size=2, in_chans=1, num_heads=4, mlp_ratio=2.0)
# For minutes on two cores.
TINY = CIFAR | dict(patch_size=4, embed_dim=128, depth=6, num_heads=4, mlp_ratio=2.0)
CPU = TINY | dict(global_pool="avg", positions="sincos_2d", dynamic_img_size=True)
# Muon, whose rate falls to 0 in a straight line.
LINEAR = dict(name="muon", lr=0.012, adam_lr=0.01, schedule="linear")
# How it and its relatives on CIFAR-10 are trained: on small images first.
MUON = LINEAR | dict(label_smoothing=0.1, small_sizes=(16, 24), small_until=(0.5, 0.85))
# Of the captions of coloured digits.
WORDS = """a the this red green blue yellow purple white zero one two three four five six seven eight nine on left in
middle right"""


def on_cifar10(architecture, model, *, epochs, batch_size=128, crop=4, mix_prob=0.0, policy="none", **optim):
    """A recipe for two cores, tested twice: `MUON` with the changes `optim`; its first filters whiten patches."""
    mixing = dict(mixup=0.8, cutmix=1.0, mix_prob=mix_prob) if mix_prob else {}
    return dict(
        dataset="cifar10", architecture=architecture, model=model, epochs=epochs, batch_size=batch_size,
        evaluate_every=-(-epochs // 2), init=dict(whiten=True), optim=MUON | optim,
        augment=dict(crop=crop, flip=True, policy=policy, **mixing),
    )  # fmt: skip


# The plain ViT that reached 93.58 % in the literature (SPT_LSA_ViT: 300 passes of AdamW 1e-3 at batch 128, crop, flip,
# colour policy, random erasing, mixup or cutmix, stochastic depth), with Muon and averaged weights. On CIFAR-10 (JPEG
# copy), seed 0: 93.01 % on an H200, as a CUDA graph in bfloat16; with AdamW 2e-3 at batch 1,024, 88.81 %.
LONG = dict(
    dataset="cifar10",
    model=SMALL,
    epochs=300,
    batch_size=256,
    evaluate_every=10,
    optim=dict(name="muon", lr=0.01, adam_lr=3e-3, warmup=0.05, label_smoothing=0.1, ema=0.999),
    augment=dict(crop=4, flip=True, policy="trivial", erase=0.25, mixup=0.8, cutmix=1.0, mix_prob=0.5),
)


class Presets(UserDict):
    """A `TrainConfig` by name, made of the fields in a table when it is asked for: no other architecture or task is
    imported for it."""

    def __getitem__(self, name):
        return from_values(super().__getitem__(name))


PRESETS = Presets({
    # 16 patches of 2×2, so that there is something to see in maps of attention. Muon, positions by sines and cosines,
    # and the patches' mean for the head make them as accurate as four patches of 4×4. Dropout and stochastic depth were
    # left out: with them more epochs are needed, and no more is gained. 98.89 % (mean of seeds 0 to 4, from 98.61 to
    # 99.44).
    "digits": dict(
        dataset="digits",
        model=DIGITS | dict(embed_dim=48, depth=3, global_pool="avg", positions="sincos_2d"),
        epochs=60,
        batch_size=64,
        optim=dict(name="muon", lr=0.03, adam_lr=0.01, label_smoothing=0.1),
        augment=dict(crop=1),
    ),
    # Tubelets of 2×4×4 pixels, 4 in time and 16 in a frame, each of which sees a step of the motion. 99.83 %, in less
    # than a minute of a processor; after the first epoch 99.38 %.
    "moving-digits": dict(
        dataset="moving-digits",
        architecture="vivit",
        model=dict(
            img_size=16, patch_size=4, in_chans=1, num_classes=8, frames=8, tubelet_frames=2, embed_dim=64, depth=3,
            num_heads=4, global_pool="avg",
        ),
        epochs=3,
        batch_size=64,
        optim=dict(name="muon", lr=0.01, adam_lr=3e-3, label_smoothing=0.1),
    ),
    # What counts here is accuracy per minute of two cores. Muon gains as much as three times the time with AdamW;
    # images of 16 and then 24 pixels for the first 85 % of the steps cost a fraction, and the last steps catch up;
    # sines and cosines are positions from the first step on, and filters whiten patches; images mixed in three of ten
    # batches keep it from learning them by heart. On CIFAR-10 (JPEG copy): 83.44 % (seeds 0 to 2), 29 minutes.
    "cifar10-cpu": on_cifar10("vit", CPU, epochs=25, mix_prob=0.3),
    # The same for longer, with each image distorted and every other batch mixed. On CIFAR-10 (JPEG copy), seed 0:
    # 87.10 % in 2 hours and 17 minutes.
    "cifar10-cpu-long": on_cifar10("vit", CPU, epochs=92, mix_prob=0.5, policy="trivial"),
    # Three stages on half the resolution take less time than four narrower ones on the full one, and learn more. The
    # first filters start as those that whiten patches, and AdamW's part (first and last layer, batch norms) has ten
    # times the usual rate: together they save half of the steps. On CIFAR-10 (JPEG copy), seed 0: 88.30 %, 31 minutes.
    "cifar10-resnet": on_cifar10(
        "resnet", CIFAR | dict(depths=(1, 1, 1), width=64, stem="conv4"),
        epochs=19, batch_size=256, crop=3, lr=0.1, adam_lr=0.02, small_sizes=(24,), small_until=(0.5,),
    ),
    # Two such stages, and a ViT on the 64 places of their feature maps. Filters have ten times the rate of the blocks'
    # matrices, which would not bear that: after batch norm only the direction of a filter counts. On CIFAR-10 (JPEG
    # copy), seed 0: 87.28 % in 46 minutes beside other work.
    "cifar10-hybrid": on_cifar10(
        "hybrid",
        CPU | dict(depth=4, backbone_width=64, backbone_depths=(1, 1), backbone_stem="conv4"),
        epochs=16, batch_size=256, crop=3, mix_prob=0.3, lr=0.01, filter_lr=0.1, small_sizes=(24,), small_until=(0.75,),
    ),
    # Windows of 4×4 tokens on grids of 16×16, 8×8 and 4×4. As deep as the ViT of cifar10-cpu, with about as many
    # multiply-adds (56.6 and 58.0 million) and the same rates. On CIFAR-10 (JPEG copy), seed 0: 85.30 %, 30 minutes.
    "cifar10-swin": on_cifar10(
        "swin",
        CIFAR | dict(patch_size=2, embed_dim=64, depths=(2, 2, 2), num_heads=(2, 4, 8), window_size=4, mlp_ratio=2.0),
        epochs=26, small_until=(0.4, 0.7),
    ),
    # A stage of convolutions on 16×16 places, one on 8×8, and a stage of attention on the same 8×8. As in the hybrid,
    # filters have a higher rate than matrices, and every other batch is mixed. On CIFAR-10 (JPEG copy), seed 0: 87.46 %
    # in 40 minutes beside other work.
    "cifar10-coatnet": on_cifar10(
        "coatnet",
        CIFAR | dict(
            stages="CCT", depths=(1, 1, 2), widths=(64, 128, 128), strides=(1, 2, 1),
            expansion=2.0,
        ),
        epochs=24, batch_size=256, crop=3, mix_prob=0.5, lr=0.02, filter_lr=0.03, small_sizes=(24,), small_until=(0.6,),
    ),
    # The ViT of cifar10-cpu without labels. A quarter of the patches makes a step cheap, as does a narrow decoder.
    # Fine-tuned on 1,000 labels: 55.6 %, from scratch 42.8 % (three seeds), in 21 to 29 minutes.
    "cifar10-mae": dict(
        dataset="cifar10",
        model=CPU,
        task="mae",
        objective=dict(decoder_heads=2),
        epochs=34,
        batch_size=256,
        evaluate_every=2,
        optim=LINEAR | dict(lr=0.01, adam_lr=3e-3, betas=(0.9, 0.95)),
        augment=dict(crop=4, flip=True),
    ),
    # The same ViT, that learns what an image's views have in common. From scratch it would take hours; from the weights
    # of a run of cifar10-mae (--init.run RUN) two passes do, 14 minutes: nearest neighbours 54.3 %, before it 49.6 %.
    "cifar10-dino": dict(
        dataset="cifar10",
        model=CPU,
        task="dino",
        objective=dict(scales=(0.2, 0.5, 1.0), momentum=0.98),
        epochs=2,
        batch_size=64,
        optim=dict(name="muon", lr=2e-3, weight_decay=0.04, clip_norm=None, clip_each=3.0),
    ),
    # Digits in colour, with captions. As a batch isn't split, a second thread would share single small products only,
    # and wait for the other most of the time. Among 180 captions, seeds 0 to 2: 97.3 % of the pairs of colour and digit
    # that were seen, 89.5 % of those held out, in four minutes beside other work.
    "clip-digits": dict(
        dataset="coloured-digits",
        architecture="clip",
        model=dict(
            img_size=16, patch_size=4, embed_dim=64, depth=3, num_heads=4, text_dim=64, text_depth=1,
            text_heads=4, context_length=8, projection_dim=64, mlp_ratio=2.0, vocabulary=WORDS.split(),
        ),
        task="clip",
        objective=dict(equal_captions=True),
        epochs=24,
        batch_size=256,
        threads=1,
        evaluate_every=4,
        optim=LINEAR,
        augment=dict(crop=1),
    ),
    # A class for each pixel of digits on photographs, 16 logits of each class a patch; rates are those of cifar10-cpu.
    # Mean IoU 87.17 % (mean of seeds 0 to 2, from 86.10 to 87.71), 98.03 % of the pixels right, in 6 minutes; seed 0
    # with --epochs 4, 74.0 and 96.2 %. Background everywhere has 7.59 and 83.4 %.
    "segment-digits": dict(
        dataset="segment-digits",
        architecture="segmenter",
        task="segmentation",
        model=dict(
            architecture="vit",
            backbone=CPU | dict(depth=4),
            num_classes=11,
            head="pixel",
        ),
        epochs=8,
        batch_size=64,
        evaluate_every=4,
        optim=LINEAR,
        augment=dict(crop=2),
    ),
    # Digits on photographs of many sizes, 36 to 144 patches in an image, each read at its own: 96.39 % with seed 0.
    "sized-digits": dict(
        dataset="sized-digits",
        architecture="qwen_vision",
        model=dict(row_tokens=1024, mlp_hidden=128),
        epochs=8,
        batch_size=32,
        evaluate_every=2,
        optim=LINEAR,
    ),
    # 16 tokens of 2×2 pixels. A narrow MLP, no weight decay, and an average over about 1,000 steps, which is what makes
    # digits clear. An SVC sees the class that was asked for in 100 % of 400 digits with guidance 2, in 92.75 % without,
    # and none is a copy: seed 0, three minutes.
    "dit-digits": dict(
        dataset="digits",
        architecture="dit",
        task="diffusion",
        model=DIGITS | dict(embed_dim=96, depth=4),
        mean=(0.5,),
        std=(0.5,),
        epochs=200,
        batch_size=128,
        evaluate_every=20,
        optim=dict(lr=2e-3, weight_decay=0.0, warmup=0.05, ema=0.999),
    ),
    # As many tokens, blocks and features as cifar10-cpu has, whose rates it takes over: 0.5 s a step, test loss 0.0553.
    "dit-cifar10": dict(
        dataset="cifar10",
        architecture="dit",
        task="diffusion",
        model=TINY,
        objective=dict(schedule="cosine"),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        epochs=12,
        batch_size=128,
        evaluate_every=3,
        optim=LINEAR | dict(adam_lr=3e-3, weight_decay=0.0, ema=0.999),
        augment=dict(flip=True),
    ),
    "cifar10": LONG,
    # Ten times as many classes with a tenth of the images each. Not measured yet.
    "cifar100": LONG | dict(dataset="cifar100", model=SMALL | dict(num_classes=100)),
    # For photographs of one's own: 64 pixels show what they are of, and cost as many tokens as CIFAR's 32 do. As many
    # classes as the folder has. Not measured: it depends on the photographs.
    "folder": dict(
        dataset="folder",
        model=SMALL | dict(img_size=64, patch_size=8, embed_dim=128, depth=6, num_heads=4),
        epochs=60,
        batch_size=64,
        evaluate_every=5,
        optim=dict(name="muon", lr=0.01, adam_lr=2e-3, label_smoothing=0.1),
        augment=dict(crop=8, flip=True, policy="rand"),
    ),
})  # fmt: skip


def preset(name):
    """A preset by name; raises ValueError for a name that doesn't exist."""
    return look_up(PRESETS, name, "preset")
