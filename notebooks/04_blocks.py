# %% [markdown]
# # 04 · Many heads, GELU, the MLP and the residual block
#
# One attention gives each token one weighted mean of the others. Several in parallel, the *heads*, give it several,
# each with its own weights. Then an MLP processes each token by itself. Both results are *added* to the token: that is
# the block. A ViT is a stack of blocks.
#
# ![A Vision Transformer with the shapes of its arrays](figures/architecture-04.svg)
#
# The frame is the subject of this notebook: one block, with the norms of notebook 02 and the attention of 03.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from math import erf, pi, sqrt
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from tinyvit import exercises, gradcheck, probe
from tinyvit import functional as F
from tinyvit.nn.attention import Attention
from tinyvit.nn.block import Block, Mlp
from tinyvit.nn.layers import LayerNorm, Linear
from tinyvit.nn.module import Module
from tinyvit.training.trained import load_data, load_trained

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
rng = np.random.default_rng(0)

# %% [markdown]
# Before any formula, a real image: a model that has learned the digits (`checkpoint/`, a 4×4 grid of patches) reads one
# of them. The maps show the attention that its class token pays to each patch in the last block. Each of the four heads
# attends to different patches.

# %%
trained = load_trained("checkpoint", device="cpu")
digits = load_data(trained).test
image = digits.normalise(digits.images[:1])                            # (1, 1, 8, 8)
seen = probe.trace(trained.model, image)
looks = seen.attention[-1, 0, :, 0]                                    # (H, N+1): of the class token, one row per head

figure, axes = plt.subplots(1, 5, figsize=(7.6, 1.8))
axes[0].imshow(digits.images[0, 0], cmap="gray")
axes[0].set_title(f"a {digits.labels[0]}", fontsize=9)
for head, panel in enumerate(axes[1:]):
    drawn = panel.imshow(looks[head, 1:].reshape(4, 4), cmap="magma", vmin=0, vmax=looks[:, 1:].max())
    panel.set_title(f"head {head}", fontsize=9)
for panel in axes:
    panel.axis("off")
figure.colorbar(drawn, ax=axes, shrink=0.7, label="attention")
plt.show()

np.testing.assert_allclose(looks.sum(1), 1, rtol=1e-5)
apart = [np.abs(looks[i] - looks[j]).sum() / 2 for i in range(4) for j in range(i)]
print("share of attention that goes elsewhere, for each pair of heads:", np.array(apart))
assert min(apart) > 0.1

# %% [markdown]
# # Many heads
#
# A softmax has one largest entry: a token that wants to look at its neighbour *and* at the other end of a line has to
# choose, or take the mean of both. With $H$ heads it need not. Each gets $d = D/H$ of the $D$ numbers, so that all of
# them together cost what one of the whole width would.
#
# Write $x_{bnj}$ for number $j$ of token $n$ in sample $b$. One linear layer makes queries, keys and values at once,
# $3D$ numbers a token:
#
# $$t_{bnm} = \sum_{j} x_{bnj} \, W_{mj} + b_m \qquad m = 0 \dots 3D - 1 \tag{linear}$$
#
# **Split.** The index $m$ consists of three: $i$ says whether it is a query (0), a key (1) or a value (2), $h$ is the
# head, and $a$ the place in the head: $m = (i H + h)\, d + a$. Calling the three $q$, $k$ and $v$,
#
# $$\begin{aligned}
# q_{bhna} &= t_{b,\,n,\,h d + a} \\
# k_{bhna} &= t_{b,\,n,\,(H + h) d + a} \\
# v_{bhna} &= t_{b,\,n,\,(2H + h) d + a}
# \end{aligned}$$
#
# **Attend**, each head by itself, as in notebook 03:
#
# $$\begin{aligned}
# o_{bhia} &= \sum_j p_{bhij} \, v_{bhja} \\
# p_{bhi} &= \operatorname{softmax}_j\!\Big( \frac{1}{\sqrt d} \sum_a q_{bhia} \, k_{bhja} \Big)
# \end{aligned} \tag{attention}$$
#
# **Merge.** The heads of a token are put side by side again, and a last linear layer mixes them:
#
# $$\begin{aligned}
# &u_{b,\,n,\,hd + a} = o_{bhna} \\
# &y_{bni} = b'_i + \sum_{m} u_{bnm} \, W'_{im} \\
# &\quad = b'_i + \sum_{h,a} o_{bhna} \, W'_{i,\,hd + a}
# \end{aligned} \tag{Attention.forward}$$
#
# The last form shows what merging does: each head has its own slice of $W'$, and the heads' results are added up.
#
# The layer is made of functions that you know already: `linear`, `attention`, and `linear` again. In NumPy, to split is
# to reshape the axis of $3D$ to three axes and to transpose them. Here is the layer, and the functions that it calls;
# `Linear` holds a weight and a bias, and passes them to the function.

# %%
print(inspect.getsource(Attention.forward))
print(inspect.getsource(Linear.forward))
print(inspect.getsource(F.linear))
print(inspect.getsource(F.attention))

# %% [markdown]
# By hand: two tokens of four numbers, in two heads of two. Head 0 gets the first two numbers of *every* token:

# %%
tokens = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
heads = tokens.reshape(2, 2, 2).transpose(1, 0, 2)                     # (N, H, d) to (H, N, d)
print("head 0\n", heads[0], "\nhead 1\n", heads[1])
assert heads.tolist() == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
assert heads.transpose(1, 0, 2).reshape(2, 4).tolist() == tokens.tolist()              # and merged again

