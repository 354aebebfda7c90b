# %% [markdown]
# # 20 · Attention on a GPU
#
# The same formula can take a GPU ten times as long when it is written one way as when it is written another. This
# notebook goes from the plain way through one that never writes its scores down to the tensor cores' own matrix
# products, step by step in NumPy, and counts what each moves and computes. No GPU is needed.
#
# (What the letters mean: [the symbols](00_tour.ipynb#The-symbols).)

# %%
import inspect
import json
import platform
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from tinyvit import exercises, gradcheck
from tinyvit import functional as F
from tinyvit.training.trained import load_trained

plt.rcParams.update({"figure.dpi": 110, "figure.constrained_layout.use": True})
np.set_printoptions(precision=4, suppress=True)
random = np.random.default_rng(0)

# %% [markdown]
# ## The roofline
#
# A GPU does two things at a time: it moves numbers between its memory and its cores, and it computes with them.
# Whichever takes longer determines the time. An NVIDIA H200 moves at most 4.8 TB a second, and its tensor cores compute
# at most 989 Tflop/s in bfloat16 (a multiplication and an addition are two operations). So for every byte that is moved
# it could compute
#
# $$\frac{989 \cdot 10^{12}}{4.8 \cdot 10^{12}} \approx 206$$
#
# operations. What a kernel computes per byte is its **arithmetic intensity**. Below 206, the ridge of the roof, it
# waits for the memory, and the only way to make it faster is to move less. An addition of vectors in bfloat16 has an
# intensity of ⅙, a norm or a GELU a few operations per byte: all of these are as slow as the memory is.

# %%
BANDWIDTH, TENSOR_CORES, ORDINARY_CORES = 4.8e12, 989e12, 67e12  # of an H200: bytes/s, operations/s
RIDGE = TENSOR_CORES / BANDWIDTH


def seconds_at_best(operations, moved, rate=TENSOR_CORES):
    """The time of a kernel at the roof: for what it computes or for what it moves, whichever is longer."""
    return max(operations / rate, moved / BANDWIDTH)


def product(m, k, n, size=2):
    """(operations, bytes moved) of a matrix product whose numbers have `size` bytes: each matrix is moved once."""
    return 2 * m * k * n, size * (m * k + k * n + m * n)


B, T, D, H = 1024, 64, 192, 12  # the recipe cifar10: images in a batch, tokens, width, heads
d = D // H
rows = B * T
for name, shape in {"qkv": (rows, D, 3 * D), "fc1": (rows, D, 2 * D), "8192 × 8192": (8192, 8192, 8192)}.items():
    operations, moved = product(*shape)
    print(f"{name:<12} {operations / moved:7.1f} operations per byte, at best "
          f"{1e6 * seconds_at_best(operations, moved):7.1f} µs")  # fmt: skip
assert round(RIDGE) == 206 and product(*(8192,) * 3)[0] / product(*(8192,) * 3)[1] > RIDGE
assert product(rows, D, 3 * D)[0] / product(rows, D, 3 * D)[1] < RIDGE

# %% [markdown]
# The products of a model 192 wide lie left of the ridge, too: it is too narrow for the tensor cores. A product of
# two matrices of 8192 × 8192 lies far to the right.
#
# ## The plain way: all scores go through the memory
#
# Attention is two products with a softmax between them. Written as three kernels, one after the other, the first writes
# $B \cdot H \cdot T^2$ scores to the memory; the softmax reads them and writes as many probabilities; the last one
# reads these. In float32 that is 16 bytes for each pair of tokens, in every head of every image:
#
# $$16\, B H T^2 + 4 \cdot 2\, B T D$$
#
# bytes with the second term for $q$, $k$, $v$ and $y$ in bfloat16. Both products together compute $4\, B H T^2 d$
# operations. NumPy does just this, and its arrays have these sizes:


# %%
def attention_operations(B, H, T, d):
    return 4 * B * H * T * T * d


def plain_bytes(B, H, T, d):
    return 16 * B * H * T * T + 8 * B * H * T * d


def fused_bytes(B, H, T, d):
    return 8 * B * H * T * d  # q, k, v and y, and no scores


