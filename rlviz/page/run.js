// Runs a traced program: rows of ATen operations over arrays {shape, data}. No formula of any algorithm is in here.
// Every number is a double: truths are 0 and 1, integers are exact to 2^53 (in the bitwise operations: to 2^31).
// Operations do as torch's do, with NaN, infinities, −0 and empty sizes too: tests/page/test_operations.py compares.

export const array = (shape, data) => ({ shape, data });
export const scalar = (x) => array([], Float64Array.of(x));
const lift = (x) => (typeof x === "object" ? x : scalar(+x));
const range = (n) => Array.from({ length: n }, (_, i) => i);
export const from0 = (d, rank) => (d < 0 ? d + Math.max(rank, 1) : d);
const replaced = (list, d, ...by) => [...list.slice(0, d), ...by, ...list.slice(d + 1)];
const alike = (a, b) => a.length === b.length && a.every((n, i) => n === b[i]);
export function size(shape) {
  let n = 1;
  for (const k of shape) n *= k;
  return n;
}
export function strides(shape) {
  const steps = Array(shape.length);
  for (let d = shape.length - 1, n = 1; d >= 0; n *= shape[d--]) steps[d] = n;
  return steps;
}

// A row keeps the buffers that it wrote, its temporaries too, and writes them again when it runs again. A view shares
// its argument's data and owns none, so no row writes what another one still reads: that one runs again as well.
let pool = null;
let used = 0;
function fresh(n) {
  if (pool?.[used]?.length === n) return pool[used++];
  const buffer = new Float64Array(n);
  if (pool) pool[used++] = buffer;
  return buffer;
}
const filled = (shape, x) => array(shape, fresh(size(shape)).fill(Number(x)));
function copied(x) {
  const out = fresh(x.data.length);
  out.set(x.data);
  return array(x.shape, out);
}

const known = new Map();
let remembered = 0;
/** Where the numbers of a strided view stand, in order; remembered, as the same views come back at every run. */
function places(shape, steps, start = 0) {
  const key = `${shape}|${steps}|${start}`;
  if (known.has(key)) return known.get(key);
  const at = new Int32Array(size(shape)).fill(start);
  for (let n = 1, d = shape.length - 1; d >= 0 && at.length; n *= shape[d--]) {
    for (let i = n; i < n * shape[d]; i++) at[i] = at[i - n] + steps[d];
  }
  remembered += at.length + 50;
  if (remembered > 4e6) [remembered] = [at.length, known.clear()];
  known.set(key, at);
  return at;
}
function read(data, at) {
  const out = fresh(at.length);
  for (let i = 0; i < out.length; i++) out[i] = data[at[i]];
  return out;
}
/** Numbers that lie side by side, or are one number again and again, in the last dimensions of a view: how many of them. */
function runOf(shape, steps, contiguous) {
  let d = shape.length;
  let run = 1;
  while (d > 0 && (shape[d - 1] === 1 || steps[d - 1] === contiguous[d - 1])) run *= shape[--d];
  if (run > 1) return { d, run, isSame: false };
  while (d > 0 && (shape[d - 1] === 1 || steps[d - 1] === 0)) run *= shape[--d];
  return { d, run, isSame: true };
}
/** A strided view: the data itself where it lies side by side, else a copy. */
function strided(x, shape, steps, start = 0) {
  const contiguous = strides(shape);
  const { d, run, isSame } = runOf(shape, steps, contiguous);
  if (d > 0 || (isSame && run > 1)) {
    if (run < 8) return array(shape, read(x.data, places(shape, steps, start)));
    const at = places(shape.slice(0, d), steps.slice(0, d), start);
    const out = fresh(at.length * run);
    for (let i = 0, o = 0; i < at.length; i++, o += run) {
      if (isSame) out.fill(x.data[at[i]], o, o + run);
      else out.set(x.data.subarray(at[i], at[i] + run), o);
    }
    return array(shape, out);
  }
  const n = size(shape);
  return array(shape, n === x.data.length ? x.data : x.data.subarray(start, start + n));
}
/** x, with y written into a strided view of it. */
function written(x, y, shape, steps, start) {
  const out = copied(x);
  places(shape, steps, start).forEach((at, i) => (out.data[at] = y.data[i]));
  return out;
}
function joint(...shapes) {
  const out = Array(Math.max(...shapes.map((shape) => shape.length))).fill(1);
  for (const shape of shapes) {
    for (let i = 1; i <= shape.length; i++) {
      const [n, old] = [shape.at(-i), out.at(-i)];
      if (n !== 1 && old !== 1 && n !== old) throw new Error(`shapes ${shapes.join(" and ")} do not go together`);
      if (n !== 1) out[out.length - i] = n;
    }
  }
  return out;
}
/** The steps with which an array of shape `from` is broadcast to `shape`. */
function spread(from, shape) {
  const [step, skip] = [strides(from), shape.length - from.length];
  return shape.map((_, d) => (d < skip || from[d - skip] === 1 ? 0 : step[d - skip]));
}
const broadcast = (x, shape) => (alike(x.shape, shape) ? x : strided(x, shape, spread(x.shape, shape)));
/** If `small` is a run of the dimensions of `large` and 1 elsewhere: its numbers, each for how many side by side. */
function blocks(large, small) {
  const skip = large.length - small.length;
  if (skip < 0) return null;
  let [d, inner, outer] = [large.length, 1, 1];
  while (d > skip && small[d - 1 - skip] === 1) inner *= large[--d];
  if (d === skip) inner *= size(large.slice(0, d));
  while (d > skip && small[d - 1 - skip] === large[d - 1]) outer *= large[--d];
  while (d > skip && small[d - 1 - skip] === 1) d--;
  return d === skip ? { outer, inner } : null;
}

