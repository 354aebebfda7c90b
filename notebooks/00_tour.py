# %% [markdown]
# # 00 · A tour
#
# A Vision Transformer cuts an image into patches, lets every patch look at every other, and says in the end what the
# image shows. This one is written in NumPy, forward and backward, without automatic differentiation: every
# gradient in it was derived by hand. In the notebooks that follow you derive them yourself.
#
# First see it work. The cells below run from top to bottom in a few seconds; change something and run them again.

# %%
import inspect

import matplotlib.pyplot as plt
import numpy as np

import tinyvit
from tinyvit import ViT, ViTConfig, exercises, gradcheck, probe
from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.sums import as_rows
from tinyvit.optim import AdamW
from tinyvit.training import train_step

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True, "image.cmap": "gray"})
np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## The whole model, with shapes
#
# ![A Vision Transformer with the shapes of its arrays](figures/architecture.svg)
#
# Part 1 turns images into tokens (notebook 01), part 2 lets the tokens exchange information (02 to 04), and part 3
# computes the answer from one of them, the class token, or from the mean of the patches' tokens (05). Each shape is
# that of a box's result.
#
# ## A trained model reads digits
#
# `tinyvit train digits` makes such a model in less than a minute, and one comes with tinyvit under the name `digits`.
# It reads handwritten digits of 8×8 pixels in 16 patches of 2×2, and it has never seen the ones below.

# %%
model, unseen = tinyvit.load("digits", device="cpu"), tinyvit.data.load("digits").test
images = unseen.normalise(unseen.images)                                # (360, 1, 8, 8)
pixels = unseen.images / unseen.scale                                   # the same, from 0 to 1
probabilities = model.predict(images)                                   # (360, 10)
read = probabilities.argmax(1)

figure, axes = plt.subplots(2, 10, figsize=(9, 2.3), height_ratios=(2, 1))
for i in range(10):
    axes[0, i].imshow(pixels[i, 0])
    axes[0, i].set_title(f"{read[i]}", color="black" if read[i] == unseen.labels[i] else "red")
    axes[0, i].axis("off")
    axes[1, i].bar(range(10), probabilities[i])
    axes[1, i].set(ylim=(0, 1), xticks=(0, 9), yticks=())
plt.show()

accuracy = (read == unseen.labels).mean()
print(f"{model.num_parameters():,} parameters; {100 * accuracy:.2f} % of {len(images)} digits are read right")
assert accuracy > 0.95

# %% [markdown]
# ## Where it looks
#
# In each of its three blocks, four *heads* decide how much attention each token pays to each of the others. Here is the
# attention of the framed patch: one row per block, one column per head, one colour scale per block. All 16 patches
# attend in this way, and the answer is computed from the mean of their tokens. (There is a 17th token, the class token,
# which doesn't belong to any patch. Many models compute the answer from it; this one doesn't.)

# %%
seen = probe.trace(model, images[:64], classes=unseen.labels[:64])      # every value and gradient, by name
L, B, H, N, _ = seen.attention.shape
assert (L, H, N) == (3, 4, 1 + 16)
np.testing.assert_allclose(seen.attention.sum(-1), 1, atol=1e-5)        # what a token takes adds up to 1

