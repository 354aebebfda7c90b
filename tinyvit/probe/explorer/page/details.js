// What each step shows beside its text, besides the insides: bars, the patch that is looked at, one matrix.

const DETAILS = {
  patches() {
    const pixels = arrays.pixels.data;
    const least = pixels.reduce((a, b) => Math.min(a, b)), most = pixels.reduce((a, b) => Math.max(a, b));
    const grey = (value) => Array(3).fill(Math.round((255 * (value - least)) / (most - least || 1)));
    enlarge("enlarged", pixels, grey, (value) => signed(value.toFixed(2)));
  },
  tokens: () => drawTokens("tokens-matrix", "All tokens at once", at(arrays.stream, state.depth), state.looking),
  logits() {
    drawBars(byId("logits-bars"), "Classes", ["class", "logit", "probability"], classItems((k) => ({
      value: arrays.probabilities.data[k], cells: [arrays.logits.data[k], share(arrays.probabilities.data[k])],
    })));
  },
  loss() {
    byId("loss-value").replaceChildren(
      `ℒ = −log ${number(arrays.probabilities.data[arrays.label])} = ${number(arrays.loss)}, for the ` +
      `${state.label === null ? "likeliest class, as the true one is unknown:" : "true class"} `,
      bidi(about.classes[arrays.label]), ".");
    drawBars(byId("loss-bars"), "Gradient with respect to the logits", ["class", "dlogits"],
      classItems((k) => ({ value: arrays.dlogits.data[k] })));
  },
  dtokens() {
    const depths = Array.from({ length: model.depth + 1 }, (_, i) => model.depth - i);
    const caption = "Length of the gradient, from the loss back to the pixels";
    drawBars(byId("flow-bars"), caption, ["with respect to", "length"], [
      { name: "logits", value: norm(arrays.dlogits.data) },
      ...depths.map((depth) => ({ name: `tokens ${afterBlocks(depth)}`, current: depth === state.ddepth,
                                  value: norm(part(arrays.dstream_length, depth)) })),
      { name: "pixels", value: norm(arrays.dpixels.data) },
    ]);
    drawTokens("dtokens-matrix", "All tokens’ gradients at once", at(arrays.dstream, state.ddepth), state.looking);
  },
  dpixels() {
    const pixels = arrays.dpixels.data;
    byId("dpixels-text").textContent = whyPixels(pixels);
    for (let channel = 0; channel < model.in_chans; channel++) {
      const id = `dpixels-${channel}`;
      if (!byId(id)) byId("dpixels-pictures").append(element("div", { id }));
      matrix(id, {
        label: inChannel("Gradient with respect to the pixels", channel), square: true,
        rowName: (row) => `Row ${row + 1}`, columnName: (column) => `column ${column + 1}`,
        onChoose: (row, column) => {
          const pixel = pixelAt(row, column, channel);
          changed({ token: patchOf(pixel), pixel, pointed: null });
        },
      })(at(arrays.dpixels, channel));
    }
    enlarge("dpixels-patch", pixels, colouring("signed", largestOf(pixels)), number);
  },
};

function channelName(channel) {
  if (model.in_chans === 1) return "";
  return model.in_chans === 3 ? ["red", "green", "blue"][channel] : `channel ${channel + 1}`;
}

/** A place with its channel, if there are several. */
const inChannel = (place, channel) => [place, channelName(channel)].filter(Boolean).join(", ");

/** How many pixels have no gradient, which has the least, and why that can be. */
function whyPixels(pixels) {
  const none = pixels.filter((value) => value === 0).length;
  const least = pixels.reduce((best, value, i) => (Math.abs(value) < Math.abs(pixels[best]) ? i : best), 0);
  if (none === 0) {
    return `None of the gradients is exactly zero. The smallest, ${number(pixels[least])}, is that of the pixel in ` +
      `${pixelName(least)}. All of them come from dlogits, whose length is ${number(norm(arrays.dlogits.data))}: ` +
      "at most √2, and near zero if the model is sure of the true class.";
  }
  const all = none === pixels.length;
  if (all && state.off.size === model.depth * model.num_heads && model.global_pool === "token") {
    return "No pixel has a gradient: all heads are switched off, so nothing of any patch reaches the class token, " +
      "which the head reads.";
  }
  return `${none} of ${pixels.length} gradients are exactly zero: nothing leads from there to the loss` +
    (state.off.size ? ", or only through heads that are switched off." : ".");
}

/**
 * The numbers of the patch that is looked at, each on its colour, or a picture if there are too many to read; of what
 * has none, as many empty places, so that nothing moves.
 */
function enlarge(id, pixels, colourOf, text) {
  const { looking } = state, isPatch = looking > 0;
  const top = Math.floor((looking - 1) / columns) * P, left = ((looking - 1) % columns) * Q;
  const from = (first, count) => (count === 1 ? String(first + 1) : `${first + 1} to ${first + count}`);
  byId(`${id}-title`).textContent = isPatch
    ? `${tokenName(looking)}: its pixels, rows ${from(top, P)}, columns ${from(left, Q)}`
    : `${tokenName(looking)}: no pixels of its own`;
  byId(id).replaceChildren(...Array.from({ length: model.in_chans }, (_, channel) => {
    const value = (row, column) => pixels[pixelAt(top + row, left + column, channel)];
    if (P * Q > 64) {
      const canvas = picture("enlarged", `aspect-ratio: ${Q} / ${P}`);
      paint(canvas, Q, P, (i) => (isPatch ? colourOf(value(Math.floor(i / Q), i % Q)) : [0, 0, 0, 0]));
      return element("figure", {}, canvas, element("figcaption", { textContent: channelName(channel) }));
    }
    const rows = Array.from({ length: P }, (_, row) => element("tr", {}, ...Array.from({ length: Q }, (_, column) => {
      if (!isPatch) return element("td");
      const own = value(row, column), background = colourOf(own);
      const style = `background: rgb(${background.join(" ")}); color: ${readableOn(background)}`;
      return element("td", { textContent: text(own), style });
    })));
    return element("table", { className: "pixels" },
      element("caption", { textContent: channelName(channel) }), element("tbody", {}, ...rows));
  }));
}

/** The classes that matter most: at most ten, the likeliest first, and the true one; numbersOf(class) is added. */
function classItems(numbersOf) {
  const { label } = arrays, probabilities = arrays.probabilities.data, likeliest = largestFirst(probabilities);
  const few = likeliest.length > 12 ? likeliest.slice(0, 10) : [...probabilities.keys()];
  return (few.includes(label) ? few : [...few, label]).map((k) => ({
    name: about.classes[k], ...numbersOf(k), current: k === label,
    note: [k === state.label ? "true class" : "", k === likeliest[0] ? "prediction" : ""].filter(Boolean).join(", "),
  }));
}
