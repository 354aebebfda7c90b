# %% [markdown]
# # 01 · Images into tokens
#
# A transformer takes a sequence of vectors. So the image is cut into patches, each patch is projected to a vector, and
# another vector is added that says where the patch was. The result is a list of *tokens*, as if the patches were the
# words of a sentence.
#
# Dosovitskiy et al. 2021, "An image is worth 16×16 words", section 3.1 and equation 1:
#
# $$\begin{aligned}
# z_0 = [\,x_{\text{class}};\ &x^1_p E;\ x^2_p E;\ \dots;\ x^N_p E\,] \\
# &+ E_{\text{pos}}
# \end{aligned} \tag{Embed.forward}$$
#
# This notebook goes through the equation from the inside out: the patches $x_p$, the projection $E$, the class token in
# front, the positions, each followed by its gradient. To the right of a formula is the name of the function in
# `tinyvit.functional` that computes it, and the cell after it shows that function's code.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from tinyvit import ViT, ViTConfig, exercises, gradcheck
from tinyvit import functional as F
from tinyvit.training.trained import load_data, load_trained

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True, "image.cmap": "gray"})
np.set_printoptions(precision=3, suppress=True)

photo = Image.fromarray(load_sample_image("china.jpg")).crop((140, 0, 567, 427)).resize((224, 224))
image = np.asarray(photo, "float64").transpose(2, 0, 1)[None] / 255    # (B, C, H, W)
assert image.shape == (1, 3, 224, 224)

# %% [markdown]
# The size of ViT-B/16: an image of 224×224 pixels and patches of 16×16, which makes 14 rows of 14 patches.

# %%
figure, (whole, row_of_patches) = plt.subplots(2, 1, figsize=(4.1, 4.7), height_ratios=(10, 1))
whole.imshow(photo)
for side in range(16, 224, 16):
    whole.axhline(side - 0.5, color="white", linewidth=0.7)
    whole.axvline(side - 0.5, color="white", linewidth=0.7)
for n in range(0, 196, 15):
    row, column = divmod(n, 14)
    whole.text(16 * column + 8, 16 * row + 8, n, color="white", fontsize=7, ha="center", va="center")
whole.set_title("196 patches, counted row by row")

gap = np.ones((3, 16, 4))                                              # white, between the patches of row 7
pieces = [np.concatenate([image[0, :, 112:128, 16 * n : 16 * n + 16], gap], axis=2) for n in range(14)]
row_of_patches.imshow(np.concatenate(pieces, axis=2).transpose(1, 2, 0))
row_of_patches.set_title("patches 98 to 111: as the model reads them, one after the other")
for axes in (whole, row_of_patches):
    axes.axis("off")
plt.show()

# %% [markdown]
# Equation 1 as a drawing, for an image of only four patches. Each row of $x_p$ is a patch; all are multiplied by the
# same matrix $E$. The class token (red) goes in front of the results, and every row, the class token's as well, gets
# the vector of its position (green) added.

# %%
figure, axes = plt.subplots(figsize=(8.4, 2.7))
blue, red, green = [["tab:blue"] * 4, ["tab:red"], ["tab:green"] * 5]
matrices = [  # name, left edge, top, columns, the colour of each row
    ("$x_p$", 0, 4, 7, ["tab:orange"] * 4), ("$E$", 8.4, 5.5, 3, ["silver"] * 7),
    (r"$[x_{\rm class};\ x_p E]$", 13.4, 5, 3, red + blue),
    (r"$E_{\rm pos}$", 18, 5, 3, green), ("$z_0$", 22.6, 5, 3, red + blue),
]  # fmt: skip
for name, left, top, columns, colours in matrices:
    for row, colour in enumerate(colours):
        axes.add_patch(plt.Rectangle((left, top - row - 1), columns, 0.9, facecolor=colour, alpha=0.6))
    axes.text(left + columns / 2, top + 0.3, name, ha="center", va="bottom")
axes.add_patch(plt.Rectangle((22.6, 0), 3, 4.9, facecolor="none", edgecolor="tab:green", linewidth=3))
for left, sign in ((7.7, "×"), (12.4, "→"), (17.2, "+"), (21.8, "=")):
    axes.text(left, 2, sign, ha="center", va="center", fontsize=15)
