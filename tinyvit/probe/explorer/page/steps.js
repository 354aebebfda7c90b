// What each step shows over the image: a map, one value a token, with how to say it.

/**
 * A map {values (T) or null, short, unit} with its `scaleOf`; `largest` is that of the patches. `short` is a number's
 * text on a patch, in percent or in a unit, a power of ten, in which the largest has one digit before its point.
 */
function mapOf(values, kind = "size") {
  const scale = scaleOf(kind, largestOf(values.subarray(1))), exponent = Math.floor(Math.log10(scale.largest || 1));
  const power = kind === "share" ? -2 : exponent >= -1 && exponent <= 2 ? 0 : exponent;
  const short = (value) => signed((value / 10 ** power).toFixed(1)).replace(/^−(0\.0)$/, "$1");
  return { values, ...scale, short, unit: kind !== "share" && power !== 0 ? `10${raised(power)}` : "" };
}

/** What the token that is looked at takes from each in a head, or the gradient of that. */
function headMapOf(step, block, head) {
  const [array, kind] = step === "attention" ? [arrays.attention, "share"] : [arrays.dattention, "signed"];
  return mapOf(rowOf(part(array, block, head), state.looking), kind);
}

/** The gradient of all pixels of each patch as a length; the class token has no pixels. */
function patchLengths({ data }) {
  const squares = new Float64Array(tokens);
  data.forEach((value, i) => { squares[patchOf(i)] += value * value; });
  return squares.map(Math.sqrt);
}

/** Layer norm i in their order, two a block and a last one: its cache, and where it is. */
function normAt(arrays, i) {
  if (i === 2 * model.depth) return { ...arrays.cache.norm, said: "the last one, before the head" };
  const block = Math.floor(i / 2), { norm1, norm2 } = arrays.cache.blocks[block];
  return i % 2 === 0
    ? { ...norm1, said: `before the attention of ${blockName(block)}` }
    : { ...norm2, said: `before the MLP of ${blockName(block)}` };
}

/** Why a gradient is zero where it is; "" where it isn't. */
function whyNone(values, block) {
  if (largestOf(values) > 0) return "";
  const reads = model.global_pool === "token" ? "the class token alone" : "the patches alone";
  if (state.off.size === model.depth * model.num_heads) return " It is zero: every head is switched off.";
  if (block === model.depth - 1) return ` None: after the last block the head reads ${reads}.`;
  return " It is zero: nothing of it reaches the loss.";
}

const NOTHING = { values: null, title: "" };

/** A map with a title for its largest values, and what is said of the token that is looked at. */
const titled = (map, title, text) => ({ ...map, title, readout: tokenName(state.looking) + text });
const valueSeen = ({ values }) => number(state.looking === "mean" ? mean(values.subarray(1)) : values[state.looking]);

const MAPS = {
  patches: () => titled(NOTHING, "", "."),
  tokens(arrays, { depth }) {
    const map = mapOf(part(arrays.stream_length, depth)), where = afterBlocks(depth);
    return titled(map, `Longest tokens ${where}`, `, ${where}: length ${valueSeen(map)}.`);
  },
  norm(arrays, { norm: i }) {
    const { said, rstd } = normAt(arrays, i), map = mapOf(rstd.data.map((value) => 1 / value));
    return titled(map, "Largest standard deviations",
      `, ${said}: its numbers have a standard deviation of ${valueSeen(map)}, and afterwards one of 1.`);
  },
  attention(arrays, { block, head, looking }) {
    const map = headMapOf("attention", block, head);
    const self = looking > 0 ? `, and ${share(map.values[looking])} from itself` : "";
    const first = looking === 0 ? "itself" : "the class token";
    const off = state.off.has(switchName(block, head)) ? " It is switched off: nothing of it goes on." : "";
    return titled(map, "It takes most from", ` in ${headName(block, head)}: it takes ` +
      `${share(map.values[0])} from ${first}${self}.${off}`);
  },
  mlp(arrays, { mlp: block }) {
    const map = mapOf(lengths(arrays.cache.blocks[block].fc2.y).data);
    return titled(map, "The MLP adds most to",
      `, ${blockName(block)}: what the MLP adds has a length of ${valueSeen(map)}.`);
  },
  logits: () => ({
    ...NOTHING, readout: model.global_pool === "token"
      ? "The head reads the class token alone. It has no place in the image, so there is nothing to lay over it."
      : "The head reads the mean of all patches, each with the same share, so there is nothing to lay over the image.",
  }),
  loss: () => ({
    ...NOTHING, readout: "The loss is one number for the whole image; the next steps lead it back there.",
  }),
  dtokens(arrays, { ddepth }) {
    const map = mapOf(part(arrays.dstream_length, ddepth)), where = afterBlocks(ddepth);
    const last = ddepth < model.depth ? "" : model.global_pool === "token"
      ? " After the last block patches have none: the head reads the class token alone."
      : " After the last block the class token has none: the head reads the mean of the patches.";
    return titled(map, `Largest gradients ${where}`, `, ${where}: gradient of length ${valueSeen(map)}.${last}`);
  },
  dattention(arrays, { block, head, looking }) {
    const map = headMapOf("dattention", block, head);
    return titled(map, "Its attention to these matters most", ` in ${headName(block, head)}: the gradient ` +
      `of its attention to the class token is ${number(map.values[0])}.${whyNone(map.values, block)}`);
  },
  dpixels(arrays, { looking }) {
    const map = mapOf(patchLengths(arrays.dpixels));
    return titled(map, "Patches that the loss depends on most", looking === 0
      ? ": it comes from no pixel." : `: gradient of its pixels of length ${valueSeen(map)}.`);
  },
  rollout(arrays, { through, looking }) {
    const map = mapOf(rowOf(part(arrays.rollout, through - 1), looking), "share");
    return titled(map, "It comes most from",
      `, ${afterBlocks(through)}: ${share(map.values[0])} from the class token.`);
  },
};