# %% [markdown]
# A common mistake is to reshape straight to $(H, N, d)$. The shape is right, and there is no error; but head 0 then
# holds the first token cut in two, and nothing of the second:

# %%
mistaken = tokens.reshape(2, 2, 2)
print(mistaken[0])
assert mistaken.shape == heads.shape and mistaken[0].tolist() == [[1, 2], [3, 4]]

# %% [markdown]
# The formulas with their indices, against the module:

# %%
B, N, D, H = 2, 5, 12, 3
d = D // H
layer = Attention(D, H).materialize(seed=0, dtype="float64")
for parameter in layer.parameters():
    parameter.data = 0.5 * rng.standard_normal(parameter.shape)
x = rng.standard_normal((B, N, D))
y, cache = layer(x)

W, bias = layer.qkv.weight.data, layer.qkv.bias.data                   # (3D, D), (3D,)
W_out, bias_out = layer.proj.weight.data, layer.proj.bias.data         # (D, D), (D,)
w = x @ W.T + bias
q, k, v = (np.zeros((B, H, N, d)) for _ in range(3))
for h in range(H):
    for a in range(d):
        q[:, h, :, a], k[:, h, :, a], v[:, h, :, a] = (w[:, :, (c * H + h) * d + a] for c in range(3))
probs = F.softmax(q @ k.mT / sqrt(d))[0]                               # (B, H, N, N)
o = probs @ v                                                          # (B, H, N, d)
by_slices = bias_out + sum(o[:, h] @ W_out[:, h * d : (h + 1) * d].T for h in range(H))
np.testing.assert_allclose(by_slices, y, atol=1e-13)

# %% [markdown]
# ## The gradients
#
# Given $dy_{bni}$, from the bottom up.
#
# **The last linear layer** (notebook 01) gives $du_{bnm} = \sum_i dy_{bni} W'_{im}$,
# $dW'_{im} = \sum_{b,n} dy_{bni} \, u_{bnm}$ and $db'_i = \sum_{b,n} dy_{bni}$.
#
# **Merge.** $u_{b,n,m}$ is one number of one head, $\partial u_{b,\,n,\,m} / \partial o_{b'hn'a} = \delta_{bb'}
# \delta_{nn'} \, \delta_{m,\,hd + a}$. So the sum over $b, n, m$ has a single term:
#
# $$do_{bhna} = \sum_{b', n', m} du_{b'n'm} \, \delta_{bb'} \delta_{nn'} \, \delta_{m,\,hd + a} = du_{b,\,n,\,hd + a}$$
#
# The gradient goes back to where the number came from: the backward of a merge is the split, and that of a split is the
# merge. Reshapes and transposes only move numbers, so their backwards move the gradients back.
#
# **Attend**, each head by itself, by notebook 03. With $dp_{bhij} = \sum_a do_{bhia} \, v_{bhja}$ and, through the
# softmax, $ds_{bhij} = p_{bhij} \big( dp_{bhij} - \sum_m dp_{bhim} \, p_{bhim} \big)$:
#
# $$\begin{aligned}
# dq_{bhia} &= \tfrac{1}{\sqrt d} \sum_j ds_{bhij} \, k_{bhja} \\
# dk_{bhja} &= \tfrac{1}{\sqrt d} \sum_i ds_{bhij} \, q_{bhia} \\
# dv_{bhja} &= \sum_i p_{bhij} \, do_{bhia}
# \end{aligned} \tag{attention\_backward}$$
#
# **Split.** In the same way,
# $\partial q_{bhna} / \partial t_{b'n'm} = \delta_{bb'} \delta_{nn'} \, \delta_{m,\,hd + a}$, and with $H + h$ and
# $2H + h$ for keys and values. Each $m$ belongs to one of the three, one head and one place:
#
# $$\begin{aligned}
# dt_{b,\,n,\,hd + a} &= dq_{bhna} \\
# dt_{b,\,n,\,(H + h)d + a} &= dk_{bhna} \\
# dt_{b,\,n,\,(2H + h)d + a} &= dv_{bhna}
# \end{aligned}$$
#
# **The first linear layer.** $x$ goes into the queries, keys and values of all heads, so its gradient is a sum over all
# of them:
#
# $$\begin{aligned}
# &dx_{bnj} = \sum_{m} dt_{bnm} \, W_{mj} \\
# &= \sum_{h,a} dq_{bhna} \, W_{hd + a,\, j} \\
# &+ \sum_{h,a} dk_{bhna} \, W_{(H + h)d + a,\, j} \\
# &+ \sum_{h,a} dv_{bhna} \, W_{(2H + h)d + a,\, j}
# \end{aligned} \tag{Attention.backward}$$
#
# $$\begin{aligned}
# dW_{mj} &= \sum_{b,n} dt_{bnm} \, x_{bnj} \\
# db_m &= \sum_{b,n} dt_{bnm}
# \end{aligned} \tag{linear\_backward}$$
#
# In code it is the forward in reverse order (`rope` rotates queries and keys by their positions, if the model has
# rotary positions; dropout and tiles are variants of the same attention). `into` holds the arrays to which the
# gradients of weight and bias are added:

# %%
print(inspect.getsource(Attention.backward))
print(inspect.getsource(Linear.backward))
print(inspect.getsource(F.linear_backward))
print(inspect.getsource(F.attention_backward))

# %%
dy = rng.standard_normal(y.shape)
layer.zero_grad()
dx = layer.backward(dy, cache)

