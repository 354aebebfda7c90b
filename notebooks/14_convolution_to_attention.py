# %% [markdown]
# # 14 · From convolution to attention
#
# CoAtNet (Dai et al. 2021) has both in one network: convolutions where the maps are large, attention where they are
# small. That works because the two differ less than it seems. This notebook writes them as one formula, with one
# gradient, derives what the convolutional half needs besides (SiLU, squeeze and excitation), and ends with what five
# architectures reach for their multiply-adds and parameters.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import re
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import mean, stdev

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck, probe
from tinyvit import functional as F
from tinyvit.models import CoAtNetConfig, build
from tinyvit.models.coatnet import RelativeBlock
from tinyvit.models.summary import summarize
from tinyvit.nn.chain import Chain
from tinyvit.nn.mbconv import MBConv, SqueezeExcite
from tinyvit.training import train
from tinyvit.training.config import AugmentConfig, OptimConfig, TrainConfig
from tinyvit.training.presets import preset
from tinyvit.training.trained import load_data, load_trained

sys.path.insert(0, "results")
import data_size  # the script behind the measurements at the end

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=3, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## One formula
#
# Each place $i$ of a map takes from every place $j$, with a weight $A_{ij}$. Here for one channel, or one head:
#
# $$y_i = \sum_j A_{ij}\, x_j$$
#
# A depthwise convolution, attention, and attention with relative positions differ in $A$ alone:
#
# $$\begin{aligned}
# A_{ij} &= w_{j-i} \\
# A_{ij} &= \operatorname{softmax}_j\big(q_i\cdot k_j/\sqrt d\big) \\
# A_{ij} &= \operatorname{softmax}_j\big(q_i\cdot k_j/\sqrt d + b_{j-i}\big)
# \end{aligned}$$
#
# In the first, the weight depends only on *where* the two are relative to each other: $w$ is a filter, 0 beyond its
# edge. In the second it depends only on *what* is there. The third adds both up before the exponential, so that its
# weights are a product,
#
# $$A_{ij} \propto e^{q_i\cdot k_j/\sqrt d}\; e^{b_{j-i}} ,$$
#
# of attention and of a filter $e^b$ as large as the image. Without queries it is a convolution with that filter,
# divided by the filter's sum over the places that are inside of the image. Both are in the package, so let us see:

# %%
rows, columns, C = 5, 6, 3
N = rows * columns
x = random.standard_normal((2, C, rows, columns))
table = random.standard_normal(((2 * rows - 1) * (2 * columns - 1), C))             # b, one head for each channel
bias, _ = F.relative_bias(table, (rows, columns))                                   # (C, N, N)

values = x.reshape(2, C, N, 1)
static, _ = F.attention(np.zeros_like(values), np.zeros_like(values), values, bias=bias)

# The table's differences are those of query less key, i − j; a filter's places are j − i. So it is turned round.
filters = np.exp(table.T[:, ::-1]).reshape(C, 1, 2 * rows - 1, 2 * columns - 1)
padding = (rows - 1, columns - 1)
inside, _ = F.conv2d(np.ones_like(x), filters, padding=padding, groups=C)
convolved, _ = F.conv2d(x, filters, padding=padding, groups=C)
difference = np.abs(static.reshape(x.shape) - convolved / inside).max()
print(f"largest difference between attention without queries and a depthwise convolution: {difference:.1e}")
assert difference < 1e-14

# %% [markdown]
# In pictures: a photograph of 32×32 places, and the weights $A_{ij}$ of the place with the dot. On the left they depend
# only on where the others are, with $b = -\delta^2/72$ for places $\delta$ apart; in the middle only on what is there,
# where queries and keys are colours; on the right on both.