framed = 6                                                              # of the patches 0 to 15, row by row
maps = probe.over_patches(seen.attention, seen.grid, 1 + framed)        # (L, B, H, 4, 4)
shown = int(np.flatnonzero(unseen.labels[:64] == 3)[0])
figure, axes = plt.subplots(3, 5, figsize=(6, 3.7))
for block in range(3):
    axes[block, 0].imshow(pixels[shown, 0])
    corner = 2 * (framed % 4) - 0.5, 2 * (framed // 4) - 0.5
    axes[block, 0].add_patch(plt.Rectangle(corner, 2, 2, fill=False, edgecolor="tab:orange", linewidth=2))
    for head in range(4):
        drawn = axes[block, 1 + head].imshow(maps[block, shown, head], "inferno", vmin=0, vmax=maps[block, shown].max())
        axes[block, 1 + head].set_title(f"block {block}, head {head}", fontsize=8)
    figure.colorbar(drawn, ax=axes[block, 1:])
for panel in axes.flat:
    panel.axis("off")
plt.show()

# %% [markdown]
# And backwards: which patches speak for the digit that was written? The gradients of that digit's logit with respect to
# the attention tell (notebook 08 derives how). The maps show how relevant each patch is for the mean of all patches.
# The identity matrix, each token's share in itself, has nothing to do with the image and is subtracted:

# %%
relevance = probe.gradient_weighted_attention(seen.attention, seen.attention_gradients) - np.eye(N)
chosen = [int(np.flatnonzero(unseen.labels[:64] == digit)[0]) for digit in (0, 1, 2, 3, 4, 7)]
assert all(read[i] == unseen.labels[i] for i in chosen)

figure, axes = plt.subplots(2, 6, figsize=(7, 2.5))
for column, i in enumerate(chosen):
    axes[0, column].imshow(pixels[i, 0])
    heat = probe.over_patches(relevance[i], seen.grid, "avg")
    drawn = axes[1, column].imshow(heat / heat.max(), cmap="inferno", vmin=0)
figure.colorbar(drawn, ax=axes[1], label="of the largest")
for panel in axes.flat:
    panel.axis("off")
plt.show()

# %% [markdown]
# Bright patches lie on the strokes, which looks convincing. But almost any map that follows the ink would. Notebook 08
# puts such maps to a test: wiping out the patches with the most ink hurts its model more than wiping out the brightest
# ones of the map. Such pictures raise questions; they prove nothing.
#
# ## Forwards and backwards, in a dozen lines
#
# Each operation is a pair of functions. The forward returns its result and a *cache*, which holds what the backward
# will need. The backward takes the gradient of the result, and returns the gradients of the inputs. A model is the same
# on a larger scale:

# %%
config = ViTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=24, depth=2, num_heads=3, num_classes=10)
small = ViT(config, seed=0)
batch, labels = images[:64], unseen.labels[:64]

logits, cache = small(batch)                                            # (64, 10)
loss, loss_cache = F.cross_entropy(logits, labels)
small.zero_grad()
dimages = small.backward(F.cross_entropy_backward(1.0, loss_cache), cache)

print(f"loss {float(loss):.4f}; a model that knows nothing has ln 10 = {np.log(10):.4f}")
print("gradient of the images ", dimages.shape)
print("gradient of the head   ", small.head.weight.grad.shape)
print("attention of block 1   ", cache.blocks[1].attn.heads.probs.shape)
assert abs(float(loss) - np.log(10)) < 1e-4 and dimages.shape == batch.shape

# %% [markdown]
# A new model's head is zero, so it gives all classes the same logit. Nothing is hidden in an object here: the cache is
# a tree of named tuples as deep as the model, in which you can look up every intermediate result.
#
# Follow the gradient a few times, and the loss goes down. `train_step` is the lines above and a step of the
# optimizer:

# %%
optimizer = AdamW(small, lr=3e-3)
losses = [float(train_step(small, optimizer, batch, labels, threads=1).loss) for _ in range(60)]

figure, axes = plt.subplots(figsize=(4.5, 2.4))
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss of 64 digits", ylim=(0, None))
plt.show()
assert losses[-1] < 0.2 * losses[0]

# %% [markdown]
# (A model that knows 64 digits by heart has not understood digits. Notebook 06 trains on all of them, and reads 98 %
# of those that the model never saw.)
#
# ## Is it right?
#
# A model with a wrong gradient still trains, only worse, and nobody notices. So every gradient is compared with a
# derivative that doesn't use the derivation: the *complex step* (notebook 09). For a whole model, every parameter
# and the image:

# %%
exact = ViT(config, dtype="float64")
report = gradcheck.check_model(exact, batch[:2].astype("float64"))
print(f"largest error of all gradients: {report.max_error:.1e}")
assert report.max_error < 1e-9

# %% [markdown]
# Each operation has a reference implementation, which is what you read here, and fast kernels for your machine. Inside
# `tinyvit.reference()` the reference implementation runs:

# %%
fast, _ = model(images[:32])
with tinyvit.reference():
    plain, _ = model(images[:32])
print(f"the two differ by {np.abs(fast - plain).max() / np.abs(plain).max():.0e} of the largest number")
assert np.abs(fast - plain).max() < 1e-5 * np.abs(plain).max()