du = dy @ W_out                                                        # (B, N, D)
u = o.transpose(0, 2, 1, 3).reshape(B, N, D)
do = np.stack([du[:, :, h * d : (h + 1) * d] for h in range(H)], axis=1)               # (B, H, N, d)
dv, dprobs = probs.mT @ do, do @ v.mT
dscores = probs * (dprobs - (dprobs * probs).sum(-1, keepdims=True))
dq, dk = dscores @ k / sqrt(d), dscores.mT @ q / sqrt(d)
dt = np.zeros((B, N, 3 * D))
dx_by_heads = np.zeros_like(x)
for c, part in enumerate((dq, dk, dv)):
    for h in range(H):
        own = slice((c * H + h) * d, (c * H + h + 1) * d)
        dt[:, :, own] = part[:, h]
        dx_by_heads += part[:, h] @ W[own]

np.testing.assert_allclose(dx_by_heads, dx, atol=1e-13)
np.testing.assert_allclose(np.einsum("bnr,bnj->rj", dt, x), layer.qkv.weight.grad, atol=1e-13)
np.testing.assert_allclose(dt.sum((0, 1)), layer.qkv.bias.grad, atol=1e-13)
np.testing.assert_allclose(np.einsum("bni,bns->is", dy, u), layer.proj.weight.grad, atol=1e-13)
np.testing.assert_allclose(dy.sum((0, 1)), layer.proj.bias.grad, atol=1e-13)
assert np.abs(layer.qkv.bias.grad[D : 2 * D]).max() < 1e-13            # the keys' bias is never learned: notebook 03

report = gradcheck.check_model(layer, x)
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# # GELU
#
# Between the two layers of an MLP, a function is applied to each number by itself. The ReLU keeps positive numbers and
# sets negative ones to 0, with a corner in between. The GELU multiplies $x$ by the share of normally distributed
# numbers that are smaller than $x$: a large number hardly changes, one near 0 is halved, a very negative one becomes
# almost 0, and there is no corner.
#
# The standard normal distribution has the density $\varphi$ and the distribution function $\Phi$, the area under it:
#
# $$\varphi(t) = \frac{1}{\sqrt{2\pi}} \, e^{-t^2/2} \qquad \Phi(x) = \int_{-\infty}^{x} \varphi(t) \, dt$$
#
# $$y = x \, \Phi(x) \tag{gelu}$$
#
# **Φ by erf.** Libraries compute $\operatorname{erf}(x) = \frac{2}{\sqrt\pi} \int_0^x e^{-u^2} du$. Half of the area
# lies below 0, since $\varphi$ is symmetric. For the rest substitute $t = \sqrt2 \, u$, $dt = \sqrt2 \, du$:
#
# $$\begin{aligned}
# \Phi(x) &= \frac12 + \frac{1}{\sqrt{2\pi}} \int_0^x e^{-t^2/2} \, dt \\
# &= \frac12 + \frac{\sqrt2}{\sqrt{2\pi}} \int_0^{x/\sqrt2} e^{-u^2} \, du \\
# &= \frac12 + \frac{1}{\sqrt\pi} \cdot \frac{\sqrt\pi}{2} \operatorname{erf}\!\Big(\frac{x}{\sqrt2}\Big) \\
# &= \frac12 \Big( 1 + \operatorname{erf}\!\Big(\frac{x}{\sqrt2}\Big) \Big)
# \end{aligned}$$

# %%
print(inspect.getsource(F.gelu))

# %%
line = np.linspace(-8, 8, 16001)                                       # steps of 0.001
density = np.exp(-(line**2) / 2) / sqrt(2 * pi)
area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * 0.001)])      # trapezes
gelu, gelu_cache = F.gelu(line)
np.testing.assert_allclose(gelu, line * area, atol=1e-6)
assert all(abs(F.gelu(np.array(t))[0] - t * (1 + erf(t / sqrt(2))) / 2) < 1e-15 for t in (-2.5, -0.3, 0.0, 1.7))

# %% [markdown]
# ## Its gradient
#
# $y_i$ depends on $x_i$ alone: $\partial y_i / \partial x_j = \delta_{ij} \, y'(x_i)$. By the product rule
# $y' = 1 \cdot \Phi(x) + x \, \Phi'(x)$, and the derivative of an area with respect to its right end is the height
# there (the fundamental theorem of calculus), $\Phi' = \varphi$:
#
# $$\begin{aligned}
# dx_j &= \sum_i dy_i \, \delta_{ij} \, y'(x_i) \\
# &= dy_j \left( \Phi(x_j) + x_j \, \varphi(x_j) \right)
# \end{aligned} \tag{gelu\_backward}$$

# %%
print(inspect.getsource(F.gelu_backward))

# %%
slope = F.gelu_backward(np.ones_like(line), gelu_cache)
relu = np.maximum(line, 0)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.6))
axes[0].plot(line, density, label="$\\varphi$, the density")
axes[0].plot(line, area, label="$\\Phi$, the area under it")
axes[1].plot(line, relu, color="grey", linestyle=":", label="ReLU")
axes[1].plot(line, gelu, label="GELU")
axes[2].plot(line, line > 0, color="grey", linestyle=":", label="of the ReLU")
axes[2].plot(line, slope, label="of the GELU")
for ax, title in zip(axes, ("the normal distribution", "functions", "their derivatives"), strict=True):
    ax.set(xlim=(-4, 4), title=title)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, loc="upper left")
axes[1].set_ylim(-0.5, 4)
plt.show()

