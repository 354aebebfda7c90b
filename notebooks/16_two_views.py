# %% [markdown]
# # 16 · Two views of one image
#
# Cut two pieces out of a photograph: both show the same thing. DINO (Caron et al. 2021) trains a ViT to give the same
# output for both, and a different one for other photographs. There are no labels, and nothing to reconstruct. The
# network itself chooses the outputs, so it could give the same one for every image: the loss would be perfect and the
# network useless. What prevents this collapse is the subject of this notebook.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.data import load, views
from tinyvit.models import ViTConfig
from tinyvit.models.dino import Dino, DinoHead, DinoNetwork, NormalisedLinear
from tinyvit.training import OptimConfig, TrainConfig, train
from tinyvit.training.config import InitConfig
from tinyvit.training.feature_classifiers import nearest_neighbours
from tinyvit.training.features import features
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.dino import DinoOptions, SelfDistillation
from tinyvit.training.tasks.mae import MaskedAutoencoderOptions
from tinyvit.training.trained import load_trained

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## Views
#
# Two large crops cover 40 to 100 % of a photograph, several small ones 10 to 40 %, and these are smaller images, too:
# cheap to compute with. Half of them are mirrored, and brightness, contrast and saturation change. A batch is cut at
# once: resizing is a weighted mean along each axis, and so two products of matrices.

# %%
print(inspect.getsource(views.resized_crops))
photo = load_sample_image("china.jpg")[::2, ::2].transpose(2, 0, 1)[None].astype("float64")
kinds = {"large": (2, 96, 0.4, 1.0), "small": (4, 48, 0.1, 0.4)}
figure, axes = plt.subplots(1, 7, figsize=(9, 1.5), gridspec_kw={"width_ratios": [1.5, 1, 1, 0.5, 0.5, 0.5, 0.5]})
axes[0].imshow(photo[0].transpose(1, 2, 0) / 255)
axes[0].set_title("photograph", fontsize=8)
shown = iter(axes[1:])
for kind, (count, side, smallest, largest) in kinds.items():
    uniform = random.random((count, 11))
    boxes = views.random_boxes(uniform[None, :, :4], smallest, largest)
    crops = views.resized_crops(photo, boxes, uniform[None, :, 4] < 0.5, side)[0]
    crops = views.recolour(crops, uniform[:, 5:], 0.4, np.zeros(count, bool))
    for crop in crops:
        ax = next(shown)
        ax.imshow(crop.clip(0, 255).transpose(1, 2, 0) / 255)
        ax.set_title(kind, fontsize=8)
for ax in axes:
    ax.set_axis_off()
plt.show()

# %% [markdown]
# ## Vectors of length 1
#
# A view becomes a vector, and of a vector only its direction counts:
#
# $$y = \frac{x}{\lVert x \rVert}, \qquad \lVert x \rVert = \sqrt{\textstyle\sum_d x_d^2} \tag{l2\_normalise}$$
#
# The length depends on every entry: $\partial \lVert x \rVert / \partial x_j = x_j / \lVert x \rVert = y_j$. With the
# rule for a quotient,
#
# $$\frac{\partial y_i}{\partial x_j} = \frac{\delta_{ij}}{\lVert x \rVert} - \frac{x_i}{\lVert x \rVert^2}\,y_j
# = \frac{\delta_{ij} - y_i\,y_j}{\lVert x \rVert}$$
#
# and summed with $dy_i$
#
# $$\hspace{-3em} dx = \frac{dy - y\,(dy \cdot y)}{\lVert x \rVert} \tag{l2\_normalise\_backward}$$
#
# The component of the gradient that would make the vector longer is removed: $dx$ is orthogonal to $x$.

# %%
print(inspect.getsource(F.l2_normalise))
print(inspect.getsource(F.l2_normalise_backward))
x = random.standard_normal((2, 3, 4))
report = gradcheck.check(F.l2_normalise, F.l2_normalise_backward, (x,))
assert report.max_error < 1e-14

