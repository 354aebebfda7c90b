# %% [markdown]
# # 21 · Why does my training go wrong?
#
# A wrong gradient raises no error, and neither does a wrong learning rate: the program runs, and the model learns
# badly or not at all. This notebook trains the same small ViT nine times, which takes about a minute. One training is
# healthy; in each of the other eight, one line is wrong. You look at the pictures of each and say which line it is.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
from math import log

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

from tinyvit import ViT, ViTConfig, exercises, optim
from tinyvit import functional as F
from tinyvit.data import load

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True, "font.size": 9, "axes.titlesize": 9})
digits = load("digits").train
config = ViTConfig(
    img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=64, depth=4, num_heads=4, mlp_ratio=2.0,
    global_pool="avg",
)  # fmt: skip
STEPS, BATCH = 120, 64

# %% [markdown]
# ## A healthy training
#
# This is the loop of notebook 06: AdamW, a learning rate that warms up over 40 steps and then falls to zero. At every
# step it writes down
#
# - the **loss** of the batch, before the step;
# - the **share of the commonest prediction**: of the 64 digits of the batch, how many get the class that is predicted
#   most often. There are about as many digits of each class, so a good model has a share of 10 to 20 %. A model that
#   says the same of every image has 100 %;
# - the **norm of the gradient** of each part of the model, $\sqrt{\sum g^2}$ over all parameters of the patch
#   embedding, of each block, and of the head.


# %%
def training():
    random = np.random.default_rng(0)
    images, labels = digits.normalise(digits.images), digits.labels
    model = ViT(config, seed=0)
    rate = 0.04
    weight = 1.0
    optimizer = optim.AdamW(model, lr=rate, weight_decay=0.05)
    history = []
    for step in range(STEPS):
        optimizer.lr = rate * min(1, (step + 1) / 40) * (1 - step / STEPS)
        batch = random.choice(len(images), BATCH, replace=False)
        model.zero_grad()
        logits, cache = model(images[batch])                                   # (64, 10)
        loss, loss_cache = F.cross_entropy(logits, labels[batch])
        model.backward(F.cross_entropy_backward(weight, loss_cache), cache)
        history.append((weight * loss, commonest(logits), *gradient_norms(model)))
        optimizer.step()
    return np.array(history).T


def commonest(logits):
    """The share of the images that get the class which is predicted most often."""
    return np.bincount(logits.argmax(1)).max() / len(logits)


def gradient_norms(model):
    """The norms of the gradients of the parts that have parameters, but for the last layer norm."""
    parts = [part for name, part in model.parts() if name not in ("norm", "pool")]
    return [sum((p.grad**2).sum() for p in part.parameters()) ** 0.5 for part in parts]


PARTS = ["embedding", *(f"block {i}" for i in range(config.depth)), "head"]
healthy = training()


def show(history, name):
    """Draw the pictures of a training, with the healthy one beside it."""
    figure, axes = plt.subplots(1, 4, figsize=(9.5, 1.9), width_ratios=[1, 1, 1, 1.15])
    for ax, row, title in zip(axes, (0, 1), ("loss", "commonest prediction")):
        ax.plot(healthy[row], color="0.7", label="healthy")
        ax.plot(history[row], color="tab:red", label=name)
        ax.set(xlabel="step", title=title)
    axes[0].legend()
    axes[1].set_ylim(0, 1.05)
    for ax, norms, whose in zip(axes[2:], (healthy[2:], history[2:]), ("healthy", name)):
        every_third = np.where(norms > 0, norms, np.nan)[:, ::3]
        shown = ax.pcolormesh(np.arange(0, STEPS, 3), PARTS, every_third, norm=LogNorm(1e-3, 1e2))
        ax.set(xlabel="step", title=f"gradients, {whose}")
        ax.invert_yaxis()
    figure.colorbar(shown, ax=axes[3], extend="both")
    plt.show()


show(healthy, "the same")
assert np.isclose(healthy[0, 0], log(10)) and healthy[0, -20:].mean() < 0.5
assert healthy[1, 0] == 1 and healthy[1, -20:].mean() < 0.25
assert (healthy[2:-1, 0] == 0).all() and (healthy[2:, -1] > 0).all()

