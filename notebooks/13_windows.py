# %% [markdown]
# # 13 · Windows: attention in pieces that shift
#
# Attention compares every token with every other, so twice as many pixels to a side cost sixteen times as much. Swin
# (Liu et al. 2021) lets tokens see each other in small windows only, and shifts the windows from block to block, so
# that tokens of different windows meet in the next block.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.models import SwinConfig, build
from tinyvit.models.summary import summarize
from tinyvit.models.swin import SwinBlock, WindowAttention
from tinyvit.training import train
from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.trained import load_data, load_trained

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=3, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## Windows on a photograph
#
# A photograph of 256×256 pixels, patches of 16×16: a grid of 16×16 tokens. In the middle are the windows of one block,
# 4×4 tokens each. On the right are those of the next, shifted by half a window down and to the right: the middle of a
# window is now where four windows met.

# %%
photo = load_sample_image("china.jpg")[80:336, 180:436] / 255
PATCH, GRID, WINDOW, SHIFT = 16, 16, 4, 2
figure, axes = plt.subplots(1, 3, figsize=(9, 3.1))
for ax, (title, step, start) in zip(axes, (("patches", PATCH, 0), ("windows", WINDOW * PATCH, 0),
                                           ("shifted windows", WINDOW * PATCH, SHIFT * PATCH))):  # fmt: skip
    ax.imshow(photo)
    for place in range(start, 257, step):
        ax.axhline(place - 0.5, color="w", linewidth=1.2)
        ax.axvline(place - 0.5, color="w", linewidth=1.2)
    ax.set_title(title, fontsize=9)
    ax.set_axis_off()
plt.show()

# %% [markdown]
# ## Cutting and putting back
#
# Tokens in a grid are $x_{brc}$, of sample $b$ in row $r$ and column $c$. A window $(i, j)$ of $p\times p$ tokens holds
# those of rows $ip$ to $ip + p - 1$, and its columns alike. To shift the windows is to shift the grid the other way:
# rows that leave it at the top come back at the bottom. A grid that $p$ doesn't divide gets zeros below and to the
# right first. Let $H$ and $W$ be its sides then, and $s$ the shift:
#
# $$\begin{aligned}
# y_{bij,\,uv} &= x_{b,\,r,\,c} \\
# r &= (ip + u + s) \bmod H \\
# c &= (jp + v + s) \bmod W
# \end{aligned} \tag{to\_windows}$$
#
# Each number of $y$ is one number of $x$, and each of $x$ goes to one place: nothing is computed. So the inverse puts
# every number back,
#
# $$x_{brc} = y_{bij,\,uv} \tag{from\_windows}$$
#
# and the gradients go the same ways: $dy$ of a place is $dx$ of the place that it came from. (In the last line, as
# above, $x$ is the grid, which is the *result* of `from_windows`.)
#
# $$dx_{brc} = dy_{bij,\,uv} \tag{to\_windows\_backward}$$
#
# $$dy_{bij,\,uv} = dx_{brc} \tag{from\_windows\_backward}$$

# %%
for function in (F.to_windows, F.to_windows_backward, F.from_windows, F.from_windows_backward):
    print(inspect.getsource(function))

# %% [markdown]
# By hand, a grid of 4×4 numbers, windows of 2×2, shift 1. The first window holds rows 1 and 2, columns 1 and 2; the
# last one row 3 and row 0, column 3 and column 0, the four corners.

# %%
grid = np.arange(16.0).reshape(1, 4, 4, 1)
windows, cache = F.to_windows(grid, 2, shift=1)
print(windows[..., 0])
assert windows[0, :, 0].tolist() == [5, 6, 9, 10] and windows[3, :, 0].tolist() == [15, 12, 3, 0]
assert (F.from_windows(windows, (4, 4), 2, shift=1)[0] == grid).all()
for sides, p, s in (((6, 6), 3, 1), ((5, 7), 3, 2), ((4, 9), (2, 3), 1)):
    x = random.standard_normal((2, *sides, 3))
    report = gradcheck.check(F.to_windows, F.to_windows_backward, (x, p, s))
    assert report.max_error < 1e-14
print("windows that are put back are what was cut; gradients by the complex step below 1e-14")

# %% [markdown]
# ## The mask
#
# After the roll the windows at the edge hold tokens from both sides of the image: sky beside ground. They must not
# attend to each other. Every token gets the number of its region, and $-\infty$ is added to a score between two
# regions, so that its probability is 0:
#
# $$m_{ij} = \begin{cases}
# 0 & \text{region}_i = \text{region}_j \\
# -\infty & \text{else}
# \end{cases}$$

# %%
print(inspect.getsource(F.window_masks))

