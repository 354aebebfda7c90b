# %% [markdown]
# # 00 · Using the chain rule
#
# Training needs the answer to one question: how does the loss change if one number of the model changes a little? This
# notebook takes you from the chain rule that you know, of one variable, to the gradients of whole arrays, and shows the
# NumPy that you need on the way.
#
# You need some Python, and you should know that $(u^2)' = 2u$ and that $f(g(x))' = f'(g(x))\,g'(x)$. If you have
# written a backward pass before, go on to notebook 01.

# %%
import matplotlib.pyplot as plt
import numpy as np

from tinyvit import exercises, gradcheck

plt.rcParams.update({"figure.dpi": 144, "figure.constrained_layout.use": True})
np.set_printoptions(precision=3, suppress=True)

# %% [markdown]
# ## A graph with numbers on it
#
# Here is the smallest model that there is: it multiplies its input by a weight and adds a bias. The *loss* says how
# far the result is from what it should have been, the target 4:
#
# $$p = w\,x \qquad y = p + b \qquad e = y - 4 \qquad \mathcal L = e^2$$
#
# **Forward**, from the left to the right, with $x = 2$, $w = 3$, $b = -1$:

# %%
x, w, b = 2.0, 3.0, -1.0
p = w * x
y = p + b
e = y - 4
loss = e**2
print(f"p = {p}, y = {y}, e = {e}, loss = {loss}")
assert (p, y, e, loss) == (6, 5, 1, 1)

# %% [markdown]
# **Backward**, from the right to the left. At each step we know how the loss changes with the step's *result*, and
# want to know how it changes with the step's *inputs*. The first is the **upstream gradient**. How the result changes
# with an input is the **local gradient**: it needs only this one step. The chain rule multiplies them:
#
# $$\underbrace{\frac{d\mathcal L}{d\,\text{input}}}_{\text{wanted}} =
#   \underbrace{\frac{d\mathcal L}{d\,\text{result}}}_{\text{upstream}} \cdot
#   \underbrace{\frac{d\,\text{result}}{d\,\text{input}}}_{\text{local}}$$
#
# Everywhere in this course `dw` stands for $d\mathcal L/dw$, the gradient of the loss with respect to `w`, and so on.
# It is one number with the name `dw`, not a small difference.

# %%
dloss = 1.0                # the loss changes with itself at the rate 1
de = dloss * 2 * e         # (e²)' = 2e
dy = de * 1                # e = y − 4
dp = dy * 1                # y = p + b
db = dy * 1
dw = dp * x                # p = w x: with respect to w, x is a constant factor
dx = dp * w                # and with respect to x, w is
print(f"de = {de}, dy = {dy}, dp = {dp}, db = {db}, dw = {dw}, dx = {dx}")
assert (de, dy, dp, db, dw, dx) == (2, 2, 2, 2, 4, 6)


# %% [markdown]
# The same as a picture. Above each line stands the number that went forward, below it, in red, the gradient that comes
# back. Each circle is one step.

# %%
def draw_graph(axes, steps, lines):
    """Draw a graph. steps: (text, x, y). lines: (from where, to where, text above, below)."""
    for start, end, above, below in lines:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "grey", "shrinkA": 14, "shrinkB": 14})
        (i, j), upright = np.mean([start, end], axis=0), start[0] == end[0]
        here, there = ((i - 0.1, j), (i + 0.1, j)) if upright else ((i, j + 0.1), (i, j - 0.1))
        axes.text(*here, above, ha="right" if upright else "center", va="center" if upright else "bottom", fontsize=9)
        axes.text(*there, below, ha="left" if upright else "center", va="center" if upright else "top", fontsize=9,
                  color="firebrick")  # fmt: skip
    for text, *place in steps:
        axes.text(*place, text, ha="center", va="center", fontsize=11, bbox={"boxstyle": "circle", "fc": "#e8eef7"})
    places = np.array([place for start, end, *_ in lines for place in (start, end)])
    axes.set(xlim=(places[:, 0].min() - 0.3, places[:, 0].max() + 0.3),
             ylim=(places[:, 1].min() - 0.5, places[:, 1].max() + 0.5))  # fmt: skip
    axes.axis("off")