# %% [markdown]
# The plots show, and it follows from $\Phi(-x) = 1 - \Phi(x)$ and $\varphi(-x) = \varphi(x)$:
#
# - $y(x) - y(-x) = x \Phi(x) + x \Phi(-x) = x$.
# - $y'(x) + y'(-x) = \Phi(x) + x \varphi(x) + \Phi(-x) - x \varphi(x) = 1$.
# - $\varphi'(x) = -x \varphi(x)$, so $y'' = 2 \varphi + x \varphi' = (2 - x^2)\, \varphi$: the slope is largest at
# $\sqrt2$,   where it is 1.129, and smallest at $-\sqrt2$, where it is $-0.129$.
# - It falls until $x = -0.752$, where it is $-0.170$, and rises from there on.

# %%
np.testing.assert_allclose(gelu - gelu[::-1], line, atol=1e-14)
np.testing.assert_allclose(slope + slope[::-1], 1, atol=1e-14)
assert abs(line[slope.argmax()] - sqrt(2)) < 0.001 and abs(slope.max() - 1.129) < 0.0005
assert abs(line[slope.argmin()] + sqrt(2)) < 0.001 and abs(slope.min() + 0.129) < 0.0005
assert abs(line[gelu.argmin()] + 0.752) < 0.001 and abs(gelu.min() + 0.170) < 0.0005

# %% [markdown]
# By hand: $\Phi(1) = 0.8413$ and $\varphi(1) = 0.2420$, so $y(1) = 0.8413$ and $y(-1) = -(1 - 0.8413) = -0.1587$;
# the slopes are $0.8413 + 0.2420 = 1.0833$ and $0.1587 - 0.2420 = -0.0833$; at 0, it is one half.

# %%
three, three_cache = F.gelu(np.array([1.0, -1.0, 0.0]))
np.testing.assert_allclose(three, [0.8413, -0.1587, 0], atol=5.1e-5)
np.testing.assert_allclose(F.gelu_backward(np.ones(3), three_cache), [1.0833, -0.0833, 0.5], atol=5.1e-5)

report = gradcheck.check(F.gelu, F.gelu_backward, (rng.standard_normal((3, 5)),))
print(report)
assert report.max_error < 1e-14


def with_a_mistake(dy, cache):                                         # the product rule's second half is forgotten
    return dy * cache.cdf


report = gradcheck.check(F.gelu, with_a_mistake, (rng.standard_normal((3, 5)),))
print(report)
assert report.max_error > 0.05

# %% [markdown]
# ## The form with a tanh
#
# Some models were trained with an approximation that needs no erf. With $\kappa = \sqrt{2/\pi}$ and
# $\lambda = 0.044715$ (Hendrycks & Gimpel 2016, section 2):
#
# $$\begin{aligned}
# y &= \tfrac12 \, x \, (1 + t) \\
# t &= \tanh u \\
# u &= \kappa \, (x + \lambda x^3)
# \end{aligned} \tag{gelu\_tanh}$$
#
# It puts $\tanh u$ in the place of $\operatorname{erf}(x / \sqrt2)$. For small $x$ the two have the series
#
# $$\begin{aligned}
# \operatorname{erf}\!\Big(\frac{x}{\sqrt2}\Big) &= \kappa \Big( x - \frac{x^3}{6} + \dots \Big) \\
# \tanh u &= u - \frac{u^3}{3} + \dots = \kappa \Big( x + \lambda x^3 - \frac{\kappa^2 x^3}{3} + \dots \Big)
# \end{aligned}$$
#
# so they agree up to the third power for $\lambda = \kappa^2/3 - 1/6 = 0.0455$. The published coefficient is a little
# smaller, which makes it worse near 0 and better over the whole.
#
# **Its gradient.** $\tanh' = 1 - \tanh^2$, since $\tanh = \sinh / \cosh$ has by the quotient rule the derivative
# $(\cosh^2 - \sinh^2) / \cosh^2$. With the product rule and the chain rule:
#
# $$\begin{aligned}
# dx &= \tfrac12 \, dy \, \Big( 1 + t \\
# &\qquad + x \, (1 - t^2) \, \frac{du}{dx} \Big) \\
# \frac{du}{dx} &= \kappa \, (1 + 3 \lambda x^2)
# \end{aligned} \tag{gelu\_tanh\_backward}$$

# %%
print(inspect.getsource(F.gelu_tanh))
print(inspect.getsource(F.gelu_tanh_backward))

# %%
approximate, approximate_cache = F.gelu_tanh(line)
off = approximate - gelu
slope_off = F.gelu_tanh_backward(np.ones_like(line), approximate_cache) - slope
kappa = sqrt(2 / pi)
by_series = line / 2 * (1 + np.tanh(kappa * (line + (kappa**2 / 3 - 1 / 6) * line**3)))

figure, ax = plt.subplots(figsize=(5, 2.3))
ax.plot(line, off, label="of the function")
ax.plot(line, slope_off, label="of its derivative")
ax.set(xlim=(-6, 6), title="the error of the tanh form")
ax.grid(alpha=0.3)
ax.legend(fontsize=8)
plt.show()

print(f"largest error {np.abs(off).max():.1e}, of the derivative {np.abs(slope_off).max():.1e}")
assert 4.7e-4 < np.abs(off).max() < 4.8e-4 and 8.6e-4 < np.abs(slope_off).max() < 8.7e-4
near = np.abs(line) < 0.5
assert np.abs(by_series - gelu)[near].max() < np.abs(off)[near].max()                  # better near 0
assert np.abs(by_series - gelu).max() > 1.5 * np.abs(off).max()                        # worse over the whole

