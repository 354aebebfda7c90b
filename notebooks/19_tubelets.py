# %% [markdown]
# # 19 · Time: tubelets
#
# A photograph shows where things are, a video also where they go. ViViT (Arnab et al. 2021) reads one as a ViT reads
# the other: the patches become *tubelets*, patches through several frames. This notebook shows what attention over all
# of them costs, how a trained model of images becomes one of videos, and what a single frame can't tell.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols). New are $T$ frames, $S$ frames in a tubelet, and a
# grid of $t \times h \times w$ tubelets.)

# %%
import inspect
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.data import load
from tinyvit.data.moving_digits import DIRECTIONS, shift_digits
from tinyvit.models import FactorisedViViTConfig, ViTConfig, ViViTConfig, build
from tinyvit.models.factorised_vivit import FrameBlock, Frames
from tinyvit.models.summary import summarize
from tinyvit.models.vivit import TubeletEmbed, ViViT, inflate_filters
from tinyvit.training import PRESETS, train
from tinyvit.training.tasks.classification import evaluate, logits_of
from tinyvit.training.trained import load_trained

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## Digits in motion
#
# Each of scikit-learn's real digits moves over a ground of 16×16 pixels in eight directions, from the same place and
# with the same speed; what leaves on one side comes in on the other. The direction is the class. The clips below begin
# with the same picture.

# %%
split = load("moving-digits")
print("training", split.train.images.shape, " test", split.test.images.shape)
figure, axes = plt.subplots(3, 8, figsize=(8, 3.2))
for row, label in zip(axes, (0, 3, 6)):
    for t, ax in enumerate(row):
        ax.imshow(split.train.images[label, 0, t], cmap="gray_r")
        ax.set(xticks=[], yticks=[], title=f"t = {t}" if label == 0 else "")
    row[0].set_ylabel(split.train.classes[label])
plt.show()
clips = split.train.images.reshape(-1, 8, 8, 16, 16)
assert (clips[:, :, 0] == clips[:, :1, 0]).all()

# %% [markdown]
# ## Tubelets
#
# A tubelet is a patch of $P \times Q$ pixels through $S$ frames. It is cut out as a patch is, with one axis more: axis
# after axis is split into *which tubelet* and *where in it*, then the first are brought to the front. With $(i, j, k)$
# for the tubelet and $(c, s, u, v)$ for the channel and the place in it,
#
# $$\begin{aligned}
# n &= (i\,h + j)\,w + k \\
# m &= ((c\,S + s)\,P + u)\,Q + v \\
# y_{n m} &= x_{c,\ iS + s,\ jP + u,\ kQ + v}
# \end{aligned} \tag{tubelets}$$
#
# Every pixel goes to one place, so its gradient comes back from there, and the backward is the inverse:
#
# $$dx_{c,\ iS + s,\ jP + u,\ kQ + v} = dy_{n m} \tag{tubelets\_backward}$$
#
# The inverse puts tubelets together again, and its own backward cuts:
#
# $$\begin{aligned}
# x_{c,\ iS + s,\ jP + u,\ kQ + v} &= y_{n m}
# \end{aligned} \tag{from\_tubelets}$$
#
# $$dy = \mathrm{cut}(dx) \tag{from\_tubelets\_backward}$$

# %%
for op in (F.tubelets, F.tubelets_backward, F.from_tubelets, F.from_tubelets_backward):
    print(inspect.getsource(op))
video = random.standard_normal((2, 3, 4, 4, 6))
cut, cache = F.tubelets(video, (2, 2, 3))
assert cut.shape == (2, 2 * 2 * 2, 3 * 2 * 2 * 3)
assert (F.from_tubelets(cut, (2, 2, 3), (4, 4, 6))[0] == video).all()
for op, arguments in ((F.tubelets, (video, (2, 2, 3))), (F.from_tubelets, (cut, (2, 2, 3), (4, 4, 6)))):
    assert gradcheck.check(op, op.backward, arguments, directions=5).max_error < 1e-13

# %% [markdown]
# By hand: two frames of 2×2 pixels, $S = 2$, $P = Q = 1$. There are four tubelets of two numbers each, the pixel's in
# the first and in the second frame.

