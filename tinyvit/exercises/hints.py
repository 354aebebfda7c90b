"""Hints between the task and the solution: first a question, then the shape of the formula, then the formula."""

from tinyvit.exercises.catalogue import find
from tinyvit.exercises.hints_of_the_family import HINTS as HINTS_OF_THE_FAMILY

GIVEN = {}  # how many hints of an exercise were given, by its name


def hint(name, number=None):
    """The next hint of an exercise as text, at each call; after the last one it says how to see the solution.

    number   1, 2 or 3: this hint, without counting it

    Raises ValueError for an unknown name and another number.
    """
    find(name)
    hints = HINTS[name]
    if number is not None and number not in range(1, len(hints) + 1):
        raise ValueError(f"hint: expected a number from 1 to {len(hints)}, got {number!r}")
    place = GIVEN.get(name, 0) if number is None else number - 1
    if number is None:
        GIVEN[name] = min(place + 1, len(hints))
    if place == len(hints):
        return f'{name}: that were all hints. print(exercises.solution("{name}")) shows the solution.'
    return f"{name}, hint {place + 1} of {len(hints)}: {hints[place]}"


HINTS = {
    "scale_and_shift_backward": (
        "How many rows used weight, and how many used bias? What does a thing get that is used many times?",
        "Upstream times local for each entry; then a sum over the axes along which the array was repeated.",
        "dx is dy times weight. dweight is the sum of dy * x, and dbias the sum of dy, over the axes 0 and 1.",
    ),
    "centre_backward": (
        "In which two ways does an entry of x go into y?",
        "The direct way gives dy. The mean is subtracted from each entry of its row: its gradient is minus a sum.",
        "An entry moves its row's mean by 1/D: dx is dy minus the mean of dy over the row, axis=-1 with keepdims.",
    ),
    "patchify": (
        "An image has rows and columns of pixels, and both are cut in two. How many axes has it then?",
        "(B, C, H, W) → reshape to six axes → transpose → reshape to (B, N, C·P·Q).",
        "The six axes are (B, C, H/P, P, W/Q, Q). They have to become (B, H/P, W/Q, C, P, Q) before the last reshape.",
    ),
    "patchify_backward": (
        "Nothing was added or multiplied on the way forward. What can the gradient be, other than moved numbers?",
        "The reshapes and the transpose of the forward, undone in the opposite order.",
        "From (B, H/P, W/Q, C, P, Q) back to (B, C, H/P, P, W/Q, Q): which transpose is the inverse of the forward's?",
    ),
    "embed": (
        "Which of the tokens get a position: those of the patches, or all?",
        "tokens = [class token; projected patches] + positions, with one class token for each image.",
        "z₀ = [x_class; x₁ E + b; …; x_N E + b] + E_pos, with E = weightᵀ. Repeat the class token B times.",
    ),
    "embed_backward": (
        "The class token and the positions are the same for all images. What does that mean for their gradients?",
        "The first token's gradient belongs to the class token, the others' to the projection; all to the positions.",
        "dE_pos = Σ_b dy, dx_class = Σ_b dy of token 0; the rest of dy goes into the backward of a linear layer.",
    ),
    "linear": (
        "weight is (K, D) and a row of x has D numbers. Which product gives K numbers?",
        "(B, N, D) times (D, K), plus K numbers that broadcast.",
        "y = x Wᵀ + b, with b along the last axis.",
    ),
    "linear_backward": (
        "How many rows of x met the same weight, and the same bias? What becomes of their gradients?",
        "dx is (B, N, K) times (K, D); dweight (K, rows) times (rows, D); dbias a sum over the rows.",
        "dx = dy W, dW = Σ over all rows dyᵀ x, db = Σ over all rows dy. With rows made of B and N by a reshape.",
    ),
    "layernorm": (
        "Mean and variance of what: of a row, of a column, or of everything? Which axis must be kept for broadcasting?",
        "y = weight · (x − mean) / √(variance + ε) + bias.",
        "μ = 1/D Σ x, σ² = 1/D Σ (x − μ)², x̂ = (x − μ) / √(σ² + ε), y = γ x̂ + β; means over the last axis, keepdims.",
    ),
    "layernorm_backward": (
        "A number of a row changes its mean and its deviation, and so all outputs. How many paths are there?",
        "dx = 1/σ · (g − something that is the same in the row − x̂ · something that is the same in the row), g = dy γ.",
        "dx = (g − mean(g) − x̂ mean(g x̂)) / √(σ² + ε); dγ = Σ dy x̂ and dβ = Σ dy, over all rows.",
    ),
    "rmsnorm": (
        "What is left of a layer norm if no mean is subtracted?",
        "y = weight · x / (the root of a mean + ε).",
        "y = γ x / √(1/D Σ x² + ε), the sum over the last axis, keepdims.",
    ),
    "rmsnorm_backward": (
        "A layer norm's gradient has two terms besides g, one for the mean and one for the deviation. Which one stays?",
        "dx = r · (g − x̂ · something that is the same in the row), with g = dy γ and x̂ = r x.",
        "dx = r (g − x̂ mean(g x̂)), r = 1/√(mean(x²) + ε); dγ = Σ dy x̂ over all rows.",
    ),
    "softmax": (
        "exp(1000) is infinite. What may be subtracted from a whole row without changing its softmax?",
        "Exponentials divided by their sum, row by row.",
        "p = exp(x − m) / Σ exp(x − m), where m is the largest x of the row; keepdims.",
    ),
    "softmax_backward": (
        "The probabilities of a row always add up to 1. What comes out for a dy that is the same in the whole row?",
        "dx = p · (dy − something that is the same in the row).",
        "dxᵢ = pᵢ (dyᵢ − Σⱼ dyⱼ pⱼ), since ∂pⱼ/∂xᵢ = pⱼ (δᵢⱼ − pᵢ).",
    ),
    "attention": (
        "Of M queries and N keys, how many scores are there? Which axis has to add up to 1 after the softmax?",
        "(M, d) times (d, N), scaled; a softmax; times (N, e).",
        "y = softmax(q kᵀ / √d) v, the softmax over the keys; kᵀ exchanges the last two axes only.",
    ),
    "attention_backward": (
        "Two products with a softmax between them. Which is undone first?",
        "dv and dprobs from the last product; dscores by the softmax's backward; dq and dk from the first product.",
        "dv = pᵀ dy, dp = dy vᵀ, ds = p (dp − Σ dp p), dq = ds k / √d, dk = dsᵀ q / √d.",
    ),
    "multi_head_attention": (
        "Which numbers of a token's q belong to head 0? Where does the axis H have to stand, that heads don't mix?",
        "linear → split into q, k, v → heads (B, H, N, d) → attention → (B, N, D) → linear.",
        "Head h is columns h·d to (h+1)·d: (B, N, D) → (B, N, H, d) → (B, H, N, d). The way back undoes both.",
    ),
    "multi_head_attention_backward": (
        "Write the forward as a list of five steps. What is the list of the backward?",
        "projection's backward → split → attention's backward → join → backward of the linear layer of q, k and v.",
        "Put dq, dk, dv beside each other in the order of the forward, (B, N, 3D): dx = dqkv W, dW = Σ dqkvᵀ x.",
    ),
    "gelu": (
        "Φ(x) is the probability that a normal number is below x. What does x Φ(x) do far from 0, on both sides?",
        "x times a function that rises from 0 to 1; SciPy has erf and erfc.",
        "x Φ(x), Φ(x) = ½ (1 + erf(x/√2)) = ½ erfc(−x/√2); the second keeps its digits for very negative x.",
    ),
    "gelu_backward": (
        "x Φ(x) is a product. What is its derivative, if Φ's is the density of the normal distribution?",
        "dx = dy · (Φ(x) + x · density).",
        "dx = dy (Φ(x) + x φ(x)), φ(x) = e^(−x²/2) / √(2π).",
    ),
    "mlp": (
        "Between which two steps does the GELU stand, and is there one at the end?",
        "linear → GELU → linear.",
        "y = GELU(x W₁ᵀ + b₁) W₂ᵀ + b₂.",
    ),
    "mlp_backward": (
        "At which number is the GELU's derivative taken, at its input or at its output?",
        "second layer's backward → GELU's backward → first layer's backward.",
        "With h = x W₁ᵀ + b₁: da = dy W₂, dh = da GELU′(h), dx = dh W₁; dW₂ = Σ dyᵀ GELU(h), dW₁ = Σ dhᵀ x.",
    ),
    "block": (
        "What does a residual connection go past: the branch alone, or its norm as well?",
        "x₁ = x + branch(norm1(x)), and y in the same way from x₁.",
        "x₁ = x + attention(norm1(x)), y = x₁ + mlp(norm2(x₁)).",
    ),
    "block_backward": (
        "x₁ is used twice, and so is x. What does a value that is used twice get?",
        "dx₁ = dy + (dy back through MLP and norm2), and dx in the same way from dx₁.",
        "dx₁ = dy + norm2′(mlp′(dy)), taken at x₁; dx = dx₁ + norm1′(attention′(dx₁)), taken at x.",
    ),
    "vit": (
        "Which exercises are its parts, and in which order? What of the last block's result does the head read?",
        "patchify → embed → block 0, …, block depth − 1 → layer norm → class token → linear.",
        "logits = LN(z_L)⁰ Wᵀ + b. The kernel (D, C, P, Q) is embed's weight (D, C·P·Q); block i's parameters are "
        "those whose names begin with blocks.i., without that beginning.",
    ),
    "vit_backward": (
        "The backward of a block needs what entered that block. What has to be kept on the way forward?",
        "linear's backward → zeros but for the class token → norm's backward → blocks, the last first → embed's → "
        "patchify's.",
        "dz_L: row 0 is d(logits) W, the others 0, then back through LN at z_L. dz_{i} = block′ᵢ(dz_{i+1}) at z_i. "
        "embed_backward gives the last five gradients; the kernel's has to be reshaped to (D, C, P, Q).",
    ),
    "worked_example_backward": (
        "q, k, v and the residual are all z⁰. From how many places does z⁰ get a gradient?",
        "π − target → head → class token's row → layer norm → residual + attention's three gradients → rows.",
        "dz¹ = LN′(dfeature in row 0), dz⁰ = dz¹ + dq + dk + dv, dcls_token = row 0 of dz⁰, dpatches the others.",
    ),
    "cross_entropy": (
        "log softmax written out: which logarithm is left, and what must be subtracted so that nothing overflows?",
        "The mean over samples of −(1 − ε) · (label's log-probability) − ε · (mean of all log-probabilities).",
        "log pₖ = lₖ − m − log Σ exp(l − m), m the largest logit; loss = −1/B Σ_b Σₖ tₖ log pₖ, tₖ = (1 − ε) δ + ε/K.",
    ),
    "cross_entropy_backward": (
        "What is the derivative of log Σ exp(l) by one logit?",
        "dlogits = dy · (what was predicted − what was wanted) / number of samples.",
        "dl = dy (softmax(l) − t) / B, with t = ε/K everywhere and 1 − ε more at the label.",
    ),
    "adam": (
        "m and v begin at zero. By which factor are they too small after one step?",
        "New m, new v, both divided by a correction; then θ − lr · m̂ / (√v̂ + ε).",
        "m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ), θ ← θ − lr m̂ / (√v̂ + ε).",
    ),
    "schedule": (
        "Steps are counted from 0, and the last step of the warm-up has 1 already. What has step 0 of a warm-up of 10?",
        "Two straight lines with a flat part between them.",
        "In the warm-up (s + 1)/w; later the smaller of 1 and (T − s) / (T/5).",
    ),
    "cutmix": (
        "Which share of the pixels comes from the partner?",
        "mixed is the image with a rectangle of the partner; mixed_target a mean of both, weighted by shares.",
        "λ = (bottom − top)(right − left) / (H W) belongs to the partner: (1 − λ) t + λ t′.",
    ),
    "rollout": (
        "A token keeps half of itself by the residual. What is a layer's matrix then, and on which side is the next?",
        "R = A_L ⋯ A₂ A₁, with one matrix (N, N) for each layer and image.",
        "A_l = ½ mean over heads + ½ I; multiply each next layer from the left.",
    ),
    "derivative": (
        "In (f(x + h) − f(x)) / h two nearly equal numbers are subtracted. Where does f(x + ih) put the difference?",
        "The imaginary part of one call, divided by h.",
        "f′(x) ≈ Im f(x + ih) / h, with an h as small as 10⁻²⁰: nothing is subtracted.",
    ),
    "softmax_merge": (
        "Both sums were taken with their own maximum. What is the common one?",
        "m is the larger of both; each sum is multiplied by an exponential before they are added.",
        "m = max(m₁, m₂), l = l₁ e^(m₁ − m) + l₂ e^(m₂ − m).",
    ),
    "kahan_sum": (
        "What of a small number is lost when it is added to a large sum, and how can it be computed afterwards?",
        "Two running numbers: the sum, and what the last addition lost.",
        "y = x − c, t = s + y, c = (t − s) − y, s = t, in this order and all in float32.",
    ),
    "bicubic": (
        "Where does the centre of a new patch lie, counted in old patches? Which four old ones are near it?",
        "For each of four offsets −1 to 2: a distance, a weight by a cubic, added to the column of that neighbour.",
        "x = (j + ½) n/n′ − ½; (a+2)|t|³ − (a+3)t² + 1 up to 1, a|t|³ − 5a t² + 8a|t| − 4a up to 2; columns clipped.",
    ),
    "resize_backward": (
        "x[r, k] stands in every y[R, K]. With which factor?",
        "The same two matrices, with the sum over the other index of each.",
        "dx[r, k] = Σ over R and K of down[R, r] across[K, k] dy[R, K].",
    ),
    "conv2d": (
        "A filter has P·Q places. Which pixels does one of them see, when the filter slides over the padded image?",
        "For each place (u, v) one product over the channels: (O, C) times the shifted images (B, C, H', W'); add up.",
        "y = b + Σ over (u, v) of weight[…, u, v] · x[…, s i + u, s j + v], H' = (H + 2p − P) // s + 1.",
    ),
    "conv2d_backward": (
        "In how many windows is one pixel, and what does a thing get that is used many times?",
        "As the forward, place by place (u, v): dy is added up at the pixels that it came from.",
        "dx[…, s i + u, s j + v] gets weight[…, u, v]ᵀ dy, dweight[…, u, v] = Σ dy x[…, s i + u, s j + v], db = Σ dy.",
    ),
    "depthwise_conv2d": (
        "Which sum of a convolution's formula is gone, if each channel has a filter of its own?",
        "For each place (u, v) of the filters: a number for each channel times the shifted images; add up.",
        "y[b, c, i, j] = Σ over u and v of weight[c, u, v] · x[b, c, i + u, j + v], with x padded.",
    ),
    "depthwise_conv2d_backward": (
        "In how many windows is one pixel, and by how many places and samples is one number of a filter used?",
        "As the forward, place by place (u, v): dy is added up at the pixels that it came from.",
        "dx[…, i + u, j + v] gets weight[c, u, v] · dy[…, i, j]; dweight[c, u, v] = Σ dy · x[…, i + u, j + v].",
    ),
    "batch_norm": (
        "A filter is the same for all samples and at all places. Over which axes is the mean of what it makes?",
        "Centre and scale each channel of (B, C, H, W); weight and bias need two more axes to line up with C.",
        "x̂ = (x − μ) / √(σ² + ε), y = γ x̂ + β, with μ and σ² over B, H and W: σ² = mean((x − μ)²).",
    ),
    "batch_norm_backward": (
        "In which three ways does one pixel change the results of its channel?",
        "dx = γ r · (dy − something − x̂ · something), both the same in the whole channel.",
        "dx = γ r (dy − mean(dy) − x̂ mean(dy x̂)), the means over B, H and W; dγ = Σ dy x̂, dβ = Σ dy.",
    ),
    "running_statistics": (
        "With a momentum of 0.1, how much of the old mean is left after one step?",
        "old times (1 − momentum) plus new times momentum, for the mean and for the variance.",
        "m ← (1 − α) m + α μ, v ← (1 − α) v + α σ² n / (n − 1), with n = B·H·W and α the momentum.",
    ),
    "group_norm": (
        "How many numbers share a mean, and which axes do they lie along once the channels are split in groups?",
        "(B, C, H, W) → (B, G, C/G · H · W), a layer norm of each row, back again; then weight and bias by channel.",
        "x̂ = (x − μ) / √(σ² + ε) with μ and σ² over a group of a sample; y = γ x̂ + β.",
    ),
    "group_norm_backward": (
        "The channels of a group have different weights. Is the mean that goes back of dy, or of dy · weight?",
        "With g = dy · weight: dx = r · (g − something − x̂ · something), both the same in the whole group.",
        "dx = r (g − mean(g) − x̂ mean(g x̂)), the means over a group; dγ = Σ dy x̂, dβ = Σ dy over B, H and W.",
    ),
    "standardize_weight": (
        "What is it that each filter gets a mean and a variance of its own for: which axes are one filter?",
        "Centre over the axes 1, 2 and 3, then divide by the root of the variance plus ε.",
        "ŵ = (w − μ) / √(σ² + ε), with μ and σ² over the C·P·Q numbers of a filter.",
    ),
    "standardize_weight_backward": (
        "Which other layer does the same to rows of numbers?",
        "That of a layer norm without weight and bias, with a filter as the row.",
        "dw = r (dŵ − mean(dŵ) − ŵ mean(dŵ ŵ)), the means over the axes 1, 2 and 3.",
    ),
    "relu_backward": (
        "Where does y move when x does, and how fast?",
        "dy where something holds of x, and 0 elsewhere.",
        "dx = dy · [x > 0].",
    ),
    "max_pool2d": (
        "Which pixels does the window in row i and column j hold?",
        "For each place (u, v) of a window the pixels of all windows there are a slice with the stride as its step.",
        "y[b, c, i, j] = max over u and v of x[b, c, s i + u, s j + v].",
    ),
    "max_pool2d_backward": (
        "If a pixel that isn't the largest of its window moves a little, what happens to the result?",
        "Each dy goes to one pixel, the largest of its window; a pixel adds up what it gets from all windows.",
        "dx[s i + u, s j + v] += dy[i, j] for the (u, v) of the largest, of equal ones the first (argmax).",
    ),
    "avg_pool2d_backward": (
        "What share of the result is each pixel of a window?",
        "The same share of dy goes to all places (u, v) of a window; a pixel adds up what it gets from all windows.",
        "dx[s i + u, s j + v] += dy[i, j] / (P·P) for all u and v.",
    ),
} | HINTS_OF_THE_FAMILY
