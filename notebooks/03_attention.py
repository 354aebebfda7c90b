# %% [markdown]
# # 03 · Softmax and scaled dot-product attention, and their gradients
#
# In attention every token asks all the others a question (its *query*), compares it with what each of them offers (its
# *key*), and takes a share of what each of them holds (its *value*), the larger the better query and key match. The
# softmax computes the shares: they are positive, add up to one, and are differentiable.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
from math import e, log

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.functional.attention import attention_scores, attention_scores_backward

plt.rcParams.update({"figure.dpi": 144, "image.cmap": "gray"})
np.set_printoptions(precision=3, suppress=True)
rng = np.random.default_rng(0)

# %%
scores = np.array([0.5, 2.0, -1.0, 1.5, 0.0])
probs, _ = F.softmax(scores)
names = [f"key {j}" for j in range(1, 6)]
figure, axes = plt.subplots(1, 3, figsize=(9, 2.4), layout="constrained")
for ax, heights, title in zip(
    axes, (scores, np.exp(scores), probs), ("scores $x_j$", "$e^{x_j}$: positive", "$p_j$: their shares of the sum")
):
    bars = ax.bar(names, heights, color="tab:blue")
    ax.bar_label(bars, fmt="%.2f", fontsize=8)
    ax.set_title(title, fontsize=10)
    ax.margins(y=0.18)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Softmax
#
# A row of scores $x_1, \dots, x_N$ becomes a row of probabilities,
#
# $$p_i = \frac{e^{x_i}}{Z}, \qquad Z = \sum_{j=1}^{N} e^{x_j} \tag{softmax}$$
#
# Three things follow at once. All $p_i$ are positive, and $\sum_i p_i = Z/Z = 1$. The order of the scores is kept.
# And a number $u$ that is added to all scores changes nothing, as it cancels: $e^{x_i + u} / \sum_j e^{x_j + u} = e^u
# e^{x_i} / (e^u Z) = p_i$.
#
# The code makes use of the last one. $e^{x}$ is beyond float64 from $x \approx 709.8$ on (and beyond float32 from
# $88.7$ on), so the row's largest score is subtracted first: then the largest exponential is $e^0 = 1$.

# %%
print(inspect.getsource(F.softmax))

# %%
x = rng.standard_normal((3, 5))
p, cache = F.softmax(x)
assert (p > 0).all() and np.allclose(p.sum(-1), 1, atol=1e-15)
assert (p.argsort(-1) == x.argsort(-1)).all()
assert np.allclose(F.softmax(x + 100)[0], p, atol=1e-14)

large = np.array([1000.0, 1001.0])
with np.errstate(over="ignore", invalid="ignore"):
    naive = np.exp(large) / np.exp(large).sum()
assert np.isnan(naive).all()                                          # ∞ / ∞
assert np.allclose(F.softmax(large)[0], [1 / (1 + e), e / (1 + e)])
print("without the subtraction", naive, "with it", F.softmax(large)[0].round(4))

