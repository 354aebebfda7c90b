# %% [markdown]
# # 05 · The whole ViT, by hand
#
# All parts are there: tokens (01), the layer norm (02), attention (03), the block (04). Put one after the other, they
# are a Vision Transformer; its backward is the chain rule, one part at a time, from the last to the first. First with
# numbers that fit on a sheet of paper, every one of them shown; then in the code; then for the models of the paper,
# which are counted without ever being built.
#
# ![A Vision Transformer with the shapes of its arrays](figures/architecture-05.svg)
#
# This notebook is about parts 1, 2 and 3 together.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np

from tinyvit import ViT, ViTConfig, create_model, exercises, gradcheck, minimal, probe
from tinyvit import functional as F
from tinyvit.functional.attention import attention_scores, attention_scores_backward
from tinyvit.models import worked_example as example
from tinyvit.models.summary import summarize
from tinyvit.models.vit import Encoder
from tinyvit.nn.stack import stack, stack_backward
from tinyvit.training.trained import load_data, load_trained

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)

# %% [markdown]
# # A sheet of paper
#
# An image of 4×4 pixels in four patches, and a class token, four numbers each. One attention head whose projections are
# identities, so that query, key and value of a token are the token itself. A residual connection, a layer norm, a head
# for two classes. Black arrows are the way forwards, red ones the way back.

# %%
figure, ax = plt.subplots(figsize=(9.6, 2.6))
ax.set(xlim=(-0.7, 12.9), ylim=(-0.9, 2.5))
ax.axis("off")
stations = ["pixels,\nclass token", "$z^0$", "attention\n$o$", "+\n$z^1$",
            "norm\n$y$", "class\n$f$", "head\n$l$", "loss\n$\\mathcal{L}$"]  # fmt: skip
places = [0, 1.8, 3.6, 5.4, 7.2, 9.0, 10.6, 12.2]
for place, station in zip(places, stations, strict=True):
    ax.text(place, 0.5, station, ha="center", va="center", fontsize=10,
            bbox={"boxstyle": "round", "facecolor": "whitesmoke", "edgecolor": "grey"})  # fmt: skip
steps_back = ["$dz^0$", "$dq, dk, dv$", "$do$", "$dz^1$", "$dy$", "$df$", "$dl$"]
for start, end, gradient in zip(places, places[1:], steps_back, strict=False):
    ax.annotate("", (end - 0.55, 0.6), (start + 0.6, 0.6), arrowprops={"arrowstyle": "->"})
    ax.annotate("", (start + 0.6, 0.35), (end - 0.55, 0.35), arrowprops={"arrowstyle": "->", "color": "tab:red"})
    ax.text((start + end) / 2, -0.15, gradient, color="tab:red", ha="center", va="center", fontsize=9)
past = {"arrowstyle": "->", "connectionstyle": "arc3,rad=-0.45"}
past_and_back = {"arrowstyle": "->", "connectionstyle": "arc3,rad=0.35", "color": "tab:red"}
ax.annotate("", (5.3, 1.05), (1.9, 1.05), arrowprops=past)
ax.annotate("", (2.2, 1.0), (5.0, 1.0), arrowprops=past_and_back)
ax.text(3.6, 2.2, "residual", ha="center", fontsize=9)
plt.show()

# %% [markdown]
# The package has this example as a program, in the functions of `tinyvit.functional` that the notebooks before this one
# have derived (`python -m tinyvit.models.worked_example` prints it). Their names are at the right of the formulas
# below, and their code follows after the sheet. Forwards:

# %%
print(inspect.getsource(example.forward))

# %% [markdown]
# And backwards, the same steps in reverse order:

# %%
print(inspect.getsource(example.backward))

# %% [markdown]
# Now every line of it, in plain NumPy and with its formula. Tokens are counted by $i$ and $j$, from 0, the class token,
# to 4; their numbers by $a$ and $a'$, from 1 to $D = 4$. Each step is compared with the program's, and with numbers
# that are written down here.

# %%
loss, steps = example.forward()
gradients = example.backward(steps)


def on_paper(ours, program, *written):
    """The step is the program's to the last digits, and its first rows are the written numbers to the fourth."""
    np.testing.assert_allclose(ours, program, rtol=1e-12, atol=1e-15)
    for row, numbers in zip(np.atleast_2d(ours), written):
        np.testing.assert_allclose(row, numbers, atol=5.1e-5)
    print(ours)


# %% [markdown]
# ## Forwards
#
# **0. Patches.** The image $I$ is cut into patches of 2×2 pixels, and each is written down row by row. With the pixels
# counted from 1 as well, patch $x_1$ is the upper left one and $x_2$ the one to its right:
#
# $$\begin{aligned}
# x_1 &= (I_{11}, I_{12}, I_{21}, I_{22}) \\
# x_2 &= (I_{13}, I_{14}, I_{23}, I_{24})
# \end{aligned}$$
#
# and so on. A projection would follow; here it is the identity, since a token is as wide as a patch has pixels.

# %%
image = example.IMAGE[0, 0]                                            # (4, 4)
print(image)
cut = np.array([image[i : i + 2, j : j + 2].ravel() for i in (0, 2) for j in (0, 2)])
on_paper(cut, steps["patches"][0], [0.8, -0.3, 0.5, 1.2], [1.1, 0.2, -0.4, 0.7])

# %% [markdown]
# **1. Tokens.** The class token $t$ in front of the patches $x_n$, and to each the vector of its place $e_i$:
#
# $$z^0_{0a} = t_a + e_{0a} \tag{prepend\_token}$$
#
# $$z^0_{na} = x_{na} + e_{na} \quad (n = 1 \dots 4) \tag{add\_positions}$$

# %%
x, t, e = cut, example.CLS_TOKEN[0, 0], example.POSITIONS[0]
z0 = np.vstack([t, x]) + e                                             # (5, 4)
on_paper(z0, steps["z0"][0], [0.1, 0.1, 0.1, 0.1], [0.9, -0.3, 0.4, 1.2], [1.1, 0.3, -0.4, 0.6])

# %% [markdown]
# **2. Scores.** With the scale $\alpha = 1/\sqrt 4 = \tfrac12$, and $q = k = z^0$:
#
# $$s_{ij} = \alpha \sum_a z^0_{ia} z^0_{ja} \tag{attention\_scores}$$
#
# The class token is 0.1 in all its numbers, so its scores are $\tfrac12 \cdot 0.1$ times the sum of a token's
# numbers: $s_{00} = 0.05 \cdot 0.4 = 0.02$ and $s_{01} = 0.05 \cdot (0.9 - 0.3 + 0.4 + 1.2) = 0.05 \cdot 2.2 = 0.11$.