axes.text(3.5, -0.3, r"four patches, $3 \cdot P^2$ numbers each", ha="center", va="top", fontsize=8)
axes.text(24.1, -0.3, "five tokens, $D$ numbers each", ha="center", va="top", fontsize=8)
axes.set(xlim=(-1, 27.5), ylim=(-1.7, 6.6), aspect="equal")
axes.axis("off")
plt.show()

# %% [markdown]
# ## Cutting
#
# Patch $n$ is the one in row $u = \lfloor n / \text{columns} \rfloor$ and column $v = n \bmod \text{columns}$ of the
# grid. Its numbers are laid out in the order channel $c$, row $i$, column $j$ within the patch. With patches $P$ pixels
# high and $Q$ wide,
#
# $$p_{b,\,n,\,(c P + i)\,Q + j} = x_{b,\ c,\ uP + i,\ vQ + j} \tag{patchify}$$
#
# There is no arithmetic here; numbers only change their places. In NumPy, each side of the image is reshaped to two
# axes, (which patch, where in the patch), and the axes are transposed:

# %%
print(inspect.getsource(F.patchify))

# %% [markdown]
# By hand, for one channel of 4×4 pixels, numbered as one reads, and patches of 2×2. The first patch holds the pixels
# 0 and 1 of the first row and 4 and 5 of the second:

# %%
tiny = np.arange(16.0).reshape(1, 1, 4, 4)
patches, _ = F.patchify(tiny, 2)                                       # (B, N, C·P·Q)
print("image\n", tiny[0, 0], "\npatches, one a row\n", patches[0])
assert patches[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]

# %% [markdown]
# On the photograph a patch holds $3 \cdot 16 \cdot 16 = 768$ numbers. Patch 100 starts at pixel row $16 \cdot 7$ and
# pixel column $16 \cdot 2$, since $100 = 7 \cdot 14 + 2$.

# %%
patches, patches_cache = F.patchify(image, 16)
assert patches.shape == (1, 196, 768)
row, column = divmod(100, 14)
assert (row, column) == (7, 2)
np.testing.assert_array_equal(
    patches[0, 100].reshape(3, 16, 16), image[0, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
)

# %% [markdown]
# ### The gradient of cutting
#
# Let $\mathcal L$ be the loss, and write $dp$ for $\partial \mathcal L / \partial p$ and $dx$ for
# $\partial \mathcal L / \partial x$, arrays of the shapes of $p$ and $x$. That is the notation everywhere in this
# project: *the gradient of `weight` is `dweight`*.
#
# By the chain rule, a pixel's gradient is a sum over all the numbers that the pixel went into:
#
# $$dx_{b,c,h,w} = \sum_{n,k} dp_{b,n,k}\, \frac{\partial p_{b,n,k}}{\partial x_{b,c,h,w}}$$
#
# The derivative is 1 for the one pair $(n, k)$ that holds the pixel, and 0 for all others. So the sum has a single
# term:
#
# $$\begin{aligned}
# &dx_{b,\ c,\ uP + i,\ vQ + j} \\
# &\quad = dp_{b,\,n,\,(c P + i)\,Q + j}
# \end{aligned} \tag{patchify\_backward}$$
#
# So each gradient goes back to where its number came from. That is the inverse of cutting, `unpatchify`:

# %%
print(inspect.getsource(F.patchify_backward))

# %%
back, _ = F.unpatchify(patches, 16)
np.testing.assert_array_equal(back, image)                             # nothing was lost

dpatches = np.random.default_rng(0).standard_normal(patches.shape)
np.testing.assert_array_equal(F.patchify_backward(dpatches, patches_cache), F.unpatchify(dpatches, 16)[0])

# %% [markdown]
# ## Projecting
#
# A patch of 768 numbers becomes a token of $D$ numbers by a *linear layer*, the same for all patches. Let $x_n$ be the
# numbers of patch $n$, counted through the whole batch, and $W$ the weight with one row for each of the $D$ results,
# which is how PyTorch and timm store it:
#
# $$y_{ni} = \sum_j x_{nj} W_{ij} + b_i \qquad\text{or}\qquad y = x\,W^\top + b \tag{linear}$$

# %%
print(inspect.getsource(F.linear))

# %% [markdown]
# By hand: two patches of three numbers, projected to two.

# %%
x = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])
weight = np.array([[1.0, 0.0, 2.0], [-1.0, 1.0, 0.5]])
bias = np.array([0.5, 0.0])

