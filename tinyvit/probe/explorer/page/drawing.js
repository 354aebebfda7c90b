// Drawing on the image: levels from 0 to 255 of every channel, and the pixels that the model reads of them.

/**
 * What `computed` takes of levels (C, height, width) that were drawn on an image: the pixels as the model reads them,
 * and their picture. Pixels that weren't changed are those of the image to the last digit.
 */
function drawn(levels, image) {
  const size = height * width, normal = about.live, before = levelsOf(image);
  const pixels = Float64Array.from(levels, (level, i) => {
    const channel = Math.floor(i / size);
    if (level === before[i]) return image.pixels.data[i];
    return (level / 255 - normal.mean[channel]) / normal.std[channel];
  });
  const ofPixel = (i) => Array.from({ length: model.in_chans }, (_, channel) => levels[channel * size + i]);
  const colours = Array.from({ length: size }, (_, i) =>
    (model.in_chans === 3 ? ofPixel(i) : Array(3).fill(mean(ofPixel(i)))));
  return { pixels: { data: pixels }, picture: { data: Uint8ClampedArray.from(colours.flat()) } };
}

/** The levels nearest to the pixels of an image. */
function levelsOf({ pixels }) {
  const size = height * width, normal = about.live;
  return Uint8ClampedArray.from(pixels.data, (value, i) => {
    const channel = Math.floor(i / size);
    return 255 * (value * normal.std[channel] + normal.mean[channel]);
  });
}

if (live) {
  makeCells(byId("pixels"), {
    label: "Pixels of the image. Arrow keys move, Space paints, Delete erases, plus and minus change a little",
    what: "drawing", height, width, drag: true, onPoint: readPixel,
    onAct: (row, column) => putPixel(row, column, () => byId("brush").valueAsNumber),
    onKey: (key, row, column) => {
      const change = {
        Delete: () => 0, Backspace: () => 0, "+": (level) => level + 16, "-": (level) => level - 16,
      }[key];
      if (change) putPixel(row, column, change);
      return Boolean(change);
    },
  });
  byId("draw").onclick = () => changed({ drawing: !state.drawing, pointed: null });
  byId("clear").onclick = () => changed({
    own: new Uint8ClampedArray(model.in_chans * height * width), label: null, drawing: true,
  });
  byId("original").onclick = () => changed({ own: null, label: state.image.label });
  byId("label").append(...about.classes.map((name, k) => element("option", { value: k, textContent: name })),
    element("option", { value: "", textContent: "unknown" }));
  byId("label").onchange = ({ target }) => changed({ label: target.value ? target.selectedIndex : null });
  byId("brush").oninput = drawTools;
}

/** Set all channels of a pixel to change(level). */
async function putPixel(row, column, change) {
  const levels = (state.own ?? levelsOf(arrays)).slice();
  for (let channel = 0; channel < model.in_chans; channel++) {
    const i = pixelAt(row, column, channel);
    levels[i] = change(levels[i]); // which stays between 0 and 255
  }
  await changed({ own: levels });
  readPixel(row, column);
}

function readPixel(row, column) {
  const levels = state.own ?? levelsOf(arrays);
  const all = (text) => Array.from({ length: model.in_chans }, (_, i) => text(pixelAt(row, column, i))).join(", ");
  byId("pixel").textContent = row === null ? "" : `Pixel in row ${row + 1}, column ${column + 1}: brightness ` +
    `${all((i) => levels[i])} of 255, gradient ${all((i) => number(arrays.dpixels.data[i]))}`;
}

function drawTools() {
  const { drawing, own, label } = state;
  byId("draw").ariaPressed = drawing;
  byId("pixels").hidden = byId("tools").hidden = !drawing;
  byId("patches").hidden = byId("chips").hidden = drawing;
  byId("original").hidden = own === null && label === state.image.label;
  byId("label").selectedIndex = label ?? model.num_classes;
  byId("brush-level").textContent = byId("brush").value;
}