# %%
masks = F.window_masks((8, 8), (4, 4), 2)                                          # (4, 16, 16)
edges = [4, 6]                                                                     # where regions begin, after the roll
along = np.searchsorted(edges, np.arange(8), side="right")
regions = 3 * along[:, None] + along
figure, axes = plt.subplots(1, 5, figsize=(10, 2.3), width_ratios=(1.15, 1, 1, 1, 1))
axes[0].imshow(regions, cmap="tab10")
axes[0].axhline(3.5, color="w", linewidth=2)                                       # where windows meet
axes[0].axvline(3.5, color="w", linewidth=2)
axes[0].set_title("regions of the rolled grid", fontsize=8)
for ax, mask, name in zip(axes[1:], masks, ("upper left", "upper right", "lower left", "lower right")):
    ax.imshow(mask == 0, cmap="gray", vmin=0, vmax=1)
    ax.set_title(f"{name}: who sees whom", fontsize=8)
for ax in axes:
    ax.set(xticks=(), yticks=())
plt.show()
assert [int((mask == 0).sum()) for mask in masks] == [256, 128, 128, 64]

# %% [markdown]
# Does the mask work? Gradients show what depends on what: white below are the places whose input has a gradient that
# isn't zero, for the output at one place.

# %%
block = SwinBlock(8, 2, 4, True, 16, qkv_bias=True, norm_eps=1e-5, drop_path=0.0).materialize(dtype="float64")
maps = random.standard_normal((1, 8, 8, 8))                                        # (B, D, H, W)
figure, axes = plt.subplots(1, 4, figsize=(8, 2.2))
for ax, place in zip(axes, ((0, 0), (1, 4), (3, 3), (7, 7))):
    y, cache = block(maps)
    dy = np.zeros_like(y)
    dy[0, :, *place] = random.standard_normal(8)
    seen = (block.backward(dy, cache)[0] != 0).any(0)
    ax.imshow(seen, cmap="gray", vmin=0, vmax=1)
    ax.plot(*place[::-1], "C3o", markersize=5)
    ax.set_title(f"what row {place[0]}, column {place[1]} sees", fontsize=8)
    ax.set(xticks=(), yticks=())
    region = (np.arange(8) - 2) // 4                                               # −1: what came from the other side
    assert (seen == ((region == region[place[0]])[:, None] & (region == region[place[1]]))).all()
plt.show()

# %% [markdown]
# ## Relative positions
#
# There are no positions in the embedding: in a window only the differences of places count. Each head has a table with
# an entry for every difference, $(2p-1)^2$ of them, and adds to a score the entry of query and key:
#
# $$\begin{aligned}
# b_{hij} &= t_{k(i,j),\,h} \\
# k(i, j) &= (r_i - r_j + p - 1)(2p - 1) \\
# &\quad + c_i - c_j + p - 1
# \end{aligned} \tag{relative\_bias}$$
#
# An entry is used by all pairs with its difference, so its gradient is their sum:
#
# $$dt_{kh} = \sum_{k(i,j)=k} db_{hij} \tag{relative\_bias\_backward}$$
#
# If threads add to a sum in any order, its last digits change from run to run. The code below first lists the pairs of
# each entry in a fixed order, and then sums along the list.

# %%
print(inspect.getsource(F.relative_bias))
print(inspect.getsource(F.relative_bias_backward))

# %%
table = random.standard_normal((49, 2))                                            # windows of 4×4, two heads
report = gradcheck.check(F.relative_bias, F.relative_bias_backward, (table, (4, 4)))
bias, _ = F.relative_bias(table, (4, 4))
print(report)
assert report.max_error < 1e-14
assert bias[0, 0, 5] == bias[0, 5, 10] == bias[0, 2, 7], "one to the right and one down, wherever that is"
figure, axes = plt.subplots(1, 2, figsize=(6, 2.6))
axes[0].imshow(table[:, 0].reshape(7, 7), cmap="RdBu")
axes[0].set_title("the table of a head, by difference", fontsize=8)
axes[1].imshow(bias[0], cmap="RdBu")
axes[1].set_title("the bias of its scores, query by key", fontsize=8)
for ax in axes:
    ax.set(xticks=(), yticks=())
plt.show()

# %% [markdown]
# ## The block
#
# The rest is a ViT's block (notebook 04), with attention in windows. With $w$ for cutting and $w^{-1}$ for putting
# back,
#
# $$y = w^{-1}(\mathrm{Attn}(w(x))) \tag{WindowAttention.forward}$$
#
# and, from the bottom up, with $f'[dy]$ for a layer's backward,
#
# $$dx = w^{-1}(\mathrm{Attn}'[w(dy)]) \tag{WindowAttention.backward}$$