q, k, v = random.standard_normal((3, 2, 3, T, d)).astype("float32")
scores = q @ k.mT * d**-0.5
probs = np.exp(scores - scores.max(-1, keepdims=True))
probs /= probs.sum(-1, keepdims=True)
y = probs @ v
assert np.allclose(y, F.attention(q, k, v)[0], atol=1e-6)
written_and_read = 2 * (scores.nbytes + probs.nbytes)
in_bfloat16 = (q.nbytes + k.nbytes + v.nbytes + y.nbytes) // 2
assert written_and_read + in_bfloat16 == plain_bytes(2, 3, T, d)
for name, moved in {"plain": plain_bytes(B, H, T, d), "fused": fused_bytes(B, H, T, d)}.items():
    operations = attention_operations(B, H, T, d)
    print(f"{name}: {moved / 1e6:5.0f} MB, {operations / moved:5.1f} operations per byte, "
          f"at best {1e6 * seconds_at_best(operations, moved):5.1f} µs")  # fmt: skip
assert plain_bytes(B, H, T, d) == 9 * fused_bytes(B, H, T, d)

# %% [markdown]
# That is one layer's forward for 1,024 images of the recipe `cifar10`, 64 tokens (without the class token) 16 wide.
# The scores are nine tenths of what is moved, and nobody needs them afterwards: they can be computed again from $q$
# and $k$. A kernel that keeps them inside the cores moves $q$, $k$, $v$ and $y$, once each.
#
# ## Fused: one KV tile after the other
#
# What is inside the cores is small: an SM (streaming multiprocessor; an H200 has 132) has 228 kB of shared memory and
# 256 kB of registers. So a block of threads takes a few queries and goes over the keys and values in tiles. The softmax
# seems to prevent that, as its largest score and its sum are known only after the last key. **Online softmax** keeps
# the largest score and the sum of the keys so far, and corrects the sums when a larger score comes. For each query,
# with the scores $s$ of the next tile ([notebook 09](09_machine.ipynb) derives it, and the gradient, too):
#
# $$\begin{aligned}
# m' &= \max(m, \max s) \\
# Z' &= Z\, e^{m - m'} + \textstyle\sum_j e^{s_j - m'} \\
# a' &= a\, e^{m - m'} + \textstyle\sum_j e^{s_j - m'} v_j
# \end{aligned} \tag{tiled\_attention}$$
#
# and $y = a / Z$ after the last tile. By hand: the first tile has the scores $0, \ln 3$ and the values $1, 2$, so
# $m = \ln 3$, $Z = \frac13 + 1$, $a = \frac13 + 2$. The second one has the score $\ln 6$ and the value $5$: now
# $m' = \ln 6$, the sums so far are halved, $Z' = \frac23 + 1 = \frac53$, $a' = \frac76 + 5 = \frac{37}6$,
# $y = \frac{37}{10}$. At once: $(1 + 3 \cdot 2 + 6 \cdot 5) / (1 + 3 + 6) = 3.7$.


# %%
def with_tile(m, Z, a, s, values):
    """(m, Z, a) of some queries, (n, 1), (n, 1) and (n, d), after a tile with scores (n, tile) and values (tile, d)."""
    new = np.maximum(m, s.max(-1, keepdims=True))
    before, exps = np.exp(m - new), np.exp(s - new)
    return new, Z * before + exps.sum(-1, keepdims=True), a * before + exps @ values


state = np.full((1, 1), -np.inf), np.zeros((1, 1)), np.zeros((1, 1))
state = with_tile(*state, np.log([[1.0, 3.0]]), np.array([[1.0], [2.0]]))
print("after the first tile:  m, Z, a =", *(float(x.round(4)[0, 0]) for x in state))
m, Z, a = with_tile(*state, np.log([[6.0]]), np.array([[5.0]]))
print("after the second tile: m, Z, a =", *(float(x.round(4)[0, 0]) for x in (m, Z, a)), " y =", float((a / Z)[0, 0]))
assert np.allclose((m, Z, a), np.reshape([np.log(6), 5 / 3, 37 / 6], (3, 1, 1))) and np.isclose(a / Z, 3.7)