y, cache = F.linear(x, weight, bias)
print(y)
assert y[0, 0] == 1 * 1 + 2 * 0 + 0 * 2 + 0.5 == 1.5
assert y[0, 1] == 1 * -1 + 2 * 1 + 0 * 0.5 == 1.0
assert y[1, 0] == 0 * 1 + -1 * 0 + 3 * 2 + 0.5 == 6.5
assert y[1, 1] == 0 * -1 + -1 * 1 + 3 * 0.5 == 0.5

# %% [markdown]
# ### The gradient of a linear layer
#
# This is the most used gradient of the whole model: queries, keys, values, both layers of each MLP and the head are
# linear layers. Given is $dy_{ni} = \partial \mathcal L / \partial y_{ni}$; wanted are $dx$, $dW$ and $db$.
#
# **The input.** The loss depends on $x_{mj}$ through all the $y_{ni}$:
#
# $$dx_{mj} = \sum_{n,i} dy_{ni}\,\frac{\partial y_{ni}}{\partial x_{mj}}$$
#
# $x_{mj}$ occurs only in row $n = m$, once, multiplied by $W_{ij}$. With $\delta_{nm}$, which is 1 where $n = m$ and 0
# elsewhere:
#
# $$\frac{\partial y_{ni}}{\partial x_{mj}} = \delta_{nm} W_{ij}
# \qquad\Longrightarrow\qquad dx_{mj} = \sum_{n,i} dy_{ni}\,\delta_{nm} W_{ij} = \sum_i dy_{mi} W_{ij}$$
#
# which is the product of matrices $dy\,W$.
#
# **The weight.** $W_{kj}$ occurs only in column $i = k$ of the result, but in every row, multiplied by $x_{nj}$:
#
# $$\begin{aligned}
# &\frac{\partial y_{ni}}{\partial W_{kj}} = \delta_{ik}\,x_{nj} \\
# &\Longrightarrow\quad dW_{kj} = \sum_{n,i} dy_{ni}\,\delta_{ik}\,x_{nj} = \sum_n dy_{nk}\,x_{nj}
# \end{aligned}$$
#
# The sum runs over the first index of both, so the first factor is transposed: $dy^\top x$. (Of an array $(B, N, D)$,
# make rows first: `x.reshape(-1, D)`. With three axes `.T` would turn all of them round.)
#
# **The bias.** $b_k$ is added in column $k$ of every row:
#
# $$\frac{\partial y_{ni}}{\partial b_k} = \delta_{ik}
# \qquad\Longrightarrow\qquad db_k = \sum_{n,i} dy_{ni}\,\delta_{ik} = \sum_n dy_{nk}$$
#
# Together:
#
# $$\begin{aligned}
# dx &= dy\,W \\
# dW &= dy^\top x \\
# db &= \sum_n dy_n
# \end{aligned} \tag{linear\_backward}$$
#
# The shapes are a first check. $dW$ has to have the shape of $W$, (out, in), and with $R$ rows $(R \times
# \text{out})^\top (R \times \text{in})$ is the only product of $dy$ and $x$ that has it. The weight and the bias are
# *used* by many rows, so their gradients are *sums* over these rows; that is the rule behind most of the sums in this
# project.

# %%
print(inspect.getsource(F.linear_backward))

# %% [markdown]
# By hand, with an upstream gradient for each of the four results:

# %%
dy = np.array([[1.0, 2.0], [0.0, -1.0]])
dx, dweight, dbias = F.linear_backward(dy, cache)
print("dx\n", dx, "\ndweight\n", dweight, "\ndbias\n", dbias)

assert dx[0, 2] == 1 * 2 + 2 * 0.5 == 3.0          # the first patch's third number, through both results
assert dweight[1, 1] == 2 * 2 + -1 * -1 == 5.0     # both patches have used this weight
assert dbias.tolist() == [1 + 0, 2 - 1]