# %% [markdown]
# ## How to read this code
#
# The notebooks show the package's own functions, as this pair. Everything in them that isn't mathematics is one of six
# things:

# %%
print(inspect.getsource(F.softmax))
print(inspect.getsource(F.softmax_backward))

# %% [markdown]
# - **`@operation`** stands above a forward. It checks that the operands are arrays of one library and calls the fastest
#   implementation that the machine has. What stands below is the reference implementation, which all others are
#   compared with. Where the first argument isn't the only array, `@operation(arrays="x weight bias")` names them.
# - **`@backward_of(softmax, ...)`** says whose backward this is and what shapes belong to it, so that a gradient of the
#   wrong shape is refused.
# - **`xp`** is the array library: `array_module(x)` is NumPy for an array on the CPU and CuPy for one on a GPU. Read it
#   as `np`.
# - **The cache**, a named tuple like `SoftmaxCache`, is what the forward keeps for the backward.
# - **`as_rows(x)`** makes (rows, D) of (..., D): one large matrix product is faster than many small ones.
# - **`ctx`**, in `forward(x, ctx)` of a layer, says how the call is made: training or not, what observes it. You can
#   ignore it when you read a formula.

# %%
scores = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
probs, cache = F.softmax(scores)
assert array_module(scores) is np
assert cache._fields == ("probs",) and cache.probs is probs
assert as_rows(np.zeros((2, 3, 4))).shape == (6, 4)
np.testing.assert_allclose(F.softmax.reference(scores)[0], probs, atol=1e-12)
try:
    F.softmax_backward(np.ones((2, 4)), cache)
except ValueError as error:
    print(error)
else:
    raise AssertionError("a gradient of the wrong shape was taken")

# %% [markdown]
# ### The symbols
#
# These letters have the same meaning in all notebooks. Two have a second one that is just as common: $\beta_1$ and
# $\beta_2$ are Adam's constants, and $b$ as an index counts the images of a batch. Two passages use letters of their
# own, Kahan's sum (09) and the cubics (10). Letters that only a few lines need are explained there.
#
# | symbol | in code | meaning |
# | --- | --- | --- |
# | $B$, $N$, $D$ | `B, N, D` | images of a batch; tokens, or patches if the tokens are $N + 1$; numbers of a token |
# | $H$, $d$ | `H`, `d` | heads, and the numbers that each has of a token, $d = D / H$ |
# | $C$; $P$, $Q$ | `C`; `P, Q` | channels of an image; height and width of a patch |
# | $z$; $l$ | `tokens`; `logits` | tokens; logits, one for each class |
# | $\mathcal L$ | `loss` | the loss, one number |
# | $dx$ | `dx` | $\partial \mathcal L / \partial x$, the gradient of the loss with respect to $x$, shaped like $x$ |
# | $W$, $b$ | `weight`, `bias` | the weight of a linear layer, (out, in): $y = x W^\top + b$ |
# | $\mu$, $\sigma^2$ | `mean`, `var` | mean and variance of the numbers of a token |
# | $r$ | `rstd` | $1 / \sqrt{\sigma^2 + \varepsilon}$ |
# | $\hat x$ | `xhat` | a token after centring and scaling, $r\,(x - \mu)$ |
# | $\gamma$, $\beta$ | `weight`, `bias` | weight and bias of a layer norm |
# | $q$, $k$, $v$ | `q, k, v` | queries, keys, values |
# | $\alpha$; $s$; $p$ | `scale`; `scores`; `probs` | the scale of the scores, $1/\sqrt d$; scores; probabilities |
# | $Z$ | `total` | the sum of a softmax, $Z = \sum_j e^{s_j}$, so that $p_j = e^{s_j} / Z$ |
# | $\eta$; $\kappa$ | `lr` | a learning rate; the curvature of the loss |
# | $J$ | | the Jacobian, $J_{ij} = \partial y_i / \partial x_j$ |
# | $\delta_{ij}$ | | 1 where $i = j$, else 0 |
# | $\odot$ | `*` | the product entry by entry |

