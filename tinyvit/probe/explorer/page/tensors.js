// Arrays of numbers in double precision, row by row, with a shape: {data, shape}. A matrix is (rows, columns); in front
// of these there may be an axis of heads, for each of which the same is done.

function tensor(shape, data = new Float64Array(shape.reduce((product, side) => product * side, 1))) {
  return { data, shape };
}

const reshaped = ({ data }, ...shape) => tensor(shape, data);

/** Every number by itself: mapped((a, b) => a + b, x, y), of up to three tensors of one shape. */
function mapped(f, x, y = x, z = x) {
  const result = tensor(x.shape);
  for (let i = 0; i < result.data.length; i++) result.data[i] = f(x.data[i], y.data[i], z.data[i]);
  return result;
}

const plus = (x, y) => mapped((a, b) => a + b, x, y);
const times = (x, scale) => mapped((value) => value * scale, x);

/** a (…, N, K) times b (…, K, M): (…, N, M). */
function matmul(a, b) {
  const [N, K] = a.shape.slice(-2), M = b.shape.at(-1);
  const y = tensor([...a.shape.slice(0, -2), N, M]);
  const of_a = a.data, of_b = b.data, of_y = y.data;
  for (let row = 0; row < of_y.length / M; row++) {
    const head = b.shape.length > 2 ? Math.floor(row / N) * K * M : 0; // each head has its own b
    for (let k = 0; k < K; k++) {
      const value = of_a[row * K + k], from = head + k * M, to = row * M;
      for (let m = 0; m < M; m++) of_y[to + m] += value * of_b[from + m];
    }
  }
  return y;
}

/** The axes in another order: axis i of the result is axis axes[i] of x. */
function permuted({ data, shape }, axes) {
  const steps = axes.map((axis) => shape.slice(axis + 1).reduce((product, side) => product * side, 1));
  const y = tensor(axes.map((axis) => shape[axis])), last = axes.length - 1;
  let to = 0;
  const copy = (axis, from) => {
    for (let i = 0; i < y.shape[axis]; i++) {
      if (axis < last) copy(axis + 1, from + i * steps[axis]);
      else y.data[to++] = data[from + i * steps[axis]];
    }
  };
  copy(0, 0);
  return y;
}

/** The last two axes swapped: (…, N, M) becomes (…, M, N). */
const transposed = (x) => permuted(x, x.shape.length === 2 ? [1, 0] : [0, 2, 1]);

/** The sum over all rows (N, D): (D). */
function sum_rows(x) {
  const [N, D] = x.shape;
  return reshaped(matmul(tensor([1, N], new Float64Array(N).fill(1)), x), D);
}

/** What a function makes of each row (…, D), which gets the row and its number, together again. */
function by_row(f, x) {
  const D = x.shape.at(-1), y = tensor(x.shape);
  for (let row = 0; row < x.data.length / D; row++) y.data.set(f(x.data.subarray(row * D, row * D + D), row), row * D);
  return y;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const norm = (values) => Math.sqrt(dot(values, values));

/** Tensors of one shape behind each other along a new first axis. */
function stack(all) {
  const y = tensor([all.length, ...all[0].shape]);
  all.forEach((x, i) => y.data.set(x.data, i * x.data.length));
  return y;
}

/** Part i along the first axis. */
function at(x, i) {
  const size = x.data.length / x.shape[0];
  return tensor(x.shape.slice(1), x.data.subarray(i * size, (i + 1) * size));
}