report = gradcheck.check(F.gelu_tanh, F.gelu_tanh_backward, (rng.standard_normal((3, 5)),))
print(report)
assert report.max_error < 1e-14

# %% [markdown]
# An error of 0.0005 is small, and more than float32 would make. So this package has both functions, and uses weights
# with the one that they were trained with.
#
# # The MLP
#
# Attention mixes the tokens; the MLP processes each by itself. Let $n$ count the tokens of the whole batch, $j$ and $i$
# the $D$ numbers of a token, and $m$ the $M$ numbers of the hidden layer, usually $M = 4D$:
#
# $$\begin{aligned}
# h_{nm} &= \sum_j x_{nj} \, W_{mj} + b_m \\
# a_{nm} &= h_{nm} \, \Phi(h_{nm}) \\
# y_{ni} &= \sum_m a_{nm} \, W'_{im} + b'_i
# \end{aligned} \tag{Mlp.forward}$$
#
# It is composed of `linear`, `gelu` and `linear`, whose code stands above. Without the GELU in between, two linear
# layers would be one: $(x W^\top) W'^\top = x \, (W' W)^\top$.
#
# **Its gradient**, from the bottom up, with steps that you know already. $a_{nm}$ occurs in $y_{ni}$ for every $i$;
# $W'_{im}$ in $y_{ni}$ for every $n$:
#
# $$\begin{aligned}
# da_{nm} &= \sum_i dy_{ni} \, W'_{im} \\
# dW'_{im} &= \sum_n dy_{ni} \, a_{nm} \\
# db'_i &= \sum_n dy_{ni}
# \end{aligned} \tag{linear\_backward}$$
#
# $$\begin{aligned}
# dh_{nm} &= da_{nm} \big( \Phi(h_{nm}) \\
# &\quad + h_{nm} \, \varphi(h_{nm}) \big)
# \end{aligned} \tag{gelu\_backward}$$
#
# $$\begin{aligned}
# dx_{nj} &= \sum_m dh_{nm} \, W_{mj} \\
# dW_{mj} &= \sum_n dh_{nm} \, x_{nj} \\
# db_m &= \sum_n dh_{nm}
# \end{aligned} \tag{linear\_backward}$$
#
# Write $J^\top dy$ for what the backward of a function does to $dy$. Then the three, one after the other, are
#
# $$dx = J_{\text{fc1}}^\top \, J_{\text{gelu}}^\top \, J_{\text{fc2}}^\top \, dy \tag{Mlp.backward}$$
#
# Only the gradients of what all tokens share, weights and biases, sum over tokens.

# %%
print(inspect.getsource(Mlp.forward))
print(inspect.getsource(Mlp.backward))

# %% [markdown]
# By hand: one token with the single number $x = 1$, two hidden ones, $W = (1, -1)$, $W' = (2, 1)$, no biases. Then
# $h = (1,
# -1)$, $a = (0.8413, -0.1587)$ and $y = 2 \cdot 0.84134 - 0.15866 = 1.5240$. Back from $dy = 1$: $da = (2, 1)$, $dh =
# (2 \cdot 1.0833, 1 \cdot (-0.0833)) = (2.1666, -0.0833)$, and $dx = 2.1666 \cdot 1 + (-0.0833) \cdot (-1) = 2.2499$.

# %%
tiny = Mlp(1, 2).materialize(dtype="float64")
tiny.load_state_dict({"fc1.weight": np.array([[1.0], [-1.0]]), "fc1.bias": np.zeros(2),
                      "fc2.weight": np.array([[2.0, 1.0]]), "fc2.bias": np.zeros(1)})  # fmt: skip
tiny_y, tiny_cache = tiny(np.ones((1, 1, 1)))
tiny.zero_grad()
tiny_dx = tiny.backward(np.ones((1, 1, 1)), tiny_cache)
np.testing.assert_allclose([tiny_y.item(), tiny_dx.item()], [1.5240, 2.2499], atol=5.1e-5)
np.testing.assert_allclose(tiny.fc1.weight.grad.ravel(), [2.1666, -0.0833], atol=5.1e-5)
np.testing.assert_allclose(tiny.fc2.weight.grad.ravel(), [0.8413, -0.1587], atol=5.1e-5)

# %%
mlp = Mlp(6, 24).materialize(dtype="float64")
x = rng.standard_normal((2, 5, 6))
report = gradcheck.check_model(mlp, x)
print(report)
assert report.max_error < 1e-10

y, cache = mlp(x)
order = rng.permutation(5)
np.testing.assert_allclose(mlp(x[:, order])[0], y[:, order], atol=1e-15)               # each token is by itself
dy = np.zeros_like(y)
dy[0, 3] = 1
assert np.unique(np.nonzero(mlp.backward(dy, cache))[1]).tolist() == [3]               # its gradient as well

W, W_out = mlp.fc1.weight.data, mlp.fc2.weight.data
np.testing.assert_allclose((x @ W.T) @ W_out.T, x @ (W_out @ W).T, atol=1e-14)         # two linear layers are one

