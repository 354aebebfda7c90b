# %% [markdown]
# # 09 · When the mathematics meets the machine
#
# A computer knows only finitely many numbers, fetches them more slowly than it multiplies them, and has room for only
# so many. None of that is in a formula, but all of it matters for how to compute the formula: this notebook shows where
# rounding hurts, how a gradient is checked to the last digit, and where time and memory go.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import time
import tracemalloc
from functools import partial
from math import exp, log
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

import tinyvit
from tinyvit import Context, Key, ViT, ViTConfig, exercises, gradcheck
from tinyvit import functional as F
from tinyvit.models.summary import activation_bytes, summarize
from tinyvit.probe import trace

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})

# %% [markdown]
# ## Numbers with gaps
#
# A float32 is $\pm 1.b_1 b_2 \dots b_{23} \cdot 2^e$: 24 binary digits and an exponent. Between two powers of 2 its
# neighbours are evenly spaced, and the gaps double from one power to the next. So what is relative to the number is
# bounded: rounding to the nearest is off by at most half a gap,
#
# $$\begin{aligned}
# \mathrm{fl}(x) &= x\,(1 + \delta), \\
# |\delta| &\le u, \\
# u &= 2^{-24} \approx 6\cdot 10^{-8}\ (\text{float64: } 2^{-53} \approx 10^{-16}),
# \end{aligned}$$
#
# and every sum, product, quotient and root is computed as if exactly, and then rounded like this.

# %%
u32, u64 = 2.0**-24, 2.0**-53
magnitudes = 10.0 ** np.arange(-6, 7.1, 0.05)

figure, axes = plt.subplots(figsize=(6, 2.6))
for dtype in ("float16", "float32", "float64"):
    inside = magnitudes < np.finfo(dtype).max
    axes.loglog(magnitudes[inside], np.spacing(magnitudes[inside].astype(dtype)).astype(float), label=dtype)
axes.set(xlabel="number", ylabel="gap to the next one")
axes.legend(fontsize=8)
plt.show()

assert np.spacing(np.float32(1)) == 2 * u32 and np.spacing(1.0) == 2 * u64
assert np.float32(2**24) + np.float32(1) == np.float32(2**24), "beyond 2²⁴ even whole numbers have gaps"
assert 0.1 + 0.2 != 0.3 and abs(0.1 + 0.2 - 0.3) <= np.spacing(0.3)

# %% [markdown]
# ### Sums
#
# Add $n$ numbers one after the other: $s_k = (s_{k-1} + x_k)(1+\delta_k)$. The first number goes through $n-1$
# roundings, so to first order the error is at most $(n-1)\,u\sum|x_i|$. Add them as a tree, halves of halves, and
# each number goes through only $\log_2 n$ of them. NumPy's `sum` does so along the axis that lies together in memory;
# its `cumsum` can't.

# %%
random = np.random.default_rng(0)
numbers = random.random(2**22).astype("float32")
counts = 2 ** np.arange(4, 23)
running = np.cumsum(numbers)                                     # in float32, one after the other
exact = np.cumsum(numbers, dtype="float64")
one_by_one = np.array([abs(running[n - 1] - exact[n - 1]) / exact[n - 1] for n in counts])
as_a_tree = np.array([abs(numbers[:n].sum() - exact[n - 1]) / exact[n - 1] for n in counts])

figure, axes = plt.subplots(figsize=(6, 2.6))
axes.loglog(counts, one_by_one, "o-", markersize=3, label="one after the other")
axes.loglog(counts, np.maximum(as_a_tree, 1e-9), "o-", markersize=3, label="as a tree")
axes.loglog(counts, counts * u32, "k--", linewidth=0.7, label="bound (n − 1) u")
axes.axhline(u32, color="k", linewidth=0.5)
axes.set(xlabel="how many numbers (float32)", ylabel="relative error of the sum")
axes.legend(fontsize=8)
plt.show()

assert (one_by_one <= counts * u32).all() and (as_a_tree <= np.log2(counts) * u32 + u32).all()
assert one_by_one[-1] > 20 * as_a_tree[-1]

