// From numbers to colours: dark violet to pale yellow from 0 up; blue, middle, orange around 0.

const HEAT = [
  [16, 8, 48], [74, 16, 108], [140, 36, 110], [204, 66, 78], [243, 120, 40], [252, 184, 60], [252, 246, 190],
];
const BLUE = [20, 102, 204], ORANGE = [222, 104, 0];
const dark = matchMedia("(prefers-color-scheme: dark)");
const middle = () => (dark.matches ? [30, 33, 40] : [250, 250, 247]);

const mixed = (from, to, share) => from.map((value, i) => Math.round(value + (to[i] - value) * share));

function heat(level) {
  const place = Math.min(Math.max(level, 0), 1) * (HEAT.length - 1);
  const below = Math.min(Math.floor(place), HEAT.length - 2);
  return mixed(HEAT[below], HEAT[below + 1], place - below);
}

function around(level) {
  return mixed(middle(), level < 0 ? BLUE : ORANGE, Math.min(Math.abs(level), 1));
}

/** The colours of values, brightest or deepest where they are `largest`: (value) => [red, green, blue]. */
function colouring(kind, largest) {
  const colour = kind === "signed" ? around : heat;
  return (value) => colour(largest > 0 ? value / largest : 0);
}

/** Black or white, whichever is the more readable on a colour; WCAG 2.2's relative luminance. */
function readableOn(colour) {
  const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}