# %% [markdown]
# **Is it right?** `gradcheck` compares the backward with a derivative of the forward that knows nothing of the
# derivation above: it moves each number a little and looks at what the result does. (Notebook 09 explains why this is
# exact to the last digit.)

# %%
generator = np.random.default_rng(1)
report = gradcheck.check(
    F.linear,
    F.linear_backward,
    (generator.standard_normal((2, 5, 12)), generator.standard_normal((4, 12)), generator.standard_normal(4)),
)
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# It also catches the most common mistake, $dW = x^\top dy$. Where in and out are equal, that even has the right shape:

# %%
def linear_backward_with_a_mistake(dy, cache):
    x, weight, _ = cache
    return dy @ weight, x.T @ dy, dy.sum(0)


square = tuple(generator.standard_normal(shape) for shape in [(5, 3), (3, 3), (3,)])
wrong = gradcheck.check(F.linear, linear_backward_with_a_mistake, square)
print(wrong)
assert wrong.worst.name == "weight" and wrong.max_error > 0.1

# %% [markdown]
# ## The convolution that it equals
#
# Cutting and projecting together are a convolution whose kernel is as large as a patch and whose stride is a whole
# patch. Written out, with the weight in a convolution's shape $(D, C, P, Q)$,
#
# $$\begin{aligned}
# &y_{b,\,d,\,u,\,v} = b_d \\
# &+ \sum_{cij} W_{dcij} x_{b,c,uP + i,vQ + j}
# \end{aligned} \tag{PatchEmbed.forward}$$
#
# which follows from substituting `patchify` into `linear`. That is why timm calls this weight `patch_embed.proj.weight`
# and stores it as $(D, C, P, Q)$, and why `patchify` puts the numbers of a patch into the order C, P, Q: so that a
# convolution's weight only has to be flattened.

# %%
def convolution(x, weight, bias):
    """Slides the kernel over all places of the image and keeps every P-th row and Q-th column."""
    P, Q = weight.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x, (P, Q), axis=(2, 3))[:, :, ::P, ::Q]
    return np.einsum("bcrsij,dcij->bdrs", windows, weight, optimize=True) + bias[:, None, None]


kernel, bias = generator.standard_normal((8, 3, 16, 16)), generator.standard_normal(8)
tokens, _ = F.linear(patches, kernel.reshape(8, -1), bias)             # (1, 196, 8)
convolved = convolution(image, kernel, bias)                           # (1, 8, 14, 14)
np.testing.assert_allclose(tokens[0].T.reshape(8, 14, 14), convolved[0], rtol=1e-12, atol=1e-10)

# %% [markdown]
# ### What a projection does to a real image
#
# Each of the $D$ numbers of a token is the answer to one question about its patch. A trained model learns its questions
# (notebook 08 looks at them). Here are four that were written by hand, as kernels of 3×16×16: how bright is it? Is it
# brighter above or below? Left or right? Blue or red?

# %%
questions = np.zeros((4, 3, 16, 16))
questions[0] = 1 / (3 * 256)
questions[1, :, :8], questions[1, :, 8:] = 1 / (3 * 128), -1 / (3 * 128)
questions[2, :, :, :8], questions[2, :, :, 8:] = 1 / (3 * 128), -1 / (3 * 128)
questions[3, 0], questions[3, 2] = -1 / 256, 1 / 256

answers, _ = F.linear(patches, questions.reshape(4, -1))               # (1, 196, 4): a token is four numbers wide
maps = answers[0].T.reshape(4, 14, 14)
np.testing.assert_allclose(maps[0, 0, 0], image[0, :, :16, :16].mean())

figure, axes = plt.subplots(1, 4, figsize=(8, 2.3))
titles = ("bright?", "above − below", "left − right", "blue − red")
for panel, values, title in zip(axes, maps, titles, strict=True):
    limit = np.abs(values).max()
    panel.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
    panel.set_title(title)
for panel in axes:
    panel.axis("off")
plt.show()

