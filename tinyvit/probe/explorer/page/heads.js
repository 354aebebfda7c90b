// Every head of every block as a small map of where the chosen token looks.

class Heads {
  constructor(parent, label, onChoose) {
    const heads = model.heads;
    parent.style.setProperty("--columns", heads);
    const grid = element("div", { className: "grid" });
    parent.append(element("span"), labels("columns", "head", heads), labels("blocks", "block", model.depth), grid);
    this.grid = new ButtonGrid(grid, {
      label, height: model.depth, width: heads, onChoose: (i) => onChoose(Math.floor(i / heads), i % heads),
      name: (i) => `${blockName(Math.floor(i / heads))}, head ${(i % heads) + 1}`,
    });
    this.canvases = this.grid.buttons.map((button) => {
      const canvas = picture("thumbnail");
      canvas.style.aspectRatio = `${model.size[1]} / ${model.size[0]}`;
      button.append(canvas);
      return canvas;
    });
  }

  /** row(block, head) is {values, kind, largest}. */
  draw(chosen, row) {
    this.grid.mark(chosen.block * model.heads + chosen.head);
    this.canvases.forEach((canvas, i) => {
      const { values, kind, largest } = row(Math.floor(i / model.heads), i % model.heads);
      paintPatches(canvas, values, kind, largest);
    });
  }
}

/** Numbers beside rows or columns, for the eye: each map says its block and head itself. */
function labels(className, what, count) {
  const text = (i) => element("span", { textContent: String(i), title: `${what} ${i}` });
  const texts = Array.from({ length: count }, (_, i) => text(i + 1));
  const made = element("div", { className }, ...texts);
  made.setAttribute("aria-hidden", "true");
  return made;
}
