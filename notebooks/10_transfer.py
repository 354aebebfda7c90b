# %% [markdown]
# # 10 · Transfer: what one task has taught, the next begins with
#
# A thousand images are few. But someone who can tell cars from cats learns trucks from dogs sooner, and so does a
# model. This notebook takes a trained ViT to other classes and to larger images: what becomes of its
# positions when there are more patches, with the gradient; what becomes of its head; and, measured on CIFAR-10, how
# much better a model is that has seen five other classes before.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import contextlib
import inspect
import io
import json
import tempfile
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import load_file

from tinyvit import ViT, data, exercises, gradcheck, interop, optim, probe
from tinyvit import functional as F
from tinyvit.data import Augmentation
from tinyvit.data.cache import cache_folder, find_cached
from tinyvit.data.cifar import CIFAR10
from tinyvit.data.dataset import rows_of_each_class
from tinyvit.functional import interpolation
from tinyvit.functional.positions import sincos
from tinyvit.probe.pictures import show_grid_of_grids
from tinyvit.training import preset, train, train_step
from tinyvit.training.config import InitConfig
from tinyvit.training.feature_classifiers import linear_probe, nearest_neighbours
from tinyvit.training.features import features, features_by_layer
from tinyvit.training.finetune import finetune_config
from tinyvit.training.trained import load_data, load_trained

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})

# %% [markdown]
# ## More patches than positions
#
# Patches of the same size make a larger image into more tokens. The projection of a patch, the blocks and the head
# don't depend on their number; each is applied to every token alike, and attention is a sum over any number of tokens.
# The one part of a ViT that depends on it is the table of positions: one row per patch, $1 + N$ in all. Take the digit
# reader of notebook 08, which has learned 4×4 positions, and show it digits of 12×12 pixels. It now sees 6×6 patches,
# for which it has no positions.

# %%
trained = load_trained("checkpoint", device="cpu")
model, unseen = trained.model, load_data(trained).test
table = model.state_dict()["pos_embed"]                                             # (1, 1 + 16, 48)
larger = data.resize_dataset(unseen, (12, 12))                                             # bicubic, by Pillow

figure, axes = plt.subplots(1, 2, figsize=(5, 2.6))
for ax, dataset in zip(axes, (unseen, larger)):
    side = dataset.images.shape[-1]
    ax.imshow(dataset.images[3, 0], cmap="gray", extent=(0, side, side, 0))
    ax.set(xticks=range(0, side + 1, 2), yticks=range(0, side + 1, 2))
    ax.grid(color="tab:orange")
    ax.tick_params(labelbottom=False, labelleft=False, length=0)
    ax.set_title(f"{side}×{side} pixels: {side // 2}×{side // 2} patches of 2×2", fontsize=9)
plt.show()

assert table.shape == (1, 1 + 4 * 4, 48) and model.config.patch_size == 2

# %% [markdown]
# Positions are vectors at places of the image. On one axis let $n$ patches share the length 1: the centre of patch $i$
# lies at $(i + \frac12)/n$, and that of new patch $j$ at $(j + \frac12)/n'$. Measured in old patches, from the centre
# of the first, the new centre is at
#
# $$x_j = \Big(j + \frac12\Big)\frac n{n'} - \frac12 , \tag{cell\_centres}$$
#
# somewhere between two of the old ones. So mix the old vectors nearby, with weights that depend on how far away they
# are:
#
# $$p'_j = \sum_i k(x_j - i)\; p_i .$$
#
# ### Which weights?
#
# Linear ones, $k(t) = \max(0, 1 - |t|)$, give a path with a corner at each old position. A smoother one is made of
# cubics (Keys 1981): one for the two neighbours, $|t| \le 1$, another for the two beyond them, $1 \le |t| \le 2$, and
# nothing beyond. They have eight coefficients, which have to satisfy:
#
# - at an old place the old vector stays: $k(0) = 1$, and $k(1) = 0$ from both sides, $k(2) = 0$: four equations;
# - no corner anywhere: $k'(0) = 0$ (as $k$ is even), the slopes at 1 are the same from both sides, $k'(2) = 0$: three.
#
# One coefficient remains free. Take for it the slope at 1, $a = k'(1)$. The inner cubic $1 + bt^2 + ct^3$ has
# $k(0) = 1$ and $k'(0) = 0$ already; $1 + b + c = 0$ and $2b + 3c = a$ give $c = a + 2$ and $b = -(a + 3)$. The outer
# one has a double root at 2 and a root at 1, $e\,(t-2)^2(t-1)$, whose slope at 1 is $e$, so $e = a$:
#
# $$k(t) = \begin{cases}
# (a+2)\,|t|^3 - (a+3)\,|t|^2 + 1 & |t| \le 1 \\
# a\,|t|^3 - 5a\,|t|^2 + 8a\,|t| - 4a & 1 \le |t| \le 2 \\
# 0 & 2 \le |t|
# \end{cases} \tag{bicubic}$$
#
# The weights of a place add up to 1, whatever $a$ is. With $x = i + t$, $0 \le t < 1$, four old ones have a part in
# it, at the distances $1+t$, $t$, $1-t$, $2-t$. The terms with $a$ are, for the first two,
# $a(t-1)^2t + a(t^3 - t^2) = a\,(2t^3 - 3t^2 + t)$, and for the others the same with $1-t$ in place of $t$, which is
# its negative, as $2t^3 - 3t^2 + t = t(1-t)(1-2t)$. Without $a$, $2t^3 - 3t^2 + 1$ and the same of $1-t$, which is
# $3t^2 - 2t^3$, add up to 1.
#
# Keys takes $a = -\frac12$, which repeats parabolas exactly. The second derivative at 1 is $4a + 6$ from within and
# $-4a$ from without: with $a = -\frac34$ the curve bends without a jump there, too. That is what PyTorch and OpenCV
# take, and so does this package, so that the same weights give the same positions.


