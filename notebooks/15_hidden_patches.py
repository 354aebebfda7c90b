# %% [markdown]
# # 15 · Hidden patches
#
# Labels are expensive, images are not. Hide a part of an image and let the network predict it: the image is its own
# label. A network that predicts well must have learned something about what images show, and its features can be used
# for other tasks, or fine-tuned with few labels.
#
# Two ways: masked patch prediction (Dosovitskiy et al. 2021, appendix B.1.2), and the masked autoencoder (MAE, He et
# al. 2022), which hides three quarters.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from pathlib import Path
from statistics import mean, stdev

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

from tinyvit import Key, exercises, gradcheck
from tinyvit import functional as F
from tinyvit.data import load
from tinyvit.models import ViTConfig
from tinyvit.models.mae import Decoder, MaskedAutoencoder, with_class_token
from tinyvit.models.masked_patches import MaskedPatches
from tinyvit.training import OptimConfig, TrainConfig
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions, normalise_patches
from tinyvit.training.tasks.masked_patches import MaskedPatchPrediction

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## Masked patch prediction
#
# Half of an image's patches are to be guessed. Of these, 80 % are replaced by a mask token $u$, the same everywhere and
# learned; 10 % by another patch of the image; and 10 % stay as they are, so that the network can't rely on a patch
# being what it seems. With $m_{bn} = 1$ where sample $b$ gets the mask token, and 0 elsewhere:
#
# $$y_{bn} = m_{bn}\,u + (1 - m_{bn})\,x_{bn} \tag{replace\_tokens}$$
#
# The token was used at every such place, so its gradient is the sum of the gradients there, and the gradient of the
# tokens that it replaced is zero:
#
# $$\hspace{-5em} \begin{aligned}
# dx_{bn} &= (1 - m_{bn})\,dy_{bn} \\
# du &= \sum_{b,\,n} m_{bn}\,dy_{bn}
# \end{aligned} \tag{replace\_tokens\_backward}$$

# %%
print(inspect.getsource(F.replace_tokens))
print(inspect.getsource(F.replace_tokens_backward))
x, token, mask = random.standard_normal((2, 5, 3)), random.standard_normal((1, 1, 3)), random.random((2, 5)) < 0.5
report = gradcheck.check(F.replace_tokens, F.replace_tokens_backward, (x, token, mask))
assert report.max_error < 1e-14

# %% [markdown]
# Tokens are replaced before the positions are added, so that a mask token has a position as well. For one image of
# patches $x$, with $W_e$ for their embedding, $c$ for the class token, $p$ for the positions and $S$ for the half to be
# guessed,
#
# $$\begin{aligned}
# e &= W_e\,x \\
# r &= \mathrm{replace}(e) \\
# z &= [c,\ r] + p \\
# t &= \mathrm{encode}(z) \\
# y &= W\,t_S + w
# \end{aligned} \tag{MaskedPatches.forward}$$
#
# and from the bottom up, where $dt$ is 0 outside $S$,
#
# $$\hspace{-5em} \begin{aligned}
# dt_S &= W^\top dy \\
# [dc,\ dr] &= \mathrm{encode}'(dt) \\
# de,\ du &= \mathrm{replace}'(dr) \\
# dW_e &= de\;x^\top
# \end{aligned} \tag{MaskedPatches.backward}$$

# %%
print(inspect.getsource(MaskedPatches.forward))
print(inspect.getsource(MaskedPatches.backward))

# %% [markdown]
# What is guessed is a patch's mean colour: as three numbers, by their squared error, or rather as a class. Three bits
# for each channel make $8^3 = 512$ of them, and a cross-entropy can say "either blue or brown, but nothing in between",
# where a squared error has to guess the mean of both.

# %%
print(inspect.getsource(MaskedPatchPrediction.targets))
colours = np.array([[0.0, 0.0, 0.0], [0.99, 0.0, 0.0], [0.0, 0.13, 0.5], [1.0, 1.0, 1.0]])
levels = np.clip(np.floor(8 * colours), 0, 7).astype(int)
print("classes of four colours:", levels @ [64, 8, 1])
assert (levels @ [64, 8, 1]).tolist() == [0, 448, 12, 511]