# %%
alpha = 1 / 2
cache = steps["c_attention"]
s = alpha * z0 @ z0.T                                                  # (5, 5), one row per query
on_paper(s, (cache.q @ cache.k.mT)[0, 0] * cache.scale, [0.02, 0.11, 0.08, 0.06, 0.055])
assert np.isclose(s[0, 1], 0.05 * (0.9 - 0.3 + 0.4 + 1.2))

# %% [markdown]
# **3. Probabilities**, each row by itself. In the first row the exponentials are 1.0202, 1.1163, 1.0833, 1.0618 and
# 1.0565; they add up to 5.3381, and $1.0202 / 5.3381 = 0.1911$.
#
# $$p_{ij} = \frac{e^{s_{ij}}}{\sum_m e^{s_{im}}} \tag{softmax}$$

# %%
p = np.exp(s) / np.exp(s).sum(1, keepdims=True)
on_paper(p, cache.probs[0, 0], [0.1911, 0.2091, 0.2029, 0.1989, 0.1979], [0.1151, 0.3598, 0.2139, 0.0852, 0.2260])
np.testing.assert_allclose(np.exp(s[0]), [1.0202, 1.1163, 1.0833, 1.0618, 1.0565], atol=5.1e-5)
assert abs(np.exp(s[0]).sum() - 5.3381) < 5.1e-5

# %% [markdown]
# The class token attends to all tokens nearly alike: its vector is short, so all its scores are small. Patch 1 attends
# to itself most.
#
# **4. What attention gathers**, with $v = z^0$:
#
# $$o_{ia} = \sum_j p_{ij} z^0_{ja} \tag{attention}$$
#
# For the class token's first number,
# $0.1911 \cdot 0.1 + 0.2091 \cdot 0.9 + 0.2029 \cdot 1.1 - 0.1989 \cdot 0.3 + 0.1979 \cdot 0.5 = 0.4698$.

# %%
o = p @ z0
on_paper(o, steps["heads"][0, 0], [0.4698, 0.0379, 0.3587, 0.4511], [0.6580, -0.1363, 0.3555, 0.6535])

# %% [markdown]
# **5. The residual connection** adds it to what was there:
#
# $$z^1_{ia} = z^0_{ia} + o_{ia}$$

# %%
z1 = z0 + o
on_paper(z1, steps["z1"][0], [0.5698, 0.1379, 0.4587, 0.5511], [1.5580, -0.4363, 0.7555, 1.8535])

# %% [markdown]
# **6. The layer norm**, each row by itself, with weight 1, bias 0 and $\varepsilon = 10^{-6}$:
#
# $$\begin{aligned}
# \mu_i &= \tfrac1D \sum_a z^1_{ia} \\
# \sigma^2_i &= \tfrac1D \sum_a (z^1_{ia} - \mu_i)^2 \\
# r_i &= \frac{1}{\sqrt{\sigma_i^2 + \varepsilon}} \\
# \hat z_{ia} &= r_i \, (z^1_{ia} - \mu_i) \\
# y_{ia} &= \gamma_a \hat z_{ia} + \beta_a
# \end{aligned} \tag{layernorm}$$
#
# For the class token $\mu_0 = 0.4294$ and $r_0 = 5.7653$. It was nearly level, so its small differences are
# stretched most.

# %%
mu = z1.mean(1, keepdims=True)
r = 1 / np.sqrt(((z1 - mu) ** 2).mean(1, keepdims=True) + 1e-6)
zhat = r * (z1 - mu)
y = example.NORM_WEIGHT * zhat + example.NORM_BIAS
print("means", mu.ravel(), " 1 / standard deviations", r.ravel())
on_paper(y, steps["normed"][0], [0.8096, -1.6804, 0.1692, 0.7016], [0.7053, -1.5440, -0.1998, 1.0385])
assert abs(mu[0, 0] - 0.4294) < 5.1e-5 and abs(r[0, 0] - 5.7653) < 5.1e-5 and r.argmax() == 0

# %% [markdown]
# **7. Only the class token** is used; the other tokens are dropped:
#
# $$f_{a} = y_{0a}$$
#
# and, for a batch of samples $b$,
#
# $$f_{ba} = y_{b0a} \tag{pool\_token}$$

# %%
print(inspect.getsource(F.pool_token))
f = y[0]
on_paper(f, steps["feature"][0], [0.8096, -1.6804, 0.1692, 0.7016])

# %% [markdown]
# **8. The head**, with one row of $W$ for each class $k$:
#
# $$l_k = \sum_a W_{ka} f_a + b_k \tag{linear}$$
#
# $l_0 = 0.5 \cdot 0.8096 - 0.2 \cdot (-1.6804) + 0.1 \cdot 0.1692 + 0.3 \cdot 0.7016 = 0.9683$.

# %%
W = example.HEAD_WEIGHT
logits = W @ f + example.HEAD_BIAS
on_paper(logits, steps["logits"][0], [0.9683, -0.9513])
assert abs(0.5 * 0.8096 - 0.2 * -1.6804 + 0.1 * 0.1692 + 0.3 * 0.7016 - 0.9683) < 1e-4

# %% [markdown]
# **9. The loss**, where the right class is 0:
#
# $$\pi_k = \frac{e^{l_k}}{\sum_m e^{l_m}} \qquad \mathcal L = -\ln \pi_0 \tag{cross\_entropy}$$
#
# $\pi_0 = 2.6334 / (2.6334 + 0.3862) = 0.8721$, and $\mathcal L = -\ln 0.8721 = 0.1369$.

# %%
pi = np.exp(logits) / np.exp(logits).sum()
on_paper(pi, F.softmax(steps["logits"])[0][0], [0.8721, 0.1279])
on_paper(-np.log(pi[0]), loss, [0.1369])
np.testing.assert_allclose(np.exp(logits), [2.6334, 0.3862], atol=5.1e-5)

# %% [markdown]
# ## Backwards
#
# From here on, $d$ before a letter means the derivative of $\mathcal L$ with respect to it.
#
# **9. Through the loss.** Written out, $\mathcal L = -l_0 + \ln \sum_m e^{l_m}$. The first term has the derivative $-1$
# with respect to $l_0$ and 0 with respect to $l_1$, which is $-\delta_{k0}$; the second
# $e^{l_k} / \sum_m e^{l_m} = \pi_k$. So
#
# $$dl_k = \pi_k - \delta_{k0} \tag{cross\_entropy\_backward}$$
#
# the prediction minus the target: $0.8721 - 1$ and $0.1279 - 0$. (Notebook 06 has it for any targets.)