# %% [markdown]
# And backwards: which pixels would change the answer of one patch to one question? The upstream gradient is 1 for that
# number and 0 for all others. The gradient of the image is then the kernel itself at the place of the patch, and 0
# elsewhere.

# %%
_, answers_cache = F.linear(patches, questions.reshape(4, -1))
danswers = np.zeros_like(answers)
danswers[0, 100, 1] = 1                                                # patch 100, "above − below"
dpatches, _ = F.linear_backward(danswers, answers_cache)
dimage = F.patchify_backward(dpatches, patches_cache)                  # (1, 3, 224, 224)

np.testing.assert_array_equal(dimage[0, :, 112:128, 32:48], questions[1])
assert np.count_nonzero(dimage) == questions[1].size

# %% [markdown]
# ## The class token
#
# In the end the model has to give one answer for the whole image. None of the 196 tokens represents the whole image, so
# one more token is put in front of them, the *class token* $t$. It is learned, and begins the same for every image; in
# the blocks it gathers information from the patches by attention, and the head computes the answer from it.
#
# $$\begin{aligned}
# y_{b,0} &= t \\
# y_{b,n} &= x_{b,n-1}\quad (n = 1 \dots N)
# \end{aligned} \tag{prepend\_token}$$

# %%
print(inspect.getsource(F.prepend_token))

# %% [markdown]
# **Its gradient.** $x_{b,n-1}$ was copied to one place, so its gradient is the gradient at that place. $t$ was copied
# into every sample of the batch, and $\partial y_{b,0} / \partial t = 1$ for each $b$, so its gradient is the sum:
#
# $$dx_{b,n-1} = dy_{b,n}$$
#
# $$dt = \sum_b dy_{b,0} \tag{prepend\_token\_backward}$$

# %%
print(inspect.getsource(F.prepend_token_backward))

# %%
x, token = generator.standard_normal((2, 3, 4)), generator.standard_normal((1, 1, 4))
y, cache = F.prepend_token(x, token)
assert y.shape == (2, 4, 4) and (y[:, 0] == token[0, 0]).all() and (y[:, 1:] == x).all()
report = gradcheck.check(F.prepend_token, F.prepend_token_backward, (x, token))
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# ## Positions
#
# Attention is the only part of the model in which tokens affect each other, and it treats them as a set: their order
# makes no difference. To recognise shapes, the model has to know where every patch was. So a vector is added to each
# token that depends only on its position and is the same for all images:
#
# $$y_{b,n} = x_{b,n} + e_n \tag{add\_positions}$$
#
# The derivative with respect to either summand is 1, and $e_n$ was used by every sample:
#
# $$\begin{aligned}
# dx_{b,n} &= dy_{b,n} \\
# de_n &= \sum_b dy_{b,n}
# \end{aligned} \tag{add\_positions\_backward}$$

# %%
print(inspect.getsource(F.add_positions))
print(inspect.getsource(F.add_positions_backward))

# %%
report = gradcheck.check(F.add_positions, F.add_positions_backward, (y, generator.standard_normal((1, 4, 4))))
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# **Is it true that a ViT without positions can't see the order?** Shuffle the patches of the photograph, and ask two
# models with random weights, one with positions and one without, for their logits:

# %%
order = generator.permutation(196)
shuffled, _ = F.unpatchify(patches[:, order], 16)

figure, axes = plt.subplots(1, 2, figsize=(3.6, 1.8))
for panel, pixels in zip(axes, (image, shuffled), strict=True):
    panel.imshow(pixels[0].transpose(1, 2, 0))
    panel.axis("off")
plt.show()

# %%
def moved_by_shuffling(positions):
    """The largest change of a logit, relative to the largest logit, of a small ViT with random weights."""
    shape = ViTConfig(img_size=224, patch_size=16, embed_dim=24, depth=2, num_heads=3, positions=positions)
    model = ViT(shape, seed=0, dtype="float64")
    for parameter in model.parameters():                               # the head starts at zero, and would hide it all
        parameter.data = 0.2 * np.random.default_rng(parameter.size).standard_normal(parameter.shape)
    before, after = model(image)[0], model(shuffled)[0]
    return np.abs(after - before).max() / np.abs(before).max()