# %% [markdown]
# How to read them:
#
# - **Where does the loss begin?** The head starts at zero, so all ten classes are equally likely at first: the loss of
#   the first batch has to be $\log 10 = 2.30$. (Of equal logits `argmax` takes the first: the first share is 100 %.)
# - **Does it fall, and when?** Here it falls from the first steps on, is restless where the rate is highest, and calms
#   down as the rate falls.
# - **Does the share stay high?** Then the model says the same of all images: it has learned how often each class
#   occurs, or not even that.
# - **How large are the gradients, beside the healthy ones and beside each other?** At step 0 only the head has one: its
#   weights are zero, so nothing gets through to the parts below. White is a gradient of exactly zero.
#
# ## Eight lines
#
# These are the eight faults, each with the piece of code that it replaces. Every one of them is common. `train_with`
# changes that line in the source of `training` and runs it. The letters are dealt to the faults at random.


# %%
FAULTS = {
    1: ("the learning rate is too high", "rate = 0.04", "rate = 5.0"),
    2: ("the learning rate is too low", "rate = 0.04", "rate = 0.00004"),
    3: ("the learning rate isn't warmed up", "rate * min(1, (step + 1) / 40)", "rate"),
    4: ("the pixels are whole numbers up to 256, not normalised", "digits.normalise(digits.images)",
        "np.float32(16) * digits.images"),
    5: ("the labels are shuffled", "digits.labels", "random.permutation(digits.labels)"),
    6: ("the gradients aren't set to zero before a step", "model.zero_grad()", "pass"),
    7: ("the loss is the sum over the batch, not the mean", "weight = 1.0", "weight = BATCH"),
    8: ("a block is frozen by mistake", "ViT(config, seed=0)", "ViT(config, seed=0); model.freeze('blocks.1.*')"),
}  # fmt: skip
number = dict(zip("ABCDEFGH", (np.random.default_rng(16441).permutation(8) + 1).tolist()))


def train_with(fault):
    """The history of a training with a fault of the list."""
    _, right, wrong = FAULTS[fault]
    source, names = inspect.getsource(training), dict(globals())
    assert source.count(right) == 1
    exec(source.replace(right, wrong), names)
    return names["training"]()


def tell(letter):
    """Print the fault of a training, and its line before and after."""
    name, right, wrong = FAULTS[number[letter]]
    (line,) = (line.strip() for line in inspect.getsource(training).splitlines() if right in line)
    print(f"{letter}: {name}\n    - {line}\n    + {line.replace(right, wrong)}")


HINTS = {  # printed where a number is not right
    "A": "It falls as the healthy one does. What is different from the first step on, and by which factor?",
    "B": "It gets worse within a few steps, and to the end it says the same of nearly all images.",
    "C": "The loss is no flat line: it falls, evenly and without any noise. What would it need more of?",
    "D": "The loss says nothing. Go through the gradients part by part.",
    "E": "It begins well. Meanwhile the gradients grow from step to step, as if something was added up.",
    "F": "The loss stays at log 10 and jumps about: there are gradients and steps, but nothing that could be learned.",
    "G": "Only the first ten steps are bad. Later it learns as the healthy one does, and never makes up for them.",
    "H": "In the first ten steps all images look alike to it, and the blocks get far less gradient than the embedding.",
}
histories = {letter: train_with(number[letter]) for letter in number}
for fault, (name, _, wrong) in FAULTS.items():
    print(f"{fault}   {name:<55}   {wrong}")

# %% [markdown]
# ## Exercises
#
# For each training, put the number of its fault in place of `None` and run the cell again. If it is right, the cell
# shows the line. Mind the scale of the loss, which differs from picture to picture.
#
# **1.** Training A.

# %%
my_a = None

show(histories["A"], "A")
if exercises.check_number("my_a", my_a, number["A"], HINTS["A"]):
    tell("A")

# %% [markdown]
# **2.** Training B.

# %%
my_b = None

show(histories["B"], "B")
if exercises.check_number("my_b", my_b, number["B"], HINTS["B"]):
    tell("B")

# %% [markdown]
# **3.** Training C.

# %%
my_c = None

show(histories["C"], "C")
if exercises.check_number("my_c", my_c, number["C"], HINTS["C"]):
    tell("C")

# %% [markdown]
# **4.** Training D.

# %%
my_d = None

show(histories["D"], "D")
if exercises.check_number("my_d", my_d, number["D"], HINTS["D"]):
    tell("D")

# %% [markdown]
# **5.** Training E.

# %%
my_e = None

show(histories["E"], "E")
if exercises.check_number("my_e", my_e, number["E"], HINTS["E"]):
    tell("E")

# %% [markdown]
# **6.** Training F.

# %%
my_f = None

