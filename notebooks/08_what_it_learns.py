# %% [markdown]
# # 08 · What does it learn?
#
# The model was never told what a stroke is, or which patch is to the left of which. This notebook takes a trained one
# and looks at its filters, its positions, what it attends to and how far away that is, which parts of an image decide,
# and where it errs. Every method is first tried on a case whose answer is known, and the most convincing pictures are
# put to a test.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from tinyvit import exercises, probe
from tinyvit import functional as F
from tinyvit.training.metrics import draw_confusion, measure
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.trained import load_data, load_trained

plt.rcParams["figure.dpi"] = 144

# %% [markdown]
# The model was trained by the project's own command (`checkpoint/README.md` has it), and its run folder lies beside
# this notebook. It reads the digits of 8×8 pixels as a 4×4 grid of patches of 2×2, with a class token in front, in
# three blocks with four heads each.

# %%
RUN = "checkpoint"

trained = load_trained(RUN, device="cpu")
model, digits = trained.model, load_data(trained)
unseen = digits.test
images = unseen.normalise(unseen.images)                                            # (360, 1, 8, 8)
pixels = unseen.images / unseen.scale                                               # the same, from 0 to 1
seen = probe.trace(model, images, classes=unseen.labels)
(L, B, H, N, _), grid = seen.attention.shape, seen.grid
right = seen.logits.argmax(1) == unseen.labels
print(f"{model.num_parameters():,} parameters; {L} blocks, {H} heads, {grid[0]}×{grid[1]} patches and a class token")
assert (L, H, N, grid) == (3, 4, 1 + 16, (4, 4))
assert right.mean() > 0.95, "of the 360 digits that it never saw"

figure, axes = plt.subplots(2, 8, figsize=(9, 2.6), height_ratios=[2, 1], layout="constrained")
for i, (image, guess) in enumerate(zip(axes[0], axes[1])):
    image.imshow(pixels[i, 0], cmap="gray")
    image.set_title(f"a {unseen.labels[i]}", fontsize=9)
    image.set_axis_off()
    guess.bar(range(10), seen.probabilities[i])
    guess.set(ylim=(0, 1), yticks=[0, 1] if i == 0 else [], xticks=[0, 9])
figure.suptitle("Eight digits, and the probabilities that the trained model gives to 0 to 9", fontsize=10)
plt.show()

# %% [markdown]
# `trace` runs the model and keeps everything that it computes, by the path of the module that did: values on the way
# forward and, if it is told a class, the gradients of that class's logit on the way back.

# %%
for path in ("(embed)", "blocks.0.attn.qkv", "blocks.2", "head"):
    print(f"{path:<18} value {seen.values[path].shape}, gradient {seen.gradients[path][0].shape}")
assert all(seen.values[path].shape == seen.gradients[path][0].shape for path in ("(embed)", "blocks.2", "head"))
assert np.allclose(seen.attention.sum(-1), 1, atol=1e-5), "each row of attention is shared out completely"

# %% [markdown]
# ## What does the first layer look for in a patch?
#
# A token is 48 numbers, and each is the answer of one filter to the 2×2 pixels of its patch. 48 filters in a space of
# four dimensions are largely redundant; their principal components are the directions that they have in common. With
# the filters $w_i$ as points and $\bar w$ as their mean,
#
# $$\Sigma = \frac1{D-1}\sum_i (w_i - \bar w)(w_i - \bar w)^\top = V\Lambda V^\top ,$$
#
# the columns of $V$ are drawn as little images, the one with the largest $\lambda$ first (Dosovitskiy et al. 2021,
# figure 7, left).

# %%
found = probe.filter_components(model.embed.patch_embed.proj.weight.data)
probe.draw_filter_components(found)

# %% [markdown]
# Four numbers can be told apart by these four questions: how dark is the patch, how much darker is one side than the
# other (in two directions), and is it like a chequerboard? That is a basis in which images are often written, and
# nobody gave it to the model. How near do the components come to it? Both are orthonormal, so the squares of their
# dot products say how much of each is which.

