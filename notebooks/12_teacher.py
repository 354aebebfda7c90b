# %% [markdown]
# # 12 · Learning from a teacher
#
# A ViT needs many images because nothing about images is built into it. DeiT (Touvron et al. 2021) passes on to it what
# a convolutional network has learned: besides the labels, it learns from a trained teacher, with an extra token and an
# extra head.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
from pathlib import Path
from statistics import mean, stdev

import matplotlib.pyplot as plt
import numpy as np

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.models import DeiTConfig, build
from tinyvit.models.deit import DeiTEmbed, TwoHeads
from tinyvit.training.tasks.distillation import Distillation

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## What a teacher says that a label doesn't
#
# The label of a picture says "cat". A teacher says 0.7 cat, 0.25 dog, 0.01 ship: how much of everything else is in the
# picture, too. And where a shifted, cut picture shows only the wall behind the cat, the label is wrong, and the
# teacher, who sees what the student sees, is not. There are two ways to use its answers:
#
# **Hard.** The teacher's class takes the place of the label. With $z$ for the student's logits, $t$ for the teacher's,
# and $\mathcal L_y$ for the cross-entropy with class $y$ (notebook 06), the loss is $\mathcal L_{\arg\max t}(z)$.
#
# **Soft.** The student's probabilities are to be the teacher's. Divide both logits by a temperature $\tau$: the higher
# it is, the more the small probabilities count (Hinton et al. 2015). With $K$ classes, the loss of a sample is
#
# $$\begin{aligned}
# p &= \mathrm{softmax}(t / \tau) \\
# q &= \mathrm{softmax}(z / \tau) \\
# \mathcal L &= \frac{\tau^2}{K} \sum_k p_k \log\frac{p_k}{q_k}
# \end{aligned} \tag{distillation}$$

# %%
print(inspect.getsource(F.distillation))

# %%
logits = np.array([4.0, 2.5, 0.5, -1.0, -2.0])
figure, axes = plt.subplots(1, 3, figsize=(8, 2), sharey=True)
for ax, temperature in zip(axes, (1, 3, 10)):
    probabilities, _ = F.softmax(logits / temperature)
    ax.bar(["cat", "dog", "bird", "car", "ship"], probabilities)
    ax.set_title(f"the same logits at temperature {temperature}", fontsize=8)
    ax.tick_params(labelsize=7)
plt.show()

# %% [markdown]
# ### Its gradient
#
# The teacher's $p$ is a constant. Of $\log p_k - \log q_k$ only the second part moves, and
# $\log q_k = z_k/\tau - \log\sum_m e^{z_m/\tau}$:
#
# $$\begin{aligned}
# \frac{\partial \log q_k}{\partial z_j} &= \frac1\tau\big(\delta_{kj} - q_j\big) \\
# \frac{\partial\mathcal L}{\partial z_j} &= -\frac{\tau^2}{K}\sum_k p_k\,\frac1\tau\big(\delta_{kj} - q_j\big) \\
# &= -\frac{\tau}{K}\Big(p_j - q_j\sum_k p_k\Big)
# \end{aligned}$$
#
# and as the $p_k$ add up to 1,
#
# $$dz_j = d\mathcal L\;\frac{\tau}{K}\,(q_j - p_j) . \tag{distillation\_backward}$$
#
# The student's probabilities minus the teacher's, as for any cross-entropy. For high $\tau$ both are nearly even,
# $q - p \approx (z - t) / (\tau K)$ for logits with mean 0, so that $\tau$ cancels: that is what $\tau^2$ is for.

# %%
print(inspect.getsource(F.distillation_backward))

# %% [markdown]
# By hand, two classes, $\tau = 1$: the student is at $z = (0, 0)$, so $q = (\frac12, \frac12)$; the teacher at
# $t = (\ln 3, 0)$, so $p = (\frac34, \frac14)$. Then
# $\mathcal L = \frac12(\frac34\ln\frac32 + \frac14\ln\frac12) = 0.0654$ and $dz = \frac12(-\frac14, \frac14)$.

# %%
z, t = np.zeros((1, 2)), np.array([[np.log(3), 0]])
loss, cache = F.distillation(z, t)
print(f"loss {loss:.4f}, dz {F.distillation_backward(1.0, cache)}")
assert np.isclose(loss, 0.0654, atol=1e-4) and np.allclose(F.distillation_backward(1.0, cache), [[-1 / 8, 1 / 8]])
student, teacher = random.standard_normal((2, 3, 5))
for temperature in (0.5, 1.0, 4.0):
    report = gradcheck.check(F.distillation, F.distillation_backward, (student, teacher.tolist(), temperature))
    assert report.max_error < 1e-13
print("by the complex step: largest error below 1e-13")
sizes = []
for temperature in (1, 10, 100, 1000):
    _, cache = F.distillation(student, teacher, temperature)
    sizes.append(np.linalg.norm(F.distillation_backward(1.0, cache)))
