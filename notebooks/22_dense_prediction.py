# %% [markdown]
# # 22 · One label a pixel
#
# A ViT makes one answer of an image: what it shows. Dense prediction asks at every pixel what is there. The tokens know
# it, roughly: each stands for a patch. What is missing is a head that makes pixels of patches again, and a loss and a
# metric that count pixels.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from tinyvit import Context, Key, exercises, gradcheck, optim
from tinyvit import functional as F
from tinyvit.data import load
from tinyvit.functional.interpolation import bilinear, cell_centres, hats
from tinyvit.models import SegmenterConfig, SwinConfig, build
from tinyvit.models.convnet import MapNorm, OnMaps
from tinyvit.models.simple_pyramid import SimplePyramid
from tinyvit.training import train_step
from tinyvit.training.tasks.segmentation import mean_iou, measure, overlaps

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)
split = load("segment-digits")
masks, K = split.test.labels, len(split.test.classes)


def show(rows, titles):
    """A row of pictures for each list of images or masks."""
    _, axes = plt.subplots(len(rows), len(rows[0]), figsize=(9, 1.25 * len(rows)), squeeze=False)
    for row, (title, pictures) in zip(axes, zip(titles, rows)):
        for ax, picture in zip(row, pictures):
            colour = picture.transpose(1, 2, 0) if picture.ndim == 3 else picture
            ax.imshow(colour, cmap="tab20", vmin=0, vmax=K)
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(title, fontsize=8)
    plt.show()


# %% [markdown]
# The data need no download: digits of scikit-learn, enlarged threefold, on crops of its two photographs. A pixel that a
# digit covers has its class, all others are background. Training and test have other digits, and other halves of the
# photographs.

# %%
show([split.test.images[:9], masks[:9]], ["image", "labels"])
print(f"{len(split.train):,} training and {len(masks):,} test images; background: {100 * (masks == 0).mean():.1f} % of "
      "the pixels")  # fmt: skip

# %% [markdown]
# ## The loss
#
# The model gives $K$ logits $l_{ij}$ at each pixel $i$, one for each class $j$, and the loss of a pixel is the
# cross-entropy of notebook 06. Some pixels have no label: an annotator wasn't sure, or a crop has moved them in from
# outside. They are ignored. With $n$ pixels that count, of all images of the batch together, and $t_{ij}$, which is 1
# at the label and 0 elsewhere:
#
# $$\mathcal L = -\frac1n \sum_{i \text{ counts}} \sum_j t_{ij} \log \mathrm{softmax}(l_i)_j
# \tag{pixel\_cross\_entropy}$$
#
# Each pixel is a sample of a classifier, so that its gradient is that of notebook 06, and an ignored one has none:
#
# $$dl_{ij} = \begin{cases} d\mathcal L\,(\mathrm{softmax}(l_i)_j - t_{ij}) / n & i \text{ counts} \\ 0 &
# \text{otherwise} \end{cases} \tag{pixel\_cross\_entropy\_backward}$$

# %%
print(inspect.getsource(F.pixel_cross_entropy))
print(inspect.getsource(F.pixel_cross_entropy_backward))
logits, labels = random.standard_normal((2, 3, 4, 5)), random.integers(0, 3, (2, 4, 5))
labels[0, 1:] = 255  # ignored
report = gradcheck.check(F.pixel_cross_entropy, F.pixel_cross_entropy_backward, (logits, labels))
print("against the complex step:", report.max_error)
assert report.max_error < 1e-10

# %% [markdown]
# By hand: one image of three pixels and two classes, labels 0, 1 and ignored, logits all 0. Each pixel that counts has
# the probabilities ½ and ½, so $\mathcal L = \log 2$, and $dl$ is $(½ - 1)/2$ at the label, $½/2$ beside it.

# %%
loss, cache = F.pixel_cross_entropy(np.zeros((1, 2, 1, 3)), np.array([[[0, 1, 255]]]))
print(loss, F.pixel_cross_entropy_backward(1.0, cache)[0, :, 0], sep="\n")
assert np.isclose(loss, np.log(2))
assert F.pixel_cross_entropy_backward(1.0, cache)[0, :, 0].tolist() == [[-0.25, 0.25, 0], [0.25, -0.25, 0]]

