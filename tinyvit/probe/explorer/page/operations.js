// The operations of a ViT by tinyvit's names, for one image: each returns its result and a cache of what its backward
// needs, or the result alone if it only moves numbers. The backward follows at once, takes the gradient of the result
// and that cache, and returns the gradients of the arguments. In the shapes N is tokens, D their width, H heads of
// width d. The formulas' sources are in tinyvit/functional, whose numbers these are held to.

/** y = x Wᵀ + b, for x (N, D) and W (E, D). */
function linear(x, weight, bias) {
  const y = matmul(x, transposed(weight));
  return [bias ? by_row((row) => row.map((value, e) => value + bias.data[e]), y) : y, { x, weight, bias }];
}

/** dx = dy W, dW = dyᵀ x, db = dy summed over all rows, if there is a b. */
function linear_backward(dy, { x, weight, bias }) {
  return [matmul(dy, weight), matmul(transposed(dy), x), bias && sum_rows(dy)];
}

/** y = x̂ γ + β, where x̂ is each row of x (N, D) shifted and scaled to mean 0 and variance 1. */
function layernorm(x, weight, bias, eps) {
  const centred = by_row((row) => { const middle = mean(row); return row.map((value) => value - middle); }, x);
  const rstd = tensor([x.shape[0], 1]);                                        // 1 / standard deviation
  const xhat = by_row((row, n) => {
    rstd.data[n] = (dot(row, row) / row.length + eps) ** -0.5;
    return row.map((value) => value * rstd.data[n]);
  }, centred);
  const y = by_row((row) => row.map((value, i) => value * weight.data[i] + bias.data[i]), xhat);
  return [y, { xhat, rstd, weight }];
}

/** With g = dy γ: dx = (g − mean(g) − x̂ mean(g x̂)) / std. */
function layernorm_backward(dy, { xhat, rstd, weight }) {
  const D = weight.data.length;
  const dx = by_row((row, n) => {
    const g = row.map((value, i) => value * weight.data[i]), own = xhat.data.subarray(n * D, n * D + D);
    const mean_g = mean(g), mean_gx = dot(g, own) / D;
    return g.map((value, i) => rstd.data[n] * (value - mean_g - own[i] * mean_gx));
  }, dy);
  return [dx, sum_rows(mapped((a, b) => a * b, dy, xhat)), sum_rows(dy)];      // dx, dweight, dbias
}

/** p = exp(x) / Σ exp(x) in each row; the largest x is taken off first, so that exp can't overflow. */
function softmax(x) {
  const probs = by_row((row) => {
    const largest = Math.max(...row), exps = row.map((value) => Math.exp(value - largest));
    const sum = exps.reduce((a, b) => a + b);
    return exps.map((value) => value / sum);
  }, x);
  return [probs, { probs }];
}

/** dx = p (dy − Σ dy p). */
function softmax_backward(dy, { probs }) {
  const N = probs.shape.at(-1);
  return by_row((row, n) => {
    const p = probs.data.subarray(n * N, n * N + N), sum = dot(row, p);
    return row.map((value, i) => p[i] * (value - sum));
  }, dy);
}

/** y = softmax(q kᵀ / √d) v, for q, k, v (H, N, d). */
function attention(q, k, v) {
  const scale = q.shape.at(-1) ** -0.5;
  const scores = times(matmul(q, transposed(k)), scale);                       // (H, N, N)
  const [probs] = softmax(scores);
  return [matmul(probs, v), { q, k, v, scores, probs, scale }];
}

/** dv = pᵀ dy, dp = dy vᵀ, ds from dp, dq = ds k / √d, dk = dsᵀ q / √d; with dp and ds, which the page shows. */
function attention_backward(dy, { q, k, v, probs, scale }) {
  const dprobs = matmul(dy, transposed(v));
  const dscores = softmax_backward(dprobs, { probs });
  const dq = times(matmul(dscores, k), scale), dk = times(matmul(transposed(dscores), q), scale);
  return [dq, dk, matmul(transposed(probs), dy), { dprobs, dscores }];
}

const SQRT_2_OVER_PI = (2 / Math.PI) ** 0.5, CUBIC = 0.044715;

/** y = x Φ(x), where Φ(x) = (1 + erf(x/√2)) / 2. */
function gelu(x) {
  const cdf = mapped((value) => 0.5 * (1 + erf(value * Math.SQRT1_2)), x);
  return [mapped((value, c) => value * c, x, cdf), { x, cdf }];
}

/** dx = dy (Φ(x) + x φ(x)), where φ(x) = exp(−x²/2) / √(2π). */
function gelu_backward(dy, { x, cdf }) {
  const pdf = (value) => Math.exp(-0.5 * value * value) / Math.sqrt(2 * Math.PI);
  return mapped((d, value, c) => d * (c + value * pdf(value)), dy, x, cdf);
}

/** erf(x) = 2/√π e^(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!: no term is of another sign than x, so that no digits are lost. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x); // to the last digit
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** y = x (1 + tanh(u)) / 2 with u = √(2/π) (x + 0.044715 x³). */
function gelu_tanh(x) {
  const t = mapped((value) => Math.tanh(SQRT_2_OVER_PI * value * (1 + CUBIC * value * value)), x);
  return [mapped((value, own) => 0.5 * value * (1 + own), x, t), { x, t }];
}