# %% [markdown]
# By hand: $x = (3, 4)$ has the length 5, $y = (0.6, 0.8)$. Of $dy = (1, 0)$ the part along $y$ is 0.6, and so
# $dx = ((1, 0) - 0.6\,(0.6, 0.8)) / 5 = (0.128, -0.096)$.

# %%
y, cache = F.l2_normalise(np.array([3.0, 4.0]))
dx = F.l2_normalise_backward(np.array([1.0, 0.0]), cache)
print("y", y, " dx", dx, " dx · x =", (dx * [3.0, 4.0]).sum().round(15))
assert np.allclose(y, [0.6, 0.8]) and np.allclose(dx, [0.128, -0.096])

# %% [markdown]
# ## The head
#
# The features $x$ of a view go through three layers, are normalised to length 1, and are compared with $K$ prototypes,
# the rows of a matrix, which have the length 1 as well. So a logit is a cosine, and no prototype can win by being long.
# Written for the weights $V$ as they are stored:
#
# $$\hspace{-3em} \begin{aligned}
# w_k &= v_k / \lVert v_k \rVert \\
# z_k &= w_k \cdot x
# \end{aligned} \tag{NormalisedLinear.forward}$$
#
# and with $n'$ for the backward of the normalisation
#
# $$\hspace{-3em} \begin{aligned}
# dx &= W^\top dz \\
# dW &= \textstyle\sum dz\,x^\top \\
# dv_k &= n'(dw_k)
# \end{aligned} \tag{NormalisedLinear.backward}$$
#
# The whole head, with $g$ for GELU:
#
# $$\begin{aligned}
# h &= W_3\,g(W_2\,g(W_1 x)) \\
# z &= W\,\frac{h}{\lVert h \rVert}
# \end{aligned}$$
#
# and from the bottom up, where $h_1, h_2$ go into the GELUs:
#
# $$\begin{aligned}
# dh &= n'(W^\top dz) \\
# dh_2 &= g'(h_2) \odot W_3^\top dh \\
# dh_1 &= g'(h_1) \odot W_2^\top dh_2 \\
# dx &= W_1^\top dh_1
# \end{aligned}$$
#
# The head is a `Chain`, whose `forward` and `backward` run its parts in order and in reverse (notebook 14).

# %%
for what in (NormalisedLinear.forward, NormalisedLinear.backward, DinoHead.__init__):
    print(inspect.getsource(what))

# %% [markdown]
# Views of one size go through the ViT together, those of all sizes together through the head. With $v$ and $v'$ for the
# large and the small views,
#
# $$\begin{aligned}
# f &= \mathrm{vit}(v) \\
# f' &= \mathrm{vit}(v') \\
# z &= \mathrm{head}([\,f,\ f'\,])
# \end{aligned} \tag{DinoNetwork.forward}$$
#
# and the gradient of the features is cut where they were joined. The ViT was used twice, so its weights get the sum of
# two gradients:
#
# $$\begin{aligned}
# [\,df,\ df'\,] &= \mathrm{head}'(dz) \\
# d\theta &= \mathrm{vit}'(df) \\
# &\quad + \mathrm{vit}'(df')
# \end{aligned} \tag{DinoNetwork.backward}$$

# %%
print(inspect.getsource(DinoNetwork.forward))
print(inspect.getsource(DinoNetwork.backward))

# %% [markdown]
# ## The loss
#
# A student sees all $V$ views of an image, a teacher the $T = 2$ large ones. Softmax makes a distribution over the
# prototypes of each: $q_v$ with the student's temperature $\tau$, $p_t$ with the teacher's. From a view the student has
# to predict the teacher's distribution for *another* one, by a cross-entropy; $n$ is the number of pairs, over all
# images.
#
# $$\begin{aligned}
# q_v &= \mathrm{softmax}(z_v / \tau) \\
# \mathcal L &= -\frac1n \sum_{t} \sum_{v \ne t} p_t \cdot \log q_v
# \end{aligned} \tag{dino\_loss}$$
#
# The teacher's distribution is a constant. For each pair this is the cross-entropy of notebook 06, whose gradient is
# the prediction minus the target; $z$ is divided by $\tau$, and so is its gradient:
#
# $$dz_v = \frac{d\mathcal L}{n\,\tau} \sum_{t \ne v} (q_v - p_t) \tag{dino\_loss\_backward}$$