# %% [markdown]
# ### Where digits vanish: the variance of a layer norm
#
# Rounding is small relative to what is rounded. It becomes large relative to a *difference* of nearly equal numbers.
# The variance can be written in two ways,
#
# $$\sigma^2 = \mathbb E[(x-\mu)^2] = \mathbb E[x^2] - \mu^2 ,$$
#
# and the second needs only one pass through the numbers. But $\mathbb E[x^2] \approx \mu^2 + \sigma^2$ is rounded by
# about $u\,(\mu^2+\sigma^2)$, and what is left after the subtraction is $\sigma^2$: the relative error is
#
# $$\frac{u\,(\mu^2 + \sigma^2)}{\sigma^2} = u\,\Big(1 + \frac{\mu^2}{\sigma^2}\Big).$$
#
# With a mean of 1,000 standard deviations seven digits become one. The first way subtracts before it squares. There
# $\mu$ causes an error only by its own rounding, up to $u\mu$, which shifts all the centred numbers alike. Since they
# add up to zero, only the square of the shift $\delta$ matters, $\mathbb E[(x-\mu-\delta)^2] = \sigma^2 + \delta^2$:
# the relative error is $(u\mu/\sigma)^2$, beside a few roundings.

# %%
means = 10.0 ** np.arange(0, 6.1, 0.25)
noise = random.standard_normal((50, 512))                        # fifty rows, so that no lucky one counts
errors = {"E[x²] − μ², one pass": [], "E[(x − μ)²], two passes": []}
for mean in means:
    rows = (mean + noise).astype("float32")
    true = rows.astype("float64").var(1)
    centred = rows - rows.mean(1, keepdims=True)
    one_pass = (rows * rows).mean(1) - rows.mean(1) ** 2
    two_passes = (centred * centred).mean(1)
    for name, variance in zip(errors, (one_pass, two_passes)):
        errors[name].append(np.sqrt((((variance - true) / true) ** 2).mean()))

figure, axes = plt.subplots(figsize=(6, 2.6))
for name, error in errors.items():
    axes.loglog(means, np.maximum(error, 1e-9), "o-", markersize=3, label=name)
axes.loglog(means, u32 * (1 + means**2), "k--", linewidth=0.7, label="u (1 + μ²/σ²)")
axes.axhline(1, color="k", linewidth=0.5)
axes.set(xlabel="mean, in standard deviations", ylabel="relative error", ylim=(1e-9, 1e6))
axes.legend(fontsize=8)
plt.show()

one_pass, two_passes = (np.array(error) for error in errors.values())
assert one_pass[means >= 1e5].min() > 1, "not one digit is right"
assert (two_passes < 10 * u32 + 10 * (u32 * means) ** 2).all() and (one_pass < 3 * u32 * (1 + means**2)).all()

# %% [markdown]
# So the layer norm goes through its row twice:

# %%
print(inspect.getsource(F.layernorm))
assert "centred * centred" in inspect.getsource(F.layernorm)

# %% [markdown]
# ### Overflow
#
# A float32 ends at $3.4\cdot10^{38}$, which $e^x$ reaches at $x = 88.7$. A softmax of such scores is NaN,
# though each probability is one. As $e^{x_i}/\sum_j e^{x_j}$ doesn't change when all $x$ move by the same number, the
# largest is moved to 0 first.

# %%
scores = np.array([[100.0, 98.0, 0.0]], "float32")
with np.errstate(over="ignore", invalid="ignore"):
    naive = np.exp(scores) / np.exp(scores).sum()
probs, _ = F.softmax(scores)
print("as it stands:  ", naive[0], "\nas it is coded:", probs[0].round(4))
assert np.isnan(naive[0, 0]) and np.isclose(probs[0, 0], 1 / (1 + exp(-2)))
assert round(log(np.finfo("float32").max), 1) == 88.7