# %% [markdown]
# Where a batch is cut in two, for two threads or two machines, $n$ is easily got wrong: the mean of both losses is not
# the batch's loss if one half has more pixels that count. So the parts add up their counts first, and each divides by
# the mean count of the parts.

# %%
whole, _ = F.pixel_cross_entropy(logits, labels)
parts = [F.pixel_cross_entropy(logits[[i]], labels[[i]])[0] for i in (0, 1)]
counts = (labels != 255).sum() / 2
shared = [F.pixel_cross_entropy(logits[[i]], labels[[i]], count=counts)[0] for i in (0, 1)]
print(f"whole {whole:.6f}, mean of two means {np.mean(parts):.6f}, of two that share their count {np.mean(shared):.6f}")
assert np.isclose(np.mean(shared), whole) and not np.isclose(np.mean(parts), whole)

# %% [markdown]
# ## The metric, and three checks of it
#
# Whoever says "background" everywhere is right on 83 % of the pixels. So what is reported is the mean *intersection
# over union*: of all test pixels together, how many of a class are in both truth and prediction, over how many are
# in either; the mean over the classes. Before a model is measured with it, the metric itself is tried on three
# predictions whose score we can tell in advance: a constant, the labels of *other* images, and the truth.

# %%
print(inspect.getsource(overlaps))
print(inspect.getsource(mean_iou))


def score(said, truth=masks):
    """The mean IoU and the share of right pixels."""
    pairs = np.bincount((truth.astype(int) * K + said).ravel(), minlength=K * K)
    return mean_iou(pairs.reshape(K, K)), (said == truth).mean()


controls = {"background everywhere": 0 * masks, "labels of the next image": np.roll(masks, 1, 0), "the truth": masks}
for name, said in controls.items():
    print(f"{name:<26} mean IoU {score(said)[0]:.3f}, pixels right {100 * score(said)[1]:5.1f} %")
assert score(masks)[0] == 1 and score(0 * masks)[0] < 0.08 and score(0 * masks)[1] > 0.83

# %% [markdown]
# ## From patches to pixels: interpolation
#
# The simplest head gives $K$ logits a patch, and what is between the patches' centres is interpolated. The centre of
# the new pixel $j$ of $n$ lies at $(j + ½)\,m/n - ½$ among the $m$ old ones; it takes from its two neighbours as much
# as it is near to them, and beyond the outermost centre that one alone. These shares are a matrix $A$ for the rows,
# another one, $B$, for the columns:
#
# $$Y = A\,X\,B^\top \tag{resize\_bilinear}$$
#
# A number $X_{rc}$ stands in each $Y_{ij}$ with the factor $A_{ir} B_{jc}$, so that it gets
# $\sum_{ij} A_{ir}\,dY_{ij}\,B_{jc}$:
#
# $$dX = A^\top\,dY\,B \tag{resize\_bilinear\_backward}$$

# %%
for function in (cell_centres, hats, bilinear, F.resize_bilinear, F.resize_bilinear_backward):
    print(inspect.getsource(function))
print("from 2 to 6:", bilinear(2, 6).T, sep="\n")
x = random.standard_normal((2, 3, 4, 5))
report = gradcheck.check(F.resize_bilinear, F.resize_bilinear_backward, (x, (8, 7)))
assert report.max_error < 1e-10 and np.allclose(bilinear(4, 8).sum(1), 1)

# %% [markdown]
# ## How good can that be?
#
# A patch of 4×4 pixels has 16 labels. Take them from the truth and see what is left of them: if all 16 get the label
# that most of them have; if the shares of the classes in each patch are interpolated, which is what a linear head gives
# that predicts them perfectly; and if each pixel has logits of its own, as below.

# %%
one_hot = np.eye(K, dtype="float32")[masks].transpose(0, 3, 1, 2)


