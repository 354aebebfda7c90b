// Every head of every block as a small map of where the chosen token looks, and the switch of the chosen one.

class Heads {
  constructor(state, changed) {
    this.state = state;
    const heads = model.heads, parent = byId("heads-grid");
    parent.style.setProperty("--columns", heads);
    const grid = element("div", { className: "grid" });
    const axis = (textContent) => element("span", { className: "axis", ariaHidden: "true", textContent });
    parent.append(element("span"), element("span"), axis("Head"), element("span"), element("span"),
      labels("columns", "head", heads), axis("Block"), labels("blocks", "block", model.depth), grid);
    this.grid = new ButtonGrid(grid, {
      label: "Heads of attention", height: model.depth, width: heads, name: (i) => this.name(i),
      onChoose: (i) => changed({ block: Math.floor(i / heads), head: i % heads }),
    });
    this.map = picture("map");
    this.canvases = this.grid.buttons.map((button) => {
      const canvas = picture("thumbnail");
      canvas.style.aspectRatio = `${model.size[1]} / ${model.size[0]}`;
      button.append(canvas);
      return canvas;
    });
    this.isOff = (i) => state.off.has(switchName(Math.floor(i / heads), i % heads));
    if (!live) return;
    byId("head-on").onchange = () => {
      const off = new Set(state.off), name = switchName(state.block, state.head);
      if (!off.delete(name)) off.add(name);
      changed({ off });
    };
    byId("all-on").onclick = () => changed({ off: new Set() });
  }

  name(i) {
    const off = this.isOff?.(i) ? ", switched off" : "";
    return `${blockName(Math.floor(i / model.heads))}, head ${(i % model.heads) + 1}${off}`;
  }

  /** row(block, head) is {values, kind, largest}; each map lies over the image as the large one does. */
  draw(row, image) {
    const chosen = this.state.block * model.heads + this.state.head;
    this.grid.mark(chosen);
    this.canvases.forEach((canvas, i) => {
      const { values, kind, largest } = row(Math.floor(i / model.heads), i % model.heads);
      paintPatches(this.map, values, kind, largest);
      lay(canvas, image, this.map, byId("strength").valueAsNumber / 100);
      this.grid.buttons[i].classList.toggle("off", this.isOff(i));
      this.grid.buttons[i].ariaLabel = this.name(i);
    });
    if (!live) return;
    byId("head-on").checked = !this.isOff(chosen);
    byId("head-on").ariaLabel = `Head ${this.state.head + 1} of block ${this.state.block + 1} is on`;
    byId("all-on").disabled = this.state.off.size === 0;
  }
}

/** Numbers beside rows or columns, for the eye: each map says its block and head itself. */
function labels(className, what, count) {
  return element("div", { className, ariaHidden: "true" }, ...Array.from({ length: count }, (_, i) =>
    element("span", { textContent: i + 1, title: `${what} ${i + 1}` })));
}
