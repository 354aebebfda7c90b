// Buttons in rows and columns of which one is chosen. The Tab key reaches the chosen one, the arrows go from there.

class ButtonGrid {
  /** onChoose(i) when one is chosen, onPoint(i or null) while the pointer is over one. */
  constructor(parent, { label, height, width, onChoose, onPoint = () => {} }) {
    Object.assign(this, { height, width, onChoose });
    Object.assign(parent, { role: "radiogroup", ariaLabel: label, style: `--columns: ${width}; --rows: ${height}` });
    this.buttons = Array.from({ length: height * width }, (_, i) => element("button", {
      type: "button", className: "cell", role: "radio", onclick: () => this.go(i),
      onkeydown: (event) => this.onKey(event, i), ...hovered((is) => onPoint(is ? i : null)),
    }));
    parent.append(...this.buttons);
  }

  /** Show that button i is chosen; null: none of these. */
  mark(chosen) {
    this.buttons.forEach((button, i) => {
      button.ariaChecked = i === chosen;
      button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
    });
  }

  go(i) {
    this.buttons[i].focus();
    this.onChoose(i);
  }

  onKey(event, i) {
    const target = movedBy(event, Math.floor(i / this.width), i % this.width, this);
    if (!target) return;
    event.preventDefault();
    this.go(target[0] * this.width + target[1]);
  }
}

/** Whether a key is pressed by itself, and not one of the browser's shortcuts. */
const isPlain = ({ ctrlKey, altKey, metaKey }) => !(ctrlKey || altKey || metaKey);

/** The [row, column] to which a key leads in `height` rows and `width` columns; undefined for other keys. */
function movedBy(event, row, column, { height, width }) {
  return isPlain(event) ? {
    ArrowLeft: [row, Math.max(column - 1, 0)], ArrowRight: [row, Math.min(column + 1, width - 1)],
    ArrowUp: [Math.max(row - 1, 0), column], ArrowDown: [Math.min(row + 1, height - 1), column],
    Home: [row, 0], End: [row, width - 1],
  }[event.key] : undefined;
}