# %% [markdown]
# ## The masked autoencoder
#
# Mask tokens are a waste: the encoder computes with them in every layer, and they carry no information but their
# position. MAE leaves them out. The encoder sees the visible quarter alone; mask tokens join in a small decoder behind
# it, which is thrown away after the training.
#
# For the decoder each token has to get back to its place $i_b$ in the image, with a mask token $u$ in the gaps. It is
# the inverse of taking tokens:
#
# $$y_{bn} = \begin{cases} x_{bm} & n = i_{bm} \\ u & \text{else} \end{cases} \tag{place\_tokens}$$
#
# A token gets the gradient of its place, the mask token the sum over all others:
#
# $$\hspace{-3em} \begin{aligned}
# dx_{bm} &= dy_{b,\,i_{bm}} \\
# du &= \sum_b \sum_{n \notin i_b} dy_{bn}
# \end{aligned} \tag{place\_tokens\_backward}$$

# %%
print(inspect.getsource(F.place_tokens))
print(inspect.getsource(F.place_tokens_backward))

# %% [markdown]
# By hand: two tokens, 5 and 7, go to places 2 and 0 of four, and the mask token is 1. Then $y = (7, 1, 5, 1)$, and of
# $dy = (0.1, 0.2, 0.3, 0.4)$ the tokens get 0.3 and 0.1, the mask token 0.2 + 0.4.

# %%
y, cache = F.place_tokens(np.array([[[5.0], [7.0]]]), np.ones((1, 1, 1)), np.array([[2, 0]]), 4)
dx, dtoken = F.place_tokens_backward(np.array([0.1, 0.2, 0.3, 0.4]).reshape(1, 4, 1), cache)
print("y", y.ravel(), " dx", dx.ravel(), " du", dtoken.ravel())
assert y.ravel().tolist() == [7, 1, 5, 1] and np.allclose(dx.ravel(), [0.3, 0.1]) and np.isclose(dtoken, 0.6).all()
order = random.random((2, 6)).argsort(1)
taken, _ = F.take_tokens(random.standard_normal((2, 6, 3)), order[:, :2])
report = gradcheck.check(F.place_tokens, F.place_tokens_backward, (taken, token, order[:, :2], 6))
assert report.max_error < 1e-14

# %% [markdown]
# The loss is the mean squared error of the hidden patches' pixels, $n$ numbers in all; the visible ones don't count, as
# copying them teaches nothing.
#
# $$\mathcal L = \frac1n \sum_i (x_i - t_i)^2 \tag{mean\_squared\_error}$$
#
# $$\hspace{-9em} dx_i = d\mathcal L\;\frac2n\,(x_i - t_i) \tag{mean\_squared\_error\_backward}$$

# %%
print(inspect.getsource(F.mean_squared_error))
print(inspect.getsource(F.mean_squared_error_backward))
guess, target = random.standard_normal((2, 2, 3, 4))
report = gradcheck.check(F.mean_squared_error, F.mean_squared_error_backward, (guess, target.tolist()))
assert report.max_error < 1e-14

# %% [markdown]
# The whole: embed all patches with their positions, take the class token and the first patches of a random order,
# the visible ones, $v$ for short, and encode these alone. For one image $x$,
#
# $$\hspace{-8em} \begin{aligned}
# e &= \mathrm{embed}(x) \\
# t &= \mathrm{encode}(e_v) \\
# y &= \mathrm{decoder}(t)
# \end{aligned} \tag{MaskedAutoencoder.forward}$$
#
# and backwards, with 0 for the gradient of what is hidden,
#
# $$\hspace{-8em} \begin{aligned}
# dt &= \mathrm{decoder}'(dy) \\
# de_v &= \mathrm{encode}'(dt)
# \end{aligned} \tag{MaskedAutoencoder.backward}$$
#
# The decoder projects the tokens to its own width, puts them in their places, adds fixed sines and cosines $s$, and
# goes through a few blocks; of its output the hidden places $h$ alone become pixels.
#
# $$\begin{aligned}
# z &= \mathrm{place}(W_1 t + w_1) + s \\
# z' &= \mathrm{norm}(\mathrm{blocks}(z)) \\
# y &= W_2\,z'_h + w_2
# \end{aligned} \tag{Decoder.forward}$$
#
# and backwards, where $dz'$ is 0 outside $h$,
#
# $$\begin{aligned}
# dz'_h &= W_2^\top dy \\
# dz &= \mathrm{blocks}'(\mathrm{norm}'(dz')) \\
# dt &= W_1^\top\,\mathrm{place}'(dz)
# \end{aligned} \tag{Decoder.backward}$$

# %%
for method in (MaskedAutoencoder.forward, MaskedAutoencoder.backward, Decoder.forward, Decoder.backward):
    print(inspect.getsource(method))

# %%
shape = ViTConfig(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=32, depth=2, num_heads=4,
                  positions="sincos_2d")  # fmt: skip