# %% [markdown]
# ### Half as many bits
#
# GPUs multiply 16-bit numbers many times as fast. float16 has 11 binary digits and ends at 65,504; below
# $3\cdot10^{-8}$ it is zero. Two things go wrong if one simply trains in it. A weight of 1 can't be moved by a step
# of $10^{-4}$, as the gap there is $10^{-3}$: so weights stay float32, and only what is computed from them is
# rounded. And small gradients become zero: so the loss is multiplied by a large number before the backward, and the
# gradients divided by it in float32 after.

# %%
weight_16, weight_32 = np.float16(1), np.float32(1)
for _ in range(1000):
    weight_16, weight_32 = weight_16 + np.float16(1e-4), weight_32 + np.float32(1e-4)
print("1 + 1000 · 0.0001 =", weight_16, "in float16 and", weight_32.round(4), "in float32")

gradient, scale = 1e-8, 2.0**15
assert weight_16 == 1 and abs(weight_32 - 1.1) < 1e-4
assert np.float16(gradient) == 0
assert np.isclose(np.float32(np.float16(gradient * scale)) / scale, gradient, rtol=1e-3)

# %% [markdown]
# ## A whole ViT, in float32 and in float64
#
# How much of this accumulates over a whole model? The same weights and the same photograph, once in each format;
# `trace` keeps everything that the forward and the backward compute. Rounding errors are as good as random, so they add
# up like $\sqrt{\text{steps}}$, and the layer norms keep the numbers near 1.

# %%
photograph = load_sample_image("china.jpg")[60:316, 200:456]                       # (256, 256, 3)
image = photograph.reshape(64, 4, 64, 4, 3).mean((1, 3)).transpose(2, 0, 1)[None] / 127.5 - 1   # (1, 3, 64, 64)
config = ViTConfig(img_size=64, patch_size=8, embed_dim=64, depth=12, num_heads=4, global_pool="avg")
exact = ViT(config, seed=0, dtype="float64")
redrawn = np.random.default_rng(1)
for parameter in exact.parameters():          # the head starts at zero, through which no gradient would come
    parameter.data = (parameter.data + 0.05 * redrawn.standard_normal(parameter.shape)).astype("float32")
rounded = ViT(config, dtype="float32")
rounded.load_state_dict(exact.state_dict())

traces = {model.dtype.name: trace(model, image, np.array([3])) for model in (rounded, exact)}
streams = ["(embed)", *(f"blocks.{i}" for i in range(config.depth))]


def rms_error(got, wanted):
    """√mean((got − wanted)²) relative to √mean(wanted²)."""
    return float(np.sqrt(((got - wanted) ** 2).mean() / (wanted**2).mean()))


forward = [rms_error(traces["float32"].values[path], traces["float64"].values[path]) for path in streams]
backward = [rms_error(traces["float32"].gradients[path][0], traces["float64"].gradients[path][0]) for path in streams]

figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), width_ratios=[1, 1, 1.6])
pixels = traces["float64"].gradients["(embed)"][1][0]                              # (3, 64, 64)
difference = traces["float32"].gradients["(embed)"][1][0] - pixels
axes[0].imshow((image[0].transpose(1, 2, 0) + 1) / 2)
axes[0].set_title("the image", fontsize=9)
axes[1].imshow(np.log10(np.abs(difference).max(0) / np.abs(pixels).max() + 1e-9), cmap="magma", vmin=-9, vmax=-5)
axes[1].set_title("error of its gradient,\nblack 1e-9 to white 1e-5 of the largest", fontsize=8)
for ax in axes[:2]:
    ax.set_axis_off()
axes[2].semilogy(range(13), forward, "o-", markersize=3, label="tokens, on the way down")
axes[2].semilogy(range(13), backward, "s-", markersize=3, label="their gradients, on the way back")
axes[2].axhline(u32, color="k", linewidth=0.5)
axes[2].set(xlabel="blocks", ylabel="relative error", ylim=(1e-8, 1e-5))
axes[2].legend(fontsize=8)
plt.show()

assert max(forward) < 1e-6, "after twelve blocks, six digits are right"
assert max(backward) < 3e-6
assert max(forward) < 4 * forward[0], "block by block, it hardly grows on the way down"
assert backward[0] > 2 * backward[-1], "and on the way back somewhat more"
assert np.allclose(traces["float32"].logits, traces["float64"].logits, rtol=1.3e-6, atol=1e-5)