# %%
photo = load_sample_image("flower.jpg")[20:404:12, 130:514:12] / 255                # (32, 32, 3)
side, query = 32, (12, 20)
colours = (photo - photo.mean((0, 1))) / photo.std((0, 1))
q = k = 3.5 * (colours / np.linalg.norm(colours, axis=-1, keepdims=True)).reshape(1, 1, -1, 3)
v = np.eye(side**2)[None, None]                                                     # so that the result is A itself
differences = np.indices((2 * side - 1, 2 * side - 1)) - (side - 1)
bell, _ = F.relative_bias(-(differences**2).sum(0).reshape(-1, 1) / 72, (side, side))
panels = {
    "where: depthwise convolution": F.attention(np.zeros_like(q), np.zeros_like(k), v, bias=bell)[0],
    "what: attention": F.attention(q, k, v)[0],
    "both: relative attention": F.attention(q, k, v, bias=bell)[0],
}
figure, axes = plt.subplots(1, 4, figsize=(10, 2.7))
axes[0].imshow(photo)
axes[0].set_title("the photograph", fontsize=9)
weights = {title: A[0, 0].reshape(side, side, side, side)[query] for title, A in panels.items()}
for ax, (title, of_query) in zip(axes[1:], weights.items()):
    figure.colorbar(ax.imshow(of_query, cmap="inferno", vmin=0), ax=ax, shrink=0.8)
    ax.set_title(title, fontsize=9)
for ax in axes:
    ax.plot(*query[::-1], "wo", markeredgecolor="k", markersize=5)
    ax.set_axis_off()
plt.show()
where, what, both = weights.values()
product = where * what
assert np.allclose(both, product / product.sum()), "both is the product of the two, divided by its sum"

# %% [markdown]
# ## One gradient
#
# $x_j$ was used by every $i$, and $A_{ij}$ by one product:
#
# $$\begin{aligned}
# dx_j &= \sum_i A_{ij}\, dy_i \\
# dA_{ij} &= dy_i\, x_j
# \end{aligned}$$
#
# From here on the gradients differ. A filter's weight $w_\delta$ *is* $A_{ij}$ for all pairs that are $\delta$ apart, a
# diagonal of the matrix, so its gradient is the sum along it. A relative bias has a softmax in between, whose gradient
# is (notebook 03)
#
# $$ds_{ij} = A_{ij}\Big(dA_{ij} - \sum_k A_{ik}\, dA_{ik}\Big)$$
#
# and then comes the *same sum along diagonals*:
#
# $$\begin{aligned}
# dw_\delta &= \sum_{j-i=\delta} dA_{ij} \\
# db_\delta &= \sum_{j-i=\delta} ds_{ij}
# \end{aligned} \tag{relative\_bias\_backward}$$
#
# So the function that adds up the gradient of Swin's table, given $dA$ in place of $ds$, must give the gradient of a
# depthwise convolution's filter. It does:

# %%
print(inspect.getsource(F.relative_bias_backward))

# %%
y, cache = F.conv2d(x, filters, padding=padding, groups=C)
dy = random.standard_normal(y.shape)
_, dfilters = F.conv2d_backward(dy, cache)

dA = np.einsum("bci,bcj->cij", dy.reshape(2, C, N), x.reshape(2, C, N))             # over all images
_, of_table = F.relative_bias(table, (rows, columns))
along_diagonals = F.relative_bias_backward(dA, of_table)                            # (differences, C)
difference = np.abs(along_diagonals.T[:, ::-1].reshape(dfilters.shape) - dfilters).max()
print(f"largest difference between the sums along diagonals and conv2d_backward: {difference:.1e}")
assert difference < 1e-13