// A loop that calls a function for each number is five times slower than one that is written out, as all functions share
// its code: so the commonest are.
const elementwise = (f) => (a, out) => { for (let i = 0; i < out.length; i++) out[i] = f(a[i]); };
const SINGLE = {
  exp: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = Math.exp(a[i]); },
  log: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = Math.log(a[i]); },
  sqrt: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = Math.sqrt(a[i]); },
  abs: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = Math.abs(a[i]); },
  neg: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = -a[i]; },
  bitwise_not: (a, out) => { for (let i = 0; i < out.length; i++) out[i] = +(a[i] === 0); }, // of truths only
};
/** The operation of a loop, or of a function of a number. */
function unary(f) {
  const loop = f.length === 2 ? f : elementwise(f);
  return (x) => {
    const { shape, data } = lift(x);
    const out = fresh(data.length);
    loop(data, out);
    return array(shape, out);
  };
}
// A loop f(a, i, p, b, j, q, out, o, end) goes over a from i in steps of p and over b from j in steps of q, into out[o … end).
const looped = (f) => (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = f(a[i], b[j]); };
const LOOPS = {
  add: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] + b[j]; },
  sub: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] - b[j]; },
  mul: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] * b[j]; },
  div: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] / b[j]; },
  lt: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] < b[j]); },
  le: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] <= b[j]); },
  gt: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] > b[j]); },
  ge: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] >= b[j]); },
  eq: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] === b[j]); },
  ne: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = +(a[i] !== b[j]); },
  bitwise_and: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] & b[j]; },
  bitwise_or: (a, i, p, b, j, q, out, o, end) => { for (; o < end; i += p, j += q) out[o++] = a[i] | b[j]; },
  maximum: (a, i, p, b, j, q, out, o, end) => {
    for (; o < end; i += p, j += q) out[o++] = a[i] > b[j] || a[i] !== a[i] ? a[i] : b[j];
  },
  minimum: (a, i, p, b, j, q, out, o, end) => {
    for (; o < end; i += p, j += q) out[o++] = a[i] < b[j] || a[i] !== a[i] ? a[i] : b[j];
  },
};
/** The operation of a loop, or of a function of two numbers. */
function binary(f) {
  const loop = f.length === 2 ? looped(f) : f;
  return (x, y) => {
    const [{ shape: p, data: a }, { shape: q, data: b }] = [lift(x), lift(y)];
    const [right, left] = [blocks(p, q), blocks(q, p)]; // the one that is spread, if it lies in blocks
    if (!right && !left) {
      const shape = joint(p, q);
      const [c, d] = [x, y].map((value) => broadcast(lift(value), shape).data);
      const out = fresh(c.length);
      loop(c, 0, 1, d, 0, 1, out, 0, out.length);
      return array(shape, out);
    }
    const [shape, { outer, inner }] = right ? [p, right] : [q, left];
    const out = fresh(right ? a.length : b.length);
    const [step, by] = inner === 1 ? [outer, 1] : [inner, 0]; // so many numbers at a time of the one that is spread
    for (let i = 0, o = 0; i < out.length; i += step, o = o + 1 >= outer ? 0 : o + 1) {
      const at = by ? 0 : o;
      if (right) loop(a, i, 1, b, at, by, out, i, i + step);
      else loop(a, at, by, b, i, 1, out, i, i + step);
    }
    return array(shape, out);
  };
}
/** c ? x : y, where each is spread over the same shape or is one number. */
function where(...values) {
  const arrays = values.map(lift);
  const shape = joint(...arrays.map((x) => x.shape));
  const [c, a, b] = arrays.map((x) => (x.data.length === 1 ? x.data : broadcast(x, shape).data));
  const [i, j, k] = [c, a, b].map((data) => +(data.length > 1));
  const out = fresh(size(shape));
  for (let p = 0; p < out.length; p++) out[p] = c[i * p] ? a[j * p] : b[k * p];
  return array(shape, out);
}
/** Some dimensions (none: all) as lines of n numbers, `inner` apart, `outer` times; else they are brought together. */
function folded(x, dims) {
  const all = range(x.shape.length);
  const named = [dims ?? []].flat().map((d) => from0(d, all.length));
  const gone = named.length ? all.filter((d) => named.includes(d)) : all;
  const left = all.filter((d) => !gone.includes(d));
  const shape = left.map((d) => x.shape[d]);
  const keep = x.shape.map((n, d) => (gone.includes(d) ? 1 : n));
  if (gone.some((d, i) => d !== gone[0] + i)) {
    return { ...folded(OPS.permute(x, [...left, ...gone]), all.slice(left.length)), shape, keep };
  }
  const [first, end] = gone.length ? [gone[0], gone.at(-1) + 1] : [0, 0];
  const [outer, n, inner] = [[0, first], [first, end], [end]].map((part) => size(x.shape.slice(...part)));
  return { data: x.data, shape, keep, outer, n, inner };
}
/** Call f(data, out, at, step, n, to) for each line: its numbers begin at `at`, its result's place is `to`. */
function lines(g, out, f) {
  for (let o = 0; o < g.outer; o++) {
    for (let i = 0; i < g.inner; i++) f(g.data, out, o * g.n * g.inner + i, g.inner, g.n, o * g.inner + i);
  }
  return out;
}
/** f(data, at, step, n) is what a line comes to. */
function reduce(f) {
  return (x, dims, keep = false) => {
    const g = folded(lift(x), dims);
    const out = lines(g, fresh(g.outer * g.inner), (a, y, at, step, n, to) => { y[to] = f(a, at, step, n); });
    return array(keep ? g.keep : g.shape, out);
  };
}
/** Four sums at a time, as each addition waits for the one before it. */
function sumOf(a, at, step, n) {
  let b = 0;
  let c = 0;
  let d = 0;
  let e = 0;
  const end = at + n * step;
  const last = end - 3 * step;
  for (; at < last; at += 4 * step) {
    b += a[at];
    c += a[at + step];
    d += a[at + 2 * step];
    e += a[at + 3 * step];
  }
  for (; at < end; at += step) b += a[at];
  return b + c + (d + e);
}
function productOf(a, at, step, n) {
  let product = 1;
  for (let k = 0; k < n; k++, at += step) product *= a[at];
  return product;
}
function highest(a, at, step, n) {
  let high = -Infinity;
  for (let k = 0; k < n; k++, at += step) {
    if (!(a[at] <= high)) high = a[at];
    if (high !== high) return high;
  }
  return high;
}
function lowest(a, at, step, n) {
  let low = Infinity;
  for (let k = 0; k < n; k++, at += step) {
    if (!(a[at] >= low)) low = a[at];
    if (low !== low) return low;
  }
  return low;
}
function anyOf(a, at, step, n) {
  for (let k = 0; k < n; k++, at += step) if (a[at] !== 0) return 1;
  return 0;
}
/** f(data, out, at, step, n) writes one line along a dimension into the same places of `out`. */
const along = (f) => (x, d = -1) => array(x.shape, lines(folded(x, [d]), fresh(x.data.length), f));
const sums = along((a, y, at, step, n) => {
  for (let k = 0, sum = 0; k < n; k++, at += step) y[at] = sum += a[at];
});
/** The exponentials' shares of their sum, or the logarithms of those. */
const softmax = (log) => along((a, out, at, step, n) => {
  const last = at + n * step;
  let high = -Infinity;
  let sum = 0;
  for (let i = at; i < last; i += step) high = Math.max(high, a[i]);
  for (let i = at; i < last; i += step) sum += out[i] = Math.exp(a[i] - high);
  const off = log ? Math.log(sum) : 0;
  for (let i = at; i < last; i += step) out[i] = log ? a[i] - high - off : out[i] / sum;
});
/** The best of each line and where it stands first; NaN is better than everything. */
function best(better) {
  return (x, d, keep = false) => {
    const g = folded(x, d);
    const where = fresh(g.outer * g.inner);
    const values = lines(g, fresh(where.length), (a, y, at, step, n, to) => {
      let k = 0;
      for (let i = 1; i < n; i++) {
        const v = a[at + i * step];
        const old = a[at + k * step];
        if (old === old && (v !== v || better(v, old))) k = i;
      }
      where[to] = k;
      y[to] = a[at + k * step];
    });
    const shape = keep ? g.keep : g.shape;
    return [array(shape, values), array(shape, where)];
  };
}
const [most, least] = [best((a, b) => a > b), best((a, b) => a < b)];
/** max and min: of all, or along a dimension with the places, or of two arrays. */
const pair = (line, both) => (x, y, keep) => {
  if (y == null) return line(x)[0];
  return typeof y === "object" ? both(x, y) : line(x, y, keep);
};

