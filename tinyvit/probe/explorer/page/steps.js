// What each step shows over the image: a map, one value a token, with how to say it.

/** A map {values (T) or null, kind, largest, text, short, least, most, unit}; `largest` is that of the patches. */
function shares(values) {
  const largest = largestOf(values.subarray(1));
  return {
    values, kind: "share", largest, text: share, short: (value) => (100 * value).toFixed(1),
    least: "0 %", most: share(largest),
  };
}

function sizes(values, kind = "size") {
  const largest = largestOf(values.subarray(1));
  const unit = unitFor(largest);
  const short = (value) => signed((value / unit.factor).toFixed(1)).replace(/^−(0\.0)$/, "$1");
  return {
    values, kind, largest, text: number, unit: unit.text, short,
    least: kind === "signed" ? number(-largest) : "0", most: number(largest),
  };
}

const attentionRow = (arrays, block, head, token) => rowOf(part(arrays.attention, block, head), token);
const dattentionRow = (arrays, block, head, token) => rowOf(part(arrays.dattention, block, head), token);

/** The gradient of all pixels of each patch as a length; the class token has no pixels. */
function patchLengths({ data }) {
  const squares = new Float64Array(tokens);
  data.forEach((value, i) => { squares[patchOf(i)] += value * value; });
  return squares.map(Math.sqrt);
}

/** Layer norm i in their order, two a block and a last one: {name, said, x and y (T, D), cache}. */
function normAt(arrays, i) {
  if (i === 2 * model.depth) {
    return { name: "norm", said: "the last one, before the head", x: at(arrays.stream, model.depth),
             y: arrays.cache.normed, cache: arrays.cache.norm };
  }
  const block = Math.floor(i / 2), own = arrays.cache.blocks[block];
  const name = `blocks.${block}.norm${(i % 2) + 1}`, before = `of block ${block + 1}`;
  return i % 2 === 0
    ? { name, said: `before the attention ${before}`, x: own.x, y: own.a1, cache: own.norm1 }
    : { name, said: `before the MLP ${before}`, x: own.mid, y: own.m1, cache: own.norm2 };
}

/** Why a gradient is zero where it is; "" where it isn't. */
function whyNone(values, block) {
  if (largestOf(values) > 0) return "";
  const reads = model.pool === "token" ? "the class token alone" : "the patches alone";
  if (state.off.size === model.depth * model.heads) return " It is zero: every head is switched off.";
  if (block === model.depth - 1) return ` None: after the last block the head reads ${reads}.`;
  return " It is zero: nothing of it reaches the loss.";
}

const NOTHING = { values: null, kind: "size", largest: 0, title: "" };

/** A map with a title for its largest values, and what is said of the token that is looked at. */
const titled = (map, title, text) => ({ ...map, title, readout: tokenName(state.looking) + text });
const valueSeen = ({ values }) => number(state.looking === "mean" ? mean(values.subarray(1)) : values[state.looking]);

const MAPS = {
  patches: () => titled(NOTHING, "", "."),
  tokens(arrays, { depth }) {
    const map = sizes(Float64Array.from(part(arrays.stream_length, depth))), where = afterBlocks(depth);
    return titled(map, `Longest tokens ${where}`, `, ${where}: length ${valueSeen(map)}.`);
  },
  norm(arrays, { norm: i }) {
    const { said, cache } = normAt(arrays, i), map = sizes(cache.rstd.data.map((value) => 1 / value));
    return titled(map, "Largest standard deviations",
      `, ${said}: its numbers have a standard deviation of ${valueSeen(map)}, and afterwards one of 1.`);
  },
  attention(arrays, { block, head, looking }) {
    const map = shares(attentionRow(arrays, block, head, looking));
    const self = looking > 0 ? `, and ${share(map.values[looking])} from itself` : "";
    const first = looking === 0 ? "itself" : "the class token";
    const off = state.off.has(switchName(block, head)) ? " It is switched off: nothing of it goes on." : "";
    return titled(map, "It takes most from", ` in ${blockName(block)}, head ${head + 1}: it takes ` +
      `${share(map.values[0])} from ${first}${self}.${off}`);
  },
  mlp(arrays, { mlp: block }) {
    const map = sizes(lengths(arrays.cache.blocks[block].m).data);
    return titled(map, "The MLP adds most to",
      `, ${blockName(block)}: what the MLP adds has a length of ${valueSeen(map)}.`);
  },
  logits: () => ({
    ...NOTHING, readout: model.pool === "token"
      ? "The head reads the class token alone. It has no place in the image, so there is nothing to lay over it."
      : "The head reads the mean of all patches, each with the same share, so there is nothing to lay over the image.",
  }),
  loss: () => ({
    ...NOTHING, readout: "The loss is one number for the whole image; the next steps lead it back there.",
  }),
  dtokens(arrays, { ddepth }) {
    const map = sizes(Float64Array.from(part(arrays.dstream_length, ddepth))), where = afterBlocks(ddepth);
    const last = ddepth < model.depth ? "" : model.pool === "token"
      ? " After the last block patches have none: the head reads the class token alone."
      : " After the last block the class token has none: the head reads the mean of the patches.";
    return titled(map, `Largest gradients ${where}`, `, ${where}: gradient of length ${valueSeen(map)}.${last}`);
  },
  dattention(arrays, { block, head, looking }) {
    const map = sizes(Float64Array.from(dattentionRow(arrays, block, head, looking)), "signed");
    return titled(map, "Its attention to these matters most", ` in ${blockName(block)}, head ${head + 1}: the gradient ` +
      `of its attention to the class token is ${number(map.values[0])}.${whyNone(map.values, block)}`);
  },
  dpixels(arrays, { looking }) {
    const map = sizes(patchLengths(arrays.dpixels));
    return titled(map, "Patches that the loss depends on most", looking === 0
      ? ": it comes from no pixel." : `: gradient of its pixels of length ${valueSeen(map)}.`);
  },
  rollout(arrays, { through, looking }) {
    const map = shares(rowOf(part(arrays.rollout, through - 1), looking));
    return titled(map, "It comes most from",
      `, ${afterBlocks(through)}: ${share(map.values[0])} from the class token.`);
  },
};
