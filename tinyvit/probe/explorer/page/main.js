// The page: what is chosen, the controls that change it, and everything drawn again from it.

const read = model.pool === "token" ? 0 : "mean"; // what the head reads
const state = {
  image: about.images[0], step: "patches", token: 1, pointed: null, looking: 1,
  depth: 0, block: model.depth - 1, head: 0, through: model.depth, ddepth: model.depth,
};
let arrays = await arraysOf(state.image);

const stepSections = [...document.querySelectorAll(".step")];
const stepNames = stepSections.map((section) => section.id.replace("step-", ""));
const firstBackwards = stepNames.indexOf("loss");

async function changed(changes) {
  Object.assign(state, changes);
  state.looking = state.pointed ?? state.token;
  if (changes.image) {
    const wanted = await arraysOf(changes.image);
    if (state.image !== changes.image) return; // another one was chosen meanwhile
    arrays = wanted;
  }
  draw();
}

function fillIn() {
  const [height, width] = model.size, [P, Q] = model.patch;
  const count = (value) => value.toLocaleString("en");
  byId("facts").textContent =
    `${count(model.parameters)} parameters: ${model.depth} blocks of ${model.heads} heads, ` +
    `tokens of ${model.width} numbers, patches of ${P}×${Q} in images of ${height}×${width} pixels.`;
  const conditions = new Set([
    `pool=${model.pool}`, `head=${model.headHidden === null ? "linear" : "mlp"}`,
    ["rope", "none"].includes(model.positions) ? `positions=${model.positions}` : "positions=added",
  ]);
  for (const part of document.querySelectorAll("[data-when]")) if (!conditions.has(part.dataset.when)) part.remove();
  for (const cell of document.querySelectorAll("[data-shape]")) cell.textContent = shape(cell.dataset.shape);
}

function makeImages() {
  about.images.forEach((image, i) => {
    const canvas = picture("thumbnail");
    arraysOf(image).then((own) => paintPicture(canvas, own.picture));
    const input = element("input", { type: "radio", name: "image", checked: i === 0 });
    input.addEventListener("change", () => changed({ image }));
    const right = image.prediction === image.label;
    const verdict = right ? "✓\u00a0recognised" : `✗\u00a0taken for ${about.classes[image.prediction]}`;
    byId("images").append(element("label", { className: "image" }, input, canvas,
      element("span", { className: "name", textContent: about.classes[image.label] }),
      element("span", { className: "note", textContent: `${image.name}, ${verdict}` })));
  });
}

function makeSteps() {
  const buttons = stepNames.map((step, i) => {
    const section = stepSections[i];
    const button = element("button", { type: "button", textContent: section.dataset.tab });
    button.addEventListener("click", () => changed({ step }));
    byId(i < firstBackwards ? "forwards" : "backwards").append(button);
    return button;
  });
  const turn = (by) => {
    changed({ step: stepNames[stepNames.indexOf(state.step) + by] });
    byId("step-title").focus({ preventScroll: true });
    byId("step-title").scrollIntoView();
  };
  byId("back").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  return buttons;
}

function makeSliders() {
  const depth = model.depth;
  const slider = (id, field, options) => new Slider(byId(`${id}-slider`), {
    most: depth, value: state[field], onChange: (value) => changed({ [field]: value }), ...options,
  });
  return [
    slider("tokens", "depth", { least: 0, name: "Tokens", label: afterBlocks }),
    slider("rollout", "through", { least: 1, name: "Through", label: (count) => `${count} of ${depth} blocks` }),
    slider("dtokens", "ddepth", { least: 0, name: "Gradient", label: afterBlocks, backwards: true }),
  ];
}

const choose = (block, head) => changed({ block, head });
fillIn();
makeImages();
const stepButtons = makeSteps();
const sliders = makeSliders();
const stage = new Stage(state, changed);
const heads = {
  attention: new Heads(byId("attention-heads"), "Heads of attention", choose),
  dattention: new Heads(byId("dattention-heads"), "Heads of attention, their gradients", choose),
};
dark.addEventListener("change", () => draw());

function draw() {
  const here = stepNames.indexOf(state.step);
  stepSections.forEach((section, i) => { section.hidden = i !== here; });
  stepButtons.forEach((button, i) => { button.ariaCurrent = i === here ? "step" : null; });
  byId("step-title").textContent = stepSections[here].dataset.title;
  byId("back").disabled = here === 0;
  byId("next").disabled = here === stepNames.length - 1;
  sliders.forEach((slider, i) => { if (["tokens", "rollout", "dtokens"][i] !== state.step) slider.pause(); });
  const map = MAPS[state.step](arrays, state);
  stage.draw(arrays, map);
  const unit = map.unit && byId("show-numbers").checked ? ` Numbers on the patches are in units of ${map.unit}.` : "";
  byId("readout").textContent = map.readout(state.looking) + unit;
  drawLargest(map);
  DETAILS[state.step]?.();
}