/** Ascending, NaN last. */
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : a === b ? 0 : (a !== a) - (b !== b));
const ranked = (down, value) => along((a, y, at, step, n) => {
  const sign = down ? -1 : 1;
  const order = range(n).sort((p, q) => sign * compare(a[at + p * step], a[at + q * step]) || p - q);
  order.forEach((p, k) => (y[at + k * step] = value ? a[at + p * step] : p));
});
const sortedPlaces = (x, d = -1, down = false) => ranked(down, false)(x, d);
/** A typed array sorts itself faster, though it puts −0 before 0. */
const ascending = along((a, y, at, step, n) => {
  const line = new Float64Array(n);
  for (let k = 0; k < n; k++) line[k] = a[at + k * step];
  line.sort();
  for (let k = 0; k < n; k++) y[at + k * step] = line[k];
});
function sortedValues(x, d = -1, down = false) {
  return down || x.data.some((v) => v === 0 && 1 / v < 0) ? ranked(down, true)(x, d) : ascending(x, d);
}
function search(list, x, right = false, side = null) {
  const [values, n] = [lift(x), list.shape.at(-1)];
  const row = list.shape.length > 1 ? values.shape.at(-1) : Infinity; // one list for each row of values, or one for all
  const isBeyond = right || side === "right";
  const out = fresh(values.data.length);
  for (let i = 0, start = 0, left = row; i < out.length; i++, left--) {
    if (left === 0) [start, left] = [start + n, row];
    const v = values.data[i];
    let low = start;
    let high = start + n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBeyond ? list.data[middle] > v : list.data[middle] >= v) high = middle;
      else low = middle + 1;
    }
    out[i] = low - start;
  }
  return array(values.shape, out);
}