# %%
print(inspect.getsource(F.dino_loss))
print(inspect.getsource(F.dino_loss_backward))
logits, (teacher, _) = random.standard_normal((2, 4, 3)), F.softmax(random.standard_normal((2, 2, 3)))
report = gradcheck.check(F.dino_loss, F.dino_loss_backward, (logits, teacher.tolist(), 0.5))
assert report.max_error < 1e-14

# %% [markdown]
# By hand: two views, two prototypes, $\tau = 1$. The student's distribution is $(½, ½)$ for both; the teacher's is all
# on the first prototype for view 0 and on the second for view 1. There are two pairs, so $\mathcal L = \ln 2$; view 0
# is compared with the teacher's view 1, and $dz_0 = \tfrac12\,(½ - 0,\ ½ - 1) = (¼, -¼)$.

# %%
loss, cache = F.dino_loss(np.zeros((1, 2, 2)), np.eye(2)[None], 1.0)
dz = F.dino_loss_backward(1.0, cache)
print(f"loss {loss:.4f}, dz of view 0: {dz[0, 0]}, of view 1: {dz[0, 1]}")
assert np.isclose(loss, np.log(2)) and np.allclose(dz[0], [[0.25, -0.25], [-0.25, 0.25]])

# %% [markdown]
# ## The teacher
#
# The teacher is the student itself, averaged over its last steps: after each step the teacher's weights become
# $\theta_t \leftarrow m\,\theta_t + (1 - m)\,\theta_s$. An average is a little better than what it averages, and it
# moves slowly, so that the student has something to follow.
#
# Two things are done to its output, $p_t = \mathrm{softmax}((z_t - c) / \tau_t)$:
#
# - **Centring.** $c$ is the mean of its logits over images, a moving average $c \leftarrow 0.9\,c + 0.1\,\bar z$. It is
#   taken off, so that no prototype can be ahead for all images alike.
# - **Sharpening.** $\tau_t$ is lower than the student's $\tau$, so that the teacher is surer than the student. The
#   student has to become surer to follow.
#
# Each alone fails: with centring alone all outputs become uniform, with sharpening alone one prototype wins. With both,
# the only way to lower the loss is to tell images apart.

# %%
for method in (Dino.targets, Dino.commit, Dino.move_teacher, SelfDistillation.loss):
    print(inspect.getsource(method))

# %% [markdown]
# ## Each safeguard switched off
#
# On the digits, with a tiny ViT. It starts from the weights of a masked autoencoder (notebook 15) of a few seconds:
# from random weights DINO needs far longer than a notebook has. Two figures show a collapse, both of them entropies as
# shares of $\log K$: that of the teacher's distribution for an image, and that of its mean over all images. Their
# difference is what the distribution says about the image; it is 0 if it is the same for all images. The third is the
# share of test images that are classified correctly by the 20 nearest of the training images' features.

# %%
print(inspect.getsource(SelfDistillation.warning))
vit = ViTConfig(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=32, depth=2, num_heads=2,
                positions="sincos_2d", global_pool="avg", dynamic_img_size=True)  # fmt: skip
folder = tempfile.TemporaryDirectory()


def trained(config, name):
    """The rows that a training wrote down, one for each epoch."""
    run = Path(folder.name) / name
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        train(config, run)
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