# %% [markdown]
# # The residual block
#
# A branch doesn't replace what a token holds, it adds to it: $y = x + f(x)$. With $f = 0$ a block does nothing, so a
# block that has learned nothing yet does no harm. And the gradient has a path back that goes through no branch.
#
# **Its gradient is the sum of two paths.** With
# $\partial y_i / \partial x_j = \delta_{ij} + \partial f_i / \partial x_j$,
#
# $$dx_j = \sum_i dy_i \left( \delta_{ij} + \frac{\partial f_i}{\partial x_j} \right)
#   = \underbrace{dy_j}_{\text{past the branch}} +
#   \underbrace{\sum_i dy_i \, \frac{\partial f_i}{\partial x_j}}_{\text{through it}}$$
#
# For $L$ branches in sequence, the Jacobian is the product of the $I + J_l$. Multiplied out, each of its $2^L$
# terms chooses for each branch whether to go through or past; the one that goes past all is the identity. For two
# branches
#
# $$(I + J_2)(I + J_1) = I + J_1 + J_2 + J_2 J_1$$
#
# By hand, with $f_1(x) = 0.5 x$ and $f_2(x) = 2 x$: $y = (1 + 2)(1 + 0.5)\, x = 4.5 x$, and the four paths are
# $1 + 0.5 + 2 + 2 \cdot 0.5 = 4.5$.

# %%
assert (1 + 2) * (1 + 0.5) == 1 + 0.5 + 2 + 2 * 0.5 == 4.5

# %% [markdown]
# The block of a ViT has two branches, each with its layer norm at the start, *pre-norm*:
#
# $$\begin{aligned}
# x' &= x + \operatorname{attention}(\operatorname{norm}_1(x)) \\
# y &= x' + \operatorname{mlp}(\operatorname{norm}_2(x'))
# \end{aligned} \tag{Block.forward}$$
#
# (Dosovitskiy et al. 2021, equations 2 and 3.) Backwards, the same rule twice:
#
# $$\begin{aligned}
# dx' &= dy + J_{\text{norm}_2}^\top \, J_{\text{mlp}}^\top \, dy \\
# dx &= dx' + J_{\text{norm}_1}^\top \, J_{\text{attention}}^\top \, dx'
# \end{aligned} \tag{Block.backward}$$
#
# The code again calls what you know: the layer norm (notebook 02), the attention and the MLP from above.

# %%
print(inspect.getsource(Block.forward))
print(inspect.getsource(Block.backward))

# %% [markdown]
# `drop_path1` and `drop_path2` are stochastic depth (notebook 06): in training they drop a branch for some samples. In
# the backward, `dx` is first $dx'$, the gradient of the value between the branches: the sum of both paths.

# %%
block = Block(12, 3, 48).materialize(seed=0, dtype="float64")
for parameter in block.parameters():
    parameter.data = 0.3 * rng.standard_normal(parameter.shape)
x, dy = rng.standard_normal((2, 2, 5, 12))
y, cache = block(x)
dx = block.backward(dy, cache)

normed1, c_norm1 = block.norm1(x)
attended, c_attn = block.attn(normed1)
between = x + attended
normed2, c_norm2 = block.norm2(between)
thought, c_mlp = block.mlp(normed2)
np.testing.assert_allclose(between + thought, y, atol=1e-13)

past, through = dy, block.norm2.backward(block.mlp.backward(dy, c_mlp), c_norm2)
dbetween = past + through
past, through = dbetween, block.norm1.backward(block.attn.backward(dbetween, c_attn), c_norm1)
np.testing.assert_allclose(past + through, dx, atol=1e-12)

report = gradcheck.check_model(block, x)
print(report)
assert report.max_error < 1e-9

# %% [markdown]
# If both branches end in zeros, the block is the identity, forwards and backwards:

# %%
for parameter in (*block.attn.proj.parameters(), *block.mlp.fc2.parameters()):
    parameter.data = np.zeros(parameter.shape)
y, cache = block(x)
assert (y == x).all() and (block.backward(dy, cache) == dy).all()

# %% [markdown]
# ## Pre-norm against post-norm
#
# The first transformer (Vaswani et al. 2017, section 3.1) had the norm *after* the sum, where every path goes through
# it:
#
# $$x' = \operatorname{norm}_1(x + \operatorname{attention}(x))
#   \qquad y = \operatorname{norm}_2(x' + \operatorname{mlp}(x'))$$
#
# Then no path avoids all layers. Even the path past all branches goes through $2L$ norms, and each shortens the
# gradient: notebook 02 has found, with weight 1 as at the start,
#
# $$dx = r \Big( g - \operatorname{mean}(g) - \hat x \operatorname{mean}(g \, \hat x) \Big),
#   \qquad r = 1 / \sqrt{\sigma^2 + \varepsilon}$$
#
# In the brackets $g$ loses its part along $(1, \dots, 1)$ and, but for $\varepsilon$, its part along $\hat x$, which
# are perpendicular to each other. The result is no longer than $g$, so $|dx| \le r \, |g|$. And $r$ is mostly below 1:
# the input has the variance 1, as it comes from a norm, and the branch adds to that, unless it points against the
# input. With pre-norm the same path has no norm on it, and the gradient passes unchanged through any number of blocks.
#
# To measure it, here is a block with post-norm, made of the package's parts:


# %%
class PostNormBlock(Module):
    def __init__(self, dim, num_heads, hidden):
        self.attn, self.norm1 = Attention(dim, num_heads), LayerNorm(dim)
        self.mlp, self.norm2 = Mlp(dim, hidden), LayerNorm(dim)

    def forward(self, x, ctx=None):
        a, c_attn = self.attn(x, ctx)
        x, c_norm1 = self.norm1(x + a, ctx)
        m, c_mlp = self.mlp(x, ctx)
        y, c_norm2 = self.norm2(x + m, ctx)
        return y, (c_attn, c_norm1, c_mlp, c_norm2)

    def backward(self, dy, cache):
        c_attn, c_norm1, c_mlp, c_norm2 = cache
        dx = self.norm2.backward(dy, c_norm2)
        dx = dx + self.mlp.backward(dx, c_mlp)
        dx = self.norm1.backward(dx, c_norm1)
        return dx + self.attn.backward(dx, c_attn)

    def backward_past_the_branches(self, dy, cache):
        _, c_norm1, _, c_norm2 = cache
        return self.norm1.backward(self.norm2.backward(dy, c_norm2), c_norm1)