print("size of the gradient at temperatures 1, 10, 100, 1000:", np.array(sizes))
assert np.isclose(sizes[-1], sizes[-2], rtol=0.02)

# %% [markdown]
# ## A token for the teacher
#
# Class and teacher may disagree. So DeiT gives the teacher a token of its own, beside the class token, and a head that
# reads it; both heads' logits are averaged when it is used. A token can be put anywhere: behind the first $a$ tokens of
# each sample there come $n$ more, the same for all samples,
#
# $$y_b = \big[x_{b,1\ldots a},\ u_1 \ldots u_n,\ x_{b,a+1\ldots N}\big] \tag{insert\_tokens}$$
#
# and each of them gets the sum of its gradients over the samples:
#
# $$\begin{aligned}
# dx_b &= \big[dy_{b,1\ldots a}, \\
# &\ \ dy_{b,a+n+1\ldots}\big] \\
# du_m &= \sum_b dy_{b,a+m}
# \end{aligned} \tag{insert\_tokens\_backward}$$
#
# With `num_registers`, a DeiT has such tokens that are thrown away at the end: without them, a ViT uses patches of
# empty sky as scratch paper (Darcet et al. 2024).

# %%
print(inspect.getsource(F.insert_tokens))
print(inspect.getsource(F.insert_tokens_backward))
report = gradcheck.check(F.insert_tokens, F.insert_tokens_backward,
                         (random.standard_normal((2, 4, 3)), random.standard_normal((1, 2, 3)), 2))  # fmt: skip
assert report.max_error < 1e-14

# %% [markdown]
# The embedding puts the tokens in this order, where $p_0$ and $p_1$ are the positions of the two tokens, $u$ the
# registers.
#
# $$\begin{aligned}
# e_b &= \big[c + p_0,\ d + p_1, \\
# &\quad\ u_1 \ldots u_R, \\
# &\quad\ W\,\mathrm{patch}_1 + p_2,\ \ldots\big]
# \end{aligned} \tag{DeiTEmbed.forward}$$
#
# Its backward is the forward from the bottom up:
#
# $$\begin{aligned}
# dc &= dp_0 = \sum_b de_{b,1} \\
# dd &= dp_1 = \sum_b de_{b,2}
# \end{aligned} \tag{DeiTEmbed.backward}$$
#
# and the heads read the first two tokens, $x_1$ and $x_2$, of the last layer:
#
# $$\begin{aligned}
# z_c &= W_c x_1 + b_c \\
# z_d &= W_d x_2 + b_d \\
# z &= \tfrac12(z_c + z_d)
# \end{aligned} \tag{TwoHeads.forward}$$
#
# In training each head has a loss of its own, so that its gradient is not halved: $dz_c$ for one, $dz_d$ for the other.
#
# $$\begin{aligned}
# dx_1 &= W_c^\top dz_c \\
# dx_2 &= W_d^\top dz_d
# \end{aligned} \tag{TwoHeads.backward}$$

# %%
for method in (DeiTEmbed.forward, DeiTEmbed.backward, TwoHeads.forward, TwoHeads.backward):
    print(inspect.getsource(method))

# %%
small = DeiTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2,
                   num_registers=2)  # fmt: skip
model = build(small, dtype="float64")
report = gradcheck.check_model(model, random.standard_normal((2, 1, 8, 8)))
print(model.num_prefix_tokens, "tokens before the patches;", report)
assert report.max_error < 1e-12

# %% [markdown]
# The loss of both together, with the share $\lambda$ for the teacher, is a task (`training/tasks/distillation.py`):
# $\mathcal L = (1 - \lambda)\,\mathcal L_y(z_c) + \lambda\,\mathcal L_{\text{teacher}}(z_d)$.

# %%
print(inspect.getsource(Distillation.loss))

# %% [markdown]
# ## What it is worth
#
# `results/distillation.py` has trained a ResNet on 5,000 images of CIFAR-10 and then, on the same images, a DeiT
# 128 wide and 6 deep: without a teacher (both heads learn from the labels), and with it. Three seeds; the test accuracy
# after the last step.

# %%
runs = json.loads(Path("results/distillation.json").read_text())["runs"]
names = sorted({run["name"] for run in runs}, key=lambda name: ("teacher" not in name, name[0] in "hs", name))
accuracy = {name: [100 * run["accuracy"] for run in runs if run["name"] == name] for name in names}
for name, found in accuracy.items():
    spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
    print(f"{name:<18} {mean(found):.1f}{spread} % ({len(found)})")