# %%
dl = pi - np.array([1, 0])
on_paper(dl, gradients["dlogits"][0], [-0.1279, 0.1279])

# %% [markdown]
# **8. Through the head.** $W_{ka}$ occurs only in $l_k$, with the factor $f_a$, and so does $b_k$, with the factor 1;
# $f_a$ occurs in all $l_k$, with the factors $W_{ka}$:
#
# $$\begin{aligned}
# dW_{ka} &= dl_k \, f_a \\
# db_k &= dl_k \\
# df_a &= \sum_k dl_k \, W_{ka}
# \end{aligned} \tag{linear\_backward}$$
#
# The two rows of $dW$ are opposite, as $dl_0 = -dl_1$. And
# $df_1 = -0.1279 \cdot 0.5 + 0.1279 \cdot (-0.3) = -0.1023$.

# %%
dW, df = np.outer(dl, f), dl @ W
on_paper(dW, gradients["dhead_weight"], [-0.1036, 0.2149, -0.0216, -0.0897], [0.1036, -0.2149, 0.0216, 0.0897])
on_paper(dl, gradients["dhead_bias"], [-0.1279, 0.1279])
on_paper(df, gradients["dfeature"][0], [-0.1023, 0.0767, 0.0128, -0.0512])

# %% [markdown]
# **7. Back to the tokens.** $f_{ba}$ is $y_{b0a}$, so $\partial f_{ba} / \partial y_{cia} = \delta_{bc} \,
# \delta_{i0}$ for samples $b$ and $c$, and
#
# $$\begin{aligned}
# dy_{cia} &= \sum_b df_{ba} \, \delta_{bc} \, \delta_{i0} \\
# &= \delta_{i0} \, df_{ca}
# \end{aligned} \tag{pool\_token\_backward}$$
#
# The head doesn't read the patches, so their gradient is zero here. But in step 4 they went into the class token, and
# there they will get a gradient.

# %%
print(inspect.getsource(F.pool_token_backward))
dy = np.zeros((5, 4))
dy[0] = df
on_paper(dy, gradients["dnormed"][0], [-0.1023, 0.0767, 0.0128, -0.0512], [0, 0, 0, 0])

# %% [markdown]
# **A model may also take the mean of the patches** (`global_pool="avg"`, as in notebooks 06 and 07). The patches are
# the tokens 1 to $N$:
#
# $$f_{ba} = \frac1N \sum_{i=1}^N y_{bia} \tag{pool\_mean}$$
#
# Now $\partial f_{ba} / \partial y_{cia} = \delta_{bc} / N$ for each patch, and 0 for the token in front of them. So
# every patch gets the same share of the gradient, and that token zero:
#
# $$\begin{aligned}
# dy_{cia} &= \sum_b df_{ba} \, \frac{\delta_{bc}}N \\
# &= \frac{df_{ca}}N \quad (i \ge 1) \\
# dy_{c0a} &= 0
# \end{aligned} \tag{pool\_mean\_backward}$$

# %%
print(inspect.getsource(F.pool_mean))
print(inspect.getsource(F.pool_mean_backward))
mean, pool_cache = F.pool_mean(y[None])
np.testing.assert_allclose(mean[0], y[1:].mean(0), rtol=1e-14)
shares = F.pool_mean_backward(df[None], pool_cache)[0]
assert (shares[0] == 0).all() and np.allclose(shares[1:], df / 4, rtol=1e-14)
report = gradcheck.check(F.pool_mean, F.pool_mean_backward, (np.random.default_rng(0).random((2, 5, 4)),))
assert report.max_error < 1e-10

# %% [markdown]
# **6. Through the layer norm** (notebook 02). With $g_{ia} = dy_{ia} \gamma_a$,
#
# $$\begin{aligned}
# dz^1_{ia} &= r_i \Big( g_{ia} - \tfrac1D \sum_{a'} g_{ia'} \\
# &\quad - \hat z_{ia} \, \tfrac1D \sum_{a'} g_{ia'} \, \hat z_{ia'} \Big) \\
# d\gamma_a &= \sum_i dy_{ia} \, \hat z_{ia} \\
# d\beta_a &= \sum_i dy_{ia}
# \end{aligned} \tag{layernorm\_backward}$$
#
# The row of the class token, in numbers: the mean of $g$ is $-0.0160$, that of $g \hat z$ is $-0.0614$, and so
# $dz^1_{01} = 5.7653 \cdot (-0.1023 + 0.0160 + 0.8096 \cdot 0.0614) = -0.211$. The other rows are 0.
#
# The gradient of a layer norm's input adds up to 0 in each row, since adding a number to the whole row changes nothing.
# And it is orthogonal to $\hat z$, except for $\varepsilon$, since stretching the row changes nothing either.

# %%
g = dy * example.NORM_WEIGHT
dz1 = r * (g - g.mean(1, keepdims=True) - zhat * (g * zhat).mean(1, keepdims=True))
on_paper(dz1, gradients["dz1"][0], [-0.2112, -0.0600, 0.2258, 0.0455], [0, 0, 0, 0])
on_paper((dy * zhat).sum(0), gradients["dnorm_weight"])
on_paper(dy.sum(0), gradients["dnorm_bias"])
np.testing.assert_allclose([g[0].mean(), (g * zhat)[0].mean()], [-0.0160, -0.0614], atol=5.1e-5)
assert abs(dz1[0].sum()) < 1e-15 and abs(dz1[0] @ zhat[0]) < 1e-4

# %% [markdown]
# **5. Through the residual connection.** $z^1 = z^0 + o$: the derivative by each is 1, and the gradient goes both
# ways.
#
# $$do_{ia} = dz^1_{ia}$$
#
# and $z^0_{ia}$ gets the same gradient, which step 1 will add.
#
# **4. Through the weighted means.** $v_{ja}$ occurs in each $o_{ia}$ with the factor $p_{ij}$, and $p_{ij}$ in $o_{ia}$
# for each $a$ with the factor $v_{ja}$:
#
# $$\begin{aligned}
# dv_{ja} &= \sum_i p_{ij} \, do_{ia} \\
# &= p_{0j} \, do_{0a} \\
# dp_{ij} &= \sum_a do_{ia} \, v_{ja}
# \end{aligned} \tag{attention\_backward}$$
#
# Only row 0 of $do$ is not zero, so the sum over $i$ has one term: each patch gets the class token's gradient, times
# the attention that the class token pays to it. That is about 0.2 for each of the five, so the rows of $dv$ are alike.
# Here the gradient reaches the patches.

