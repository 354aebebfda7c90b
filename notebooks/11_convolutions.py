# %% [markdown]
# # 11 · Convolutions: what is built in, and what it is worth
#
# Two things are built into a convolution that a Vision Transformer has to learn: that neighbouring pixels belong
# together, and that a pattern may be anywhere in the image. This notebook writes both in one notation, derives the
# gradients of convolution and batch norm, and measures what that knowledge is worth: accuracy by the number of training
# images.
#
# ![A Vision Transformer with the shapes of its arrays](figures/architecture-11.svg)
#
# A convolution takes the place of the attention: both let every place gather something from others.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import mean, median, stdev

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck, probe
from tinyvit import functional as F
from tinyvit.models import build
from tinyvit.training import train
from tinyvit.training.trained import load_data, load_trained

sys.path.insert(0, "results")
import data_size  # the script behind the measurements below

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## One notation for both
#
# Let $x_j$ be what is at place $j$ of an image: a token, or the channels of a pixel. Attention (notebook 03) mixes the
# places with weights $A_{ij}$ that it computes from what is there, and then the channels by a matrix:
#
# $$y_i = \sum_j A_{ij}\; x_j W, \qquad A = \mathrm{softmax}\big(qk^\top/\sqrt d\big) .$$
#
# A convolution slides filters over the image. With $c$ for a channel of the input, $o$ for one of the output, and
# filters $w$ of $P \times Q$ places $(u, v)$ that move by $s$ pixels at a time,
#
# $$y_{oij} = b_o + \sum_{c,u,v} w_{ocuv}\; x_{c,\,si+u,\,sj+v} . \tag{conv2d}$$
#
# Call the place in the filter, seen from its middle, $\delta$, and collect the numbers $w_{ocuv}$ of one place in a
# matrix $W_\delta$ (from channels $c$ to channels $o$). With stride 1 and without the bias,
#
# $$\begin{aligned}
# y_i &= \sum_\delta x_{i+\delta} W_\delta \\
# &= \sum_\delta \sum_j A^\delta_{ij}\; x_j W_\delta, \\
# A^\delta_{ij} &= \begin{cases} 1 & j - i = \delta \\ 0 & \text{else} \end{cases}
# \end{aligned}$$
#
# That is attention with a head for each place of the filter, 9 for $3\times3$, and each head looks at one neighbour
# with all of its weight. Its $A$ *depends on $j - i$ alone*: not on what the image shows, and not on where in the image
# it is. Nothing about it is learned; what is learned are the $W_\delta$. The other way round, attention with relative
# positions can become any convolution: it takes as many heads as a filter has places (Cordonnier et al. 2020, theorem
# 1).

# %%
print(inspect.getsource(F.conv2d))

# %% [markdown]
# In pictures, on a grid of 4×4 places: the attention of a trained head (`checkpoint/`) for two digits, and the $A$ of a
# filter. A row shows what its place takes from all others. The matrix of attention differs from image to image. The
# convolution's is the same for all images, and constant along each diagonal.

# %%
trained = load_trained("checkpoint", device="cpu")
digits = load_data(trained).test
images = digits.normalise(digits.images)
seen = probe.trace(trained.model, images[:2])
blur = np.outer([1, 2, 1], [1, 2, 1]) / 16


def matrix_of(kernel, grid):
    """The A (N, N) of a filter (3, 3) on a grid of N places: what it makes of an image that is 1 at one place."""
    N = grid[0] * grid[1]
    ones = np.eye(N).reshape(N, 1, *grid)
    return F.conv2d(ones, kernel[None, None], padding=1)[0].reshape(N, N).T


A = matrix_of(blur, (4, 4))
panels = {f"attention, {kind} digit": seen.attention[1, i, 0, 1:, 1:] for i, kind in enumerate(("one", "another"))}
panels["convolution, any image"] = A
figure, axes = plt.subplots(1, 3, figsize=(8, 2.9))
for ax, (title, weights) in zip(axes, panels.items()):
    figure.colorbar(ax.imshow(weights, cmap="inferno", vmin=0), ax=ax, shrink=0.8)
    ax.set(title=title, xlabel="from place j", xticks=(0, 5, 10, 15), yticks=(0, 5, 10, 15))
axes[0].set_ylabel("to place i")
plt.show()

first, second, _ = panels.values()
assert np.abs(first - second).max() > 0.05, "attention depends on the image"
middle = [5, 6, 9, 10]                                                              # the places that see no edge
assert all(np.isclose(A[i, i + step], A[5, 5 + step]) for i in middle for step in (-5, -4, -1, 0, 1, 4, 5))

# %% [markdown]
# Is it true that 9 heads are a convolution? Scores of $-\infty$ leave a head nothing but its one neighbour. Here the
# image goes on at its other side, so that every place has all nine neighbours; the heads' results stand beside one
# another and go through one linear layer, as in every multi-head attention.

# %%
B, C, outputs, side = 2, 3, 4, 5
x, weight = random.standard_normal((B, C, side, side)), random.standard_normal((outputs, C, 3, 3))
places = np.indices((side, side)).reshape(2, -1).T                                  # (N, 2), row and column
offsets = [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]
is_there = np.array([((places[:, None] + d) % side == places).all(-1) for d in offsets])    # (9, N, N)
tokens = x.reshape(B, 1, C, -1).mT                                                  # (B, 1, N, C)
values = np.repeat(tokens, 9, axis=1)                                               # (B, 9, N, C)
heads, _ = F.attention(np.zeros_like(values), np.zeros_like(values), values, bias=np.where(is_there, 0.0, -np.inf))
together = heads.transpose(0, 2, 1, 3).reshape(B, side**2, 9 * C)
by_attention, _ = F.linear(together, weight.transpose(0, 2, 3, 1).reshape(outputs, 9 * C))

wrapped = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "wrap")
by_convolution, _ = F.conv2d(wrapped, weight)
difference = np.abs(by_attention.mT.reshape(by_convolution.shape) - by_convolution).max()
print(f"largest difference between 9 heads and a convolution of 3×3: {difference:.1e}")
assert difference < 1e-13

# %% [markdown]
# ## Depthwise convolution is attention that does not look
#
# In a *depthwise* convolution each channel has a filter of its own and sees no other channel: `groups=C`. Its formula
# is that of a convolution with $o = c$ alone,
#
# $$y_{cij} = b_c + \sum_{u,v} w_{cuv}\; x_{c,\,si+u,\,sj+v} . \tag{conv2d}$$
#
# Give attention one head per channel. Head $c$ has scores $q_i\cdot k_j/\sqrt d + \beta^c_{ij}$, with a bias as in
# Swin. Let the queries be zero, so that it doesn't look at the image, and the bias depend on $j - i$ alone. Then
#
# $$\begin{aligned}
# A^c_{ij} &= \frac{e^{\beta^c_{j-i}}}{\sum_{j'} e^{\beta^c_{j'-i}}} = w_{c,\,j-i}, \\
# w_{c\delta} &= \frac{e^{\beta^c_\delta}}{\sum_{\delta'} e^{\beta^c_{\delta'}}} .
# \end{aligned}$$
#
# The sum is the same for each $i$ (where the image goes on at its other side): a depthwise convolution is a *static
# attention*, with $\beta = \ln w$. What it can't be is one with negative weights, or weights that don't add up to 1:
# softmax rules these out, and it takes the difference of two heads to make an edge filter. The bias of Swin stands
# between the two: part of the score is static, part of it looks.