by_seed = {name: {run["seed"]: 100 * run["accuracy"] for run in runs if run["name"] == name} for name in names}
alone = by_seed["no teacher"]
gained = {name: [of[seed] - alone[seed] for seed in of if seed in alone] for name, of in by_seed.items()}
figure, ax = plt.subplots(figsize=(6, 2.6))
students = [name for name in names if name not in ("teacher", "no teacher")]
for row, name in enumerate(students):
    ax.plot(gained[name], [row] * len(gained[name]), "o", color="0.6", markersize=4)
    ax.plot(mean(gained[name]), row, "|", color="C0", markersize=16, markeredgewidth=3)
ax.axvline(0, color="k", linewidth=0.5)
ax.set(yticks=range(len(students)), yticklabels=students, xlabel="points ahead of the student without a teacher",
       ylim=(-0.6, len(students) - 0.4))  # fmt: skip
plt.show()

best = max(students, key=lambda name: mean(accuracy[name]))
print(f"{best} is ahead of no teacher by {mean(gained[best]):.1f} points, the teacher by {mean(gained['teacher']):.1f}")
gain = {name: mean(points) for name, points in gained.items()}
assert min(gain[name] for name in students) > 1 and min(gained["soft, λ 0.9, τ 3"]) > 2
assert gain["hard, λ 0.5"] > gain["hard, λ 0.9"] and gain["soft, λ 0.9, τ 3"] > gain["soft, λ 0.5, τ 3"] + 2

# %% [markdown]
# A teacher is worth more than a point with every kind of target. Which $\lambda$ is best depends on the kind. The hard
# target, the teacher's class, is the label for 99 % of the images that the teacher has learned from (in its last
# epoch), so a larger share of it adds nothing: with $\lambda = 0.9$ a point less is gained than with a half. Soft
# targets say something about every class, but their loss is a mean over the classes, with small gradients: with a half
# they are behind the hard ones, and with $\lambda = 0.9$, where labels hardly count, ahead of all by three points. (On
# ImageNet the paper finds hard targets better, its table 3; there are 250 times as many images, and labels that are
# wrong more often.)
#
# ### How alike are the two tokens?
#
# They begin differently and go through the same layers. On the left is the mean cosine between them on 1,000 test
# images, after the embedding and after each block; on the right, how often both heads predict the same class.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), width_ratios=(3, 2))
shown = [name for name in names if name != "teacher"]
for name in shown:
    cosines = np.array([run["cosines"] for run in runs if run["name"] == name])
    axes[0].plot(cosines.mean(0), "o-", markersize=3, label=name)
axes[0].set(xlabel="blocks passed", ylabel="cosine", ylim=(0, 1.02))
axes[0].legend(fontsize=7)
agree = [100 * mean(run["heads_agree"] for run in runs if run["name"] == name) for name in shown]
axes[1].barh(range(len(shown)), agree, color=[f"C{i}" for i in range(len(shown))])
axes[1].set(yticks=range(len(shown)), yticklabels=shown, xlabel="both heads predict the same class, %")
axes[1].invert_yaxis()
plt.show()
for name in shown:
    first, last = (mean(run["cosines"][layer] for run in runs if run["name"] == name) for layer in (0, -1))
    print(f"{name:<18} cosine {first:.2f} after the embedding, {last:.3f} after the last block")
    assert last > first

# %% [markdown]
# The tokens grow alike from block to block, as in the paper (0.93 after the last of twelve blocks), here even more with
# a teacher than without: both learn nearly the same, so both attend to the same patches.

# %% [markdown]
# ## Exercises
#
# **1.** A teacher's logits are $(2, 0)$, a student's $(0, 0)$. Which class does the teacher give more than 0.9 of its
# probability at temperature 0.5, and how much? Put that probability in place of `None`.

# %%
my_probability = None

# %%
probabilities, _ = F.softmax(np.array([2.0, 0.0]) / 0.5)
hint = "Divide the logits by the temperature, and then take the softmax."
exercises.check_number("my_probability", my_probability, probabilities.max(), hint, 1e-3)

# %% [markdown]
# **2.** A DeiT with 4 registers for images of 224×224 pixels, in patches of 16×16: how many tokens does each block see?
# Put your number in place of `None`.

# %%
my_tokens = None

# %%
config = DeiTConfig(img_size=224, patch_size=16, num_registers=4)
tokens_there = build(config, device="meta").num_prefix_tokens + np.prod(config.grid)
exercises.check_number("my_tokens", my_tokens, tokens_there, "Patches, registers, and the two tokens with heads.")

# %% [markdown]
# **3.** The gradient of the soft loss. `print(exercises.describe("distillation_backward"))` describes its arguments and
# results.


# %%
def my_distillation_backward(logits, teacher, temperature):
    # logits, teacher: (B, K). Returns dlogits
    return np.zeros_like(logits)


exercises.check("distillation_backward", my_distillation_backward)

# %% [markdown]
# **4.** The loss itself: the divergence at a temperature.


# %%
def my_distillation(logits, teacher, temperature):
    # logits, teacher: (B, K)
    return 0.0  # in place of this, the loss, a number


exercises.check("distillation", my_distillation)