function within(k, n) {
  const at = k < 0 ? k + n : k;
  if (!(at >= 0 && at < n)) throw new Error(`index ${k} is not in a dimension of ${n}`);
  return at;
}
/** What x[at] takes: its shape and the places in x. at: for each dimension an array of indices, or null for all. */
function indexed(x, at) {
  const [step, dims] = [strides(x.shape), range(x.shape.length)];
  const indexedDims = dims.filter((d) => at[d] != null);
  const side = indexedDims.every((d, i) => d === indexedDims[0] + i); // else the indices' shape comes first, as in NumPy
  const before = dims.filter((d) => side && d < indexedDims[0]);
  const after = dims.filter((d) => at[d] == null && !before.includes(d));
  const shape = joint(...indexedDims.map((d) => at[d].shape));
  const heads = fresh(size(shape)).fill(0);
  for (const d of indexedDims) broadcast(at[d], shape).data.forEach((k, p) => (heads[p] += within(k, x.shape[d]) * step[d]));
  const [left, right] = [before, after].map((ds) => ds.map((d) => x.shape[d]));
  const [b, e] = [before, after].map((ds, i) => places([left, right][i], ds.map((d) => step[d])));
  const out = fresh(b.length * heads.length * e.length);
  let to = 0;
  for (const i of b) for (const j of heads) for (let k = 0; k < e.length; k++) out[to++] = i + j + e[k];
  return { shape: [...left, ...shape, ...right], places: out };
}
/** The places in x that gather reads: those of `index`, with its numbers along dimension d. */
function pointed(x, d, index) {
  const [steps, dim] = [strides(x.shape), from0(d, x.shape.length)];
  const base = places(index.shape, replaced(steps, dim, 0));
  const at = fresh(base.length);
  for (let p = 0; p < at.length; p++) at[p] = base[p] + within(index.data[p], x.shape[dim]) * steps[dim];
  return at;
}
/** x, with y joined by f to what stands where gather would read. */
function scattered(x, d, index, y, f) {
  const [out, at] = [copied(x), pointed(x, d, index)];
  const from = typeof y === "object" ? strided(y, index.shape, strides(y.shape)).data : fresh(at.length).fill(y);
  for (let p = 0; p < at.length; p++) out.data[at[p]] = f(out.data[at[p]], from[p]);
  return out;
}
/** The shape, steps and start of a slice, and of one place, of dimension d. */
function sliceOf(x, d, from, to, by) {
  const [step, dim] = [strides(x.shape), from0(d, x.shape.length)];
  const n = x.shape[dim];
  const [a, b] = [from ?? 0, to ?? n].map((k) => Math.max(0, Math.min(n, k < 0 ? k + n : k)));
  const length = Math.max(0, Math.ceil((b - a) / by));
  return [replaced(x.shape, dim, length), replaced(step, dim, step[dim] * by), a * step[dim]];
}
function viewed(x, sizes) {
  const shape = sizes.map((n) => (n === -1 ? x.data.length / -size(sizes) : n));
  if (size(shape) !== x.data.length) throw new Error(`${x.data.length} numbers do not fill the shape ${shape}`);
  return array(shape, x.data);
}
/** The sum of u[i …] · v[j …] over k numbers, four sums at a time. */
function inner(u, i, v, j, k) {
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  const end = i + k;
  for (; i < end - 3; i += 4, j += 4) {
    a += u[i] * v[j];
    b += u[i + 1] * v[j + 1];
    c += u[i + 2] * v[j + 2];
    d += u[i + 3] * v[j + 3];
  }
  for (; i < end; i++, j++) a += u[i] * v[j];
  return a + b + (c + d);
}
/** b products of [n, k] and [k, m]. */
function product(x, y, [b, n, k, m], shape) {
  const [u, v, out] = [x.data, y.data, fresh(b * n * m).fill(0)];
  for (let row = 0, from = 0; row < b * n; row++) {
    const first = row * k;
    if (row && row % n === 0) from += k * m;
    if (m === 1) out[row] = inner(u, first, v, from, k);
    let p = m === 1 ? k : 0;
    for (; p < k - 3; p += 4) { // four rows of y at a time, whose numbers lie side by side
      const [e, f, g, h] = [u[first + p], u[first + p + 1], u[first + p + 2], u[first + p + 3]];
      for (let to = row * m, end = to + m, at = from + p * m; to < end; to++, at++) {
        out[to] = out[to] + e * v[at] + f * v[at + m] + g * v[at + 2 * m] + h * v[at + 3 * m];
      }
    }
    for (; p < k; p++) {
      const factor = u[first + p];
      for (let to = row * m, end = to + m, at = from + p * m; to < end; to++, at++) out[to] += factor * v[at];
    }
  }
  return array(shape, out);
}