# %%
filters = random.random((C, 3, 3))
filters /= filters.sum((1, 2), keepdims=True)
static = np.full((C, side**2, side**2), -np.inf)
for place, neighbour in zip(is_there, range(9)):
    for channel in range(C):
        static[channel][place] = np.log(filters[channel].ravel()[neighbour])
values = x.reshape(B, C, -1, 1)                                                     # one head per channel, d = 1
by_attention, cache = F.attention(np.zeros_like(values), np.zeros_like(values), values, bias=static)
by_convolution, _ = F.conv2d(wrapped, filters[:, None], groups=C)
difference = np.abs(by_attention.reshape(by_convolution.shape) - by_convolution).max()
print(f"largest difference between static attention and depthwise convolution: {difference:.1e}")
assert difference < 1e-14

# %% [markdown]
# ## The gradient of a convolution
#
# First one channel and one dimension, $y_i = \sum_u w_u\, x_{si+u}$, where $x$ has its padding already. Given is
# $dy_i$.
#
# **The filter.** $w_u$ was used once for each $i$, and $\partial y_i/\partial w_u = x_{si+u}$:
#
# $$dw_u = \sum_i dy_i\, x_{si+u} .$$
#
# That is again something that slides over $x$, with $dy$ in place of the filter: a correlation of the two.
#
# **The input.** $x_k$ was used by every $y_i$ with $si + u = k$ for some $u$ of the filter:
#
# $$\begin{aligned}
# dx_k &= \sum_i dy_i\, \frac{\partial y_i}{\partial x_k} \\
# &= \sum_u w_u \sum_{i\,:\;si+u=k} dy_i .
# \end{aligned}$$
#
# With stride 1 there is one such $i$, namely $k - u$, and $dx_k = \sum_u w_u\, dy_{k-u}$: where the forward's index
# grows with $u$, this one falls. *The gradient of a convolution is a convolution with the filter turned round.* In the
# matrices above it is $dx = A^\top dy$, and the transpose of a matrix that depends on $j - i$ depends on $i - j$. With
# stride $s$ only those $u$ count for which $k - u$ is a multiple of $s$: as if $dy$ had $s - 1$ zeros between its
# numbers. What falls on the padding is cut off.
#
# With all channels, images and both dimensions (a $dy$ whose index is no whole number, or beyond the edge, is 0):
#
# $$\begin{aligned}
# dx_{ckl} &= \sum_{o,u,v} w_{ocuv} \\
# &\qquad \cdot dy_{o,\,(k-u)/s,\,(l-v)/s} \\
# dw_{ocuv} &= \sum_{b,i,j} dy_{boij}\; x_{bc,\,si+u,\,sj+v} \\
# db_o &= \sum_{b,i,j} dy_{boij}
# \end{aligned} \tag{conv2d\_backward}$$
#
# The code goes through the places $(u, v)$ of the filter. For each it needs the image shifted by $(u, v)$, and what
# remains is a linear layer, forward and backward.

# %%
print(inspect.getsource(F.conv2d_backward))

# %% [markdown]
# ### By hand
#
# A row of three pixels, $x = (1, 2, 4)$, with a zero on either side: $(0, 1, 2, 4, 0)$. The filter $(1, 0, -1)$ gives
# $y = (0 - 2,\ 1 - 4,\ 2 - 0) = (-2, -3, 2)$. Let $dy = (1, 0, 2)$. The first 1 puts the filter at the left end,
# $(1, 0, -1, 0, 0)$, the 2 puts twice the filter at the right end, $(0, 0, 2, 0, -2)$: together $(1, 0, 1, 0, -2)$,
# and without the padding $dx = (0, 1, 0)$. And $dw_u$ is $dy$ laid over the padded row at $u$:
# $(1\cdot0 + 2\cdot2,\ 1\cdot1 + 2\cdot4,\ 1\cdot2 + 2\cdot0) = (4, 9, 2)$.

# %%
row, kernel = np.array([1.0, 2, 4]).reshape(1, 1, 1, 3), np.array([1.0, 0, -1]).reshape(1, 1, 1, 3)
y, cache = F.conv2d(row, kernel, padding=(0, 1))
dx, dw = F.conv2d_backward(np.array([1.0, 0, 2]).reshape(y.shape), cache)
print("y ", y.ravel(), "\ndx", dx.ravel(), "\ndw", dw.ravel())
assert (y.ravel().tolist(), dx.ravel().tolist(), dw.ravel().tolist()) == ([-2, -3, 2], [0, 1, 0], [4, 9, 2])

# %% [markdown]
# ### Is it right?
#
# Three times: the two sentences above, with the *forward* `conv2d` in place of the backward; and the complex step.

# %%
y, cache = F.conv2d(x, weight, stride=2, padding=1)
dy = random.standard_normal(y.shape)                                                # (B, O, 3, 3) for 5×5 pixels
dx, dw = F.conv2d_backward(dy, cache)

between = np.zeros((B, outputs, side, side))
between[..., ::2, ::2] = dy                                                         # zeros between its numbers
turned = weight[..., ::-1, ::-1].transpose(1, 0, 2, 3)                              # (C, O, 3, 3)
assert np.allclose(F.conv2d(between, turned, padding=1)[0], dx, atol=1e-13)
sliding, _ = F.conv2d(x.transpose(1, 0, 2, 3), between.transpose(1, 0, 2, 3), padding=1)    # (C, O, 3, 3)
assert np.allclose(sliding.transpose(1, 0, 2, 3), dw, atol=1e-13)

