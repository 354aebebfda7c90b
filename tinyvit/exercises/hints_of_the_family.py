"""Hints for the exercises on the family, from DeiT to ViViT; see `hints`."""

HINTS = {
    "distillation_backward": (
        "What is the gradient of a cross-entropy whose targets are probabilities? Which factors come on top here?",
        "Something of q − p. One τ of τ² is used up by the chain rule: the logits are divided by τ.",
        "dlogits = τ (q − p) / (B K).",
    ),
    "window_partition": (
        "Which tokens are in the first window after the roll? What is the shape with an axis for rows within a window?",
        "Reshape to (B, H/p, p, W/p, p, D), then bring both p together behind the axes of the windows.",
        "A roll by −shift along axes 1 and 2; axes in the order (B, H/p, W/p, p, p, D); the first three are joined.",
    ),
    "window_reverse": (
        "What undoes a reshape and a transpose? In which order?",
        "Reshape to (B, H/p, W/p, p, p, D), exchange the axes in the middle, join, roll the other way.",
        "Axes in the order (B, H/p, p, W/p, p, D), joined to (B, H, W, D); then a roll by +shift along axes 1 and 2.",
    ),
    "relative_bias": (
        "What is the row, and what the column, of token number i in a window of side w?",
        "np.divmod gives both. Their differences for all pairs are arrays (w², w²), and the table is indexed by them.",
        "table[(yᵢ − yⱼ + w − 1)(2w − 1) + xᵢ − xⱼ + w − 1], with the heads' axis in front.",
    ),
    "relative_bias_backward": (
        "How many pairs use the entry of difference (0, 0)?",
        "An entry's gradient is the sum of dy over all pairs with its difference.",
        "The entry of (i, j) gets += dy[h, i, j] for all pairs (NumPy's add.at); = would keep the last pair only.",
    ),
    "silu_backward": (
        "Both factors of x σ(x) depend on x. Which rule holds for a product?",
        "σ(x) + x σ′(x), times dy.",
        "dx = dy σ (1 + x (1 − σ)), as σ′ = σ (1 − σ).",
    ),
    "scale_channels_backward": (
        "How many pixels used one factor, and of how many samples?",
        "dx is a product; dweight is a sum over two axes of a product.",
        "dx = dy · weight[:, :, None, None], dweight = Σ dy x over H and W.",
    ),
    "place_tokens": (
        "What does the result look like before any token is put into it?",
        "Begin with the mask token N times for each sample; then write each sample's tokens to its own places.",
        "y[b, index[b, i]] = x[b, i]: NumPy does it for all b and i with a column of row numbers beside `index`.",
    ),
    "place_tokens_backward": (
        "Which places of the result depend on token i of sample b? Which on the mask token?",
        "dx is taken from the places that `index` says; dtoken is a sum over all others, of all samples.",
        "dx[b, i] = dy[b, index[b, i]]; dtoken is the sum of dy with those places set to 0.",
    ),
    "l2_normalise_backward": (
        "If x moves along itself, does y move?",
        "Take out of dy what lies along y, then think of how much longer x is than y.",
        "dx = (dy − y Σ dy y) / ‖x‖, with the sum along the last axis.",
    ),
    "dino_loss_backward": (
        "What is the gradient of one cross-entropy with soft targets? How many pairs is each view in?",
        "For each view, (number of its pairs) · q less the teacher's probabilities of the other views, added up.",
        "dz[v] = Σ over t ≠ v of (q[v] − p[t]) / (τ B (2V − 2)); the first two views are in one pair fewer.",
    ),
    "embedding_backward": (
        "At which places of the texts was vector v of the table taken?",
        "All places where word v stands, in any text; their gradients add up.",
        "dweight[index[b, t]] += dy[b, t] for all b and t (NumPy's add.at); words that stand nowhere get zero.",
    ),
    "similarity_backward": (
        "What are the gradients of a product of two matrices? And of exp(s)?",
        "dy and exp(s) come before the products; what s gets is one number for all logits.",
        "dimages = exp(s) dy texts, dtexts = exp(s) dyᵀ images, dscale = Σ dy · logits.",
    ),
    "contrastive_loss_backward": (
        "What is the gradient of one cross-entropy with a label? What is the label of row i, what of column j?",
        "Belief less target for the rows, with a softmax along each row; the same for the columns; then the mean.",
        "dlogits = (p + q − 2 I) / (2B), p the softmax of the rows and q that of the columns.",
    ),
    "zero_shot": (
        "How long is the mean of several vectors of length 1?",
        "Take the mean over the prompts, bring it to length 1, then one matrix product with the images.",
        "images @ (m / ‖m‖)ᵀ with m[k] the mean over p of prompts[k, p].",
    ),
    "add_noise": (
        "What should the variance of the result be, if image and noise have the variance 1?",
        "The shares of the variance, ᾱ and 1 − ᾱ, add up to 1. Which factors give them?",
        "√ᾱ x + √(1 − ᾱ) ε; the level (B,) needs three more axes: level[:, None, None, None].",
    ),
    "ddim_step": (
        "In x there is √ᾱ of an image and √(1 − ᾱ) of the noise. Which image is left if the noise is known?",
        "Then do what add_noise does, with the same noise and the level ᾱ′.",
        "image = (x − √(1 − ᾱ) ε) / √ᾱ, and √ᾱ′ image + √(1 − ᾱ′) ε.",
    ),
    "modulate_backward": (
        "How many tokens use one number of the gain?",
        "dx is a product; doffset and dgain are sums over the tokens of a sample.",
        "dx = dy (1 + gain[:, None]), doffset = Σ dy and dgain = Σ dy x over axis 1.",
    ),
    "add_gated_backward": (
        "Which of the three is multiplied with nothing?",
        "dx is dy; the branch and the gate are factors of each other.",
        "dbranch = gate[:, None] · dy, dgate = Σ dy · branch over axis 1.",
    ),
    "embed_labels_backward": (
        "What is the gradient of a row that three samples have used? And of one that none has?",
        "Add each sample's gradient to the row of its label.",
        "Row k gets Σ dy[b] over all b with labels[b] = k (NumPy's add.at); a row that nobody used stays 0.",
    ),
    "tubelets": (
        "Which numbers are in the first tubelet? What is the shape with an axis for frames within a tubelet?",
        "Reshape to (B, C, t, S, h, P, w, Q), then bring the three axes of the grid in front of a tubelet's own.",
        "Axes in the order (B, t, h, w, C, S, P, Q): transpose(0, 2, 4, 6, 1, 3, 5, 7). Three and four are joined.",
    ),
    "from_tubelets": (
        "What undoes a reshape and a transpose? In which order?",
        "Reshape to (B, t, h, w, C, S, P, Q), bring C to the front and each axis of a tubelet behind its axis of the "
        "grid, join.",
        "transpose(0, 4, 1, 5, 2, 6, 3, 7) gives (B, C, t, S, h, P, w, Q), joined to (B, C, T, H, W).",
    ),
    "inflate": (
        "What should the filter give of a clip whose frames are all alike?",
        "An array of zeros with an axis for the frames, in which one frame is set.",
        "Frame number S // 2 of the new filter is the old one; everything else stays zero.",
    ),
    "merge_tiles": (
        "Each tile's exponentials were taken with its own largest score. With which one would all be comparable?",
        "Bring a and Z of both tiles to the common maximum, add each, and divide at the end.",
        "m = max(m₁, m₂), fᵢ = e^(mᵢ − m): y = (f₁ a₁ + f₂ a₂) / (f₁ Z₁ + f₂ Z₂).",
    ),
    "to_fragments": (
        "Which lanes share row 0? In which columns does each of them begin?",
        "g = lane // 4 and t = lane % 4; four pairs: two rows, then the same two rows in the right half.",
        "The entries of A in the rows g and g + 8, each at 2t and 2t + 1; then at 2t + 8 and 2t + 9 of both rows.",
    ),
}