# %%
do = dz1
dv = p.T @ do
dp = do @ z0.T
on_paper(dv, gradients["dv"][0, 0], [-0.0404, -0.0115, 0.0432, 0.0087], [-0.0442, -0.0126, 0.0472, 0.0095])
np.testing.assert_allclose(dv, np.outer(p[0], do[0]), atol=1e-15)

# %% [markdown]
# **3. Through the softmax** (notebook 03), each row by itself:
#
# $$\begin{aligned}
# ds_{ij} &= p_{ij} \Big( dp_{ij} \\
# &\qquad - \sum_m dp_{im} \, p_{im} \Big)
# \end{aligned} \tag{softmax\_backward}$$
#
# A row of it adds up to 0: attention that one token gains, the others lose. Training goes against the gradient: it
# would have the class token look more at patch 2 and less at patches 3 and 4.

# %%
ds = p * (dp - (dp * p).sum(1, keepdims=True))
print(ds)
assert abs(ds[0].sum()) < 1e-15 and (ds[1:] == 0).all()
assert ds[0].argmin() == 2 and (ds[0, 3:] > 0).all()

# %% [markdown]
# **2. Through the scores.** $q_{ia}$ occurs in $s_{ij}$ for each $j$, with the factor $\alpha\,k_{ja}$; $k_{ja}$ in
# $s_{ij}$ for each $i$, with the factor $\alpha\,q_{ia}$:
#
# $$dq_{ia} = \alpha \sum_j ds_{ij} \, k_{ja}$$
#
# $$\begin{aligned}
# &dk_{ja} = \\
# &\alpha \sum_i ds_{ij} \, q_{ia}
# \end{aligned} \tag{attention\_scores\_backward}$$
#
# Again only row 0 is not zero: $dk_{ja} = \tfrac12 \, ds_{0j} \, q_{0a}$. The class token's query is 0.1 in all its
# numbers, so each row of $dk$ is one number four times: $0.05 \, ds_{0j}$.

# %%
dq, dk = alpha * ds @ z0, alpha * ds.T @ z0
on_paper(dq, gradients["dq"][0, 0], [-0.0332, -0.0089, 0.0414, -0.0167], [0, 0, 0, 0])
on_paper(dk, gradients["dk"][0, 0], [0] * 4, [-0.0003] * 4, [-0.0032] * 4, [0.0016] * 4, [0.0018] * 4)
np.testing.assert_allclose(dk, np.repeat(0.05 * ds[0][:, None], 4, axis=1), atol=1e-15)

# %% [markdown]
# **1. Back to $z^0$.** It was used in four ways: as query, as key, as value, and in the residual connection. Think of
# four copies, $q = k = v = u = z^0$, and of the loss as a function of the four. The chain rule sums over all of their
# numbers, and $\partial q_{ja'} / \partial z^0_{ia} = \delta_{ij} \, \delta_{aa'}$, likewise for the others:
#
# $$\begin{aligned}
# dz^0_{ia} &= \sum_{j,a'} \left( dq_{ja'} + dk_{ja'} + dv_{ja'} + du_{ja'} \right) \delta_{ij} \, \delta_{aa'} \\
# &= dq_{ia} + dk_{ia} + dv_{ia} + dz^1_{ia}
# \end{aligned}$$
#
# with $du = dz^1$ from step 5. *The gradient of a value that is used several times is a sum.*

# %%
dz0 = dz1 + dq + dk + dv
in_writing = [[-0.2848, -0.0804, 0.3103, 0.0374], [-0.0445, -0.0128, 0.0469, 0.0092],
              [-0.0460, -0.0154, 0.0426, 0.0060], [-0.0404, -0.0103, 0.0465, 0.0107],
              [-0.0400, -0.0100, 0.0465, 0.0108]]  # fmt: skip
on_paper(dz0, gradients["dz0"][0], *in_writing)

# %% [markdown]
# **0. Patches, class token, positions.** Each was a summand of one row of $z^0$, with the derivative 1:
#
# $$\begin{aligned}
# dt_a &= dz^0_{0a} \\
# dx_{na} &= dz^0_{na}
# \end{aligned} \tag{prepend\_token\_backward}$$
#
# $$de_{ia} = dz^0_{ia} \tag{add\_positions\_backward}$$

# %%
on_paper(dz0[0], gradients["dcls_token"][0, 0], [-0.2848, -0.0804, 0.3103, 0.0374])
on_paper(dz0[1:], gradients["dpatches"][0])
on_paper(dz0, gradients["dpositions"][0])

# %% [markdown]
# And each number of a patch was one pixel, so its gradient goes back to that pixel's place:

# %%
dimage = np.block([[dz0[1].reshape(2, 2), dz0[2].reshape(2, 2)], [dz0[3].reshape(2, 2), dz0[4].reshape(2, 2)]])
on_paper(dimage, F.unpatchify(gradients["dpatches"], 2)[0][0, 0], [-0.0445, -0.0128, -0.0460, -0.0154])

# %% [markdown]
# ### Everything in one picture
#
# Above what was computed, below each of them its gradient, which always has its shape. Read the upper row from the
# left to the right and the lower one from the right to the left. The rows are tokens, the class token on top.