shapes = ((1, 0, 1), (1, 1, 3), (2, 1, 1), (3, 2, 3))
for stride, padding, groups in shapes:
    arrays = random.standard_normal((2, 3, 5, 4)), random.standard_normal((6, 3 // groups, 3, 2)), np.ones(6)
    report = gradcheck.check(F.conv2d, F.conv2d_backward, (*arrays, stride, padding, groups))
    assert report.max_error < 1e-13, (stride, padding, groups)
print("dx is a convolution with turned filters, dw a correlation; largest error by the complex step below 1e-13")

# %% [markdown]
# ### On a photograph
#
# Four filters of 3×3 on the same photograph: a mean, two edges, and the difference between a pixel and its neighbours.
# The last three have negative weights, which no softmax gives.

# %%
photo = load_sample_image("china.jpg")[:420:2, :630:2].mean(2)[None, None] / 255
kinds = {
    "mean": blur,
    "edges from left to right": np.outer([1, 2, 1], [1, 0, -1]) / 4,
    "edges from top to bottom": np.outer([1, 0, -1], [1, 2, 1]) / 4,
    "unlike its neighbours": (np.eye(9)[4] - 1 / 9).reshape(3, 3),
}
answers, _ = F.conv2d(photo, np.stack(list(kinds.values()))[:, None], padding=1)
figure, axes = plt.subplots(1, 4, figsize=(9, 1.9))
for ax, (name, answer) in zip(axes, zip(kinds, answers[0])):
    limit = np.abs(answer[2:-2, 2:-2]).max()
    ax.imshow(answer, cmap="gray", vmin=0 if name == "mean" else -limit, vmax=limit)
    ax.set_title(name, fontsize=8)
    ax.set_axis_off()
plt.show()
assert np.allclose([kernel.sum() for kernel in kinds.values()], [1, 0, 0, 0]), "of an even surface three see nothing"

# %% [markdown]
# ## Batch norm
#
# Convolutional networks normalise each *channel* over all images of the batch and all their places, $n = BHW$ numbers
# (Ioffe & Szegedy 2015, algorithm 1), where layer norm takes each token by itself (notebook 02):
#
# $$\begin{aligned}
# \mu &= \frac1n \sum_i x_i \\
# \sigma^2 &= \frac1n \sum_i (x_i - \mu)^2 \\
# \hat x_i &= (x_i - \mu)\, r, \quad r = (\sigma^2 + \varepsilon)^{-1/2} \\
# y_i &= \gamma\, \hat x_i + \beta
# \end{aligned} \tag{batch\_norm}$$
#
# with *one* $\gamma$ and one $\beta$ for the channel.

# %%
print(inspect.getsource(F.batch_norm))

# %% [markdown]
# ### The gradient of batch norm
#
# **The parameters** were used by all $n$ numbers: $d\gamma = \sum_i dy_i\, \hat x_i$ and $d\beta = \sum_i dy_i$.
#
# **The input.** $x_j$ acts by itself, through $\mu$ and through $\sigma^2$. With $\partial\mu/\partial x_j = 1/n$ and
# the centred numbers $c_i = x_i - \mu$, whose sum is 0,
#
# $$\begin{aligned}
# \frac{\partial c_i}{\partial x_j} &= \delta_{ij} - \frac1n \\
# \frac{\partial\sigma^2}{\partial x_j} &= \frac2n\sum_i c_i\Big(\delta_{ij} - \frac1n\Big) = \frac{2c_j}n \\
# \frac{\partial r}{\partial x_j} &= -\frac12\, r^3\,\frac{2c_j}n = -\frac{r^2\,\hat x_j}n
# \end{aligned}$$
#
# and, by the product rule for $\hat x_i = c_i\, r$,
#
# $$\frac{\partial\hat x_i}{\partial x_j} = r\Big(\delta_{ij} - \frac1n - \frac{\hat x_i\,\hat x_j}n\Big) .$$
#
# Multiply by $dy_i\,\gamma$ and sum over $i$. $\gamma$ is the same for all $i$ and is a factor of the sums, which are
# then the gradients of the parameters:
#
# $$\begin{aligned}
# dx_j &= \gamma\, r\, g_j \\
# g_j &= dy_j - m - \hat x_j\, v \\
# m &= d\beta / n \\
# v &= d\gamma / n
# \end{aligned} \tag{batch\_norm\_backward}$$

# %%
print(inspect.getsource(F.batch_norm_backward))

# %% [markdown]
# By hand, a channel of four images of one pixel, $x = (1, 1, 3, 3)$: $\mu = 2$, $\sigma = 1$,
# $\hat x = (-1, -1, 1, 1)$. For $dy = (1, 0, 0, 0)$, $\gamma = 1$, the two means are $\frac14$ and $-\frac14$, and
# $dx = dy - \frac14 + \frac14\hat x = (\frac12, -\frac12, 0, 0)$. And by the complex step for arrays of any shape.

# %%
ones, zeros = np.ones(1), np.zeros(1)
y, cache = F.batch_norm(np.array([1.0, 1, 3, 3]).reshape(4, 1, 1, 1), ones, zeros, eps=0.0)
dx, dweight, dbias = F.batch_norm_backward(np.array([1.0, 0, 0, 0]).reshape(4, 1, 1, 1), cache)
print("y ", y.ravel(), "\ndx", dx.ravel())
assert y.ravel().tolist() == [-1, -1, 1, 1] and dx.ravel().tolist() == [0.5, -0.5, 0, 0]

arrays = random.standard_normal((3, 4, 2, 5)), random.standard_normal(4), random.standard_normal(4)
for forward, backward, more in (
    (F.batch_norm, F.batch_norm_backward, ()),
    (F.group_norm, F.group_norm_backward, (2,)),
):
    assert gradcheck.check(forward, backward, (*arrays, *more)).max_error < 1e-13
print("largest error of batch norm and group norm below 1e-13")

# %% [markdown]
# So the images of a batch are no longer independent of one another: change one, and all the others get other results.
# Hence batch norm needs batches that are large enough, and in evaluation it takes means and variances that it has
# collected while training, its *running statistics*, so that an image's class doesn't depend on its company.
#
# **Group norm** (Wu & He 2018) takes the mean and the variance over a group of channels and all places of *one* image,
# so batches may be of one image, training and evaluation are the same, and its gradient is that of layer norm, with
# the numbers of a group for those of a token. With one group it is a layer norm of the whole image.
#
# **Standardised weights** (Qiao et al. 2019) normalise the filters in place of the activations: each filter $w_o$ gets
# mean 0 and variance 1 before it is used, $\hat w_o = (w_o - \mu)/\sqrt{\sigma^2 + \varepsilon}$, and the gradient goes
# back to $w_o$ by the same formula. The ViT paper's ResNets (BiT) use both in place of batch norm, as does its hybrid
# (section 4.1: "this modification improves transfer").

# %%
batch, gamma, beta = arrays
changed = batch.copy()
changed[0] += random.standard_normal(changed[0].shape)
for name, norm in {"batch norm": F.batch_norm, "group norm": partial(F.group_norm, num_groups=2)}.items():
    moved = np.abs(norm(changed, gamma, beta)[0] - norm(batch, gamma, beta)[0])[1:].max()
    print(f"{name}: changing image 0 moves the others' results by up to {moved:.2f}")
    assert moved > 0.1 if norm is F.batch_norm else moved == 0

whole, _ = F.layernorm(batch.reshape(3, -1), np.ones(40), np.zeros(40), eps=1e-5)
assert np.allclose(F.group_norm(batch, np.ones(4), np.zeros(4), 1)[0].reshape(3, -1), whole)
standard, _ = F.standardize_weight(weight, eps=0.0)
assert np.allclose(standard.mean((1, 2, 3)), 0) and np.allclose(standard.var((1, 2, 3)), 1)
assert gradcheck.check(F.standardize_weight, F.standardize_weight_backward, (weight,)).max_error < 1e-12

# %% [markdown]
# ## Who needs how much data?
#
# The ViT paper compares ViTs with ResNets on 1 to 300 million photographs (section 4.3, figures 3 and 4): on few the
# ResNets are ahead, on many the ViTs, and the larger the ViT, the more it needs. The hybrid of section 3.1, whose
# tokens are the places of a ResNet's feature maps, is ahead of the ViT for small budgets (figure 5).
#
# Here the same question for 8×8 digits. `results/data_size.py` has trained three models of about equally many
# multiply-adds on 50 to 1,437 images, which is all there are. Seeds also draw the images; the tables say how many there
# were. All have the same recipe and the same number of steps: AdamW, label smoothing, weight decay, shifts by up to a
# pixel. So a model with few images sees each of them more often. What is drawn was measured before.


# %%
runs = json.loads(Path("results/data_size.json").read_text())["runs"]
COUNTS = {name: data.images for name, data in data_size.DATA.items()}


def runs_of(data, model, n=None, steps=None):
    """The stored runs of a model, by seed."""
    wanted = {"data": data, "model": model} | ({"images": n} if n else {}) | ({"steps": steps} if steps else {})
    found = (run for run in runs if all(run[name] == value for name, value in wanted.items()))
    return sorted(found, key=lambda run: run["seed"])


def accuracies(data, model, n, steps):
    """Test accuracies in percent, one per seed."""
    return [100 * run["accuracy"] for run in runs_of(data, model, n, steps)]


def table(data, models, steps):
    """Print mean ± standard deviation over the seeds by number of training images."""
    counts = [n for n in COUNTS[data] if any(accuracies(data, model, n, steps) for model in models)]
    print(f"{f'{data}, {steps:,} steps':<26}" + "".join(f"{f'{n:,} images':>17}" for n in counts))
    for model in models:
        cells = []
        for found in (accuracies(data, model, n, steps) for n in counts):
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            cells.append(f"{mean(found):.1f}{spread} ({len(found)})" if found else "–")
        print(f"{model:<26}" + "".join(f"{cell:>17}" for cell in cells))


def draw(ax, data, models, steps, **style):
    """Accuracy by number of training images, with the standard deviation where there are several seeds."""
    for model in models:
        found = {n: accuracies(data, model, n, steps) for n in COUNTS[data] if runs_of(data, model, n, steps)}
        spread = [stdev(one) if len(one) > 1 else 0 for one in found.values()]
        ax.errorbar(list(found), [mean(one) for one in found.values()], spread, marker="o", markersize=4, capsize=3,
                    label=model, **style.get(model, {}))  # fmt: skip
    ax.set(xscale="log", xlabel="training images", xticks=COUNTS[data], xticklabels=[f"{n:,}" for n in COUNTS[data]])
    ax.minorticks_off()
    ax.legend(fontsize=7)
    ax.title.set_size(9)


DIGITS, BASIC, STEPS = COUNTS["digits"], ("ViT", "ResNet", "hybrid"), data_size.DATA["digits"].steps
for model in BASIC:
    run = runs_of("digits", model)[0]
    print(f"{model:<8} {run['multiply_adds']:>9,} multiply-adds per image, {run['parameters']:>8,} parameters")
print("\nmean ± standard deviation in percent, and how many seeds")
table("digits", BASIC, STEPS)

# %% [markdown]
# The gap between the ResNet and the ViT, seed by seed on the same images, and where it closes. Between two numbers of
# images, the gap is interpolated over their logarithms.


# %%
def gaps(n, first="ResNet", second="ViT", data="digits"):
    """By how many points the first model is ahead, for each seed that both have."""
    steps = data_size.DATA[data].steps
    seeds = {run["seed"]: 100 * run["accuracy"] for run in runs_of(data, second, n, steps)}
    found = runs_of(data, first, n, steps)
    return [100 * run["accuracy"] - seeds[run["seed"]] for run in found if run["seed"] in seeds]


def crossover(counts, differences):
    """Where the differences change from positive to negative, or None."""
    for (n, above), (m, below) in zip(zip(counts, differences), zip(counts[1:], differences[1:])):
        if above > 0 >= below:
            return float(np.exp(np.log(n) + (np.log(m) - np.log(n)) * above / (above - below)))
    return None


assert np.isclose(crossover((10, 1000), (3, -3)), 100) and crossover((10, 1000), (3, 2)) is None
gap = [mean(gaps(n)) for n in DIGITS]
where = crossover(DIGITS, gap)


def draw_gaps(ax, data, *pairs):
    """By how many points the first model of a pair is ahead of the second: the mean, and each seed as a dot."""
    ax.axhline(0, color="k", linewidth=0.5)
    for color, (first, second) in zip(("k", "C2", "C4"), pairs):
        ax.plot(COUNTS[data], [mean(gaps(n, first, second, data)) for n in COUNTS[data]], "-", color=color,
                label=f"{first} ahead of {second}")  # fmt: skip
        for n in COUNTS[data]:
            seeds = gaps(n, first, second, data)
            ax.plot([n] * len(seeds), seeds, ".", color=color, markersize=4)
    ax.set(xscale="log", xlabel="training images", xticks=COUNTS[data], xticklabels=[f"{n:,}" for n in COUNTS[data]],
           ylabel="points")  # fmt: skip
    ax.minorticks_off()
    ax.legend(fontsize=7)


figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(3, 2))
draw(axes[0], "digits", BASIC, STEPS)
axes[0].set(ylabel="test accuracy, %", title=f"digits, {STEPS} steps; bars: standard deviation of the seeds")
draw_gaps(axes[1], "digits", ("ResNet", "ViT"))
axes[1].set_title("line: mean; dots: each seed")
for ax in axes:
    ax.title.set_size(9)
plt.show()

print("the ResNet is ahead of the ViT by", ", ".join(f"{by:.1f} points at {n:,}" for n, by in zip(DIGITS, gap)))
print(f"they cross at {where:,.0f} images" if where else
      f"the ViT has not caught up at {DIGITS[-1]:,}: it is {gap[-1]:.1f} points behind")  # fmt: skip
assert gap[0] > 10 and gap[-1] < gap[0] / 3 and where is None
assert all(mean(gaps(n, "hybrid")) > 0 and mean(gaps(n, "ResNet", "hybrid")) > 0 for n in (50, 200))

# %% [markdown]
# With 50 images the built-in knowledge is worth more than ten points, and with all of them less than a third of that.
# 1,437 images are too few for a crossover. With few images the hybrid is between the two. That fits the paper, whose
# ViTs take over somewhere between 9 and 300 million photographs.
#
# ### What regularisation changes
#
# Shifted digits are more digits, so regularisation stands in for data, too. On the left without shifts, weight decay
# and label smoothing (dashed); on the right a wider ViT, and another optimizer.

# %%
table("digits", data_size.MODELS, STEPS)
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
plain = {"linestyle": "--"}
draw(axes[0], "digits", ("ViT", "ViT, not regularised", "ResNet", "ResNet, not regularised"), STEPS, **{
    "ViT": {"color": "C0"}, "ViT, not regularised": {"color": "C0", **plain},
    "ResNet": {"color": "C1"}, "ResNet, not regularised": {"color": "C1", **plain},
})  # fmt: skip
draw(axes[1], "digits", ("ViT", "ViT, 128 wide", "ViT, by Muon", "ResNet"), STEPS, **{
    "ViT": {"color": "C0"}, "ViT, 128 wide": {"color": "C2"}, "ViT, by Muon": {"color": "C3"},
    "ResNet": {"color": "C1"},
})  # fmt: skip
axes[0].set(ylabel="test accuracy, %")
plt.show()

gained = {model: [mean(gaps(n, model, f"{model}, not regularised")) for n in DIGITS] for model in ("ViT", "ResNet")}
for model, points in gained.items():
    print(f"{model:<7} gains by regularisation", ", ".join(f"{by:.1f} at {n:,}" for n, by in zip(DIGITS, points)))
bare = [mean(gaps(n, "ResNet, not regularised", "ViT, not regularised")) for n in DIGITS]
wider = [mean(gaps(n, "ViT, 128 wide", "ViT")) for n in DIGITS]
by_muon = [mean(gaps(n, "ResNet, by Muon", "ViT, by Muon")) for n in DIGITS]
print("by Muon, the ResNet is ahead by", ", ".join(f"{by:.1f} at {n:,}" for n, by in zip(DIGITS, by_muon)))
print("without it, the ResNet is ahead by", ", ".join(f"{by:.1f} at {n:,}" for n, by in zip(DIGITS, bare)))
print("a wider ViT gains", ", ".join(f"{by:.1f} at {n:,}" for n, by in zip(DIGITS, wider)))
assert gained["ResNet"][0] > 5 > gained["ViT"][0] and bare[0] < gap[0] / 2
assert all(by < 1 for by in wider)
assert by_muon[0] > 10 and by_muon[-1] < gap[-1]

# %% [markdown]
# With 50 images it is the ResNet that gains by shifts, weight decay and label smoothing together (they were not taken
# apart), not the ViT. Without them, most of its lead is gone. So "what a convolution's knowledge is worth" doesn't
# depend on the architecture alone. Muon serves both, and the ViT more where images are many: its gap at the end is
# smaller than AdamW's. A wider ViT is nowhere better by a point: there are too few images for it.
#
# ### The same with photographs
#
# CIFAR-10 (JPEG copy), with the same models for 32×32 pixels, the recipe of above, shifts by up to four pixels and
# mirrored images: 1,000 steps of 100 images, which is two passes over all 50,000 and 200 over 500.

# %%
PHOTOGRAPHS, MORE_STEPS = COUNTS["cifar10"], data_size.DATA["cifar10"].steps
FOUR = *BASIC, "ViT, 128 wide"
for model in FOUR:
    run = runs_of("cifar10", model)[0]
    print(f"{model:<14} {run['multiply_adds']:>11,} multiply-adds per image, {run['parameters']:>8,} parameters")
print("\nmean ± standard deviation in percent, and how many seeds")
table("cifar10", FOUR, MORE_STEPS)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(3, 2))
draw(axes[0], "cifar10", FOUR, MORE_STEPS)
axes[0].set(ylabel="test accuracy, %", title=f"CIFAR-10, {MORE_STEPS:,} steps; bars: standard deviation of the seeds")
draw_gaps(axes[1], "cifar10", ("ResNet", "ViT"), ("hybrid", "ViT"), ("ResNet", "hybrid"))
axes[1].set_title("lines: mean; dots: each seed")
for ax in axes:
    ax.title.set_size(9)