# %% [markdown]
# ## Is a gradient right? Central differences, and why they can't say for sure
#
# By Taylor, $f(x \pm h) = f \pm h f' + \frac{h^2}2 f'' \pm \frac{h^3}6 f''' + \dots$ Subtract one from the other: the
# even terms cancel, and
#
# $$\frac{f(x+h) - f(x-h)}{2h} = f' + \frac{h^2}{6}f''' + O(h^4) .$$
#
# A smaller $h$ makes this better. But both values of $f$ are rounded, by up to $u|f|$ each, and the difference is
# divided by $2h$: an error of $u|f|/h$, which a smaller $h$ makes worse. The sum of the two is least where its
# derivative with respect to $h$ is zero,
#
# $$\frac{h}{3}|f'''| - \frac{u|f|}{h^2} = 0 
# \quad\Rightarrow\quad h^* = \Big(\frac{3u|f|}{|f'''|}\Big)^{1/3} \sim u^{1/3} \approx 5\cdot 10^{-6},$$
#
# and there, it is of the size $u^{2/3} \approx 2\cdot 10^{-11}$. A third of all digits is lost, at best.
#
# ## The complex step
#
# Step into the imaginary direction instead (Squire & Trapp 1998). For a function that is analytic and real on the
# real axis,
#
# $$\begin{aligned}
# &f(x + ih) = f + ih f' - \frac{h^2}2 f'' - \frac{ih^3}6 f''' + \dots \\
# &\Rightarrow\quad \frac{\operatorname{Im} f(x+ih)}{h} = f' - \frac{h^2}{6}f''' + O(h^4) .
# \end{aligned}$$
#
# Nothing is subtracted, so there is nothing to cancel, and $h$ may be as small as one likes: with $h = 10^{-20}$ the
# second term is $10^{-40}$. The only error is the rounding of the derivative itself.
#
# Take the cross-entropy of two classes, $f(x) = \log(1 + e^x)$, at $x = 1$, whose derivatives are known: with
# $p = 1/(1+e^{-x})$, $f' = p$, $f'' = p(1-p)$ and $f''' = p(1-p)(1-2p)$.


# %%
def f(x):
    return np.log(1 + np.exp(x))


x = 1.0
p = 1 / (1 + exp(-x))
third = p * (1 - p) * (1 - 2 * p)
steps = 10.0 ** np.arange(-20, 0.1, 0.25)
found = {
    "one-sided": [(f(x + h) - f(x)) / h for h in steps],
    "central": [(f(x + h) - f(x - h)) / (2 * h) for h in steps],
    "complex step": [f(x + 1j * h).imag / h for h in steps],
}
error = {name: np.abs(np.array(values) - p) / p for name, values in found.items()}
best_h = (3 * u64 * f(x) / abs(third)) ** (1 / 3)

figure, axes = plt.subplots(figsize=(6.5, 3.2))
for name, values in error.items():
    axes.loglog(steps, np.maximum(values, 1e-17), label=name)
foreseen = (steps**2 / 6 * abs(third) + u64 * f(x) / steps) / p
axes.loglog(steps, foreseen, "k--", linewidth=0.7, label="h² |f'''| / 6 + u |f| / h")
axes.axvline(best_h, color="k", linewidth=0.5)
axes.set(xlabel="h", ylabel="relative error of the derivative", ylim=(3e-18, 30))
axes.legend(fontsize=8)
plt.show()

small = steps <= 1e-8
print(f"central: best h {best_h:.1e}; complex step: no more than rounding for every h below 1e-8")
assert error["complex step"][small].max() < 4 * u64 and abs(f(x + 1e-200j).imag / 1e-200 - p) < 4 * u64
assert 1e-14 < error["central"].min() < 1e-9
assert best_h / 30 < steps[error["central"].argmin()] < 30 * best_h
assert (error["central"][steps < 1e-16] == 1).all(), "x + h is x: the difference is zero, and every digit is wrong"