# %%
basis = {
    "dark": [[1, 1], [1, 1]], "left": [[1, -1], [1, -1]], "above": [[1, 1], [-1, -1]], "chequered": [[1, -1], [-1, 1]]
}  # fmt: skip
questions = np.array(list(basis.values())).reshape(4, 4) / 2
shares = (found.components.reshape(4, 4) @ questions.T) ** 2
print("component  " + "".join(f"{name:>11}" for name in basis) + "   of the variance")
for i, row in enumerate(shares):
    print(f"{i + 1:<11}" + "".join(f"{share:11.0%}" for share in row) + f"{found.variance[i]:18.0%}")

assert np.allclose(shares.sum(0), 1, atol=1e-5) and np.allclose(shares.sum(1), 1, atol=1e-5)

# %% [markdown]
# It has found two of the four. The first component is the edge between above and below; the last one, with the least
# variance, is how dark a patch is. The other two are mixtures of the two other questions.

# %%
assert shares[0].argmax() == 2 and shares[0, 2] > 0.9, "above"
assert shares[3].argmax() == 0 and shares[3, 0] > 0.9, "dark"

# %% [markdown]
# ## What does it know of places?
#
# Every patch has a learned vector that is added to its token, and it began as noise. Compare the vectors $p$ of every
# two patches by the cosine of their angle, $p\cdot p' / (\|p\|\,\|p'\|)$. The tile in row $i$ and column $j$
# shows how similar the position there is to all others.

# %%
similarity = probe.position_similarity(probe.patch_positions(model), grid)
probe.draw_position_similarity(similarity)

# %% [markdown]
# Is near also similar? Sort all pairs by the distance of their patches.

# %%
places = np.indices(grid).reshape(2, -1).T
distance = np.linalg.norm(places[:, None] - places, axis=-1)
flat = similarity.reshape(16, 16)
distances = np.unique(distance)
means = np.array([flat[distance == d].mean() for d in distances])

figure, axes = plt.subplots(figsize=(5.5, 2.4), layout="constrained")
axes.plot(distance.ravel(), flat.ravel(), ".", color="0.75", markersize=4)
axes.plot(distances, means, "o-", markersize=4)
axes.axhline(0, color="k", linewidth=0.5)
axes.set(xlabel="distance of two patches, in patches", ylabel="similarity")
plt.show()

assert np.allclose(means[0], 1, atol=1e-5) and means[1] > means[2:].max(), "neighbours are the most similar"
assert np.corrcoef(distance[distance > 0], flat[distance > 0])[0, 1] < -0.2, "and the farther, the less"

# %% [markdown]
# ## Where does it look?
#
# The attention that the class token pays to each patch, for one image, in all blocks and heads: a row of the attention
# probabilities, put back into the grid.

# %%
example = int(np.flatnonzero(right & (unseen.labels == 3))[0])
maps = probe.over_patches(seen.attention, grid)                                   # (L, B, H, rows, columns)
probe.draw_attention_maps(maps[:, example], pixels[example])

# %% [markdown]
# Many patches are empty. From the second block on, the class token attends to those with ink in them:

# %%
assert np.allclose(maps.sum((-2, -1)), 1 - seen.attention[:, :, :, 0, 0], atol=1e-5), "the rest goes to the class token"
ink = pixels.reshape(B, 4, 2, 4, 2).mean((2, 4))                                    # (B, rows, columns)
share = maps / maps.sum((-2, -1), keepdims=True)
on_ink = (share * ink[None, :, None]).sum((-2, -1)).mean((1, 2)) / ink.mean()
print("ink under its attention, by block, relative to all patches alike:", on_ink.round(2))
assert on_ink[1:].min() > 1.1

# %% [markdown]
# ### How far?
#
# A convolution sees its neighbours, and only depth lets it see further. Attention could look anywhere from the first
# block on; does it? Weight the distance $d_{ij}$ of the patches' centres, in pixels, by the attention that patch $i$
# pays to patch $j$:
#
# $$\text{distance} = \frac{\sum_{ij} A_{ij}\, d_{ij}}{\sum_{ij} A_{ij}} .$$
#
# Three cases are known beforehand. A head that sees only its own patch has 0. One in which each patch looks at its
# left neighbour has the width of a patch, 2 pixels. One that looks everywhere alike has the mean of all $d_{ij}$.