plt.show()

ahead = {pair: [mean(gaps(n, *pair, "cifar10")) for n in PHOTOGRAPHS] for pair in
         (("ResNet", "ViT"), ("hybrid", "ViT"), ("ResNet", "hybrid"), ("ViT, 128 wide", "ViT"))}  # fmt: skip
for (first, second), points in ahead.items():
    print(f"{first} ahead of {second}:", ", ".join(f"{by:.1f} at {n:,}" for n, by in zip(PHOTOGRAPHS, points)))
crossing = crossover(PHOTOGRAPHS, ahead["ResNet", "hybrid"])
print(f"the hybrid overtakes the ResNet at {crossing:,.0f} images" if crossing else "hybrid and ResNet don't cross")

# %% [markdown]
# The same picture, at its left end. With 500 photographs the ResNet is ahead of the ViT by four points, with all 50,000
# by two. The ViT has not caught up, but a ViT that reads feature maps has overtaken the ResNet on the way: convolutions
# pay off for the first layers, and attention for the later ones. A wider ViT is behind everywhere, by one point with
# few images and by two with all.
#
# How much of that is data, and how much speed? 1,000 steps are few: the presets, with larger models and seven to eleven
# times as many images, reach 83 % (ViT), 87 % (hybrid) and 88 % (ResNet). Of 50,000 images each was seen twice, so that
# the last two columns hardly differ. The first two say more about data: with 500 images nobody gains much in the second
# half of the steps.