# %%
above = {"$z^0$": z0, "$s$": s, "$p$": p, "$o$": o, "$z^1$": z1, "$y$": y}
below = {"$dz^0$": dz0, "$ds$": ds, "$dp$": dp, "$do$": do, "$dz^1$": dz1, "$dy$": dy}
figure, axes = plt.subplots(2, 6, figsize=(8.4, 3.2))
for line, arrays in zip(axes, (above, below), strict=True):
    for panel, (name, array) in zip(line, arrays.items(), strict=True):
        limit = np.abs(array).max()
        panel.imshow(array, cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set_title(f"{name}   ±{limit:.2f}", fontsize=10)
        panel.set_xticks([])
        panel.set_yticks([])
plt.show()

assert [array.shape for array in above.values()] == [array.shape for array in below.values()]
assert all((below[name][1:] == 0).all() for name in ("$ds$", "$dp$", "$do$", "$dz^1$", "$dy$"))
assert (dz0 != 0).all()

# %% [markdown]
# ### Is it right?
#
# Try it: patch 3 gets 0.01 more in its first number. Its gradient there is $-0.0404$, so the loss should fall by
# about $0.000404$.

# %%
moved = example.PATCHES.copy()
moved[0, 2, 0] += 0.01
print(example.forward(moved)[0] - loss, "and by the gradient", 0.01 * dz0[3, 0])
assert abs((example.forward(moved)[0] - loss) / (0.01 * dz0[3, 0]) - 1) < 0.01

# %% [markdown]
# And all 58 numbers that the loss depends on at once, by `gradcheck`:

# %%
names = ("patches", "cls_token", "positions", "norm_weight", "norm_bias", "head_weight", "head_bias")
inputs = tuple(steps[name] for name in names)


def worked_backward(dloss, steps):
    dinputs = example.backward(steps)
    return tuple(dloss * dinputs[f"d{name}"] for name in names)


report = gradcheck.check(example.forward, worked_backward, inputs)
print(report)
assert report.max_error < 1e-14 and sum(array.size for array in inputs) == 58

# %% [markdown]
# # The same in the code
#
# A ViT has what the sheet left out, and nothing else: a projection of the patches, blocks with projections, several
# heads and an MLP, a layer norm at the start of each branch, many blocks. Notebooks 01 and 04 have derived these.
# First the functions that the sheet has gone through, in its order (the loss's comes from notebook 06):

# %%
for function in (F.prepend_token, F.add_positions, attention_scores, F.softmax, F.attention, F.layernorm, F.linear,
                 F.cross_entropy):  # fmt: skip
    print(inspect.getsource(function))

# %% [markdown]
# and their backwards, from the last to the first:

# %%
for function in (F.cross_entropy_backward, F.linear_backward, F.layernorm_backward, F.attention_backward,
                 F.softmax_backward, attention_scores_backward, F.add_positions_backward,
                 F.prepend_token_backward):  # fmt: skip
    print(inspect.getsource(function))

# %% [markdown]
# The whole, Dosovitskiy et al. 2021, equations 1 to 4. Images $x$ become tokens $z_0$ (notebook 01), these go through
# $L$ blocks (notebook 04) and a last layer norm,
#
# $$\begin{aligned}
# z_l &= \operatorname{block}_l(z_{l-1}) \quad (l = 1 \dots L) \\
# y &= \operatorname{norm}(z_L)
# \end{aligned} \tag{Encoder.forward}$$
#
# then one vector is pooled from the result, and the head computes the logits from it:
#
# $$\begin{aligned}
# z_0 &= \operatorname{embed}(x) \\
# y &= \operatorname{encode}(z_0) \\
# f &= \operatorname{pool}(y) \\
# l &= \operatorname{head}(f)
# \end{aligned} \tag{ViT.forward}$$
#
# Backwards, with $J^\top dy$ for the result of a part's backward,
#
# $$\begin{aligned}
# dz_L &= J_{\text{norm}}^\top \, dy \\
# dz_{l-1} &= J_{\text{block}_l}^\top \, dz_l \quad (l = L \dots 1)
# \end{aligned} \tag{Encoder.backward}$$
#
# $$\begin{aligned}
# df &= J_{\text{head}}^\top \, dl \\
# dy &= J_{\text{pool}}^\top \, df \\
# dz_0 &= J_{\text{encode}}^\top \, dy \\
# dx &= J_{\text{embed}}^\top \, dz_0
# \end{aligned} \tag{ViT.backward}$$

# %%
print(inspect.getsource(ViT.forward))
print(inspect.getsource(ViT.backward))
print(inspect.getsource(Encoder.forward))
print(inspect.getsource(Encoder.backward))
print(inspect.getsource(stack))
print(inspect.getsource(stack_backward))

# %%
small = ViT(ViTConfig(img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=3), dtype="float64")
report = gradcheck.check_model(small, np.random.default_rng(0).standard_normal((2, 3, 8, 8)))
print(report)
assert report.max_error < 1e-9

# %% [markdown]
# ## On a real image
#
# The model in `checkpoint/` has learned the digits: a 4×4 grid of patches of 2×2 pixels, three blocks. Take the logit
# of each image's own class, and its gradient with respect to the tokens. It has one vector for each token at each
# depth; its length says how much that token matters there.

# %%
trained = load_trained("checkpoint", device="cpu")
digits = load_data(trained).test
chosen = [int(np.flatnonzero(digits.labels == digit)[0]) for digit in (0, 3, 6)]
labels, images = digits.labels[chosen], digits.normalise(digits.images[chosen])        # (3,), (3, 1, 8, 8)
seen = probe.trace(trained.model, images, classes=labels)
assert (seen.logits.argmax(1) == labels).all()

depths = {"as tokens": "(embed)"} | {f"after block {i}": f"blocks.{i}" for i in range(3)}
lengths = {name: np.linalg.norm(seen.gradients[path][0], axis=-1) for name, path in depths.items()}  # (3, 17) each

figure, axes = plt.subplots(3, 6, figsize=(8.4, 4.6))
for i, line in enumerate(axes):
    line[0].imshow(digits.images[chosen[i], 0], cmap="gray")
    line[0].set_title(f"a {labels[i]}", fontsize=9)
    dpixels = seen.gradients["(embed)"][1][i, 0]
    limit = np.abs(dpixels).max()
    line[1].imshow(dpixels, cmap="RdBu_r", vmin=-limit, vmax=limit)
    line[1].set_title("with respect to the pixels", fontsize=9)
    for panel, (name, length) in zip(line[2:], lengths.items(), strict=True):
        panel.imshow(length[i, 1:].reshape(4, 4), cmap="magma", vmin=0, vmax=lengths["as tokens"][i, 1:].max())
        panel.set_title(name, fontsize=9)
for panel in axes.flat:
    panel.axis("off")
figure.suptitle("A digit's own logit: its gradient at the pixels, and its norm per patch at each depth", fontsize=10)
plt.show()

# %% [markdown]
# The last column has to be black: after the last block only the class token is used, as on the sheet, where $dz^1$ was
# zero for all patches. One block earlier, the gradient has reached every patch through attention.

# %%
assert (lengths["after block 2"][:, 1:] == 0).all() and (lengths["after block 2"][:, 0] > 0).all()
assert all((lengths[name] > 0).all() for name in list(depths)[:3])

# %% [markdown]
# ### The class token or the mean?
#
# The head may as well read the mean of the patches (`global_pool="avg"`). On the digits, trained alike, three seeds
# each (`results/ablations.py`, 40 epochs):

# %%
results = json.loads(Path("results/ablations.json").read_text())["pooling"]
figure, ax = plt.subplots(figsize=(6, 1.3))
for name, row in results.items():
    print(f"{name:<28} {row['mean']:.1%} ± {row['std']:.1%}")
    ax.errorbar(100 * row["mean"], name, xerr=100 * row["std"], fmt="o", color="tab:blue", capsize=3)
ax.invert_yaxis()
ax.set(xlabel="test accuracy in %: mean and standard deviation of three seeds")
plt.show()

# %% [markdown]
# No difference that three seeds could show. The mean needs no token of its own, and the package's `digits` recipe takes
# it; the class token is the paper's, and it has an attention map.

# %%
token, average = results.values()
assert abs(token["mean"] - average["mean"]) < token["std"] + average["std"]

# %% [markdown]
# # Counting the models of the paper
#
# B/16 is a ViT of the size "Base" with patches of 16×16 pixels; "Large" and "Huge" are the two others of Dosovitskiy
# et al. 2021, table 1. How many parameters has each, and how much is there to be computed for one image? Both follow
# from six numbers: the side of the image $S$ and of a patch $P$, the channels $C = 3$, the width $D$, the depth $L$,
# and the classes $K = 1000$. With them $N = (S/P)^2$ patches, $T = N + 1$ tokens, and an MLP of $4D$.
#
# ## Parameters
#
# | part | weights | biases | together |
# | --- | --- | --- | --- |
# | projection of the patches | $C P^2 \cdot D$ | $D$ | $C P^2 D + D$ |
# | class token and positions | | | $D + T D$ |
# | two layer norms | $2 \cdot D$ | $2 \cdot D$ | $4 D$ |
# | queries, keys, values | $3D \cdot D$ | $3D$ | $3 D^2 + 3 D$ |
# | projection of the heads | $D \cdot D$ | $D$ | $D^2 + D$ |
# | MLP, first layer | $4D \cdot D$ | $4D$ | $4 D^2 + 4D$ |
# | MLP, second layer | $D \cdot 4D$ | $D$ | $4 D^2 + D$ |
# | last layer norm | $D$ | $D$ | $2 D$ |
# | head | $K \cdot D$ | $K$ | $K D + K$ |
#
# A block is the five lines in the middle: $(3 + 1 + 4 + 4)\,D^2 = 12 D^2$ and $(4 + 3 + 1 + 4 + 1)\,D = 13 D$. So
#
# $$\begin{aligned}
# \text{parameters} =\ &\underbrace{C P^2 D + D}_{\text{patches}} + \underbrace{D + T D}_{\text{token, positions}} \\
# &+ \underbrace{L \, (12 D^2 + 13 D)}_{\text{blocks}} + \underbrace{2 D}_{\text{norm}} +
# \underbrace{K D + K}_{\text{head}}
# \end{aligned}$$
#
# The heads of attention don't occur: they divide the width among themselves.
#
# ## Multiply-adds
#
# A product of a matrix (rows × inner) and one (inner × columns) has rows · columns entries, each a sum of inner
# products: rows · inner · columns multiplications, each with an addition. All else (norms, softmax, GELU, sums) is a
# few operations for each number, and not counted.
#
# | product | rows | inner | columns | multiply-adds |
# | --- | --- | --- | --- | --- |
# | projection of the patches | $N$ | $C P^2$ | $D$ | $N C P^2 D$ |
# | queries, keys, values | $T$ | $D$ | $3 D$ | $3 T D^2$ |
# | scores $q k^\top$, in each of $H$ heads | $T$ | $D / H$ | $T$ | $H \cdot T^2 D / H = T^2 D$ |
# | probabilities times values, in each of $H$ heads | $T$ | $T$ | $D / H$ | $H \cdot T^2 D / H = T^2 D$ |
# | projection of the heads | $T$ | $D$ | $D$ | $T D^2$ |
# | MLP, first layer | $T$ | $D$ | $4D$ | $4 T D^2$ |
# | MLP, second layer | $T$ | $4D$ | $D$ | $4 T D^2$ |
# | head | $1$ | $D$ | $K$ | $K D$ |
#
# $$\text{multiply-adds} = N C P^2 D + L \, (12 T D^2 + 2 T^2 D) + K D$$
#
# $N P^2 = S^2$ is the number of pixels: the patches' projection costs $C S^2 D$ for every size of patch.


# %%
def parameters_of(S, P, D, L, C=3, K=1000):
    """By part."""
    T = (S // P) ** 2 + 1
    return {"patches": C * P**2 * D + D, "token, positions": D + T * D, "blocks": L * (12 * D**2 + 13 * D),
            "norm": 2 * D, "head": K * D + K}  # fmt: skip


def multiply_adds_of(S, P, D, L, C=3, K=1000):
    """By part, of one image, forwards."""
    N = (S // P) ** 2
    T = N + 1
    return {"patches": N * C * P**2 * D, "q, k, v and projection": L * 4 * T * D**2, "MLP": L * 8 * T * D**2,
            "scores and values": L * 2 * T**2 * D, "head": K * D}  # fmt: skip


models = {
    "B/16": ("vit_base_patch16_224", {"S": 224, "P": 16, "D": 768, "L": 12}),
    "L/16": ("vit_large_patch16_224", {"S": 224, "P": 16, "D": 1024, "L": 24}),
    "H/14": ("vit_huge_patch14_224", {"S": 224, "P": 14, "D": 1280, "L": 32}),
}

# %% [markdown]
# The package builds each of them without memory, on the device "meta", and says what it would hold and cost: what
# `tinyvit summary vit_base_patch16_224` prints line by line.

# %%
counted = {}
for short, (name, shape) in models.items():
    model = create_model(name, device="meta")
    rows = summarize(model)
    counted[short] = sum(parameters_of(**shape).values()), sum(multiply_adds_of(**shape).values())
    print(f"{short}: {counted[short][0]:>11,} parameters, {counted[short][1]:>15,} multiply-adds")
    assert counted[short][0] == model.num_parameters() == sum(row.parameters for row in rows)
    assert counted[short][1] == sum(row.multiply_adds for row in rows)

assert counted["B/16"] == (86_567_656, 17_563_828_224)
assert counted["L/16"] == (304_326_632, 61_554_712_576)
assert counted["H/14"] == (632_045_800, 167_295_109_120)
for short, millions in {"B/16": 86, "L/16": 307, "H/14": 632}.items():                 # the paper's table 1
    assert abs(counted[short][0] / (millions * 1e6) - 1) < 0.01

# %% [markdown]
# The paper's table has 86, 307 and 632 million. H/14 has 632.0 here, B/16 86.6, and without its head 85.8; but L/16 has
# 304.3, counted with the head of 1000 classes, at 224 pixels. Does another head, or another size of the images, make it
# 307? The paper has trained with 1,000 classes, with 21 thousand and with 18 thousand (section 4.1), with one hidden
# layer in the head for pre-training and none for fine-tuning (section 3.1), at 224, 384 and 512 pixels:

# %%
variants = {
    (P, S, K, hidden): sum(parameters_of(S, P, 1024, 24, K=K).values()) + hidden * (1024**2 + 1024)
    for P in (16, 32) for S in (224, 384, 512) for K in (0, 1000, 18_000, 21_000) for hidden in (0, 1)
}  # fmt: skip
assert variants[16, 224, 1000, 0] == counted["L/16"][0]
with_hidden = create_model("vit_large_patch16_224", head_hidden=1024, device="meta")
assert variants[16, 224, 1000, 1] == with_hidden.num_parameters()

for (P, S, K, hidden), count in variants.items():
    if S == 224 or round(count / 1e6) == 307:
        head = f"{K:>6,} classes" if K else "    no classes"
        print(f"L/{P}, {S} pixels, {head}{', a hidden layer' if hidden else '':<17}{count / 1e6:6.1f} million")
assert not [key for key, count in variants.items() if key[0] == 16 and round(count / 1e6) == 307]
assert [key for key, count in variants.items() if round(count / 1e6) == 307] == [
    (32, 224, 0, 1), (32, 224, 1000, 0), (32, 384, 0, 1), (32, 384, 1000, 0), (32, 512, 0, 1), (32, 512, 1000, 0)
]  # fmt: skip

# %% [markdown]
# None of them does for L/16. With patches of 32 it is 307, if either the head of 1000 classes or the hidden layer alone
# is counted. The table has one number for a size, and doesn't say for which patch and which head. So L/32 would explain
# it, but that is a guess from the numbers. What is certain is the count above, 0.9 % below the paper's number.

# %% [markdown]
# By hand, the first one: $12 \cdot (12 \cdot 768^2 + 13 \cdot 768) = 85\,054\,464$ in the blocks,
# $3 \cdot 16^2 \cdot 768 + 768 = 590\,592$ in the patches' projection, $768 + 197 \cdot 768 = 152\,064$ in class
# token and positions, $1536$ in the last norm, $1000 \cdot 768 + 1000 = 769\,000$ in the head. Nearly all of the
# parameters are in the blocks, and two thirds of those in the MLPs.

# %%
base = parameters_of(**models["B/16"][1])
print(base)
assert list(base.values()) == [590_592, 152_064, 85_054_464, 1_536, 769_000]
assert base["blocks"] / sum(base.values()) > 0.98

mlps = sum(block.mlp.num_parameters() for block in create_model("vit_base_patch16_224", device="meta").blocks)
assert abs(mlps / base["blocks"] - 2 / 3) < 0.001

# %% [markdown]
# Where is the arithmetic?

# %%
figure, ax = plt.subplots(figsize=(7.6, 2.3))
start = np.zeros(len(models))
for part in multiply_adds_of(**models["B/16"][1]):
    share = np.array([multiply_adds_of(**shape)[part] / counted[short][1] for short, (_, shape) in models.items()])
    ax.barh(list(models), share, left=start, label=part)
    start += share
ax.invert_yaxis()
ax.set(xlim=(0, 1), xlabel="share of the multiply-adds")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5, fontsize=8, frameon=False)
plt.show()

for short, (_, shape) in models.items():
    cost = multiply_adds_of(**shape)
    assert cost["MLP"] == 2 * cost["q, k, v and projection"] and cost["MLP"] / counted[short][1] > 0.6
    assert cost["scores and values"] / counted[short][1] < 0.05 and cost["patches"] / counted[short][1] < 0.01

# %% [markdown]
# ## Patch size against cost
#
# Patches half as large are four times as many. What works on each token by itself costs four times as much, $12 T D^2$;
# what compares each with each, sixteen times, $2 T^2 D$. The two are equal where $12 T D^2 = 2 T^2 D$, at $T = 6 D$:
# for a Base model at 4,608 tokens, far beyond the 197 of B/16. So at 224 pixels the quadratic part of attention isn't
# what costs most; with patches of 2 pixels it would be.

# %%
sides = [2, 4, 7, 8, 14, 16, 28, 32, 56]
costs = [multiply_adds_of(224, P, 768, 12) for P in sides]
whole = np.array([sum(cost.values()) for cost in costs])
square = np.array([cost["scores and values"] for cost in costs])
linear = np.array([cost["q, k, v and projection"] + cost["MLP"] for cost in costs])
for P, total in zip(sides[3:], whole[3:], strict=True):
    model = create_model("vit_base_patch16_224", patch_size=P, device="meta")
    assert total == sum(row.multiply_adds for row in summarize(model))

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.0))
left.plot(sides, whole / 1e9, "ko-", label="all")
left.plot(sides, linear / 1e9, "o-", label="each token by itself: $12\\,T D^2 L$")
left.plot(sides, square / 1e9, "o-", label="each with each: $2\\,T^2 D L$")
left.axvline(224 / np.sqrt(6 * 768 - 1), color="grey", linestyle=":", label="$T = 6 D$")
left.set(xscale="log", yscale="log", ylabel="billions of multiply-adds", title="A Base model, 224×224 pixels")
left.legend(fontsize=8)
right.plot(sides, [sum(parameters_of(224, P, 768, 12).values()) / 1e6 for P in sides], "ko-")
right.set(xscale="log", ylabel="millions of parameters", title="and what it holds", ylim=(0, 110))
for ax in (left, right):
    ax.set_xticks([2, 4, 8, 16, 32, 56], ["2", "4", "8", "16", "32", "56"])
    ax.minorticks_off()
    ax.set_xlabel("side of a patch in pixels")
