// Tables: columns of numbers, and rows with a bar.

/** A row with a heading; of the other cells, what isn't an element is a number, or its text. */
function tableRow(heading, ...cells) {
  const text = (value) => (typeof value === "number" ? number(value) : value);
  const cell = (value) =>
    (value instanceof Element ? value : element("td", { className: "number", textContent: text(value) }));
  return element("tr", {}, element("th", { scope: "row" }, heading), ...cells.map(cell));
}

/** The cell of a bar, from `start` per cent of its width. */
const barCell = (value, start, length) => element("td", { className: "bar" }, element("span", {
  className: value < 0 ? "negative" : "positive", style: `margin-left: ${start}%; width: ${length}%`,
}));

/** Columns with a heading each, of rows, or of their cells; and a last row that says what they come to. */
function drawTable(parent, caption, headings, rows, last = null) {
  const row = (cells) => (cells instanceof Element ? cells : tableRow(...cells));
  const heading = (textContent, i) => element("th", { scope: "col", textContent, className: i === 0 ? "" : "number" });
  parent.replaceChildren(element("table", {}, element("caption", { textContent: caption }),
    ...(headings.length ? [element("thead", {}, element("tr", {}, ...headings.map(heading)))] : []),
    element("tbody", {}, ...rows.map(row)), element("tfoot", {}, ...(last ? [row(last)] : []))));
}

/** items: [{name, note, value, current, cells if not of the value}], bars from a zero line; headings: of the columns of numbers. */
function drawBars(parent, caption, [first, ...others], items) {
  const largest = Math.max(...items.map((item) => Math.abs(item.value)), Number.MIN_VALUE);
  const zero = items.some((item) => item.value < 0) ? 50 : 0; // per cent
  drawTable(parent, caption, [first, "", ...others], items.map(({ name, note, value, current, cells = [value] }) => {
    const length = (Math.abs(value) / largest) * (100 - zero);
    const row = tableRow(bidi(name), barCell(value, value < 0 ? zero - length : zero, length), ...cells);
    if (note) row.firstChild.append(element("span", { className: "note", textContent: note }));
    if (current) Object.assign(row, { className: "current", ariaCurrent: "true" });
    return row;
  }));
}
