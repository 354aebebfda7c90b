// The insides of steps: matrices with their numbers, and how one number comes about.

const MOST_LINES = 20; // of a table: more are not read
const matrices = {};

/** The function that draws a matrix in a place of the page, made when it is first drawn. */
const matrix = (id, options) => (matrices[id] ??= makeMatrix(byId(id), options));

const ofTokens = (label, what = "number") => ({
  label, rowName: tokenName, columnName: (column) => `${what} ${column + 1}`,
  onChoose: (token) => changed({ token, pointed: null }),
});
const pairs = (label) => ({
  label, rowName: (query) => `${tokenName(query)} asks`, columnName: (key) => `${tokenName(key)} answers`,
  onChoose: (token, key) => changed({ token, key, pointed: null }),
});

/** A tensor (T, D) of tokens. */
const drawTokens = (id, label, x, chosen) => matrix(id, ofTokens(label))(x, { chosen });

/** The token whose numbers are shown; the mean of all patches has none of its own, and the class token stands in. */
const asking = () => (state.looking === "mean" ? 0 : state.looking);

const INSIDE = {
  norm(arrays) {
    const { name, x, xhat, weight, y, rstd } = normAt(arrays, state.norm), token = asking();
    const lines = [at(x, token), at(xhat, token), weight, weights[`${name}.bias`], at(y, token)];
    const middle = mean(lines[0].data), deviation = 1 / rstd.data[token];
    const [first, hat, scale, shift, result] = lines.map(({ data }) => number(data[0]));
    byId("norm-value").textContent =
      `${tokenName(token)}: mean ${number(middle)}, standard deviation ${number(deviation)}. Its first number: ` +
      `(${first} − ${number(middle)}) / ${number(deviation)} = ${hat}, times γ ${scale} plus β ${shift} = ${result}.`;
    const names = [
      "x, what comes in", "x̂, of mean 0 and variance 1", "γ, the learned scale", "β, the learned shift",
      "y = x̂ γ + β",
    ];
    const label = "The chosen token’s numbers, from top to bottom: x, x̂, γ, β, y";
    matrix("norm-rows", { label, rowName: (i) => names[i] })(stack(lines));
    drawTokens("norm-before", "All tokens before", x, state.looking);
    drawTokens("norm-after", "All tokens after", y, state.looking);
  },
  attention(arrays) {
    const { q, k, v, scores, probs } = arrays.cache.blocks[state.block].attn.heads, { head } = state, token = asking();
    const { each } = arrays.cache.blocks[state.block].attn, d = model.head_dim;
    for (const [id, label, x] of [["queries", "Queries Q", q], ["keys", "Keys K", k], ["values", "Values V", v]]) {
      drawTokens(`attention-${id}`, label, at(x, head), id === "queries" ? token : null);
    }
    matrix("attention-scores", pairs("Scores S = Q Kᵀ / √d"))(at(scores, head), { chosen: token });
    matrix("attention-probs", pairs("Shares P = softmax(S)"))(at(probs, head), { kind: "share", chosen: token });
    drawTokens("attention-output", "What the head gives: P V", at(each, head), token);

    const row = (x, i) => part(x, head, i), p = row(probs, token), s = row(scores, token);
    const strongest = largestFirst(p), key = state.key ?? strongest[0];
    const shown = tokens > MOST_LINES ? strongest.slice(0, MOST_LINES) : [...p.keys()];
    const sum = s.reduce((total, value) => total + Math.exp(value - s[strongest[0]]), 0);
    drawTable(byId("attention-softmax"), `${tokenName(token)} asks, and takes`,
      ["from", "score", "e^(s − max)", "share"],
      shown.map((j) => [tokenName(j), s[j], Math.exp(s[j] - s[strongest[0]]), share(p[j])]),
      [tokens > MOST_LINES ? `all ${tokens} tokens` : "all", "", sum, share(1)]);
    const marks = byId("attention-softmax").querySelectorAll("tbody tr");
    shown.forEach((j, i) => marks[i].classList.toggle("current", j === key));

    byId("attention-key").value = String(key);
    const query = row(q, token), answer = row(k, key), value = row(v, key), output = row(each, token);
    const count = Math.min(d, MOST_LINES);
    drawTable(byId("attention-pair"), "", ["", "q", "k", "q · k", "v", "p · v", "out"],
      Array.from({ length: count }, (_, n) =>
        [n + 1, query[n], answer[n], query[n] * answer[n], value[n], p[key] * value[n], output[n]]),
      [count < d ? `all ${d}` : "sum", "", "", dot(query, answer), "", "", ""]);
    byId("attention-sum").textContent = `Score: ${number(dot(query, answer))} / √${d} = ${number(s[key])}. ` +
      `Share: p = e^(${number(s[key])} − ${number(s[strongest[0]])}) / ${number(sum)} = ${share(p[key])}. ` +
      "The column “out” adds up p · v over all tokens that answer.";
  },
  mlp(arrays) {
    const { fc1, fc2 } = arrays.cache.blocks[state.mlp], token = asking();
    const before = part(fc1.y, token), after = part(fc2.x, token);
    const [most] = largestFirst(after), positive = before.filter((value) => value > 0).length;
    byId("mlp-value").textContent =
      `${tokenName(token)}: ${positive} of its ${model.mlp_hidden} hidden numbers are above zero and pass; the ` +
      `others are held near zero. The largest is number ${most + 1}: GELU(${number(before[most])}) = ${number(after[most])}.`;
    const names = ["h, before GELU", "GELU(h)"];
    const label = "The chosen token’s hidden numbers, before and after GELU";
    matrix("mlp-hidden", { label, rowName: (i) => names[i] })(stack([at(fc1.y, token), at(fc2.x, token)]));
    drawTokens("mlp-before", "All tokens, as the MLP reads them", fc1.x, state.looking);
    drawTokens("mlp-activated", "All hidden numbers after GELU", fc2.x, state.looking);
    drawTokens("mlp-after", "What it adds to each token", fc2.y, state.looking);
  },
  logits(arrays) {
    matrix("logits-features", { label: "y, what the head reads", rowName: () => "y" })(arrays.cache.features);
  },
  dtokens(arrays) {
    const block = Math.max(state.ddepth - 1, 0), name = `blocks.${block}.`;
    const own = Object.entries(arrays.grads).filter(([parameter]) => parameter.startsWith(name));
    const caption = `Length of the gradient of every parameter of ${blockName(block)}`;
    drawBars(byId("parameter-bars"), caption, ["parameter", "length"],
      own.map(([parameter, { data }]) => ({ name: parameter.slice(name.length), value: norm(data) })));
  },
  dpixels: (arrays) => drawPixel(arrays),
  dattention(arrays) {
    const found = arrays.gradients.blocks[state.block], { head } = state, token = asking();
    matrix("dattention-dprobs", pairs("dP"))(at(found.dprobs, head), { chosen: token });
    matrix("dattention-dscores", pairs("dS"))(at(found.dscores, head), { chosen: token });
    for (const [id, x] of [["dq", found.dq], ["dk", found.dk], ["dv", found.dv]]) {
      drawTokens(`dattention-${id}`, id.replace(/.$/, (letter) => letter.toUpperCase()), at(x, head), token);
    }
  },
};
