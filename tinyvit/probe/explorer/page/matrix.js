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
    this.legend = element("div", { className: "scale" });
    this.output = element("output", { className: "small" });
    const pad = element("div", {}, this.canvas, this.frame);
    parent.classList.add("matrix", ...(square ? ["square"] : []));
    parent.append(element("p", { className: "heading", textContent: label }), pad, this.legend, this.output);
    this.cells = new Cells(pad, {
      label: `${label}. Arrow keys read the numbers`, what: "matrix of numbers", height: 1, width: 1,
      onPoint: (row, column) => { this.pointed = row === null ? null : [row, column]; this.read(); }, onAct: onChoose,
    });
  }

  /** Numbers (height, width); `chosen` is the row in a frame, or null. */
  draw({ data, shape: [height, width] }, { kind = "signed", chosen = null } = {}) {
    const scale = scaleOf(kind, largestOf(data)), colour = colouring(kind, scale.largest);
    Object.assign(this, { data, height, width, text: scale.text });
    paint(this.canvas, width, height, (i) => colour(data[i]));
    this.cells.parent.style.setProperty("--lines", height);
    if (this.square) this.canvas.style.aspectRatio = `${width} / ${height}`;
    this.cells.resize(height, width);
    drawLegend(this.legend, scale);
    this.frame.hidden = chosen === null || chosen === "mean";
    Object.assign(this.frame.style, { top: `${(100 * chosen) / height}%`, height: `${100 / height}%` });
    this.read();
  }

  read() {
    const [row, column] = this.pointed ?? [];
    this.output.textContent = row < this.height && column < this.width
      ? `${this.rowName(row)}, ${this.columnName(column)}: ${this.text(this.data[row * this.width + column])}`
      : "Point at a number to read it.";
  }
}