// Special functions, to a few units in the last place (tests/page/test_operations.py says how few).
const ROOT = 2 / Math.sqrt(Math.PI);
const polynomial = (c, x) => c.reduceRight((sum, factor) => sum * x + factor, 0);
let factorial = 1;
const ERF = range(20).map((n) => ((-1) ** n * ROOT) / ((factorial *= n || 1) * (2 * n + 1))); // its Taylor series in x²
// Chebyshev's coefficients of e^(x²) erfc(x) / t by t = 3 / (3 + x) in [0, 1], made with mpmath; below 1e-18 beyond.
const ERFCX = [
  0.4711460746602906, 0.37715894969156577, 0.11803603344749546, 0.028362346699695153, 0.004871757757605546,
  0.00045985238787654427, -2.143022238105315e-5, -1.301447369924135e-5, -8.809283582853514e-7, 2.7464800479702846e-7,
  4.415991899223785e-8, -6.398408385575483e-9, -1.6768357212484645e-9, 1.9473354700890025e-10, 6.247441303469389e-11,
  -8.124557552244496e-12, -2.330314613222566e-12, 4.191038539225333e-13, 8.19333526881303e-14, -2.3352472107929263e-14,
  -2.2442585649165363e-15, 1.2811435298050507e-15, 1.1054582965396302e-18, -6.44579513564904e-17, 6.525175975538486e-18,
];
/** e^(x²) erfc(x) of x ≥ 0. */
function scaled(x) {
  const t = 3 / (3 + x);
  const s = 2 * t - 1;
  let b = 0;
  let c = 0;
  for (let k = ERFCX.length - 1; k > 0; k--) [b, c] = [ERFCX[k] + 2 * s * b - c, b];
  return t * (ERFCX[0] + s * b - c);
}
/** e^(−x²), with the square in two parts, as its rounding would be multiplied by it. */
function bell(x) {
  const head = Math.fround(Math.min(Math.abs(x), 40));
  const tail = Math.abs(x) > 40 ? 0 : Math.abs(x) - head;
  return Math.exp(-head * head) * Math.exp(-tail * (2 * head + tail));
}
const erf = (x) => (Math.abs(x) < 1 ? x * polynomial(ERF, x * x) : x < 0 ? -erf(-x) : 1 - erfc(x));
const erfc = (x) => (x < 0.5 ? 1 - erf(x) : bell(x) * scaled(x));
/** The x ≥ 0 whose erf is y, and whose erfc is `complement`: Halley's steps from a start that is good to three digits. */
function inverse(y, complement) {
  if (!(complement > 0)) return complement === 0 ? Infinity : NaN;
  const u = Math.sqrt(-2 * Math.log(complement / 2));
  const far = u - polynomial([2.515517, 0.802853, 0.010328], u) / polynomial([1, 1.432788, 0.189269, 0.001308], u);
  let x = y < 0.5 ? (y / ROOT) * (1 + (Math.PI / 12) * y * y) : far / Math.SQRT2;
  for (let i = 0; i < 2; i++) {
    const off = (y < 0.5 ? erf(x) - y : complement - erfc(x)) / (ROOT * bell(x));
    x -= off / (1 + x * off);
  }
  return x;
}
const upper = (p) => (p === 0.5 ? 0 : Math.SQRT2 * inverse(2 * p - 1, 2 - 2 * p));
const ndtri = (p) => (p < 0.5 ? -Math.SQRT2 * inverse(1 - 2 * p, 2 * p) : upper(p));
const BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6];
const BY_POWER = BERNOULLI.map((b, i) => b / ((2 * i + 2) * (2 * i + 1))); // of Stirling's series
/** ζ(k) − 1, by Euler and Maclaurin from 1 / 200^k on. */
function zeta(k, n = 200) {
  let sum = n ** -k * (n / (k - 1) + 1 / 2 + k / (12 * n) - (k * (k + 1) * (k + 2)) / (720 * n ** 3));
  for (let i = n - 1; i > 1; i--) sum += i ** -k;
  return sum;
}
const LGAMMA = range(30).map((k) => (k > 1 ? ((-1) ** k * zeta(k)) / k : k * (1 - 0.5772156649015329))); // log Γ(2 + z)
function lgamma(x) {
  if (!Number.isFinite(x)) return Math.abs(x);
  if (x < -0.5) {
    const s = Math.abs(Math.sin(Math.PI * (x - Math.round(x))));
    return Math.log(Math.PI / s) - lgamma(1 - x);
  }
  if (x < 0.5) return lgamma(1 + x) - Math.log(Math.abs(x));
  if (x < 1.5) return polynomial(LGAMMA, x - 1) - Math.log(x);
  const stirling = (x - 0.5) * Math.log(x) - x + Math.log(2 * Math.PI) / 2;
  if (x > 10) return stirling + polynomial(BY_POWER, 1 / (x * x)) / x;
  let product = 1;
  for (; x >= 2.5; product *= x) x--;
  return polynomial(LGAMMA, x - 2) + Math.log(product);
}
const max = (a, b) => (a !== a || b !== b ? NaN : a > b ? a : b);
const min = (a, b) => (a !== a || b !== b ? NaN : a < b ? a : b);
function even(a) {
  const r = Math.round(a);
  return Math.abs(a % 1) === 0.5 && r % 2 ? r - 1 : r;
}
/** C's pow, which is 1 where JavaScript's is NaN. */
const power = binary((a, b) => (a === 1 || (a === -1 && Math.abs(b) === Infinity) ? 1 : a ** b));
const squared = (a, out) => { for (let i = 0; i < out.length; i++) out[i] = a[i] * a[i]; };
/** The exponents for which torch takes another way if they are numbers. */
const rootBelow = unary((a) => 1 / Math.sqrt(a));
const powers = { 0.5: unary(SINGLE.sqrt), "-0.5": rootBelow, 1: unary((a) => a), 2: unary(squared) };
function remainder(a, b) {
  const r = a % b;
  return r !== 0 && r < 0 !== b < 0 ? r + b : r;
}
function floorDivide(a, b) {
  if (b === 0) return a / b;
  const r = a % b;
  const q = (a - r) / b - (r !== 0 && r < 0 !== b < 0 ? 1 : 0);
  return q === 0 ? (a / b) * 0 : Math.floor(q) + (q - Math.floor(q) > 0.5 ? 1 : 0);
}
export const plus = (a, b) => a + b;
const { add, sub, mul, div: divide, maximum, minimum, ...compared } =
  Object.fromEntries(Object.entries(LOOPS).map(([name, loop]) => [name, binary(loop)]));
const [floored, truncated] = [floorDivide, (a, b) => Math.trunc(a / b)].map(binary);
const divisions = { null: divide, floor: floored, trunc: truncated };
const total = reduce(sumOf);
const timesNumber = (x, factor) => (factor === 1 ? x : mul(x, factor));

