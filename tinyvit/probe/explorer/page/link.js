// The state of the page in its address, so that a link leads to what is seen: #image=3&step=attention&block=2&head=0.
// Images are counted from 1, as on the page, blocks and heads from 0, as in the code.

const within = (least, most, change) => (text) => {
  const value = Number(text);
  return Number.isInteger(value) && value >= least && value <= most ? change(value) : null;
};
const everyHead = Array.from({ length: model.depth * model.num_heads }, (_, i) => switchName(...placeOfHead(i)));

/**
 * By its name in the address, how each part is written, null if it needn't be, and read: the changes of the state that
 * it asks for, given those of the parts before it; null if the page doesn't have it.
 */
const LINK = {
  image: [() => about.images.indexOf(state.image) + 1,
          within(1, about.images.length, (number) => ({ image: about.images[number - 1] }))],
  step: [() => state.step, (step) => (stepNames.includes(step) ? { step } : null)],
  token: [() => (state.chosen ? state.token || "class" : null), (text) => ({
    class: { token: 0 }, mean: { token: "mean" },
  }[text] ?? within(1, tokens - 1, (token) => ({ token }))(text))],
  block: [() => state.block, within(0, model.depth - 1, (block) => ({ block }))],
  head: [() => state.head, within(0, model.num_heads - 1, (head) => ({ head }))],
  pixel: [() => (state.pixel === null ? null : placeOf(state.pixel).map((index) => index + 1).join(".")), (text) => {
    const pixel = pixelAt(...text.split(".").map((index) => Number(index) - 1));
    return pixel === null ? null : { token: patchOf(pixel), pixel };
  }],
  at: [() => state[SLIDERS[state.step]?.field] ?? null, (text, { step }) => {
    const slider = SLIDERS[step];
    return slider ? within(slider.least, slider.most, (value) => ({ [slider.field]: value }))(text) : {};
  }],
  off: [() => [...state.off].sort().join(",") || null, (text) => {
    const off = new Set(text.split(","));
    return live && [...off].every((name) => everyHead.includes(name)) ? { off } : null;
  }],
  label: [() => (state.label === state.image.label ? null : (state.label ?? -1) + 1), // 0 if it isn't known
          (text) => live && within(0, model.num_classes, (number) => ({ label: number ? number - 1 : null }))(text)],
  pixels: [() => state.own && levelsText(state.own), (text) => {
    const own = live && textLevels(text);
    return own && { own };
  }],
};

/** What stands in the address. */
function linkOf() {
  const parts = Object.entries(LINK).map(([name, [write]]) => [name, write()]);
  return `#${parts.filter(([, value]) => value !== null).map((part) => part.join("=")).join("&")}`;
}

/** The changes of the state that an address asks for, and what of it this page doesn't have. */
function changesOf(hash) {
  const changes = { off: new Set() }, missing = [], asked = new URLSearchParams(hash.slice(1));
  for (const [name, [, read]] of Object.entries(LINK)) {
    const text = asked.get(name), found = text === null ? {} : read(text, changes);
    if (found) Object.assign(changes, found);
    else missing.push(`${name}=${text.slice(0, 20)}`);
  }
  return { changes, missing };
}

/** Levels from 0 to 255 as text for an address: base64 with - and _. */
const levelsText = (levels) =>
  btoa(String.fromCharCode(...levels)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** The levels of a text, or null if it isn't one of an image of this size. */
function textLevels(text) {
  if (!/^[\w-]*$/.test(text) || text.length % 4 === 1) return null;
  const levels = Uint8ClampedArray.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  return levels.length === model.in_chans * height * width ? levels : null;
}
