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
  return {
    values, kind, largest, text: number, unit: unit.text, short: (value) => signed((value / unit.factor).toFixed(1)),
    least: kind === "signed" ? `${MINUS}${number(largest)}` : "0", most: number(largest),
  };
}

const attentionRow = (arrays, block, head, token) => decodedShares(rowOf(part(arrays.attention, block, head), token));
const dattentionRow = (arrays, block, head, token) =>
  decodedSigned(rowOf(part(arrays.dattention, block, head), token), part(arrays.dattention_largest, block, head)[0]);

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

const ofToken = (values, token) => (token === "mean" ? meanOf(values.subarray(1)) : values[token]);

const MAPS = {
  patches: () => ({ values: null, readout: (token) => `${tokenName(token)}.` }),
  tokens(arrays, state) {
    const map = sizes(Float64Array.from(part(arrays.stream_length, state.depth)));
    return {
      ...map, title: `Longest tokens ${afterBlocks(state.depth)}`,
      readout: (token) =>
        `${tokenName(token)}, ${afterBlocks(state.depth)}: length ${number(ofToken(map.values, token))}.`,
    };
  },
  attention(arrays, { block, head, looking }) {
    const map = shares(attentionRow(arrays, block, head, looking));
    const self = looking === "mean" ? "" : `, and ${share(map.values[looking])} from itself`;
    return {
      ...map, title: "It takes most from",
      readout: (token) => `${tokenName(token)} in ${blockName(block)}, head ${head + 1}: it takes ` +
        `${share(map.values[0])} from the class token${self}.`,
    };
  },
  rollout(arrays, { through, looking }) {
    const map = shares(decodedShares(rowOf(part(arrays.rollout, through - 1), looking)));
    return {
      ...map, title: "It comes most from",
      readout: (token) => `${tokenName(token)}, ${afterBlocks(through)}: ${share(map.values[0])} from the class token.`,
    };
  },
  logits: (arrays, state) => headMap(arrays, state),
  loss: (arrays, state) => headMap(arrays, state),
  dtokens(arrays, { ddepth }) {
    const map = sizes(Float64Array.from(part(arrays.dstream_length, ddepth)));
    return {
      ...map, title: `Largest gradients ${afterBlocks(ddepth)}`,
      readout: (token) =>
        `${tokenName(token)}, ${afterBlocks(ddepth)}: gradient of length ${number(ofToken(map.values, token))}.`,
    };
  },
  dattention(arrays, { block, head, looking }) {
    const map = sizes(dattentionRow(arrays, block, head, looking), "signed");
    return {
      ...map, title: "Its attention to these matters most",
      readout: (token) =>
        `${tokenName(token)} in ${blockName(block)}, head ${head + 1}: the gradient by its attention ` +
        `to the class token is ${number(map.values[0])}.`,
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
};

/** What the head reads, as tokens' lengths after the last block. */
const headMap = (arrays, state) => MAPS.tokens(arrays, { ...state, depth: model.depth });
