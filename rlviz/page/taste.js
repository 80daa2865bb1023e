// What somebody likes, from pairs that they judged: Bradley and Terry's model, fitted as small_models/taste.py fits it.

import { wordsOf } from "./tasks.js";

const GRADIENT = 1e-9, NEWTON_STEPS = 50; // the fit ends at this norm of the gradient, or after so many steps

const dot = (a, b) => a.reduce((sum, one, i) => sum + one * b[i], 0);
const norm = (a) => Math.sqrt(dot(a, a));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** Return the lower triangle L of a positive definite matrix, L Lᵀ = A. */
function cholesky(A) {
  const L = A.map((row) => new Float64Array(row.length));
  for (let i = 0; i < A.length; i++) for (let j = 0; j <= i; j++) {
    let sum = A[i][j];
    for (let k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
    L[i][j] = i === j ? Math.sqrt(sum) : sum / L[j][j];
  }
  return L;
}
/** Return x of L Lᵀ x = b. */
function solve(L, b) {
  const x = Float64Array.from(b), n = x.length;
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < i; k++) x[i] -= L[i][k] * x[k];
    x[i] /= L[i][i];
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let k = i + 1; k < n; k++) x[i] -= L[k][i] * x[k];
    x[i] /= L[i][i];
  }
  return x;
}

/**
 * Fit P(a preferred to b) = σ(w · (φ(a) − φ(b))). preferences: [{chosen, rejected, equal}]; task: that of sentences, whose features φ
 * are. w maximises Σ [y log σ + (1 − y) log(1 − σ)] − |w|² / (2 prior²), y = 1, and ½ for equal ones; deviations: roots of the
 * inverse Hessian's diagonal. withSentence, withGroups: features beside words and length. Returns {weights, deviations} by feature, and doubt(a, b): the variance of w · (φ(a) − φ(b)) of two texts.
 */
export function fitTaste(preferences, task, { prior = 1, withSentence = false, withGroups = false } = {}) {
  const names = [...task.words, "length", ...(withSentence ? ["sentence"] : []), ...(withGroups ? Object.keys(task.groups) : [])];
  const difference = (first, second) => {
    const [a, b] = [task.features(first), task.features(second)];
    return Float64Array.from(names, (name) => (a[name] ?? 0) - (b[name] ?? 0));
  };
  const rows = preferences.map(({ chosen, rejected }) => difference(chosen, rejected));
  const labels = preferences.map(({ equal }) => (equal ? 0.5 : 1));
  const slopeAt = (w) => {
    const slope = w.map((one) => -one / prior ** 2);
    rows.forEach((row, i) => {
      const residual = labels[i] - sigmoid(dot(row, w));
      row.forEach((x, k) => { slope[k] += x * residual; });
    });
    return slope;
  };
  const factorAt = (w) => {
    const A = names.map((_, i) => Float64Array.from(names, (_, j) => (i === j ? 1 / prior ** 2 : 0)));
    for (const row of rows) {
      const p = sigmoid(dot(row, w)), used = [...row.keys()].filter((k) => row[k]);
      for (const i of used) for (const j of used) A[i][j] += p * (1 - p) * row[i] * row[j];
    }
    return cholesky(A);
  };
  let w = new Float64Array(names.length), slope = slopeAt(w), L = factorAt(w);
  for (let step = 0; step < NEWTON_STEPS && norm(slope) > GRADIENT; step++) {
    let move = solve(L, slope), next = w.map((one, k) => one + move[k]);
    while (norm(slopeAt(next)) > norm(slope) && norm(move) > Number.EPSILON) { // beyond where the curve is a parabola
      move = move.map((one) => one / 2);
      next = w.map((one, k) => one + move[k]);
    }
    w = next;
    [slope, L] = [slopeAt(w), factorAt(w)];
  }
  const deviations = names.map((_, k) => Math.sqrt(solve(L, Float64Array.from(names, (_, i) => +(i === k)))[k]));
  const byName = (values) => Object.fromEntries(names.map((name, k) => [name, values[k]]));
  const doubt = (first, second) => {
    const d = difference(first, second);
    return dot(d, solve(L, d));
  };
  return { weights: byName(w), deviations: byName(deviations), doubt };
}