# %% [markdown]
# ### Its Jacobian
#
# How does $p_i$ change with $x_j$? First the sum: only its $j$-th term has $x_j$ in it, so $\partial Z / \partial x_j
# = e^{x_j}$. The numerator has $x_j$ in it only if $i = j$: $\partial e^{x_i} / \partial x_j = \delta_{ij} e^{x_i}$,
# where $\delta_{ij}$ is 1 if $i = j$ and 0 otherwise. The quotient rule gives
#
# $$\frac{\partial p_i}{\partial x_j}
#   = \frac{\delta_{ij} e^{x_i} \, Z - e^{x_i} \, e^{x_j}}{Z^2}
#   = \delta_{ij} \frac{e^{x_i}}{Z} - \frac{e^{x_i}}{Z} \frac{e^{x_j}}{Z}
#   = p_i \, (\delta_{ij} - p_j).$$
#
# As a matrix, $J = \operatorname{diag}(p) - p \, p^\top$: symmetric, $p_i (1 - p_i)$ on the diagonal and $-p_i p_j$
# beside it. What one probability gains, the others lose: each row of $J$ adds up to $\sum_j p_i (\delta_{ij} - p_j) =
# p_i - p_i \sum_j p_j = 0$.
#
# ### Its product with a gradient
#
# The loss $\mathcal L$ depends on the scores through all the probabilities. With
# $dy_i = \partial \mathcal L / \partial p_i$, the chain rule sums over every way from $x_j$ to the loss:
#
# $$\begin{aligned}
# dx_j &= \frac{\partial \mathcal L}{\partial x_j} \\
# &= \sum_{i} dy_i \, \frac{\partial p_i}{\partial x_j} \\
# &= \sum_{i} dy_i \, p_i \, (\delta_{ij} - p_j) \\
# &= dy_j \, p_j - p_j \sum_i dy_i \, p_i \\
# &= p_j \Big( dy_j - \sum_i dy_i \, p_i \Big)
# \end{aligned} \tag{softmax\_backward}$$
#
# The $N \times N$ numbers of $J$ are never written down: one sum per row is enough. As the $p_i$ add up to 1, it is
# already a mean of $dy$, weighted by $p$, and isn't divided by $N$. The gradient of a score is positive where its $dy$
# is above this mean, and negative where it is below.

# %%
print(inspect.getsource(F.softmax_backward))

# %%
dy = rng.standard_normal(x.shape)
dx = F.softmax_backward(dy, cache)
for row in range(len(x)):
    jacobian = np.diag(p[row]) - np.outer(p[row], p[row])
    assert np.allclose(jacobian, jacobian.T) and np.allclose(jacobian.sum(-1), 0)
    assert np.allclose(dx[row], jacobian.T @ dy[row], atol=1e-15)
assert np.allclose(dx.sum(-1), 0, atol=1e-15)  # adding u to all scores changes nothing, so the derivative by u is 0

# %% [markdown]
# ### The numbers of one example
#
# Let $x = (0, \ln 2, \ln 3)$. The exponentials are $1, 2, 3$, their sum is $6$, so $p = (\tfrac16, \tfrac13,
# \tfrac12)$. Let the loss be the first probability, $dy = (1, 0, 0)$. Then $\sum_i dy_i p_i = \tfrac16$ and
#
# $$dx = \left( \tfrac16 (1 - \tfrac16), \; \tfrac13 (0 - \tfrac16), \; \tfrac12 (0 - \tfrac16) \right)
#   = \left( \tfrac{5}{36}, -\tfrac{2}{36}, -\tfrac{3}{36} \right).$$
#
# A common mistake is to take the Jacobian as diagonal, $dx_j = dy_j \, p_j (1 - p_j)$. It gives $(\tfrac{5}{36}, 0,
# 0)$: right in the first entry, but the other scores get no gradient.

# %%
p3, cache3 = F.softmax(np.array([0, log(2), log(3)]))
assert np.allclose(p3, [1 / 6, 1 / 3, 1 / 2])
dx3 = F.softmax_backward(np.array([1.0, 0.0, 0.0]), cache3)
assert np.allclose(dx3, [5 / 36, -2 / 36, -3 / 36])

diagonal = dy * p * (1 - p)
wrong_by = np.linalg.norm(diagonal - dx) / np.linalg.norm(dx)
print(f"the diagonal alone is wrong by {wrong_by:.0%} of the gradient's length")
assert wrong_by > 0.2

# %% [markdown]
# ### The check
#
# `gradcheck` compares every entry with the complex step (notebook 09 explains it). It finds no error in the right
# backward, and reports where the diagonal one is wrong.

# %%
report = gradcheck.check(F.softmax, F.softmax_backward, (x,))
print(report)
assert report.max_error < 1e-14


def diagonal_backward(dy, cache):
    return dy * cache.probs * (1 - cache.probs)