# %%
print(inspect.getsource(probe.mean_attention_distance))

# %%
def head_of(weights):
    """Attention (1, 1, 1, 17, 17) of one hand-made head, from weights (16, 16) among the patches."""
    A = np.zeros((1, 1, 1, 17, 17))
    A[0, 0, 0, 1:, 1:] = weights
    return A


own, everywhere = np.eye(16), np.full((16, 16), 1 / 16)
left = ((places[:, None] - places) == [0, 1]).all(-1).astype(float)                 # the leftmost have none
uniform = probe.uniform_attention_distance(grid, 2)
for weights, expected in ((own, 0), (left, 2), (everywhere, uniform)):
    assert np.isclose(probe.mean_attention_distance(head_of(weights), grid, 2).item(), expected)

far = probe.mean_attention_distance(seen.attention, grid, 2).mean(1)                # (L, H), mean over the images
probe.draw_attention_distance(far, uniform)

# %% [markdown]
# All heads look about as far as one with equal attention for all patches: sixteen patches are hardly enough for a
# difference between near and far. In the paper's models, with 196 patches, some heads of the first blocks stay near,
# and the deep ones all look far.

# %%
assert (np.abs(far / uniform - 1) < 0.15).all()

# %% [markdown]
# ## What reaches the output?
#
# A map of one head shows which tokens it attends to, but those tokens are mixtures already. **Rollout** (Abnar &
# Zuidema 2020) follows the mixing through all blocks. Take the mean over the heads, and let half of each token be
# itself, for the residual connection:
#
# $$\hat A_l = \tfrac12\,\bar A_l + \tfrac12 I, \qquad R = \hat A_L \cdots \hat A_2\,\hat A_1 .$$
#
# $R_{ij}$ is the share of token $j$ at the input in token $i$ at the output, if nothing but attention mixed them. The
# product of matrices whose rows add up to 1 is another one: $(AB)\mathbf 1 = A(B\mathbf 1) = A\mathbf 1 = \mathbf 1$.
#
# Two known cases. If every token attends to itself, $\hat A = I$ and nothing flows. If every token attends to all
# alike, $\bar A = U$ with all entries $1/N$, and $U^2 = U$, since the sum of $N$ products $1/N^2$ is $1/N$. Then
#
# $$\big(\tfrac12 I + \tfrac12 U\big)^L = 2^{-L} I + \big(1 - 2^{-L}\big)\,U ,$$
#
# by induction: multiply the right side by $\frac12 I + \frac12 U$, and you get
# $2^{-L-1} I + \big[2^{-L-1} + \frac12(1-2^{-L}) + \frac12(1-2^{-L})\big]U$, and the bracket is $1 - 2^{-L-1}$.

# %%
print(inspect.getsource(probe.attention_rollout))

# %%
identity = np.broadcast_to(np.eye(N), (L, 1, H, N, N))
alike = np.full((L, 1, H, N, N), 1 / N)
assert np.allclose(probe.attention_rollout(identity)[0], np.eye(N))
assert np.allclose(probe.attention_rollout(alike)[0], 2.0**-L * np.eye(N) + (1 - 2.0**-L) / N)

rollout = probe.attention_rollout(seen.attention)                                   # (B, N, N)
assert np.allclose(rollout.sum(-1), 1, atol=1e-5)

# %% [markdown]
# Rollout is the same for all classes. Which patches speak for *this* class? The gradient of the class's logit knows:
# to first order, a change $\delta A$ of the attention changes the logit by $\sum_{ij}\nabla A_{ij}\,\delta A_{ij}$,
# so $\nabla A_{ij} A_{ij}$ is what the logit would lose if attention $A_{ij}$ were taken away. Chefer et al. (2021)
# keep what speaks for the class, average over heads, and let it flow through the blocks:
#
# $$\begin{aligned}
# \bar A_l &= \operatorname{mean}_h\, \max(0,\ \nabla A_l \odot A_l), \\
# R_0 &= I, \\
# R_l &= R_{l-1} + \bar A_l R_{l-1} .
# \end{aligned}$$

