// A picture whose cells are pointed at and acted on by pointer, finger and keys: pixels to draw on, numbers to read.

/**
 * onPoint(row, column), or onPoint(null) when the pointer leaves; onAct(row, column) where it is pressed, or with Enter or
 * Space; with `drag` also on the way that it is dragged. onKey(key, row, column) is told other keys. Returns
 * resize(height, width).
 */
function makeCells(parent, { label, what, height, width, drag = false, onPoint, onAct, onKey = () => false }) {
  let row = 0, column = 0;
  const cursor = element("span", { className: "cursor", ariaHidden: "true" });
  const place = (...to) => {
    [row, column] = to;
    cursor.style.cssText = `top: ${(100 * row) / height}%; left: ${(100 * column) / width}%; ` +
      `height: ${100 / height}%; width: ${100 / width}%`;
  };
  const point = (...to) => { place(...to); onPoint(row, column); };
  const under = ({ clientX, clientY }) => { // [row, column] under a pointer
    const box = parent.getBoundingClientRect();
    const cell = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    return [cell((clientY - box.y) / box.height, height), cell((clientX - box.x) / box.width, width)];
  };
  parent.classList.add("cells");
  parent.append(cursor);
  Object.assign(parent, {
    role: "application", // arrow keys are for the picture, not for the screen reader
    ariaRoleDescription: what, ariaLabel: label, tabIndex: 0,
    onfocus: () => point(row, column), onblur: () => onPoint(null),
    onpointerleave: () => { if (document.activeElement !== parent) onPoint(null); },
    onpointerdown(event) {
      if (event.button !== 0) return;
      if (drag) parent.setPointerCapture(event.pointerId);
      point(...under(event));
      onAct(row, column);
    },
    onpointermove(event) {
      const to = under(event), drawing = drag && parent.hasPointerCapture(event.pointerId);
      if (drawing) {
        const from = [row, column], count = Math.max(Math.abs(to[0] - row), Math.abs(to[1] - column));
        for (let i = 1; i <= count; i++) { // a quick finger skips cells: act on those between
          onAct(...from.map((start, axis) => Math.round(start + ((to[axis] - start) * i) / count)));
        }
      }
      if (drawing || event.pointerType === "mouse") point(...to);
    },
    onkeydown(event) {
      const target = movedBy(event, row, column, height, width);
      if (target) point(...target);
      else if (!isPlain(event)) return;
      else if (event.key === "Enter" || event.key === " ") onAct(row, column);
      else if (!onKey(event.key, row, column)) return;
      event.preventDefault();
    },
  });
  return (...sides) => {
    [height, width] = sides;
    place(Math.min(row, height - 1), Math.min(column, width - 1));
  };
}