TILE, m, Z, a = 16, np.full((T, 1), -np.inf), np.zeros((T, 1)), np.zeros((T, d))
largest = 0
for first in range(0, T, TILE):
    keys, values = (x[0, 0, first : first + TILE] for x in (k, v))
    s = q[0, 0] @ keys.T * d**-0.5
    m, Z, a = with_tile(m, Z, a, s, values)
    largest = max(largest, s.size)
assert np.allclose(a / Z, y[0, 0], atol=1e-6)
print(f"at most {largest} scores at a time instead of {T * T}")
print(inspect.getsource(F.tiled_attention))

# %% [markdown]
# The backward does the same: it computes the scores again from $q$ and $k$, and the probabilities from the $m$ and
# $Z$ that the forward kept, two numbers for each query.

# %%
few = tuple(random.standard_normal((3, 1, 2, 8, 4)))
report = gradcheck.check(lambda q, k, v: F.tiled_attention(q, k, v, tile=3), F.tiled_attention_backward, few)
assert report.max_error < 1e-13
print(f"its gradient is off by {report.max_error:.0e} at most")

# %% [markdown]
# ## Threads, warps, registers
#
# A GPU runs a kernel as a grid of blocks of threads. A block stays on one SM; its threads share the shared memory and
# can wait for each other. 32 threads with consecutive numbers are a **warp**, and a thread's place in it, 0 to 31, is
# its **lane**. A warp gets one instruction at a time for all its lanes. Each thread has registers of its own, 32 bits
# each.
#
# The simplest fused kernel gives a thread one query. The thread holds the query, the sum $a$, and $m$ and $Z$ in
# registers, and for each key of the tile, which is in shared memory, computes $d$ multiply-adds for the score and $d$
# for the sum. This is right and moves no more than necessary, but it is slow for two reasons.
#
# **It computes with the ordinary cores**: 67 instead of 989 Tflop/s. **And it needs many registers**: a backward
# holds four rows of a head, a query, a gradient, two sums. An SM has 65,536 registers. They are dealt out to its blocks
# when these start, in portions of eight for each thread, so that

# %%
REGISTERS, MOST_THREADS = 65536, 2048  # of an SM


