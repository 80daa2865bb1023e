// Programs planned for their sizes: every place, stride and loop is worked out once; the loops run in WebAssembly (kernels.c).
// For the transformer of train.js, in float32; run.js runs the small programs, in float64 and for any size.
import { from0, plus, size, strides } from "./run.js";

// --- numbers that are the same in every browser: Math.exp and Math.log are not ---

const bits = new Float64Array(1);
const halves = new Uint32Array(bits.buffer); // low, high: every browser's machine is little-endian
/** Return e^x, within two units in the last place. */
export function exp(x) {
  if (!(x > -745.2 && x < 709.79)) return x > 0 ? Infinity : x < 0 ? 0 : NaN;
  const n = Math.round(x * 1.4426950408889634);
  const r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10;
  let y = 1;
  for (let k = 13; k > 0; k--) y = 1 + (y * r) / k; // |r| ≤ ln 2 / 2
  return y * twoTo(Math.trunc(n / 2)) * twoTo(n - Math.trunc(n / 2));
}
/** Return e^x − 1, within two units in the last place of e^x − 1. */
export function expm1(x) {
  if (Math.abs(x) > 0.5) return exp(x) - 1;
  let y = 1;
  for (let k = 16; k > 1; k--) y = 1 + (y * x) / k;
  return y * x;
}
/** Return 2^n, for −1022 ≤ n ≤ 1023. */
function twoTo(n) {
  [halves[0], halves[1]] = [0, (n + 1023) << 20];
  return bits[0];
}
/** Return the natural logarithm of x, within two units in the last place. */
export function log(x) {
  if (!(x > 0 && x < Infinity)) return x === 0 ? -Infinity : x > 0 ? x : NaN;
  bits[0] = x < 2 ** -1000 ? x * 2 ** 54 : x;
  let n = (halves[1] >>> 20) - 1023 - (x < 2 ** -1000 ? 54 : 0);
  halves[1] = (halves[1] & 0xfffff) | 0x3ff00000;
  let m = bits[0];
  if (m > Math.SQRT2) [m, n] = [m / 2, n + 1];
  const [f, z] = [m - 1, ((m - 1) / (m + 1)) ** 2];
  let y = 0;
  for (let k = 21; k > 0; k -= 2) y = z * y + 1 / k;
  return n * 0.6931471803691238 + (((2 * f) / (m + 1)) * y + n * 1.9082149292705877e-10);
}

// --- one memory, and what computes in it ---

const DIMS = 5; // of a plan: sizes, then strides of out, a and b
const CODES = { copy: 0, add: 1, sub: 2, mul: 3, div: 4, min: 5, neg: 6, exp: 7, sigmoid: 8, sqrt: 9, rsqrt: 10, cube: 11 };
export const largest = (x, y) => Math.max(x, y);
/** Return the memory in which all programs lie, with the kernels of these bytes. Throws where the browser has no SIMD. */
export function machine(bytes) {
  const memory = { top: 1 << 15, bytes: 0 }; // in floats; the kernels' own numbers stand before
  const wasm = new WebAssembly.Memory({ initial: 4 });
  memory.kernels = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory: wasm } }).exports;
  memory.take = (n) => {
    const at = memory.top;
    memory.top += Math.ceil(n / 4) * 4;
    return at;
  };
  /** Make room for all that was taken. Growing detaches the arrays of before, so that there are new ones. */
  memory.grow = () => {
    const missing = 4 * memory.top - wasm.buffer.byteLength;
    if (missing > 0) wasm.grow(Math.ceil(missing / 65536));
    const { buffer } = wasm;
    Object.assign(memory, { heap: new Float32Array(buffer), integers: new Int32Array(buffer), bytes: buffer.byteLength });
  };
  memory.grow();
  return memory;
}

// --- a program, planned for its sizes ---

const isWhole = ({ shape, step }) => strides(shape).every((s, d) => shape[d] === 1 || s === step[d]);
/** Return the strides of other sizes over the same elements, null where only a copy has them. */
function restrided({ shape, step }, to) {
  const old = shape.map((n, d) => [n, step[d]]).filter(([n]) => n !== 1);
  const out = to.map(() => 0);
  for (let d = to.length - 1; d >= 0; d--) {
    if (to[d] === 1) continue;
    let [n, s] = old.pop();
    while (n < to[d] || n % to[d]) {
      const outer = old.pop();
      if (!outer || outer[1] !== n * s) return null;
      n *= outer[0];
    }
    out[d] = s;
    if (n > to[d]) old.push([n / to[d], s * to[d]]);
  }
  return out;
}
/** Return a plan's sizes and each one's strides, `most` of them, with dims put together that lie together in all of them. */
function planned(shape, tensors, most) {
  const sizes = [], steps = tensors.map(() => []);
  shape.forEach((n, d) => {
    if (n === 1) return;
    const last = sizes.length - 1;
    if (last >= 0 && tensors.every((step, i) => steps[i][last] === n * step[d])) {
      sizes[last] *= n;
      tensors.forEach((step, i) => (steps[i][last] = step[d]));
    } else {
      sizes.push(n);
      tensors.forEach((step, i) => steps[i].push(step[d]));
    }
  });
  if (sizes.length > most) throw new Error(`a plan has room for ${most} sizes, not ${sizes}`);
  const filled = (list, by) => [...Array(most - list.length).fill(by), ...list];
  return [filled(sizes, 1), ...steps.map((step) => filled(step, 0))];
}

