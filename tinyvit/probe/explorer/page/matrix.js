// A matrix of numbers as colours, with a legend; the number that is pointed at is read out.

class Matrix {
  /**
   * With `square` cells, or as wide as there is room. rowName(row) and columnName(column) say which number it is;
   * onChoose(row, column) when one is pressed.
   */
  constructor(parent, { label, rowName, columnName = (column) => `number ${column + 1}`, onChoose = () => {},
                        square = false }) {
    Object.assign(this, { rowName, columnName, square, pointed: null });
    this.canvas = picture("numbers");
    this.frame = element("span", { className: "frame" });
    this.least = element("span");
    this.most = element("span");
    this.ramp = picture("ramp");
    this.output = element("output", { className: "small" });
    const pad = element("div", {}, this.canvas, this.frame);
    parent.classList.add("matrix");
    parent.classList.toggle("square", square);
    parent.append(element("p", { className: "heading", textContent: label }), pad,
      element("div", { className: "scale" }, this.least, this.ramp, this.most), this.output);
    this.cells = new Cells(pad, {
      label: `${label}. Arrow keys read the numbers`, what: "matrix of numbers", height: 1, width: 1,
      onPoint: (row, column) => { this.pointed = row === null ? null : [row, column]; this.read(); },
      onAct: (row, column) => onChoose(row, column),
    });
  }

  /** values of a matrix (height, width); `chosen` is the row in a frame, or null. */
  draw(values, height, width, { kind = "signed", chosen = null } = {}) {
    const largest = largestOf(values), colour = colouring(kind, largest);
    Object.assign(this, { values, height, width });
    paint(this.canvas, width, height, (i) => colour(values[i]));
    this.cells.parent.style.setProperty("--lines", height);
    if (this.square) this.canvas.style.aspectRatio = `${width} / ${height}`;
    this.cells.resize(height, width);
    paintRamp(this.ramp, kind);
    this.least.textContent = kind === "signed" ? number(-largest) : "0";
    this.most.textContent = kind === "share" ? share(largest) : number(largest);
    this.ramp.parentElement.classList.toggle("none", largest === 0);
    this.frame.hidden = chosen === null || chosen === "mean";
    Object.assign(this.frame.style, { top: `${(100 * chosen) / height}%`, height: `${100 / height}%` });
    this.kind = kind;
    this.read();
  }

  read() {
    const [row, column] = this.pointed ?? [];
    const inside = row < this.height && column < this.width;
    const value = inside ? this.values[row * this.width + column] : 0;
    const said = this.kind === "share" ? share(value) : number(value);
    const name = inside ? `${this.rowName(row)}, ${this.columnName(column)}: ` : "";
    this.output.textContent = inside ? name + said : "Point at a number to read it.";
  }
}