# %%
print(inspect.getsource(WindowAttention.forward))
print(inspect.getsource(WindowAttention.backward))

# %%
small = SwinConfig(img_size=12, patch_size=2, in_chans=1, num_classes=3, embed_dim=4, depths=(2, 2), num_heads=(1, 2),
                   window_size=4)  # fmt: skip
report = gradcheck.check_model(build(small, dtype="float64"), random.standard_normal((2, 1, 12, 12)))
print(report)
assert report.max_error < 1e-12

# %% [markdown]
# ## Merging patches
#
# Between stages four neighbours become one token, four times as wide, and a linear layer halves that: half the side,
# twice the width, as in a ResNet. Let $x_{rc}$ be rows of $D$ numbers; side by side they are
#
# $$\begin{aligned}
# y_{ij} = \big[ &x_{2i,2j},\ x_{2i+1,2j}, \\
# &x_{2i,2j+1},\ x_{2i+1,2j+1}\big]
# \end{aligned} \tag{merge\_patches}$$
#
# and the gradient of each is its quarter of $dy$, with $u$ and $v$ from 0 to 1:
#
# $$\begin{aligned}
# &dx_{2i+u,2j+v} \\
# &= dy_{ij,\,2v+u}
# \end{aligned} \tag{merge\_patches\_backward}$$

# %%
print(inspect.getsource(F.merge_patches))
print(inspect.getsource(F.merge_patches_backward))
report = gradcheck.check(F.merge_patches, F.merge_patches_backward, (random.standard_normal((2, 5, 4, 3)),))
assert report.max_error < 1e-14

# %% [markdown]
# ## What it costs
#
# A ViT of width $D$ on $N$ tokens takes $2N^2D$ multiply-adds in a block's attention, windows of $n$ tokens $2NnD$:
# linear in $N$. Both with patches of 4×4 pixels, 96 wide and four blocks: on the left the multiply-adds of a forward,
# as `tinyvit summary` counts them, on the right the seconds of a forward and backward of one image with one thread,
# measured before by `results/window_cost.py`.

# %%
measured = json.loads(Path("results/window_cost.json").read_text())["rows"]
SIZES = sorted({row["side"] for row in measured})


def of(model, what):
    """A number of each size."""
    return np.array([row[what] for side in SIZES for row in measured if (row["model"], row["side"]) == (model, side)])


figure, axes = plt.subplots(1, 2, figsize=(8, 3))
for name in ("ViT", "Swin"):
    for ax, what in zip(axes, ("multiply_adds", "seconds")):
        ax.loglog(SIZES, of(name, what), "o-", markersize=4, label=name)
for ax, what in zip(axes, ("multiply-adds of a forward", "seconds of a forward and backward")):
    ax.set(xlabel="pixels to a side", ylabel=what, xticks=SIZES, xticklabels=SIZES)
    ax.minorticks_off()
    ax.legend(fontsize=8)
plt.show()
for number, side in enumerate(SIZES):
    counts, seconds = ([of(model, what)[number] for model in ("ViT", "Swin")] for what in ("multiply_adds", "seconds"))
    print(f"{side:>4} pixels  ViT {counts[0] / 1e6:>6,.0f} M, {1000 * seconds[0]:>7,.1f} ms   "
          f"Swin {counts[1] / 1e6:>5,.0f} M, {1000 * seconds[1]:>5,.1f} ms   "
          f"{counts[0] / counts[1]:.1f} and {seconds[0] / seconds[1]:.1f} times")  # fmt: skip
per_pixel = of("Swin", "multiply_adds") / np.array(SIZES) ** 2
assert np.allclose(per_pixel, per_pixel[0], rtol=0.01), "linear in the pixels"
config = SwinConfig(img_size=64, patch_size=4, embed_dim=96, depths=(4,), num_heads=(3,), window_size=4,
                    mlp_ratio=2.0)  # fmt: skip
rows = summarize(build(config, device="meta"))
assert sum(row.multiply_adds for row in rows) == of("Swin", "multiply_adds")[SIZES.index(64)]
for what in ("multiply_adds", "seconds"):
    vit, swin = of("ViT", what), of("Swin", what)
    assert vit[-1] / vit[0] > 2.5 * swin[-1] / swin[0]

# %% [markdown]
# ## A pyramid of features
#
# A small Swin with four stages, trained here for a few seconds on digits that were enlarged to 32×32 pixels. Its stages
# see 16×16, 8×8, 4×4 and 2×2 places, each wider than the one before. The maps are the three channels of each stage that
# vary most over a digit.

