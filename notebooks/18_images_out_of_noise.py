# %% [markdown]
# # 18 · Images out of noise
#
# Add a little noise to an image, again and again, until only noise remains. A model that can undo one such step can
# make images out of pure noise. DiT (Peebles & Xie 2023) is a transformer that learns to do so, for a given class.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

from tinyvit import create_model, exercises, gradcheck
from tinyvit import functional as F
from tinyvit.data import load
from tinyvit.data.pictures import grid
from tinyvit.models import DiTConfig
from tinyvit.models.dit import DiT
from tinyvit.nn.dit_block import DiTBlock
from tinyvit.training import OptimConfig, TrainConfig, train
from tinyvit.training.sampling import predict_noise, sample, way_back
from tinyvit.training.tasks.diffusion import Diffusion
from tinyvit.training.trained import load_trained

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)
digits = load("digits")
images = digits.train.images / 8.0 - 1  # (n, 1, 8, 8), from −1 to 1


def show(images, columns, title):
    plt.figure(figsize=(9, 9 / columns * (len(images) // columns) + 0.4))
    plt.imshow(grid(images / 2 + 0.5, columns))
    plt.title(title, fontsize=9)
    plt.axis("off")
    plt.show()


# %% [markdown]
# ## Noise, step by step
#
# Step $t$ takes a share $\beta_t$ of the variance away and puts noise in its place,
# $x_t = \sqrt{1-\beta_t}\,x_{t-1} + \sqrt{\beta_t}\,\varepsilon_t$. Two steps in a row are one: the image is multiplied
# by both roots, and the variances of independent noises add up,
#
# $$\begin{aligned}
# x_2 &= \sqrt{1-\beta_2}\,\bigl(\sqrt{1-\beta_1}\,x + \sqrt{\beta_1}\,\varepsilon_1\bigr)
# + \sqrt{\beta_2}\,\varepsilon_2 \\
# (1-\beta_2)\,\beta_1 + \beta_2 &= 1 - (1-\beta_1)(1-\beta_2)
# \end{aligned}$$
#
# so all steps up to $t$ can be done at once, with the share of the image that remains:
#
# $$\bar\alpha_t = \prod_{s \le t} (1 - \beta_s) \tag{noise\_levels}$$
#
# $$x_t = \sqrt{\bar\alpha_t}\,x + \sqrt{1-\bar\alpha_t}\;\varepsilon \tag{add\_noise}$$
#
# with $\varepsilon \sim N(0, 1)$. If the image has the variance 1, so has $x_t$. The image is multiplied by a factor,
# and so is its gradient:
#
# $$dx = \sqrt{\bar\alpha_t}\;dx_t \tag{add\_noise\_backward}$$

# %%
for function in (F.noise_levels, F.add_noise, F.add_noise_backward):
    print(inspect.getsource(function))
levels = F.noise_levels("linear", 1000)
steps = np.array([0, 50, 100, 200, 300, 400, 500, 600, 800, 999])
noisy, _ = F.add_noise(np.repeat(images[:1], 10, 0), random.standard_normal((10, 1, 8, 8)), levels[steps])
show(noisy, 10, "t = " + ", ".join(map(str, steps)))
x = random.standard_normal((2, 3))
report = gradcheck.check(F.add_noise, F.add_noise_backward, (x, x.tolist(), [0.2, 0.9]))
assert report.max_error < 1e-14 and levels[-1] < 1e-4

# %% [markdown]
# Two schedules: in the linear one $\beta$ grows evenly, and little of the image remains after half of the steps; in the
# cosine schedule half of it does.

# %%
plt.figure(figsize=(5, 2.2))
for schedule in ("linear", "cosine"):
    plt.plot(F.noise_levels(schedule, 1000), label=schedule)
plt.xlabel("t")
plt.ylabel("share of the image")
plt.legend()
plt.show()
assert F.noise_levels("cosine", 1000)[500] > 5 * levels[500]

# %% [markdown]
# ## The loss
#
# The network $\varepsilon_\theta(x_t, t, y)$ gets the noisy image, the step and the class, and predicts the noise. Its
# loss is the simplest there is, the mean squared error of notebook 15, at a random $t$ for each image. It can't be
# right: many images and noises give the same $x_t$. The best prediction is the mean of the possible noises, and the
# error that remains can't be avoided.

# %%
print(inspect.getsource(Diffusion.batch))
print(inspect.getsource(Diffusion.loss))

# %% [markdown]
# ## How a transformer is told the time and the class
#
# The noisy image is cut into patches, with the fixed sines and cosines of notebook 01. The time becomes cosines and
# sines, then goes through two layers; the class is a row of a table; their sum is the condition $c$. Of the table, the
# gradient of a row is the sum over the samples $b$ that took it, a product with a matrix of zeros and ones, so that the
# order of the sum is always the same:
#
# $$\begin{aligned}
# y_b &= W_{k_b} \\
# \end{aligned} \tag{embed\_labels}$$
#
# $$dW_k = \sum_{b:\,k_b = k} dy_b \tag{embed\_labels\_backward}$$

# %%
for function in (F.timestep_embedding, F.embed_labels, F.embed_labels_backward):
    print(inspect.getsource(function))
plt.figure(figsize=(6, 2))
plt.imshow(F.timestep_embedding(np.arange(0, 1000, 5), 64).T, aspect="auto", cmap="RdBu", extent=(0, 1000, 64, 0))
plt.xlabel("t")
plt.ylabel("cosines, then sines")
plt.show()
table = random.standard_normal((4, 3))
report = gradcheck.check(F.embed_labels, F.embed_labels_backward, (table, np.array([1, 3, 1])))
assert report.max_error < 1e-14

# %% [markdown]
# ## adaLN-Zero
#
# The condition changes what the layer norms do. These have no weights of their own; from $c$ come an offset $o$ and a
# gain $g$ for each feature, the same for all tokens $n$ of a sample,
#
# $$y_n = x_n \odot (1 + g) + o \tag{modulate}$$
#
# and a gate $a$ that says how much of a branch $m$ is added:
#
# $$y_n = x_n + a \odot m_n \tag{add\_gated}$$
#
# Both are products and sums, number by number. The gradient of a vector that all tokens have used is a sum over them:
#
# $$\begin{aligned}
# dx_n &= dy_n \odot (1 + g) \\
# do &= \textstyle\sum_n dy_n \\
# dg &= \textstyle\sum_n dy_n \odot x_n
# \end{aligned} \tag{modulate\_backward}$$
#
# $$\begin{aligned}
# dx_n &= dy_n \\
# dm_n &= a \odot dy_n \\
# da &= \textstyle\sum_n dy_n \odot m_n
# \end{aligned} \tag{add\_gated\_backward}$$

# %%
for function in (F.modulate, F.modulate_backward, F.add_gated, F.add_gated_backward):
    print(inspect.getsource(function))
x, m = random.standard_normal((2, 2, 3, 4))
offset, gain = random.standard_normal((2, 2, 4))
for operation, inputs in ((F.modulate, (x, offset, gain)), (F.add_gated, (x, m, gain))):
    assert gradcheck.check(operation, operation.backward, inputs).max_error < 1e-14

# %% [markdown]
# By hand: two tokens $x = (1, 2)$ with one feature, gain $g = 1$, offset $o = 3$, give $y = (5, 7)$. With
# $dy = (1, 1)$: $dx = (2, 2)$, $do = 2$, $dg = 1 + 2 = 3$.

# %%
y, cache = F.modulate(np.array([[[1.0], [2.0]]]), np.array([[3.0]]), np.array([[1.0]]))
dx, doffset, dgain = F.modulate_backward(np.ones((1, 2, 1)), cache)
print("y", y.ravel(), " dx", dx.ravel(), " do", doffset.ravel(), " dg", dgain.ravel())
assert y.ravel().tolist() == [5, 7] and dx.ravel().tolist() == [2, 2] and (doffset, dgain) == (2, 3)

# %% [markdown]
# The block, with $N$ for the layer norm and $\mathrm{mod}$ for `modulate`. One layer on $c$ gives $s$, which is cut
# into six vectors $o_1, g_1, a_1, o_2, g_2, a_2$:
#
# $$\begin{aligned}
# s &= W\,\mathrm{silu}(c) + b \\
# u &= \mathrm{mod}(N(x), o_1, g_1) \\
# x' &= x + a_1 \odot \mathrm{attn}(u) \\
# u' &= \mathrm{mod}(N(x'), o_2, g_2) \\
# y &= x' + a_2 \odot \mathrm{mlp}(u')
# \end{aligned} \tag{DiTBlock.forward}$$
#
# Backward, from the bottom up, where the prime of a layer marks its backward. With $n = N(x)$, $n' = N(x')$ and
# $v, v'$ for what attention and MLP give. $\mathrm{mod}'(du)$ gives $dn$, $do_1$ and $dg_1$, and $ds$ is joined of all
# six gradients:
#
# $$\begin{aligned}
# da_2 &= \textstyle\sum dy \odot v' \\
# du' &= \mathrm{mlp}'(a_2 \odot dy) \\
# dn', \dots &= \mathrm{mod}'(du') \\
# dx' &= dy + N'(dn') \\
# da_1 &= \textstyle\sum dx' \odot v \\
# du &= \mathrm{attn}'(a_1 \odot dx') \\
# dn, \dots &= \mathrm{mod}'(du) \\
# dx &= dx' + N'(dn) \\
# dc &= \mathrm{silu}'(W^\top ds)
# \end{aligned} \tag{DiTBlock.backward}$$
#
# $W$ and $b$ begin at zero. So all gates are 0, and every block begins as the identity: that is the Zero in adaLN-Zero.
# In the code $c$ is in front of the tokens, so that a block takes and gives one array; attention never sees it.

# %%
print(inspect.getsource(DiTBlock.forward))
print(inspect.getsource(DiTBlock.backward))
tiny = DiTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=12, depth=2, num_heads=3)
model = DiT(tiny, dtype="float64")
tokens = random.standard_normal((2, 17, 12))
assert (model.blocks[0](tokens)[0] == tokens).all()
report = gradcheck.check_model(model, random.standard_normal((2, 1, 8, 8)))  # with weights that are not zero
print(report)
assert report.max_error < 1e-9

# %% [markdown]
# The paper's models by name, with patches of 2 pixels, on images of 32×32×4:

# %%
for name in ("DiT-S/2", "DiT-B/2", "DiT-L/2", "DiT-XL/2"):
    print(f"{name:<9}{create_model(name, device='meta').num_parameters():>14,} parameters")

# %% [markdown]
# ## A step back
#
# If the noise $\varepsilon$ in $x_t$ were known, the image would be, too:
# $\hat x = (x_t - \sqrt{1-\bar\alpha}\,\varepsilon) / \sqrt{\bar\alpha}$. At the first steps that is a poor guess, the
# mean of many images. So DDIM (Song et al. 2021) goes back a step only: it puts the *same* noise into $\hat x$ again, a
# little less of it, with $\bar\alpha'$ for the step before:
#
# $$x' = \sqrt{\bar\alpha'}\,\hat x + \sqrt{1-\bar\alpha'-\sigma^2}\;\varepsilon \tag{step\_back}$$
#
# With $\sigma = 0$ nothing is random but the first noise. DDPM (Ho et al. 2020) adds new noise $\sigma z$ at each step,
# with the variance that $x_{t-1}$ has if $x_t$ and the image are known, and adds back correspondingly less of the old
# one. For $\sigma = 0$ steps can be left out: 50 of 1,000 are enough.

# %%
print(inspect.getsource(F.step_back))
print(inspect.getsource(F.variance_back))
image, noise = random.standard_normal((2, 4))
noisy, _ = F.add_noise(image[None], noise[None], [0.3])
assert np.allclose(F.step_back(noisy[0], noise, 0.3, 1.0), image)

# %% [markdown]
# ## Guidance
#
# In training the class is left out of a tenth of the samples: they have the class "none", a row of the table like any
# other. So one network predicts $\varepsilon(y)$ and $\varepsilon(\varnothing)$. Their difference is the effect of the
# class. Multiply it by $w$ (Ho & Salimans 2022):
#
# $$\tilde\varepsilon = \varepsilon(\varnothing) + w\,\bigl(\varepsilon(y) - \varepsilon(\varnothing)\bigr)
# \tag{guided\_noise}$$
#
# $w = 1$ is the network's own prediction; with larger $w$ images become clearer, and more alike.

# %%
print(inspect.getsource(F.guided_noise))
print(inspect.getsource(predict_noise))
print(inspect.getsource(way_back))

# %% [markdown]
# ## On the digits
#
# A small DiT, patches of 2×2 pixels, for a few seconds. Its images come from 20 steps, and the same noise with each
# guidance: 0, then 1, then 3, for the classes 0 to 9.

# %%
config = TrainConfig(
    "digits", DiTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=64, depth=3, num_heads=4, mlp_ratio=2.0),
    architecture="dit", task="diffusion", mean=(0.5,), std=(0.5,), epochs=25, evaluate_every=25, batch_size=128,
    device="cpu", threads=2, optim=OptimConfig(name="muon", lr=0.02, adam_lr=4e-3, weight_decay=0.0, ema=0.995),
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        summary = train(config, Path(folder) / "run")
    trained = load_trained(Path(folder) / "run", "cpu")
print(f"mean squared error of the noise: {summary['test_loss']:.3f}; of a network that says 0, 1")
assert summary["test_loss"] < 0.25


def drawn(labels, guidance, **options):
    levels = trained.task.levels
    return sample(trained.learner, levels, labels, steps=20, guidance=guidance, limits=(-1, 1), **options)


classes = np.arange(10)
for guidance in (0, 1, 3):
    show(drawn(classes, guidance).images, 10, f"guidance {guidance}")

# %% [markdown]
# From noise to digits, in steps. The same seed gives the same bits, alone or among others, on any number of threads.

# %%
made = drawn(classes, 3, keep=10)
show(np.concatenate(made.steps[:, [0, 3, 7]].swapaxes(0, 1)), 10, "from noise to an image")
alone = drawn(classes[:1], 3, threads=1).images
assert (alone == made.images[:1]).all() and (drawn(classes, 3, seed=1).images != made.images).any()

# %% [markdown]
# ## Are they good? Are they copies?
#
# A classifier (an SVC) that was trained on the real training digits says of each new digit which class it sees. A model
# that had learned the training digits by heart would do very well; so the distance of each new digit to the nearest
# training digit is measured, too, and compared with that of real digits that were not trained on. The figures are from
# `results/diffusion.py`, which trains the preset `dit-digits`, and a smaller model with patches of 4, 2 and 1 pixels.

# %%
stored = json.loads(Path("results/diffusion.json").read_text())
about, rows = stored["about"], stored["rows"]
runs = {row["model"]: row for row in rows if "epochs" in row}
judged = [row for row in rows if "agreement" in row]
print(f"real test digits: right {100 * about['classifier on test digits']:.1f} %, distance "
      f"{about['distance of test digits']:.2f}\n")  # fmt: skip
print(f"{'model':<11}{'sampler':>9}{'guidance':>10}{'as asked':>10}{'distance':>10}{'least':>7}")
for row in judged:
    print(f"{row['model']:<11}{row['method']:>5}{row['steps']:>4}{row['guidance']:>10.0f}"
          f"{100 * row['agreement']:>8.1f} %{row['distance']:>10.2f}{row['least']:>7.2f}")  # fmt: skip
best = {row["guidance"]: row for row in judged
        if row["model"] == "dit-digits" and (row["method"], row["steps"]) == ("ddim", 50)}  # fmt: skip
assert best[2]["agreement"] >= 0.97 and best[1]["agreement"] >= 0.85
assert min(best[1]["distance"], best[2]["distance"]) >= about["distance of test digits"]
display(Image("results/dit-digits.png"))

# %% [markdown]
# With the guidance 2 nearly all digits are what was asked for, and none is a copy. Without a class (guidance 0) one
# digit in ten is the one that was asked for, by chance.
#
# ### Patch size against time
#
# A digit of 8×8 pixels is 4, 16 or 64 tokens, for patches of 4, 2 or 1 pixels. The parameters are nearly the same;
# what grows is the arithmetic, and how finely the model can see. All three have gone through the digits 30 times.

# %%
print(f"{'patch':<8}{'tokens':>7}{'parameters':>12}{'training, s':>13}{'loss':>8}{'as asked, w = 1':>17}{'w = 2':>8}")
for patch in (4, 2, 1):
    run = runs[f"patch {patch}"]
    found = {row["guidance"]: 100 * row["agreement"] for row in judged if row["model"] == f"patch {patch}"}
    print(f"{patch:<8}{(8 // patch) ** 2:>7}{run['parameters']:>12,}{run['processor_seconds']:>13.0f}"
          f"{run['test_loss']:>8.3f}{found[1]:>15.1f} %{found[2]:>6.1f} %")  # fmt: skip
by_patch = [runs[f"patch {patch}"] for patch in (4, 2, 1)]
assert by_patch[0]["test_loss"] > by_patch[1]["test_loss"] > by_patch[2]["test_loss"]
assert by_patch[2]["test_loss"] < 0.9 * by_patch[0]["test_loss"]
assert by_patch[0]["processor_seconds"] < by_patch[1]["processor_seconds"] < by_patch[2]["processor_seconds"]

# %% [markdown]
# As in the paper: more tokens find the noise better and take longer, with as many parameters. Patches of 1 pixel are
# best by far. That a better loss need not show in the digits at once can be seen, too: after so short a training, of
# one seed, digits of 16 patches fall apart more often than those of 4, which have fewer pieces to agree about. Trained
# for longer, as the preset is, patches of 2 pixels make digits that are nearly all right.
#
# ## Exercises
#
# **1.** Eight steps of guidance 2, for 16 images. How many images go through the network in all? Put your number in
# place of `None`.

# %%
my_images = None

# %%
steps, samples, predictions = 8, 16, len(("with the class", "without it"))
hint = "Each step needs the noise with the class and without it."
exercises.check_number("my_images", my_images, steps * samples * predictions, hint)

# %% [markdown]
# **2.** Noise in images. `print(exercises.describe("add_noise"))` describes its arguments and results.


# %%
def my_add_noise(x, noise, level):
    # x, noise: (B, C, H, W), level: (B,). Returns y
    return np.zeros_like(x)


exercises.check("add_noise", my_add_noise)

# %% [markdown]
# **3.** The gradient of a table of classes.


# %%
def my_embed_labels_backward(dy, labels, count):
    # dy: (B, D), labels: (B,). Returns dweight (count, D)
    return np.zeros((count, dy.shape[1]))


exercises.check("embed_labels_backward", my_embed_labels_backward)

# %% [markdown]
# **4.** The gradients of the modulation.


# %%
def my_modulate_backward(dy, x, gain):
    # dy, x: (B, N, D), gain: (B, D). Returns dx, doffset, dgain
    return np.zeros_like(x), np.zeros_like(gain), np.zeros_like(gain)


exercises.check("modulate_backward", my_modulate_backward)

# %% [markdown]
# **5.** The gradients of a gated branch.


# %%
def my_add_gated_backward(dy, branch, gate):
    # dy, branch: (B, N, D), gate: (B, D). Returns dx, dbranch, dgate
    return np.zeros_like(dy), np.zeros_like(dy), np.zeros_like(gate)


exercises.check("add_gated_backward", my_add_gated_backward)

# %% [markdown]
# **6.** A step back of DDIM.


# %%
def my_ddim_step(x, noise, level, previous):
    # x, noise: (B, C, H, W), level and previous: numbers. Returns y
    return np.zeros_like(x)


exercises.check("ddim_step", my_ddim_step)
