// The image, its patches, and a heat map over it.

const byId = (id) => document.getElementById(id);

class Stage {
  constructor(state, changed) {
    this.state = state;
    const [height, width] = model.size;
    byId("stage").style.aspectRatio = `${width} / ${height}`;
    const least = 25 * Math.max(columns, (rows * width) / height); // pixels: a patch as wide as a finger needs
    byId("pinned").style.setProperty("--shape", width / height);
    byId("pinned").style.setProperty("--least", `${least}px`);
    byId("pinned").classList.toggle("stacked", least > 240);       // a phone has no room beside it
    this.chips = [0, "mean"].map((token) => {
      const chip = element("button", {
        type: "button", className: "chip", onclick: () => changed({ token, pointed: null }),
        ...hovered((is) => changed({ pointed: is ? token : null })),
      }, element("span", { textContent: tokenName(token) }), element("span", { className: "value" }));
      byId("chips").append(chip);
      return { token, chip };
    });
    this.patches = new ButtonGrid(byId("patches"), {
      label: "Patches of the image", height: rows, width: columns, name: (i) => tokenName(i + 1),
      onChoose: (i) => changed({ token: i + 1, pointed: null }),
      onPoint: (i) => changed({ pointed: i === null ? null : i + 1 }),
    });
    this.patches.buttons.forEach((button) => button.append(element("span", { className: "value" })));
    byId("show-numbers").checked = rows * columns <= 16;
    byId("show-numbers").onchange = byId("strength").oninput = () => changed({});
  }

  /** Show a map {values (T) or null, kind, largest, text(value), short(value), least, most}. */
  draw(arrays, map) {
    const token = this.state.pointed ?? this.state.token;
    paintPicture(byId("picture"), arrays.picture);
    this.patches.mark(this.state.token > 0 ? this.state.token - 1 : null);
    const strength = byId("strength").valueAsNumber / 100;
    byId("heat").hidden = map.values === null || this.state.drawing;
    byId("scale").hidden = byId("heat").hidden;
    byId("scale").classList.toggle("none", map.largest === 0); // a scale from 0 to 0 says nothing
    if (map.values !== null) {
      paintPatches(byId("heat"), map.values, map.kind, map.largest, strength);
      paintRamp(byId("ramp"), map.kind);
      byId("least").textContent = map.least;
      byId("most").textContent = map.most;
    }
    this.patches.buttons.forEach((button, i) => {
      const value = map.values === null ? null : map.values[i + 1];
      button.ariaLabel = value === null ? tokenName(i + 1) : `${tokenName(i + 1)}: ${map.text(value)}`;
      button.classList.toggle("looking", token === i + 1);
      button.firstChild.textContent = value === null ? String(i + 1) : map.short(value);
      button.firstChild.hidden = !byId("show-numbers").checked;
    });
    for (const { token: own, chip } of this.chips) {
      chip.ariaPressed = this.state.token === own;
      chip.classList.toggle("looking", token === own);
      chip.lastChild.textContent = map.values === null || own === "mean" ? "" : map.text(map.values[0]);
    }
  }
}