figure, axes = plt.subplots(figsize=(8.5, 2.8))
draw_graph(
    axes,
    [("×", 1.5, 1), ("+", 3, 1), ("−4", 4.5, 1), ("( )²", 6, 1)],
    [
        ((0, 1.7), (1.5, 1), f"x = {x:g}", f"dx = {dx:g}"),
        ((0, 0.3), (1.5, 1), f"w = {w:g}", f"dw = {dw:g}"),
        ((1.5, 1), (3, 1), f"p = {p:g}", f"dp = {dp:g}"),
        ((3, -0.2), (3, 1), f"b = {b:g}", f"db = {db:g}"),
        ((3, 1), (4.5, 1), f"y = {y:g}", f"dy = {dy:g}"),
        ((4.5, 1), (6, 1), f"e = {e:g}", f"de = {de:g}"),
        ((6, 1), (7.5, 1), f"loss = {loss:g}", "dloss = 1"),
    ],
)
plt.show()


# %% [markdown]
# **Is it right?** Move one number a little and see what the loss does. That is the definition of a derivative, and it
# knows nothing of our steps:

# %%
def slope(f, x, h=1e-5):
    """How f changes with x: a central difference."""
    return (f(x + h) - f(x - h)) / (2 * h)


def loss_of(x, w, b):
    return (w * x + b - 4) ** 2


print(slope(lambda w: loss_of(x, w, b), w), slope(lambda b: loss_of(x, w, b), b), slope(lambda x: loss_of(x, w, b), x))
assert abs(slope(lambda w: loss_of(x, w, b), w) - dw) < 1e-6
assert abs(slope(lambda b: loss_of(x, w, b), b) - db) < 1e-6
assert abs(slope(lambda x: loss_of(x, w, b), x) - dx) < 1e-6

# %% [markdown]
# And what is it good for? `dw` is 4: a larger weight makes the loss larger. So make the weight a little smaller, and
# the bias as well, each in proportion to its gradient. That is all there is to a step of training:

# %%
smaller = loss_of(x, w - 0.05 * dw, b - 0.05 * db)
print(f"loss before {loss:g}, after one step {smaller:g}")
assert smaller < loss

# %% [markdown]
# ## A value that is used twice: add its gradients
#
# In the next graph $x$ goes into two steps:
#
# $$a = x^2 \qquad c = 3x \qquad \mathcal L = a + c$$
#
# Move $x$ by a little $h$. Then $a$ moves by $2x\,h$ and $c$ by $3h$, and the loss by both together. So the gradients
# of the two paths **add up**:
#
# $$dx = \underbrace{da \cdot 2x}_{\text{through } a} + \underbrace{dc \cdot 3}_{\text{through } c}$$

# %%
x = 2.0
a, c = x**2, 3 * x
loss = a + c
da, dc = 1.0, 1.0          # loss = a + c: both local gradients are 1
dx = da * 2 * x + dc * 3
print(f"dx = {dx:g}: {da * 2 * x:g} through a, {dc * 3:g} through c")
assert dx == 4 + 3 and abs(slope(lambda x: x**2 + 3 * x, x) - dx) < 1e-6

figure, axes = plt.subplots(figsize=(6, 2.8))
draw_graph(
    axes,
    [("x", 0, 0), ("( )²", 2, 0.8), ("× 3", 2, -0.8), ("+", 4, 0)],
    [
        ((0, 0), (2, 0.8), f"{x:g}", f"{da * 2 * x:g}"),
        ((0, 0), (2, -0.8), f"{x:g}", f"{dc * 3:g}"),
        ((2, 0.8), (4, 0), f"a = {a:g}", f"da = {da:g}"),
        ((2, -0.8), (4, 0), f"c = {c:g}", f"dc = {dc:g}"),
        ((4, 0), (5.5, 0), f"loss = {loss:g}", "dloss = 1"),
    ],
)
plt.show()