# %%
assert all(points > 1 for points in ahead["ResNet", "ViT"]) and ahead["ResNet", "ViT"][-1] < ahead["ResNet", "ViT"][0]
assert 2500 < crossing < 10_000 and all(points < 0 for points in ahead["ViT, 128 wide", "ViT"])
halfway = {n: mean(100 * (run["history"][-1][1] - run["history"][0][1]) for model in BASIC
                   for run in runs_of("cifar10", model, n, MORE_STEPS)) for n in (500, 50_000)}  # fmt: skip
print(", ".join(f"{points:.1f} points in the second half with {n:,} images" for n, points in halfway.items()))
assert halfway[500] < 2 < 5 < halfway[50_000]

# %% [markdown]
# ### What the same accuracy costs
#
# With all 1,437 digits: at which step does each model first have an accuracy (mean over the seeds), and what has it
# cost until then? A training step takes a forward and a backward of twice as many multiply-adds, for $dx$ and $dW$.
# Seconds are those of a processor with one thread, shared out evenly among the steps; the evaluations are in them.

# %%
TARGETS = (0.8, 0.9, 0.95)


def reached(model, target):
    """(steps, multiply-adds, seconds) until the mean accuracy of the seeds first is the target, or None."""
    found = runs_of("digits", model, DIGITS[-1], STEPS)
    steps = [step for step, *_ in found[0]["history"]]
    curve = np.mean([[accuracy for _, accuracy, _ in run["history"]] for run in found], axis=0)
    if curve.max() < target:
        return None
    done, run = steps[int(np.argmax(curve >= target))], found[0]
    a_step = median(run["cpu_seconds"] / run["steps_done"] for run in runs_of("digits", model, None, STEPS))
    return done, 3 * done * run["batch_size"] * run["multiply_adds"], done * a_step