plt.show()

at = dict(zip(sides, range(len(sides)), strict=True))
assert 3.9 < whole[at[16]] / whole[at[32]] < 4.1 and whole[at[2]] / whole[at[4]] > 8
assert linear[at[4]] > square[at[4]] and linear[at[2]] < square[at[2]]                 # T = 3137 and 12545
assert multiply_adds_of(224, 16, 768, 12)["scores and values"] / whole[at[16]] < 0.05

# %% [markdown]
# The size of a patch hardly changes the *number of parameters*: larger patches have a larger projection and fewer
# positions. L/32 has more parameters than L/16, and costs a quarter.

# %%
larger, smaller = (create_model(f"vit_large_patch{P}_224", device="meta") for P in (32, 16))
costs = [sum(row.multiply_adds for row in summarize(model)) for model in (larger, smaller)]
assert larger.num_parameters() > smaller.num_parameters() and abs(costs[0] / costs[1] - 0.25) < 0.001

# %% [markdown]
# **And backwards?** A product $y = x W^\top$ of $R$ rows costs $R \cdot \text{in} \cdot \text{out}$. Its backward
# has two products, $dx = dy \, W$ and $dW = dy^\top x$, of the same three numbers. The same holds in attention: $dq$
# and $dk$ for the scores, $dp$ and $dv$ for what is gathered. So the backward costs twice the forward, and a step of
# training three times (less the gradient of the pixels, which training doesn't need). A step of B/16 on one image is
# $3 \cdot 17.6 \approx 53$ billion multiply-adds.

