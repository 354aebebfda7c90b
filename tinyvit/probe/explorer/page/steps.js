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
    least: kind === "signed" ? negative(largest) : "0", most: number(largest),
  };
}

const attentionRow = (arrays, block, head, token) => rowOf(part(arrays.attention, block, head), token);
const dattentionRow = (arrays, block, head, token) => rowOf(part(arrays.dattention, block, head), token);

/** The gradient of all pixels of each patch as a length; the class token has no pixels. */
function patchLengths({ data }) {
  const [P, Q] = model.patch, [height, width] = model.size;
  const squares = new Float64Array(tokens);
  data.forEach((value, i) => {
    const y = Math.floor(i / width) % height, x = i % width;
    squares[1 + Math.floor(y / P) * columns + Math.floor(x / Q)] += value * value;
  });
  return squares.map(Math.sqrt);
}

const ofToken = (values, token) => (token === "mean" ? mean(values.subarray(1)) : values[token]);

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

const MAPS = {
  patches: () => ({ ...NOTHING, readout: (token) => `${tokenName(token)}.` }),
  tokens(arrays, { depth }) {
    const map = sizes(Float64Array.from(part(arrays.stream_length, depth)));
    return {
      ...map, title: `Longest tokens ${afterBlocks(depth)}`,
      readout: (token) => `${tokenName(token)}, ${afterBlocks(depth)}: length ${number(ofToken(map.values, token))}.`,
    };
  },
  norm(arrays, { norm: i }) {
    const { said, cache } = normAt(arrays, i), map = sizes(cache.rstd.data.map((value) => 1 / value));
    return {
      ...map, title: "Largest standard deviations",
      readout: (token) => `${tokenName(token)}, ${said}: its numbers have a standard deviation of ` +
        `${number(ofToken(map.values, token))}, and afterwards one of 1.`,
    };
  },
  attention(arrays, { block, head, looking }) {
    const map = shares(attentionRow(arrays, block, head, looking));
    const self = looking > 0 ? `, and ${share(map.values[looking])} from itself` : "";
    const first = looking === 0 ? "itself" : "the class token";
    const off = state.off.has(switchName(block, head)) ? " It is switched off: nothing of it goes on." : "";
    return {
      ...map, title: "It takes most from",
      readout: (token) => `${tokenName(token)} in ${blockName(block)}, head ${head + 1}: it takes ` +
        `${share(map.values[0])} from ${first}${self}.${off}`,
    };
  },
  mlp(arrays, { mlp: block }) {
    const map = sizes(lengths(arrays.cache.blocks[block].m).data);
    return {
      ...map, title: "The MLP adds most to",
      readout: (token) => `${tokenName(token)}, ${blockName(block)}: what the MLP adds has a length of ` +
        `${number(ofToken(map.values, token))}.`,
    };
  },
  logits: () => ({
    ...NOTHING, readout: () => model.pool === "token"
      ? "The head reads the class token alone. It has no place in the image, so there is nothing to lay over it."
      : "The head reads the mean of all patches, each with the same share, so there is nothing to lay over the image.",
  }),
  loss: () => ({
    ...NOTHING, readout: () => "The loss is one number for the whole image; the next steps lead it back there.",
  }),
  dtokens(arrays, { ddepth }) {
    const map = sizes(Float64Array.from(part(arrays.dstream_length, ddepth)));
    const last = ddepth < model.depth ? "" : model.pool === "token"
      ? " After the last block patches have none: the head reads the class token alone."
      : " After the last block the class token has none: the head reads the mean of the patches.";
    return {
      ...map, title: `Largest gradients ${afterBlocks(ddepth)}`,
      readout: (token) =>
        `${tokenName(token)}, ${afterBlocks(ddepth)}: gradient of length ${number(ofToken(map.values, token))}.${last}`,
    };
  },
  dattention(arrays, { block, head, looking }) {
    const map = sizes(Float64Array.from(dattentionRow(arrays, block, head, looking)), "signed");
    return {
      ...map, title: "Its attention to these matters most",
      readout: (token) => `${tokenName(token)} in ${blockName(block)}, head ${head + 1}: the gradient of its ` +
        `attention to the class token is ${number(map.values[0])}.${whyNone(map.values, block)}`,
    };
  },
  dpixels(arrays) {
    const map = sizes(patchLengths(arrays.dpixels));
    return {
      ...map, title: "Patches that the loss depends on most",
      readout: (token) => token === 0 ? "Class token: it comes from no pixel." :
        `${tokenName(token)}: gradient of its pixels of length ${number(ofToken(map.values, token))}.`,
    };
  },
  rollout(arrays, { through, looking }) {
    const map = shares(rowOf(part(arrays.rollout, through - 1), looking));
    return {
      ...map, title: "It comes most from",
      readout: (token) => `${tokenName(token)}, ${afterBlocks(through)}: ${share(map.values[0])} from the class token.`,
    };
  },
};