without, with_positions = moved_by_shuffling("none"), moved_by_shuffling("learned")
print(f"without positions {without:.0e}, with positions {with_positions:.0e}")
assert without < 1e-12 and with_positions > 1e-5

# %% [markdown]
# To a model without positions the two pictures above are the same. That only shows what a model can tell apart. Does a
# *trained* model make use of its positions? The model of the tour reads digits of 8×8 pixels as a 4×4 grid of patches,
# 2×2 pixels each, and its positions were learned. Shuffle the patches of the 360 digits that it never saw, all in the
# same way; then let each patch keep the position that it had, by shuffling the positions along with the patches:

# %%
trained = load_trained("checkpoint", device="cpu")
reader, unseen = trained.model, load_data(trained).test
digits = unseen.normalise(unseen.images)                               # (360, 1, 8, 8)
moved = generator.permutation(16)


def shuffle_patches(images):
    """The images with their 16 patches of 2×2 pixels in another order."""
    cut, _ = F.patchify(images, 2)                                     # (B, 16, 4)
    return F.unpatchify(cut[:, moved], 2)[0]


def accuracy(images):
    return (reader.predict(images).argmax(1) == unseen.labels).mean()


in_order, out_of_order = accuracy(digits), accuracy(shuffle_patches(digits))
answers = reader.predict(digits)
learned = reader.state_dict()["pos_embed"]                             # (1, 17, 48): the class token's comes first
reader.load_state_dict({**reader.state_dict(), "pos_embed": learned[:, [0, *(1 + moved)]]})
with_positions_moved = accuracy(shuffle_patches(digits))
np.testing.assert_allclose(reader.predict(shuffle_patches(digits)), answers, atol=1e-5)

figure, axes = plt.subplots(2, 6, figsize=(6, 2))
for column, pair in enumerate(zip(digits[:6, 0], shuffle_patches(digits[:6])[:, 0], strict=True)):
    for panel, pixels in zip(axes[:, column], pair, strict=True):
        panel.imshow(pixels)
        panel.axis("off")
plt.show()
print(f"read right {in_order:.1%}, with shuffled patches {out_of_order:.1%}")
print(f"and with their positions shuffled too {with_positions_moved:.1%}")
assert in_order == with_positions_moved > 0.95 and out_of_order < 0.5

# %% [markdown]
# With shuffled patches the model is right little more often than by guessing, 10 %. With the positions shuffled in the
# same way it answers as before: all that the model knows about where a patch is, is in these 16 vectors.
#
# ### What good positions look like
#
# Positions may be learned, as in the paper, or computed: sines and cosines of the patch's column and row with several
# wavelengths, so that nearby patches have similar vectors and no two patches have the same one. The maps below show,
# for nine of the patches, the cosine similarity of its position and every other one.

# %%
positions = F.sincos_2d((14, 14), 192)[0, 1:]                          # (196, 192), without the class token's
unit = positions / np.linalg.norm(positions, axis=1, keepdims=True)
similarity = (unit @ unit.T).reshape(14, 14, 14, 14)

figure, axes = plt.subplots(3, 3, figsize=(5, 5))
for panel, (row, column) in zip(axes.flat, [(r, c) for r in (1, 6, 12) for c in (1, 6, 12)], strict=True):
    shown = panel.imshow(similarity[row, column], vmin=0, vmax=1, cmap="viridis")
    panel.set_title(f"row {row}, column {column}", fontsize=8)
    panel.axis("off")
figure.colorbar(shown, ax=axes, shrink=0.6, label="cosine similarity")
plt.show()

flat = similarity.reshape(196, 196)
assert (flat.argmax(1) == np.arange(196)).all()                        # nothing is as similar to a place as itself
assert similarity[6, 6, 6, 7] > similarity[6, 6, 6, 9] > similarity[6, 6, 6, 13]

# %% [markdown]
# ### What they are worth
#
# Measured on the digits, as a 4×4 grid of patches: the same training with six kinds of positions and nothing else
# changed, three seeds each (`results/ablations.py`, 40 epochs). "For row and column" is half a vector for each row and
# half a vector for each column; "rotary" rotates queries and keys by angles that depend on the position
# (`tinyvit/functional/rope.py`).