/** The operations by ATen's names, without overloads; n_… are those of sizes, which are plain numbers. */
export const OPS = {
  exp2: unary((a) => 2 ** a), reciprocal: unary((a) => 1 / a),
  rsqrt: unary((a) => 1 / Math.sqrt(a)), sign: unary((a) => (a > 0) - (a < 0)), round: unary(even),
  sigmoid: unary((a) => 1 / (1 + Math.exp(-a))), relu: unary((a) => (a < 0 ? 0 : a)),
  erf: unary(erf), erfc: unary(erfc), special_ndtri: unary(ndtri), lgamma: unary(lgamma), isnan: unary((a) => +(a !== a)),
  isinf: unary((a) => +(Math.abs(a) === Infinity)),
  logical_not: unary(SINGLE.bitwise_not),
  add: (x, y, alpha = 1) => add(x, timesNumber(y, alpha)), sub: (x, y, alpha = 1) => sub(x, timesNumber(y, alpha)), mul,
  div: (x, y, rounding = null) => divisions[rounding](x, y), remainder: binary(remainder),
  pow: (x, y) => (typeof y === "number" && powers[y]?.(x)) || power(x, y),
  atan2: binary(Math.atan2), maximum, minimum, ...compared, logical_and: binary((a, b) => +(a !== 0 && b !== 0)),
  logical_or: binary((a, b) => +(a !== 0 || b !== 0)), where,
  clamp: (x, low, high) => {
    const above = low == null ? x : maximum(x, low);
    return high == null ? above : minimum(above, high);
  },

  full: filled, full_like: (x, v) => filled(x.shape, v), scalar_tensor: (v) => filled([], v),
  arange: (a, b, by = 1) => {
    const [start, end] = b == null ? [0, a] : [a, b];
    const out = filled([Math.ceil((end - start) / by)], start);
    for (let i = 0; i < out.data.length; i++) out.data[i] += i * by;
    return out;
  },

  view: viewed, reshape: viewed, copy: (x, y) => broadcast(y, x.shape),
  unsqueeze: (x, d) => array(x.shape.toSpliced(from0(d, x.shape.length + 1), 0, 1), x.data),
  squeeze: (x, dims) => {
    const chosen = dims == null ? range(x.shape.length) : [dims].flat().map((d) => from0(d, x.shape.length));
    return array(x.shape.filter((n, d) => n !== 1 || !chosen.includes(d)), x.data);
  },
  expand: (x, shape) => broadcast(x, shape.map((n, d) => (n === -1 ? x.shape[d - shape.length + x.shape.length] : n))),
  permute: (x, order) => {
    const dims = order.map((d) => from0(d, order.length));
    const step = strides(x.shape);
    return strided(x, dims.map((d) => x.shape[d]), dims.map((d) => step[d]));
  },
  transpose: (x, a, b) => {
    const dims = range(x.shape.length);
    [a, b] = [from0(a, dims.length), from0(b, dims.length)];
    return OPS.permute(x, dims.map((d) => (d === a ? b : d === b ? a : d)));
  },
  flip: (x, dims) => {
    const over = dims.map((d) => from0(d, x.shape.length));
    const step = strides(x.shape);
    const start = over.reduce((sum, d) => sum + Math.max(0, x.shape[d] - 1) * step[d], 0);
    return strided(x, x.shape, step.map((k, d) => (over.includes(d) ? -k : k)), start);
  },
  repeat: (x, times) => {
    const shape = [...times.slice(x.shape.length).map(() => 1), ...x.shape];
    const step = [...times.slice(x.shape.length).map(() => 0), ...strides(x.shape)];
    const all = strided(x, shape.flatMap((n, d) => [times[d], n]), step.flatMap((k) => [0, k]));
    return array(shape.map((n, d) => n * times[d]), all.data);
  },
  slice: (x, d = 0, from = 0, to = null, by = 1) => strided(x, ...sliceOf(x, d, from, to, by)),
  slice_scatter: (x, y, d = 0, from = 0, to = null, by = 1) => written(x, y, ...sliceOf(x, d, from, to, by)),
  select: (x, d, i) => {
    const [step, dim] = [strides(x.shape), from0(d, x.shape.length)];
    return strided(x, replaced(x.shape, dim), replaced(step, dim), within(i, x.shape[dim]) * step[dim]);
  },
  split_with_sizes: (x, sizes, d = 0) => {
    const ends = sizes.map((_, i) => sizes.slice(0, i + 1).reduce(plus, 0));
    return sizes.map((n, i) => OPS.slice(x, d, ends[i] - n, ends[i]));
  },
  cat: (xs, d = 0) => {
    const parts = xs.filter((x) => x.shape.length !== 1 || x.data.length); // an empty list goes with anything
    if (!parts.length) return xs[0];
    d = from0(d, parts[0].shape.length);
    const out = filled(replaced(parts[0].shape, d, parts.reduce((n, x) => n + x.shape[d], 0)), 0);
    const line = size(out.shape.slice(d));
    let to = 0;
    for (const x of parts) {
      const n = size(x.shape.slice(d));
      for (let o = 0; o * n < x.data.length; o++) {
        if (n > 8) out.data.set(x.data.subarray(o * n, o * n + n), o * line + to);
        else for (let i = 0; i < n; i++) out.data[o * line + to + i] = x.data[o * n + i];
      }
      to += n;
    }
    return out;
  },
  constant_pad_nd: (x, pad, value = 0) => {
    const [low, high] = [0, 1].map((side) => x.shape.map((_, d) => pad[2 * (x.shape.length - 1 - d) + side] ?? 0));
    const out = filled(x.shape.map((n, d) => n + low[d] + high[d]), value);
    const inside = x.shape.reduce((y, n, d) => OPS.slice(y, d, Math.max(0, -low[d]), n - Math.max(0, -high[d])), x);
    const step = strides(out.shape);
    return written(out, inside, inside.shape, step, low.reduce((sum, n, d) => sum + Math.max(0, n) * step[d], 0));
  },

  index: (x, at) => {
    if (x.shape.length === 1) {
      const out = fresh(at[0].data.length);
      for (let i = 0; i < out.length; i++) out[i] = x.data[within(at[0].data[i], x.data.length)];
      return array(at[0].shape, out);
    }
    const from = indexed(x, at);
    return array(from.shape, read(x.data, from.places));
  },
  index_select: (x, d, i) => OPS.index(x, [...x.shape.slice(0, from0(d, x.shape.length)).fill(null), i]),
  embedding: (table, i) => OPS.index(table, [i]),
  index_put: (x, at, y, accumulate = false) => {
    const [to, out] = [indexed(x, at), copied(x)];
    const from = broadcast(y, to.shape).data;
    to.places.forEach((p, i) => (out.data[p] = accumulate ? out.data[p] + from[i] : from[i]));
    return out;
  },
  gather: (x, d, index) => array(index.shape, read(x.data, pointed(x, d, index))),
  scatter: (x, d, index, y) => scattered(x, d, index, y, (_, v) => v),
  scatter_add: (x, d, index, y) => scattered(x, d, index, y, plus),

  sum: total, mean: reduce((a, at, step, n) => sumOf(a, at, step, n) / n), prod: reduce(productOf),
  amax: reduce(highest), amin: reduce(lowest), any: reduce(anyOf),
  var: (x, dims, correction, keep = false) => {
    const g = folded(x, dims);
    const out = lines(g, fresh(g.outer * g.inner), (a, y, at, step, n, to) => {
      let middle = 0;
      let squares = 0;
      for (let i = at; i < at + n * step; i += step) middle += a[i];
      middle /= n;
      for (let i = at; i < at + n * step; i += step) squares += (a[i] - middle) * (a[i] - middle);
      y[to] = squares / Math.max(0, n - (correction ?? 1));
    });
    return array(keep ? g.keep : g.shape, out);
  },
  linalg_vector_norm: (x, order = 2, dims = null, keep = false) => {
    if (Math.abs(order) === Infinity) return OPS[order > 0 ? "amax" : "amin"](OPS.abs(x), dims, keep);
    if (order === 0) return total(OPS.ne(x, 0), dims, keep);
    return OPS.pow(total(OPS.pow(OPS.abs(x), order), dims, keep), 1 / order);
  },
  max: pair(most, maximum), min: pair(least, minimum), argmax: (x, d, keep) => most(x, d, keep)[1],
  argmin: (x, d, keep) => least(x, d, keep)[1], getitem: (list, i) => list[i],
  // each of the two is made when it is read: mostly one is not
  sort: (x, d, down) => ({ get 0() { return sortedValues(x, d, down); }, get 1() { return sortedPlaces(x, d, down); } }),
  searchsorted: search,

  cumsum: sums, _softmax: softmax(false), _log_softmax: softmax(true),
  mm: (x, y) => product(x, y, [1, ...x.shape, y.shape[1]], [x.shape[0], y.shape[1]]),
  bmm: (x, y) => product(x, y, [...x.shape, y.shape[2]], [...x.shape.slice(0, 2), y.shape[2]]),
  mv: (x, y) => product(x, y, [1, ...x.shape, 1], [x.shape[0]]),
  dot: (x, y) => product(x, y, [1, 1, x.shape[0], 1], []),

  n_sym_size: (x, d) => x.shape[from0(d, x.shape.length)], n_sym_numel: (x) => x.data.length, n_add: plus, n_mul: (a, b) => a * b,
  n_sub: (a, b) => a - b, n_truediv: (a, b) => a / b, n_floordiv: (a, b) => Math.floor(a / b), n_mod: remainder,
  n_neg: (a) => -a, n_pow: (a, b) => a ** b, n_sym_max: max, n_sym_min: min, n_sym_float: (a) => a,
  n_sym_int: Math.trunc, n_sym_sqrt: Math.sqrt, n_ceil: Math.ceil, n_floor: Math.floor, n_trunc: Math.trunc,
  n_abs: Math.abs,
};
for (const [name, loop] of Object.entries(SINGLE)) OPS[name] = unary(loop);
for (const name of [
  "log1p", "log2", "log10", "expm1", "floor", "ceil", "trunc", "sin", "cos", "tan", "asin",
  "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
]) {
  OPS[name] = unary(Math[name]);
}
/** Where an operation's named arguments stand. */
const NAMED = {
  add: { alpha: 2 }, sub: { alpha: 2 }, div: { rounding_mode: 2 }, clamp: { min: 1, max: 2 },
  var: { correction: 2, keepdim: 3 }, sort: { dim: 1, descending: 2 }, searchsorted: { right: 2, side: 3 },
};
/** Named arguments that change no number here. */
const SILENT = ["dtype", "layout", "device", "pin_memory", "memory_format", "stable", "out_int32", "sparse_grad"];
const WORDS = { NaN, Infinity, "-Infinity": -Infinity };