/** Throw unless a program's row is one that can be planned. */
function must(can, what) {
  if (!can) throw new Error(`planned.js has no ${what}`);
}

/**
 * Plan a program for inputs of these sizes. phases: name → when it is known, 0 first; run(phase) runs the rows that wait for no
 * later one. reruns: whether a phase runs again without those before it, whose numbers then stay where they are.
 */
export function compile(memory, { rows, outputs }, shapes, phases, reruns = false) {
  const values = [], steps = [], plans = [], constants = new Map();
  const bufferOf = (n, phase) => ({ n, phase, at: null, last: -1, isKept: false });
  const tensor = (shape, phase) => ({ shape, step: strides(shape), offset: 0, buffer: bufferOf(size(shape), phase), phase });
  const address = (x) => 4 * (x.buffer.at + x.offset);
  const plan = (...lists) => {
    plans.push({ at: memory.take(4 * DIMS), numbers: lists.flat() });
    return 4 * plans.at(-1).at;
  };
  /** Add a row's work, which writes into a new tensor; make() returns it once addresses are known. */
  const work = (shape, reads, make) => {
    const out = tensor(shape, Math.max(0, ...reads.map((x) => x.phase)));
    steps.push({ out, reads, phase: out.phase, make: () => make(out) });
    return out;
  };
  const constant = (value) => {
    if (!constants.has(value)) {
      constants.set(value, tensor([], 0));
      Object.assign(constants.get(value).buffer, { at: memory.take(1), isKept: true });
    }
    return constants.get(value);
  };
  const valueOf = (x) => {
    if (Array.isArray(x)) return x.map(valueOf);
    return x?.r === undefined ? (x?.inf ? x.inf * Infinity : x) : values[x.r];
  };
  const lift = (x) => (typeof x === "number" ? constant(x) : x);
  const spread = (x, shape) => {
    const gap = shape.length - x.shape.length;
    return shape.map((n, d) => (d < gap || (x.shape[d - gap] === 1 && n !== 1) ? 0 : x.step[d - gap]));
  };
  const view = (x, shape, step, offset = 0) => ({ ...x, shape, step, offset: x.offset + offset });
  const elementwise = (op, x, y = x) => {
    must(Object.hasOwn(CODES, op), op);
    [x, y] = [lift(x), lift(y)];
    const rank = Math.max(x.shape.length, y.shape.length);
    const of = (z, d) => z.shape[d - rank + z.shape.length] ?? 1;
    const shape = Array.from({ length: rank }, (_, d) => Math.max(of(x, d), of(y, d)));
    return work(shape, [x, y], (out) => into(op, out, x, y, shape));
  };
  const into = (op, out, x, y, shape) => {
    const steps = [out.step, spread(x, shape), spread(y, shape)];
    const last = out.step[shape.findLastIndex((n) => n !== 1)] ?? 1; // else the kernel's line has one element
    const split = (lists) => lists.map((list, i) => [...list, +(i < 2)]);
    const at = plan(...(last === 1 ? planned(shape, steps, DIMS) : split(planned(shape, steps, DIMS - 1))));
    const [to, a, b] = [address(out), address(x), address(y)];
    return () => memory.kernels.each(CODES[op], to, a, b, at);
  };
  const contiguous = (x) => (isWhole(x) ? x : elementwise("copy", x));
  const reshaped = (x, wanted) => {
    const missing = size(x.shape) / -size(wanted);
    const shape = wanted.map((n) => (n < 0 ? missing : n));
    const step = restrided(x, shape);
    return step ? view(x, shape, step) : view(elementwise("copy", x), shape, strides(shape));
  };
  const reduced = (input, dims, keep, mean) => {
    const x = input.shape.length > 3 ? contiguous(input) : input; // so that its dims fold
    const gone = new Set((dims?.length ? dims : x.shape.map((_, d) => d)).map((d) => from0(d, x.shape.length)));
    const shape = x.shape.map((n, d) => (gone.has(d) ? 1 : n));
    const part = (is, most) => {
      const d = x.shape.map((_, d) => d).filter((d) => gone.has(d) === is);
      return planned(d.map((e) => x.shape[e]), [d.map((e) => x.step[e])], most);
    };
    const [[outer, outerStep], [inner, innerStep]] = [part(false, 2), part(true, 3)];
    const factor = mean ? size(shape) / size(x.shape) : 1;
    return work(keep ? shape : shape.filter((_, d) => !gone.has(d)), [x], (out) => {
      const at = plan([...outer, ...inner], Array(DIMS).fill(0), [...outerStep, ...innerStep], Array(DIMS).fill(0));
      const [to, a] = [address(out), address(x)];
      return () => memory.kernels.sum(to, a, at, factor);
    });
  };
  const product = (x, y) => {
    const [[count, M, K], N] = [x.shape.length === 3 ? x.shape : [1, ...x.shape], y.shape.at(-1)];
    const step = (z) => (z.step.length === 3 ? [...z.step.slice(1), z.step[0]] : [...z.step, 0]);
    return work([...x.shape.slice(0, -1), N], [x, y], (out) => {
      const numbers = [address(x), ...step(x), address(y), ...step(y), address(out), M, K, N, count];
      return () => memory.kernels.mm(...numbers);
    });
  };
  const softmax = (logs) => (input) => {
    const x = contiguous(input), n = x.shape.at(-1);
    return work(x.shape, [x], (out) => {
      const [to, a, rows] = [address(out), address(x), size(x.shape) / n];
      return () => memory.kernels.softmax(to, a, rows, n, logs);
    });
  };
  /** A row that is JavaScript: f(out, ...arrays) over whole tensors. */
  const script = (shape, inputs, f) => {
    const reads = inputs.map(contiguous);
    return work(shape, reads, (out) => () => {
      const [y, ...xs] = [out, ...reads].map((x) => memory.heap.subarray(address(x) / 4, address(x) / 4 + size(x.shape)));
      f(y, ...xs);
    });
  };
  const range = (x, d, from = 0, to = null) => {
    const n = x.shape[d], at = (k) => Math.min(n, Math.max(0, k < 0 ? k + n : k));
    const [low, high] = [at(from ?? 0), at(to ?? n)];
    return view(x, x.shape.map((s, e) => (e === d ? high - low : s)), x.step, low * x.step[d]);
  };
  /** Copy tensors into parts of a new one: [the part of it, what stands there] each. */
  const written = (shape, parts) =>
    work(shape, parts.map(([, x]) => x), (out) => {
      const all = parts.map(([place, x]) => into("copy", place(out), x, x, x.shape));
      return () => all.forEach((f) => f());
    });
  const PLANNERS = {
    n_sym_size: (x, d) => x.shape[d], n_mul: (a, b) => a * b, n_add: plus, n_sub: (a, b) => a - b,
    view: reshaped, reshape: reshaped, _unsafe_view: reshaped, clone: (x) => x,
    unsqueeze: (x, d) => {
      const at = from0(d, x.shape.length + 1), put = (list, v) => [...list.slice(0, at), v, ...list.slice(at)];
      return view(x, put(x.shape, 1), put(x.step, 0));
    },
    squeeze: (x, dims) => {
      const gone = [dims].flat().map((d) => from0(d, x.shape.length));
      const left = (list) => list.filter((_, d) => !(gone.includes(d) && x.shape[d] === 1));
      return view(x, left(x.shape), left(x.step));
    },
    permute: (x, order) => view(x, order.map((d) => x.shape.at(d)), order.map((d) => x.step.at(d))),
    expand: (x, to) => {
      const gap = to.length - x.shape.length;
      const shape = to.map((n, d) => (n === -1 ? x.shape[d - gap] : n));
      return view(x, shape, spread(x, shape));
    },
    slice: (x, d = 0, from = 0, to = null) => range(x, from0(d, x.shape.length), from, to),
    select: (x, d, i) => {
      const at = from0(d, x.shape.length), left = (list) => list.filter((_, e) => e !== at);
      return view(x, left(x.shape), left(x.step), from0(i, x.shape[at]) * x.step[at]);
    },
    split_with_sizes: (x, sizes, d = 0) => {
      const ends = sizes.map((_, i) => sizes.slice(0, i + 1).reduce(plus));
      return sizes.map((n, i) => range(x, from0(d, x.shape.length), ends[i] - n, ends[i]));
    },
    getitem: (list, i) => list[i],
    cat: (xs, dim = 0) => {
      const d = from0(dim, xs[0].shape.length);
      const ends = xs.map((_, i) => xs.slice(0, i + 1).reduce((n, x) => n + x.shape[d], 0));
      const shape = xs[0].shape.map((n, e) => (e === d ? ends.at(-1) : n));
      return written(shape, xs.map((x, i) => [(out) => range(out, d, ends[i] - x.shape[d], ends[i]), x]));
    },
    slice_scatter: (x, y, d = 0, from = 0, to = null) =>
      written(x.shape, [[(out) => out, x], [(out) => range(out, from0(d, x.shape.length), from, to), y]]),
    full: (shape, value) => elementwise("copy", view(constant(value), shape, shape.map(() => 0))),
    full_like: (x, value) => PLANNERS.full(x.shape, value),
    mm: product, bmm: product, _softmax: softmax(0), _log_softmax: softmax(1),
    sum: (x, dims, keep = false) => reduced(x, dims, keep, false), mean: (x, dims, keep = false) => reduced(x, dims, keep, true),
    pow: (x, n) => elementwise({ 2: "mul", 3: "cube" }[n] ?? `pow ${n}`, x),
    clamp: (x, low, high) => must(low === null, "clamp from below") ?? elementwise("min", x, high),
    index: (table, [at]) => {
      const n = size(table.shape.slice(1));
      return script([...at.shape, ...table.shape.slice(1)], [table, at], (out, from, ids) =>
        ids.forEach((id, i) => out.set(from.subarray(id * n, id * n + n), i * n)));
    },
    index_put: (x, [at], y, adds) => {
      must(adds, "index_put that writes over");
      const n = size(x.shape.slice(1));
      return script(x.shape, [x, at, y], (out, from, ids, more) => {
        out.set(from);
        ids.forEach((id, i) => { for (let k = 0; k < n; k++) out[id * n + k] += more[i * n + k]; });
      });
    },
    gather: (x, d, at) => {
      must(from0(d, x.shape.length) === x.shape.length - 1 && at.shape.at(-1) === 1, "gather like this one");
      const n = x.shape.at(-1);
      return script(at.shape, [x, at], (out, from, ids) => ids.forEach((id, i) => (out[i] = from[i * n + id])));
    },
    scatter_add: (x, d, at, y) => {
      must(from0(d, x.shape.length) === x.shape.length - 1 && at.shape.at(-1) === 1, "scatter_add like this one");
      const n = x.shape.at(-1);
      return script(x.shape, [x, at, y], (out, from, ids, more) => {
        out.set(from);
        ids.forEach((id, i) => (out[i * n + id] += more[i]));
      });
    },
  };
  for (const op of ["add", "sub", "mul", "div", "neg", "exp", "sigmoid", "sqrt", "rsqrt"]) PLANNERS[op] = (x, y) => elementwise(op, x, y);

  const inputs = {};
  rows.forEach(([op, args, named = {}]) => {
    if (op === "input") {
      values.push((inputs[args] = tensor(shapes[args], phases[args])));
      Object.assign(inputs[args].buffer, { at: memory.take(size(shapes[args])), isKept: true });
      return;
    }
    must(Object.hasOwn(PLANNERS, op), op);
    for (const [name, value] of Object.entries(named)) must(value === false, `${op} with ${name}`);
    values.push(PLANNERS[op](...args.map(valueOf)));
  });
  const results = Object.fromEntries(Object.entries(outputs).map(([name, row]) => [name, contiguous(values[row])]));
  for (const x of Object.values(results)) x.buffer.isKept = true;

  // where numbers lie: a place is free again after the last row that reads it
  steps.sort((a, b) => a.phase - b.phase);
  steps.forEach(({ reads, phase }, i) => {
    for (const { buffer } of reads) {
      buffer.last = i;
      if (reruns && buffer.phase < phase) buffer.isKept = true;
    }
  });
  const free = [];
  for (const [i, { out, reads }] of steps.entries()) {
    const n = Math.ceil(out.buffer.n / 4) * 4;
    const fit = out.buffer.isKept ? null : free.filter((b) => b.n >= n).sort((a, b) => a.n - b.n)[0];
    out.buffer.at = fit ? fit.at : memory.take(n);
    if (fit) free.splice(free.indexOf(fit), 1, ...(fit.n > n ? [{ at: fit.at + n, n: fit.n - n }] : []));
    for (const buffer of new Set([...reads, ...(out.buffer.last < 0 ? [out] : [])].map((x) => x.buffer))) {
      if (buffer.last <= i && !buffer.isKept) free.push({ at: buffer.at, n: Math.ceil(buffer.n / 4) * 4 });
    }
  }
  const all = steps.map(({ phase, make }) => [phase, make()]);
  memory.grow();
  for (const { at, numbers } of plans) memory.integers.set(numbers, at);
  for (const [value, x] of constants) memory.heap[x.buffer.at] = value;
  const part = (x) => memory.heap.subarray(address(x) / 4, address(x) / 4 + size(x.shape));
  return {
    run: (phase) => { for (const [p, f] of all) if (p === phase) f(); },
    /** An input's or an output's numbers, to write or to read: until the memory grows. */
    in: (name) => part(inputs[name]),
    out: (name) => part(results[name]),
  };
}