show(histories["F"], "F")
if exercises.check_number("my_f", my_f, number["F"], HINTS["F"]):
    tell("F")

# %% [markdown]
# **7.** Training G.

# %%
my_g = None

show(histories["G"], "G")
if exercises.check_number("my_g", my_g, number["G"], HINTS["G"]):
    tell("G")

# %% [markdown]
# **8.** Training H.

# %%
my_h = None

show(histories["H"], "H")
if exercises.check_number("my_h", my_h, number["H"], HINTS["H"]):
    tell("H")

# %% [markdown]
# ## The answers
#
# Stop here until you have tried all eight.
#
# - **The sum** begins at $64 \log 10 = 147$, and all gradients are 64 times as large. The model learns as well as
#   before, because AdamW divides each gradient by its own size. SGD would take steps 64 times as long.
# - **The high rate** throws the weights so far that one class wins for all images. The branches of the blocks are then
#   saturated and let hardly any gradient through, so that the model doesn't recover.
# - **The low rate** is the healthy training in slow motion: the head learns a little, and as long as its weights are
#   nearly zero, the blocks below get next to no gradient.
# - **The frozen block** costs so little that nobody would notice: the other blocks learn in its place. Its gradient is
#   exactly zero from the first step to the last.
# - **Gradients that nobody sets to zero** are the sum over all steps so far. The steps go on in a direction that was
#   right long ago, past the minimum and up the other side.
# - **Shuffled labels** have nothing to do with the images. The best that the model can do is to say how often each
#   class occurs, which is $\log 10$ again. Any class is as good as any other, so the share goes up and down.
# - **Without warm-up** the first steps are as long as the later ones, in directions from one or two batches. Adam makes
#   them long, however small the gradients are (notebook 06).
# - **Raw pixels** are up to 256 and never negative, so the tokens of all images point nearly the same way. What the
#   blocks add to such long tokens is small beside them, and so are the blocks' gradients. It learns in the end, as
#   AdamW and the layer norms make up for the scale; SGD wouldn't.

# %%
for letter in number:
    tell(letter)
faulty = {fault: histories[letter] for letter, fault in number.items()}
end = {fault: history[0, -20:].mean() for fault, history in faulty.items()}
assert np.isclose(faulty[7][0, 0], BATCH * log(10)) and end[7] / BATCH < 0.7
assert end[1] > 2 and faulty[1][1, -20:].mean() > 0.9 and faulty[1][0].max() > 5
assert 2.1 < end[2] < 2.3 and np.abs(np.diff(faulty[2][0])).max() < 0.1
assert (faulty[8][3 + 1] == 0).all() and end[8] < 0.7
assert end[6] > 2 and np.median(faulty[6][2:, 60:] / healthy[2:, 60:]) > 5
assert 2.2 < end[5] < 2.4 and faulty[5][1].mean() > 0.4
assert faulty[3][0, :10].max() > 2.5 and end[3] < 1.2
raw, usual = (history[3, 2:6] / history[2, 2:6] for history in (faulty[4], healthy))  # block 0 over the embedding
assert raw.max() < 0.1 < usual.min() and faulty[4][1, 1:10].mean() > 1.5 * healthy[1, 1:10].mean()

# %% [markdown]
# ## Signs, causes, and what to try
#
# | sign | likely cause | what to try |
# | --- | --- | --- |
# | the loss doesn't begin at $\log K$ | a sum, not a mean; wrong labels | print the first loss and labels |
# | one class for all images, the loss rises | the rate is too high | a tenth of `--optim.lr` |
# | the loss rises, the gradients grow | they aren't set to zero | `zero_grad` before each backward |
# | bad first steps, then a slow recovery | no warm-up | `--optim.warmup 0.1`, or a lower rate |
# | the loss falls evenly and hardly at all | the rate is too low | ten times `--optim.lr` |
# | the loss stays at $\log K$, with noise | wrong labels | draw ten images with their labels |
# | a part's gradient is zero | it is frozen, or not used | print `trainable` of its parameters |
# | the blocks' gradients start far below the embedding's | raw inputs | print mean and deviation of a batch: 0 and 1 |
# | it can't learn even 64 images by heart | a wrong gradient | `gradcheck.check_model` |
# | good in training, bad in the test | inputs prepared in another way | print both of one image |
#
# `tinyvit train` writes loss and accuracy to `metrics.jsonl`, and warns where more than 90 % of the test images get the
# same class in two evaluations in a row.