# %% [markdown]
# ## The map
#
# | | notebook | what you can do afterwards |
# | --- | --- | --- |
# | 00 | [Using the chain rule](00_using_the_chain_rule.ipynb) | from the chain rule of one variable to arrays |
# | 01 | [Images into tokens](01_images_into_tokens.ipynb) | cut, project, place; the gradient of a linear layer |
# | 02 | [Layer norm](02_layer_norm.ipynb) | derive the gradient that is got wrong most often |
# | 03 | [Attention](03_attention.ipynb) | softmax and attention, and their gradients |
# | 04 | [Blocks](04_blocks.ipynb) | many heads, GELU, the MLP, residual connections |
# | 05 | [The whole ViT](05_whole_vit.ipynb) | go through one by hand, and count B/16, L/16 and H/14 |
# | 06 | [Training](06_training.ipynb) | cross-entropy, Adam, and 98 % on the digits |
# | 07 | [CIFAR-10](07_cifar10.ipynb) | schedules, augmentation, and why each |
# | 08 | [What it learns](08_what_it_learns.ipynb) | look inside: filters, positions, attention, mistakes |
# | 09 | [The machine](09_machine.ipynb) | float32, the complex step, speed and memory |
# | 10 | [Transfer](10_transfer.ipynb) | take a trained model to other classes and larger images |
# | 11 | [Convolutions](11_convolutions.ipynb) | convolution as attention, batch norm, and who needs how much data |
# | 12 | [A teacher](12_teacher.ipynb) | distillation, and a token and a head for it |
# | 13 | [Windows](13_windows.ipynb) | attention in windows that shift, and relative positions |
# | 14 | [From convolution to attention](14_convolution_to_attention.ipynb) | one formula, five architectures |
# | 15 | [Hidden patches](15_hidden_patches.ipynb) | learn from images without labels: a masked autoencoder |
# | 16 | [Two views of one image](16_two_views.ipynb) | DINO, and what keeps it from collapsing |
# | 17 | [Images and texts](17_images_and_texts.ipynb) | CLIP: classes that are sentences, and where they fail |
# | 18 | [Images out of noise](18_images_out_of_noise.ipynb) | diffusion with a DiT: noise, adaLN-Zero, guidance |
# | 19 | [Time: tubelets](19_tubelets.ipynb) | videos: joint and factorised attention, inflated filters |
# | 20 | [Attention on a GPU](20_attention_on_a_gpu.ipynb) | what moves, what waits: tiles, warps, tensor cores |
# | 21 | [Why does my training go wrong?](21_broken_trainings.ipynb) | eight faults, seen in loss and gradients |
# | 22 | [One label a pixel](22_dense_prediction.ipynb) | dense prediction: heads, their bounds, mean IoU |
# | 23 | [Native size](23_native_size.ipynb) | images of all sizes in one row: bounds, windows, rotary positions |
#
# They build on one another, but each can be run alone. What you need is some Python and the chain rule. In each, a
# formula carries the name of the function that computes it, the function's code is shown, and every claim is an
# `assert` that runs.
#
# ## Exercises
#
# Each notebook ends with some. Where you write a function, `exercises.check` tests it as a teacher would: right, or
# which result is wrong in which entry, and which of the usual mistakes it looks like. It never shows the solution
# unless you ask for it by `exercises.solution`.
#
# **1.** How many numbers are in the attention of *one* image in *one* block of the trained model, all heads together?
# How many would there be with patches of 1×1 pixel? Put your numbers in place of `None`.

# %%
answer_now, answer_then = None, None

# %%
finer, _ = F.patchify(images[:1], 1)
hint = "How many tokens are there, with the class token? Each looks at each, in every head."
exercises.check_number("answer_now", answer_now, seen.attention[0, 0].size, hint)
exercises.check_number("answer_then", answer_then, H * (1 + finer.shape[1]) ** 2, hint)

# %% [markdown]
# **2.** The model's last step turns ten scores into ten probabilities: $p_i = e^{x_i} / \sum_j e^{x_j}$, row by row.
# Write it; and when it is right, look at what else `check` has tried.


# %%
def my_softmax(x):
    # x: (B, N)
    return np.zeros_like(x)                                             # in place of this, the probabilities


print(exercises.describe("softmax"))
exercises.check("softmax", my_softmax)