hidden = TrainConfig(
    "digits", vit, task="mae", epochs=20, evaluate_every=20, batch_size=64, device="cpu",
    objective=MaskedAutoencoderOptions(0.5, decoder_dim=16, decoder_depth=1, decoder_heads=2),
    optim=OptimConfig(name="muon", lr=0.01, adam_lr=3e-3),
)  # fmt: skip
trained(hidden, "mae")
digits, encoder = load("digits"), load_trained(Path(folder.name) / "mae", "cpu").model
parts = [(features(encoder, part), part.labels) for part in (digits.train, digits.test)]
start = nearest_neighbours(*parts, k=20).accuracy
print(f"before DINO: k-NN {100 * start:.1f} %")

# %%
options = DinoOptions(small_crops=2, scales=(0.5, 0.7, 1.0), colour=0.0, prototypes=64, hidden=64, bottleneck=32,
                      teacher_temperatures=(0.02, 0.02))  # fmt: skip
dino = TrainConfig(
    "digits", vit, task="dino", objective=options, epochs=3, batch_size=64, device="cpu",
    init=InitConfig(run=str(Path(folder.name) / "mae")),
    optim=OptimConfig(lr=2e-3, weight_decay=0.04, clip_norm=None, clip_each=3.0),
)  # fmt: skip
cases = {
    "all safeguards": {},
    "no centring": {"centring": False},
    "no sharpening": {"teacher_temperatures": (options.temperature,) * 2},
    "neither": {"centring": False, "teacher_temperatures": (options.temperature,) * 2},
    "the student is its own teacher": {"momentum": 0.0},
    "the teacher stays as it is": {"momentum": 1.0},
    "no small crops": {"small_crops": 0},
    "last layer free from the start": {"frozen_last": 0.0},
    "gradients not clipped": {},
}
rows = {}
for name, changes in cases.items():
    config = replace(dino, objective=replace(options, **changes))
    if name == "gradients not clipped":
        config = replace(config, optim=replace(dino.optim, clip_each=None))
    rows[name] = trained(config, name)
task = task_class("dino")(dino)
print(f"{'':<32}{'k-NN':>7}{'image':>8}{'mean':>8}{'said':>7}   the training's warning")
for name, found in rows.items():
    knn, own, used = (100 * found[-1][score] for score in task.scores)
    warning = (task.warning(found[-1]) or "").partition(":")[0]
    print(f"{name:<32}{knn:7.1f}{own:8.1f}{used:8.1f}{used - own:7.1f}   {warning}")
ends = {name: {score: found[-1][score] for score in task.scores} for name, found in rows.items()}
assert "one prototype" in task.warning(ends["no centring"]) and "uniform" in task.warning(ends["no sharpening"])
assert task.warning(ends["all safeguards"]) is None

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for ax, name in zip(axes, ("all safeguards", "no centring", "no sharpening")):
    epochs = [row["epoch"] for row in rows[name]]
    ax.plot(epochs, [100 * row["test_usage"] for row in rows[name]], "o-", label="of the mean over images")
    ax.plot(epochs, [100 * row["test_entropy"] for row in rows[name]], "o-", label="of an image")
    ax.set(title=name, xlabel="epoch", xticks=epochs, ylim=(-5, 105))
axes[0].set_ylabel("entropy, % of log K")
axes[0].legend(fontsize=7)
plt.show()