# %%
print(inspect.getsource(probe.gradient_weighted_attention))

# %%
relevance = probe.gradient_weighted_attention(seen.attention, seen.attention_gradients)
chosen = [int(np.flatnonzero(right & (unseen.labels == digit))[0]) for digit in (0, 2, 3, 4, 7)]

figure, axes = plt.subplots(3, len(chosen), figsize=(9.5, 4.4), layout="constrained")
for column, i in enumerate(chosen):
    axes[0, column].imshow(pixels[i, 0], cmap="gray")
    for ax, shares in zip(axes[1:, column], (rollout, relevance)):
        figure.colorbar(ax.imshow(probe.over_patches(shares[i], grid), cmap="inferno", vmin=0), ax=ax)
for row, name in zip(axes, ("digit", "rollout", "for its class")):
    row[0].set_ylabel(name)
    for ax in row:
        ax.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ### Put to a test
#
# Such pictures are easy to believe. Here is a test: wipe out the patches of every digit one after the other, the most
# relevant first, and see how fast the probability of its class falls. An order that knows what matters has to be faster
# than chance.


# %%
def wiped(order, count):
    """The probability of the right class when the first `count` patches of each image's order (B, 16) are black."""
    kept = np.ones((B, 16))
    np.put_along_axis(kept, order[:, :count], 0, axis=1)
    mask = kept.reshape(B, 1, 4, 1, 4, 1)
    blank = (unseen.images.reshape(B, 1, 4, 2, 4, 2) * mask).reshape(B, 1, 8, 8)
    probs = F.softmax(logits_of(model, replace(unseen, images=blank)))[0]
    return probs[np.arange(B), unseen.labels].mean()


generator = np.random.default_rng(0)
orders = {
    "by relevance for the class": np.argsort(-relevance[:, 0, 1:], axis=1),
    "by rollout": np.argsort(-rollout[:, 0, 1:], axis=1),
    "by ink": np.argsort(-ink.reshape(B, 16), axis=1),
    "by chance": generator.permuted(np.tile(np.arange(16), (B, 1)), axis=1),
}
curves = {name: [wiped(order, count) for count in range(17)] for name, order in orders.items()}

figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
for name, curve in curves.items():
    axes.plot(range(17), curve, "o-", markersize=3, label=name)
axes.set(xlabel="patches wiped out", ylabel="probability of the class", ylim=0)
axes.legend(fontsize=8)
plt.show()

area = {name: float(np.mean(curve)) for name, curve in curves.items()}
for name, value in area.items():
    print(f"{name:<28} mean probability {value:.2f}")
assert max(value for name, value in area.items() if name != "by chance") < 0.9 * area["by chance"]
assert area["by ink"] < 1.05 * min(area.values()), "but nothing beats the simplest order by much"
assert area["by rollout"] < area["by relevance for the class"], "nor does the map of the class beat the other"

# %% [markdown]
# All three know more than chance. But the map that is made for the class does worse than rollout, which doesn't know of
# classes: the patches that speak for a digit to first order aren't the ones whose loss hurts most. And look at the
# simplest order of all, which has never seen the model: wiping out the patches with the most ink first does as well as
# the best. Of a digit, the ink is what matters, and a map that shows where the ink is looks convincing whether it
# explains the model or not. Before you believe such a picture, compare it with a simple guess.

# %% [markdown]
# ## Where does the class appear?
#
# In front of the first block the class token is the same for all images. Project it to its first two principal
# components after each block, with a colour for each digit, and see how well the nearest of ten means (those of the
# training images) tells the digits apart.