function drawLargest(map) {
  byId("largest").hidden = map.values === null;
  if (map.values === null) return;
  const order = [...map.values.keys()].sort((a, b) => Math.abs(map.values[b]) - Math.abs(map.values[a])).slice(0, 5);
  byId("largest").caption.textContent = map.title;
  byId("largest").tBodies[0].replaceChildren(...order.map((token) => element("tr", {},
    element("th", { scope: "row", textContent: tokenName(token) }),
    element("td", { className: "number", textContent: map.text(map.values[token]) }))));
}

const DETAILS = {
  patches() {
    const pixels = arrays.pixels.data;
    const least = pixels.reduce((a, b) => Math.min(a, b)), most = pixels.reduce((a, b) => Math.max(a, b));
    const grey = (value) => Array(3).fill(Math.round((255 * (value - least)) / (most - least || 1)));
    enlarge("enlarged", pixels, grey, (value) => signed(value.toFixed(2)));
  },
  tokens: () => drawMatrix(byId("tokens-matrix"), part(arrays.stream, state.depth), state.looking),
  attention: () =>
    heads.attention.draw(state, (block, head) => shares(attentionRow(arrays, block, head, state.looking))),
  logits() {
    drawBars(byId("logits-bars"), "Classes", ["class", "logit", "probability"], classItems((k) => ({
      value: arrays.probabilities.data[k], cells: [number(arrays.logits.data[k]), share(arrays.probabilities.data[k])],
    })));
  },
  loss() {
    const p = arrays.probabilities.data[state.image.label];
    byId("loss-value").textContent =
      `ℒ = −log ${number(p)} = ${number(state.image.loss)}, for the true class ${about.classes[state.image.label]}.`;
    drawBars(byId("loss-bars"), "Gradient by the logits", ["class", "dlogits"], classItems((k) => ({
      value: arrays.dlogits.data[k], cells: [number(arrays.dlogits.data[k])],
    })));
  },
  dtokens() {
    const depths = Array.from({ length: model.depth + 1 }, (_, i) => model.depth - i);
    const item = (name, value, current) => ({ name, value, cells: [number(value)], current });
    drawBars(byId("flow-bars"), "Length of the gradient, from the loss back to the pixels", ["by", "length"], [
      item("logits", lengthOf(arrays.dlogits.data)),
      ...depths.map((depth) =>
        item(`tokens ${afterBlocks(depth)}`, lengthOf(part(arrays.dstream_length, depth)), depth === state.ddepth)),
      item("pixels", lengthOf(arrays.dpixels.data)),
    ]);
    drawMatrix(byId("dtokens-matrix"), part(arrays.dstream, state.ddepth), state.looking);
  },
  dattention: () =>
    heads.dattention.draw(state, (block, head) =>
      sizes(dattentionRow(arrays, block, head, state.looking), "signed")),
  dpixels() {
    const pixels = arrays.dpixels.data, largest = largestOf(pixels);
    const [height, width] = model.size;
    const colour = colouring("signed", largest);
    byId("dpixels-text").textContent = `Blue is negative, orange positive; the largest is ${number(largest)} in size.`;
    byId("dpixels-pictures").replaceChildren(...Array.from({ length: model.channels }, (_, channel) => {
      const canvas = picture("gradient");
      paint(canvas, width, height, (i) => colour(pixels[channel * height * width + i]));
      canvas.style.aspectRatio = `${width} / ${height}`;
      return canvas;
    }));
    enlarge("dpixels-patch", pixels, colour, number);
  },
};

/** The numbers of the patch that is looked at; of what has none, as many empty places, so that nothing moves. */
function enlarge(id, pixels, colour, text) {
  const { looking } = state;
  byId(`${id}-title`).textContent = looking > 0 ? tokenName(looking) : `${tokenName(looking)}: no pixels of its own`;
  drawPatch(byId(id), pixels, looking > 0 ? looking : null, colour, text);
}

function classItems(numbersOf) {
  const { label, prediction } = state.image;
  return classesShown(arrays.probabilities.data, label).map((k) => ({
    name: about.classes[k], ...numbersOf(k), current: k === label,
    note: [k === label ? "true class" : "", k === prediction ? "prediction" : ""].filter(Boolean).join(", "),
  }));
}

draw();