report = gradcheck.check_model(PostNormBlock(12, 3, 48).materialize(dtype="float64"), x)
print(report)
assert report.max_error < 1e-9

# %% [markdown]
# 24 blocks of each kind as they are initialised, 64 numbers wide; random tokens at one end, and a random gradient at
# the other. At each depth: the mean length of a token, the length of the gradient relative to what it was at the
# end, and that of its part on the path past all branches.

# %%
depth, width = 24, 64


class Pile(Module):
    def __init__(self, kind):
        self.blocks = [kind(width, 4, 4 * width) for _ in range(depth)]


def length(array):
    return np.linalg.norm(array, axis=-1).mean()


def measured(kind):
    """(lengths of tokens, of their gradients, of the part past all branches), from depth 0 on; the norms' factors r."""
    draw = np.random.default_rng(0)
    x, dy = draw.standard_normal((2, 4, 17, width))
    blocks, caches, lengths = Pile(kind).materialize(seed=0, dtype="float64").blocks, [], [length(x)]
    for block in blocks:
        x, cache = block(x)
        caches.append(cache)
        lengths.append(length(x))
    whole, past = [dy], [dy]
    for block, cache in zip(reversed(blocks), reversed(caches)):
        whole.append(block.backward(whole[-1], cache))
        past.append(block.backward_past_the_branches(past[-1], cache) if kind is PostNormBlock else past[-1])
    factors = [c.rstd for cache in caches for c in cache if kind is PostNormBlock and hasattr(c, "rstd")]
    relative = [np.array([length(dx) for dx in reversed(dxs)]) / length(dy) for dxs in (whole, past)]
    return np.array(lengths), *relative, factors


pre, post = measured(Block), measured(PostNormBlock)

figure, axes = plt.subplots(1, 3, figsize=(9.4, 2.8))
for ax, row, title in zip(axes, range(3), ("length of a token", "length of its gradient", "… past all branches")):
    ax.plot(pre[row], label="pre-norm", color="tab:blue")
    ax.plot(post[row], label="post-norm", color="tab:red")
    ax.set(title=title, xlabel="blocks after it")
    ax.grid(alpha=0.3)
axes[0].set_ylim(0, None)
axes[1].set_ylim(0, None)
axes[2].set_yscale("log")
axes[0].legend(fontsize=8)
plt.show()

for name, (lengths, whole, past, _) in {"pre-norm": pre, "post-norm": post}.items():
    print(f"{name:<10} tokens {lengths[0]:.1f} to {lengths[-1]:.1f}; gradient at the first block {whole[0]:.2f}, "
          f"smallest {whole.min():.2f}; past all branches {past[0]:.1e}")  # fmt: skip

# %% [markdown]
# With post-norm the gradient past all branches shrinks to a ten-thousandth, so nearly all of the gradient comes through
# branches. It falls to a fifth, and grows again in earlier blocks; how long it is in the end depends on the branches'
# weights. With pre-norm it is never shorter than at the end. The price: the tokens grow, each branch adding about as
# much as the one before, so their squared length is in proportion to the depth, and a late branch changes them
# relatively less. That is also why a pre-norm model has one more norm after its last block: without it, the deeper the
# model, the longer the vectors that the head reads.

# %%
assert (pre[2] == 1).all() and pre[1].min() >= 0.999
assert post[2][0] < 2e-4 and (np.diff(post[2]) > 0).all()
assert post[1].min() < 0.25 < 4 * post[1].min() < post[1][0]           # down to a fifth, and up again

assert len(post[3]) == 2 * depth and all(r.mean() < 1 for r in post[3])
bound = np.prod(post[3], axis=0).max()                                 # of the token that is shortened least
assert post[2][0] <= bound < 0.01                                      # |dx| ≤ r |g|, 48 times

np.testing.assert_allclose(post[0][1:], sqrt(width), rtol=1e-3)        # a norm leaves every token as long as this
squares = pre[0] ** 2
assert np.corrcoef(squares, np.arange(depth + 1))[0, 1] > 0.98 and pre[0][-1] > 3 * pre[0][0]

# %% [markdown]
# ### And trained?
#
# Six blocks of either kind on the digits, by AdamW with the same peak rate, each with a warm-up over the first tenth of
# the steps and without; three seeds each (`results/ablations.py`, 40 epochs).

# %%
results = json.loads(Path("results/ablations.json").read_text())["norm"]
figure, ax = plt.subplots(figsize=(6, 1.9))
for name, row in results.items():
    print(f"{name:<28} {row['mean']:.1%} ± {row['std']:.1%}")
    ax.errorbar(100 * row["mean"], name, xerr=100 * row["std"], fmt="o", color="tab:blue", capsize=3)
ax.invert_yaxis()
ax.set(xlabel="test accuracy in %: mean and standard deviation of three seeds")
plt.show()

# %% [markdown]
# With the norm before the branch, the warm-up is not needed; the two differ by less than their spread allows to tell.
# With the norm after the sum, six blocks are behind even with a warm-up; without one, the result depends on the seed.
# (This is one rate, 0.003. A smaller one would suit post-norm better: Xiong et al. 2020 say why.)