# %% [markdown]
# This is what the tests, and `tinyvit gradcheck`, do with every operation and with whole models. The derivative is
# one short function:

# %%
print(inspect.getsource(gradcheck._derivative))

# %% [markdown]
# Here is a whole ViT, its parameters and its input moved along one random direction. The error of the backward is the
# *largest* that may be left; it can't be told from the error of the derivative that it is compared with.

# %%
small_config = ViTConfig(img_size=8, patch_size=4, in_chans=1, embed_dim=16, depth=2, num_heads=4, global_pool="avg")
small_model = ViT(small_config, dtype="float64")
inputs = np.random.default_rng(2).standard_normal((2, 1, 8, 8))
steps = 10.0 ** np.arange(-14, -0.9, 1.0)
largest = {
    method: [gradcheck.check_model(small_model, inputs, method=method, step=h, directions=2).max_error for h in steps]
    for method in ("central", "complex")
}

figure, axes = plt.subplots(figsize=(6, 2.6))
for method, values in largest.items():
    axes.loglog(steps, values, "o-", markersize=3, label=method)
axes.axhline(1e-9, color="k", linewidth=0.5)
axes.set(xlabel="h", ylabel="largest disagreement", title=f"a ViT of {small_model.num_parameters():,} parameters")
axes.title.set_size(9)
axes.legend(fontsize=8)
plt.show()

assert max(error for h, error in zip(steps, largest["complex"]) if h < 1e-8) < 1e-12
assert 1e-12 < min(largest["central"]) < 1e-7

# %% [markdown]
# The price: the code has to work with complex numbers. A maximum or an absolute value doesn't; the absolute value of a
# complex number is real, and its imaginary part, where the derivative travels, is gone. That is why `functional/` says
# `x.real.max()` and never `abs`.


# %%
def absolute(x):
    return np.abs(x), np.sign(x)


def absolute_backward(dy, sign):
    return dy * sign


try:
    gradcheck.check(absolute, absolute_backward, (np.array([1.0, -2.0]),))
except ValueError as refusal:
    print(refusal)
    assert "dropped the imaginary part" in str(refusal)

assert gradcheck.check(absolute, absolute_backward, (np.array([1.0, -2.0]),), method="central").max_error < 1e-7

# %% [markdown]
# ## Speed: it is the bytes
#
# A core multiplies and adds dozens of numbers in the time in which one comes from memory. So what counts for an
# operation is how much it computes with each number that it moves. For the product of two $n\times n$ matrices that
# is $n^3$ multiply-adds on $3n^2$ numbers: $n/3$ each, more with every size. An elementwise function like GELU does a
# fixed few dozen, and moves everything in and out once. Count a block of a ViT, one image of 65 tokens, 192 wide:

# %%
N, D, hidden = 65, 192, 768
per_number = {
    "qkv: (N, D) @ (D, 3D)": N * D * 3 * D / (N * D + D * 3 * D + N * 3 * D),
    "MLP: (N, D) @ (D, 4D)": N * D * hidden / (N * D + D * hidden + N * hidden),
    "q kᵀ of a head 64 wide": N * 64 * N / (2 * N * 64 + N * N),
    "layer norm": 8 * N * D / (2 * N * D),
    "residual sum": N * D / (3 * N * D),
}
for name, count in per_number.items():
    print(f"{name:<24} {count:6.1f} operations for each number moved")

rows = summarize(ViT(ViTConfig(32, 4, embed_dim=D, depth=6, num_heads=3, mlp_ratio=4.0), device="meta"))
assert sum(r.multiply_adds for r in rows if r.path == "blocks.0.mlp.fc1") == N * D * hidden
assert per_number["MLP: (N, D) @ (D, 4D)"] > 10 * per_number["layer norm"]

# %% [markdown]
# Written as formulas, GELU's forward and backward are a dozen passes over arrays that don't fit the cache, and each
# pass waits for the memory. The kernels in `kernels/` compute the same numbers in pieces that stay in the cache
# (`numpy`), or compiled into a single pass (`fast`, if numba is installed). First: are they the same?

