// Buttons in rows and columns of which one is chosen. The Tab key reaches the chosen one, the arrows go from there.

class ButtonGrid {
  /** onChoose(i) when one is chosen, onPoint(i or null) while the pointer is over one. */
  constructor(parent, { label, height, width, name, onChoose, onPoint = () => {} }) {
    Object.assign(this, { height, width, onChoose });
    parent.setAttribute("role", "radiogroup");
    parent.setAttribute("aria-label", label);
    parent.style.setProperty("--columns", width);
    parent.style.setProperty("--rows", height);
    this.buttons = Array.from({ length: height * width }, (_, i) => {
      const button = element("button", { type: "button", className: "cell" });
      button.setAttribute("role", "radio");
      button.setAttribute("aria-label", name(i));
      button.addEventListener("click", () => this.go(i));
      button.addEventListener("keydown", (event) => this.onKey(event, i));
      button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && onPoint(i));
      button.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && onPoint(null));
      return button;
    });
    parent.append(...this.buttons);
    this.mark(null);
  }

  /** Show that button i is chosen; null: none of these. */
  mark(chosen) {
    this.buttons.forEach((button, i) => {
      button.setAttribute("aria-checked", String(i === chosen));
      button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
    });
  }

  go(i) {
    this.buttons[i].focus();
    this.onChoose(i);
  }

  onKey(event, i) {
    const row = Math.floor(i / this.width), column = i % this.width;
    const target = {
      ArrowLeft: column > 0 ? i - 1 : i,
      ArrowRight: column < this.width - 1 ? i + 1 : i,
      ArrowUp: row > 0 ? i - this.width : i,
      ArrowDown: row < this.height - 1 ? i + this.width : i,
      Home: row * this.width,
      End: (row + 1) * this.width - 1,
    }[event.key];
    if (target === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.go(target);
  }
}