report = gradcheck.check(F.softmax, diagonal_backward, (x,))
print(report)
assert report.max_error > 1e-2

# %% [markdown]
# ## Attention
#
# $N_q$ queries $q_i$ and $N_k$ keys $k_j$, each of $d$ numbers, and a value $v_j$ beside each key. With the scale
# $\alpha = 1/\sqrt d$ and, if there is one, a bias $b_{ij}$, a number added to each score, as masks are:
#
# $$\begin{aligned}
# s_{ij} &= \alpha \sum_{a=1}^{d} q_{ia} \, k_{ja} + b_{ij}, \\
# p_{ij} &= \frac{e^{s_{ij}}}{\sum_m e^{s_{im}}}, \\
# o_{ia} &= \sum_{j=1}^{N_k} p_{ij} \, v_{ja}
# \end{aligned} \tag{attention}$$
#
# As matrices: $S = \alpha \, Q K^\top + b$, $P = \operatorname{softmax}(S)$ row by row, $O = P V$ (Vaswani et al. 2017,
# eq. 1). In a picture, with the shapes:

# %%
figure, ax = plt.subplots(figsize=(9, 2.3), layout="constrained")
ax.set(xlim=(-0.3, 24.6), ylim=(-1.1, 4.6), aspect="equal")
ax.axis("off")


def matrix(ax, x, rows, columns, name, colour):
    ax.add_patch(plt.Rectangle((x, 3.5 - rows), columns, rows, facecolor=colour, edgecolor="black", alpha=0.6))
    ax.text(x + columns / 2, 3.5 - rows / 2, name, ha="center", va="center", fontsize=12)


def between(ax, x, text):
    ax.text(x, 2, text, ha="center", va="center", fontsize=12)


matrix(ax, 0, 3, 2, "$Q$", "tab:orange")
ax.text(1, 3.8, "$d$", ha="center")
ax.text(-0.3, 2, "$N_q$", ha="center", va="center", rotation=90)
matrix(ax, 2.6, 2, 4, "$K^⊤$", "tab:green")
ax.text(4.6, 3.8, "$N_k$", ha="center")
between(ax, 7.7, "$· \\, \\alpha =$")
matrix(ax, 8.8, 3, 4, "$S$", "lightgrey")
ax.text(10.8, 3.8, "$N_k$", ha="center")
ax.annotate("", (15.3, 2), (13.1, 2), arrowprops={"arrowstyle": "->"})
ax.text(14.2, 2.3, "softmax", ha="center", fontsize=9)
matrix(ax, 15.6, 3, 4, "$P$", "silver")
ax.text(17.6, -0.4, "each row adds up to 1", ha="center", fontsize=9)
matrix(ax, 20, 4, 1.5, "$V$", "tab:blue")
ax.text(20.75, 3.8, "$d_v$", ha="center")
between(ax, 22.2, "$=$")
matrix(ax, 22.9, 3, 1.5, "$O$", "tab:red")
plt.show()

# %% [markdown]
# Two things follow. Without positions, the order of the keys makes no difference: a sum doesn't depend on the order of
# its terms. And each output is a weighted mean of the values, so it stays within their range.

# %%
print(inspect.getsource(F.attention))
print(inspect.getsource(attention_scores))

# %%
B, H, Nq, Nk, d, dv = 2, 3, 4, 5, 6, 7
q = rng.standard_normal((B, H, Nq, d))
k, v = rng.standard_normal((B, H, Nk, d)), rng.standard_normal((B, H, Nk, dv))
bias = rng.standard_normal((H, Nq, Nk))
heads, cache = F.attention(q, k, v, bias)

by_index = np.zeros((B, H, Nq, dv))
for b, h, i in np.ndindex(B, H, Nq):
    s = [d**-0.5 * sum(q[b, h, i, a] * k[b, h, j, a] for a in range(d)) + bias[h, i, j] for j in range(Nk)]
    total = sum(np.exp(s))
    for a in range(dv):
        by_index[b, h, i, a] = sum(np.exp(s[j]) / total * v[b, h, j, a] for j in range(Nk))
