# %% [markdown]
# # 02 · Layer norm and its gradient
#
# Tokens come in all sizes: a bright patch makes a long vector, a dark one a short one, and every block adds to them.
# Layer norm brings each token to the same mean and the same spread before a block reads it, so that the layers after it
# can rely on the size of their inputs.
#
# It is two lines of arithmetic, and its gradient is the one that people get wrong most often: each number of a token
# changes the mean and the spread, and through them all the other numbers.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck
from tinyvit import functional as F

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})
np.set_printoptions(precision=3, suppress=True)
generator = np.random.default_rng(0)

photo = Image.fromarray(load_sample_image("china.jpg")).crop((140, 0, 567, 427)).resize((224, 224))
image = np.asarray(photo, "float64").transpose(2, 0, 1)[None] / 255    # (B, C, H, W)
patches, _ = F.patchify(image, 16)                                     # (1, 196, 768)
tokens, _ = F.linear(patches, 0.05 * generator.standard_normal((96, 768)))
assert tokens.shape == (1, 196, 96)

# %% [markdown]
# Below are the 196 tokens of a photograph, projected at random (notebook 01): a column is a token, with the first 24 of
# its 96 numbers one below the other. Patches of the sky stand out, for no other reason than that they are bright. After
# the layer norm they no longer do.

# %%
ones, zeros = np.ones(96), np.zeros(96)
normalised, _ = F.layernorm(tokens, ones, zeros)

figure, axes = plt.subplots(2, 1, figsize=(6, 3.4), sharex=True)
for panel, values, title in zip(axes, (tokens, normalised), ("tokens", "the same after a layer norm"), strict=True):
    shown = panel.imshow(values[0, :, :24].T, cmap="RdBu_r", vmin=-3, vmax=3, aspect="auto")
    panel.set(title=title, ylabel="number")
    figure.colorbar(shown, ax=panel, pad=0.01)
axes[1].set_xlabel("patch, counted row by row")
plt.show()

sizes = tokens[0].std(1)
assert sizes.max() > 4 * sizes.min()                                   # their spreads differ ...
np.testing.assert_allclose(normalised[0].mean(1), 0, atol=1e-12)       # ... and no longer do
np.testing.assert_allclose(normalised[0].std(1), 1, atol=1e-4)

# %% [markdown]
# ## The formula
#
# Ba, Kiros & Hinton 2016, "Layer normalization", equations 3 and 4. For a token $x$ of $D$ numbers, with a weight
# $\gamma$ and a bias $\beta$ of $D$ numbers each, which are learned and the same for all tokens:
#
# $$\begin{aligned}
# \mu &= \frac1D\sum_j x_j \\
# \sigma^2 &= \frac1D\sum_j (x_j - \mu)^2 \\
# \hat x_i &= \frac{x_i - \mu}{\sqrt{\sigma^2 + \varepsilon}} \\
# y_i &= \gamma_i\,\hat x_i + \beta_i
# \end{aligned} \tag{layernorm}$$
#
# The mean and the spread are those of the one token. Nothing is averaged over the batch, so a token's result doesn't
# depend on the other tokens. $\varepsilon = 10^{-6}$ prevents a division by zero where all numbers of a token are
# equal.

# %%
print(inspect.getsource(F.layernorm))

# %% [markdown]
# By hand: the mean of 1, 1, 3, 3 is 2, and every number is 1 away from it. So $\sigma = 1$ and
# $\hat x = (-1, -1, 1, 1)$.

# %%
x = np.array([[1.0, 1.0, 3.0, 3.0]])
y, cache = F.layernorm(x, np.ones(4), np.zeros(4), eps=0.0)
print(y)
assert y.tolist() == [[-1, -1, 1, 1]]

y, _ = F.layernorm(x, np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 0.0, 10.0, 10.0]), eps=0.0)
assert y.tolist() == [[-1, -2, 13, 14]]

