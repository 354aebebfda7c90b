// Buttons in rows and columns of which one is chosen. The Tab key reaches the chosen one, the arrows go from there.

/** The buttons; onChoose(i) when one is chosen, onPoint(i or null) while the pointer is over one. */
function makeGrid(parent, { label, height, width, onChoose, onPoint = () => {} }) {
  const choose = (i) => { buttons[i].focus(); onChoose(i); };
  const buttons = Array.from({ length: height * width }, (_, i) => element("button", {
    type: "button", className: "cell", role: "radio", onclick: () => choose(i),
    ...hovered((is) => onPoint(is ? i : null)),
    onkeydown: (event) => {
      const target = movedBy(event, Math.floor(i / width), i % width, height, width);
      if (!target) return;
      event.preventDefault();
      choose(target[0] * width + target[1]);
    },
  }));
  Object.assign(parent, { role: "radiogroup", ariaLabel: label, style: `--columns: ${width}; --rows: ${height}` });
  parent.append(...buttons);
  return buttons;
}

/** Show that button i is chosen; null: none of these. */
function mark(buttons, chosen) {
  buttons.forEach((button, i) => {
    button.ariaChecked = i === chosen;
    button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
  });
}

/** Whether a key is pressed by itself, and not one of the browser's shortcuts. */
const isPlain = ({ ctrlKey, altKey, metaKey }) => !(ctrlKey || altKey || metaKey);

/** The [row, column] to which a key leads in `height` rows and `width` columns; undefined for other keys. */
function movedBy(event, row, column, height, width) {
  return isPlain(event) ? {
    ArrowLeft: [row, Math.max(column - 1, 0)], ArrowRight: [row, Math.min(column + 1, width - 1)],
    ArrowUp: [Math.max(row - 1, 0), column], ArrowDown: [Math.min(row + 1, height - 1), column],
    Home: [row, 0], End: [row, width - 1],
  }[event.key] : undefined;
}