# %% [markdown]
# What does the softmax change? If all scores of a row grow by the same number, nothing changes: $\sum_j ds_{ij} = 0$.
# So the entries of a table compete, where a filter's do not, and all weights are positive and add up to 1. A filter can
# find an edge by itself; relative attention takes a mean (notebook 11). On the other hand a filter is the same for
# every image, and sees only 3×3 places.
#
# | | convolution | attention | relative attention |
# | --- | --- | --- | --- |
# | the same wherever it is | yes | yes, without positions | yes |
# | knows what is near | yes | no | can learn it |
# | depends on the image | no | yes | yes |
# | sees | its 3×3 places | everything | everything |
# | costs, for $N$ places | $\propto N$ | $\propto N^2$ | $\propto N^2$ |
#
# The last line is why CoAtNet begins with convolutions: maps are large at first. The other lines are why it ends with
# attention.
#
# ## What a depthwise convolution leaves to others: MBConv
#
# A full convolution of $k\times k$ places from $C$ channels to $C$ takes $k^2C^2$ multiply-adds per place, and has as
# many parameters. A depthwise one takes $k^2C$, and mixes no channels; a convolution of $1\times1$ does that, with
# $C^2$. *MBConv* (Sandler et al. 2018) widens by 1×1, looks around in the wide maps, and narrows again; a shortcut goes
# around it. Between them are batch norms and GELU $g$. With $n$ for batch norm, $D$ for the depthwise convolution and
# $E$ for squeeze and excitation:
#
# $$\begin{aligned}
# h_1 &= g(n(W_1\, n(x))) \\
# h_2 &= g(n(D\, h_1)) \\
# y &= W_3\, E(h_2) + b_3 \\
# &\quad + \mathrm{shortcut}(x)
# \end{aligned} \tag{MBConv.forward}$$
#
# and, from the bottom up, with $f'[dy]$ for a layer's backward,
#
# $$\begin{aligned}
# dh_2 &= E'[W_3'[dy]] \\
# dh_1 &= D'[n'[g'[dh_2]]] \\
# dx &= n'[W_1'[n'[g'[dh_1]]]] \\
# &\quad + \mathrm{shortcut}'[dy]
# \end{aligned} \tag{MBConv.backward}$$
#
# The branch has no fork in it, so it is a `Chain`: parts with names, one after the other, and backwards the other way
# round.
#
# $$y = f_n(\dots f_2(f_1(x))) \tag{Chain.forward}$$
#
# $$dx = f_1'[f_2'[\dots f_n'[dy]]] \tag{Chain.backward}$$

# %%
for what in (MBConv.__init__, MBConv.forward, MBConv.backward, Chain.forward, Chain.backward):
    print(inspect.getsource(what))

# %% [markdown]
# ### Squeeze and excitation
#
# A filter sees 3×3 places, so it can't know that a photograph was taken at night. Squeeze and excitation (Hu et al.
# 2018) gives it a view of the whole image: the mean of each map goes through a small network with two layers, and each
# map gets a factor between 0 and 1 that depends on all of them. With $x_{ci}$ for place $i$ of map $c$, $N$ places and
# $s$ for SiLU:
#
# $$\begin{aligned}
# m_c &= \frac1N\sum_i x_{ci} \\
# h &= s(W_1 m + b_1) \\
# w &= \sigma(W_2 h + b_2) \\
# y_{ci} &= x_{ci}\, w_c
# \end{aligned} \tag{SqueezeExcite.forward}$$
#
# The last line, the product of a map and its factor, is an operation of its own. The factor was used by all places of
# its map, so its gradient is a sum over them. For one map, without its index:
#
# $$y_i = x_i\, w \tag{scale\_channels}$$
#
# $$\begin{aligned}
# dx_i &= dy_i\, w \\
# dw &= \sum_i dy_i\, x_i
# \end{aligned} \tag{scale\_channels\_backward}$$
#
# From there the gradient goes back through the two layers. $x$ was used twice, in the product and in the mean, so it
# gets two gradients:
#
# $$\begin{aligned}
# dh &= W_2'[\sigma'[dw]] \\
# dm &= W_1'[s'[dh]] \\
# dx_{ci} &= dy_{ci}\, w_c \\
# &\quad + dm_c / N
# \end{aligned} \tag{SqueezeExcite.backward}$$
#
# The derivative of the logistic function can be written with its value. From $y = 1/(1 + e^{-x})$ follows
# $\partial y/\partial x = e^{-x}/(1 + e^{-x})^2$, and $e^{-x}/(1 + e^{-x})$ is $1 - y$:
#
# $$y = \sigma(x) = \frac1{1 + e^{-x}} \tag{sigmoid}$$
#
# $$dx = dy\; y\,(1 - y) \tag{sigmoid\_backward}$$
#
# SiLU is the product of $x$ and $\sigma(x)$. Both factors move with $x$:
#
# $$y = x\,\sigma(x) \tag{silu}$$
#
# $$\begin{aligned}
# dx &= dy\,\big(\sigma + x\,\sigma\,(1 - \sigma)\big) \\
# &= dy\;\sigma\,\big(1 + x\,(1 - \sigma)\big)
# \end{aligned} \tag{silu\_backward}$$