print("accuracy   " + "".join(f"{model:>34}" for model in BASIC))
for target in TARGETS:
    costs = [reached(model, target) for model in BASIC]
    cells = [f"{done} steps, {count / 1e9:.1f} G, {seconds:.1f} s" if done else "–" for done, count, seconds in
             (cost or (0, 0, 0) for cost in costs)]  # fmt: skip
    print(f"{100 * target:.0f} %       " + "".join(f"{cell:>34}" for cell in cells))
print("G: 1,000,000,000 multiply-adds")

# %% [markdown]
# A convolution's knowledge saves steps, too: the ResNet needs the fewest for every accuracy. How many it needs is known
# only to within 28 steps, the distance of two evaluations, so two accuracies can be reached at the same one.

# %% [markdown]
# ## Does it move with the image?
#
# A convolution responds to a pattern in the same way wherever it is: if the image is shifted, so is the response. With
# $T$ for the shift it is *equivariant*, $f(Tx) = Tf(x)$, and that is what needs no data to be learned. The proof is one
# line: $\sum_\delta (Tx)_{i+\delta} W_\delta = \sum_\delta x_{i-t+\delta} W_\delta = (Tf(x))_i$. At the edge of an
# image this fails: the zeros around it don't move along. A ViT's blocks don't depend on places at all, so they are
# equivariant to *any* permutation of the patches. Its positions and the borders of its patches are not.
#
# How far is a function from that? `probe.equivariance_error` measures $\|f(Tx) - Tf(x)\| / \|f(x)\|$ of feature maps,
# and $\|f(Tx) - f(x)\| / \|f(x)\|$ of logits, which have no places.

# %%
print(inspect.getsource(probe.equivariance_error))

# %% [markdown]
# Three small models, trained here for 20 epochs: a ViT with patches of 2×2, once without shifted images and once with,
# by Muon, which takes fewer steps; and the ResNet of above.

# %%
FINE = replace(data_size.VIT, patch_size=2, embed_dim=48)


def trained_here(name, config, shifts):
    """A model trained for 20 epochs on all digits, by the recipe of that name."""
    config = replace(
        data_size.configured("digits", name, 1437, STEPS, 0), model=config, epochs=20, evaluate_every=20,
        augment=data_size.AugmentConfig(crop=shifts),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        train(config, f"{folder}/run")
        return load_trained(f"{folder}/run", device="cpu").model


without, shifted = (trained_here("ViT, by Muon", FINE, shifts) for shifts in (0, 1))
resnet = trained_here("ResNet", data_size.RESNET, 1)
labels = digits.labels
for name, model in {"ViT, without shifts": without, "ViT, with shifts": shifted, "ResNet, with shifts": resnet}.items():
    there, moved = (
        (model.predict(np.roll(images, by, 3)).argmax(1) == labels).mean() for by in (0, 1)
    )  # fmt: skip
    print(f"{name:<20} {there:.1%} of the test digits are right, {moved:.1%} after a shift by a pixel to the right")
    assert there > 0.8


# %%
def maps(model, depth):
    """The function from images to the feature maps (B, C, H', W') of a model's layer."""

    def of(images):
        x = images
        for _, part in model.parts()[: depth + 1]:
            x, _ = part(x, None)
        if x.ndim == 3:
            rows, columns = model.grid_of(images)
            x = x[:, model.num_prefix_tokens :].mT.reshape(len(x), -1, rows, columns)
        return x

    return of


def logits(model):
    """The function from images to the logits of a model."""
    return lambda images: model(images)[0]


kernel = random.standard_normal((8, 1, 3, 3))


def wrapping(images):
    """A convolution of images that go on at their other side."""
    return F.conv2d(np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), "wrap"), kernel)[0]


def padded(images):
    """The same convolution of images with zeros around them."""
    return F.conv2d(images, kernel, padding=1)[0]


nowhere, anew = (build(replace(FINE, positions=positions), seed=1) for positions in ("none", "sincos_2d"))
rows = {
    "convolution of 3×3, the image wrapped round": (wrapping, None),
    "convolution of 3×3, zeros around the image": (padded, None),
    "ViT, random, without positions": (maps(nowhere, 3), None),
    "ViT, random": (maps(anew, 3), None),
    "ViT, trained without shifts": (maps(without, 3), logits(without)),
    "ViT, trained with shifts": (maps(shifted, 3), logits(shifted)),
    "ResNet, trained with shifts: layer1": (maps(resnet, 1), logits(resnet)),
}
error = {}
print(f"{'mean error over the test digits':<46} maps, 2 pixels   logits, 1 pixel")
for name, (features, answer) in rows.items():
    of_maps = probe.equivariance_error(features, images, (0, 2)).mean()
    of_logits = probe.equivariance_error(answer, images, (0, 1)).mean() if answer else None
    error[name] = of_maps, of_logits
    print(f"{name:<46} {of_maps:14.1e}   " + (f"{of_logits:15.2f}" if answer else f"{'–':>15}"))
inside = probe.equivariance_error(padded, images, (0, 2), margin=3).max()

assert error["convolution of 3×3, the image wrapped round"][0] < 1e-12 and inside < 1e-12
assert error["ViT, random, without positions"][0] < 1e-5 < 0.01 < error["ViT, random"][0]
assert min(error[f"ViT, trained {how} shifts"][0] for how in ("with", "without")) > error["ViT, random"][0]
assert error["ViT, trained with shifts"][1] < error["ViT, trained without shifts"][1]
assert error["ResNet, trained with shifts: layer1"][0] < error["ViT, trained with shifts"][0]

# %% [markdown]
# A convolution moves exactly with the image, up to its edge. A ViT without positions does so, too, as long as the shift
# is by whole patches. With positions it doesn't, and training makes its features *less* equivariant, not more: it uses
# its positions. What it learns from shifted images is that the *answer* must not change. That takes images. The ResNet
# has most of it from the start; what it lacks comes from the zeros around the image, which don't move along.
#
# ## How far do they see?
#
# A convolution of $k$ pixels sees $k$ places of what it reads. Let a step on the maps that layer $l$ reads be $j_{l-1}$
# pixels of the image. Then its *receptive field* in pixels, and the step of what it gives, are
#
# $$\begin{aligned}
# r_l &= r_{l-1} + (k_l - 1)\, j_{l-1} \\
# j_l &= s_l\, j_{l-1}
# \end{aligned}$$
#
# with $r_0 = j_0 = 1$. Pixels outside can't matter. How much those inside do is the gradient of one place of the maps
# with respect to the pixels, the *effective* receptive field (Luo et al. 2016). Attention has no such bound. Our
# digits of 8×8 pixels are too small to see a difference, so the ResNet gets 16 of them, as a mosaic of 32×32 pixels:
# convolutions read images of any size. Beside it the ViT of notebook 08 reads photographs of 32×32 pixels. Colours are
# by logarithms: the largest gradient of a layer is 1, and black is a thousandth of it or less.