# %% [markdown]
# ## The gradient, no step left out
#
# Given is $dy_i = \partial \mathcal L / \partial y_i$ for each number of each token; wanted are $d\gamma$, $d\beta$ and
# $dx$.
#
# **The parameters.** $\gamma_i$ and $\beta_i$ were used once by each token. With the tokens of all images counted by
# $n$, $y_{ni} = \gamma_i \hat x_{ni} + \beta_i$, so $\partial y_{ni} / \partial \gamma_i = \hat x_{ni}$ and $\partial
# y_{ni} / \partial \beta_i = 1$:
#
# $$d\gamma_i = \sum_n dy_{ni}\,\hat x_{ni} \qquad d\beta_i = \sum_n dy_{ni}$$
#
# **Back to $\hat x$.** For one token, and for the rest of this section:
#
# $$g_i := \frac{\partial \mathcal L}{\partial \hat x_i} = dy_i\, \gamma_i$$
#
# **The input.** Three things depend on $x_j$: the number itself, the mean, and the spread. Let $c_i = x_i - \mu$ be
# the centred number and $r = (\sigma^2 + \varepsilon)^{-1/2}$, so that $\hat x_i = c_i\, r$. By the product rule
#
# $$\frac{\partial \hat x_i}{\partial x_j}
# = \frac{\partial c_i}{\partial x_j}\, r + c_i\, \frac{\partial r}{\partial x_j}$$
#
# *First factor.* $\partial \mu / \partial x_j = 1/D$, whichever $j$. With $\delta_{ij}$, which is 1 where $i = j$ and
# else 0,
#
# $$\frac{\partial c_i}{\partial x_j} = \delta_{ij} - \frac1D$$
#
# *The variance.* It is the mean of $c_i^2$, so
#
# $$\begin{aligned}
# \frac{\partial \sigma^2}{\partial x_j} &= \frac1D \sum_i 2 c_i\, \frac{\partial c_i}{\partial x_j} \\
# &= \frac2D \sum_i c_i \Big(\delta_{ij} - \frac1D\Big) \\
# &= \frac2D \Big(c_j - \frac1D \sum_i c_i\Big) \\
# &= \frac{2 c_j}{D}
# \end{aligned}$$
#
# The sum $\sum_i c_i$ is zero: that is what centred means. The mean's part in the variance's gradient drops out.
#
# *Second factor.* By the chain rule through $r = (\sigma^2 + \varepsilon)^{-1/2}$,
#
# $$\frac{\partial r}{\partial x_j} = -\frac12 (\sigma^2 + \varepsilon)^{-3/2} \cdot \frac{2 c_j}{D}
# = -\frac{r^3 c_j}{D} = -\frac{r^2\, \hat x_j}{D}$$
#
# *Together*, with $c_i\, r = \hat x_i$ once more:
#
# $$\frac{\partial \hat x_i}{\partial x_j} = r\Big(\delta_{ij} - \frac1D\Big) - c_i\,\frac{r^2 \hat x_j}{D}
# = r\Big(\delta_{ij} - \frac1D - \frac{\hat x_i\, \hat x_j}{D}\Big)$$
#
# A check before going on: here is the matrix for a token of five numbers, by this formula and by the complex step,
# an exact measurement that doesn't use the formula (notebook 09; you may skip its code until then):

# %%
def normal(x, eps=1e-6):
    return F.layernorm(x, np.ones(5), np.zeros(5), eps)[0]


x = generator.standard_normal(5)
_, (xhat, rstd, _) = F.layernorm.reference(x, np.ones(5), np.zeros(5))
jacobian = rstd * (np.eye(5) - 1 / 5 - np.outer(xhat, xhat) / 5)       # (i, j): how x̂ᵢ moves with xⱼ

step = 1e-30
measured = np.stack([normal(x + 1j * step * unit).imag / step for unit in np.eye(5)], axis=1)
print(jacobian)
np.testing.assert_allclose(jacobian, measured, rtol=1e-12, atol=1e-14)

# %% [markdown]
# **The sum.** The loss depends on $x_j$ through all the $\hat x_i$:
#
# $$dx_j = \sum_i g_i\, \frac{\partial \hat x_i}{\partial x_j}
# = r\Big(\sum_i g_i\,\delta_{ij} - \frac1D \sum_i g_i - \hat x_j\, \frac1D \sum_i g_i\, \hat x_i\Big)$$
#
# The first sum is $g_j$, and the other two are means over the token:
#
# $$\begin{aligned}
# dx &= r\,\big(g - \operatorname{mean}(g) \\
# &\qquad - \hat x\, \operatorname{mean}(g\,\hat x)\big) \\
# d\gamma &= \sum_n dy_n\, \hat x_n \\
# d\beta &= \sum_n dy_n
# \end{aligned} \tag{layernorm\_backward}$$
#
# No matrix of $D \times D$ numbers is needed: two means, and a few products of vectors.

# %%
print(inspect.getsource(F.layernorm_backward))

# %% [markdown]
# By hand, with the token from above, $\gamma = 1$, and a gradient for the first number alone. Then $g = (1, 0, 0, 0)$,
# $\operatorname{mean}(g) = 1/4$ and $\operatorname{mean}(g \hat x) = -1/4$:
#
# $$dx = (1, 0, 0, 0) - \tfrac14 (1, 1, 1, 1) + \tfrac14 (-1, -1, 1, 1) = (\tfrac12, -\tfrac12, 0, 0)$$

# %%
dx, dweight, dbias = F.layernorm_backward(np.array([[1.0, 0.0, 0.0, 0.0]]), cache)
print("dx", dx, "dweight", dweight, "dbias", dbias)
assert dx.tolist() == [[0.5, -0.5, 0, 0]]
assert dweight.tolist() == [-1, 0, 0, 0] and dbias.tolist() == [1, 0, 0, 0]

