// Rows with a bar and its number.

/** items: [{name, notes, value, cells}], bars from a zero line; headings: of the columns of numbers. */
function drawBars(parent, caption, headings, items) {
  const largest = Math.max(...items.map((item) => Math.abs(item.value)), Number.MIN_VALUE);
  const least = Math.min(0, ...items.map((item) => item.value)) < 0 ? 50 : 0; // per cent: where the zero line is
  const head = element("tr", {},
    element("th", { textContent: headings[0], scope: "col" }), element("td", { className: "bar" }),
    ...headings.slice(1).map((textContent) => element("th", { textContent, scope: "col", className: "number" })));
  const body = items.map(({ name, note = "", value, cells, current = false }) => {
    const bar = element("span", { className: value < 0 ? "negative" : "positive" });
    const length = (Math.abs(value) / largest) * (100 - least);
    bar.style.width = `${length}%`;
    bar.style.marginLeft = `${value < 0 ? least - length : least}%`;
    const title = element("th", { scope: "row" }, element("bdi", { textContent: name }));
    if (note) title.append(element("span", { className: "note", textContent: note }));
    const row = element("tr", { className: current ? "current" : "" }, title, element("td", { className: "bar" }, bar),
      ...cells.map((textContent) => element("td", { textContent, className: "number" })));
    if (current) row.setAttribute("aria-current", "true");
    return row;
  });
  const table = element("table", {}, element("caption", { textContent: caption }),
    element("thead", {}, head), element("tbody", {}, ...body));
  parent.replaceChildren(table);
}

/** The classes that matter most: at most ten, the likeliest first, and the true one. */
function classesShown(probabilities, label) {
  const order = [...probabilities.keys()];
  if (order.length <= 12) return order;
  const first = order.sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 10);
  return first.includes(label) ? first : [...first, label];
}

/** The numbers of a patch (C, P, Q), each on its colour; a picture alone if there are too many to read. null: empty. */
function drawPatch(parent, pixels, token, colourOf, text) {
  const [P, Q] = model.patch, [height, width] = model.size;
  const top = Math.floor((token - 1) / columns) * P, left = ((token - 1) % columns) * Q;
  const numbered = Array.from({ length: model.channels }, (_, c) => `channel ${c + 1}`);
  const channels = model.channels === 3 ? ["red", "green", "blue"] : numbered;
  parent.replaceChildren(...channels.map((channel, c) => {
    const value = (i) => pixels[(c * height + top + Math.floor(i / Q)) * width + left + (i % Q)];
    const caption = model.channels === 1 ? "" : channel;
    if (P * Q > 64) {
      const canvas = picture("enlarged");
      canvas.style.aspectRatio = `${Q} / ${P}`;
      paint(canvas, Q, P, (i) => (token === null ? [0, 0, 0, 0] : colourOf(value(i))));
      return element("figure", {}, canvas, element("figcaption", { textContent: caption }));
    }
    const lines = Array.from({ length: P }, (_, r) => element("tr", {}, ...Array.from({ length: Q }, (_, q) => {
      if (token === null) return element("td");
      const cell = element("td", { textContent: text(value(r * Q + q)) });
      const background = colourOf(value(r * Q + q));
      cell.style.background = `rgb(${background.join(" ")})`;
      cell.style.color = readableOn(background);
      return cell;
    })));
    return element("table", { className: "pixels" },
      element("caption", { textContent: caption }), element("tbody", {}, ...lines));
  }));
}

/** The classes that the model takes an image for, the likeliest first: at most three. */
function drawGuesses(parent, probabilities) {
  const order = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 3);
  parent.replaceChildren(...order.map((k) => {
    const bar = element("span", { className: "positive" });
    bar.style.width = `${100 * probabilities[k]}%`;
    return element("tr", {}, element("th", { scope: "row" }, element("bdi", { textContent: about.classes[k] })),
      element("td", { className: "bar" }, bar),
      element("td", { className: "number", textContent: share(probabilities[k]) }));
  }));
}

/** Columns of numbers with a heading each, and a last row that says what they come to. */
function drawColumns(parent, caption, headings, lines, last) {
  const cell = (text, i) => (i === 0 ? element("th", { scope: "row", textContent: text })
    : element("td", { className: "number", textContent: text }));
  const line = (texts) => element("tr", {}, ...texts.map(cell));
  parent.replaceChildren(element("table", { className: "columns" }, element("caption", { textContent: caption }),
    element("thead", {}, element("tr", {}, ...headings.map((textContent, i) =>
      element("th", { scope: "col", textContent, className: i === 0 ? "" : "number" })))),
    element("tbody", {}, ...lines.map(line)), element("tfoot", {}, line(last))));
}