# %%
rows, width_in, width_out = 197, 768, 3072                                             # the MLP's first layer in B/16
forwards = rows * width_in * width_out
dx_costs, dweight_costs = rows * width_out * width_in, width_out * rows * width_in     # rows · inner · columns each
assert dx_costs + dweight_costs == 2 * forwards
assert round(3 * counted["B/16"][1] / 1e9) == 53

# %% [markdown]
# # On one page
#
# All of it also stands on one page of NumPy, `tinyvit/minimal.py`, with Adam and the digits, and without an import
# from the package: `python -m tinyvit.minimal` trains it. Every layer there is a function with its backward below
# it. The last pair is the whole model:

# %%
print(inspect.getsource(minimal.vit))
print(inspect.getsource(minimal.vit_backward))

# %% [markdown]
# With the weights of the small model from above, both compute the same logits, and the same gradients. (GELU has its
# form with tanh there, since NumPy has no erf, so the model is made once more with that.)

# %%
config = minimal.Config(img_size=8, patch_size=4, channels=3, dim=12, depth=2, heads=3)
with_tanh = ViT(replace(small.config, activation="gelu_tanh"), dtype="float64")
redrawn = np.random.default_rng(1)
weights = {name: redrawn.normal(0, 0.2, x.shape) for name, x in small.state_dict().items()}
with_tanh.load_state_dict(weights)
two_images = redrawn.standard_normal((2, 3, 8, 8))
own_logits, own_cache = with_tanh(two_images)
page_logits, page_cache = minimal.vit(two_images, weights, config)
np.testing.assert_allclose(page_logits, own_logits, rtol=1e-12, atol=1e-12)