# %%
def kernel(t, a=-0.75):
    """Keys' cubic kernel at distances t."""
    t = np.abs(t)
    inner, outer = (a + 2) * t**3 - (a + 3) * t**2 + 1, a * (t - 2) ** 2 * (t - 1)
    return np.where(t <= 1, inner, np.where(t <= 2, outer, 0))


t = np.linspace(-2.5, 2.5, 501)
values = np.array([0.2, 0.9, 0.5, -0.4, -0.3, 0.6])
places = np.linspace(0, 5, 501)
reach = np.clip(np.arange(-2, 8), 0, 5)                                             # beyond the edge, the outermost
figure, axes = plt.subplots(1, 2, figsize=(8, 2.6))
for label, k in {"linear": lambda t: np.maximum(0, 1 - np.abs(t)), "cubic": kernel}.items():
    axes[0].plot(t, k(t), label=label)
    axes[1].plot(places, k(places[:, None] - np.arange(-2, 8)) @ values[reach], label=label)
axes[1].plot(range(6), values, "ko", markersize=4, label="old positions, one of D")
axes[0].axhline(0, color="k", linewidth=0.5)
axes[0].set(xlabel="distance in old patches", ylabel="weight k")
axes[1].set(xlabel="place, in old patches")
axes[1].legend(fontsize=7)
plt.show()

for a in (-0.5, -0.75, 0.3):
    around = kernel(np.linspace(0, 1, 11)[:, None] - np.arange(-1, 3), a)           # (11, 4)
    assert np.allclose(around.sum(1), 1), "the weights add up to 1, whatever a is"
    assert np.allclose(kernel(np.arange(-3, 4), a), [0, 0, 0, 1, 0, 0, 0]), "old places keep their vectors"
x = np.linspace(0, 1, 11)
parabola = kernel(x[:, None] - np.arange(-1, 3), -0.5) @ np.arange(-1, 3) ** 2
assert np.allclose(parabola, x**2) and not np.allclose(around @ np.arange(-1, 3) ** 2, x**2)
bend = [np.diff(kernel(1 + s * np.linspace(0, 2e-3, 3)), 2)[0] / 1e-6 for s in (-1, 1)]
assert np.allclose(bend, 3, atol=0.02), "with a = -3/4, the second derivative is 3 from either side of 1"