assert np.allclose(heads, by_index, atol=1e-14)

order = rng.permutation(Nk)
assert np.allclose(F.attention(q, k[:, :, order], v[:, :, order], bias[..., order])[0], heads, atol=1e-14)
assert (heads <= v.max(2, keepdims=True)).all() and (heads >= v.min(2, keepdims=True)).all()

# %% [markdown]
# ### The gradients, index by index
#
# Given $do_{ia} = \partial \mathcal L / \partial o_{ia}$, go through the forward from its last line to its first.
#
# **1. Through $o_{ia} = \sum_j p_{ij} v_{ja}$.** The value $v_{ja}$ occurs in $o_{ia}$ for every query $i$, with the
# factor $p_{ij}$; the probability $p_{ij}$ occurs in $o_{ia}$ for every $a$, with the factor $v_{ja}$:
#
# $$\begin{aligned}
# dv_{ja} &= \sum_i p_{ij} \, do_{ia} \;\Rightarrow\; dV = P^\top \, dO, \\
# dp_{ij} &= \sum_a do_{ia} \, v_{ja} \;\Rightarrow\; dP = dO \, V^\top.
# \end{aligned}$$
#
# **2. Through the softmax**, each row $i$ by itself, with the product from above:
#
# $$ds_{ij} = p_{ij} \Big( dp_{ij} - \sum_m dp_{im} \, p_{im} \Big).$$
#
# **3. Through $s_{ij} = \alpha \sum_a q_{ia} k_{ja} + b_{ij}$.** A row of scores depends on its own query alone, and a
# column on its own key: $\partial s_{lj} / \partial q_{ia} = \delta_{li} \, \alpha \, k_{ja}$, and likewise $\partial
# s_{il} / \partial k_{ja} = \delta_{lj} \, \alpha \, q_{ia}$. So
#
# $$dq_{ia} = \sum_{l, j} ds_{lj} \, \delta_{li} \, \alpha \, k_{ja} = \alpha \sum_j ds_{ij} \, k_{ja}
#   \;\Rightarrow\; dQ = \alpha \; dS \, K,$$
#
# $$dk_{ja} = \sum_{i, l} ds_{il} \, \delta_{lj} \, \alpha \, q_{ia} = \alpha \sum_i ds_{ij} \, q_{ia}
#   \;\Rightarrow\; dK = \alpha \; dS^\top Q,$$
#
# $$db_{ij} = ds_{ij},$$
#
# summed over the axes along which the bias was broadcast: the gradient of one bias for all samples is the sum over the
# samples. Together:
#
# $$\begin{aligned}
# dV &= P^\top dO \\
# dP &= dO \, V^\top \\
# dS &= P \odot \big( dP \\
# &\quad - \operatorname{rowsum}(dP \odot P) \big) \\
# dQ &= \alpha \; dS \, K \\
# dK &= \alpha \; dS^\top Q \\
# db &= dS
# \end{aligned} \tag{attention\_backward}$$
#
# where $\odot$ multiplies entry by entry.
#
# The scale occurs in both $dQ$ and $dK$. A model whose backward forgets it in one of them still trains, but worse.

# %%
print(inspect.getsource(F.attention_backward))
print(inspect.getsource(attention_scores_backward))

# %%
dheads = rng.standard_normal(heads.shape)
dq, dk, dv_, dbias = F.attention_backward(dheads, cache)
P, alpha = cache.probs, d**-0.5

dp = np.einsum("bhia,bhja->bhij", dheads, v)
ds = P * (dp - np.einsum("bhim,bhim->bhi", dp, P)[..., None])
assert np.allclose(dv_, np.einsum("bhij,bhia->bhja", P, dheads), atol=1e-14)
assert np.allclose(dq, alpha * np.einsum("bhij,bhja->bhia", ds, k), atol=1e-14)
assert np.allclose(dk, alpha * np.einsum("bhij,bhia->bhja", ds, q), atol=1e-14)
assert np.allclose(dbias, ds.sum(0), atol=1e-14)

