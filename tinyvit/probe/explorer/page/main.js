// The page: what is chosen, the controls that change it, and everything drawn again from it.

fillIn();
const stepSections = [...document.querySelectorAll(".step")];
const stepNames = stepSections.map((section) => section.id.replace("step-", ""));
const chain = stepNames.filter((step) => step !== "rollout"); // which shows no part of the computation
const firstBackwards = stepNames.indexOf("loss");
const SLIDERS = { // by step: which part of the state it sets, from where to where, and what is said of it
  tokens: { field: "depth", least: 0, most: model.depth, label: afterBlocks },
  norm: { field: "norm", least: 0, most: 2 * model.depth, label: (i) => normAt(arrays, i).said },
  mlp: { field: "mlp", least: 0, most: model.depth - 1, label: blockName },
  dtokens: { field: "ddepth", least: 0, most: model.depth, label: afterBlocks },
  rollout: { field: "through", least: 1, most: model.depth, label: (count) => `${count} of ${model.depth} blocks` },
};

const state = {
  image: about.images[0], own: null, label: about.images[0].label, off: new Set(), drawing: false,
  step: "patches", token: 1, chosen: false, pointed: null, looking: 1, key: null, pixel: null,
  block: model.depth - 1, head: 0,
  depth: 0, norm: 0, mlp: model.depth - 1, through: model.depth, ddepth: model.depth - 1, // where the sliders are
};
let arrays = null;

/** Change the state, compute what depends on it, and draw. */
async function changed(changes) {
  if (changes.image) changes = { own: null, label: changes.image.label, ...changes };
  if ("token" in changes) changes = { chosen: true, pixel: null, ...changes };
  if (changes.step) changes = { ...startOf(changes.step), ...changes };
  if ("token" in changes || "block" in changes || "head" in changes) changes = { key: null, ...changes };
  Object.assign(state, changes);
  if (arrays === null || ["image", "own", "label", "off"].some((input) => input in changes)) {
    const { image } = state, given = await arraysOf(image);
    if (state.image !== image) return; // another one was chosen meanwhile
    const on = Array.from({ length: model.depth }, (_, block) =>
      Array.from({ length: model.num_heads }, (_, head) => Number(!state.off.has(switchName(block, head)))));
    const seen = state.own ? drawn(state.own, given) : given;
    arrays = live ? computed(seen, state.label, on) : { ...given, label: state.label, loss: image.loss };
  }
  if (!state.chosen) state.token = firstToken(state.step);
  state.looking = state.pointed ?? state.token;
  draw();
  if (changes.step) bringIntoRow(byId("ways"), stepButtons[stepNames.indexOf(state.step)]);
  if (changes.image) bringIntoRow(byId("images"), imageInputs[about.images.indexOf(state.image)].parentElement);
  const link = linkOf();
  if (link !== location.hash) history.replaceState(null, "", link);
}

/** Push a row that is wider than the screen aside, if its chosen element isn't in sight. */
function bringIntoRow(row, chosen) {
  const { left, right } = row.getBoundingClientRect(), own = chosen.getBoundingClientRect();
  if (own.left < left || own.right > right) row.scrollLeft += (own.left + own.right - left - right) / 2;
}

/** What is given up for a step: at first the way back starts where there is something to see; pixels have a patch. */
function startOf(step) {
  const pixels = step === "patches" || step === "dpixels", back = ["dtokens", "dattention", "dpixels"];
  if (pixels && !(state.token > 0)) return { chosen: false };
  if (pixels || !back.includes(step) || back.includes(state.step)) return {};
  const reads = model.global_pool === "avg" && state.token > 0; // every patch has a gradient
  return { chosen: state.chosen && reads, block: model.depth - 1, ddepth: model.depth - 1 };
}

/** The token of a step while none was chosen: a patch, then what the head reads in the end, then the strongest patch.
 * Of gradients the mean of all patches tells little, since they differ in sign. */
function firstToken(step) {
  if (step === "dpixels") return largestFirst(patchLengths(arrays.dpixels))[0] || 1; // 0 if none has a gradient
  if (model.global_pool === "avg") return ["attention", "rollout"].includes(step) ? "mean" : 1;
  return ["patches", "tokens", "norm"].includes(step) ? 1 : 0;
}

/** Do what the address asks for, and say what of it the page doesn't have. */
async function follow(hash) {
  const { changes, missing } = changesOf(hash);
  byId("notice").hidden = missing.length === 0;
  byId("notice").textContent = `The link asks for what this page doesn’t have: ${missing.join("; ")}.`;
  await changed({ pointed: null, ...changes });
}

