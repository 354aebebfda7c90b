// Every head of every block as a small map of where the chosen token looks, and the switch of the chosen one.

const placeOfHead = (i) => [Math.floor(i / model.num_heads), i % model.num_heads];
const isOff = (i) => state.off.has(switchName(...placeOfHead(i)));

/** Numbers beside rows or columns, for the eye: each map says its block and head itself. */
const axis = (textContent) => element("span", { className: "axis", ariaHidden: "true", textContent });
const labels = (className, what, count) => element("div", { className, ariaHidden: "true" },
  ...Array.from({ length: count }, (_, i) => element("span", { textContent: i, title: `${what} ${i}` })));

const headMap = picture("map"), headMaps = element("div", { className: "grid" });
byId("heads-grid").style.setProperty("--columns", model.num_heads);
byId("heads-grid").append(axis("Head"), labels("columns", "head", model.num_heads), axis("Block"),
  labels("blocks", "block", model.depth), headMaps);
const heads = makeGrid(headMaps, {
  label: "Heads of attention", height: model.depth, width: model.num_heads,
  onChoose: (i) => { const [block, head] = placeOfHead(i); changed({ block, head }); },
});
heads.forEach((button, i) => {
  button.ariaLabel = headName(...placeOfHead(i));
  button.append(picture("thumbnail", `aspect-ratio: ${width} / ${height}`));
});

if (live) {
  byId("head-on").onchange = () => {
    const off = new Set(state.off), name = switchName(state.block, state.head);
    if (!off.delete(name)) off.add(name);
    changed({ off });
  };
  byId("all-on").onclick = () => changed({ off: new Set() });
}

/** The heads stand in the text of the steps that are about them; on a narrow screen beside the picture. */
function drawHeads() {
  const slot = document.querySelector(`#step-${state.step} [data-heads]`);
  byId("heads").hidden = slot === null;
  byId("pinned").classList.toggle("with-heads", slot !== null);
  if (slot === null) return;
  const home = narrow.matches ? byId("beside") : slot, chosen = state.block * model.num_heads + state.head;
  if (byId("heads").parentElement !== home) home.append(byId("heads"));
  mark(heads, chosen);
  heads.forEach((button, i) => {
    const [block, head] = placeOfHead(i);
    paintPatches(headMap, headMapOf(state.step, block, head));
    lay(button.firstChild, byId("picture"), headMap, strength());
    button.classList.toggle("off", isOff(i));
    button.ariaLabel = headName(block, head) + (isOff(i) ? ", switched off" : "");
  });
  if (!live) return;
  byId("head-on").checked = !isOff(chosen);
  byId("head-on").ariaLabel = `Head ${state.head} of ${blockName(state.block)} is on`;
  byId("all-on").disabled = state.off.size === 0;
}
