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

/** The changes of the state that an address asks for, and in words what of it this page doesn't have. */
function changesOf(hash) {
  const changes = {}, missing = [];
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const take = (name, least, most, use) => {
    if (!asked.has(name)) return;
    const value = Number(asked.get(name));
    if (Number.isInteger(value) && value >= least && value <= most) use(value);
    else missing.push(`${name}=${asked.get(name)} (there are ${least} to ${most})`);
  };
  take("image", 1, about.images.length, (value) => { changes.image = about.images[value - 1]; });
  take("block", 1, model.depth, (value) => { changes.block = value - 1; });
  take("head", 1, model.heads, (value) => { changes.head = value - 1; });
  if (["class", "mean"].includes(asked.get("token"))) changes.token = asked.get("token") === "class" ? 0 : "mean";
  else take("token", 1, tokens - 1, (value) => { changes.token = value; });
  if (asked.has("pixel")) {
    const place = asked.get("pixel").split(".").map((index) => Number(index) - 1), pixel = pixelAt(...place);
    if (pixel === null) missing.push(`pixel=${asked.get("pixel")} (row.column.channel, from 1.1.1)`);
    else Object.assign(changes, { token: patchOf(pixel), pixel });
  }
  if (stepNames.includes(asked.get("step"))) changes.step = asked.get("step");
  else if (asked.has("step")) missing.push(`step=${asked.get("step")} (there are ${stepNames.join(", ")})`);
  const field = SLIDERS[changes.step];
  if (field) take("at", field === "through" ? 1 : 0, field === "norm" ? 2 * model.depth : model.depth,
    (value) => { changes[field] = value; });
  if (!live) return { changes, missing };
  take("label", 1, model.classes, (value) => { changes.label = value - 1; });
  const heads = (asked.get("off") ?? "").split(",").filter(Boolean);
  const exists = (name) => {
    const [block, head] = name.split(".").map(Number);
    return /^\d+\.\d+$/.test(name) && block >= 1 && block <= model.depth && head >= 1 && head <= model.heads;
  };
  changes.off = new Set(heads.filter(exists));
  missing.push(...heads.filter((name) => !exists(name)).map((name) => `off=${name} (block.head, from 1.1)`));
  if (asked.has("pixels")) {
    const levels = textLevels(asked.get("pixels"));
    if (levels) changes.own = levels;
    else missing.push("pixels (of an image of another size)");
  }
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
  const levels = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
  return levels.length === model.channels * model.size[0] * model.size[1] ? levels : null;
}