def shares(patch, some=one_hot):
    """The share of each class in each patch, (n, K, 32/P, 32/P)."""
    return some.reshape(len(some), K, 32 // patch, patch, 32 // patch, patch).mean((3, 5))


said, bounds = {}, {}
for patch in (8, 4, 2):
    said["majority", patch] = shares(patch).argmax(1).repeat(patch, 1).repeat(patch, 2)
    said["shares", patch] = F.resize_bilinear(shares(patch), 32)[0].argmax(1)
    bounds[patch] = [score(said[way, patch])[0] for way in ("majority", "shares")]
    print(f"patch {patch}: majority {bounds[patch][0]:.3f}, interpolated shares {bounds[patch][1]:.3f}")
assert 0.67 < bounds[4][1] < 0.68

# %% [markdown]
# With patches of 4 pixels a perfect prediction of the shares gives 0.68. Is that a bound of the linear head? No: its
# logits need not be shares. They can be anything, and large numbers on both sides of an edge push it to where it
# belongs. How far that goes can be found with nothing but the two operations above: gradient descent (Adam) on the
# logits themselves, for 48 test images whose labels are known.

# %%
truth, best = masks[:48], {}
for patch in (8, 4, 2):
    x = np.log(shares(patch, one_hot[:48]) + 1e-3)
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, 41):
        y, c_resize = F.resize_bilinear(x, 32)
        _, c_loss = F.pixel_cross_entropy(y, truth)
        dx = F.resize_bilinear_backward(F.pixel_cross_entropy_backward(float(truth.size), c_loss), c_resize)
        m, v = 0.9 * m + 0.1 * dx, 0.99 * v + 0.01 * dx * dx
        x = x - 0.3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    best[patch] = F.resize_bilinear(x, 32)[0].argmax(1)
    found = score(best[patch], truth)[0], score(said["shares", patch][:48], truth)[0]
    bounds[patch].append(found[0])
    print(f"patch {patch}: best logits found {found[0]:.3f}, shares on the same images {found[1]:.3f}")
assert bounds[4][2] > bounds[4][1] + 0.1 and bounds[2][2] > 0.99

rows = [truth[:9], said["majority", 4][:9], said["shares", 4][:9], best[4][:9]]
show(rows, ["truth", "majority", "shares", "best logits"])
figure, ax = plt.subplots(figsize=(5, 2.4))
for i, name in enumerate(("majority", "interpolated shares", "best logits found")):
    ax.bar(np.arange(3) + 0.25 * i, [bounds[patch][i] for patch in (8, 4, 2)], 0.22, label=name)
ax.axhline(1, color="C3", linestyle=":", label="a logit a pixel")
ax.set(xticks=np.arange(3) + 0.25, xticklabels=[f"patch {p}" for p in (8, 4, 2)], ylabel="mean IoU", ylim=(0, 1.6))
ax.legend(fontsize=7, ncols=2, loc="upper left")
plt.show()

# %% [markdown]
# So 0.68 is what a head reaches that says what is in a patch, and the gap above it is what edges within patches are
# worth. A model can learn some of that through an interpolation, but it is easier to have a logit for each pixel.
#
# ## A logit for each pixel: the transposed convolution
#
# A linear layer with $P^2 K$ outputs, cut into squares that are put next to one another. It is the patch embedding
# backwards, and known as a transposed convolution whose stride is its kernel's size. With the place $(i, j)$, the pixel
# $(u, v)$ of its square and the channels $c$:
#
# $$y_{b,\,o,\,Pi+u,\,Qj+v} = \beta_o + \sum_c x_{bcij}\,w_{couv} \tag{conv\_transpose2d}$$
#
# Each $y$ is of one place, so no gradients are added up but over what a number was used for: $x_{bcij}$ for all filters
# and pixels of its square, $w_{couv}$ at all places of all samples, $\beta_o$ everywhere:
#
# $$\begin{aligned}
# dx_{bcij} &= \textstyle\sum_{ouv} dy_{b,\,o,\,Pi+u,\,Qj+v}\,w_{couv} \\
# dw_{couv} &= \textstyle\sum_{bij} dy_{b,\,o,\,Pi+u,\,Qj+v}\,x_{bcij} \\
# d\beta_o &= \textstyle\sum dy_o
# \end{aligned} \tag{conv\_transpose2d\_backward}$$

# %%
print(inspect.getsource(F.conv_transpose2d))
print(inspect.getsource(F.conv_transpose2d_backward))
x, weight, bias = random.standard_normal((2, 3, 4, 5)), random.standard_normal((3, 6, 2, 2)), random.standard_normal(6)
report = gradcheck.check(F.conv_transpose2d, F.conv_transpose2d_backward, (x, weight, bias, 2))
assert report.max_error < 1e-10

