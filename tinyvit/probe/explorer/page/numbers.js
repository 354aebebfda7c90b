// The numbers of the page: read once from its JSON. Those of an image are computed by vit.js, or, for a model that
// the page can't compute, unpacked when it is first looked at.

const about = JSON.parse(document.getElementById("numbers").textContent);
const model = about.model;
const [rows, columns] = model.grid, tokens = 1 + rows * columns;
const [height, width] = model.img_size, [P, Q] = model.patch_size;
const READERS = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, float32: Float32Array };

const live = about.whyNotLive === null;
const weights = live && Object.fromEntries(Object.entries(await unpacked(about.live.weights, about.live.layout))
  .map(([name, { data, shape }]) => [name, tensor(shape, Float64Array.from(data))]));

/** The arrays of an image by name: {data, shape}. Of a live model these are its pixels and its picture. */
async function arraysOf(image) {
  image.unpacked ??= unpacked(image.arrays, about.layout).then(live ? (arrays) => arrays : decoded);
  return image.unpacked;
}

/** The arrays by name in a text; see packing.py. */
async function unpacked(text, layout) {
  const deflated = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const arrays = {};
  let start = 0;
  for (const [name, dtype, shape] of layout) {
    const Reader = READERS[dtype];
    const length = shape.reduce((product, side) => product * side, 1);
    const size = Reader.BYTES_PER_ELEMENT;
    const joined = new Uint8Array(length * size);
    for (let byte = 0; byte < size; byte++) {
      for (let i = 0; i < length; i++) joined[i * size + byte] = bytes[start + byte * length + i];
    }
    arrays[name] = { data: new Reader(joined.buffer), shape };
    start += length * size;
  }
  return arrays;
}

/** The numbers that codes stand for; see packing.py. */
function decoded(arrays) {
  for (const name of ["attention", "rollout"]) {
    arrays[name].data = Float32Array.from(arrays[name].data, (code) => code / about.shares);
  }
  for (const name of ["stream", "dstream", "dattention"]) {
    const { data } = arrays[name], largest = arrays[`${name}_largest`].data, size = data.length / largest.length;
    arrays[name].data = Float32Array.from(data, (code, i) => (code / about.signed) * largest[Math.floor(i / size)]);
  }
  return arrays;
}

/**
 * A forward and a backward of the model: what `arraysOf` gives for a recorded image, and all that is on the way. A
 * `label` of null is the likeliest class.
 */
function computed({ pixels, picture }, label, on) {
  const image = tensor([model.in_chans, ...model.img_size], Float64Array.from(pixels.data));
  const [logits, cache] = vit(image, weights, model, on);
  label ??= largestFirst(logits.data)[0];
  const [loss, c_loss] = cross_entropy(logits, label);
  const dlogits = cross_entropy_backward(c_loss), grads = {};
  const [dpixels, gradients] = vit_backward(dlogits, cache, grads);
  const probs = cache.blocks.map((own) => own.attn.heads.probs);
  const stream = stack(cache.stream), dstream = stack(gradients.dstream);
  return {
    label, pixels: image, picture, logits, probabilities: c_loss.probs, loss, dlogits, dpixels, stream, dstream,
    stream_length: lengths(stream), dstream_length: lengths(dstream), attention: stack(probs),
    dattention: stack(gradients.blocks.map((own) => own.dprobs)), rollout: stack(attention_rollout(probs)),
    cache, gradients, grads,
  };
}

/** The length of every row (…, D). */
function lengths(x) {
  const D = x.shape.at(-1);
  return tensor(x.shape.slice(0, -1), Float64Array.from({ length: x.data.length / D },
    (_, row) => norm(x.data.subarray(row * D, row * D + D))));
}

/** R = ½ (mean over heads of P) R + ½ R, after each block, from I; P (H, T, T). Abnar & Zuidema 2020, section 3. */
function attention_rollout(probs) {
  let rolled = tensor([tokens, tokens]);
  for (let i = 0; i < tokens; i++) rolled.data[i * (tokens + 1)] = 1;
  return probs.map((own) => {
    const summed = sum_rows(reshaped(own, model.num_heads, tokens * tokens));
    const mixed = matmul(reshaped(summed, tokens, tokens), rolled);
    rolled = plus(times(mixed, 0.5 / model.num_heads), times(rolled, 0.5));
    return rolled;
  });
}

/** The part of an array at its first indices: part(attention, layer, head, query) is a row. */
function part({ data, shape }, ...indices) {
  let start = 0, length = data.length;
  indices.forEach((index, axis) => {
    length /= shape[axis];
    start += index * length;
  });
  return data.subarray(start, start + length);
}

/** Row `token` of a map (T, T); for "mean", the mean of all patches' rows. */
function rowOf(map, token) {
  if (token !== "mean") return map.subarray(token * tokens, (token + 1) * tokens);
  return matmul(pooling("avg", tokens), tensor([tokens, tokens], map)).data;
}

/** The places of some values, that of the largest first. */
const largestFirst = (values) => [...values.keys()].sort((a, b) => values[b] - values[a]);

const largestOf = (values) => values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