# %%
print(inspect.getsource(probe.effective_receptive_field))


# %%
def radius(field):
    """Root mean square distance from the middle of what counts, in pixels."""
    weights = field**2 / (field**2).sum()
    places = np.indices(field.shape)
    centre = (weights * places).sum((1, 2), keepdims=True)
    return float(np.sqrt((weights * (places - centre) ** 2).sum()))


mosaic = images[:256].reshape(16, 4, 4, 8, 8).transpose(0, 1, 3, 2, 4).reshape(16, 1, 32, 32)
seen_by_resnet = probe.effective_receptive_field(resnet, mosaic)
larger = load_trained("cifar10-cpu", device="cpu")
photographs = [load_sample_image(name).transpose(2, 0, 1) for name in ("china.jpg", "flower.jpg")]
corners = [(top, left) for top in range(0, 330, 66) for left in range(0, 540, 66)]
pieces = np.stack([whole[:, i : i + 96 : 3, j : j + 96 : 3] for whole in photographs for i, j in corners])
scaling = larger.preprocessing
pieces = (pieces / 255 - np.reshape(scaling.mean, (3, 1, 1))) / np.reshape(scaling.std, (3, 1, 1))
pieces = pieces.astype("float32")
seen_by_vit = probe.effective_receptive_field(larger.model, pieces[::3])

figure, axes = plt.subplots(2, 7, figsize=(9, 3))
for ax in axes.flat:
    ax.set_axis_off()
for row, model, fields in zip(axes, ("ResNet", "ViT"), (seen_by_resnet, seen_by_vit)):
    for ax, (name, field) in zip(row, fields.items()):
        shown = ax.imshow(np.maximum(field / field.max(), 1e-3), cmap="inferno", norm=LogNorm(1e-3, 1))
        ax.set_title(f"{model}, {name}", fontsize=7)
figure.colorbar(shown, ax=axes, shrink=0.8)
plt.show()

field, step, bounds = 1, 1, []
for stem_or_block in ([(3, 1)], [(3, 1), (3, 1)], [(3, 2), (3, 1)], [(3, 2), (3, 1)]):
    for size, stride in stem_or_block:
        field, step = field + (size - 1) * step, step * stride
    bounds.append(field)
for (name, measured), bound in zip(seen_by_resnet.items(), bounds):
    print(f"ResNet {name:<9} receptive field {bound}×{bound}, effective radius {radius(measured):.1f} pixels")
    assert probe.receptive_box(measured) == (bound, bound)
shares = [(measured > 0).mean() for measured in seen_by_vit.values()]
for (name, measured), share in zip(seen_by_vit.items(), shares):
    print(f"ViT {name:<9} {share:4.0%} of the pixels count, effective radius {radius(measured):.1f} pixels")
assert shares == [1 / 64, 1, 1, 1, 1, 1, 1]

# %% [markdown]
# A ResNet sees further with each layer, never beyond its window, and the middle of the window counts most. A ViT sees
# all of the image after one block, if faintly: the residual connections keep each token what it was. And how far does
# its attention look? The mean attention distance of notebook 08, by depth, beside the radius of what counts for the
# middle:

# %%
watched = probe.trace(larger.model, pieces)
far = probe.mean_attention_distance(watched.attention, (8, 8), 4).mean(1)           # (L, H)
figure, ax = plt.subplots(figsize=(5.5, 2.8))
blocks = np.arange(1, len(far) + 1)
ax.plot(blocks, far, ".", color="C0")
ax.plot(blocks, far.mean(1), color="C0", label="ViT: mean attention distance; dots: heads")
radii = [[radius(field) for field in fields.values()] for fields in (seen_by_vit, seen_by_resnet)]
for of_model, name, colour in zip(radii, ("ViT", "ResNet"), ("C0", "C1")):
    ax.plot(range(len(of_model)), of_model, "o--", markersize=4, color=colour, label=f"{name}: effective radius")
ax.set(xlabel="blocks passed", ylabel="pixels", ylim=(0, None))
ax.legend(fontsize=7, loc="center left")
plt.show()
assert all(of_model[-1] > 2 * of_model[0] for of_model in radii)
assert all(measured < bound / 4 for measured, bound in zip(radii[1][1:], bounds[1:]))
assert far.mean(1).min() > 1.5 * max(radii[0])

# %% [markdown]
# With depth what counts spreads, in both. The attention of the ViT looks far from its first block on.
#
# ## What do they keep, the fine or the coarse?
#
# Park & Kim (2022) find that attention smooths feature maps, since it takes means, and that convolutions sharpen them.
# `probe.fourier_spectrum` gives the amplitude of each frequency of the maps next to that of their mean, by logarithms.
# Here is how much each operation changes the amplitude of the highest frequency, output minus input, for the test
# digits. Only convolutions with stride 1, whose maps have the same places before and after.


# %%
def highest(x, grid=None):
    """Log amplitude of the highest frequency of tokens (B, 1 + N, D) or maps (B, C, H, W) next to that of the mean."""
    prefix = 1
    if x.ndim == 4:
        prefix, grid, x = 0, x.shape[2:], x.reshape(*x.shape[:2], -1).mT
    _, amplitudes = probe.fourier_spectrum(x[None], grid, prefix)
    return amplitudes.mean(1)[0, -1]


of_vit, of_resnet = (probe.trace(model, images).values for model in (shifted, resnet))
cells, changes = shifted.grid_of(images), {}
for block in range(shifted.depth):
    for norm, operation in (("norm1", "attn"), ("norm2", "mlp")):
        read, given = (of_vit[f"blocks.{block}.{name}"] for name in (norm, operation))
        changes[f"{operation} {block}"] = highest(given, cells) - highest(read, cells)
changes["layer1.0.conv1"] = highest(of_resnet["layer1.0.conv1"]) - highest(maps(resnet, 0)(images))
for layer in ("layer1.0", "layer2.0", "layer3.0"):
    read = F.relu(of_resnet[f"{layer}.bn1"])[0]
    changes[f"{layer}.conv2"] = highest(of_resnet[f"{layer}.conv2"]) - highest(read)