# %% [markdown]
# ### What the two means are for
#
# The result of a layer norm doesn't change if the same number is added to a whole token, nor (except for $\varepsilon$)
# if the token is multiplied by a positive number. Along a direction in which nothing changes, the gradient has no part.
# So $dx$ has to be orthogonal to the direction $(1, \dots, 1)$, and to the centred token itself. Subtracting
# $\operatorname{mean}(g)$ removes $g$'s part along the first, subtracting $\hat x \operatorname{mean}(g \hat x)$ that
# along the second: the backward of a layer norm takes two parts of $g$ away, which is called a projection, and
# multiplies by $r$. With $\varepsilon = 0$:

# %%
x, dy = generator.standard_normal((2, 7, 96))
y, cache = F.layernorm(x, ones, zeros, 0.0)
np.testing.assert_allclose(F.layernorm(3 * x + 5, ones, zeros, 0.0)[0], y, rtol=1e-11, atol=1e-11)

dx, _, _ = F.layernorm_backward(dy, cache)
centred = x - x.mean(-1, keepdims=True)
np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-12)
np.testing.assert_allclose((dx * centred).sum(-1), 0, atol=1e-12)

# %% [markdown]
# In a picture, for a token of three numbers. Without their means $\hat x$ and $g$ lie in the plane at right angles to
# $(1, 1, 1)$, and there all possible $\hat x$ form a circle. A step outwards from the circle is a longer centred token,
# and changes nothing. So the backward keeps only the part of $g$ along the circle:

# %%
plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])       # two unit vectors at right angles to (1, 1, 1)
token, g = np.array([2.0, 0.2, 0.5]), np.array([1.4, 0.9, -1.4])
_, token_cache = F.layernorm(token, np.ones(3), np.zeros(3), 0.0)
xhat, projected = token_cache.xhat, F.layernorm_backward(g, token_cache)[0] * token.std()
figure, axes = plt.subplots(figsize=(3.6, 3.6))
axes.add_patch(plt.Circle((0, 0), np.sqrt(3), fill=False, color="silver"))
for name, start, arrow, side, colour in (
    (r"$\hat x$", np.zeros(3), xhat, "left", "black"), ("$dx / r$", xhat, projected, "right", "tab:red"),
    ("$g - mean(g)$", xhat, g - g.mean(), "left", "tab:blue"),
    (r"$-\hat x\; mean(g\, \hat x)$", xhat + g - g.mean(), projected - g + g.mean(), "center", "grey"),
):  # fmt: skip
    axes.annotate("", plane @ (start + arrow), plane @ start, arrowprops={"arrowstyle": "->", "color": colour})
    axes.text(*plane @ (start + 0.6 * arrow), f" {name} ", color=colour, ha=side, va="bottom")
axes.set(xlim=(-2, 3.6), ylim=(-2, 3.6), aspect="equal", xticks=(), yticks=())
plt.show()
np.testing.assert_allclose(projected, g - g.mean() - xhat * (g * xhat).mean(), atol=1e-12)

# %% [markdown]
# Conversely, an upstream gradient along one of those directions gives a gradient of zero. That is why a test with `dy =
# 1` proves nothing about a layer norm: the right answer is zero, and many wrong formulas give zero as well.

# %%
dx, _, _ = F.layernorm_backward(np.ones_like(x), cache)
np.testing.assert_allclose(dx, 0, atol=1e-14)

# %% [markdown]
# **Is it right?** With random gradients, sizes that differ, and a weight that is not 1:

# %%
inputs = generator.standard_normal((2, 5, 12)), generator.standard_normal(12), generator.standard_normal(12)
report = gradcheck.check(F.layernorm, F.layernorm_backward, inputs)
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# And this is how wrong the gradient is without one or both of the means. Both are common mistakes:

# %%
def without_means(dy, cache):
    xhat, rstd, weight = cache
    return dy * weight * rstd, (dy * xhat).sum((0, 1)), dy.sum((0, 1))


def without_the_variance(dy, cache):
    xhat, rstd, weight = cache
    g = dy * weight
    return rstd * (g - g.mean(-1, keepdims=True)), (dy * xhat).sum((0, 1)), dy.sum((0, 1))


for mistaken in (without_means, without_the_variance):
    report = gradcheck.check(F.layernorm.reference, mistaken, inputs)
    print(f"{mistaken.__name__}\n{report}\n")
    assert report.worst.name == "x" and report.max_error > 0.01

# %% [markdown]
# ## What it does to a real image
#
# Reduce the contrast of the photograph to a half, and to a tenth. The tokens after the projection differ a lot. After a
# layer norm they are nearly equal again; only $\varepsilon$ makes a difference.

