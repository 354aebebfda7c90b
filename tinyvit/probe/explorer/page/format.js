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

/** How numbers up to `largest` are coloured and said: a "share" or "size" from 0 up, a "signed" number around 0. */
function scaleOf(kind, largest) {
  const text = kind === "share" ? share : number, zero = kind === "share" ? "0 %" : "0";
  return { kind, largest, text, least: kind === "signed" ? number(-largest) : zero, most: text(largest) };
}

function tokenName(token) {
  if (token === "mean") return "Mean of all patches";
  if (token === 0) return "Class token";
  const place = token - 1;
  return `Patch ${token} (row ${Math.floor(place / columns) + 1}, column ${(place % columns) + 1})`;
}

const blockName = (block) => `block ${block}`;
const headName = (block, head) => `${blockName(block)}, head ${head}`;
const switchName = (block, head) => `${block}.${head}`;
const afterBlocks = (count) => (count === 0 ? "before the first block" : `after ${blockName(count - 1)}`);

/** "(N+1, D) = (17, 64)" of "N+1 D". */
function shape(text) {
  const sizes = {
    C: model.in_chans, height, width, "C·P·Q": model.in_chans * P * Q, N: rows * columns, "N+1": tokens,
    D: model.embed_dim, H: model.num_heads, d: model.head_dim, K: model.num_classes, E: model.mlp_hidden,
    hidden: model.head_hidden,
  };
  const names = text.split(" ");
  return `(${names.join(", ")}) = (${names.map((name) => sizes[name]).join(", ")})`;
}