# %% [markdown]
# ## A token for each class
#
# Segmenter's mask transformer (Strudel et al. 2021) puts $K$ learned class tokens behind the patches, lets all of
# them look at each other in two blocks (notebook 04), and takes for class $k$ the patches that are like its token:
# the cosines of projected patches $q$ and projected class tokens $k$, layer-normalised over the classes and
# interpolated. New in it is only the product of all patches of a sample (a row of $q$ each) with all class tokens:
#
# $$y = q\,k^\top \tag{dot\_products}$$
#
# $$\begin{aligned} dq &= dy\,k \\ dk &= dy^\top q \end{aligned} \tag{dot\_products\_backward}$$

# %%
print(inspect.getsource(F.dot_products))
print(inspect.getsource(F.dot_products_backward))
q, k = random.standard_normal((2, 4, 3)), random.standard_normal((2, 5, 3))
assert gradcheck.check(F.dot_products, F.dot_products_backward, (q, k)).max_error < 1e-10

# %% [markdown]
# ## The simple pyramid
#
# Convolutional networks have maps of several sizes: early ones large, with edges, late ones small, with what things
# are. Heads for detection and segmentation grew up on those. A plain ViT has one size in all its blocks. ViTDet (Li
# et al. 2022) makes the other sizes out of its last map $x$ alone: four times as large by two transposed convolutions
# with stride 2, twice by one, as it is, and half as large by the maximum of 2×2. Then each, $f_2 \dots f_5$, has a
# convolution of 1×1 and one of 3×3, with a layer norm each.
#
# That layer norm is over the channels, at each place. With the channels of a place as a row it is $f$, the layer norm
# of notebook 02. `MapNorm` below only exchanges axes before and after it: $T$ from $(B, C, H, W)$ to $(B, H, W, C)$.
# A prime marks an operation's backward:
#
# $$y = T^{-1} f(T x) \tag{OnMaps.forward}$$
#
# $$dx = T^{-1} f'(T\,dy) \tag{OnMaps.backward}$$
#
# Here a light head reads all four: $R$ interpolates each to the size of the largest, and they are added up. A GELU and
# a linear layer $W$ at each place follow, and $R_0$ interpolates to the image's size, which changes nothing where
# patches have 4 pixels:
#
# $$\begin{aligned}
# s &= \textstyle\sum_{m=2}^{5} R(f_m(x)) \\
# l &= W\,\mathrm{GELU}(s) + b \\
# y &= R_0(l)
# \end{aligned} \tag{SimplePyramid.forward}$$
#
# Backward, a sum passes its gradient to all its terms, and what was used four times gets four gradients:
#
# $$\begin{aligned}
# dl &= R_0'(dy) \\
# ds &= \mathrm{GELU}'(s) \odot W^\top dl \\
# dx &= \textstyle\sum_{m=2}^{5} f_m'(R'(ds))
# \end{aligned} \tag{SimplePyramid.backward}$$

# %%
for what in (OnMaps, MapNorm, SimplePyramid.forward, SimplePyramid.backward):
    print(inspect.getsource(what))
backbone = dict(patch_size=4, embed_dim=32, depth=2, num_heads=4, mlp_ratio=2.0, positions="sincos_2d")
config = SegmenterConfig("vit", backbone, img_size=32, num_classes=2, in_chans=3, decoder_dim=16, decoder_depth=1)
HEADS = "linear", "mask", "pixel", "pyramid"
for head in HEADS:
    model = build(replace(config, img_size=16, head=head), dtype="float64")
    report = gradcheck.check_model(model, random.standard_normal((1, 3, 16, 16)), directions=2)
    print(f"{head:<8} {model.num_parameters():>6,} parameters, against the complex step {report.max_error:.1e}")
    assert report.max_error < 1e-9

# %% [markdown]
# ### Swin has one already
#
# A Swin (notebook 13) halves its grid from stage to stage: its maps *are* a pyramid, of large ones first. ViTDet's
# point is that it can be made of a single map as well, after the training, if that map is good.

# %%
swin = build(SwinConfig(img_size=32, patch_size=2, embed_dim=16, depths=(1, 1, 1), num_heads=(1, 2, 4)))
pixels = split.test.normalise(split.test.images[:1])
stages = [swin.features(pixels, layer) for layer in range(1, swin.depth + 1)]
print("Swin's layers:   ", [maps.shape[1:] for maps in stages])
vit = build(replace(config, head="pyramid"))
maps = vit.forward_parts(pixels, vit.parts()[:-1])[0]
print("the ViT's maps:  ", maps.shape[1:])
print("ViTDet's pyramid:", [level(maps)[0].shape[1:] for level in vit.head.levels])