# %%
taught = probe.trace(model, digits.train.normalise(digits.train.images))
before, behind = taught.residual_stream[:, :, 0], seen.residual_stream[:, :, 0]     # (L+1, images, D)
accuracies = []
figure, axes = plt.subplots(1, L + 1, figsize=(9.5, 2.6), layout="constrained")
for depth, ax in enumerate(axes):
    means = np.array([before[depth][digits.train.labels == k].mean(0) for k in range(10)])
    nearest = ((behind[depth][:, None] - means) ** 2).sum(-1).argmin(1)
    accuracies.append((nearest == unseen.labels).mean())
    centred = behind[depth] - behind[depth].mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    ax.scatter(*(centred @ directions[:2].T).T, c=unseen.labels, cmap="tab10", s=5)
    ax.set(title=f"blocks passed: {depth}, right: {accuracies[-1]:.0%}", xticks=[], yticks=[])
    ax.title.set_size(9)
plt.show()

assert np.ptp(behind[0], axis=0).max() < 1e-6 and accuracies[0] < 0.2, "nothing is known before the first block"
assert accuracies[1] < accuracies[2] <= accuracies[3] and accuracies[3] > 0.9

# %% [markdown]
# ## Where does it err?
#
# Rows are what the digits are, columns what they are taken for; and the digits with the largest loss, that is, the
# least probability of the right class.

# %%
metrics = measure(seen.logits, unseen.labels)
draw_confusion(metrics.confusion, unseen.classes)

# %%
mistakes = probe.most_wrong(seen.logits, unseen.labels, count=8)
probe.draw_most_wrong(pixels[mistakes.rows], mistakes, unseen.classes)

# %%
assert np.isclose(np.trace(metrics.confusion) / B, right.mean()) and metrics.confusion.sum() == B
assert (np.diff(mistakes.loss) <= 0).all() and not right[mistakes.rows].any()
hardest = int(np.nanargmin(metrics.recall))
print(f"hardest to read: {unseen.classes[hardest]}")

# %% [markdown]
# What speaks for the wrong class, and what for the right one? For the worst mistake, the relevance for both:

# %%
worst = mistakes.rows[:1]
pair = {"the right class": mistakes.labels[:1], "what it is taken for": mistakes.predicted[:1]}
figure, axes = plt.subplots(1, 3, figsize=(6, 2.2), layout="constrained")
axes[0].imshow(pixels[worst[0], 0], cmap="gray")
axes[0].set_title("the image", fontsize=9)
for ax, (name, classes) in zip(axes[1:], pair.items()):
    one = probe.trace(model, images[worst], classes=classes)
    heat = probe.gradient_weighted_attention(one.attention, one.attention_gradients)[0]
    figure.colorbar(ax.imshow(probe.over_patches(heat, grid), cmap="inferno", vmin=0), ax=ax)
    ax.set_title(f"{name}: {unseen.classes[classes[0]]}", fontsize=9)
for ax in axes:
    ax.set_axis_off()
plt.show()

# %% [markdown]
# ## The same with photographs
#
# Sixteen patches are few. A larger model has learned CIFAR-10: photographs of 32×32 pixels in 64 patches of 4×4, six
# blocks, 83.7 % of the test images right. It comes with tinyvit, by the name `cifar10-cpu`. First its filters, in
# colour, as 28 of 48 components:

# %%
larger = load_trained("cifar10-cpu", device="cpu")
reader, cells = larger.model, (8, 8)
found = probe.filter_components(reader.embed.patch_embed.proj.weight.data)
probe.draw_filter_components(found)

# %% [markdown]
# They began as filters that whiten patches (notebook 07), for which each pattern of pixels counts as much as any other,
# and so it has nearly stayed: no component has as much as a tenth of the variance. The first asks how green a patch is,
# the next ones mostly for light and dark spots and edges, those around 20 for how its colour changes from one side to
# the other. (The filters in the paper's figure 7 began with noise, and have seen 14 million images several times.)

# %%
assert found.variance.max() < 0.1

# %% [markdown]
# The positions of this model were not learned: they are sines and cosines.
#
# The next two questions need images: 300 pieces of two photographs that come with scikit-learn. How far does each head
# look, and how fine are the features? The second is answered by the Fourier transform of each channel's map (Park & Kim
# 2022, figure 2): the lower the amplitude of a frequency next to that of the mean, the smoother the maps.