# %% [markdown]
# Two identities are worth knowing.
#
# *The row's sum without the probabilities.* $\sum_m dp_{im} p_{im} = \sum_m \sum_a do_{ia} v_{ma} p_{im} = \sum_a
# do_{ia} \sum_m p_{im} v_{ma} = \sum_a do_{ia} \, o_{ia}$. It needs only the output, which is how attention for long
# rows of tokens goes back tile by tile without ever holding a whole row (`F.tiled_attention`; Dao et al. 2022,
# algorithm 4).
#
# *Keys may shift together.* If the same vector $u$ is added to all keys, all scores of query $i$ grow by the same
# $\alpha \sum_a q_{ia} u_a$, which the softmax cancels. So the gradient with respect to $u$, which is $\sum_j dk_{ja} =
# \alpha \sum_i q_{ia} \sum_j ds_{ij}$, is zero: a bias of the keys is never learned.

# %%
assert np.allclose((dp * P).sum(-1), (dheads * heads).sum(-1), atol=1e-14)
assert np.allclose(dk.sum(2), 0, atol=1e-14)

# %% [markdown]
# ### The numbers of one example
#
# Two queries, two keys, $d = d_v = 1$ and so $\alpha = 1$: $q = (1, 0)$, $k = (0, \ln 3)$, $v = (4, 8)$.
#
# | | query 1 | query 2 |
# | --- | --- | --- |
# | scores $q_i k_j$ | $(0, \ln 3)$ | $(0, 0)$ |
# | probabilities | $(\tfrac14, \tfrac34)$ | $(\tfrac12, \tfrac12)$ |
# | output | $\tfrac14 \cdot 4 + \tfrac34 \cdot 8 = 7$ | $\tfrac12 \cdot 4 + \tfrac12 \cdot 8 = 6$ |
#
# and backwards from $do = (1, 2)$:
#
# | | query 1 | query 2 |
# | --- | --- | --- |
# | $dp_{ij} = do_i v_j$ | $(4, 8)$ | $(8, 16)$ |
# | $\sum_m dp_{im} p_{im} = do_i \, o_i$ | $7$ | $12$ |
# | $dp_{ij} - \sum_m dp_{im} p_{im}$ | $(-3, 1)$ | $(-4, 4)$ |
# | $ds_{ij}$, that times $p_{ij}$ | $(-\tfrac34, \tfrac34)$ | $(-2, 2)$ |
# | $dq_i = \sum_j ds_{ij} k_j$ | $\tfrac34 \ln 3$ | $2 \ln 3$ |
#
# The gradients of keys and values are sums over both queries: $dk_j = \sum_i ds_{ij} q_i = (-\tfrac34, \tfrac34)$, as
# the second query is zero, and $dv_j = \sum_i p_{ij} do_i = (\tfrac14 + 1, \tfrac34 + 1) = (\tfrac54, \tfrac74)$. The
# keys' gradient adds up to zero, as it has to.

# %%
column = (1, 1, 2, 1)
q2, k2, v2 = (np.array(numbers).reshape(column) for numbers in ([1.0, 0.0], [0, log(3)], [4.0, 8.0]))
o2, cache2 = F.attention(q2, k2, v2)
dq2, dk2, dv2 = F.attention_backward(np.array([1.0, 2.0]).reshape(column), cache2)
assert np.allclose(cache2.probs[0, 0], [[1 / 4, 3 / 4], [1 / 2, 1 / 2]])
assert np.allclose(o2.ravel(), [7, 6])
assert np.allclose(dq2.ravel(), [3 / 4 * log(3), 2 * log(3)])
assert np.allclose(dk2.ravel(), [-3 / 4, 3 / 4])
assert np.allclose(dv2.ravel(), [5 / 4, 7 / 4])

