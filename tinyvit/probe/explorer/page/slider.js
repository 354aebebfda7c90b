// A slider over the blocks.

class Slider {
  /** label(value) is what stands beside it. */
  constructor(parent, { least, most, name, label, onChange }) {
    this.label = label;
    this.input = element("input", {
      type: "range", min: least, max: most, oninput: () => onChange(this.input.valueAsNumber),
    });
    this.output = element("output");
    parent.append(element("label", {}, `${name} `, this.input), this.output);
  }

  /** Show a value. */
  set(value) {
    this.input.value = value;
    this.output.textContent = this.input.ariaValueText = this.label(this.input.valueAsNumber);
  }
}
