# %% [markdown]
# # 17 · Images and texts
#
# A classifier knows the classes it was trained on and no others. CLIP (Radford et al. 2021) learns from captions: one
# network reads the image, another the text, and both end in the same space, where the vectors of a matching pair should
# point the same way. Any sentence is then a class, without training: zero-shot classification. What that can do and
# what it can't is measured below, on real digits in colour.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect

import matplotlib.pyplot as plt
import numpy as np

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.data import load
from tinyvit.data.coloured_digits import COLOURS, PLACES, WORDS, held_out
from tinyvit.models.text_tower import causal_mask
from tinyvit.training.trained import load_trained, tokenizer_of
from tinyvit.training.zero_shot import image_logits, text_vectors

plt.rcParams.update({"figure.dpi": 72, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)
split = load("coloured-digits")
figure, axes = plt.subplots(1, 6, figsize=(9, 1.9))
for axis, row in zip(axes, (0, 301, 602, 1204, 1505, 2107)):
    axis.imshow(split.train.images[row].transpose(1, 2, 0))
    axis.set_title(split.train.classes[split.train.labels[row]].replace(" ", "\n", 2), fontsize=9)
    axis.axis("off")
plt.show()
unseen = ~np.isin(split.test.labels, split.train.labels)
print(f"{len(split.train):,} training and {len(split.test):,} test images; {unseen.mean():.1%} of these show pairs of "
      "a colour and a digit that no training image shows")  # fmt: skip
assert len(np.unique(split.train.labels)) == 150 and len(split.train.classes) == 180

# %% [markdown]
# ## Words become vectors
#
# A text is a row of word numbers. Each number takes its row of a table $W$ $(V, D)$, which is the product of $W$ with a
# one-hot vector:
#
# $$
# y_{bt} = W_{n_{bt}} = \sum_v [n_{bt} = v]\, W_v \tag{embedding}
# $$
#
# A row is used by all places where its word stands, so its gradient is the sum over them:
#
# $$
# dW_v = \sum_{b,t} [n_{bt} = v]\, dy_{bt} \tag{embedding\_backward}
# $$
#
# On a GPU many threads would add to the same row at once, in an order that changes from run to run. Here the places are
# sorted by word, and each word's are added up two by two.

# %%
print(inspect.getsource(F.embedding))
print(inspect.getsource(F.embedding_backward))
words = np.array([[0, 2, 2], [1, 2, 0]])
table = random.standard_normal((4, 3))
y, cache = F.embedding(table, words)
dtable = F.embedding_backward(np.ones((2, 3, 3)), cache)
print("how often each word stands in the texts:", dtable[:, 0])
assert dtable[:, 0].tolist() == [2, 1, 3, 0]
report = gradcheck.check(lambda weight: F.embedding(weight, words), F.embedding_backward, (table,))
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# ## A word sees the words before it
#
# The text tower is made of the blocks of notebook 04, with a mask: the bias of attention is $-\infty$ for later words.
# The text's vector is the one at its end, the only one that has seen all words. A word's output doesn't depend on later
# ones, so they get no gradient from it: exactly zero, not nearly.

# %%
print(causal_mask(4))
q, k, v = random.standard_normal((3, 1, 1, 4, 2))
heads, cache = F.attention(q, k, v, causal_mask(4))
dheads = np.zeros_like(heads)
dheads[0, 0, 1] = 1
_, dk, dv, _ = F.attention_backward(dheads, cache)
print("gradients of the values, from the second word's output alone:", dv[0, 0].sum(-1))
assert not dk[0, 0, 2:].any() and not dv[0, 0, 2:].any() and dv[0, 0, :2].all()

# %% [markdown]
# ## Quick GELU
#
# CLIP's MLPs have an approximation of GELU: the normal distribution function is replaced by a logistic one,
# $\sigma(u) = 1 / (1 + e^{-u})$.
#
# $$
# y = x\, \sigma(1.702\, x) \tag{quick\_gelu}
# $$
#
# It is a product, and $\sigma' = \sigma (1 - \sigma)$:
#
# $$
# \begin{aligned}
# r &= 1.702\, x\, (1 - \sigma) \\
# dx &= dy\, \sigma\, (1 + r)
# \end{aligned} \tag{quick\_gelu\_backward}
# $$

# %%
print(inspect.getsource(F.quick_gelu))
print(inspect.getsource(F.quick_gelu_backward))
x = np.linspace(-4, 4, 200)
difference = F.quick_gelu(x)[0] - F.gelu(x)[0]
print(f"largest difference from GELU: {abs(difference).max():.4f}")
assert 0.02 < abs(difference).max() < 0.0204
assert gradcheck.check(F.quick_gelu, F.quick_gelu_backward, (random.standard_normal((2, 5)),)).max_error < 1e-10

# %% [markdown]
# ## How alike are an image and a text?
#
# Both towers end in vectors of length 1 (notebook 16 has the gradient of that), $x_i$ of image $i$ and $y_j$ of text
# $j$. Their products are cosines, from −1 to 1: too small a range for a softmax with a probability near 1. So they are
# multiplied by $e^s$; $s$ is learned, and $e^{-s}$ is the temperature. It starts at 0.07.
#
# $$
# z_{ij} = e^s\, x_i \cdot y_j \tag{similarity}
# $$
#
# All logits depend on the one number $s$, and the derivative of $e^s$ is $e^s$:
#
# $$
# \begin{aligned}
# dx_i &= e^s \sum_j dz_{ij}\, y_j \\
# dy_j &= e^s \sum_i dz_{ij}\, x_i \\
# ds &= \sum_{ij} dz_{ij}\, z_{ij}
# \end{aligned} \tag{similarity\_backward}
# $$
#
# A training would let $s$ grow without end as soon as all pairs are right. It is kept below $\ln 100$: in the formula
# itself, as in the paper, and by setting $s$ back into $0 \ldots \ln 100$ after each step, as Open CLIP does.

# %%
print(inspect.getsource(F.similarity))
print(inspect.getsource(F.similarity_backward))
images, _ = F.l2_normalise(random.standard_normal((3, 4)))
texts, _ = F.l2_normalise(random.standard_normal((5, 4)))
report = gradcheck.check(F.similarity, F.similarity_backward, (images, texts, np.array([0.7])))
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# ## The contrastive loss
#
# In a batch of $B$ pairs each image is to find its text among all $B$, and each text its image: a cross-entropy along
# the rows of $z$ and one along its columns, with the diagonal as the right answer.
#
# $$
# \begin{aligned}
# p_{ij} &= \frac{e^{z_{ij}}}{\sum_k e^{z_{ik}}}, \qquad
# q_{ij} = \frac{e^{z_{ij}}}{\sum_k e^{z_{kj}}} \\
# \mathcal L &= -\frac{1}{2B} \sum_i \left(\log p_{ii} + \log q_{ii}\right)
# \end{aligned} \tag{contrastive\_loss}
# $$
#
# For one row, $\log p_{ii} = z_{ii} - \log \sum_k e^{z_{ik}}$, whose derivative with respect to $z_{ij}$ is
# $[i = j] - p_{ij}$; for a column likewise with $q$. Both add up; with $I$ for the identity matrix,
#
# $$
# \begin{aligned}
# g &= p - I \\
# h &= q - I \\
# f &= g + h \\
# dz &= f / 2B
# \end{aligned} \tag{contrastive\_loss\_backward}
# $$
#
# If $n$ texts of the batch are equal (`alike` says which), each is right for each of their images: $t_{ij} = 1/n$ for
# these takes the place of $I$.
#
# Exchanging images and texts turns $z$ and exchanges $p$ and $q$: the loss stays. So it does if all pairs change their
# order. But every logit depends on two samples: a batch that is split in two has another loss, with half as many wrong
# answers to choose from. That is why a training here never splits it.

# %%
print(inspect.getsource(F.contrastive_loss))
print(inspect.getsource(F.contrastive_loss_backward))
z = np.array([[2.0, 0.0], [0.0, 1.0]])
loss, cache = F.contrastive_loss(z)
dz = F.contrastive_loss_backward(1.0, cache)
by_hand = 0.5 * (np.log(1 + np.exp(-2)) + np.log(1 + np.exp(-1)))
print("two pairs:", loss, "by hand:", by_hand)
print(dz)
np.testing.assert_allclose(loss, by_hand)
np.testing.assert_allclose(F.contrastive_loss(z.T)[0], loss)
np.testing.assert_allclose(F.contrastive_loss(z[::-1, ::-1])[0], loss)
halves = [float(F.contrastive_loss(z[i : i + 1, i : i + 1])[0]) for i in (0, 1)]
print("each pair in a batch of its own:", *map(abs, halves))
assert halves == [0, 0]
report = gradcheck.check(F.contrastive_loss, F.contrastive_loss_backward, (random.standard_normal((4, 4)),))
print(report)
assert report.max_error < 1e-10

# %% [markdown]
# ### What the temperature does
#
# With the same cosines, a larger $e^s$ makes the loss look at the hardest wrong answer; a smaller one at all alike.

# %%
cosines = np.array([0.9, 0.7, 0.3, 0.0])
for scale in (1, 14.3, 100):
    print(f"e^s = {scale:>5}:  ", F.softmax(scale * cosines)[0])
assert F.softmax(100 * cosines)[0][0] > 0.99 > 0.5 > F.softmax(cosines)[0][0]

# %% [markdown]
# ## Zero-shot classification
#
# The folder `checkpoint-clip` has a run of `tinyvit train clip-digits`: a ViT on 16 patches and a text tower of one
# block. A class is any text. With several prompts for it ("a …", "the …", "this …"), the direction of the mean of their
# vectors is taken.

# %%
trained = load_trained("checkpoint-clip", device="cpu")
model, tokenizer = trained.model, tokenizer_of(trained)
test = split.test
pixels = test.normalise(test.images)
templates = ("a {}", "the {}", "this {}")
right = {}
for number in (1, 3):
    vectors = text_vectors(model, tokenizer, test.classes, templates[:number])
    found = image_logits(model, vectors, pixels, threads=1).argmax(1)
    right[number] = found == test.labels
    print(f"{number} prompt{'s' * (number > 1)} a class: {right[number][~unseen].mean():.1%} of pairs that were seen, "
          f"{right[number][unseen].mean():.1%} of those that were not; chance {1 / len(test.classes):.1%}")  # fmt: skip
print(f"learned temperature: {np.exp(-model.logit_scale.data):.4f}")
assert right[3][~unseen].mean() > 0.95 and right[3][unseen].mean() > 0.4

# %% [markdown]
# Nobody has told the model what a class is. It can be asked for parts of a caption, too, such as the colour alone,
# though every caption that it has seen names colour, digit and place.

# %%
colours, digits = (test.labels // len(PLACES)) // len(WORDS), (test.labels // len(PLACES)) % len(WORDS)
for texts, labels in ((list(COLOURS), colours), (list(WORDS), digits), (list(PLACES), test.labels % len(PLACES))):
    vectors = text_vectors(model, tokenizer, texts, templates)
    share = (image_logits(model, vectors, pixels, threads=1).argmax(1) == labels).mean()
    print(f"{texts[0]}, {texts[1]}, …: {share:.1%}, chance {1 / len(texts):.1%}")
    assert share > 2 / len(texts)

# %% [markdown]
# ## Where it fails: compositions that it has not seen
#
# A child who knows red and knows seven knows a red seven. The model has seen six colours and ten digits, but no red
# zero, no green one, …. For such pairs it is wrong much more often. Which part of the answer is wrong?

# %%
found_pair = found // len(PLACES)
found_colours, found_digits = found_pair // len(WORDS), found_pair % len(WORDS)
wrong = {}
for name, rows in (("seen", ~unseen), ("unseen", unseen)):
    shares = [(a != b)[rows].mean() for a, b in ((found_colours, colours), (found_digits, digits))]
    wrong[name] = (~right[3])[rows].mean()
    print(f"{name:>6} pairs: wrong {wrong[name]:.1%}; colour wrong in {shares[0]:.1%}, digit in {shares[1]:.1%}")
is_known = np.isin(found[unseen & ~right[3]], split.train.labels)
print(f"of the wrong answers to unseen pairs, {is_known.mean():.0%} are captions that the model knows")
assert wrong["unseen"] > 2 * wrong["seen"] and is_known.mean() > 0.5
assert (held_out(digits) == colours)[unseen].all()

# %% [markdown]
# ## Where it fails: counting
#
# One, two, three or four sevens in one image, in the four quarters. The words "one" to "four" are in its vocabulary,
# but the training has used them for the digits. Which text is chosen: "one red seven", "two red seven", …?

# %%
number = len(COLOURS) * 60
counts = random.integers(1, 5, number)
shown = np.tile(np.repeat(np.arange(len(COLOURS)), 10), number // 60)
rows = [random.choice(np.flatnonzero((colours == colour) & (digits > 4))) for colour in shown]
scenes = np.zeros((number, 3, 16, 16), "uint8")
for scene, row, count in zip(scenes, rows, counts):
    top = np.flatnonzero((test.images[row].max(0).astype(int) - test.images[row].min(0)).max(1) > 60)[:1]
    top = min(int(top[0]) if len(top) else 0, 8) // 4 * 4
    left = 4 * int(test.labels[row] % len(PLACES))
    digit = test.images[row][:, top : top + 8, left : left + 8]
    for quarter in random.permutation(4)[:count]:
        y, x = 8 * (quarter // 2), 8 * (quarter % 2)
        scene[:, y : y + 8, x : x + 8] = digit
figure, axes = plt.subplots(1, 6, figsize=(9, 1.7))
for axis, scene, count in zip(axes, scenes[::61], counts[::61]):
    axis.imshow(scene.transpose(1, 2, 0))
    axis.set_title(str(count), fontsize=9)
    axis.axis("off")
plt.show()
chosen = []
for scene, row in zip(test.normalise(scenes), rows):
    what = f"{list(COLOURS)[colours[row]]} {WORDS[digits[row]]}"
    vectors = text_vectors(model, tokenizer, [f"{count} {what}" for count in WORDS[1:5]])
    chosen.append(1 + image_logits(model, vectors, scene[None], threads=1).argmax())
counted = (np.array(chosen) == counts).mean()
print(f"the right number is chosen in {counted:.1%}; chance {1 / 4:.1%}")
assert counted < 0.4

# %% [markdown]
# The loss has never required counting, so the model hasn't learned it; a network learns what tells the captions of a
# batch apart, and no more. CLIP's own 400 million captions say little about numbers either, and the paper (section
# 3.1.5) finds it weak at counting, too.
#
# ## Exercises
#
# **1.** At the start all vectors are nearly alike, so that every softmax is uniform. What is the loss of a batch of 256
# pairs? Put your number in place of `None`, to two digits after the point.

# %%
my_first_loss = None

# %%
first_loss, _ = F.contrastive_loss(np.zeros((256, 256)))
hint = "The right one of 256 has the probability 1/256."
exercises.check_number("my_first_loss", my_first_loss, first_loss, hint, 0.006)

# %% [markdown]
# **2.** The gradient of the table of words. `print(exercises.describe("embedding_backward"))` describes its arguments
# and results.


# %%
def my_embedding_backward(dy, index, count):
    # dy: (B, T, D), index: (B, T). Returns dweight (count, D)
    return np.zeros((count, dy.shape[-1]))


exercises.check("embedding_backward", my_embedding_backward)

# %% [markdown]
# **3.** The gradients of the similarities, that of $s$ included.


# %%
def my_similarity_backward(dy, images, texts, scale):
    # dy: (B, K), images: (B, D), texts: (K, D). Returns dimages, dtexts, dscale
    return np.zeros_like(images), np.zeros_like(texts), 0.0


exercises.check("similarity_backward", my_similarity_backward)

# %% [markdown]
# **4.** The gradient of the contrastive loss.


# %%
def my_contrastive_loss_backward(logits):
    # logits: (B, B). Returns dlogits
    return np.zeros_like(logits)


exercises.check("contrastive_loss_backward", my_contrastive_loss_backward)

# %% [markdown]
# **5.** Zero-shot classification with an ensemble of prompts.


# %%
def my_zero_shot(images, prompts):
    # images: (B, D), prompts: (K, P, D). Returns the cosines (B, K)
    return np.zeros((len(images), len(prompts)))


exercises.check("zero_shot", my_zero_shot)

# %% [markdown]
# **6.** Attention in which a word sees itself and those before it.


# %%
def my_causal_attention(q, k, v):
    # q, k: (B, H, N, d). v: (B, H, N, e)
    return np.zeros_like(v)  # in place of this, the heads (B, H, N, e)


exercises.check("causal_attention", my_causal_attention)

# %% [markdown]
# **7.** The contrastive loss, forwards.


# %%
def my_contrastive_loss(logits):
    # logits: (B, B)
    return 0.0  # in place of this, the loss, a number


exercises.check("contrastive_loss", my_contrastive_loss)