# %%
for what in (SqueezeExcite.__init__, SqueezeExcite.forward, SqueezeExcite.backward, F.scale_channels,
             F.scale_channels_backward, F.sigmoid, F.sigmoid_backward, F.silu, F.silu_backward):  # fmt: skip
    print(inspect.getsource(what))

# %% [markdown]
# By hand: $\sigma(0) = \frac12$, so SiLU has the slope $\frac12$ at 0. Its lowest point is where
# $1 + x(1 - \sigma) = 0$. With $1 - \sigma = 1/(1 + e^x)$ that is $1 + e^x = -x$, at $x = -1.278$: left of it SiLU
# rises again, unlike ReLU, and like GELU, with which it has much in common.

# %%
assert F.silu_backward(np.ones(1), F.silu(np.zeros(1))[1]) == 0.5
points = np.linspace(-6, 4, 1001)
(gelu, _), (silu, of_silu) = F.gelu(points), F.silu(points)
lowest = points[silu.argmin()]
assert abs(lowest + 1.278) < 0.01 and abs(1 + np.exp(lowest) + lowest) < 0.02
figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.6))
axes[0].plot(points, gelu, label="GELU")
axes[0].plot(points, silu, label="SiLU")
axes[1].plot(points, F.gelu_backward(np.ones_like(points), F.gelu(points)[1]), label="GELU′")
axes[1].plot(points, F.silu_backward(np.ones_like(points), of_silu), label="SiLU′")
for ax in axes:
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
plt.show()

maps, factors = random.standard_normal((2, 3, 4, 5)), random.standard_normal((2, 3))
for forward, backward, arrays in ((F.sigmoid, F.sigmoid_backward, (maps,)), (F.silu, F.silu_backward, (maps,)),
                                  (F.scale_channels, F.scale_channels_backward, (maps, factors))):  # fmt: skip
    report = gradcheck.check(forward, backward, arrays)
    print(report)
    assert report.max_error < 1e-14

# %% [markdown]
# ## The block with attention
#
# With $a$ for attention with relative positions over all places of the maps, $l$ for layer norm, $f$ for the MLP and
# $k$ for the shortcut:
#
# $$\begin{aligned}
# x' &= k(x) + a(l(x)) \\
# y &= x' + f(l(x'))
# \end{aligned} \tag{RelativeBlock.forward}$$
#
# $$\begin{aligned}
# dm &= f'[dy] \\
# dx' &= dy + l'[dm] \\
# da &= a'[dx'] \\
# dx &= l'[da] \\
# &\quad + k'[dx']
# \end{aligned} \tag{RelativeBlock.backward}$$
#
# The first block of a stage may halve the maps' sides by means over each 2×2, on the branch behind the layer norm and
# in the shortcut; there a convolution of 1×1 then makes the channels fit. MBConv has its stride in the depthwise
# convolution instead.

# %%
print(inspect.getsource(RelativeBlock.forward))
print(inspect.getsource(RelativeBlock.backward))