options = MaskedAutoencoderOptions(decoder_dim=16, decoder_depth=1, decoder_heads=2)
config = TrainConfig("digits", shape, task="mae", objective=options, optim=OptimConfig(lr=3e-3), device="cpu")
task, digits = task_class("mae")(config), load("digits")
model = task.build(device="cpu")
images = digits.train.normalise(digits.train.images[:2], "float32")
batch = task.batch(images, None, Key(0))
pixels, cache = model(images, batch["order"], 4)
print("order of the first image's 16 patches:", batch["order"][0])
print("places of its class token and visible patches:", with_class_token(batch["order"], 4)[0][0])
print("attention of the encoder", cache.encode.blocks[0].attn.heads.probs.shape, "and guessed pixels", pixels.shape)
assert cache.encode.blocks[0].attn.heads.probs.shape == (2, 4, 5, 5) and pixels.shape == (2, 12, 4)

# %% [markdown]
# Each image has an order of its own. Some implementations of MAE draw one mask for a whole batch by mistake: then a
# step learns about one set of places only.
#
# ### What is guessed: normalised pixels
#
# The mean and the contrast of a patch are the easy part of it. The paper predicts the rest, the pixels minus their
# patch's mean, divided by its standard deviation: edges and textures count as much in a dark patch as in a bright one.

# %%
print(inspect.getsource(normalise_patches))
patches, _ = F.patchify(images, 2)
dark, bright = 0.1 * patches - 3, 2 * patches + 5
assert np.allclose(normalise_patches(dark), normalise_patches(bright), atol=1e-2)

# %% [markdown]
# ### What it saves
#
# With a share $r$ of the patches hidden, the encoder computes with $(1 - r)N + 1$ tokens. Its matrix products cost in
# proportion to them, attention to their square. The preset `cifar10-mae` has $N = 64$, an encoder 128 wide with six
# blocks and a decoder 64 wide with two. In millions of multiply-adds for an image:

# %%
def multiply_adds(tokens, width, depth, hidden):
    return depth * tokens * (4 * width * width + 2 * width * hidden + 2 * tokens * width)


costs = {}
for share in (1 / 64, 0.5, 0.75, 0.9):
    encoder = multiply_adds(round((1 - share) * 64) + 1, 128, 6, 256) + 64 * 48 * 128
    decoder = multiply_adds(65, 64, 2, 256)
    costs[share] = encoder + decoder
    print(f"{round(64 * share):2} of 64 hidden: encoder {encoder / 1e6:5.1f}, decoder {decoder / 1e6:4.1f}, "
          f"together {costs[share] / costs[1 / 64]:.2f} of a step that hides one patch")  # fmt: skip
assert costs[0.75] < 0.45 * costs[1 / 64]

# %% [markdown]
# Measured, a whole step at three quarters takes 0.33 to 0.44 of the time of one that hides a single patch, depending on
# the decoder (`results/README.md`).
#
# ## What it sees
#
# Eight test images of CIFAR-10 after the preset `cifar10-mae` (34 epochs): as they are, with three quarters hidden, and
# guessed (`tinyvit inspect RUN --reconstructions 8`). What is guessed are normalised pixels; mean and contrast of each
# hidden patch are the true ones, put back for the picture, which is why even a hidden sign has its colour. The guesses
# are smooth: of all the pixels that would fit, the squared error asks for the mean.

# %%
display(Image("results/cifar10-mae-reconstructions.png"))

# %% [markdown]
# ## What it is worth
#
# `results/masking.py` has trained the preset `cifar10-mae` on all 50,000 images without a label, and then fine-tuned
# its encoder on 1,000 images with labels. The same for masked patch prediction, in about the same time; and the same
# ViT from scratch has learned from the 1,000 labels alone. Three seeds, which draw the 1,000 images.

# %%
runs = json.loads(Path("results/masking.json").read_text())["runs"]


def accuracies(name):
    return [100 * run["accuracy"] for run in runs if run["model"] == name and run["labels"]]


def unlabelled(name):
    return next(run for run in runs if run["model"] == name and not run["labels"])


whole = ["from scratch", "masked patches", "MAE"]
for name in whole:
    found = accuracies(name)
    known = "" if name == "from scratch" else f"   k-NN {100 * unlabelled(name)['knn']:.1f} %"
    print(f"{name:<16} {mean(found):.1f} ± {stdev(found):.1f} % with 1,000 labels{known}")
assert mean(accuracies("MAE")) > mean(accuracies("from scratch")) + 3
assert mean(accuracies("from scratch")) < mean(accuracies("masked patches")) < mean(accuracies("MAE"))