/**
 * Make run(inputs, only?, ms?) → {output: {shape, data}} of {rows, outputs}. only: the names of the outputs that are wanted.
 * ms: how long loops may take; run.isOpen: whether one has rounds left, whose numbers are NaN so far: the next run goes on.
 * A row runs again only if an input that it depends on has changed and a wanted output needs it; run.count: how many did.
 * inputs: numbers, or arrays {shape, data, still?}. An array counts as changed at every run, one that is `still` when it is
 * another one. The next run writes into the arrays of outputs again: copy what is kept. They may be given back.
 */
export function program({ rows, outputs }) {
  const values = rows.map(([op, shape, data]) => (op === "const" ? array(shape, new Float64Array(data)) : undefined));
  const changed = rows.map(() => 0);
  const ran = rows.map(() => -1);
  const pools = rows.map(() => []);
  const rowOf = ({ r }, i) => (r < 0 ? i + r : r); // one below 0 says how far back the row stands
  const last = {};
  const orders = new Map();
  const calls = [];
  let [now, deadline] = [0, Infinity];

  /** Return a function that makes an argument's value in row i, noting in `needs` the rows that it reads. */
  const reader = (x, i, needs) => {
    if (Array.isArray(x)) {
      const parts = x.map((y) => reader(y, i, needs));
      return () => parts.map((f) => f());
    }
    if (x?.r !== undefined) {
      const at = rowOf(x, i);
      needs.push(at);
      return () => values[at];
    }
    const value = x?.inf ? x.inf * Infinity : (WORDS[x] ?? x ?? undefined);
    return () => value;
  };
  /** The rows that these need, in order. */
  const neededBy = (open) => {
    const wanted = new Set();
    while (open.length) {
      const i = open.pop();
      if (!wanted.has(i)) open.push(...(calls[i]?.needs ?? []));
      wanted.add(i);
    }
    return [...wanted].filter((i) => rows[i][0] !== "const").sort((a, b) => a - b);
  };
  /** Run a row, with its own buffers to write into; a loop's rows run inside another row. */
  const make = (i) => {
    const outer = [pool, used];
    [pool, used] = [pools[i], 0];
    try {
      return calls[i].make();
    } finally {
      [pool, used] = outer;
    }
  };
  /** The rows that `after` and `result` need of a loop's state: they run again in each round. */
  const bodyOf = (start, ends) => {
    const body = new Set([start]);
    for (const i of neededBy([...ends])) if (calls[i]?.needs.some((j) => body.has(j))) body.add(i);
    body.delete(start);
    return [...body];
  };
  /**
   * A loop as one row: `loop` makes all that its rounds keep, `loop_end` the last state. When time is up, one that may be drawn in
   * slices stops between two rounds, what is missing is NaN, and the next run goes on.
   */
  const loopCall = ([start, after, result], times, inSlices) => {
    const ends = result === undefined ? [after] : [after, result], body = bodyOf(start, ends);
    const outside = [...body.flatMap((j) => calls[j].needs), ...ends].filter((j) => j !== start && !body.includes(j));
    const copy = ({ shape, data }) => array(shape, data.slice()); // what a row makes it writes anew in the next round
    const call = { needs: [...calls[start].needs, ...new Set(outside)], open: null };
    const go = (task, most) => {
      const [all, mine] = [deadline, inSlices ? deadline : Infinity];
      deadline = Infinity; // of the loops inside
      for (let isFirst = true; task.round < most && (isFirst || performance.now() < mine); isFirst = false) {
        // The loop's first row holds the state: what depends on it is made anew, all else stays.
        values[start] = task.state;
        for (const j of body) values[j] = make(j);
        if (result !== undefined) task.all.push(OPS.unsqueeze(copy(values[result]), 0));
        task.state = copy(values[after]);
        task.round++;
        run.count += body.length;
      }
      deadline = all;
      return most - task.round;
    };
    call.make = () => {
      const task = call.open ?? { state: copy(make(start)), all: [], round: 0 };
      // Time may be up before the rounds are: the page draws what is there, and the next run takes the task up again.
      const missing = go(task, times());
      call.open = missing ? task : null;
      if (result === undefined) return task.state;
      return OPS.cat(missing ? [...task.all, filled([missing, ...values[result].shape], NaN)] : task.all);
    };
    return call;
  };
  rows.forEach(([op, args, named = {}], i) => {
    if (op === "input" || op === "const") return calls.push(null);
    const needs = [];
    if (op === "loop_start") {
      const first = reader(args[0], i, needs);
      return calls.push({ needs, make: first });
    }
    if (op.startsWith("loop")) {
      const [places, [most, inSlices]] = op === "loop" ? [args.slice(0, 3), args.slice(3)] : [args.slice(0, 2), args.slice(2)];
      const times = reader(most, i, needs);
      const call = loopCall(places.map((x) => rowOf(x, i)), () => lift(times()).data[0], inSlices);
      call.needs.push(...needs);
      return calls.push(call);
    }
    if (!Object.hasOwn(OPS, op)) throw new Error(`no operation ${op}`);
    // Named arguments take their places among the others; those that change no number are dropped.
    const readers = args.map((x) => reader(x, i, needs));
    for (const [name, x] of Object.entries(named)) {
      const place = NAMED[op]?.[name];
      if (place === undefined && !SILENT.includes(name)) throw new Error(`operation ${op} takes no ${name}`);
      if (place !== undefined) readers[place] = reader(x, i, needs);
    }
    const all = Array.from(readers, (f) => f ?? (() => undefined));
    return calls.push({ needs, make: () => OPS[op](...all.map((f) => f())) });
  });
  /** The rows that the wanted outputs need, in order. */
  const order = (names) => {
    const key = names.join();
    if (orders.has(key)) return orders.get(key);
    const needed = neededBy(names.map((name) => outputs[name]));
    orders.set(key, [...needed.filter((i) => !calls[i]), ...needed.filter((i) => calls[i])]); // inputs are copied first
    return orders.get(key);
  };
  const accept = (i, inputs) => {
    const name = rows[i][1];
    const value = inputs[name];
    if (value === undefined) throw new Error(`no input ${name}`);
    if (Object.is(last[name], value) && (typeof value !== "object" || value.still)) return;
    const { shape, data } = lift(value);
    values[i] = array(shape, new Float64Array(data)); // a copy: this program may have made it, and write there
    last[name] = value;
    changed[i] = now;
  };
  const run = (inputs, only = Object.keys(outputs), ms = Infinity) => {
    now++;
    [run.count, run.isOpen, deadline] = [0, false, performance.now() + ms];
    for (const i of order(only)) {
      // In this order a row's arguments are up to date when it is looked at.
      const isOld = ran[i] < 0 || calls[i]?.needs.some((j) => changed[j] > ran[i]);
      if (!calls[i]) accept(i, inputs);
      else if (isOld || calls[i].open) {
        if (isOld && calls[i].open) calls[i].open = null; // half a loop of other inputs is of no use
        const value = make(i);
        run.isOpen ||= Boolean(calls[i].open);
        if (typeof value !== "number" || value !== values[i]) changed[i] = now; // a size that stays makes nobody run again
        values[i] = value;
        ran[i] = now;
        run.count++;
      }
    }
    return Object.fromEntries(only.map((name) => [name, values[outputs[name]]]));
  };
  run.outputs = outputs;
  run.inputs = new Set(rows.filter((row) => row[0] === "input").map((row) => row[1]));
  return run;
}

