// A matrix of numbers as colours, with a legend; the number that is pointed at is read out.

/**
 * With `square` cells, or as wide as there is room. rowName(row) and columnName(column) say which number it is;
 * onChoose(row, column) when one is pressed. Returns a function that draws numbers (height, width), with a frame around
 * the row `chosen`, unless that is null.
 */
function makeMatrix(parent, { label, rowName, columnName = (column) => `number ${column + 1}`, onChoose = () => {},
                              square = false }) {
  const canvas = picture("numbers"), frame = element("span", { className: "frame" });
  const legend = element("div", { className: "scale" }), output = element("output", { className: "small" });
  const pad = element("div", {}, canvas, frame);
  let shown = { shape: [0, 0] }, pointed = [null];
  parent.classList.add("matrix", ...(square ? ["square"] : []));
  parent.append(element("p", { className: "heading", textContent: label }), pad, legend, output);
  const read = (...place) => {
    const [row, column] = pointed = place, { data, shape: [height, width], text } = shown;
    output.textContent = row !== null && row < height && column < width
      ? `${rowName(row)}, ${columnName(column)}: ${text(data[row * width + column])}` : "Point at a number to read it.";
  };
  const resize = makeCells(pad, {
    label: `${label}. Arrow keys read the numbers`, what: "matrix of numbers", height: 1, width: 1, onPoint: read,
    onAct: onChoose,
  });
  return ({ data, shape }, { kind = "signed", chosen = null } = {}) => {
    const scale = scaleOf(kind, largestOf(data)), colour = colouring(kind, scale.largest), [height, width] = shape;
    shown = { data, shape, text: scale.text };
    paint(canvas, width, height, (i) => colour(data[i]));
    pad.style.setProperty("--lines", height);
    if (square) canvas.style.aspectRatio = `${width} / ${height}`;
    resize(height, width);
    drawLegend(legend, scale);
    frame.hidden = chosen === null || chosen === "mean";
    frame.style.cssText = `top: ${(100 * chosen) / height}%; height: ${100 / height}%`;
    read(...pointed);
  };
}