# %% [markdown]
# You will meet this sum in every notebook. A ViT's *residual connection* is $y = x + f(x)$, which uses $x$ twice; a
# weight is used by every patch of every image.
#
# ## The NumPy that you need
#
# A model doesn't compute with single numbers but with arrays. Six things are enough to read all the code of this
# course.
#
# **Shapes and axes.** Tokens, the vectors that a ViT works with, are an array of shape (B, N, D): B images in a
# batch, N tokens for each image, D numbers for each token. Axes are counted from 0, and from the end with minus
# signs: axis $-1$ is the last one.

# %%
x = np.arange(24.0).reshape(2, 3, 4)       # (B, N, D): 2 images, 3 tokens each, 4 numbers each
print(x)
assert x[1, 2].shape == (4,)               # the last token of the second image

# %% [markdown]
# **`axis`** says which axis goes away in a sum or a mean. **`keepdims=True`** leaves it in place, with size 1.

# %%
assert x.sum().shape == ()                               # all of it: one number
assert x.sum(axis=0).shape == (3, 4)                     # over the images
assert x.sum(axis=-1).shape == (2, 3)                    # over each token's numbers
assert x.sum(axis=(0, 1)).shape == (4,)                  # over all tokens of all images
assert x.mean(axis=-1, keepdims=True).shape == (2, 3, 1)
print(x.mean(axis=-1, keepdims=True)[0])

# %% [markdown]
# **Broadcasting.** If two shapes differ, NumPy lines them up *at their last axes*. An axis of size 1, or one that
# isn't there, is repeated as often as needed. This is where `keepdims` matters: with it, each token's own mean is
# taken from it. Without it, the means are lined up with the wrong axis: usually an error, and if the sizes happen to
# be equal, wrong numbers without any error.

# %%
centred = x - x.mean(axis=-1, keepdims=True)             # (2, 3, 4) − (2, 3, 1)
np.testing.assert_allclose(centred.mean(axis=-1), 0, atol=1e-12)

square = np.arange(9.0).reshape(3, 3)
wrong = square - square.mean(axis=-1)                    # (3, 3) − (3,): lined up with the columns
print("means of the rows afterwards:", wrong.mean(axis=-1), "and they should all be 0")
assert np.abs(wrong.mean(axis=-1)).max() > 1

# %% [markdown]
# **`reshape`** keeps the numbers in the order in which one reads, and divides them into rows anew. Often it makes one
# long list of rows out of all tokens of all images; $-1$ means "whatever fits".

# %%
rows = x.reshape(-1, 4)                                  # (6, 4)
assert rows.shape == (6, 4) and (rows[3] == x[1, 0]).all()
assert (rows.reshape(x.shape) == x).all()                # and back

# %% [markdown]
# **`.mT`** exchanges the last two axes: it transposes each matrix in a stack of matrices. (`.T` reverses *all* axes.
# With two axes both do the same.) **`@`** multiplies matrices, and in a stack each with its partner:
#
# $$(A B)_{ij} = \sum_k A_{ik} B_{kj}$$

# %%
assert x.mT.shape == (2, 4, 3) and x.T.shape == (4, 3, 2)
products = x @ x.mT                                      # (2, 3, 4) @ (2, 4, 3): for each image, token by token
assert products.shape == (2, 3, 3)
assert products[1, 0, 2] == sum(x[1, 0, d] * x[1, 2, d] for d in range(4))

# %% [markdown]
# **`einsum`** writes such products with a letter for each axis; it sums over the letters that aren't after the arrow.
# It is slower, but easy to read, and good for checking.

# %%
assert (np.einsum("bnd,bmd->bnm", x, x) == products).all()
assert (np.einsum("bnd->d", x) == x.sum(axis=(0, 1))).all()

# %% [markdown]
# ## A value that is broadcast: sum its gradient
#
# A bias $b$ of shape (D,) is added to every token, $y_{bnd} = x_{bnd} + b_d$. Broadcasting writes it as `x + bias`, and
# hides that each of the D numbers is used B·N times. So its gradient is a sum over all the uses, by the same rule as
# above.
#
# $$dx = dy \qquad d\text{bias}_d = \sum_{b,n} dy_{bnd}$$
#
# You can check this without any formula. As the loss take $\mathcal L = \sum dy \cdot y$ with some fixed array $dy$:
# its gradient with respect to $y$ is just $dy$. Then move one number of the bias:

# %%
generator = np.random.default_rng(0)
x, bias, dy = generator.standard_normal((2, 3, 4)), generator.standard_normal(4), generator.standard_normal((2, 3, 4))


def loss_with_bias_2(number):
    """The loss if this number stands in place of bias[2]."""
    changed = bias.copy()
    changed[2] = number
    return (dy * (x + changed)).sum()


dbias = dy.sum(axis=(0, 1))
print(f"by the rule {dbias[2]:.6f}, by moving it {slope(loss_with_bias_2, bias[2]):.6f}")
assert dbias.shape == bias.shape and abs(dbias[2] - slope(loss_with_bias_2, bias[2])) < 1e-6

# %% [markdown]
# Two habits catch most mistakes. **A gradient has the shape of what it is the gradient of**: `dbias` is (D,), like
# `bias`. And **forward repeats, backward sums**, along the same axes; and the other way round: what the forward sums,
# the backward repeats.

# %%
x = generator.standard_normal((3, 4))
dy = generator.standard_normal((3, 1))                   # the gradient of y = x.sum(axis=-1, keepdims=True)
dx = np.broadcast_to(dy, x.shape)                        # every number of a row went into that row's sum, with factor 1
assert dx.shape == x.shape and (dx[1] == dy[1]).all()

# %% [markdown]
# ## From one number to many: the Jacobian
#
# Let a step turn a vector $x$ into a vector $y$. Each $x_j$ may go into each $y_i$, so by the rule of the sum
#
# $$dx_j = \sum_i dy_i \, \frac{\partial y_i}{\partial x_j}$$
#
# ($\partial$ is a $d$ that reminds you that there are other variables, which stay as they are.) All local gradients
# together are a table, the **Jacobian** $J$, with one row for each result and one column for each input:
# $J_{ij} = \partial y_i / \partial x_j$. For an input $j$ we add down its column $j$, which is a row of the transposed
# table:
#
# $$dx = J^\top dy$$
#
# That is the chain rule for arrays, and the only formula in this notebook to learn by heart. With numbers: two
# results of three inputs,
#
# $$y_0 = x_0\, x_1 \qquad y_1 = x_0 + x_2^2$$

# %%
x = np.array([2.0, 3.0, 1.0])
dy = np.array([10.0, 1.0])                               # upstream: the loss changes ten times as fast with y₀
J = np.array([
    [x[1], x[0], 0.0],                                   # y₀ with respect to x₀, x₁, x₂
    [1.0, 0.0, 2 * x[2]],                                # y₁
])  # fmt: skip
dx = J.T @ dy
print("J\n", J, "\ndx", dx)
assert dx.tolist() == [10 * 3 + 1 * 1, 10 * 2, 1 * 2]

# %% [markdown]
# **Nobody builds J.** One attention layer of ViT-B/16 turns 197×768 numbers into as many, so its Jacobian would have
# more than twenty billion entries. A backward computes the product $J^\top dy$ directly, and for most steps that is
# short:
#
# | forward | Jacobian | backward, $J^\top dy$ |
# | --- | --- | --- |
# | `y = x + b` | ones on the diagonal | `dx = dy` |
# | `y = x * w` | $w$ on the diagonal | `dx = dy * w` |
# | `y = np.exp(x)` | $e^{x}$ on the diagonal | `dx = dy * y` |
# | `y = W @ x` | $W$ itself | `dx = W.T @ dy` |
# | `y = x.sum()` | one row of ones | `dx = dy` for each |
# | `y = x[order]` | one 1 in each row | `np.add.at(dx, order, dy)`, from zeros |
#
# (`np.add.at` adds up the gradients of an entry that `order` names more than once; `dx[order] = dy` would keep only the
# last one.) Here is a check of three rows, with Jacobians that are built for once, by moving one input at a time:

# %%
def jacobian(f, x):
    """The table of all ∂y_i/∂x_j, by central differences: column j says what moving x_j does."""
    columns = [slope(lambda number, j=j: f(np.where(np.arange(x.size) == j, number, x)), x[j]) for j in range(x.size)]
    return np.stack(columns, axis=1)


x, W, dy = generator.standard_normal(3), generator.standard_normal((4, 3)), generator.standard_normal(4)
print(jacobian(np.exp, x))
np.testing.assert_allclose(jacobian(np.exp, x), np.diag(np.exp(x)), atol=1e-6)
np.testing.assert_allclose(jacobian(lambda x: W @ x, x), W, atol=1e-6)
np.testing.assert_allclose(jacobian(lambda x: W @ x, x).T @ dy, W.T @ dy, atol=1e-6)
order, dx = [2, 0, 2, 2], np.zeros(3)                     # entry 2 is used three times, entry 1 not at all
np.add.at(dx, order, dy)
np.testing.assert_allclose(jacobian(lambda x: x[order], x).T @ dy, dx, atol=1e-6)
assert (197 * 768) ** 2 > 20_000_000_000

# %% [markdown]
# Two steps, one after the other, $y = f(x)$ and then $z = g(y)$: first $dy = J_g^\top dz$, then
# $dx = J_f^\top dy$. So **a backward is the forward read from the bottom up**. That is the whole method, and it
# stays the same for a ViT with a hundred steps.
#
# ## A pair of functions
#
# In this course each step is a pair. The forward returns its result and a *cache*, what the backward will need. The
# backward gets the upstream gradient and that cache. Here are two pairs and what is made of them:

# %%
def times(x, weight):                                    # x: (N, D), weight: (D,)
    return x * weight, (x, weight)


def times_backward(dy, cache):
    x, weight = cache
    return dy * weight, (dy * x).sum(axis=0)             # weight was broadcast to N rows: sum over them


def square(x):
    return x**2, x


def square_backward(dy, cache):
    return dy * 2 * cache


def square_of_times(x, weight):
    y, times_cache = times(x, weight)
    z, square_cache = square(y)
    return z, (times_cache, square_cache)


def square_of_times_backward(dz, cache):
    times_cache, square_cache = cache
    dy = square_backward(dz, square_cache)               # the last step first
    dx, dweight = times_backward(dy, times_cache)
    return dx, dweight


# %% [markdown]
# `gradcheck.check` compares such a pair with derivatives of the forward alone, every number of every gradient. You can
# use it for anything that you write.

# %%
report = gradcheck.check(square_of_times, square_of_times_backward, (generator.standard_normal((3, 4)), np.arange(4.0)))
print(report)
assert report.max_error < 1e-10


def forgot_the_sum(dz, cache):
    (x, weight), square_cache = cache
    dy = square_backward(dz, square_cache)
    return dy * weight, (dy * x)[0]                      # the first row's gradient in place of the sum


wrong = gradcheck.check(square_of_times, forgot_the_sum, (generator.standard_normal((3, 4)), np.arange(4.0)))
assert wrong.worst.name == "weight" and wrong.max_error > 0.1

# %% [markdown]
# ## Exercises
#
# Take a pencil. Put your numbers in place of `None`, run the cell, and then the one below it: it says whether they are
# right.
#
# **1.** A graph: $p = w\,x$, $\mathcal L = (p - 1)^2$, with $x = 3$ and $w = 2$. What are $dp$, $dw$ and $dx$?

# %%
answer_dp, answer_dw, answer_dx = None, None, None

# %%
dp, dw, dx = (slope(f, at) for f, at in (
    (lambda p: (p - 1) ** 2, 2 * 3), (lambda w: (w * 3 - 1) ** 2, 2), (lambda x: (2 * x - 1) ** 2, 3)
))  # fmt: skip
exercises.check_number("answer_dp", answer_dp, dp, "(u²)' = 2u, and u is p − 1. What is p?", 1e-6)
exercises.check_number("answer_dw", answer_dw, dw, "Upstream times local: dp, times what w is multiplied by.", 1e-6)
exercises.check_number("answer_dx", answer_dx, dx, "Upstream times local: dp, times what x is multiplied by.", 1e-6)