/** Return values in an order by chance, each order as likely as any other. */
export function shuffled(values, random = Math.random) {
  const order = [...values];
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Return in which share of `of` trials with `wins` successes the chance lies, low and high, with 95 % confidence, by Wilson. */
export function wilson(wins, of) {
  const z2 = 1.959964 ** 2, share = wins / of, middle = (share + z2 / (2 * of)) / (1 + z2 / of);
  const half = (Math.sqrt(z2) / (1 + z2 / of)) * Math.sqrt((share * (1 - share)) / of + z2 / (4 * of * of));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** Return how probable it is by chance alone that wins and losses of so many trials are as unequal as these, or more (sign test). */
export function signTest(wins, of) {
  let [term, tail] = [0.5 ** of, 0]; // the probability of k wins, from k = 0 on
  for (let k = 0; k <= of; k++) {
    if (Math.abs(2 * k - of) >= Math.abs(2 * wins - of)) tail += term;
    term *= (of - k) / (k + 1);
  }
  return Math.min(1, tail);
}

/** Read judged pairs, JSON a line with prompt, chosen, rejected and, where neither is better, equal. Throws an Error, in a sentence. */
export function readPreferences(text, task, most = 10_000) {
  const known = new Set(task.words), preferences = [];
  text.split(/\r?\n/).forEach((line, i) => {
    if (!line.trim()) return;
    const fail = (why) => { throw new Error(`line ${i + 1}: ${why}`); };
    let one;
    try {
      one = JSON.parse(line);
    } catch {
      fail("it is no JSON");
    }
    if (preferences.length === most) fail(`a file holds at most ${most.toLocaleString("en")} pairs; split it`);
    const { prompt, chosen, rejected, equal = false } = one ?? {};
    for (const [name, value] of Object.entries({ prompt, chosen, rejected })) {
      if (typeof value !== "string") fail(`${name} must be a text`);
      const strange = value.split(" ").find((word) => word && !known.has(word));
      if (strange) fail(`${name} must have words of the task; got ${JSON.stringify(strange.slice(0, 40))}`);
    }
    if (typeof equal !== "boolean") fail("equal must be true or false");
    if (chosen.trim() === rejected.trim()) fail("chosen and rejected must differ");
    preferences.push({ prompt, chosen, rejected, equal });
  });
  if (!preferences.length) throw new Error("it holds no pairs: one a line, as JSON with prompt, chosen and rejected");
  return preferences;
}
/** Write judged pairs, as `readPreferences` and `rlviz train --pairs` read them. */
export const writePreferences = (preferences) => preferences.map(({ equal, ...one }) => `${JSON.stringify(equal ? { ...one, equal } : one)}\n`).join("");

/** Return how often two judges judged the same pair, and in which share of these they said the same; judges: lists of pairs. */
export function agreement(judges) {
  const answers = new Map(), plain = (text) => wordsOf(text).join(" ");
  judges.forEach((preferences, number) => {
    for (const { prompt, chosen, rejected, equal } of preferences) {
      const key = [prompt, ...[plain(chosen), plain(rejected)].sort()].join("|");
      if (!answers.has(key)) answers.set(key, new Map());
      answers.get(key).set(number, equal ? "equal" : plain(chosen)); // of one judge the last answer counts
    }
  });
  const same = [...answers.values()].flatMap((verdicts) => {
    const values = [...verdicts.values()];
    return values.flatMap((one, i) => values.slice(i + 1).map((other) => one === other));
  });
  return { compared: same.length, share: same.filter(Boolean).length / same.length };
}