# %% [markdown]
# ### The check

# %%
report = gradcheck.check(F.attention, F.attention_backward, (q, k, v, bias))
print(report)
assert report.max_error < 1e-13

# %% [markdown]
# ## Why divide by √d
#
# Let the numbers of a query and of a key be independent, with mean 0 and variance 1, as they roughly are after a layer
# norm and a newly initialised projection. Their product $q_a k_a$ has mean $\mathrm{E}[q_a] \mathrm{E}[k_a] = 0$ and
# variance $\mathrm{E}[q_a^2 k_a^2] = \mathrm{E}[q_a^2] \, \mathrm{E}[k_a^2] = 1$. The $d$ products of a score are
# independent of one another, so their variances add up:
#
# $$\operatorname{Var}\Big[\sum_{a=1}^d q_a k_a\Big] = \sum_{a=1}^d \operatorname{Var}[q_a k_a] = d.$$
#
# Scores of a head that is $d$ wide have the standard deviation $\sqrt d$; divided by $\sqrt d$, they have 1 whatever
# the width.
#
# Why does it matter? The probabilities of scores that lie far apart are close to 0 and 1, and there the Jacobian $p_i
# (\delta_{ij} - p_j)$ is close to zero: the gradient with respect to the scores vanishes. Measured, over 64 keys:

# %%
widths = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
tokens, samples = 64, 16


def measured(d, scale):
    """The scores' standard deviation, the largest probability of a row, and the length of its scores' gradient."""
    draw = np.random.default_rng(d)
    q, k = draw.standard_normal((2, samples, 1, tokens, d))
    scores = q @ k.mT * scale
    probs, cache = F.softmax(scores)
    dscores = F.softmax_backward(draw.standard_normal(scores.shape), cache)
    return scores.std(), probs.max(-1).mean(), np.sqrt((dscores**2).sum(-1).mean())


plain = np.array([measured(d, 1.0) for d in widths])
scaled = np.array([measured(d, d**-0.5) for d in widths])
assert np.allclose(plain[:, 0], np.sqrt(widths), rtol=0.02)
assert np.allclose(scaled[:, 0], 1, rtol=0.02)

figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
titles = ("standard deviation of the scores", "largest probability of a row", "length of the scores' gradient")
for ax, column, title in zip(axes, range(3), titles):
    ax.plot(widths, plain[:, column], "o-", color="tab:red", label="not scaled")
    ax.plot(widths, scaled[:, column], "o-", color="tab:blue", label="times $1/\\sqrt{d}$")
    ax.set_title(title, fontsize=10)
    ax.set_xscale("log", base=2)
    ax.set_xlabel("width of a head $d$")
    ax.grid(alpha=0.3)
axes[0].set_yscale("log", base=2)
axes[0].plot(widths, np.sqrt(widths), "k:", label="$\\sqrt{d}$")
axes[0].legend(fontsize=8)
axes[1].set_ylim(0, 1)
plt.show()

# %% [markdown]
# Not scaled, a head 1,024 wide gives almost all of its attention to one key. The gradient grows at first, while
# attention narrows from 64 keys to a handful, as $p_i (1 - p_i)$ is largest at one half; then it falls. Scaled, all
# three are the same at every width. A learning rate that suits one width then suits another one.

# %%
print(f"largest probability at d = 1024: {plain[-1, 1]:.3f} not scaled, {scaled[-1, 1]:.3f} scaled")
assert plain[-1, 1] > 0.9 and scaled[-1, 1] < 0.15
assert np.ptp(scaled[:, 1]) < 0.05 and np.ptp(scaled[:, 2]) < 0.05
peak = plain[:, 2].argmax()
assert peak > 0 and plain[-1, 2] < 0.6 * plain[peak, 2]