# %%
small = CoAtNetConfig(img_size=12, in_chans=2, num_classes=3, stem_width=4, stages="CTT", depths=(1, 1, 1),
                      widths=(4, 6, 8), strides=(1, 2, 2), head_dim=2, expansion=2.0)  # fmt: skip
report = gradcheck.check_model(build(small, dtype="float64"), random.standard_normal((3, 2, 12, 12)))
print(report)
assert report.max_error < 1e-11

# %% [markdown]
# ## Convolutions first
#
# What does a block cost, by the size of its maps? Multiply-adds of an MBConv and of a block with attention, 96 wide,
# as `tinyvit summary` counts them, and the scores that attention keeps for the backward. At 64×64 places a step on one
# image has to keep 50 million of them. At 8×8 attention costs half as much again as the convolution, at 64×64 twelve
# times as much.


# %%
def block_cost(kind, side):
    """Multiply-adds of a block 96 wide on maps of side × side places."""
    config = CoAtNetConfig(img_size=side, in_chans=3, stem_stride=1, stem_width=96, stages=kind, depths=(1,),
                           widths=(96,), strides=(1,), head_dim=32)  # fmt: skip
    rows = summarize(build(config, device="meta"))
    return sum(row.multiply_adds for row in rows if row.path.startswith("stages."))


costs = {side: [block_cost(kind, side) for kind in "CT"] for side in (8, 16, 32, 64)}
print(f"{'places':<8}{'MBConv':>12}{'attention':>12}{'scores':>14}")
for side, (conv, attention) in costs.items():
    print(f"{f'{side}×{side}':<8}{conv / 1e6:>10,.1f} M{attention / 1e6:>10,.1f} M{3 * side**4:>14,}")
(conv, attention), (conv_64, attention_64) = costs[8], costs[64]
assert conv_64 < 65 * conv and attention_64 > 5 * 64 * attention / 2

# %% [markdown]
# ## How much do they look?
#
# A small CoAtNet, trained here for a few seconds on the digits: a stage of convolutions at 8×8 places, then two blocks
# with attention. Where do the scores of its heads come from? From *where*, $b_{j-i}$, and from *what*,
# $q_i\cdot k_j/\sqrt d$, of which a part may be the same for all images: its mean over the test images. Softmax sees
# only how the scores of a row differ, so the mean of each row is taken off first, and the parts are measured by their
# variance.