# %% [markdown]
# ### A matrix for each axis
#
# Near the edge a place has neighbours that don't exist. There the outermost patch takes their place, and the weights
# are added up. So the new positions of an axis are a fixed matrix times the old ones, $W$ of $n' \times n$ with rows
# that add up to 1. In two dimensions a weight is the product of that downwards and that across,
#
# $$p'_{rc} = \sum_{i,j} W^\downarrow_{ri}\, W^\rightarrow_{cj}\; p_{ij} \tag{resize\_positions}$$
#
# and the sums are done one after the other, two products with small matrices for all $D$ numbers at once. The class
# token's row stays as it is: the token has no place in the image, and mixing its row with its neighbours in the *table*
# would make no sense. $p'_{cls} = p_{cls}$.
#
# ### Its gradient
#
# If images of another size are trained on, the resizing is a part of the forward, and the old positions $p$ are what
# is learned. With $dp'_{rc}$ for the gradient of the loss with respect to $p'_{rc}$, the chain rule sums
# over all new positions that an old one has gone into:
#
# $$\begin{aligned}
# dp_{ij} &= \sum_{r,c} \frac{\partial p'_{rc}}{\partial p_{ij}}\, dp'_{rc} \\
# &= \sum_{r,c} W^\downarrow_{ri}\, W^\rightarrow_{cj}\; dp'_{rc}
# \end{aligned}$$
#
# $$dp_{cls} = dp'_{cls} \tag{resize\_positions\_backward}$$
#
# The same sums, with the matrices the other way round: across by $W^{\rightarrow\top}$, down by
# $W^{\downarrow\top}$. As the weights of each new position add up to 1, $\sum_{ij} dp_{ij} = \sum_{rc} dp'_{rc}$:
# what arrives at the new positions is shared out among the old ones, and nothing is lost.

# %%
print(inspect.getsource(interpolation.cell_centres))
print(inspect.getsource(interpolation.bicubic))
print(inspect.getsource(F.resize_positions))
print(inspect.getsource(F.resize_positions_backward))

# %% [markdown]
# ### By hand
#
# A row of four patches becomes one of two. The new centres are at $x_0 = \frac12\cdot 2 - \frac12 = \frac12$ and
# $x_1 = \frac52$, half-way between two old ones, at the distances $\frac32, \frac12, \frac12, \frac32$ from four. With
# $a = -\frac34$, $k(\frac12) = \frac{5/4}{8} - \frac{9/4}{4} + 1 = \frac{19}{32}$ and $k(\frac32) =
# -\frac34\cdot\frac14\cdot\frac12 = -\frac{3}{32}$. There is no patch to the left of patch 0, so patch 0 gets that
# weight as well: $\frac{19}{32} - \frac3{32} = \frac{16}{32}$. So $W = \frac1{32}\begin{pmatrix} 16 & 19 & -3 & 0 \\ 0
# & -3 & 19 & 16 \end{pmatrix}$.
#
# Positions of one number, $(0, 0, 32, 0)$, become $(-3, 19)$: a cubic overshoots. And the gradient $(32, 64)$ goes
# back as $W^\top(32, 64) = (16,\ 19 - 6,\ -3 + 38,\ 32) = (16, 13, 35, 32)$, which adds up to 96 as well.

# %%
W = interpolation.bicubic(4, 2)
token, dtoken = 7.0, 5.0                                                            # the class token's
p, dy = np.array([token, 0, 0, 32, 0]), np.array([dtoken, 32, 64])
resized, cache = F.resize_positions(p.reshape(1, 5, 1), (1, 4), (1, 2), method="bicubic")
dp = F.resize_positions_backward(dy.reshape(1, 3, 1), cache)
print("32 W     ", *(32 * W), sep="\n  ")
print("positions", resized.ravel())
print("gradient ", dp.ravel())

assert np.allclose(32 * W, [[16, 19, -3, 0], [0, -3, 19, 16]])
assert np.allclose(resized.ravel(), [token, -3, 19])
assert np.allclose(dp.ravel(), [dtoken, 16, 13, 35, 32]) and np.isclose(dp.sum(), dy.sum())

# %% [markdown]
# ### Is the gradient right?
#
# For every method, to larger grids, smaller ones, and ones of other proportions. (That the results are PyTorch's, to
# the last digits, is held by the tests in `tests/parity`.)

# %%
random = np.random.default_rng(0)
for method in interpolation.INTERPOLATIONS:
    for new_grid in ((12, 12), (2, 3), (1, 7)):
        forward = partial(F.resize_positions, grid=(4, 3), new_grid=new_grid, method=method)
        report = gradcheck.check(forward, F.resize_positions_backward, (random.standard_normal((1, 13, 5)),))
        assert report.max_error < 1e-14, (method, new_grid)
print("largest error below 1e-14, for", ", ".join(interpolation.INTERPOLATIONS))

# %% [markdown]
# ## What it does to positions
#
# Notebook 08 compared the positions of every two patches by the cosine of their angle. These are the sines and cosines
# of an 8×8 grid, which is that of CIFAR-10's images in patches of 4×4, and the same stretched to 12×12. Each tile shows
# how similar one position is to all others, for 16 positions at about the same places. Neighbourhoods stay
# neighbourhoods, half as wide again.