/** dx = dy ((1 + t)/2 + x (1 − t²)/2 · du/dx) with du/dx = √(2/π) (1 + 3 · 0.044715 x²). */
function gelu_tanh_backward(dy, { x, t }) {
  const du = (value) => SQRT_2_OVER_PI * (1 + 3 * CUBIC * value * value);
  return mapped((d, value, own) => d * (0.5 * (1 + own) + 0.5 * value * (1 - own * own) * du(value)), dy, x, t);
}

function tanh(x) {
  const y = mapped(Math.tanh, x);
  return [y, { y }];
}

/** dx = dy (1 − y²). */
const tanh_backward = (dy, { y }) => mapped((d, value) => d * (1 - value * value), dy, y);

/** An image (C, height, width) as patches (N, C·P·Q), row by row. */
function patchify(x, [P, Q]) {
  const [C, height, width] = x.shape, grid = [height / P, width / Q];
  const cut = permuted(reshaped(x, C, grid[0], P, grid[1], Q), [1, 3, 0, 2, 4]);
  return [reshaped(cut, grid[0] * grid[1], C * P * Q), { cut: cut.shape, shape: x.shape }];
}

/** Each number back to the pixel it came from. */
const patchify_backward = (dy, { cut, shape }) => reshaped(permuted(reshaped(dy, ...cut), [2, 0, 3, 1, 4]), ...shape);

/** A learned token in front of the others: (N, D) becomes (N+1, D). */
const prepend_token = (x, token) =>
  tensor([x.shape[0] + 1, x.shape[1]], Float64Array.from([...token.data, ...x.data]));

/** The others: the page shows no gradient of the token in front. */
const prepend_token_backward = (dy) => tensor([dy.shape[0] - 1, dy.shape[1]], dy.data.subarray(dy.shape[1]));

/** Queries, keys and values of every head: (N, 3D) becomes three (H, N, d). */
function split_heads(x, heads) {
  const [N, width] = x.shape, parts = permuted(reshaped(x, N, 3, heads, width / 3 / heads), [1, 2, 0, 3]);
  return [0, 1, 2].map((i) => at(parts, i));
}

function split_heads_backward(dparts) {
  const [H, N, d] = dparts[0].shape;
  return reshaped(permuted(stack(dparts), [2, 0, 1, 3]), N, 3 * H * d);
}

/** The heads beside each other: (H, N, d) becomes (N, D). */
const merge_heads = (x) => reshaped(permuted(x, [1, 0, 2]), x.shape[1], x.shape[0] * x.shape[2]);

const merge_heads_backward = (dy, H) => permuted(reshaped(dy, dy.shape[0], H, dy.shape[1] / H), [1, 0, 2]);

/** What each head gives, times 1 if it is on and 0 if it is switched off; and likewise its gradient. */
function switch_heads(x, on) {
  const size = x.data.length / x.shape[0];
  return tensor(x.shape, x.data.map((value, i) => value * on[Math.floor(i / size)]));
}

/**
 * Turn each pair (a, b) of a query or key (H, 1+N, d) by an angle of its patch's place into (a cos − b sin, a sin + b
 * cos); not the class token's. In the direction −1 it is the backward: a rotation's transpose is its inverse.
 */
function rope(x, angles, direction = 1) {
  return by_row((row, n) => {
    const y = row.slice();
    angles[(n % x.shape[1]) - 1]?.forEach((angle, pair) => {
      const a = row[2 * pair], b = row[2 * pair + 1], cos = Math.cos(angle), sin = direction * Math.sin(angle);
      y.set([a * cos - b * sin, a * sin + b * cos], 2 * pair);
    });
    return y;
  }, x);
}

/** j·ωₖ for the first d/4 pairs of the patch in row i, column j, and i·ωₖ for the rest; ωₖ = theta^(−k/(d/4)). */
function rope_angles([rows, columns], d, theta = 100) {
  const frequencies = Array.from({ length: d / 4 }, (_, k) => theta ** (-k / (d / 4)));
  return Array.from({ length: rows * columns }, (_, patch) =>
    [patch % columns, Math.floor(patch / columns)].flatMap((place) => frequencies.map((each) => place * each)));
}

/** The row (1, 1+N) whose product with the tokens is the class token, or the mean of the patches. */
function pooling(kind, T) {
  const weights = Float64Array.from({ length: T }, (_, i) => (i > 0 ? 1 / (T - 1) : 0));
  return tensor([1, T], kind === "token" ? weights.map((_, i) => Number(i === 0)) : weights);
}

/** −log p of the class `label`, with p = softmax(logits), logits (1, K). */
function cross_entropy(logits, label) {
  const [probs] = softmax(logits), largest = Math.max(...logits.data);
  const sum = logits.data.reduce((total, value) => total + Math.exp(value - largest), 0);
  return [Math.log(sum) - (logits.data[label] - largest), { probs, label }];
}

/** dlogits = p − 1[label]: what the model says less what is true. */
function cross_entropy_backward({ probs, label }) {
  return tensor(probs.shape, probs.data.map((p, k) => p - (k === label)));
}