# %% [markdown]
# ## Four heads, side by side
#
# First for seconds: two classes, digit or not, 2,048 images, 96 steps, a ViT of two small blocks. Every head has the
# same backbone, the same steps and the same images. The training is all here: the loss of above is the objective. The
# fifth line is a check of another kind: the labels are those of other images, so that there is nothing to learn, and
# a metric that is happy with this model would be wrong.


# %%
def only_two(part, count):
    part = part.subset(np.arange(count))
    return replace(part, labels=(part.labels > 0).astype("uint8"), classes=("background", "digit"))


train, test = only_two(split.train, 2048), only_two(split.test, 360)
pixels = train.normalise(train.images)


def objective(model, images, labels, ctx):
    logits, cache = model(images, ctx)
    loss, c_loss = F.pixel_cross_entropy(logits, labels)
    return loss, lambda dloss=1.0: model.backward(F.pixel_cross_entropy_backward(dloss, c_loss), cache)


def learned(head, labels, steps=96, batch=32):
    model = build(replace(config, head=head))
    optimizer = optim.Muon(model, lr=0.02, adam_lr=0.01)
    for step in range(steps):
        optimizer.lr = 0.02 * (1 - step / steps)
        rows = slice(step * batch % len(labels), step * batch % len(labels) + batch)
        train_step(model, optimizer, pixels[rows], labels[rows], Context(True, Key(0)), objective=objective)
    return model


shown, scores = [test.images[:9], test.labels[:9]], {}
inputs = {head: (head, train.labels) for head in HEADS} | {"shuffled": ("pixel", np.roll(train.labels, 7, 0))}
for name, given in inputs.items():
    model = learned(*given)
    scores[name] = mean_iou(measure(model, test)[0])
    shown.append(model.predict(test.normalise(test.images[:9])).argmax(1))
    print(f"{name:<9} mean IoU of two classes {scores[name]:.3f}")
nothing = mean_iou(np.array([[(test.labels == 0).sum(), 0], [(test.labels == 1).sum(), 0]]))
print(f"nothing but background: {nothing:.3f}")
show(shown, ["image", "labels", *inputs])
assert scores["pixel"] > scores["shuffled"] + 0.1 and scores["shuffled"] < nothing + 0.1

# %% [markdown]
# From labels of other images a model learns where digits tend to be, in the middle, and little more.
#
# ## All classes, for longer
#
# Which digit it is takes longer to learn than where one is. [`dense.py`](results/dense.py) has trained a ViT of 64
# numbers a token and three blocks on all eleven classes, six epochs (1,074 steps) for each head, and a Swin of two
# stages with the pixel head. Beside them stands the best that a head can do with patches of 4, from above.

# %%
stored = json.loads(Path("results/dense.json").read_text())["runs"]


def found(name, head, masks):
    """The mean IoU of the stored trainings, by seed."""
    wanted = {"name": name, "head": head, "masks": masks}
    return [run["mean_iou"] for run in stored if wanted.items() <= run.items()]


limits = {"linear": bounds[4][2], "mask": bounds[4][2], "pixel": 1, "pyramid": 1}
print(f"{'backbone':<9}{'head':<9}{'mean IoU of each seed':<24}best possible")
for name, head in [*(("from scratch", head) for head in HEADS), ("Swin", "pixel")]:
    ious = found(name, head, 11_496)
    each = " ".join(f"{iou:.3f}" for iou in ious)
    print(f"{'Swin' if name == 'Swin' else 'ViT':<9}{head:<9}{each:<24}{limits[head]:.2f}")
    assert ious and max(ious) < limits[head]

# %% [markdown]
# No head is near its bound yet: what holds them back after so few steps is what the model knows, not how its answer is
# drawn. A logit for each pixel is easier to learn than an interpolation that has to come out right (0.71 against
# 0.58). The pyramid is best, as its convolutions of 3×3 look beyond a patch, and takes three times the pixel head's
# time. The mask transformer learns slowest, and with one of the seeds it never left the background: in its paper it
# stands on a backbone that was pre-trained on millions of images. The Swin, two stages of 32 and 64 numbers, is behind
# the ViT here.
#
# ## Few masks
#
# Images are cheap, but a person who draws masks needs minutes for each. MAE (notebook 15) learns from images alone:
# here from the training images without their masks, five epochs. Its encoder then begins the segmenter, as
# `tinyvit train segment-digits --init.run RUN` does, and learns from 100, 1,000 or 10,000 masks; beside it, the same
# model from scratch. All have about 1,080 steps, so that few masks are seen often.