# %% [markdown]
# ## On a real image
#
# You can watch attention without any trained weights. Cut a photograph into 28 rows of 28 patches, and use as both
# query and key of a patch its mean colour, minus the mean of all patches, as a unit vector. Its value is the patch
# itself. Then each patch attends to the patches of its own colour, and its output is a mean of them. The larger the
# scale, the fewer patches it chooses:

# %%
photo = load_sample_image("flower.jpg")[:420, 100:520].astype("float64") / 255
patches, _ = F.patchify(photo.transpose(2, 0, 1)[None], 15)            # (1, 784, 675)
colours = patches.reshape(784, 3, 225).mean(-1)
colours -= colours.mean(0)
unit = (colours / np.linalg.norm(colours, axis=1, keepdims=True))[None, None]
value = patches[None]                                                  # (1, 1, 784, 675)

query = 28 * 10 + 14
row, column = divmod(query, 28)
scales = (0.0, 10.0, 300.0)
looks, outputs, taken_from = [], [], []
for scale in scales:
    output, photo_cache = F.attention(unit, unit, value, scale=scale)
    looks.append(photo_cache.probs[0, 0])                              # (784, 784), one row per query
    outputs.append(F.unpatchify(output[0], 15)[0][0])                  # (3, 420, 420)
    surprise = -np.log(np.maximum(looks[-1], 1e-300))
    taken_from.append(np.exp((looks[-1] * surprise).sum(-1)).mean())   # e to the entropy: n, for n equal shares

figure, axes = plt.subplots(2, 4, figsize=(9, 4.8), layout="constrained")
axes[0, 0].imshow(photo)
axes[0, 0].set_title("the query, framed", fontsize=9)
axes[0, 0].add_patch(plt.Rectangle((15 * column, 15 * row), 15, 15, fill=False, edgecolor="white", linewidth=2))
for panel, result, scale, look, output, patches_each in zip(
    axes[0, 1:], axes[1, 1:], scales, looks, outputs, taken_from, strict=True
):
    # From a thousandth of the mean share, black, to the largest share: on a linear scale most of a sharp map is black.
    drawn = panel.imshow(look[query].reshape(28, 28), norm=LogNorm(1e-3 / 784, 1, clip=True), cmap="magma")
    panel.set_title(f"where it looks, scale {scale:g}", fontsize=9)
    result.imshow(output.transpose(1, 2, 0).clip(0, 1))
    result.set_title(f"outputs, of {patches_each:.0f} patches each", fontsize=9)
for panel in axes.flat:
    panel.axis("off")
figure.colorbar(drawn, ax=axes[0, 1:], shrink=0.9, label="share, logarithmic")
plt.show()

np.testing.assert_allclose(looks[0], 1 / 784)                          # scale 0: all alike, and each the mean of all
assert abs(taken_from[0] - 784) < 1e-6 and taken_from[0] > taken_from[1] > taken_from[2] > 1
assert all((looks[n].argmax(-1) == np.arange(784)).mean() > 0.99 for n in (1, 2))  # its own colour is most like it

# %% [markdown]
# And backwards: let the loss be the mean red of this one query's output, at the scale 10. Which of its scores would
# have to grow for more red? By the formula, those of patches that are redder than its mean over all patches, each in
# proportion to the attention that the patch already gets. And which pixel values? Only the red ones, each in proportion
# to the attention on its patch.

# %%
_, photo_cache = F.attention(unit, unit, value, scale=10.0)
doutput = np.zeros_like(value)
doutput[0, 0, query, :225] = 1 / 225                                   # a patch holds its 225 red numbers first
dunit_as_query, dunit_as_key, dvalue = F.attention_backward(doutput, photo_cache)