# %%
results = json.loads(Path("results/ablations.json").read_text())["positions"]
figure, ax = plt.subplots(figsize=(6, 2.4))
for name, row in results.items():
    print(f"{name:<28} {row['mean']:.1%} ± {row['std']:.1%}")
    ax.errorbar(100 * row["mean"], name, xerr=100 * row["std"], fmt="o", color="tab:blue", capsize=3)
ax.invert_yaxis()
ax.set(xlabel="test accuracy in %: mean and standard deviation of three seeds")
plt.show()

# %% [markdown]
# Without positions 56 % of the digits are right, with positions 92 to 96 %: the patches without their order say
# something about a digit, but its shape is lost. The other five differ by about twice the standard deviation of a row.
# Three seeds on 360 images aren't enough to rank them.

# %%
without, *others = results.values()
assert without["mean"] + 3 * without["std"] < min(row["mean"] - 3 * row["std"] for row in others)
spread = np.ptp([row["mean"] for row in others])
assert spread < 3 * max(row["std"] for row in others)

# %% [markdown]
# ## All of it: equation 1
#
# The module that turns images into tokens, `Embed`, calls these four functions one after the other: `patchify`,
# `linear`, `prepend_token`, `add_positions`. Its backward calls their backwards in reverse order. With $dz$ for the
# gradient of the tokens, the gradients from above give first those of the positions and the class token,
#
# $$\begin{aligned}
# de_n &= \sum_b dz_{b,n} \\
# dt &= \sum_b dz_{b,0}
# \end{aligned} \tag{Embed.backward}$$
#
# and then those of cutting and projecting, `PatchEmbed`. With $p$ for the patches before the projection, $W = E^\top$
# and a bias; the class token, $n = 0$, has no part in them, and vectors are rows:
#
# $$\begin{aligned}
# &dW = \sum_b \sum_{n \ge 1} dz_{bn}^\top p_{b,n-1} \\
# &d\text{bias} = \sum_b \sum_{n \ge 1} dz_{bn} \\
# &dp_{b,n-1} = dz_{bn}\, W \\
# &dx = \operatorname{unpatchify} dp
# \end{aligned} \tag{PatchEmbed.backward}$$

# %%
model = ViT(ViTConfig(img_size=8, patch_size=4, in_chans=3, embed_dim=12, depth=1, num_heads=3), dtype="float64")
print(inspect.getsource(type(model.embed).forward))
print(inspect.getsource(type(model.embed).backward))
print(inspect.getsource(type(model.embed.patch_embed).forward))
print(inspect.getsource(type(model.embed.patch_embed).backward))

# %%
images = generator.standard_normal((2, 3, 8, 8))
tokens, _ = model.embed(images)
assert tokens.shape == (2, 1 + 4, 12)

report = gradcheck.check_model(model.embed, images)
print(report)
assert report.max_error < 1e-9

# %% [markdown]
# ## Exercises
#
# **1.** How many tokens does a ViT read from an image of 384×384 pixels with patches of 32, class token included? How
# many parameters has its patch projection, weight and bias, if a token is 768 numbers wide? Put your numbers in place
# of `None`.

# %%
answer_tokens, answer_parameters = None, None

# %%
larger = ViT(ViTConfig(img_size=384, patch_size=32, embed_dim=768, depth=1, num_heads=12), device="meta")
tokens_there, parameters_there = larger.embed.positions.pos_embed.shape[1], larger.embed.patch_embed.num_parameters()
exercises.check_number("answer_tokens", answer_tokens, tokens_there, "Count the patches along one side first.")
exercises.check_number("answer_parameters", answer_parameters, parameters_there, "A patch has three channels.")

# %% [markdown]
# For the others you write code, and `exercises.check` reads it as a teacher would: right, or which result is wrong in
# which entry, and which of the usual mistakes it looks like. `print(exercises.describe("patchify"))` describes its
# arguments and results. It never shows the solution unless you ask: `print(exercises.solution("patchify"))`.
#
# **2.** Write `patchify`: with `reshape` and `transpose`, or with four loops.