# %%
tokens = random.standard_normal((64, 65, 192)).astype("float32")
weight, bias = (random.standard_normal((2, 192))).astype("float32")
heads = random.standard_normal((3, 64, 3, 65, 64)).astype("float32")
operations = {
    "gelu": (F.gelu, (tokens,)),
    "layernorm": (F.layernorm, (tokens, weight, bias)),
    "attention": (F.attention, tuple(heads)),
}


def forward_and_backward(operation, inputs, level):
    with tinyvit.kernels.using(level):
        y, cache = operation(*inputs)
        gradients = operation.backward(y, cache)
        return y, *(gradients if isinstance(gradients, tuple) else (gradients,))


for operation, inputs in operations.values():
    plain = forward_and_backward(operation, inputs, "reference")
    for level in tinyvit.kernels.available():
        for got, wanted in zip(forward_and_backward(operation, inputs, level), plain):
            assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max()
print("every kernel agrees with the reference implementation to float32's rounding")

# %% [markdown]
# And are they faster? This is measured here and now, so the bars are different on every machine; nothing is asserted
# of them. `results/bench.txt` has the measurements that the README quotes, `results/speed.md` what was predicted
# before each change and what came.


# %%
def seconds(call, rounds=5):
    """The median time of a call, after one to warm up."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


levels = tinyvit.kernels.available()
times = {
    name: [seconds(partial(forward_and_backward, operation, inputs, level)) for level in levels]
    for name, (operation, inputs) in operations.items()
}
figure, axes = plt.subplots(figsize=(6, 2.4))
for i, level in enumerate(levels):
    ratios = [times[name][0] / times[name][i] for name in operations]
    axes.bar(np.arange(3) + 0.25 * i, ratios, 0.22, label=level)
axes.axhline(1, color="k", linewidth=0.5)
axes.set(xticks=np.arange(3) + 0.25, xticklabels=list(operations), ylabel="times as fast as\nthe reference")
axes.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Memory: attention in tiles
#
# The scores of $N$ queries with $N$ keys are $N^2$ numbers per head, and the backward needs them again. For 65 tokens
# that is nothing; for 4,097 it is everything. But the scores themselves aren't needed; what is needed is
# $y = \sum_j e^{s_j} v_j / \sum_j e^{s_j}$ for each query, and both sums can be collected a tile of keys at a time.
# The obstacle is the largest score, which has to be subtracted and isn't known before the last tile.
#
# So keep it as it is so far. Let $m$ be the largest score of the keys seen, and
#
# $$Z = \sum_{\text{seen}} e^{s_j - m}, \qquad a = \sum_{\text{seen}} e^{s_j - m}\, v_j .$$
#
# A new tile with scores $s$ brings $m' = \max(m, \max s)$. For every key seen before,
# $e^{s_j - m'} = e^{s_j - m}\, e^{m - m'}$: the factor is the same for all of them, so the sums are rescaled as a
# whole, and the new keys added,
#
# $$\begin{aligned}
# Z' &= Z\, e^{m - m'} + \sum_{\text{new}} e^{s_j - m'}, \\
# a' &= a\, e^{m-m'} + \sum_{\text{new}} e^{s_j - m'} v_j
# \end{aligned} \tag{tiled\_attention}$$
#
# So $Z$ and $a$ are now right for all keys seen, the new ones included, and after the last tile $y = a/Z$.
#
# **By hand**: one query, the scores $0, \log 3$ in the first tile and $\log 9$ in the second, with the values 1, 2
# and 4. After the first tile, $m = \log 3$, $Z = \frac13 + 1 = \frac43$, $a = \frac13\cdot1 + 1\cdot 2 = \frac73$.
# Then $m' = \log 9$ and $e^{m-m'} = \frac13$, so $Z' = \frac49 + 1 = \frac{13}9$, $a' = \frac79 + 4 = \frac{43}9$,
# and $y = \frac{43}{13}$. At once: $(1\cdot1 + 3\cdot2 + 9\cdot4)/(1+3+9)$, the same.

# %%
q = np.ones((1, 1, 1, 1))
k = np.log([1.0, 3.0, 9.0]).reshape(1, 1, 3, 1)
v = np.array([1.0, 2.0, 4.0]).reshape(1, 1, 3, 1)
in_tiles, cache = F.tiled_attention(q, k, v, scale=1.0, tile=2)
at_once, _ = F.attention(q, k, v, scale=1.0)
assert np.isclose(in_tiles[0, 0, 0, 0], 43 / 13) and np.isclose(at_once[0, 0, 0, 0], 43 / 13)
assert np.isclose(cache.total[0, 0, 0, 0], 13 / 9) and np.isclose(cache.largest[0, 0, 0, 0], log(9))
print("y =", in_tiles[0, 0, 0, 0].round(4))

# %% [markdown]
# **Backwards** the scores are not there any more. But $m$ and $Z$ of each query are kept, and with them each tile of
# probabilities can be made again, $p_j = e^{s_j - m} / Z$. In notebook 03, with $dp_j = dy \cdot v_j$,
#
# $$dv_j = p_j\, dy, \qquad ds_j = p_j \Big( dp_j - \sum_i p_i\, dp_i \Big)$$
#
# summed over the queries for $dv$. The sum is over all keys $i$, and a tile has only some of them. But it is known
# beforehand:
#
# $$\sum_i p_i\, dp_i = \sum_i p_i\, (dy \cdot v_i) = dy \cdot \sum_i p_i v_i = dy \cdot y$$
#
# One number for each query, made of what the forward returned. With it every tile can be computed by itself. Its scores
# are $s_{ij} = \alpha\, q_i \cdot k_j$ with the scale $\alpha$, and each tile adds its part to
#
# $$\begin{aligned}
# ds_{ij} &= p_{ij} \big( dy_i \cdot v_j - dy_i \cdot y_i \big) \\
# dq_i &= \alpha \sum_j ds_{ij}\, k_j \\
# dk_j &= \alpha \sum_i ds_{ij}\, q_i
# \end{aligned}$$
#
# $$dv = p^\top dy \tag{tiled\_attention\_backward}$$

# %%
print(inspect.getsource(F.tiled_attention))
print(inspect.getsource(F.tiled_attention_backward))
q, k, v, dy = random.standard_normal((4, 1, 1, 5, 3))
y, whole = F.attention.reference(q, k, v)
probs, dprobs = whole.probs, dy @ v.mT
np.testing.assert_allclose((probs * dprobs).sum(-1), (dy * y).sum(-1), rtol=1e-12, atol=1e-13)

# %% [markdown]
# Its gradient is right, and the memory grows with $N$, not with $N^2$. The memory is that of NumPy's arrays, as
# Python's `tracemalloc` counts them: forward and backward of one head 16 wide.

# %%
report = gradcheck.check(
    partial(F.tiled_attention, tile=3), F.tiled_attention_backward, tuple(random.standard_normal((3, 1, 2, 8, 4)))
)
assert report.max_error < 1e-13, report


def peak_memory(call):
    """The most bytes that Python and NumPy had at a time during a call, less what they had before."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