# %%
tiny = np.array([[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]])[None]  # (1, 1, 2, 2, 2)
by_hand, _ = F.tubelets(tiny, (2, 1, 1))
print(by_hand[0])
assert (by_hand[0] == [[1, 5], [2, 6], [3, 7], [4, 8]]).all()

# %% [markdown]
# On a clip: one tubelet in each pair of frames is framed, and below it is shown by itself. In the numbers of a single
# tubelet there is motion already.

# %%
clip = split.train.images[:1]                                                  # (1, 1, 8, 16, 16)
tubes = F.tubelets(clip, (2, 4, 4))[0].reshape(4, 4, 4, 2, 4, 4)               # (t, h, w, S, P, Q)
busiest = np.unravel_index(tubes.std((3, 4, 5)).min(0).argmax(), (4, 4))
figure, axes = plt.subplots(2, 8, figsize=(8, 2.4))
for t in range(8):
    axes[0, t].imshow(clip[0, 0, t], cmap="gray_r")
    corner = 4 * busiest[1] - 0.5, 4 * busiest[0] - 0.5
    axes[0, t].add_patch(Rectangle(corner, 4, 4, fill=False, edgecolor=f"C{t // 2}", linewidth=2))
    axes[1, t].imshow(tubes[t // 2, busiest[0], busiest[1], t % 2], cmap="gray_r", vmin=0, vmax=16)
    for ax in axes[:, t]:
        ax.set(xticks=[], yticks=[])
    axes[1, t].set_title(f"tubelet {t // 2}", fontsize=8, color=f"C{t // 2}")
plt.show()

# %% [markdown]
# ### A token for each
#
# A linear layer makes a token of each tubelet. Its weight has the shape $(D, C, S, P, Q)$ of a convolution in three
# dimensions whose stride is its kernel's size. With $v$ for the video, $\mathrm{cut}$ for the tubelets, $\mathrm{cut}'$
# for its backward and $W$ flattened:
#
# $$\begin{aligned}
# x &= \mathrm{cut}(v) \\
# y &= x\,W^\top + b
# \end{aligned} \tag{TubeletEmbed.forward}$$
#
# $$\begin{aligned}
# dx &= dy\,W \\
# dW &= \textstyle\sum dy^\top x \\
# db &= \textstyle\sum dy \\
# dv &= \mathrm{cut}'(dx)
# \end{aligned} \tag{TubeletEmbed.backward}$$

# %%
print(inspect.getsource(TubeletEmbed.forward))
print(inspect.getsource(TubeletEmbed.backward))
shape = dict(img_size=16, patch_size=4, in_chans=1, num_classes=8, frames=8, tubelet_frames=2, embed_dim=24, depth=2,
             num_heads=2)  # fmt: skip
joint, factorised = ViViTConfig(**shape), FactorisedViViTConfig(**shape, temporal_depth=1)
report = gradcheck.check_model(build(joint), random.standard_normal((2, 1, 8, 16, 16)), directions=3)
print(f"the whole model against the complex step: {report.max_error:.1e}")
assert report.max_error < 1e-9

# %% [markdown]
# ## What attention costs
#
# In the simplest model of a video, *joint* attention (model 1 of the paper), each of the $t\,h\,w$ tokens looks at all
# others. The *factorised* encoder (model 2) first lets those of one frame index look at each other, as a ViT does with
# an image, and makes one vector of each; these $t$ vectors then look at each other. The pairs of tokens are
#
# $$\begin{aligned}
# \text{joint} &: (t\,h\,w)^2 \\
# \text{factorised} &: t\,(h\,w)^2 + t^2
# \end{aligned}$$
#
# so that the first grows with the square of a video's length and the second, for all but very long ones, in proportion
# to it. For ViViT-B on 32 frames of 224×224 pixels with tubelets of 2×16×16, $t = 16$ and $h = w = 14$:

# %%
t, h, w = 16, 14, 14
print(f"joint {(t * h * w) ** 2:,} pairs in a block, factorised {t * (h * w) ** 2 + t**2:,}: "
      f"{(t * h * w) ** 2 / (t * (h * w) ** 2 + t**2):.1f} times fewer")  # fmt: skip
lengths = np.array([8, 16, 32, 64])
costs = {"joint": [], "factorised": []}
for frames in lengths:
    for name, config in (("joint", joint), ("factorised", factorised)):
        model = build(replace(config, frames=int(frames)), device="meta")
        rows = [row for row in summarize(model) if row.path.endswith("attn.heads")]
        costs[name].append(sum(row.multiply_adds for row in rows))
figure, ax = plt.subplots(figsize=(5, 2.6))
for name, counted in costs.items():
    ax.loglog(lengths, counted, "o-", label=name)
    print(f"{name:<11}", "  ".join(f"{frames:>2} frames {count:>12,}" for frames, count in zip(lengths, counted)))
ax.set(xlabel="frames", ylabel="multiply-adds of attention", xticks=lengths, xticklabels=lengths)
ax.minorticks_off()
ax.legend()
plt.show()
assert costs["joint"][-1] / costs["joint"][-2] > 3.9 and costs["factorised"][-1] / costs["factorised"][-2] < 2.1

# %% [markdown]
# ## A frame by itself
#
# Nothing new is needed for attention within a frame: the frames of a sample become samples of their own, and afterwards
# its frames again. In memory nothing moves. With token $a$ of frame index $i$ of sample $b$ at row $i\,n + a$,
#
# $$y_{b t + i,\ a} = x_{b,\ i n + a} \tag{split\_frames}$$
#
# $$dx_{b,\ i n + a} = dy_{b t + i,\ a} \tag{split\_frames\_backward}$$
#
# and back:
#
# $$y_{b,\ i n + a} = x_{b t + i,\ a} \tag{join\_frames}$$
#
# $$dx_{b t + i,\ a} = dy_{b,\ i n + a} \tag{join\_frames\_backward}$$
#
# A block of the spatial transformer does just that around an ordinary block $f$ (notebook 04):
#
# $$\begin{aligned}
# x' &= \mathrm{split}(x) \\
# y &= \mathrm{join}(f(x'))
# \end{aligned} \tag{FrameBlock.forward}$$
#
# $$\begin{aligned}
# dy' &= \mathrm{join}'(dy) \\
# dx &= \mathrm{split}'(f'(dy'))
# \end{aligned} \tag{FrameBlock.backward}$$

# %%
for op in (F.split_frames, F.split_frames_backward, F.join_frames, F.join_frames_backward):
    print(inspect.getsource(op))
print(inspect.getsource(FrameBlock.forward))
print(inspect.getsource(FrameBlock.backward))

# %% [markdown]
# After the last of these blocks comes what a ViT does in front of its head, for each frame index: a layer norm $\nu$,
# and of the tokens the first, or their mean, $\mathrm{pool}$. The vectors of a sample then become tokens, with a class
# token $\tau$ in front and positions $p$ in time:
#
# $$\begin{aligned}
# z &= \mathrm{pool}(\nu(\mathrm{split}(x))) \\
# y &= [\,\tau,\ \mathrm{join}(z)\,] + p
# \end{aligned} \tag{Frames.forward}$$
#
# $$\begin{aligned}
# dp &= \textstyle\sum dy, \quad [\,d\tau,\ dz'\,] = dy \\
# dz &= \mathrm{join}'(dz') \\
# dx &= \mathrm{split}'(\nu'(\mathrm{pool}'(dz)))
# \end{aligned} \tag{Frames.backward}$$

# %%
print(inspect.getsource(Frames.forward))
print(inspect.getsource(Frames.backward))
model = build(factorised)
report = gradcheck.check_model(model, random.standard_normal((2, 1, 8, 16, 16)), directions=3)
print(f"the whole model against the complex step: {report.max_error:.1e}")
assert report.max_error < 1e-9

# %% [markdown]
# How far does a token of frame index 1 see? The gradient of its numbers with respect to the pixels, after two blocks of
# each model: joint attention has seen all frames, the spatial transformer only its own two.

# %%
figure, axes = plt.subplots(2, 8, figsize=(8, 2.4))
for row, (name, config) in zip(axes, (("joint", joint), ("factorised", factorised))):
    model = build(config, dtype="float64")
    parts = model.parts()[:3]
    tokens, caches = model.forward_parts(clip / 16, parts)
    dtokens = np.zeros_like(tokens)
    per_frame = (tokens.shape[1] - (name == "joint")) // 4
    first = (name == "joint") + per_frame
    dtokens[:, first + 5] = 1 + np.arange(24) / 24
    dvideo = abs(model.backward_parts(dtokens, parts, caches))[0, 0]
    reached = [bool(frame.any()) for frame in dvideo]
    print(f"{name:<11} frames reached:", [t for t in range(8) if reached[t]])
    assert reached == ([True] * 8 if name == "joint" else [False, False, True, True] + [False] * 4)
    for ax, frame in zip(row, dvideo):
        ax.imshow(np.log10(frame + 1e-6), cmap="viridis", vmin=-6, vmax=0)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
plt.show()

# %% [markdown]
# ## From images to videos
#
# Videos with labels are rare, and models of images are not. What a ViT has learned can be reused: its blocks as they
# are, and each patch's position for all tubelets at that place. Only the filters lack an axis. Two ways to *inflate*
# the image's filter $w$ to the $S$ frames of a tubelet's, $W_s$:
#
# $$\begin{aligned}
# \text{central frame} &: W_{\lfloor S/2 \rfloor} = w,\quad W_s = 0 \text{ otherwise} \\
# \text{average} &: W_s = w / S
# \end{aligned}$$
#
# Shown a clip that stands still, either gives the tokens that the ViT has of the frame. The first, which looks at one
# frame of each tubelet, did better in the paper: it begins as a good reader of single frames and learns motion from
# there.

# %%
print(inspect.getsource(inflate_filters))
print(inspect.getsource(ViViT.state_from))
image_config = ViTConfig(**{name: value for name, value in shape.items() if "frames" not in name})
image_model = build(image_config, dtype="float64")
frame = split.train.images[:4, :, 0] / 16
still = np.repeat(frame[:, :, None], 8, axis=2)
expected = image_model.embed(frame)[0][:, 1:]
for how in ("central", "average"):
    model = build(joint, seed=1, dtype="float64")
    model.load_state_dict(model.state_from(image_model, how))
    tokens = model.embed(still)[0][:, 1:].reshape(4, 4, 16, 24)
    print(f"{how:<8} largest difference between the tokens of a tubelet and of its patch: "
          f"{abs(tokens - expected[:, None]).max():.1e}")  # fmt: skip
    assert np.allclose(tokens, expected[:, None], rtol=1e-12, atol=1e-13)

# %% [markdown]
# On the command line that is `tinyvit train moving-digits --init.run RUN`, with the run of a ViT of the same shape.
#
# ## A single frame tells nothing
#
# Now the direction is learned: the model of the preset `moving-digits`, for one pass over two thirds of the training
# clips. Beside it, the same model learns from a single frame of each.

# %%
folder = tempfile.TemporaryDirectory()


def trained(name, **model):
    """The model that a short training gives."""
    preset = PRESETS["moving-digits"]
    config = replace(preset, epochs=1, images=7680, device="cpu", model=replace(preset.model, **model))
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        train(config, Path(folder.name) / name)
    return load_trained(Path(folder.name) / name, "cpu").model


some = split.test.subset(np.arange(1440))  # the clips of 180 digits


def accuracy(model, images):
    """The share of those clips whose direction the model names, with these images in their place."""
    return evaluate(model, replace(some, images=np.ascontiguousarray(images)))["accuracy"]


of_clips, of_frames = trained("clips"), trained("frames", frames=1, tubelet_frames=1)
test = some.images
chance = 1 / len(DIRECTIONS)
whole, first = accuracy(of_clips, test), accuracy(of_frames, test[:, :, :1])
print(f"whole clips {100 * whole:5.1f} %, first frames {100 * first:5.1f} %, chance {100 * chance:.1f} %")
assert whole > 0.9 and np.isclose(first, chance)

# %% [markdown]
# With first frames exactly one in eight is right, and no model could do better: the eight clips of a digit begin with
# the same picture, so any answer is right for one of the eight. A later frame is as useless, since the digit may have
# started anywhere. The trained model of clips does no better with a clip that stands still:

# %%
stills = [accuracy(of_clips, np.repeat(test[:, :, t : t + 1], 8, axis=2)) for t in range(8)]
print("one frame, repeated: ", " ".join(f"{100 * share:.1f}" for share in stills))
assert all(abs(share - chance) < 0.03 for share in stills) and np.isclose(stills[0], chance)

# %% [markdown]
# And time can be turned around. A clip shown backwards is one of the opposite direction, pixel for pixel, and the model
# says so. With its frames in a random order, a different one for each clip, it is right much less often.

# %%
names, steps = list(DIRECTIONS), np.array(list(DIRECTIONS.values()))
opposite = np.array([int(np.flatnonzero((steps == -step).all(1))[0]) for step in steps])
backwards = replace(some, images=np.ascontiguousarray(test[:, :, ::-1]), labels=opposite[some.labels])
order = random.random((len(test), 1, 8, 1, 1)).argsort(2)
shuffled = accuracy(of_clips, np.take_along_axis(test, order, 2))
reversed_share = evaluate(of_clips, backwards)["accuracy"]
print(f"backwards, the opposite direction: {100 * reversed_share:.1f} %")
print(f"frames in a random order, the direction: {100 * shuffled:.1f} %")
assert reversed_share > 0.9 and shuffled < 0.5

# %% [markdown]
# How many frames does it take? After $k$ frames the clip stands still. One step of motion, inside the first tubelet,
# already says a good deal.

# %%
frozen = [np.concatenate([test[:, :, :k], np.repeat(test[:, :, k - 1 : k], 8 - k, 2)], 2) for k in range(1, 9)]
shares = [100 * accuracy(of_clips, images) for images in frozen]
figure, ax = plt.subplots(figsize=(5, 2.4))
ax.plot(range(1, 9), shares, "o-")
ax.axhline(100 * chance, color="gray", linestyle=":", label="chance")
ax.set(xlabel="frames until it stands still", ylabel="direction right, %", ylim=(0, 105))
ax.legend()
plt.show()
print(" ".join(f"{share:.1f}" for share in shares))
assert np.isclose(shares[0], 100 * chance) and shares[3] > 2 * shares[0]

# %%
digit = load("digits").test.images[:1, 0]
seen = [shift_digits(digit, np.array([[4, 4]]), np.array([step]), 8)[:, None] for step in steps[[0, 1, 2]]]
unseen = replace(some, images=np.concatenate(seen), labels=np.arange(3))
for name, logits in zip(names, logits_of(of_clips, unseen)):
    print(f"{name:<11} is taken for {names[logits.argmax()]}")

# %% [markdown]
# ## Exercises
#
# **1.** A video of 64 frames of 128×128 pixels is cut into tubelets of 4×16×16. How many times as many pairs of tokens
# does a block of joint attention have as all frame indices of a factorised one together, $t\,(h\,w)^2$? Put your number
# in place of `None`.

# %%
my_ratio = None

# %%
t, h, w = 64 // 4, 128 // 16, 128 // 16
joint_pairs, pairs_by_frame = (t * h * w) ** 2, t * (h * w) ** 2
hint = "What cancels in (t·h·w)² over t·(h·w)²?"
exercises.check_number("my_ratio", my_ratio, joint_pairs / pairs_by_frame, hint)

# %% [markdown]
# **2.** Cut videos into tubelets. `print(exercises.describe("tubelets"))` describes its arguments and results.


# %%
def my_tubelets(videos, tubelet):
    # videos (B, C, T, H, W), tubelet (S, P, Q). Returns tubelets
    return np.zeros_like(videos)


exercises.check("tubelets", my_tubelets)

# %% [markdown]
# **3.** And back, which is the gradient, too.


# %%
def my_from_tubelets(tubelets, tubelet, size):
    # tubelets (B, N, C·S·P·Q), tubelet (S, P, Q), size (T, H, W). Returns videos
    return np.zeros_like(tubelets)


exercises.check("from_tubelets", my_from_tubelets)

# %% [markdown]
# **4.** Inflate the filters of images by their central frame.


# %%
def my_inflate(weight, frames):
    # weight (D, C, P, P), frames S. Returns inflated
    return np.zeros_like(weight)


exercises.check("inflate", my_inflate)

# %% [markdown]
# Solutions: `print(exercises.solution("tubelets"))`, and likewise for the others.

# %%
folder.cleanup()