/** Say what the model is, and leave in the page what is true of it. */
function fillIn() {
  const count = (value) => value.toLocaleString("en");
  byId("facts").textContent =
    `${count(model.parameters)} parameters: ${model.depth} blocks of ${model.num_heads} heads, ` +
    `tokens of ${model.embed_dim} numbers, patches of ${P}×${Q} in images of ${height}×${width} pixels.` +
    (live ? "" : ` It can’t run in this page, because ${about.whyNotLive}; the numbers were computed before.`);
  const conditions = new Set([
    `pool=${model.global_pool}`, `head=${model.head_hidden === null ? "linear" : "mlp"}`, `live=${live ? "yes" : "no"}`,
    ["rope", "none"].includes(model.positions) ? `positions=${model.positions}` : "positions=added",
  ]);
  for (const part of document.querySelectorAll("[data-when]")) if (!conditions.has(part.dataset.when)) part.remove();
  for (const cell of document.querySelectorAll("[data-shape]")) cell.textContent = shape(cell.dataset.shape);
}

const imageInputs = about.images.map((image) => {
  const canvas = picture("thumbnail"), name = (k) => bidi(about.classes[k]);
  arraysOf(image).then((own) => paintPicture(canvas, own.picture));
  const input = element("input", { type: "radio", name: "image", onchange: () => changed({ image }) });
  const right = image.prediction === image.label;
  const verdict = right ? ["✓\u00a0recognised"] : ["✗\u00a0taken for ", name(image.prediction)];
  byId("images").append(element("label", { className: "image" }, input, canvas,
    element("span", { className: "name" }, name(image.label)),
    element("span", { className: "note" }, bidi(image.name), ", ", ...verdict)));
  return input;
});
const stepButtons = stepNames.map((step, i) => {
  const textContent = stepSections[i].dataset.tab;
  const button = element("button", { type: "button", textContent, onclick: () => changed({ step }) });
  byId(step === "rollout" ? "aside" : i < firstBackwards ? "forwards" : "backwards").append(button);
  return button;
});
byId("back").onclick = () => turn(-1);
byId("next").onclick = () => turn(1);

/** Go to the step before or after. */
async function turn(by) {
  await changed({ step: neighbour(by) });
  byId("step-title").focus({ preventScroll: true });
  byId("step-title").scrollIntoView();
}

/** The step before or after; the rollout stands beside the attention. */
function neighbour(by) {
  if (state.step === "rollout") return by < 0 ? "attention" : chain[chain.indexOf("attention") + 1];
  return chain[chain.indexOf(state.step) + by];
}

function drawSlider({ field, least, most, label }) {
  const [input, output] = document.querySelectorAll(`#${state.step}-slider :is(input, output)`);
  const oninput = () => changed({ [field]: input.valueAsNumber }), ariaValueText = label(state[field]);
  Object.assign(input, { min: least, max: most, value: state[field], oninput, ariaValueText });
  output.textContent = ariaValueText;
}

if (live) {
  byId("attention-key").append(...Array.from({ length: tokens }, (_, j) =>
    element("option", { value: j, textContent: tokenName(j) })));
  byId("attention-key").onchange = ({ target }) => changed({ key: target.selectedIndex });
}
const narrow = matchMedia("(max-width: 50rem)");
narrow.onchange = dark.onchange = () => draw();
onhashchange = () => follow(location.hash);

function draw() {
  const here = stepNames.indexOf(state.step), place = chain.indexOf(state.step);
  stepSections.forEach((section, i) => { section.hidden = i !== here; });
  stepButtons.forEach((button, i) => { button.ariaCurrent = i === here ? "step" : null; });
  imageInputs.forEach((input, i) => { input.checked = about.images[i] === state.image; });
  byId("step-title").textContent = stepSections[here].dataset.title;
  const asks = ["attention", "dattention"].includes(state.step);
  byId("look-title").replaceChildren(
    state.drawing ? "3. Draw on it" : asks ? "3. Choose who asks" : "3. Point at a patch",
    element("span", { className: "keys", textContent: state.drawing ? " (or arrows, Space)" : " (or arrows)" }));
  byId("back").disabled = place === 0;
  byId("next").disabled = place === chain.length - 1;
  if (state.step in SLIDERS) drawSlider(SLIDERS[state.step]);
  const map = MAPS[state.step](arrays, state);
  drawStage(map);
  if (live) drawTools();
  const unit = map.unit && byId("show-numbers").checked ? ` Numbers on the patches are in units of ${map.unit}.` : "";
  byId("readout").textContent = map.readout + unit;
  const { data } = arrays.probabilities; // of which the guesses are the three largest
  drawTable(byId("guesses"), "It says", [], largestFirst(data).slice(0, 3).map((k) =>
    [bidi(about.classes[k]), barCell(1, 0, 100 * data[k]), share(data[k])]));
  byId("largest").hidden = map.values === null;
  if (map.values !== null) {
    const largest = largestFirst(map.values.map(Math.abs)).slice(0, 5);
    drawTable(byId("largest"), map.title, [], largest.map((token) => [tokenName(token), map.text(map.values[token])]));
  }
  drawHeads();
  DETAILS[state.step]?.();
  if (live) INSIDE[state.step]?.(arrays);
}

await follow(location.hash);