# %% [markdown]
# Without centring one prototype wins: the mean over images has no entropy left. Without sharpening everything is
# uniform. Without both, the distribution is the same for every image, somewhere in between. In all three cases there is
# nothing to learn from any more.
#
# If the student is its own teacher ($m = 0$), its target changes at every step: the distribution is nearly the same for
# every image, and the features suffer. A teacher that never changes ($m = 1$) prevents the collapse, but the student
# has nothing new to learn from it.
#
# Elsewhere k-NN differs by no more than chance: 1 % of the 360 test images are four of them. Three epochs are enough
# for a collapse, and too few to show what small crops and clipped gradients bring. That the last layer is frozen at
# first is for large heads, whose prototypes would be pulled together in the first steps.
#
# ## On CIFAR-10
#
# From random weights DINO is slow: after 40,000 photographs and 13 minutes on two cores, the nearest neighbours of its
# features are right for 32 to 35 %, which is less than for raw pixels. So the preset `cifar10-dino` starts from the
# masked autoencoder of notebook 15 (`tinyvit train cifar10-dino --init.run RUN`) and goes through the 50,000
# photographs twice. The table has the accuracy of the 20 nearest of 10,000 training images; none of the trainings has
# used a label:
#
# | features | right |
# | --- | --- |
# | pixels | 39.5 % |
# | a ViT with random weights | 30.3 % |
# | the masked autoencoder's | 49.6 % |
# | DINO's | 54.3 % |
#
# ### What the heads look at
#
# The paper's most famous picture shows heads that pick out the object, though nobody has told them what an object is.
# How far is that so here? A digit in one colour is laid over a photograph, so that the true mask is known. The patches
# that hold 60 % of a head's attention are its segment; its overlap with the mask is the intersection over the union.
# The best head of each model is chosen on 200 photographs and judged on 200 others (`results/segments.py`). A perfect
# choice of patches would have 0.63.

# %%
display(Image("results/segments.png"))
found = json.loads(Path("results/segments.json").read_text())["rows"]
overlaps = {(row["model"], row["blocks"]): row["overlap"] for row in found}
for name in dict.fromkeys(row["model"] for row in found):
    print(f"{name:<12} best head of all blocks {overlaps[name, 'all']:.3f}, of the last {overlaps[name, 'last']:.3f}")
assert overlaps["DINO", "all"] > max(overlaps["random", "all"], overlaps["supervised", "all"])
assert overlaps["DINO", "last"] < overlaps["random", "last"]

# %% [markdown]
# Among the heads of all blocks, DINO has one that finds the digit better than any of the random or of the supervised
# model does. It isn't much better than the masked autoencoder's from which it started, and in the last block, where
# the paper has its pictures, DINO's heads are behind even random ones: here it is the mean over all patches that makes
# the features, so that no class token has to choose where to look. Half an hour on images of 32×32 pixels is not
# three hundred epochs of ImageNet.
#
# ## Exercises
#
# **1.** Two large and six small views of each image, 64 images. How many pairs of a teacher's view and another one does
# the loss average over? Put your number in place of `None`.

# %%
my_pairs = None

# %%
pairs = [(photo, t, v) for photo in range(64) for t in range(2) for v in range(2 + 6) if v != t]
exercises.check_number("my_pairs", my_pairs, len(pairs), "How many other views does each of the teacher's two meet?")

# %% [markdown]
# **2.** The gradient of a vector of length 1. `print(exercises.describe("l2_normalise_backward"))` describes its
# arguments and results.


# %%
def my_l2_normalise_backward(dy, x):
    # dy, x: (B, N, D). Returns dx
    return np.zeros_like(x)


exercises.check("l2_normalise_backward", my_l2_normalise_backward)

# %% [markdown]
# **3.** The gradient of the loss between views.


# %%
def my_dino_loss_backward(logits, teacher, temperature):
    # logits: (B, V, K), teacher: (B, 2, K). Returns dlogits
    return np.zeros_like(logits)


exercises.check("dino_loss_backward", my_dino_loss_backward)
folder.cleanup()

# %% [markdown]
# **4.** The teacher's targets and its new centre, and then the loss between views.


# %%
def my_centre_teacher(logits, centre, temperature, momentum):
    # logits: (B, 2, K). centre: (K,). Returns probs, centre
    return np.zeros_like(logits), np.zeros_like(centre)


exercises.check("centre_teacher", my_centre_teacher)


# %%
def my_dino_loss(logits, teacher, temperature):
    # logits: (B, V, K). teacher: (B, 2, K)
    return 0.0  # in place of this, the loss, a number


exercises.check("dino_loss", my_dino_loss)