# %%
config = TrainConfig(
    "digits", SwinConfig(img_size=32, in_chans=1, embed_dim=16, depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8),
                         window_size=4, mlp_ratio=2.0),
    "swin", epochs=6, batch_size=50, evaluate_every=6, resize_images=True, threads=1, device="cpu",
    optim=OptimConfig(lr=3e-3, label_smoothing=0.1), augment=AugmentConfig(crop=3),
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
    accuracy = train(config, f"{folder}/run")["test_accuracy"]
    trained = load_trained(f"{folder}/run", device="cpu")
    digits = load_data(trained).test
assert accuracy > 0.9
image = digits.normalise(digits.images[:1])
stages = [name for name, _ in trained.model.parts() if name.startswith("layers") and "blocks" in name]
names = [name for name, _ in trained.model.parts()]
figure, axes = plt.subplots(4, 4, figsize=(5.2, 5.2))
for row, (stage, name) in enumerate(zip(axes, stages)):
    features = trained.model.features(image, names.index(name))[0]                 # (C, H, W)
    most = features.var((1, 2)).argsort()[::-1][:3]
    stage[0].imshow(image[0, 0], cmap="gray")
    for ax, channel in zip(stage[1:], most):
        ax.imshow(features[channel], cmap="viridis")
    stage[0].set_ylabel(f"stage {row}: {features.shape[1]}×{features.shape[2]}, {features.shape[0]} wide", fontsize=6)
    assert features.shape == (16 << row, 16 >> row, 16 >> row)
for ax in axes.flat:
    ax.set(xticks=(), yticks=())
plt.show()

# %% [markdown]
# ## Exercises
#
# **1.** How many numbers has the table of relative positions of one head, for windows of 7×7 tokens? Put your number in
# place of `None`.

# %%
my_entries = None

# %%
rows = np.arange(7)
differences = np.unique(rows[:, None] - rows)                                      # the same for columns
hint = "How many differences of rows are there, from −6 on?"
exercises.check_number("my_entries", my_entries, differences.size**2, hint)

# %% [markdown]
# **2.** After how many blocks of windows of 7×7 tokens, every other one shifted by 3, can a token in the first row of a
# grid of 56×56 first depend on the one in the last row, if patches are never merged? An unshifted block connects the
# rows of a window, a shifted one those of a shifted window. Put your number in place of `None`.

# %%
my_blocks = None

# %%
reach, blocks = 0, 0
while reach < 55:
    start = 3 if blocks % 2 else 0
    reach, blocks = min(55, (reach - start) // 7 * 7 + start + 6), blocks + 1
hint = "Follow the last row that is reached: after the first block it is row 6, after the second the end of its window."
exercises.check_number("my_blocks", my_blocks, blocks, hint)

# %% [markdown]
# **3.** Cut a grid into shifted windows. `print(exercises.describe("window_partition"))` describes its arguments and
# results.


# %%
def my_window_partition(x, window, shift):
    # x: (B, H, W, D). Returns windows, (B · H/p · W/p, p · p, D)
    return np.zeros_like(x)


exercises.check("window_partition", my_window_partition)

# %% [markdown]
# **4.** The gradient of the table of relative positions.


# %%
def my_relative_bias_backward(dy, side):
    # dy: (H, n, n) for n = side². Returns dtable
    return np.zeros_like(dy)


exercises.check("relative_bias_backward", my_relative_bias_backward)

# %% [markdown]
# **5.** Put windows back in their places, and make the mask of shifted ones: which tokens of a window are neighbours
# in the grid?


# %%
def my_window_reverse(windows, sides, window, shift):
    # windows: (B · H/p · W/p, p · p, D). sides: (H, W)
    return np.zeros((1, *sides, windows.shape[2]))  # in place of this, x (B, H, W, D)


exercises.check("window_reverse", my_window_reverse)


# %%
def my_window_mask(sides, window, shift):
    # sides: (H, W)
    return np.zeros((1, window**2, window**2))  # in place of this, 1 where two tokens see each other


exercises.check("window_mask", my_window_mask)

# %% [markdown]
# **6.** The bias of all pairs of tokens from the table.


# %%
def my_relative_bias(table, side):
    # table: ((2w − 1)², H). side: w
    return np.zeros((table.shape[1], side**2, side**2))  # in place of this, the bias (H, w², w²)


exercises.check("relative_bias", my_relative_bias)

# %% [markdown]
# **7.** Merge the patches of each square of 2×2.


# %%
def my_merge_patches(x):
    # x: (B, H, W, D)
    return np.zeros_like(x)  # in place of this, y (B, H/2, W/2, 4D)


exercises.check("merge_patches", my_merge_patches)
