// A pixel's gradient: where it comes from, and why it is smaller than another's.

/** [row, column, channel] of the pixel at a place in (C, height, width), and back: null where there is none. */
const placeOf = (pixel) =>
  [Math.floor(pixel / width) % height, pixel % width, Math.floor(pixel / (height * width))];

function pixelAt(row, column, channel = 0) {
  const place = [row, column, channel], sides = [height, width, model.in_chans];
  if (!place.every((index, axis) => Number.isInteger(index) && index >= 0 && index < sides[axis])) return null;
  return (channel * height + row) * width + column;
}

function patchOf(pixel) {
  const [row, column] = placeOf(pixel);
  return 1 + Math.floor(row / P) * columns + Math.floor(column / Q);
}

function pixelName(pixel) {
  const [row, column, channel] = placeOf(pixel);
  return inChannel(`row ${row + 1}, column ${column + 1}`, channel);
}

/** The pixel that is explained: the one that was pressed, or else the weakest of the patch; null without a patch. */
function pixelShown(dpixels) {
  const { looking, pixel } = state;
  if (pixel !== null && patchOf(pixel) === looking) return pixel;
  if (!(looking > 0)) return null;
  const own = [...dpixels.keys()].filter((i) => patchOf(i) === looking);
  return own.reduce((least, i) => (Math.abs(dpixels[i]) < Math.abs(dpixels[least]) ? i : least));
}

/** dx = dz₀ · w as its factors {dz, w, cosine}: two lengths, and the cosine of the angle between them. */
function factorsOf({ dstream, dpixels }, pixel) {
  const [row, column, channel] = placeOf(pixel), D = model.embed_dim;
  const kernel = weights["patch_embed.proj.weight"].data, size = model.in_chans * P * Q;
  const place = (channel * P + (row % P)) * Q + (column % Q);
  const w = norm(Float64Array.from({ length: D }, (_, i) => kernel[i * size + place]));
  const dz = norm(part(dstream, 0, patchOf(pixel)));
  return { dz, w, cosine: dz * w > 0 ? dpixels.data[pixel] / (dz * w) : 0 };
}

function drawPixel(arrays) {
  const { data } = arrays.dpixels;
  const best = data.reduce((most, value, i) => (Math.abs(value) > Math.abs(data[most]) ? i : most), 0);
  const shown = pixelShown(data), pixel = shown ?? best;
  byId("dpixels-explained").classList.toggle("none", shown === null); // keeps its place
  const own = factorsOf(arrays, pixel), most = factorsOf(arrays, best);
  const line = (name, key) => [name, own[key], most[key]];
  drawTable(byId("dpixels-factors"), `The pixel in ${pixelName(pixel)}, and the one of the largest gradient`,
    ["", "this one", pixelName(best)],
    [line("length of dz₀, the gradient of its token", "dz"), line("length of w, the weights that read it", "w"),
     line("cosine of the angle between them", "cosine")],
    ["their product: its gradient", data[pixel], data[best]]);
  byId("dpixels-why").textContent = whyPixel(pixel, best, own, most, arrays);
}

/** Of which factor it comes that a pixel's gradient is smaller than the largest. */
function whyPixel(pixel, best, own, most, { dlogits, dpixels: { data } }) {
  const token = tokenName(patchOf(pixel));
  if (own.dz === 0) {
    return `It is zero since nothing leads from ${token} to the loss` +
      `${norm(dlogits.data) === 0 ? ": dlogits is zero, the model being sure and right" : ""}.`;
  }
  if (own.w === 0) return "It is zero since all weights that read this place of a patch are zero.";
  if (pixel === best) return "No pixel has a larger gradient. Press another one to see why its gradient is smaller.";
  const reasons = {
    dz: `the loss depends less on its token, ${token}`,
    w: "the weights that read its place in a patch, the same in every patch, are smaller",
    cosine: "dz₀ and w are closer to perpendicular: what it changes in some numbers of its token raises the loss, and " +
      "in others lowers it",
  };
  const ratio = (key) => Math.abs(own[key] / most[key]);
  const least = Object.keys(reasons).reduce((a, b) => (ratio(b) < ratio(a) ? b : a));
  const product = Object.keys(reasons).map((key) => number(ratio(key))).join(" × ");
  return `Its size is ${product} = ${number(Math.abs(data[pixel] / data[best]))} of the largest, line by line, mostly ` +
    `because ${reasons[least]}.`;
}