# %%
def my_patchify(images, patch):
    # images: (B, C, H, W). patch: (P, Q), which divide H and W
    B, C, H, W = images.shape
    P, Q = patch
    return np.zeros((B, H // P * (W // Q), C * P * Q))                 # in place of this, the patches (B, N, C·P·Q)


exercises.check("patchify", my_patchify)

# %% [markdown]
# **3.** Write the gradient of all of equation 1. Backwards the positions come first, then the class token, then the
# projection. Four of the five results are sums over the samples; before you write one down, decide over which tokens it
# sums, too.


# %%
def my_embed_backward(dy, patches, weight):
    # dy: (B, N+1, D), the gradient of the tokens. patches: (B, N, C·P·Q). weight: (D, C·P·Q)
    tokens, D = dy.shape[1:]
    dpatches, dweight, dbias = np.zeros_like(patches), np.zeros_like(weight), np.zeros(D)
    dcls_token, dpositions = np.zeros((1, 1, D)), np.zeros((1, tokens, D))
    return dpatches, dweight, dbias, dcls_token, dpositions            # in place of the zeros, the gradients


exercises.check("embed_backward", my_embed_backward)

# %% [markdown]
# **4.** The projection by itself: $y = x\,W^\top + b$, and its three gradients. Which of them are sums over tokens?


# %%
def my_linear(x, weight, bias):
    # x: (B, N, D). weight: (K, D). bias: (K,)
    return np.zeros((*x.shape[:2], len(weight)))  # in place of this, y (B, N, K)


exercises.check("linear", my_linear)


# %%
def my_linear_backward(dy, x, weight):
    # dy: (B, N, K). x: (B, N, D). weight: (K, D). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros(len(weight))


exercises.check("linear_backward", my_linear_backward)

# %% [markdown]
# **5.** All of equation 1, forwards: project the patches, put the class token in front, and add the positions.


# %%
def my_embed(patches, weight, bias, cls_token, positions):
    # patches: (B, N, C·P·Q). weight: (D, C·P·Q). bias: (D,). cls_token: (1, 1, D). positions: (1, N+1, D)
    return np.zeros((len(patches), patches.shape[1] + 1, len(weight)))  # in place of this, the tokens (B, N+1, D)


exercises.check("embed", my_embed)

# %% [markdown]
# **6.** The gradient of `patchify`. Every pixel is in one patch only, so there is nothing to add up.


# %%
def my_patchify_backward(dy, patch, img_size):
    # dy: (B, N, C·P·Q). patch: (P, Q). img_size: (H, W)
    return np.zeros((len(dy), dy.shape[2] // (patch[0] * patch[1]), *img_size))  # in place of this, dimages


exercises.check("patchify_backward", my_patchify_backward)

# %% [markdown]
# **7.** Positions that are not learned: write `sincos_2d`. `print(exercises.describe("sincos_positions"))` says in
# which order the sines and cosines stand.


# %%
def my_sincos_positions(rows, columns, width):
    # width: D, a multiple of 4
    return np.zeros((rows * columns, width))  # in place of this, the positions (rows · columns, D)


exercises.check("sincos_positions", my_sincos_positions)

# %% [markdown]
# **8.** Rotary positions add nothing to the tokens: they rotate each pair of neighbouring numbers $(a, b)$ of a query
# or key by an angle $\varphi$ into $(a \cos\varphi - b \sin\varphi,\; a \sin\varphi + b \cos\varphi)$. The angle grows
# with the patch's column in the first half of the pairs, with its row in the second: $\varphi = j\,\theta^{-k/(d/4)}$
# for column or row $j$ and pair $k$ of that half (`print(exercises.describe("rope"))`). The product of a rotated query
# and a rotated key depends only on the difference of their angles. Write the rotation, and its gradient: which matrix
# undoes a rotation?


# %%
def my_rope(x, grid, theta):
    # x: (B, H, rows · columns, d). grid: (rows, columns). theta: a number
    return np.zeros_like(x)  # in place of this, y, as x


exercises.check("rope", my_rope)


# %%
def my_rope_backward(dy, grid, theta):
    # dy: (B, H, rows · columns, d)
    return np.zeros_like(dy)  # in place of this, dx, as dy


exercises.check("rope_backward", my_rope_backward)