# %% [markdown]
# ### Why three quarters?
#
# A word can be guessed from its sentence with one in seven missing. A patch can be predicted from its neighbours by
# continuing their lines, without knowing what the image shows; so most of the neighbours have to be hidden, too. The
# sweep: 10,000 images, five passes, and the same fine-tuning. (The loss can't be compared: with more hidden, guessing
# is harder.)

# %%
sweep = {share: f"MAE, {share} % hidden" for share in (15, 50, 75, 90)}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6))
axes[0].plot(list(sweep), [100 * unlabelled(name)["knn"] for name in sweep.values()], "o-")
axes[0].set(title="nearest neighbours, %", xlabel="hidden, %", xticks=list(sweep))
for share, name in sweep.items():
    axes[1].plot([share] * len(accuracies(name)), accuracies(name), "o", color="0.7", markersize=4)
axes[1].plot(list(sweep), [mean(accuracies(name)) for name in sweep.values()], "o-")
axes[1].set(title="fine-tuned on 1,000 labels, %", xlabel="hidden, %", xticks=list(sweep))
axes[2].plot(list(sweep), [unlabelled(name)["seconds"] for name in sweep.values()], "o-")
axes[2].set(title="seconds of training", xlabel="hidden, %", xticks=list(sweep), ylim=(0, None))
plt.show()
for share, name in sweep.items():
    print(f"{share} %: k-NN {100 * unlabelled(name)['knn']:.1f} %, fine-tuned {mean(accuracies(name)):.1f} %, "
          f"{unlabelled(name)['seconds']:.0f} s")  # fmt: skip
plain = "MAE, 75 % hidden, plain pixels"
print(f"plain pixels at 75 %: k-NN {100 * unlabelled(plain)['knn']:.1f} %, fine-tuned {mean(accuracies(plain)):.1f} %")

# %% [markdown]
# After the same five passes, hiding *less* is better as measured by nearest neighbours, and fine-tuned, all are as good
# as from scratch, within the spread of seeds: in so short a training, much has to be learned from each image. But the
# seconds differ by a factor of three. With the time that 15 % took, three quarters go through the images eleven times
# and 90 % fifteen times:

# %%
for name in ("MAE, 15 % hidden", "MAE, 75 % hidden, 11 epochs", "MAE, 90 % hidden, 15 epochs"):
    print(f"{name:<28} {unlabelled(name)['steps']:3} steps, k-NN {100 * unlabelled(name)['knn']:.1f} %, "
          f"fine-tuned {mean(accuracies(name)):.1f} %")  # fmt: skip
for name in ("MAE, 75 % hidden, 11 epochs", "MAE, 90 % hidden, 15 epochs"):
    assert unlabelled(name)["knn"] > unlabelled("MAE, 15 % hidden")["knn"] + 0.02
    assert mean(accuracies(name)) > mean(accuracies("MAE, 15 % hidden")) + 2

# %% [markdown]
# So three quarters are best here for the same time, not for the same number of passes: a step costs less, so there are
# more of them. In the paper, with 800 passes for each share, the model with three quarters hidden is the best as well.
#
# Whether pixels are normalised makes no difference in so short a training; in the paper it is worth half a point.
#
# ## Exercises
#
# **1.** An image of 224×224 pixels in patches of 16×16, three quarters of them hidden. How many tokens does the encoder
# of a masked autoencoder compute with, the class token included? Put your number in place of `None`.

# %%
my_tokens = None

# %%
patches_there = (224 // 16) ** 2
tokens_there = 1 + patches_there - 3 * patches_there // 4
exercises.check_number("my_tokens", my_tokens, tokens_there, "A quarter of the patches, and the class token.")

# %% [markdown]
# **2.** Put tokens in their places. `print(exercises.describe("place_tokens"))` describes its arguments and results.


# %%
def my_place_tokens(x, token, index, count):
    # x: (B, n, D), token: (1, 1, D), index: (B, n). Returns (B, count, D)
    return np.zeros((len(x), count, x.shape[2]))


exercises.check("place_tokens", my_place_tokens)

# %% [markdown]
# **3.** And its gradients: for the tokens, and for the mask token.


# %%
def my_place_tokens_backward(dy, index):
    # dy: (B, N, D), index: (B, n). Returns dx, dtoken
    return np.zeros((*index.shape, dy.shape[2])), np.zeros((1, 1, dy.shape[2]))


exercises.check("place_tokens_backward", my_place_tokens_backward)

# %% [markdown]
# **4.** The loss on normalised pixels of the hidden patches.


# %%
def my_mae_loss(pixels, patches, hidden):
    # pixels, patches: (B, N, D). hidden: (B, N), 1 or 0
    return 0.0  # in place of this, the loss, a number


exercises.check("mae_loss", my_mae_loss)