# %% [markdown]
# **2.** A value that is used twice: $a = x^2$, $\mathcal L = a \cdot x$, at $x = 2$. What is $da$, and what is $dx$,
# through both paths together?

# %%
answer_da, answer_both = None, None

# %%
da, both = slope(lambda a: a * 2, 2**2), slope(lambda x: x**2 * x, 2)
exercises.check_number("answer_da", answer_da, da, "loss = a · x: with respect to a, x is a constant factor.", 1e-6)
exercises.check_number("answer_both", answer_both, both, "The loss depends on x directly, and through a.", 1e-6)

# %% [markdown]
# **3.** Axes: `x` has the shape (2, 5, 3). What are the shapes of `x.sum(axis=1)`, of `x.mean(axis=-1,
# keepdims=True)`, and of `x.mT`? Write them as tuples.

# %%
answer_sum, answer_mean, answer_mT = None, None, None

# %%
x = np.zeros((2, 5, 3))
exercises.check_number("answer_sum", answer_sum, x.sum(axis=1).shape, "Axis 1 goes away; the others stay.")
exercises.check_number("answer_mean", answer_mean, x.mean(axis=-1, keepdims=True).shape, "keepdims leaves a 1 there.")
exercises.check_number("answer_mT", answer_mT, x.mT.shape, "Only the last two axes are exchanged.")

# %% [markdown]
# **4.** `x` holds the numbers 0, 1, 2, … 11 in the shape (2, 6). Which three numbers are in `x.reshape(4, 3)[2]`? And
# what is `np.einsum("ij->i", x)`, two numbers?

# %%
answer_reshape, answer_einsum = None, None

# %%
x = np.arange(12).reshape(2, 6)
exercises.check_number("answer_reshape", answer_reshape, x.reshape(4, 3)[2], "Write 0 to 11 as one reads, three a row.")
exercises.check_number("answer_einsum", answer_einsum, np.einsum("ij->i", x), "j isn't after the arrow: sum over it.")

# %% [markdown]
# **5.** The Jacobian: $y_0 = 3x_0$, $y_1 = x_0\, x_1$, at $x = (2, 5)$, with $dy = (1, 2)$. What is $dx$, two numbers?

# %%
answer_vector = None

# %%
J = jacobian(lambda x: np.array([3 * x[0], x[0] * x[1]]), np.array([2.0, 5.0]))
hint = "J has a row for each result: first what y₀ does if x₀ or x₁ moves, then y₁. Transpose it."
exercises.check_number("answer_vector", answer_vector, J.T @ (1, 2), hint, 1e-6)

# %% [markdown]
# **6.** Now write a backward. The forward is `y = x * weight + bias`, with `x` of shape (B, N, D), and `weight` and
# `bias` of shape (D,). It is the last step of every layer norm. Which of the three gradients are sums, and over which
# axes?
#
# `exercises.check` calls your function and answers as a teacher would: right, or which result is wrong in which entry,
# and which of the usual mistakes it looks like.


# %%
def my_scale_and_shift_backward(dy, x, weight):
    # dy: (B, N, D), the gradient of y. x: (B, N, D). weight: (D,)
    dx, dweight, dbias = np.zeros_like(x), np.zeros_like(weight), np.zeros_like(weight)
    return dx, dweight, dbias                                          # in place of the zeros, the gradients


exercises.check("scale_and_shift_backward", my_scale_and_shift_backward)

# %% [markdown]
# **7.** All rules at once: `y = x - x.mean(-1, keepdims=True)`, the first step of a layer norm. `x` goes into it
# twice, and the mean is broadcast. So the mean's gradient is minus the sum of `dy` over the row; and as an entry moves
# the mean by 1/D of its own change, it gets 1/D of that gradient.


# %%
def my_centre_backward(dy):
    # dy: (N, D), the gradient of y
    return np.zeros_like(dy)                                           # in place of this, the gradient of x


exercises.check("centre_backward", my_centre_backward)

# %% [markdown]
# If you got this far, you have everything that the derivations in notebooks 01 to 05 use.