dlogits = redrawn.standard_normal(own_logits.shape)
with_tanh.zero_grad()
with_tanh.backward(dlogits, own_cache)
page_gradients = minimal.vit_backward(dlogits, page_cache)
for name, parameter in with_tanh.named_parameters():
    np.testing.assert_allclose(page_gradients[name], parameter.grad, rtol=1e-12, atol=1e-12)
print(f"{len(page_gradients)} gradients and the logits are equal:", own_logits[0, :3], "…")

# %% [markdown]
# ## Exercises
#
# **1.** On the sheet: what is $dl$, the gradient of the two logits, if the right class is 1 instead of 0? Put two
# numbers, to four digits, in place of `None`.

# %%
my_dlogits = None

# %%
_, cache = F.cross_entropy(steps["logits"], np.array([1]))
dlogits = F.cross_entropy_backward(1.0, cache)[0]
exercises.check_number("my_dlogits", my_dlogits, dlogits, "What is wanted is (0, 1) now; π is as before.", 1e-4)

# %% [markdown]
# **2.** Close the text above and write the sheet's backward yourself: from the patches to the loss, and back to the
# patches and to the class token. (The class token is what the residual and the queries reach; the patches aren't.)


# %%
def my_worked_example_backward(patches):
    # patches: (1, 4, 4). Everything else is in `example`: CLS_TOKEN, POSITIONS, HEAD_WEIGHT, …
    # In place of these, the gradients of the loss by the patches and by the class token:
    return np.zeros_like(patches), np.zeros_like(example.CLS_TOKEN)


exercises.check("worked_example_backward", my_worked_example_backward)

# %% [markdown]
# **3.** ViT-S/16 is 384 wide and has 12 blocks and 6 heads, for the same images and classes. How many parameters has
# it, and how many multiply-adds are its forward? Then: the images get twice as wide and as high. By which factor do
# the multiply-adds of the *scores and values* grow, to two digits after the point? (It isn't quite 16.)

# %%
my_parameters, my_multiply_adds, my_factor = None, None, None

# %%
small_model = create_model("vit_small_patch16_224", device="meta")
in_all, costs = small_model.num_parameters(), sum(row.multiply_adds for row in summarize(small_model))
smaller_images, larger_images = (multiply_adds_of(side, 16, 384, 12)["scores and values"] for side in (224, 448))
hint = "12 blocks of 12 D² + 13 D, and what is before and after them."
exercises.check_number("my_parameters", my_parameters, in_all, hint)
exercises.check_number("my_multiply_adds", my_multiply_adds, costs, "T is 197, and N is 196.")
hint = "There is one class token, however many patches."
exercises.check_number("my_factor", my_factor, larger_images / smaller_images, hint, 0.005)

# %% [markdown]
# **4.** Now the whole of it. Put your functions of the notebooks before this one together: `patchify` and `embed`
# (01), `layernorm` (02), `block` (04). `print(exercises.describe("vit"))` names the parameters;
# `print(exercises.hint("vit"))` asks a question, and says more each time.


# %%
def my_vit(images, parameters, depth, num_heads, eps):
    # images: (B, C, H, W). parameters: a dict of arrays by the names of a model's state_dict()
    return np.zeros((len(images), len(parameters["head.bias"])))  # in place of this, the logits (B, K)


exercises.check("vit", my_vit)

# %% [markdown]
# **5.** And its backward: the forward, read from the bottom up. Keep what enters each block.


# %%
def my_vit_backward(dy, images, parameters, depth, num_heads, eps):
    # dy: (B, K), the gradient of the logits
    gradients = {name: np.zeros_like(parameter) for name, parameter in parameters.items()}
    return np.zeros_like(images), gradients  # in place of the zeros, dimages and the gradient of each parameter


exercises.check("vit_backward", my_vit_backward)

# %% [markdown]
# If it is wrong and the mistake has no name, `exercises.check_steps` finds the place: return your intermediates as a
# dict, or yield each as you make it. `print(exercises.steps("vit_backward"))` says what they are called.


# %%
def my_vit_backward_steps(dy, images, parameters, depth, num_heads, eps):
    yield "head", np.zeros((1, 1, 1))  # in place of this, the head's step, then "norm", "blocks.1", …


exercises.check_steps("vit_backward", my_vit_backward_steps)

# %% [markdown]
# **6.** Train *your* ViT. Your two functions take the place of the forward and the backward of the package's model in
# its training loop, and 40 passes over the digits take about half a minute. A wrong gradient is not trained. In
# notebook 07 the same goes for CIFAR-10.

# %%
exercises.train(SimpleNamespace(vit=my_vit, vit_backward=my_vit_backward))
