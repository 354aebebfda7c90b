// The numbers of the page: read once from its JSON, an image's arrays when it is first looked at.

const about = JSON.parse(document.getElementById("numbers").textContent);
const model = about.model;
const [rows, columns] = model.grid;
const tokens = 1 + rows * columns;
const READERS = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, float32: Float32Array };

/** The arrays of an image by name: {data, shape}; see packing.py. */
async function arraysOf(image) {
  image.unpacked ??= unpacked(image.arrays);
  return image.unpacked;
}

async function unpacked(text) {
  const deflated = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const arrays = {};
  let at = 0;
  for (const [name, dtype, shape] of about.layout) {
    const Reader = READERS[dtype];
    const length = shape.reduce((product, side) => product * side, 1);
    const size = Reader.BYTES_PER_ELEMENT;
    const joined = new Uint8Array(length * size);
    for (let byte = 0; byte < size; byte++) {
      for (let i = 0; i < length; i++) joined[i * size + byte] = bytes[at + byte * length + i];
    }
    arrays[name] = { data: new Reader(joined.buffer), shape };
    at += length * size;
  }
  return arrays;
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

const decodedShares = (codes) => Float64Array.from(codes, (code) => code / about.shares);
const decodedSigned = (codes, largest) => Float64Array.from(codes, (code) => (code / about.signed) * largest);

/** Row `token` of a map (T, T); for "mean", the mean of all patches' rows. */
function rowOf(codes, token) {
  if (token !== "mean") return codes.subarray(token * tokens, (token + 1) * tokens);
  const mean = new Float64Array(tokens);
  for (let query = 1; query < tokens; query++) {
    for (let key = 0; key < tokens; key++) mean[key] += codes[query * tokens + key] / (tokens - 1);
  }
  return mean;
}

const largestOf = (values) => values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const lengthOf = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