def back_and_forth(operation, tokens):
    with tinyvit.reference():
        y, cache = operation(*np.ones((3, 1, 1, tokens, 16), "float32"))
        operation.backward(y, cache)


lengths = [256, 512, 1024, 2048]
peaks = {
    name: [peak_memory(partial(back_and_forth, operation, n)) / 1e6 for n in lengths]
    for name, operation in {"all scores at once": F.attention, "in tiles of 256": F.tiled_attention}.items()
}
figure, axes = plt.subplots(figsize=(6, 2.6))
for name, values in peaks.items():
    axes.loglog(lengths, values, "o-", markersize=3, label=name)
axes.set(xlabel="tokens", ylabel="MB", xticks=lengths, xticklabels=lengths)
axes.minorticks_off()
axes.legend(fontsize=8)
plt.show()

for name, values in peaks.items():
    print(f"{name}: ×{values[-1] / values[-2]:.1f} from 1,024 to 2,048 tokens")
assert 3.8 < peaks["all scores at once"][-1] / peaks["all scores at once"][-2] < 4.1
assert peaks["in tiles of 256"][-1] / peaks["in tiles of 256"][-2] < 2
assert peaks["all scores at once"][-1] > 10 * peaks["in tiles of 256"][-1]

# %% [markdown]
# ## Memory: compute it again
#
# The backward of a block needs what the forward computed on the way, so a step keeps the activations of all $L$ blocks
# at once: for 12 blocks, twelve times as much as for one. Keep only each block's *input* instead, and when the backward
# arrives there, run the block once more. That costs one more forward, a third of the arithmetic of the step (a backward
# is two forwards: one product for the input's gradient, one for the weight's), and only one array of tokens per block
# still grows with $L$ (Chen et al. 2016).
#
# The random masks of dropout are functions of a key and not of what was drawn before, so that the second forward
# computes the same bits, and so does the backward.

