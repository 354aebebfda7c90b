// Numbers and names as text.

const MINUS = "−";
const raised = (exponent) => [...String(exponent)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻").join("");
const signed = (text) => text.replace("-", MINUS);

/** Three digits: 0.123, 12.3, 1.23 × 10³, 1.23 × 10⁻⁵. */
function number(value) {
  if (value === 0) return "0";
  const [digits, power] = value.toExponential(2).split("e"); // the power after rounding: 999.9 is 1.00 × 10³
  if (power >= -3 && power < 3) return signed(value.toPrecision(3));
  return `${signed(digits)} × 10${raised(Number(power))}`;
}

const share = (value) => `${(100 * value).toFixed(1)} %`;

/** A unit, a power of ten, in which the largest of some numbers has one digit before its point. */
function unitFor(largest) {
  const exponent = largest > 0 ? Math.floor(Math.log10(largest)) : 0;
  const small = exponent >= -1 && exponent <= 2;
  return { factor: small ? 1 : 10 ** exponent, text: small ? "" : `10${raised(exponent)}` };
}

function tokenName(token) {
  if (token === "mean") return "Mean of all patches";
  if (token === 0) return "Class token";
  const place = token - 1;
  return `Patch ${token} (row ${Math.floor(place / columns) + 1}, column ${(place % columns) + 1})`;
}

const blockName = (block) => `block ${block + 1} (blocks.${block})`;
const switchName = (block, head) => `${block + 1}.${head + 1}`;
const afterBlocks = (count) => (count === 0 ? "before the first block" : `after ${blockName(count - 1)}`);

/** "(N+1, D) = (17, 64)" of "N+1 D". */
function shape(text) {
  const [height, width] = model.size;
  const [P, Q] = model.patch;
  const sizes = {
    C: model.channels, height, width, "C·P·Q": model.channels * P * Q, N: rows * columns, "N+1": tokens, D: model.width,
    H: model.heads, d: model.headWidth, K: model.classes, E: model.hidden,
    hidden_head: model.headHidden, in_head: model.headHidden ?? model.width,
  };
  const called = { hidden_head: "hidden", in_head: model.headHidden ? "hidden" : "D" };
  const names = text.split(" ").map((name) => called[name] ?? name);
  return `(${names.join(", ")}) = (${text.split(" ").map((name) => sizes[name]).join(", ")})`;
}