# %%
assert min(results["before, with warm-up"]["accuracy"]) > max(results["after, with warm-up"]["accuracy"])
assert results["after, without"]["std"] > 5 * results["before, without"]["std"]

# %% [markdown]
# ## On a real image
#
# Here is the trained model with the digit from the beginning: how long each token is in front of and after each block,
# and how long the vectors are that attention and MLP add to it.

# %%
stream = seen.residual_stream[:, 0]                                    # (L+1, N+1, D)
figure, axes = plt.subplots(3, 4, figsize=(6.4, 4.4))
branches = [(seen.values[f"blocks.{i}.attn"][0], seen.values[f"blocks.{i}.mlp"][0]) for i in range(3)]
largest = max(np.linalg.norm(tokens, axis=-1)[1:].max() for tokens in stream)
for i, (line_of_axes, (attended, thought)) in enumerate(zip(axes, branches, strict=True)):
    np.testing.assert_allclose(stream[i] + attended + thought, stream[i + 1], atol=1e-4)
    pictures = {"comes in": stream[i], "attention adds": attended, "MLP adds": thought, "goes out": stream[i + 1]}
    for panel, (title, tokens) in zip(line_of_axes, pictures.items(), strict=True):
        lengths = np.linalg.norm(tokens, axis=-1)
        panel.imshow(lengths[1:].reshape(4, 4), cmap="magma", vmin=0, vmax=largest)
        panel.set_title(f"{title}: {lengths.mean():.1f}", fontsize=9)
        panel.axis("off")
figure.suptitle("lengths by patch in blocks 0 to 2, and their mean", fontsize=10)
plt.show()

means = [np.linalg.norm(tokens, axis=-1).mean() for tokens in stream]
print("mean length of a token at each depth:", np.array(means))
assert (np.diff(means) > 0).all()                                      # the stream grows in a trained model as well

# %% [markdown]
# ## Exercises
#
# **1.** The gradient of the GELU. Your function gets `x`, not the cache (`math.erf` takes one number;
# `scipy.special.erf` takes arrays).


# %%
def my_gelu_backward(dy, x):
    # dy and x: (B, N)
    return np.zeros_like(x)  # in place of this, dx (B, N)


exercises.check("gelu_backward", my_gelu_backward)

# %% [markdown]
# **2.** The MLP, with what you have.


# %%
def my_mlp_backward(dy, x, weight1, bias1, weight2):
    # dy and x: (B, N, D). weight1: (M, D). bias1: (M,). weight2: (D, M)
    dbias2 = np.zeros(len(weight2))
    # in place of these zeros, dx, dweight1, dbias1, dweight2, dbias2
    return np.zeros_like(x), np.zeros_like(weight1), np.zeros_like(bias1), np.zeros_like(weight2), dbias2


exercises.check("mlp_backward", my_mlp_backward)

# %% [markdown]
# **3.** Attention with many heads, including its four linear layers.


# %%
def my_multi_head_attention_backward(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    # dy and x: (B, N, D). qkv_weight: (3D, D), for queries, keys and values. qkv_bias: (3D,). proj_weight: (D, D)
    dproj_bias = np.zeros(len(proj_weight))
    # in place of these zeros, dx, dqkv_weight, dqkv_bias, dproj_weight, dproj_bias
    return np.zeros_like(x), np.zeros_like(qkv_weight), np.zeros_like(qkv_bias), np.zeros_like(proj_weight), dproj_bias


exercises.check("multi_head_attention_backward", my_multi_head_attention_backward)

# %% [markdown]
# **4.** The whole block. `print(exercises.describe("block_backward"))` names its parameters. If you can do this, you
# can write the backward of a ViT: it is this, $L$ times.


# %%
def my_block_backward(dy, x, parameters, num_heads, eps):
    # dy and x: (B, N, D). parameters: a dict of arrays, "norm1.weight", "norm1.bias", "attn.qkv.weight", …
    gradients = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}
    return np.zeros_like(x), gradients  # in place of the zeros, dx and the gradient of each parameter


exercises.check("block_backward", my_block_backward)

# %% [markdown]
# If the answer doesn't name your mistake, give your intermediates, in the order of the backward, and it says up to
# which of them, counted from the loss, they are right. `print(exercises.steps("block_backward"))` has their names.


# %%
def my_block_backward_steps(dy, x, parameters, num_heads, eps):
    yield "mlp.fc2", np.zeros((1, 1, 1))  # in place of this, what comes back through fc2; then "mlp.gelu", …


exercises.check_steps("block_backward", my_block_backward_steps)

# %% [markdown]
# **5.** The three forwards that this notebook has derived: the GELU, the MLP, and the block made of all parts.


# %%
def my_gelu(x):
    # x: an array of any shape. NumPy has no erf; scipy.special.erf takes arrays
    return np.zeros_like(x)  # in place of this, y


exercises.check("gelu", my_gelu)


# %%
def my_mlp(x, weight1, bias1, weight2, bias2):
    # x: (B, N, D). weight1: (M, D). bias1: (M,). weight2: (D, M). bias2: (D,)
    return np.zeros_like(x)  # in place of this, y (B, N, D)


exercises.check("mlp", my_mlp)


# %%
def my_block(x, parameters, num_heads, eps):
    # x: (B, N, D). parameters: a dict of arrays, "norm1.weight", "norm1.bias", "attn.qkv.weight", …
    return np.zeros_like(x)  # in place of this, y (B, N, D)


exercises.check("block", my_block)