figure, ax = plt.subplots(figsize=(7, 2.8))
colours = {"attn": "C0", "mlp": "C2", "laye": "C1"}
ax.bar(range(len(changes)), changes.values(), color=[colours[name[:4].strip()] for name in changes])
ax.axhline(0, color="k", linewidth=0.5)
ax.set(xticks=range(len(changes)), ylabel="change of log amplitude")
ax.set_xticklabels(changes, rotation=30, ha="right", fontsize=8)
plt.show()
for name, change in changes.items():
    print(f"{name:<15} {change:5.2f}")
assert all(change < 0 for name, change in changes.items() if name.startswith("attn"))
assert changes["layer1.0.conv1"] + changes["layer1.0.conv2"] > 0 > changes["layer3.0.conv2"]

# %% [markdown]
# Attention smooths in every block. The convolutions sharpen where the maps are large, 8×8, as the paper finds. The last
# one smooths, too: its maps are 2×2, so that each filter sees all of them, and the head takes their mean.

# %% [markdown]
# ## Exercises
#
# **1.** How many pixels to a side does one place on the last maps of a ResNet-18 see? Its stem is a convolution of 7×7
# with stride 2 and a max pooling of 3×3 with stride 2. Four stages of two blocks follow, each of two convolutions of
# 3×3; the first convolution of every stage but the first has stride 2. Put your number in place of `None`.

# %%
my_field = None

# %%
field, step = 1, 1
for size, stride in [(7, 2), (3, 2)] + [(3, 1)] * 4 + 3 * ([(3, 2)] + [(3, 1)] * 3):
    field, step = field + (size - 1) * step, step * stride
hint = "Begin at 1 pixel. Each layer adds its side less 1, times the product of the strides before it."
exercises.check_number("my_field", my_field, field, hint)

# %% [markdown]
# **2.** A convolution of 3×3 from 64 channels to 64, and attention with its four projections, 64 wide: for images of
# how many pixels does the attention take more multiply-adds, if each pixel is a token? Attention takes $4ND^2 + 2N^2D$.
# Put the smallest such $N$ in place of `None`.

# %%
my_pixels = None

# %%
D = 64
smallest = next(N for N in range(1, 10_000) if 4 * N * D**2 + 2 * N**2 * D > 9 * N * D**2)
hint = "The convolution takes 9 N D² of them. Divide both by N D."
exercises.check_number("my_pixels", my_pixels, smallest, hint)

# %% [markdown]
# **3.** The gradients of a convolution, as derived above. Which products does each number of the filter occur in, and
# which each pixel? `print(exercises.describe("conv2d_backward"))` describes its arguments and results.


# %%
def my_conv2d_backward(dy, x, weight, stride, padding):
    # dy: (B, O, H', W'). x: (B, C, H, W). weight: (O, C, P, Q). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros(len(weight))


exercises.check("conv2d_backward", my_conv2d_backward)

# %% [markdown]
# **4.** The gradients of batch norm in training, where each number moves the mean and the variance of its channel.


# %%
def my_batch_norm_backward(dy, x, weight, eps):
    # dy, x: (B, C, H, W). weight: (C,). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros_like(weight)


exercises.check("batch_norm_backward", my_batch_norm_backward)

# %% [markdown]
# **5.** The convolution itself, and the depthwise one with its gradients.


# %%
def my_conv2d(x, weight, bias, stride, padding):
    # x: (B, C, H, W). weight: (O, C, P, Q). bias: (O,)
    return np.zeros_like(x)  # in place of this, y (B, O, H', W')


exercises.check("conv2d", my_conv2d)


# %%
def my_depthwise_conv2d(x, weight, padding):
    # x: (B, C, H, W). weight: (C, P, Q)
    return np.zeros_like(x)  # in place of this, y


exercises.check("depthwise_conv2d", my_depthwise_conv2d)


# %%
def my_depthwise_conv2d_backward(dy, x, weight, padding):
    # dy, x: (B, C, H, W). weight: (C, P, Q). Returns dx, dweight
    return np.zeros_like(x), np.zeros_like(weight)


exercises.check("depthwise_conv2d_backward", my_depthwise_conv2d_backward)

# %% [markdown]
# **6.** Batch norm in training, and the statistics that it will use when it predicts.


# %%
def my_batch_norm(x, weight, bias, eps):
    # x: (B, C, H, W). weight, bias: (C,)
    return np.zeros_like(x)  # in place of this, y (B, C, H, W)


exercises.check("batch_norm", my_batch_norm)


# %%
def my_running_statistics(x, running_mean, running_variance, momentum):
    # x: (B, C, H, W). running_mean, running_variance: (C,). Returns both after the step
    return np.zeros_like(running_mean), np.zeros_like(running_variance)


exercises.check("running_statistics", my_running_statistics)

# %% [markdown]
# **7.** Group norm, and its gradients. Over which numbers is each mean?


# %%
def my_group_norm(x, weight, bias, num_groups, eps):
    # x: (B, C, H, W). weight, bias: (C,)
    return np.zeros_like(x)  # in place of this, y (B, C, H, W)


exercises.check("group_norm", my_group_norm)


# %%
def my_group_norm_backward(dy, x, weight, num_groups, eps):
    # dy, x: (B, C, H, W). weight: (C,). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros_like(weight)


exercises.check("group_norm_backward", my_group_norm_backward)

# %% [markdown]
# **8.** Standardised filters, and their gradients.


# %%
def my_standardize_weight(weight, eps):
    # weight: (O, C, P, Q)
    return np.zeros_like(weight)  # in place of this, the standardised filters


exercises.check("standardize_weight", my_standardize_weight)


# %%
def my_standardize_weight_backward(dy, weight, eps):
    # dy, weight: (O, C, P, Q)
    return np.zeros_like(weight)  # in place of this, dweight


exercises.check("standardize_weight_backward", my_standardize_weight_backward)

# %% [markdown]
# **9.** ReLU first, as a first step: which numbers let a gradient pass? Then the poolings. A pixel can be the largest
# of several windows.


# %%
def my_relu_backward(dy, x):
    # dy, x: (B, C, H, W)
    return np.zeros_like(x)  # in place of this, dx


exercises.check("relu_backward", my_relu_backward)


# %%
def my_max_pool2d(x, kernel, stride):
    # x: (B, C, H, W)
    return np.zeros_like(x)  # in place of this, y (B, C, H', W')


exercises.check("max_pool2d", my_max_pool2d)


# %%
def my_max_pool2d_backward(dy, x, kernel, stride):
    # dy: (B, C, H', W'). x: (B, C, H, W)
    return np.zeros_like(x)  # in place of this, dx


exercises.check("max_pool2d_backward", my_max_pool2d_backward)


# %%
def my_avg_pool2d_backward(dy, kernel, stride, img_size):
    # dy: (B, C, H', W'). img_size: (H, W)
    return np.zeros((*dy.shape[:2], *img_size))  # in place of this, dx


exercises.check("avg_pool2d_backward", my_avg_pool2d_backward)