# %%
photographs = [load_sample_image(name).transpose(2, 0, 1) for name in ("china.jpg", "flower.jpg")]
corners = [(top, left) for top in range(0, 330, 36) for left in range(0, 540, 36)]
pieces = np.stack([photo[:, i : i + 96 : 3, j : j + 96 : 3] for photo in photographs for i, j in corners])
mean, std = (np.reshape(numbers, (3, 1, 1)) for numbers in (larger.preprocessing.mean, larger.preprocessing.std))
watched = probe.trace(reader, ((pieces / 255 - mean) / std).astype("float32"))
assert pieces.shape == (300, 3, 32, 32)

far = probe.mean_attention_distance(watched.attention, cells, 4).mean(1)            # (L, H)
uniform = probe.uniform_attention_distance(cells, 4)
probe.draw_attention_distance(far, uniform)

# %% [markdown]
# Here near and far do differ: the heads of the second block look nearest, and those of the last two as far as if all
# patches counted alike.

# %%
assert far.mean(1).argmin() == 1 and far[1].mean() < 0.8 * uniform
assert (abs(far[4:].mean(1) / uniform - 1) < 0.02).all()

# %%
frequencies, amplitudes = probe.fourier_spectrum(watched.residual_stream, cells)
probe.draw_spectrum(frequencies, amplitudes.mean(1))

# %% [markdown]
# Two blocks make the features rougher than patches are. From there on they get smoother from block to block: attention
# takes means, and a mean of tokens has less of the high frequencies than the tokens had.

# %%
highest = amplitudes.mean(1)[:, -1]
assert (np.diff(highest[:3]) > 0).all() and (np.diff(highest[2:]) < 0).all()

# %% [markdown]
# All of it is drawn by `tinyvit inspect RUN` for any run, with the norms by block besides.
#
# ## Exercises
#
# **1.** A head in which every patch pays half of its attention to itself, a quarter to the patch below, and a quarter
# to the one on the right (somewhere in the middle of a large image, with patches of 16×16 pixels): what is its mean
# attention distance, in pixels? Put your number in place of `None`.

# %%
my_distance = None

# %%
weights = np.zeros((1, 1, 1, 10, 10))                                               # one patch of nine, the middle one
weights[0, 0, 0, 1 + 4, [1 + 4, 1 + 7, 1 + 5]] = 1 / 2, 1 / 4, 1 / 4
distance_there = probe.mean_attention_distance(weights, (3, 3), 16).item()
hint = "Itself is 0 pixels away, and each of the two others one patch."
exercises.check_number("my_distance", my_distance, distance_there, hint, 1e-6)

# %% [markdown]
# **2.** Write rollout. `exercises.check` says whether it is right, and if not, where, and which mistake it looks like.


# %%
def my_rollout(attention):
    # attention: (L, B, H, N, N), each row adding up to 1
    return np.zeros_like(attention[0, :, 0])  # in place of this, R (B, N, N)


exercises.check("rollout", my_rollout)

# %% [markdown]
# **3.** Which of the twelve heads can the model do without? Silence one at a time, and count how many of the 360 digits
# are still read right; `still_right` is to be the twelve numbers in a tuple, those of the first block first. A head is
# silenced by zeros in its 12 columns of `blocks.….attn.proj.weight`: its result is then ignored.

# %%
still_right = None

# %%
whole, counts = model.state_dict(), []
for block, head in np.ndindex(L, H):
    silenced = {name: value.copy() for name, value in whole.items()}
    silenced[f"blocks.{block}.attn.proj.weight"][:, 12 * head : 12 * (head + 1)] = 0
    model.load_state_dict(silenced)
    counts.append(int((logits_of(model, unseen).argmax(1) == unseen.labels).sum()))
model.load_state_dict(whole)
hint = "One head at a time: are the others there again when the next one is silenced?"
exercises.check_number("still_right", still_right, counts, hint)
