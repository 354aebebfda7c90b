// A slider over the blocks, with a button that plays through them.

const PAUSE = 900; // milliseconds a block, slow enough to read

class Slider {
  /** label(value) is what stands beside it; with `backwards` the walk goes from the last block to the first. */
  constructor(parent, { least, most, value, name, label, onChange, backwards = false }) {
    Object.assign(this, { label, onChange, backwards });
    this.input = element("input", { type: "range", min: least, max: most, value, oninput: () => {
      this.pause(); // the hand on the slider leads
      this.go(this.input.valueAsNumber);
    } });
    this.output = element("output");
    this.play = element("button", {
      type: "button", textContent: "Play", onclick: () => (this.timer ? this.pause() : this.start()),
    });
    parent.append(element("label", {}, `${name} `, this.input), this.output, this.play);
    this.set(value);
  }

  /** Show a value that was chosen elsewhere. */
  set(value) {
    this.input.value = value;
    this.output.textContent = this.input.ariaValueText = this.label(this.input.valueAsNumber);
  }

  go(value) {
    this.set(value);
    this.onChange(this.input.valueAsNumber); // which has stayed between its ends
  }

  start() {
    const { min, max } = this.input;
    const [first, last, step] = this.backwards ? [Number(max), Number(min), -1] : [Number(min), Number(max), 1];
    if (this.input.valueAsNumber === last) this.go(first);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      this.go(this.input.valueAsNumber + step);
      if (this.input.valueAsNumber === last) this.pause();
    }, PAUSE);
    if (first === last) this.pause();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }
}