# %%
config = TrainConfig(
    "digits", CoAtNetConfig(img_size=8, in_chans=1, stem_width=16, stem_stride=1, stages="CT", depths=(1, 2),
                            widths=(24, 32), strides=(1, 1), head_dim=8, expansion=2.0),
    "coatnet", epochs=15, batch_size=50, evaluate_every=15, threads=1, device="cpu",
    optim=OptimConfig(lr=3e-3, weight_decay=0.05, warmup=0.1, label_smoothing=0.1), augment=AugmentConfig(crop=1),
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
    accuracy = train(config, f"{folder}/run")["test_accuracy"]
    trained = load_trained(f"{folder}/run", device="cpu")
    digits = load_data(trained).test
print(f"test accuracy {100 * accuracy:.1f} %")
assert accuracy > 0.96

# %%
PARTS = "relative positions", "what is there, on average", "what is there in this image"
seen = probe.trace(trained.model, digits.normalise(digits.images))


def variances(block):
    """Of the scores' three parts (3, H), over all pairs of places and all images."""
    attn = dict(trained.model.named_modules())[f"{block}.attn"]
    (q, k, _), _ = F.split_heads(seen.values[f"{block}.attn.qkv"], attn.num_heads)  # (B, H, n, d)
    bias, _ = F.relative_bias(attn.relative_position_bias_table.value, attn.sides)
    bias, what = (scores - scores.mean(-1, keepdims=True) for scores in (bias, q @ k.mT / np.sqrt(q.shape[-1])))
    average = what.mean(0)
    return np.array([bias.var((1, 2)), average.var((1, 2)), (what - average).var((0, 2, 3))])


found = np.concatenate([variances(f"stages.1.blocks.{i}") for i in range(2)], axis=1)
shares = found / found.sum(0)
figure, ax = plt.subplots(figsize=(7.5, 2.6))
for part, name in enumerate(PARTS):
    ax.bar(range(8), shares[part], bottom=shares[:part].sum(0), label=name)
ax.set(xticks=range(8), xticklabels=[f"{head} of block {block}" for block in range(2) for head in range(4)],
       ylabel="share of the variance", xlabel="head")  # fmt: skip
ax.tick_params("x", rotation=30, labelsize=7)
ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for name, of_heads in zip(PARTS, shares):
    print(f"{name:<28}", "  ".join(f"{share:4.0%}" for share in of_heads))
assert shares[0].max() < 0.05 and shares[2].min() > 0.6

# %% [markdown]
# In these heads most of a score depends on the image; some of it is the same for all images, and the table itself adds
# next to nothing. It isn't needed here: the convolutions in front can tell where they are by the zeros around an image,
# and digits are in the middle. In Swin (notebook 13), where no convolution comes before, and in large models trained
# for long, that may differ; on these few digits the point is that relative attention *can* be a convolution and needn't
# be.
#
# ## What five architectures reach
#
# ViT, ResNet, hybrid, Swin and CoAtNet, each in two sizes, on all 50,000 images of CIFAR-10 (JPEG copy):
# `results/data_size.py`, 1,000 steps of 100 images, the same recipe for all (AdamW, label smoothing, crop and flip),
# three seeds. Measured before, drawn here by multiply-adds and by parameters. Bars are the standard deviation of the
# seeds.

# %%
runs = json.loads(Path("results/data_size.json").read_text())["runs"]
SIZES = {"ViT": ("ViT", "ViT, 128 wide"), "ResNet": ("ResNet", "ResNet, 24 wide"),
         "hybrid": ("hybrid", "hybrid, 96 wide"), "Swin": ("Swin", "Swin, 48 wide"),
         "CoAtNet": ("CoAtNet", "CoAtNet, 48 wide")}  # fmt: skip
steps = data_size.DATA["cifar10"].steps


def runs_of(model):
    return [run for run in runs if (run["data"], run["model"], run["images"], run["steps"])
            == ("cifar10", model, 50_000, steps)]  # fmt: skip


figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
print(f"{'':<18}{'multiply-adds':>15}{'parameters':>13}{'test accuracy, %':>22}")
for number, (architecture, models) in enumerate(SIZES.items()):
    points = []
    for model in models:
        found = runs_of(model)
        accuracies = [100 * run["accuracy"] for run in found]
        points.append((found[0]["multiply_adds"], found[0]["parameters"], mean(accuracies), stdev(accuracies)))
        print(f"{model:<18}{found[0]['multiply_adds'] / 1e6:>13.1f} M{found[0]['parameters']:>13,}"
              f"{mean(accuracies):>14.1f} ± {stdev(accuracies):.1f} ({len(found)})")  # fmt: skip
    for ax, x in zip(axes, (0, 1)):
        ax.errorbar([one[x] / 1e6 for one in points], [one[2] for one in points], [one[3] for one in points],
                    marker="o", markersize=4, capsize=3, label=architecture, color=f"C{number}")  # fmt: skip
axes[0].set(xlabel="multiply-adds per image, millions", ylabel="test accuracy, %")
axes[1].set(xlabel="parameters, millions")
axes[0].legend(fontsize=7)
plt.show()

reached = {name: mean(100 * run["accuracy"] for run in runs_of(name)) for models in SIZES.values() for name in models}
small, large = ({name: reached[models[size]] for name, models in SIZES.items()} for size in (0, 1))
for means in (small, large):
    with_convolutions = [means[name] for name in ("ResNet", "hybrid", "CoAtNet")]
    assert min(with_convolutions) > max(means["ViT"], means["Swin"]) + 1.5
    assert min(means["hybrid"], means["CoAtNet"]) > means["ResNet"] + 1
assert all(large[name] > small[name] + 1 for name in ("ResNet", "hybrid", "CoAtNet"))
assert all(large[name] < small[name] + 1 for name in ("ViT", "Swin"))

# %% [markdown]
# The models with convolutions are ahead of those without, at both sizes and with fewer parameters. Attention behind
# convolutions pays: hybrid and CoAtNet are ahead of the ResNet, and as good as each other within the bars. With more
# than twice the multiply-adds all three gain, while ViT and Swin don't: they need more training, not more parameters.
#
# But 1,000 steps are few, and a single recipe isn't the best one for any of them. What each reaches with a recipe of
# its own in 29 to 46 minutes of two processor cores that also did other work (`tinyvit train PRESET`), from the
# stored logs, seed 0:

# %%
print(f"{'preset':<18}{'multiply-adds':>15}{'parameters':>13}{'test accuracy, %':>18}{'minutes':>10}")
for name in ("cifar10-cpu", "cifar10-resnet", "cifar10-hybrid", "cifar10-swin", "cifar10-coatnet"):
    log = Path(f"results/{name}.log").read_text()
    percent, minutes, seconds = re.search(r"test accuracy +([\d.]+) %.*?time +(\d+):(\d+)", log, re.DOTALL).groups()
    model = build(preset(name).model, device="meta")
    count = sum(row.multiply_adds for row in summarize(model))
    print(f"{name:<18}{count / 1e6:>13.1f} M{model.num_parameters():>13,}{percent:>18}{f'{minutes}:{seconds}':>10}")

# %% [markdown]
# Given time, Swin passes the ViT, with as many multiply-adds: 85.3 and 83.7 %. Convolutions stay ahead, here by way of
# many cheap steps, and CoAtNet comes close to the ResNet with a third of its parameters and four fifths of its
# multiply-adds. The paper's point, that attention gains with many photographs, can't be shown with 50,000.
#
# ## Exercises
#
# **1.** How many times as many multiply-adds does a full convolution of 3×3 from 96 channels to 96 take as a depthwise
# one of 3×3 followed by one of 1×1? Put your number in place of `None`, to two digits after the point.

# %%
my_ratio = None

# %%
C = 96
hint = "Per place: 9 C² for the full one. What do the depthwise one and the one of 1×1 take?"
exercises.check_number("my_ratio", my_ratio, 9 * C**2 / (9 * C + C**2), hint, 0.006)

# %% [markdown]
# **2.** Attention with relative positions is to have the same weights whatever the image shows. How large must the
# difference $b_0 - b_\delta$ be, so that a place 1 row and 0 columns away gets a tenth of the weight that the place
# itself gets? Put your number in place of `None`, to two digits after the point.

# %%
my_difference = None

# %%
hint = "With the queries at 0 the weights are proportional to the exponentials of b."
exercises.check_number("my_difference", my_difference, np.log(10), hint, 0.006)

# %% [markdown]
# **3.** The gradient of SiLU. `print(exercises.describe("silu_backward"))` describes its arguments and results.


# %%
def my_silu_backward(dy, x):
    # dy, x: (B, N, D). Returns dx
    return np.zeros_like(x)


exercises.check("silu_backward", my_silu_backward)

# %% [markdown]
# **4.** The gradients of a factor for each map of each sample.


# %%
def my_scale_channels_backward(dy, x, weight):
    # dy, x: (B, C, H, W). weight: (B, C). Returns dx, dweight
    return np.zeros_like(x), np.zeros_like(weight)


exercises.check("scale_channels_backward", my_scale_channels_backward)