# %%
def tokens_of(pixels):
    return F.linear(F.patchify(pixels - 0.5, 16)[0], weight)[0]


def far(a, b):
    """How far two rows of tokens lie apart, relative to the size of the first."""
    return np.linalg.norm(a - b) / np.linalg.norm(a)


weight = 0.05 * generator.standard_normal((96, 768))
contrasts = [0.5 + factor * (image - 0.5) for factor in (1, 0.5, 0.1)]
before = [tokens_of(pixels) for pixels in contrasts]
after = [F.layernorm(rows, ones, zeros)[0] for rows in before]

figure, axes = plt.subplots(1, 3, figsize=(6, 2.4))
for panel, pixels, rows, normed in zip(axes, contrasts, before, after, strict=True):
    panel.imshow(pixels[0].transpose(1, 2, 0))
    panel.set_title(f"tokens {far(before[0], rows):.2f} apart,\nnormalised {far(after[0], normed):.0e}", fontsize=9)
    panel.axis("off")
plt.show()

assert far(before[0], before[2]) > 0.89 and far(after[0], after[2]) < 1e-3

# %% [markdown]
# ## In float32: why two passes
#
# Mathematically, $\sigma^2 = \operatorname{mean}(x^2) - \mu^2$ as well, which needs one pass over the numbers instead
# of two. In float32 it is a trap. Both terms are about $\mu^2$, each is rounded to 24 bits, and where the mean is more
# than $2^{12}$, some four thousand, times the spread, the difference lies *below* those bits. Centring first subtracts
# numbers that are close together, which is exact.

# %%
def spread_in_one_pass(x):
    return np.sqrt(np.maximum((x * x).mean(-1) - x.mean(-1) ** 2, 0))


def spread_in_two_passes(x):
    centred = x - x.mean(-1, keepdims=True)
    return np.sqrt((centred * centred).mean(-1))


means = np.logspace(0, 5, 30)
rows = (generator.standard_normal((64, 96)) + means[:, None, None]).astype("float32")      # (30, 64, 96)
exact = rows.astype("float64").std(-1)
errors = {
    "mean(x²) − μ²": np.abs(spread_in_one_pass(rows) / exact - 1).mean(-1),
    "centred first": np.abs(spread_in_two_passes(rows) / exact - 1).mean(-1),
}

figure, axes = plt.subplots(figsize=(5.5, 3.2))
for label, error in errors.items():
    axes.loglog(means, error, label=label)
axes.set(xlabel="mean of the token, its spread being 1", ylabel="relative error of σ", ylim=(1e-8, 1e2))
axes.legend(frameon=False)
plt.show()

assert errors["mean(x²) − μ²"][means > 4096].min() > 0.2 and errors["mean(x²) − μ²"][means < 1000].max() < 0.2
assert errors["centred first"][-1] < 1e-2
assert errors["centred first"][means < 1000].max() < 1e-4

# %% [markdown]
# ## Exercises
#
# `exercises.check` tries your function and answers like a teacher; `print(exercises.describe("layernorm"))` describes
# its arguments and results.
#
# **1.** Write the forward. Try also what happens if you take `x.var(-1, ddof=1)`, which divides
# by $D - 1$.


# %%
def my_layernorm(x, weight, bias, eps):
    # x: (..., D). weight, bias: (D,)
    return np.zeros_like(x)                                            # in place of this, the normalised tokens


exercises.check("layernorm", my_layernorm)

# %% [markdown]
# **2.** Write the backward, without looking above: from the Jacobian, if you like, or from the formula with the two
# means. Leave out one term on purpose afterwards, and see whether the answer names it.


# %%
def my_layernorm_backward(dy, x, weight, eps):
    # dy, x: (..., D). weight: (D,). Returns dx, dweight, dbias
    return np.zeros_like(x), np.zeros_like(weight), np.zeros_like(weight)


exercises.check("layernorm_backward", my_layernorm_backward)

# %% [markdown]
# **3.** Newer transformers don't subtract the mean: $y_i = \gamma_i\, x_i / \sqrt{\operatorname{mean}(x^2) +
# \varepsilon}$ (Zhang & Sennrich 2019, "Root mean square layer normalization"). Write it, and derive its gradient as
# above. Only one of the two means remains; which?


# %%
def my_rmsnorm(x, weight, eps):
    # x: (..., D). weight: (D,)
    return np.zeros_like(x)                                            # in place of this, y


exercises.check("rmsnorm", my_rmsnorm)


# %%
def my_rmsnorm_backward(dy, x, weight, eps):
    # dy, x: (..., D). weight: (D,). Returns dx, dweight
    return np.zeros_like(x), np.zeros_like(weight)


exercises.check("rmsnorm_backward", my_rmsnorm_backward)