# %%
counts = [100, 1000, 10_000]
figure, ax = plt.subplots(figsize=(5, 2.6))
for name in ("from scratch", "MAE"):
    rows = [(n, iou) for n in counts for iou in found(name, "pixel", n)]
    ax.semilogx([n for n, _ in rows], [iou for _, iou in rows], "o", label=name)
    means = [np.mean(found(name, "pixel", n)) for n in counts]
    print(f"{name:<13}", "   ".join(f"{n:,} masks {mean:.3f}" for n, mean in zip(counts, means)))
ax.axhline(score(0 * masks)[0], color="gray", linestyle=":", label="background everywhere")
ax.set(xlabel="masks", ylabel="mean IoU", xticks=counts, xticklabels=[f"{n:,}" for n in counts])
ax.legend()
plt.show()

# %% [markdown]
# With 1,000 masks MAE's start is worth 0.07, with 10,000 still 0.05. With 100, which are seen 1,000 times each, both
# learn them by heart, and neither knows digits. More masks do more than any start.

# %% [markdown]
# ## Exercises
#
# `print(exercises.describe("conv_transpose2d"))` says what comes in and what is to go out, and likewise for the others.
#
# **1.** Patches of 4×4 pixels, 11 classes: how many outputs a patch has the pixel head? Put your number in place of
# `None`.

# %%
my_outputs = None

of_a_patch = np.prod(build(replace(config, num_classes=11, head="pixel")).head.head.weight.shape[1:])
hint = "P²·K: a logit for each class at each of the patch's pixels."
exercises.check_number("my_outputs", my_outputs, of_a_patch, hint)

# %% [markdown]
# **2.** The loss, and its gradient.


# %%
def my_pixel_cross_entropy(logits, labels, ignore):
    # logits (B, K, H, W), labels (B, H, W). Returns loss
    return 0.0


exercises.check("pixel_cross_entropy", my_pixel_cross_entropy)


# %%
def my_pixel_cross_entropy_backward(dy, logits, labels, ignore):
    # dy a number. Returns dlogits
    return np.zeros_like(logits)


exercises.check("pixel_cross_entropy_backward", my_pixel_cross_entropy_backward)

# %% [markdown]
# **3.** Interpolate maps, and send the gradient back.


# %%
def my_resize_bilinear(x, size):
    # x (B, C, H, W), size (H', W'). Returns y
    return np.zeros((*x.shape[:2], *size))


exercises.check("resize_bilinear", my_resize_bilinear)


# %%
def my_resize_bilinear_backward(dy, x):
    # dy (B, C, H', W'), x (B, C, H, W). Returns dx
    return np.zeros_like(x)


exercises.check("resize_bilinear_backward", my_resize_bilinear_backward)

# %% [markdown]
# **4.** Make squares of pixels of places: the transposed convolution.


# %%
def my_conv_transpose2d(x, weight, bias):
    # x (B, C, H, W), weight (C, O, P, Q), bias (O,). Returns y
    return np.zeros_like(x)


exercises.check("conv_transpose2d", my_conv_transpose2d)


# %%
def my_conv_transpose2d_backward(dy, x, weight):
    # dy (B, O, P·H, Q·W). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros(weight.shape[1])


exercises.check("conv_transpose2d_backward", my_conv_transpose2d_backward)

# %% [markdown]
# **5.** The layer norm of feature maps, over the channels of each place.


# %%
def my_layernorm2d(x, weight, bias, eps):
    # x (B, C, H, W), weight and bias (C,). Returns y
    return np.zeros_like(x)


exercises.check("layernorm2d", my_layernorm2d)


# %%
def my_layernorm2d_backward(dy, x, weight, eps):
    # dy (B, C, H, W). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros_like(weight)


exercises.check("layernorm2d_backward", my_layernorm2d_backward)

# %% [markdown]
# Solutions: `print(exercises.solution("conv_transpose2d"))`, and likewise for the others.
