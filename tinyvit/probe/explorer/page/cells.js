// A picture whose cells are pointed at and acted on by pointer, finger and keys: pixels to draw on, numbers to read.

class Cells {
  /**
   * onPoint(row, column), or onPoint(null) when the pointer leaves; onAct(row, column) where it is pressed, or with
   * Enter or Space; with `drag` also on the way that it is dragged. onKey(key, row, column) is told other keys.
   */
  constructor(parent, { label, what, height, width, drag = false, onPoint = () => {}, onAct = () => {},
                        onKey = () => {} }) {
    Object.assign(this, { parent, height, width, onPoint, onAct, onKey, drag, row: 0, column: 0 });
    this.cursor = element("span", { className: "cursor", ariaHidden: "true" });
    parent.classList.add("cells");
    parent.append(this.cursor);
    Object.assign(parent, {
      role: "application", // arrow keys are for the picture, not for the screen reader
      ariaRoleDescription: what, ariaLabel: label, tabIndex: 0,
      onpointerdown: (event) => this.onPress(event), onpointermove: (event) => this.onMove(event),
      onpointerleave: () => { if (document.activeElement !== parent) onPoint(null); },
      onkeydown: (event) => this.onKeyDown(event),
      onfocus: () => this.point(this.row, this.column), onblur: () => onPoint(null),
    });
  }

  resize(height, width) {
    Object.assign(this, { height, width });
    this.place(Math.min(this.row, height - 1), Math.min(this.column, width - 1));
  }

  place(row, column) {
    Object.assign(this, { row, column });
    Object.assign(this.cursor.style, {
      top: `${(100 * row) / this.height}%`, left: `${(100 * column) / this.width}%`,
      height: `${100 / this.height}%`, width: `${100 / this.width}%`,
    });
  }

  point(row, column) {
    this.place(row, column);
    this.onPoint(row, column);
  }

  /** [row, column] under a pointer. */
  under({ clientX, clientY }) {
    const { x, y, width, height } = this.parent.getBoundingClientRect();
    const cell = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    return [cell((clientY - y) / height, this.height), cell((clientX - x) / width, this.width)];
  }

  onPress(event) {
    if (event.button !== 0) return;
    const [row, column] = this.under(event);
    if (this.drag) this.parent.setPointerCapture(event.pointerId);
    this.point(row, column);
    this.onAct(row, column);
  }

  onMove(event) {
    const [row, column] = this.under(event);
    const drawing = this.drag && this.parent.hasPointerCapture(event.pointerId);
    if (drawing) {
      const from = { row: this.row, column: this.column }; // a quick finger skips cells: act on those between
      const count = Math.max(Math.abs(row - from.row), Math.abs(column - from.column));
      for (let i = 1; i <= count; i++) {
        const between = (start, end) => Math.round(start + ((end - start) * i) / count);
        this.onAct(between(from.row, row), between(from.column, column));
      }
    }
    if (drawing || event.pointerType === "mouse") this.point(row, column);
  }

  onKeyDown(event) {
    const { row, column } = this, target = movedBy(event, row, column, this);
    if (target) this.point(...target);
    else if (!isPlain(event)) return;
    else if (event.key === "Enter" || event.key === " ") this.onAct(row, column);
    else if (!this.onKey(event.key, row, column)) return;
    event.preventDefault();
  }
}