# %%
def step(model, images, labels, recompute):
    """Loss and all gradients, with dropout."""
    ctx = Context(training=True, key=Key(0, 1), recompute=recompute)
    model.zero_grad()
    logits, cache = model(images, ctx)
    loss, loss_cache = F.cross_entropy(logits, labels)
    model.backward(F.cross_entropy_backward(1.0, loss_cache), cache)
    return float(loss), model.storage.gradients().copy()


images, labels = random.standard_normal((8, 3, 32, 32)).astype("float32"), np.arange(8)
depths = [2, 4, 8]
kept, again = [], []
for depth in depths:
    model = ViT(ViTConfig(32, 4, embed_dim=32, depth=depth, num_heads=2, drop_rate=0.1), seed=0)
    loss, gradients = step(model, images, labels, recompute=False)
    loss_again, gradients_again = step(model, images, labels, recompute=True)
    assert loss == loss_again and np.array_equal(gradients, gradients_again), "equal to the last bit"
    kept.append(peak_memory(partial(step, model, images, labels, False)) / 1e6)
    again.append(peak_memory(partial(step, model, images, labels, True)) / 1e6)

figure, axes = plt.subplots(figsize=(6, 2.6))
axes.plot(depths, kept, "o-", markersize=3, label="everything kept")
axes.plot(depths, again, "o-", markersize=3, label="computed again")
axes.set(xlabel="blocks", ylabel="MB in a step", xticks=depths, ylim=0)
axes.legend(fontsize=8)
plt.show()

growth = (kept[-1] - kept[0]) / (again[-1] - again[0])
print(f"another block costs {growth:.0f} times as much if everything is kept")
assert growth > 5
foreseen = [activation_bytes(model, 8, recompute) for recompute in (False, True)]
assert foreseen[0] > 3 * foreseen[1], "and `tinyvit summary` foresees it"

# %% [markdown]
# ## Exercises
#
# `exercises.check` calls your function and says whether it is right, and if not, where, and which mistake it looks
# like; `print(exercises.describe("kahan_sum"))` describes its arguments and results.
#
# **1.** Write the derivative of a function by the complex step.


# %%
def my_derivative(f, x):
    return 0.0  # in place of this, f'(x) for a function f that takes complex numbers, too


exercises.check("derivative", my_derivative)

# %% [markdown]
# **2.** Two processors have each seen half of a row of scores. Each knows the largest of its scores $m$ and its sum
# $Z = \sum e^{s - m}$. Write the function that computes the pair of the whole row from both pairs. (It is how a softmax
# is shared among GPUs.)


# %%
def my_merge(m1, l1, m2, l2):
    return 0.0, 0.0  # in place of this, (m, Z) of all scores


exercises.check("softmax_merge", my_merge)

# %% [markdown]
# **3.** Kahan's sum (1965) adds numbers one after the other, and is as exact as if it had twice as many digits:
# beside the sum $s$ it keeps what the last rounding lost, $c$, and takes it off the next number. $y = x - c$, then
# $t = s + y$, then $c = (t - s) - y$, then $s = t$. Write it in float32.


# %%
def my_sum(numbers):
    total = np.float32(0)
    for number in numbers:
        total = total + number  # to be improved upon
    return total


exercises.check("kahan_sum", my_sum)