/** A uniform number in [0, 1) for each place and seed: a hash (page and Python make the same). */
function hash(i, seed) {
  let h = Math.imul(i ^ Math.imul(seed, 0x9e3779b9), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  h = Math.imul(h ^ (h >>> 16), 0x27d4eb2f);
  return ((h ^ (h >>> 15)) >>> 0) / 2 ** 32;
}
/**
 * The numbers of {kind: "uniform" | "normal", shape, seed, of?}. A word in the shape is looked up in `sizes`.
 * of: the longest that the last size can be; what a shorter one has is a part of it.
 */
export function draws({ kind, shape, seed, of }, sizes = {}) {
  const out = filled(shape.map((n) => (typeof n === "string" ? sizes[n] : n)), 0);
  const n = out.shape.at(-1) ?? 1;
  if (of && n > of) throw new Error(`the last size, ${n}, must be at most of = ${of}`);
  for (let p = 0; p < out.data.length; p++) {
    const i = Math.floor(p / n) * (of || n) + (p % n);
    const radius = () => Math.sqrt(-2 * Math.log(1 - hash(2 * i, seed))); // Box and Muller's
    out.data[p] = kind === "uniform" ? hash(i, seed) : radius() * Math.cos(2 * Math.PI * hash(2 * i + 1, seed));
  }
  return out;
}