def blocks_per_sm(registers, threads):
    """How many blocks fit on an SM at a time, by registers and threads alone."""
    warps = -(-threads // 32)
    return min(REGISTERS // (-(-registers // 8) * 8 * 32 * warps), MOST_THREADS // (32 * warps))


for registers in (32, 64, 128, 197):
    count = blocks_per_sm(registers, 224)
    print(f"{registers:>3} registers in blocks of 224 threads: {count} on an SM, {count * 7} warps")
assert blocks_per_sm(197, 224) == 1 and blocks_per_sm(128, 224) == 2

# %% [markdown]
# One block on an SM is bad: while all of its warps wait for the next tile to arrive, nothing is computed. With several
# blocks, others go on. That is what hides the memory's delay of some hundred cycles.
#
# ## A fragment: a matrix dealt out to a warp
#
# A tensor core multiplies whole matrices. The instruction `mma.m16n8k16` is given to a warp, and computes
# $C \leftarrow A B + C$ for $A$ (16, 16) and $B$ (16, 8) in bfloat16 and $C$ (16, 8) in float32: 4,096 operations at
# once. No lane has a whole matrix. Each holds a **fragment**: 8 numbers of $A$ in four registers, 4 of $B$ in two, 4 of
# $C$ in four. Which ones, NVIDIA's *PTX ISA* says. A lane has a group $g$ from 0 to 7, its number divided by 4, and the
# rest $t$ from 0 to 3. In every matrix it holds neighbours: in $A$ those at $2t$ and $2t + 1$ in the rows $g$ and
# $g + 8$, and the same 8 columns further right; in $C$ the first four of these; in $B$ the rows $2t$, $2t + 1$,
# $2t + 8$ and $2t + 9$ of column $g$.

# %%
lane = np.arange(32)[:, None]
g, t, pair = lane // 4, lane % 4, np.tile([0, 1], 4)
low, right = 8 * np.array([0, 0, 1, 1]), 8 * np.array([0, 0, 0, 0, 1, 1, 1, 1])
A_ROW, A_COLUMN = g + np.tile(low, 2), 2 * t + pair + right                           # (32, 8)
B_ROW, B_COLUMN = 2 * t + pair[:4] + low, np.repeat(g, 4, 1)                          # (32, 4)
C_ROW, C_COLUMN = g + low, 2 * t + pair[:4]                                           # (32, 4)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.9), gridspec_kw={"width_ratios": [16, 8, 8]})
for ax, title, row, column, shape in (
    (axes[0], "A, 16 × 16", A_ROW, A_COLUMN, (16, 16)),
    (axes[1], "B, 16 × 8", B_ROW, B_COLUMN, (16, 8)),
    (axes[2], "C, 16 × 8", C_ROW, C_COLUMN, (16, 8)),
):
    owner = np.full(shape, -1)
    owner[row, column] = lane
    assert (owner >= 0).all() and row.size == owner.size  # each number belongs to one lane, once
    ax.imshow(owner % 8, cmap="Pastel1")
    for i, j in np.ndindex(*shape):
        ax.text(j, i, owner[i, j], ha="center", va="center", fontsize=6)
    ax.set_title(title, fontsize=9)
    ax.set(xticks=(), yticks=())
plt.show()

# %% [markdown]
# The numbers in the picture are lanes. Four lanes of a group share a row of $A$ and of $C$, and a column of $B$. Here
# is the instruction in NumPy. It sees fragments only, (32, numbers), as the tensor core does.


# %%
def mma(a, b, c):
    """c + A B as fragments (32, 4), of fragments of A (32, 8), B (32, 4) and C (32, 4)."""
    A, B = np.zeros((16, 16), c.dtype), np.zeros((16, 8), c.dtype)
    A[A_ROW, A_COLUMN], B[B_ROW, B_COLUMN] = a, b
    return c + (A @ B)[C_ROW, C_COLUMN]


A, B_, C = random.standard_normal((16, 16)), random.standard_normal((16, 8)), random.standard_normal((16, 8))
c = mma(A[A_ROW, A_COLUMN], B_[B_ROW, B_COLUMN], C[C_ROW, C_COLUMN])
assert np.allclose(c, (A @ B_ + C)[C_ROW, C_COLUMN], atol=1e-13)
print("lane 13 holds of C the rows", C_ROW[13], "and the columns", C_COLUMN[13])
assert C_ROW[13].tolist() == [3, 3, 11, 11] and C_COLUMN[13].tolist() == [2, 3, 2, 3]

# %% [markdown]
# ## What the first product leaves is what the second one takes
#
# Attention needs two products in a row: $S = q k^\top$, then $y = P v$. A warp takes 16 queries, and a tile of 16 keys.
# $S$ is 16 × 16, two instructions side by side: the left one leaves the columns 0 to 7 in four numbers of each lane,
# the right one the columns 8 to 15. For the second product $P$ takes the place of $A$, of which each lane needs eight
# numbers. It has just these already:

# %%
LEFT_AND_RIGHT = np.concatenate([C_ROW, C_ROW], 1), np.concatenate([C_COLUMN, C_COLUMN + 8], 1)
assert np.array_equal(LEFT_AND_RIGHT[0], A_ROW) and np.array_equal(LEFT_AND_RIGHT[1], A_COLUMN)
print("lane 13 has the columns", *LEFT_AND_RIGHT[1][13], "of the scores, and needs", *A_COLUMN[13])

# %% [markdown]
# So the scores become probabilities in place, number by number, two of them are rounded to bfloat16 into one register,
# and the second product begins. Nothing goes through shared memory, and no lane needs another one's numbers. Only the
# softmax's largest score and its sum are of a whole row, which four lanes share: each finds those of its own numbers,
# and two shuffles exchange them, first with the neighbour (lane xor 1), then with the pair beside it (lane xor 2).
#
# The other operand comes from shared memory. A lane's pair of $B$ lies in a column: of $k^\top$, these are neighbours
# in a row of $k$, one load of 32 bits. Of $v$, they are rows of their own; `ldmatrix.trans` reads squares of 8 × 8
# numbers and hands each lane its pair.
#
# ## A warp's attention
#
# All of it, as a warp does it: 16 queries, KV tiles of 16 keys, fragments only. bfloat16 has 8 digits of a float32's 24
# bits; both operands of a product are rounded to it, and sums stay in float32.


# %%
def bfloat16(x):
    """x rounded to bfloat16, to the nearest and half to even, and back in float32."""
    bits = np.asarray(x, "float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view("float32")


def over_the_row(x, function):
    """The reduction of each row's numbers (32, 2, numbers), in all four lanes that share the row: (32, 2)."""
    x = function.reduce(x, axis=-1)
    for distance in (1, 2):
        x = function(x, x[np.arange(32) ^ distance])  # a shuffle: every lane gets the other one's number
    return x


def rows_of(c):
    """The numbers of one or more fragments of C (32, 4 · n), as (32, 2, 2 · n): the lane's rows g and g + 8."""
    return c.reshape(32, -1, 2, 2).transpose(0, 2, 1, 3).reshape(32, 2, -1)


def filled(x, tokens=16, width=1):
    """x (T, d) with rows and columns of zeros behind it, up to multiples of `tokens` and `width`."""
    return np.pad(x, ((0, -len(x) % tokens), (0, -x.shape[1] % width)))


def warp_attention(queries, keys, values, scale):
    """softmax(q kᵀ · scale) v for 16 queries (16, d) and keys and values (T, d), as a warp computes it."""
    width, count, scale = queries.shape[1], len(keys), np.float32(scale)
    parts = [slice(i, i + 16) for i in range(0, width, 16)]                           # of the sum over d
    of_queries = [bfloat16(queries)[:, part][A_ROW, A_COLUMN] for part in parts]
    m, Z = np.full((32, 2), -np.inf, "float32"), np.zeros((32, 2), "float32")
    y = [np.zeros((32, 4), "float32") for _ in range(width // 8)]                     # 8 columns each
    for first in range(0, len(keys), 16):
        tile, tile_values = (bfloat16(filled(x[first : first + 16])) for x in (keys, values))
        halves = []
        for half in (slice(0, 8), slice(8, 16)):
            c = np.zeros((32, 4), "float32")
            for a, part in zip(of_queries, parts):
                c = mma(a, tile[half, part].T[B_ROW, B_COLUMN], c)
            halves.append(c)
        s = np.concatenate(halves, 1) * scale                                         # (32, 8)
        s[first + LEFT_AND_RIGHT[1] >= count] = -np.inf                               # behind the last key
        before, m = m, np.maximum(m, over_the_row(rows_of(s), np.maximum))
        factor, row = np.exp(before - m), [0, 0, 1, 1]                                # of a lane's four numbers
        exps = np.exp(s - m[:, row * 2])
        Z = Z * factor + over_the_row(rows_of(exps), np.add)
        of_probs = bfloat16(exps)                                                     # a fragment of A, as it is
        y = [mma(of_probs, tile_values[:, 8 * n : 8 * n + 8][B_ROW, B_COLUMN], c * factor[:, row])
             for n, c in enumerate(y)]  # fmt: skip
    result = np.zeros(queries.shape, "float32")
    for n, c in enumerate(y):
        result[C_ROW, C_COLUMN + 8 * n] = c / Z[:, [0, 0, 1, 1]]
    return result


def attention_by_warps(q, k, v):
    """One head (T, d), a warp for each 16 queries; widths that are no multiple of 16 are filled up with zeros."""
    (count, width), scale = q.shape, q.shape[1] ** -0.5
    q, k, v = filled(q, 16, 16), filled(k, 1, 16), filled(v, 1, 16)
    y = np.concatenate([warp_attention(q[i : i + 16], k, v, scale) for i in range(0, len(q), 16)])
    return y[:count, :width]


found = attention_by_warps(q[0, 0], k[0, 0], v[0, 0])
exact, _ = F.attention(*(bfloat16(x)[:1, :1].astype("float64") for x in (q, k, v)))
error = abs(found - exact[0, 0]).max()
print(f"off by {error:.4f} at most, of numbers up to {abs(exact).max():.2f}; a step of bfloat16 is 1/128 = {2**-7:.4f}")
assert error < 2**-7 * abs(exact).max()

# %% [markdown]
# On a real photograph, cut to 28 × 28 pixels: a head of a trained model (notebook 08) has 50 tokens 32 wide. 50 is no
# multiple of 16: keys after the last one get scores of −∞. (A width that is none is padded with zeros, which change no
# product.)

# %%
trained = load_trained("cifar10-cpu", device="cpu")
pixels = load_sample_image("flower.jpg")[60:368:11, 150:458:11].transpose(2, 0, 1)[None] / 255
mean, std = (np.reshape(numbers, (3, 1, 1)) for numbers in (trained.preprocessing.mean, trained.preprocessing.std))
_, cache = trained.model(((pixels - mean) / std).astype("float32"))
heads = [cache.blocks[i].attn.heads for i in (0, 5)]
figure, axes = plt.subplots(1, 3, figsize=(8, 2.4))
axes[0].imshow(pixels[0].transpose(1, 2, 0))
for ax, block, head in zip(axes[1:], (0, 5), heads):
    one = [x[0, 0].astype("float32") for x in (head.q, head.k, head.v)]
    by_warps, (exact, _) = attention_by_warps(*one), F.attention(*(x[None, None] for x in one))
    error = abs(by_warps - exact[0, 0])
    shown = ax.imshow(error[1:].max(-1).reshape(7, 7) / abs(exact).max(), cmap="magma", vmin=0, vmax=2**-7)
    ax.set_title(f"block {block}: error / largest number", fontsize=8)
    print(f"block {block}: off by {error.max() / abs(exact).max():.4f} of the largest number")
    assert error.max() < 2**-6 * abs(exact).max()
figure.colorbar(shown, ax=axes[2])
for ax in axes:
    ax.set_axis_off()
plt.show()

# %% [markdown]
# What bfloat16 costs is what the roundings of $q$, $k$, $v$ and of the probabilities cost; computing by warps and tiles
# costs nothing.
#
# ## The kernel itself, without a GPU
#
# The package's kernels are CUDA sources, and its tests run them on the CPU: a C++ compiler compiles them with a header
# in which the threads of a block are fibers, a shuffle is an exchange between them, and `mma` is a loop. Where this
# notebook lies in a checkout of the repository on Linux with a C++ compiler, it does the same (the first time takes a
# moment).

# %%
emulator = Path("../tests/pretend_cupy.py")
can_emulate = (
    emulator.exists() and sys.platform == "linux" and platform.machine() == "x86_64"
    and any(map(shutil.which, ("c++", "g++", "clang++")))
)  # fmt: skip
if can_emulate:
    sys.path.insert(0, str(emulator.parent))
    import pretend_cupy

    sys.modules.update(pretend_cupy.MODULES)
    from tinyvit.kernels.cuda import source

    launched = []

    def watch(name, arrays):
        launched.append((name, sum(array.nbytes for array in arrays)))
        return nullcontext()

    on_card = [pretend_cupy.cupy.asarray(x.astype("float16")) for x in (q, k, v)]
    with source.watching(watch):
        emulated, _ = F.attention(*on_card)
    for name, moved in launched:
        print(f"{name} moves {moved:,} bytes in float16; the plain way {plain_bytes(2, 3, T, d):,}")
    error = abs(emulated.get() - y).max()
    print(f"off from NumPy's float32 by {error:.4f} at most")
    assert error < 2e-3 * abs(y).max()
    assert sum(moved for _, moved in launched) < plain_bytes(2, 3, T, d) / 4
else:
    print("This needs a checkout of the repository, Linux on x86-64 and a C++ compiler.")

# %% [markdown]
# ## The roof, with everything under it
#
# The forward of a layer of `cifar10`, as points: how many operations a kernel computes per byte, and at how many a
# second it can at best. The slope is the memory, the flat part are the tensor cores (and, dashed, the ordinary ones).
# Fusing moves attention to the right along the slope. For longer rows it goes on, as the intensity of fused attention
# grows with $T$: it is

# %%
print(f"{attention_operations(B, H, T, d) / fused_bytes(B, H, T, d):g} = T/2 operations per byte for T = {T}")
assert attention_operations(B, H, T, d) / fused_bytes(B, H, T, d) == T / 2
longest = int(2 * RIDGE)
kernels = {
    "attention, plain": (attention_operations(B, H, T, d), plain_bytes(B, H, T, d)),
    "attention, fused": (attention_operations(B, H, T, d), fused_bytes(B, H, T, d)),
    "the same, T = 1024": (attention_operations(4, H, 1024, d), fused_bytes(4, H, 1024, d)),
    "layer norm": (8 * rows * D, 4 * rows * D),
    "product qkv": product(rows, D, 3 * D),
    "product 8192³": product(8192, 8192, 8192),
}
figure, ax = plt.subplots(figsize=(7, 3.4))
intensity = np.logspace(-0.5, 4, 100)
for rate, style, name in ((TENSOR_CORES, "k-", "tensor cores"), (ORDINARY_CORES, "k--", "ordinary cores, float32")):
    ax.loglog(intensity, np.minimum(rate, intensity * BANDWIDTH) / 1e12, style, linewidth=1, label=name)
for name, (operations, moved) in kernels.items():
    here = operations / moved
    ax.loglog(here, operations / seconds_at_best(operations, moved) / 1e12, "o", label=f"{name}: {here:.3g}")
ax.axvline(RIDGE, color="gray", linewidth=0.5)
ax.set(xlabel="operations per byte", ylabel="Tflop/s at best", ylim=(1, 2000))
ax.legend(fontsize=7, loc="lower right")
plt.show()
times = {name: seconds_at_best(*kernel) for name, kernel in kernels.items()}
assert times["attention, plain"] == 9 * times["attention, fused"]
print(f"only from T = {longest} on would the tensor cores be what fused attention waits for")

# %% [markdown]
# These are bounds. A kernel also needs instructions for the rest: each score costs an exponential, a maximum, a factor
# and a rounding. For heads only 16 wide these take longer than the products, and so a kernel for them counts
# instructions. What the package's own kernels need, all of a training step, is in `results/gpu-expected.txt`; its
# kernels of attention, with the registers of a thread as NVIDIA's compiler says:

# %%
expected = json.loads(Path("results/gpu-expected.json").read_text())
for row in expected["kernels"]:
    if "attention" in (row["file"] or "") and row["registers"]:
        print(f"{row['name']:<24} {row['registers']:>3} registers, {row['threads']:>3} threads in a block, "
              f"{row['blocks_per_sm']:>2} on an SM, {row['bytes'] / row['launches'] / 1e6:>4.0f} MB")  # fmt: skip
        assert row["blocks_per_sm"] <= blocks_per_sm(row["registers"], row["threads"])
        assert row["spilled"] == 0

# %% [markdown]
# ## Exercises
#
# **1.** A head is 64 wide and has 4,096 tokens. How many operations per byte has fused attention, with $q$, $k$, $v$
# and $y$ in bfloat16, moved once each? Put your number in place of `None`.

# %%
my_intensity = None

# %%
answer = attention_operations(1, 1, 4096, 64) / fused_bytes(1, 1, 4096, 64)
hint = "4 T² d operations, and 4 arrays of T d numbers of 2 bytes."
exercises.check_number("my_intensity", my_intensity, answer, hint)

# %% [markdown]
# **2.** Two SMs have each gone over half of the keys for the same queries, and each has $m$, $Z$ and $a$. Put them
# together. `print(exercises.describe("merge_tiles"))` describes its arguments and results.


# %%
def my_merge_tiles(m1, Z1, a1, m2, Z2, a2):
    # m and Z: (N,), a: (N, d), of the first and of the second half. Returns y, (N, d)
    return np.zeros_like(a1)


exercises.check("merge_tiles", my_merge_tiles)

# %% [markdown]
# **3.** Deal $A$ out to the lanes.


# %%
def my_to_fragments(A):
    # A: (16, 16). Returns fragments, (32, 8), a row for each lane
    return np.zeros((32, 8))


exercises.check("to_fragments", my_to_fragments)