look, red = photo_cache.probs[0, 0, query], patches[0, :, :225].mean(-1)
dscore = look * (red - (look * red).sum())
np.testing.assert_allclose(dunit_as_query[0, 0, query], 10 * dscore @ unit[0, 0], atol=1e-12)
np.testing.assert_allclose(dunit_as_key[0, 0], 10 * np.outer(dscore, unit[0, 0, query]), atol=1e-12)
np.testing.assert_allclose(dvalue[0, 0, :, :225], np.repeat(look[:, None] / 225, 225, axis=1), atol=1e-15)
assert (dvalue[0, 0, :, 225:] == 0).all()

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.3), layout="constrained")
limit = np.abs(dscore).max()
diverging = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
pictures = (
    ("how red", red, {}),
    ("$ds$: more of the red", dscore, diverging),
    ("$dv$, its red part", dvalue[0, 0, :, 0], {"cmap": "magma", "vmin": 0}),
)
for panel, (title, numbers, colour_map) in zip(axes, pictures, strict=True):
    figure.colorbar(panel.imshow(numbers.reshape(28, 28), **colour_map), ax=panel, shrink=0.8)
    panel.set_title(title, fontsize=10)
    panel.axis("off")
plt.show()

# %% [markdown]
# ## Exercises
#
# **1.** Write the gradient of the softmax yourself. Your function gets the scores and no cache: compute $p$ again. The
# comment describes the arguments; `exercises.check` says whether your function is right, and if not, which entry is
# wrong and what it looks like.


# %%
def my_softmax_backward(dy, x):
    # dy: the gradient of the probabilities. x: the scores. Both (B, N)
    return np.zeros_like(x)  # in place of this, dx (B, N)


exercises.check("softmax_backward", my_softmax_backward)

# %% [markdown]
# **2.** And that of attention, with the scale $1/\sqrt d$ and without a bias.


# %%
def my_attention_backward(dy, q, k, v):
    # dy: the gradient of the heads (B, H, M, e), M queries. q: (B, H, M, d). k: (B, H, N, d), N keys. v: (B, H, N, e)
    return np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)  # in place of this, dq, dk and dv


exercises.check("attention_backward", my_attention_backward)

# %% [markdown]
# If it is wrong and you don't see where, give your intermediates by name: `exercises.check_steps` says up to which one
# they are right, and `print(exercises.steps("attention_backward"))` what they are called. And
# `print(exercises.hint("attention_backward"))` asks a question first; each further call says more.


# %%
def my_attention_backward_steps(dy, q, k, v):
    yield "dv", np.zeros_like(v)  # in place of this, dv; then "dprobs", "dscores", "dq" and "dk"


exercises.check_steps("attention_backward", my_attention_backward_steps)

# %% [markdown]
# **3.** By hand: the scores are $(0, 0, \ln 2)$, and the loss is $-\ln p_3$. What is its gradient with respect to
# the three scores? Put your numbers in place of `None`, as a tuple. (Notebook 06 finds the general formula.)

# %%
my_dscores = None

# %%
probs, cache = F.softmax(np.array([0, 0, log(2)]))
dscores = F.softmax_backward(np.array([0, 0, -1 / probs[2]]), cache)
exercises.check_number("my_dscores", my_dscores, dscores, "p is (1/4, 1/4, 1/2), and dy = (0, 0, −1/p₃).", 1e-4)

# %% [markdown]
# **4.** The forward itself, and then with several heads in one go. Notebook 04 derives the second.


# %%
def my_attention(q, k, v):
    # q: (B, H, M, d). k: (B, H, N, d). v: (B, H, N, e)
    return np.zeros((*q.shape[:3], v.shape[-1]))  # in place of this, the heads (B, H, M, e)


exercises.check("attention", my_attention)


# %%
def my_multi_head_attention(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    # x: (B, N, D). qkv_weight: (3D, D), for queries, keys and values. proj_weight: (D, D)
    return np.zeros_like(x)  # in place of this, y (B, N, D)


exercises.check("multi_head_attention", my_multi_head_attention)

# %% [markdown]
# **5.** The softmax itself. It has to work for scores of 1000, too.


# %%
def my_softmax(x):
    # x: (..., N)
    return np.zeros_like(x)  # in place of this, the probabilities


exercises.check("softmax", my_softmax)
