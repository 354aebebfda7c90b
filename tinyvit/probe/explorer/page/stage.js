// The image, its patches, and a heat map over it.

const leastWidth = 25 * Math.max(columns, (rows * width) / height); // pixels: a patch as wide as a finger needs
byId("stage").style.aspectRatio = `${width} / ${height}`;
byId("pinned").style.cssText = `--shape: ${width / height}; --least: ${leastWidth}px`;
byId("pinned").classList.toggle("stacked", leastWidth > 240); // a phone has no room beside it

const chips = new Map([0, "mean"].map((token) => [token, element("button", {
  type: "button", className: "chip", onclick: () => changed({ token, pointed: null }),
  ...hovered((is) => changed({ pointed: is ? token : null })),
}, element("span", { textContent: tokenName(token) }), element("span", { className: "value" }))]));
byId("chips").append(...chips.values());

const patches = makeGrid(byId("patches"), {
  label: "Patches of the image", height: rows, width: columns,
  onChoose: (i) => changed({ token: i + 1, pointed: null }),
  onPoint: (i) => changed({ pointed: i === null ? null : i + 1 }),
});
patches.forEach((button) => button.append(element("span", { className: "value" })));
byId("show-numbers").checked = rows * columns <= 16;
byId("show-numbers").onchange = byId("strength").oninput = () => changed({});

/** How much of the image a heat map on it covers, from 0 to 1. */
const strength = () => byId("strength").valueAsNumber / 100;

/** Show a `mapOf` the tokens, or with `NOTHING` the image alone. */
function drawStage(map) {
  const { values } = map;
  paintPicture(byId("picture"), arrays.picture);
  byId("heat").hidden = byId("scale").hidden = values === null || state.drawing;
  if (values !== null) {
    paintPatches(byId("heat"), map, strength());
    drawLegend(byId("scale"), map, strength());
  }
  mark(patches, state.token > 0 ? state.token - 1 : null);
  patches.forEach((button, i) => {
    const token = i + 1, name = tokenName(token);
    button.ariaLabel = values === null ? name : `${name}: ${map.text(values[token])}`;
    button.classList.toggle("looking", state.looking === token);
    button.firstChild.textContent = values === null ? token : map.short(values[token]);
    button.firstChild.hidden = !byId("show-numbers").checked;
  });
  for (const [token, chip] of chips) {
    chip.ariaPressed = state.token === token;
    chip.classList.toggle("looking", state.looking === token);
    chip.lastChild.textContent = values === null || token === "mean" ? "" : map.text(values[0]);
  }
}
