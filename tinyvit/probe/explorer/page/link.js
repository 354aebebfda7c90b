// The state of the page in its address, so that a link leads to what is seen: #image=3&step=attention&block=2&head=1.
// Images, blocks and heads are counted from 1, as on the page.

/** What stands in the address. */
function linkOf(state) {
  const parts = { image: about.images.indexOf(state.image) + 1, step: state.step };
  if (state.chosen) parts.token = state.token === 0 ? "class" : state.token;
  Object.assign(parts, { block: state.block + 1, head: state.head + 1 });
  if (state.pixel !== null) parts.pixel = placeOf(state.pixel).map((index) => index + 1).join(".");
  if (SLIDERS[state.step]) parts.at = state[SLIDERS[state.step]];
  if (state.off.size) parts.off = [...state.off].sort().join(",");
  if (state.label !== state.image.label) parts.label = state.label + 1;
  if (state.own) parts.pixels = levelsText(state.own);
  return `#${Object.entries(parts).map(([name, value]) => `${name}=${value}`).join("&")}`;
}

/** The changes of the state that an address asks for, and what of it this page doesn't have. */
function changesOf(hash) {
  const changes = {}, missing = [], asked = new URLSearchParams(hash.replace(/^#/, ""));
  const take = (name, read) => {
    if (!asked.has(name)) return;
    const found = read(asked.get(name));
    if (found) Object.assign(changes, found);
    else missing.push(`${name}=${asked.get(name).slice(0, 20)}`);
  };
  const within = (least, most, change) => (text) => {
    const value = Number(text);
    return Number.isInteger(value) && value >= least && value <= most ? change(value) : null;
  };
  take("image", within(1, about.images.length, (value) => ({ image: about.images[value - 1] })));
  take("block", within(1, model.depth, (value) => ({ block: value - 1 })));
  take("head", within(1, model.heads, (value) => ({ head: value - 1 })));
  take("token", (text) => ({ class: { token: 0 }, mean: { token: "mean" } }[text]
    ?? within(1, tokens - 1, (token) => ({ token }))(text)));
  take("pixel", (text) => {
    const pixel = pixelAt(...text.split(".").map((index) => Number(index) - 1));
    return pixel === null ? null : { token: patchOf(pixel), pixel };
  });
  take("step", (step) => (stepNames.includes(step) ? { step } : null));
  const field = SLIDERS[changes.step];
  if (field) {
    const { min, max } = sliders[changes.step].input;
    take("at", within(Number(min), Number(max), (value) => ({ [field]: value })));
  }
  if (!live) return { changes, missing };
  changes.off = new Set();
  take("label", within(1, model.classes, (value) => ({ label: value - 1 })));
  const everyHead = Array.from({ length: model.depth * model.heads }, (_, i) =>
    switchName(Math.floor(i / model.heads), i % model.heads));
  take("off", (text) => {
    const off = new Set(text.split(","));
    return [...off].every((name) => everyHead.includes(name)) ? { off } : null;
  });
  take("pixels", (text) => {
    const own = textLevels(text);
    return own && { own };
  });
  return { changes, missing };
}

/** Levels from 0 to 255 as text for an address: base64 with - and _. */
function levelsText(levels) {
  return btoa([...levels].map((level) => String.fromCharCode(level)).join(""))
    .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The levels of a text, or null if it isn't one of an image of this size. */
function textLevels(text) {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return null;
  const levels = Uint8ClampedArray.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  return levels.length === model.channels * model.size[0] * model.size[1] ? levels : null;
}