# %%
def stretched(before):
    """Positions (1, 65, D) of 8×8 patches for 12×12, drawn side by side: (1, 145, D), and how alike each are."""
    after, _ = F.resize_positions(before, (8, 8), (12, 12), method="bicubic")
    similar = [probe.position_similarity(p[0, 1:], (side, side)) for p, side in ((before, 8), (after, 12))]
    _, axes = plt.subplots(1, 2, figsize=(6.4, 3.4))
    for ax, s, every in zip(axes, similar, (2, 3)):
        show_grid_of_grids(ax, s[every - 1 :: every, every - 1 :: every], cmap="viridis", vmax=1)
        ax.set_title(f"16 of {len(s)}×{len(s)} positions", fontsize=9)
        ax.set_axis_off()
    plt.show()
    return after, similar


before = F.sincos_2d((8, 8), 128)
after, similar = stretched(before)

assert np.allclose(F.resize_positions(before, (8, 8), (8, 8), method="bicubic")[0], before), "nothing to do"
within = [(s[side // 2, side // 2] > 0.9).sum() for s, side in zip(similar, (8, 12))]
print("positions that are very similar (above 0.9) to the one in the middle:", *within)
assert abs(within[1] / within[0] / (12 / 8) ** 2 - 1) < 0.25, "as many more as there are more patches"

# %% [markdown]
# Sines and cosines could be computed for 12×12 patches anew, as those of the numbers 0 to 11. But then number 7, which
# the blocks know as the edge of an image, stands near its middle. Computed at the places $x_j$ between the old numbers
# instead, they are what the interpolation gives, but for its error at the shortest waves:

# %%
there = (np.arange(12) + 0.5) * 8 / 12 - 0.5
rows, columns = np.repeat(there, 12), np.tile(there, 12)
exact = np.concatenate([sincos(columns, 64), sincos(rows, 64)], axis=1)             # (144, 128)
inside = np.array([1 <= r <= 6 and 1 <= c <= 6 for r, c in zip(rows, columns)])     # four old neighbours each
tables = {"interpolated": after[0, 1:], "computed anew": F.sincos_2d((12, 12), 128)[0, 1:]}
errors = {name: np.abs(found - exact)[inside].max() for name, found in tables.items()}
for name, error in errors.items():
    print(f"{name}: at most {error:.2f} from the sines and cosines at those places")
assert errors["interpolated"] < 0.1 and errors["computed anew"] > 1

# %% [markdown]
# ### Does the model read larger digits?
#
# Nothing is trained here. The reader of 8×8 digits gets digits of 12×12 and its positions in three ways: resized on
# the grid; resized as if the sixteen patches stood in one row, which mixes the end of one line with the beginning of
# the next; and none at all.


# %%
def accuracy_with(positions, dataset):
    """The share of right answers of the digit reader with other positions, on images of another size."""
    reader = ViT(replace(model.config, img_size=dataset.images.shape[-1]))
    reader.load_state_dict(model.state_dict() | {"pos_embed": positions})
    return (reader.predict(dataset.normalise(dataset.images)).argmax(1) == dataset.labels).mean()


ways = {
    "on the grid": F.resize_positions(table, (4, 4), (6, 6), method="bicubic")[0],
    "as one row": F.resize_positions(table, (1, 16), (1, 36), method="bicubic")[0],
    "none": np.concatenate([table[:, :1], np.zeros((1, 36, 48), "float32")], axis=1),
}
accuracies = {way: accuracy_with(positions, larger) for way, positions in ways.items()}
at_home = accuracy_with(table, unseen)
print(f"8×8, as it was trained: {at_home:.1%}")
for way, accuracy in accuracies.items():
    print(f"12×12, positions {way}: {accuracy:.1%}")

assert accuracies["on the grid"] > at_home - 0.03, "larger digits are read as well, without a step of training"
assert accuracies["as one row"] < at_home - 0.1 and accuracies["none"] < 0.5

# %% [markdown]
# ## Other classes: a new head
#
# The head of the old classes is of no use; a linear layer $l = h\,W^\top + b$ for the new ones takes its place, and
# $W = 0$, $b = 0$ (Dosovitskiy et al. 2021, section 3.2). Why zero? Its gradients are those of every linear layer
# (notebook 01). With $dl = (p - t)/B$ from the cross-entropy (notebook 06),
#
# $$\begin{aligned}
# dh &= dl\,W = 0, \\
# dW &= dl^\top h, \\
# db &= \sum_i dl_i .
# \end{aligned} \tag{linear\_backward}$$
#
# In the first step the head learns and *nothing else moves*: all that lies in front of it gets its gradient through
# $dh$. From the second step on $W$ is no longer zero, but it is small, and it already tells the features of one class
# from those of another. A head of random numbers would send random gradients through the trunk first, and with a large
# learning rate destroy what was learned before, while the head itself is still random.

# %%
print(inspect.getsource(F.linear_backward))

# %%
fresh = ViT(replace(model.config, num_classes=5), seed=0)
fresh.load_state_dict(model.state_dict() | {"head.weight": np.zeros((5, 48), "f4"), "head.bias": np.zeros(5, "f4")})
images, labels = unseen.normalise(unseen.images[:64]), unseen.labels[:64] % 5


def gradient_norms(model):
    """Of one step's gradients: that of the head's weight, and that of everything in front of the head."""
    logits, cache = model(images)
    _, loss_cache = F.cross_entropy(logits, labels)
    model.zero_grad()
    model.backward(F.cross_entropy_backward(1.0, loss_cache), cache)
    trunk = [p.grad for name, p in model.named_parameters() if not name.startswith("head.")]
    return np.linalg.norm(model.head.weight.grad), np.sqrt(sum((g**2).sum() for g in trunk))


first = gradient_norms(fresh)
fresh.head.weight.data = fresh.head.weight.data - 0.1 * fresh.head.weight.grad      # one step of gradient descent
second = gradient_norms(fresh)
fresh.head.weight.data = np.random.default_rng(1).standard_normal((5, 48)).astype("f4")
wild = gradient_norms(fresh)
for name, (head, trunk) in {"zero": first, "after one step": second, "N(0, 1)": wild}.items():
    print(f"head {name:<14} gradient of the head {head:5.2f}, of the trunk {trunk:5.2f}")
assert first[1] == 0 < first[0] and 0 < second[1] < wild[1] / 10

# %% [markdown]
# ## Is it worth training at all? Features
#
# The head reads $h$, $D$ numbers per image: the features that the trunk computes. If the trunk is left as it is, the
# images are passed through it once, and what remains is an old problem: points in $D$ dimensions with labels. Two ways
# ask how far the classes lie apart there. A **linear probe** is logistic regression on $h$ (scikit-learn's: the head
# alone is trained, to its optimum). **k nearest neighbours** train nothing: the $k$ training images with the largest
# cosine similarity vote, with the weight $e^{s/\tau}$. Here, of the digit reader's residual stream at every depth,
# averaged over the patches. Depth 0 is what enters the first block: its mean is that of the patches' four pixels,
# through one matrix, and says no more about a digit than how much ink there is on either side of a patch.

# %%
split = load_data(trained)
layers = range(len(model.blocks) + 1)
known, asked = (features_by_layer(model, dataset, layers, pool="mean") for dataset in split)
by_layer = {"linear probe": [], "nearest neighbours": []}
for layer in layers:
    pair = (known[layer], split.train.labels), (asked[layer], split.test.labels)
    by_layer["linear probe"].append(linear_probe(*pair, C=0.1).accuracy)
    by_layer["nearest neighbours"].append(nearest_neighbours(*pair).accuracy)

figure, axes = plt.subplots(figsize=(5, 2.4))
for name, found in by_layer.items():
    axes.plot(layers, found, "o-", label=name)
axes.axhline(at_home, color="k", linewidth=0.5)
axes.set(xlabel="blocks passed", ylabel="accuracy", xticks=layers, title="line: the model's head, on the class token")
axes.title.set_size(9)
axes.legend(fontsize=8)
plt.show()

for name, found in by_layer.items():
    print(f"{name:<20}", *(f"{accuracy:.1%}" for accuracy in found))
assert all(found[0] < found[-1] for found in by_layer.values()), "deeper, the classes lie further apart"

# %% [markdown]
# `tinyvit features RUN IMAGES… --out f.npy` writes such features of files, `tinyvit probe-linear RUN` and
# `tinyvit knn RUN` measure them.
#
# ## Weights from elsewhere
#
# The weights may come from elsewhere. `tinyvit import SOURCE --out RUN` makes one of timm's files, of a Hugging Face
# folder, or of the `.npz` files of the original release, and `tinyvit export RUN --format huggingface --out PATH`
# hands one back. What differs is names and the order of numbers, never a value: Hugging Face keeps queries, keys and
# values apart, where timm (and this package) has them in one matrix, and the original's matrices are (in, out). So
# there and back is the same to the last bit.

# %%
weights = interop.Weights(model.config, model.state_dict(), trained.preprocessing)
with tempfile.TemporaryDirectory() as folder:
    there = Path(folder, "digits-vit")
    interop.save(weights, there, "huggingface")
    print(", ".join(sorted(path.name for path in there.iterdir())))
    tensors = load_file(there / "model.safetensors")
    again = interop.load(there)
    equal = {name: np.array_equal(again.state[name], array) for name, array in weights.state.items()}

for name in sorted(name for name in tensors if "layer.0.attention" in name and name.endswith("weight")):
    print(f"  {name:<58} {tensors[name].shape}")
parts = [tensors[f"vit.encoder.layer.0.attention.attention.{part}.weight"] for part in ("query", "key", "value")]
assert np.array_equal(np.concatenate(parts), weights.state["blocks.0.attn.qkv.weight"])
assert again.state.keys() == weights.state.keys() and all(equal.values())
print(f"{len(equal)} arrays are bit for bit the same after the way there and back")

# %% [markdown]
# ## Does it help? Five classes of CIFAR-10, then the five others
#
# CIFAR-10's classes are cut in two in the order in which they come, so the choice can't favour the result: airplane,
# automobile, bird, cat, deer; and dog, frog, horse, ship, truck. Either half has two vehicles and three animals, so
# that what the first has to be told apart by is of use for the second, and no class is in both.
#
# A model of 310,853 parameters is trained on the 25,000 images of the first half, for eight epochs. Then there are
# 1,000 images of the second, 200 per class, and its 5,000 test images, each of them at 32×32 pixels and enlarged to
# 48×48. Three ways:
#
# - **from scratch**: a model that has seen nothing else is trained on the 1,000;
# - **probed**: the pre-trained one stays as it is, and a linear classifier is learned on its features of the 1,000;
# - **fine-tuned**: all of it is trained further, with a head that starts at zero.
#
# All trainings are by the preset `cifar10-cpu` (notebook 07): Muon, small images first where nothing is known yet,
# images mirrored and shifted; but with smaller rates that fall by a cosine, no whitening filters and no mixed images.
# Epochs and rates of the two trainings on 1,000 were chosen on 2,500 *training* images of the second half that are not
# among them; `results/README.md` has the table. From scratch gets two and a half times the epochs and, as the preset
# has it, sines and cosines as positions, with which short trainings do better. The paper fine-tunes by SGD with
# momentum, and so does `tinyvit finetune` unless it is told otherwise; in the few hundred steps that there are here,
# Muon gets further. Each is run with three seeds, and each seed draws its own 1,000 images.
#
# This takes CIFAR-10 (`tinyvit data cifar10` gets it, and `TINYVIT_DATA` says where it is) and some minutes. Where it
# isn't found, what is drawn below was measured before.

# %%
FIRST, SECOND = CIFAR10.classes[:5], CIFAR10.classes[5:]
SIDES, SEEDS, A_CLASS = (32, 48), range(3), (5, 10, 20, 50, 100, 200)
MEASURED = Path("results/transfer.json")

recipe = preset("cifar10-cpu")
slower = replace(recipe.optim, lr=0.008, adam_lr=2e-3, schedule="cosine", small_until=(0.4, 0.7))
recipe = replace(recipe, init=InitConfig(), optim=slower, augment=Augmentation(crop=4, flip=True))
shape = replace(recipe.model, embed_dim=96, depth=4, num_heads=3)
pretraining = replace(
    recipe, classes=FIRST, epochs=8, evaluate_every=8, model=replace(shape, positions="learned")
)  # fmt: skip


def from_scratch(side, seed):
    """The configuration of a training on the 1,000 images alone, small ones first."""
    return replace(
        recipe, classes=SECOND, images=1000, resize_images=True, seed=seed, epochs=40, evaluate_every=40, batch_size=64,
        model=replace(shape, img_size=side), augment=augmented(side),
        optim=replace(recipe.optim, small_sizes=(side // 2, 3 * side // 4)),
    )  # fmt: skip


def fine_tuned(side, seed, run):
    """The configuration of a training that goes on from a run; learned positions are resized (bicubic)."""
    return finetune_config(
        run, "cifar10", classes=SECOND, images=1000, img_size=side, seed=seed, epochs=16, evaluate_every=16,
        augment=augmented(side),
        optim=replace(recipe.optim, lr=0.005, small_sizes=(), small_until=()),
    )  # fmt: skip


def augmented(side):
    """Mirrored, and shifted by an eighth of the side at most."""
    return Augmentation(crop=side // 8, flip=True)


assert set(FIRST) | set(SECOND) == set(CIFAR10.classes) and not set(FIRST) & set(SECOND)
print(", ".join(FIRST), "|", ", ".join(SECOND))


# %%
def accuracy_of(config, run):
    """The test accuracy after a training, whose run folder is kept."""
    with contextlib.redirect_stdout(io.StringIO()):
        return train(config, run)["test_accuracy"]


def probed(run, side):
    """The test accuracies of linear probes, {images a class: [of each seed]}, on the features of a run's model."""
    source = load_trained(run, device="cpu")
    trunk = source.model.at_img_size(side)
    split, accuracies = data.load("cifar10"), {}
    for seed in SEEDS:
        new = data.choose(split, SECOND, 1000, seed)
        seen = features(trunk, data.resize_dataset(new.train, (side, side)))
        if seed == 0:
            unseen = features(trunk, data.resize_dataset(new.test, (side, side)))
        for n in A_CLASS:
            rows = rows_of_each_class(new.train, 5 * n, seed)
            probe_of = linear_probe((seen[rows], new.train.labels[rows]), (unseen, new.test.labels))
            accuracies.setdefault(n, []).append(probe_of.accuracy)
    return accuracies


def measured(folder):
    """All that is drawn below, as a dict; the runs are kept in a folder."""
    start, used = time.perf_counter(), time.process_time()
    run = Path(folder, "first-half")
    on_first = accuracy_of(pretraining, run)
    rows, by_images = [], {}
    for side in SIDES:
        tries = {
            "from scratch": [accuracy_of(from_scratch(side, s), f"{folder}/scratch-{side}-{s}") for s in SEEDS],
            "fine-tuned": [accuracy_of(fine_tuned(side, s, run), f"{folder}/tuned-{side}-{s}") for s in SEEDS],
        }
        by_images[side] = probed(run, side)
        tries["probed"] = by_images[side][A_CLASS[-1]]
        rows += [{"way": way, "side": side, "accuracies": accuracies} for way, accuracies in tries.items()]
    return {
        "command": "TINYVIT_DATA=FOLDER python notebooks/make.py 10",
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "minutes of a processor": round((time.process_time() - used) / 60, 1),
        "pre-training": on_first,
        "rows": rows,
        "probed by images a class": [[n, accuracies] for n, accuracies in by_images[32].items()],
    }


warnings.filterwarnings("ignore", "IProgress not found")         # of a library for downloads: no bar is drawn here
found = find_cached(CIFAR10, cache_folder())
with tempfile.TemporaryDirectory() as folder:
    if found is not None:
        results = measured(folder)
        MEASURED.write_text(json.dumps(results, indent=2) + "\n")
        positions = load_trained(Path(folder, "first-half"), device="cpu").model.state_dict()["pos_embed"]
    else:
        print(f"CIFAR-10 was not found (`tinyvit data cifar10` gets it): what follows is from {MEASURED}")
        results = json.loads(MEASURED.read_text())

# %% [markdown]
# The positions that the model has learned on the first half, drawn where they were measured, and stretched for the
# larger images:

# %%
if found is not None:
    stretched(positions)

# %%
accuracies = {(row["way"], row["side"]): np.array(row["accuracies"]) for row in results["rows"]}
ways = ("from scratch", "probed", "fine-tuned")
print(f"the first half: {results['pre-training']:.1%} of its test images after pre-training")
print(f"{'the second half, 1,000 images':<32}" + "".join(f"{side}×{side:<14}" for side in SIDES))
for way in ways:
    row = (accuracies[way, side] for side in SIDES)
    print(f"{way:<32}" + "".join(f"{100 * a.mean():.1f} % ± {100 * a.std(ddof=1):.1f}     " for a in row))

figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
for i, way in enumerate(ways):
    for j, side in enumerate(SIDES):
        place, tries = j + 0.27 * (i - 1), accuracies[way, side]
        axes[0].bar(place, tries.mean(), 0.25, color=f"C{i}", label=way if j == 0 else None)
        axes[0].plot(np.full(len(tries), place), tries, "k.", markersize=4)
axes[0].axhline(1 / 5, color="k", linewidth=0.5)
axes[0].set(xticks=range(len(SIDES)), xticklabels=[f"{side}×{side}" for side in SIDES], ylim=(0, 1))
axes[0].set(ylabel="test accuracy", title="1,000 images; dots are seeds, the line is chance")
axes[0].legend(fontsize=8, loc="upper left", ncols=3)
counts = [n for n, _ in results["probed by images a class"]]
axes[1].semilogx(counts, [np.mean(a) for _, a in results["probed by images a class"]], "o-", color="C1", label="probed")
for i, way in ((0, "from scratch"), (2, "fine-tuned")):
    axes[1].axhline(accuracies[way, 32].mean(), color=f"C{i}", label=f"{way}, with 200 a class")
axes[1].set(xlabel="images a class", xticks=counts, xticklabels=counts, title="fewer images, 32×32")
axes[1].minorticks_off()
axes[1].legend(fontsize=8)
for ax in axes:
    ax.title.set_size(9)
plt.show()

for side in SIDES:
    scratch, tuned, linear = (accuracies[way, side] for way in ("from scratch", "fine-tuned", "probed"))
    gain = tuned - scratch                                                          # seed by seed, on the same images
    noise = gain.std(ddof=1) / len(gain) ** 0.5
    print(f"{side}×{side}: fine-tuning gains {100 * gain.mean():.1f} ± {100 * noise:.1f} points over a new model")
    assert gain.mean() > max(0.04, 4 * noise) and tuned.min() > scratch.max()
    assert tuned.mean() > linear.mean()

# %% [markdown]
# ## Exercises
#
# **1.** Write the bicubic matrix of one axis: `W` of (new, old), with $a = -\frac34$. `exercises.check` says whether it
# is right, and if not, where, and which mistake it looks like.


# %%
def my_bicubic(old, new):
    return np.zeros((new, old))  # in place of this, W


exercises.check("bicubic", my_bicubic)

# %% [markdown]
# **2.** Write the backward of an interpolation in two dimensions, for any two matrices.


# %%
def my_resize_backward(dy, down, across):
    # dy: (rows', columns', D). down: (rows', rows). across: (columns', columns)
    return np.zeros((down.shape[1], across.shape[1], dy.shape[-1]))  # in place of this, dx (rows, columns, D)


exercises.check("resize_backward", my_resize_backward)

# %% [markdown]
# **3.** The paper's pre-training head has a hidden layer, $l = \tanh(h\,V^\top + b')\,W^\top + b$. Suppose that a new
# one begins with *all* of $V, b', W, b$ zero. Which step of gradient descent, counted from 1, is the first that moves
# each of $b$, $W$, $V$, and what lies in front of the head? Put numbers in place of `None`, and 0 for what is never
# moved.

# %%
step_of_b, step_of_W, step_of_V, step_in_front = None, None, None, None

# %%
config = replace(trained.config.model, num_classes=5, head_hidden=16, drop_rate=0.0, drop_path_rate=0.0)
zero_headed = ViT(config, seed=0)
named = dict(zero_headed.named_parameters())
for name in ("pre_logits.fc.weight", "pre_logits.fc.bias", "head.weight", "head.bias"):
    named[name].data = np.zeros_like(named[name].data)
names = ("head.bias", "head.weight", "pre_logits.fc.weight", "blocks.2.mlp.fc2.weight")
moved, optimizer = dict.fromkeys(names, 0), optim.SGD(zero_headed, 0.1)
for step in range(1, 6):
    train_step(zero_headed, optimizer, images, labels)
    for name in names:
        if moved[name] == 0 and np.any(named[name].grad):
            moved[name] = step
hint = "What is tanh(0), which W is multiplied with, and what is the gradient that passes through W = 0?"
exercises.check_number("step_of_b", step_of_b, moved["head.bias"], hint)
exercises.check_number("step_of_W", step_of_W, moved["head.weight"], hint)
exercises.check_number("step_of_V", step_of_V, moved["pre_logits.fc.weight"], hint)
exercises.check_number("step_in_front", step_in_front, moved["blocks.2.mlp.fc2.weight"], hint)

# %% [markdown]
# **4.** Fine-tuning may leave a large weight $W$ as it is, and learn a small change of it: $y = x\,W^\top +
# \frac\alpha r\, (x A^\top) B^\top$, with $A$ of $r$ rows (a *low-rank adapter*, LoRA, Hu et al. 2022). For $W$ of
# 768×768 and $r = 8$ that are 2 % of the numbers. Write it, and the gradients that its training needs.


# %%
def my_lora(x, weight, down, up, alpha):
    # x: (B, N, D). weight: (K, D). down: (r, D). up: (K, r)
    return np.zeros((*x.shape[:2], len(weight)))  # in place of this, y (B, N, K)


exercises.check("lora", my_lora)


# %%
def my_lora_backward(dy, x, weight, down, up, alpha):
    # dy: (B, N, K). Returns dx, ddown, dup
    return np.zeros_like(x), np.zeros_like(down), np.zeros_like(up)


exercises.check("lora_backward", my_lora_backward)
