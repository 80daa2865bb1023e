/**
 * A transformer trains in the page: it samples, is judged, and learns by the library's algorithms, traced into programs.
 *
 * In a page this is a Web Worker made of a blob: run.js, tasks.js, planned.js and this file, one after the other
 * (`in_page.worker_script()`); the page's content security policy needs 'wasm-unsafe-eval' and worker-src blob:. Whoever imports it
 * (node) takes `trainer(post)`, a function of the same messages. What is shipped is packed by `rlviz.runs.in_page`, weights in
 * float16. The same messages give the same numbers in every browser that has WebAssembly.
 *
 * To the worker, {do, …}, and an id where its replies shall be known by it: they carry it too, and after the last comes done.
 *   open  {transformers, rules, checkpoints, kernels}   what is shipped, first. → ready
 *   add   {checkpoints}             further ones, that were loaded later. → ready
 *   start {settings, goesOn}        a run from its beginning; what is not given is as in DEFAULTS. goesOn: from the weights of the run so
 *                                   far, the KL still to the first ones. → started
 *   set   {settings}                from the next step on; another seed, checkpoint or `beside` begins anew. → set, or started
 *   play  {pause}                   go on alone, with so many ms between two steps (0)
 *   pause | step | reset            stop after this step; do one step, then stop; begin anew as things are set (→ started)
 *   look  {step, run}               one of the last KEPT steps again, with after: log π under the weights now. → step
 *   push  {step, run, algorithm}    what another algorithm would have made of that step's responses. → pushed
 *   evaluate {greedy}               → evaluated, for each run; of a task without right answers held_out is null
 *   write {prompts, draw, isStart}  what the policies write to prompts, at most ROWS, by the same random numbers whenever it is asked; draw:
 *                                   other ones (0); isStart: what they wrote at the start. → written
 * Settings: DEFAULTS, within RANGES. algorithm, beside: names of rules; beside trains a second policy on the same seed.
 * group_size: 2, 4, 8, 16 or 32, in 128 responses. parameters: algorithm → {name: number of a piece, such as eps_high};
 * beside_parameters: those of `beside`, where it is the same algorithm with other numbers.
 * mistake: whether the judge has one (what ends in 7 is paid as if it were right). words: what the task of sentences pays, the
 * fields of `WordReward`, or a taste, feature → weight (null); its base is added. pairs: null, or {algorithm: of pairs, such as DPO,
 * preferences: [{prompt, chosen, rejected}], parameters}: it learns from these, and what it samples is only paid and counted;
 * group_size is 2, and at most 64 pairs are an update.
 *
 * From it, {is, …}:
 *   ready     {algorithms: name → {parameters: name → [value, low, high, step], needs_reference, max_rounds, min_group_size,
 *              refuses_below_0: why it takes no rewards below 0, "" where it does},
 *              checkpoints: names}
 *   started   {settings, bytes, ms}   or set: bytes of the worker's memory, ms that planning took
 *   step      of run 0, or 1 for `beside`. N groups were sampled (P, or more in further rounds), of G responses of at most T
 *             tokens; arrays are flat, in the order group, response, token.
 *             run, step (from 1), algorithm, N, P, G, T, S (tokens of a prompt), rounds
 *             prompts [N], texts [N·G], correct (null where there is no right answer), format, paid (what the judge gave),
 *             truncated, rewards (shaped) [N·G]
 *             uses [N] (how often a group is used; 0: left out), dead [N] (rewards all equal), selected (groups in use)
 *             tokens, mask, logp_old, entropies, ref_logp (or null), seen (by the loss), advantages [N·G·T], of all groups
 *             logp, ratio, lower, upper, cut (1 low, 2 high, 3 dual), slope (of the objective by log π: the push) [N·G·T],
 *             as the last update saw them; NaN where a group is left out; pull (the part of slope that is the KL term's; null
 *             without one)
 *             accuracy (null without right answers), reward, sentences (share that is well formed), different (share of distinct
 *             texts), entropy, length, kl (to the start; null without a reference), loss, grad_norm, lr,
 *             clip {low, high, dual}, held_out (null between evaluations), ms {sample, judge, update, evaluate, all}
 *             Of pairs: arrays are those of the pairs in this update, chosen before rejected; pairs (their places), rewards (the
 *             algorithm's), advantages (the push of a pair's own loss), margin, pair_accuracy; it cannot be looked at again.
 *   pushed    {run, step, algorithm, advantages, logp, ratio, lower, upper, cut, slope}, as in step
 *   evaluated {run, step, greedy, held_out}
 *   written   {run, step, prompts, texts, isWellFormed}
 *   diverged  {run, step, what}       it plays no further: a number is not finite (the weights are those before that update), or,
 *             after its step, not one response of a task with answers is well formed; reset or start begins anew
 *   refused   {why}                   a message that could not be followed, in a sentence; nothing has changed
 *   done                              all replies to the message with this id are there
 */
import { compile, exp, expm1, largest, log, machine } from "./planned.js";
import { array, draws, plus, program } from "./run.js";
import { END, sentencesTask, split, TASKS } from "./tasks.js";

export const DEFAULTS = {
  algorithm: "GRPO", beside: null, checkpoint: "chain", seed: 0, group_size: 8, updates_per_rollout: 1, lr: 3e-4,
  lr_warmup_steps: 10, max_grad_norm: 1, evaluate_every: 10, parameters: {}, beside_parameters: null, mistake: false,
  words: { liked: [], punished: [], enough: 1, only_sentences: false, short: false, taste: null }, pairs: null,
};
/** Limits of the numbers, and which of them are whole. */
export const RANGES = {
  seed: [0, 2 ** 31 - 1, true], group_size: [2, 32, true], updates_per_rollout: [1, 16, true], lr: [0, 1e4],
  lr_warmup_steps: [0, 1e4, true], max_grad_norm: [1e-6, 1e6], evaluate_every: [0, 1e4, true],
};
const PARAMETER_RANGES = { eps_low: [0, 0.999] }; // beyond it the lower limit of a ratio would not be above 0
const ROWS = 128; // responses of an update, whatever the size of a group
const KEPT = 50; // steps that can be looked at again
const HELD_OUT = 256; // prompts of an evaluation
const NEVER = -1e9;

const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
const numbersOf = (text) => new Float32Array(bytesOf(text).buffer);
/** Return float16 numbers as float32. */
function fromHalves(text) {
  const halves = new Uint16Array(bytesOf(text).buffer), out = new Float32Array(halves.length), bits = new Uint32Array(out.buffer);
  halves.forEach((h, i) => {
    if (h & 0x7c00) bits[i] = ((h & 0x8000) << 16) | ((((h >> 10) & 31) + 112) << 23) | ((h & 1023) << 13);
    else out[i] = (h & 0x8000 ? -1 : 1) * (h & 1023) * 2 ** -24;
  });
  return out;
}
const mapped = (object, f) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, f(value, name)]));
const sum = (x) => x.reduce(plus, 0);
/** Return arrays, at least one, one after the other. */
function concat(parts) {
  const out = new parts[0].constructor(sum(parts.map((x) => x.length)));
  parts.reduce((at, x) => (out.set(x, at), at + x.length), 0);
  return out;
}

/** Return the numbers of these groups, at least one, each of so many. */
const groupsOf = (x, groups, size) => concat(groups.map((n) => x.subarray(n * size, n * size + size)));

// --- a transformer that samples, is scored and moves ---

/** Return what does that, planned for prompts of S tokens, and G responses of T to each of ROWS / G of them. */
function transformerOf(memory, { programs, parameters, layers, heads, width, turns, places }, S, T, G) {
  const [L, P] = [S + T, ROWS / G];
  memory.top = memory.begin;
  const tables = { weights: [parameters], turns: [2, L, width / 2], bias: [L, L] }, early = { weights: 0, turns: 0, bias: 0 };
  const cache = [layers, ROWS, heads, L, width], tokens = [P, G, T];
  const place = { token: [ROWS], keys: cache, values: cache, at: [L], seen: [L] };
  const numbers = { lr: [], longest: [], m_share: [], v_share: [] };
  const slopes = { slope: tokens, entropy_slope: tokens, m: [parameters], v: [parameters], ...numbers };
  const planned = (name, more, phases, reruns) =>
    compile(memory, programs[name], { ...tables, ...more }, { ...early, ...phases }, reruns);
  const [groups, singles] = [P, ROWS].map((rows) => planned("prefill", { prompts: [rows, S] }, { prompts: 1 }, true));
  const decoder = planned("decode", place, mapped(place, () => 1), true);
  const updater = planned("update", { prompts: [P, S], tokens, ...slopes }, { prompts: 1, tokens: 1, ...mapped(slopes, () => 2) });
  const put = (of, values) => Object.entries(values).forEach(([name, value]) => of.in(name).set(value));
  const half = numbersOf(turns), line = (L * width) / 2;
  const both = concat([half.subarray(0, line), half.subarray((places * width) / 2).subarray(0, line)]);
  const causal = Float32Array.from({ length: L * L }, (_, k) => (k % L <= Math.floor(k / L) ? 0 : NEVER));
  put(decoder, { turns: both });
  for (const compiled of [groups, singles, updater]) put(compiled, { turns: both, bias: causal });

  /** Copy keys and values of prompts [n, …, S] to each of their responses, in room for T more. */
  const share = (from, to, perPrompt) => {
    const [piece, n] = [S * width, ROWS / perPrompt];
    to.fill(0);
    for (let i = 0; i < layers; i++) for (let row = 0; row < ROWS; row++) for (let h = 0; h < heads; h++) {
      const at = ((i * n + Math.floor(row / perPrompt)) * heads + h) * piece;
      to.set(from.subarray(at, at + piece), ((i * ROWS + row) * heads + h) * L * width);
    }
  };
  /** Draw responses to prompts [n, S], n · perPrompt = ROWS of them. uniform: a number a token; null: the likeliest. */
  const sample = (weights, prompts, perPrompt, uniform) => {
    const first = perPrompt === 1 ? singles : groups;
    // Of each prompt one forward pass, whatever the number of responses to it; then token by token from the cached keys and values.
    put(first, { weights, prompts });
    put(decoder, { weights });
    [first, decoder].forEach((of) => of.run(0));
    first.run(1);
    for (const name of ["keys", "values"]) share(first.out(name), decoder.in(name), perPrompt);
    const drawn = {
      tokens: new Int32Array(ROWS * T), mask: new Uint8Array(ROWS * T), logp: new Float64Array(ROWS * T),
      entropies: new Float64Array(ROWS * T), truncated: new Uint8Array(ROWS).fill(1),
    };
    for (let t = 0; t < T; t++) {
      const [source, of] = t ? [decoder, 1] : [first, perPrompt];
      const [probs, logs, entropy] = ["probs", "log_probs", "entropy"].map((name) => source.out(name));
      const V = (probs.length * of) / ROWS;
      for (let row = 0; row < ROWS; row++) {
        if (!drawn.truncated[row]) continue; // its END is written
        const [from, at] = [Math.floor(row / of), row * T + t];
        const token = pick(probs.subarray(from * V, from * V + V), uniform && uniform[at]);
        [drawn.tokens[at], drawn.mask[at], drawn.logp[at], drawn.entropies[at]] = [token, 1, logs[from * V + token], entropy[from]];
        if (token === END) drawn.truncated[row] = 0;
      }
      if (t === T - 1 || !drawn.truncated.includes(1)) break;
      // The token goes in at its place, and may be seen from the next one on.
      put(decoder, { token: Float32Array.from({ length: ROWS }, (_, row) => drawn.tokens[row * T + t]) });
      decoder.in("at").fill(0)[S + t] = 1;
      put(decoder, { seen: Float32Array.from({ length: L }, (_, k) => (k <= S + t ? 0 : NEVER)) });
      decoder.run(1);
      put(decoder, { keys: decoder.out("keys"), values: decoder.out("values") });
    }
    return drawn;
  };
  /** Read responses [P, G, T] under weights; return their log-probabilities and entropies. */
  const score = (weights, prompts, tokens) => {
    // The last phase, which needs slopes, waits for `optimizerStep`: it goes back from what the forward pass left in memory.
    put(updater, { weights, prompts, tokens });
    updater.run(0);
    updater.run(1);
    return { logp: Float64Array.from(updater.out("logp")), entropy: Float64Array.from(updater.out("entropy")) };
  };
  /** Move what was scored last down these slopes; return the gradient's norm, and move nothing where that is no number. */
  const optimizerStep = (policy, inputs) => {
    put(updater, { m: policy.m, v: policy.v, ...mapped(inputs, (value) => (typeof value === "number" ? [value] : value)) });
    updater.run(2);
    const [norm] = updater.out("norm");
    if (Number.isFinite(norm)) for (const name of ["weights", "m", "v"]) policy[name].set(updater.out(name));
    return norm;
  };
  return { S, T, G, P, sample, score, optimizerStep };
}

/** Return the token whose slice of the cumulated probabilities holds u, or without u the likeliest one. */
function pick(probs, u) {
  if (u === null) return Math.max(0, probs.indexOf(probs.reduce(largest)));
  const aim = u * probs.reduce(plus, 0);
  let [token, reached] = [0, probs[0]];
  while (token < probs.length - 1 && !(reached > aim)) reached += probs[++token];
  return token;
}

// --- one step ---

const CHANCE = ["prompts", "tokens", "groups", "evaluation"];
/** Return n numbers in [0, 1): a hash of seed, step, purpose, round and their place. */
export function chance(seed, step, purpose, round, n) {
  const mixed = Math.imul(Math.imul(seed, 1000003) + step, 64) + round * CHANCE.length + CHANCE.indexOf(purpose);
  return draws({ kind: "uniform", shape: [n], seed: mixed | 0 }).data;
}

const PAST = ["visits", "mean", "variance", "lowest", "highest"].map((name) => `past_${name}`); // of a prompt's rewards
const NEVER_SAMPLED = [0, 0, 0, Infinity, -Infinity];
class Diverged extends Error {}

/** Return the texts of responses, and what the judge says of them and pays. */
function graded(prompts, { tokens, mask }, G, T, task, settings) {
  const of = (row) => tokens.subarray(row * T, row * T + T).filter((_, t) => mask[row * T + t]);
  const texts = Array.from({ length: prompts.length * G }, (_, row) => task.textOf(of(row)));
  const promptOf = (row) => prompts[Math.floor(row / G)], grades = texts.map((text, row) => task.grade(promptOf(row), text));
  const numbers = (f) => Float64Array.from(grades, (grade, row) => +f(grade, row));
  const paid = numbers((grade, row) => task.pay(promptOf(row), texts[row], grade, settings));
  return { texts, correct: task.hasAnswers ? numbers(({ correct }) => correct) : null, format: numbers(({ format }) => format), paid };
}

/** Return rewards, what the loss sees, advantages, uses and the history after this visit, by the algorithm's own program. */
function judge({ rule, parameters }, rollout, past) {
  const { N, G, T, paid, format, truncated, ref_logp } = rollout;
  const groups = (x) => array([N, G], x), tokens = (x) => array([N, G, T], x);
  const inputs = { old_logp: tokens(rollout.logp), old_entropy: tokens(rollout.entropies), mask: tokens(rollout.mask) };
  if (ref_logp) inputs.ref_logp = tokens(ref_logp);
  Object.assign(inputs, { correct: groups(paid), well_formed: groups(format), truncated: groups(truncated) });
  PAST.forEach((name, i) => (inputs[name] = array([N], past.map((history) => history[i]))));
  return mapped(rule.judge({ ...inputs, ...parameters }), (x) => x.data.slice());
}

/** Return the groups to learn from: those in use, and where these count more than once, as many of them again, drawn. */
function select({ rule, settings }, paid, N, G, step) {
  const uses = Array.from(rule.judge({ correct: array([N, G], paid) }, ["uses"]).uses.data);
  const used = uses.flatMap((use, group) => (use > 0 ? [group] : []));
  const missing = Math.round(sum(uses)) - used.length;
  const drawn = Array.from(missing > 0 ? chance(settings.seed, step, "groups", 0, missing) : []);
  return [...used, ...drawn.map((u) => used[Math.floor(u * used.length)])];
}

/** Return loss and slopes of the selected groups, by the algorithm's own program. scored: log π and entropy of the same groups. */
function objective({ rule, parameters }, { logp, ref_logp, G, T }, { advantages, seen }, selected, scored) {
  const size = G * T, tokens = (x) => array([selected.length, G, T], x);
  const of = (x) => tokens(groupsOf(x, selected, size));
  const inputs = { old_logp: of(logp), advantages: of(advantages), seen: of(seen), ...mapped(scored, tokens) };
  return rule.objective({ ...inputs, ...(ref_logp && { ref_logp: of(ref_logp) }), ...parameters });
}

/** Return what an objective made of the selected groups, for all N of them: NaN for the others. */
function onAllGroups(outputs, scored, selected, { N, G, T }) {
  const size = G * T;
  const back = (x) => {
    const out = new Float32Array(N * size).fill(NaN);
    selected.forEach((group, i) => out.set(x.subarray(i * size, i * size + size), group * size));
    return out;
  };
  if (!selected.length) return mapped({ logp: 0, ratio: 0, lower: 0, upper: 0, cut: 0, slope: 0 }, () => back([]));
  const { low, high, dual, ratio, lower, upper, slope } = mapped(outputs, (x) => x.data);
  const cut = low.map((is, i) => is + 2 * high[i] + 3 * dual[i]);
  return { ...mapped({ ratio, lower, upper, cut }, back), logp: back(scored.logp), slope: back(slope.map((x) => -x)) };
}

/** Return the KL term's part of the push: what of it is gone where β is 0. */
function pullOf(now, rollout, verdict, selected, scored, { slope }) {
  if (!("beta" in now.parameters) || !selected.length) return null;
  const free = objective({ ...now, parameters: { ...now.parameters, beta: 0 } }, rollout, verdict, selected, scored);
  const push = onAllGroups(free, scored, selected, rollout).slope;
  return slope.map((all, i) => all - push[i]);
}

/** A policy that trains. `now`, of a call: {settings, algorithm, rule, parameters, model, task, start} as they are. */
class Run {
  constructor(number, start) {
    const [m, v] = [new Float32Array(start.length), new Float32Array(start.length)];
    Object.assign(this, { number, weights: start.slice(), m, v, left: [1, 1], steps: 0, history: new Map(), recent: [] });
  }

  /** Do one step; return its report. Throws Diverged: the weights are then those of the update before. */
  step(now) {
    const times = [performance.now()], lap = (value) => (times.push(performance.now()), value);
    const rollout = lap(this.collect(now));
    // What is broken is noticed before anything is learned from it.
    if (!rollout.logp.every(Number.isFinite)) throw new Diverged("a log-probability is no finite number");
    // Advantages are made once, on the whole rollout: an algorithm may compare a prompt's rewards with those of earlier visits.
    const past = rollout.places.map((place) => this.history.get(place) ?? NEVER_SAMPLED);
    const verdict = judge(now, rollout, past);
    if (verdict[PAST[0]]) rollout.places.forEach((place, n) => this.history.set(place, PAST.map((name) => verdict[name][n])));
    lap();
    const { scored, ...done } = lap(now.pairs ? this.learnPairs(now) : this.learn(now, rollout, verdict));
    // Held-out prompts are looked at after the update, as the library does.
    this.steps++;
    const isDue = now.settings.evaluate_every && this.steps % now.settings.evaluate_every === 0;
    const heldOut = lap(isDue ? this.evaluate(now) : null);
    const took = times.slice(1).map((at, i) => at - times[i]);
    const ms = { sample: took[0], judge: took[1], update: took[2], evaluate: took[3], all: sum(took) };
    const of = { run: this.number, step: this.steps, algorithm: now.algorithm };
    const sampled = rolloutReport(rollout, verdict), seen = now.pairs ? singleNumbers(sampled) : sampled;
    const report = { ...of, ...seen, ...done, held_out: heldOut, ms };
    this.recent = [...this.recent, { report, rollout, past, scored }].slice(-KEPT);
    return report;
  }

  /** Sample G responses to each of P prompts, and to further ones in place of groups that the algorithm has no use for. */
  collect(now) {
    const { settings, rule, model, task } = now, { S, T, G, P } = model;
    const drawn = chance(settings.seed, this.steps, "prompts", 0, 4 * P * rule.max_rounds);
    const order = [...new Set(drawn.map((u) => Math.floor(u * task.train.length)))].slice(0, P * rule.max_rounds);
    let rollout = { N: 0, selected: [] };
    for (let rounds = 1; rollout.N < order.length && rollout.selected.length < P; rounds++) {
      // Of a further round as many prompts as groups are missing; the model's rows are always full, so some are for nothing.
      const more = order.slice(rollout.N, rollout.N + P - rollout.selected.length), rows = more.length * G;
      const ids = Array.from({ length: P }, (_, i) => task.encode(task.train[more[i % more.length]])).flat();
      const uniform = chance(settings.seed, this.steps, "tokens", rounds - 1, ROWS * T);
      const part = mapped(model.sample(this.weights, ids, G, uniform), (x) => x.slice(0, (x.length / ROWS) * rows));
      const all = rollout.N ? mapped(part, (x, name) => concat([rollout[name], x])) : part;
      const places = order.slice(0, rollout.N + more.length), prompts = places.map((place) => task.train[place]);
      const grades = graded(prompts, all, G, T, task, settings);
      rollout = { ...all, ...grades, prompts, places, N: places.length, P, G, T, S, rounds };
      rollout.selected = select(now, rollout.paid, rollout.N, G, this.steps);
    }
    return { ...rollout, ref_logp: rule.needs_reference ? scoredAll(now, now.start, rollout) : null };
  }

  /** Take an update on the selected groups; differentiate(scored) → loss and slopes. Return these, scored, lr and grad_norm. */
  update({ settings, model, task }, { prompts, tokens, G, T }, selected, differentiate) {
    const slots = Array.from({ length: model.P }, (_, i) => selected[i] ?? 0); // what fills the rows has no slope
    const [ids, responses] = [slots.flatMap((n) => task.encode(prompts[n])), groupsOf(tokens, slots, G * T)];
    const lr = settings.lr * Math.min(1, (this.steps + 1) / Math.max(1, settings.lr_warmup_steps));
    const slopes = { slope: new Float32Array(ROWS * T), entropy_slope: new Float32Array(ROWS * T) };
    const scored = mapped(model.score(this.weights, ids, responses), (x) => x.slice(0, selected.length * G * T));
    const outputs = selected.length ? differentiate(scored) : null;
    for (const name of Object.keys(slopes)) if (outputs?.[name]) slopes[name].set(outputs[name].data);
    // AdamW's bias corrections, 1 − β^k after k updates.
    this.left = [this.left[0] * 0.9, this.left[1] * 0.999];
    const shares = { m_share: 1 - this.left[0], v_share: 1 - this.left[1] };
    const norm = model.optimizerStep(this, { ...slopes, lr, longest: settings.max_grad_norm, ...shares });
    if (outputs && !Number.isFinite(outputs.loss.data[0])) throw new Diverged("the loss is no finite number");
    if (!Number.isFinite(norm)) throw new Diverged("the gradient is no finite number");
    return { outputs, scored, lr, grad_norm: norm };
  }

  /** Take the updates of a step; return what happened in them, and what the last one saw. */
  learn(now, rollout, verdict) {
    const { selected, G, T } = rollout, count = now.settings.updates_per_rollout;
    const total = { loss: 0, grad_norm: 0, low: 0, high: 0, dual: 0 };
    let last;
    for (let update = 0; update < count; update++) {
      // Old log-probabilities stay those of the sampler: from the second update on the ratios leave 1, and limits act.
      last = this.update(now, rollout, selected, (scored) => objective(now, rollout, verdict, selected, scored));
      total.grad_norm += last.grad_norm;
      if (last.outputs) for (const name of ["loss", "low", "high", "dual"]) total[name] += sum(last.outputs[name].data);
    }
    // Shares are of the tokens that the loss saw, over all updates; what the page draws is what the last update saw.
    const { outputs, scored, lr } = last, seen = selected.length ? count * sum(groupsOf(verdict.seen, selected, G * T)) : 0;
    const clip = mapped({ low: 0, high: 0, dual: 0 }, (_, name) => total[name] / Math.max(1, seen));
    const means = { loss: total.loss / count, grad_norm: total.grad_norm / count, clip, lr };
    const drawn = onAllGroups(outputs, scored, selected, rollout);
    return { ...drawn, pull: pullOf(now, rollout, verdict, selected, scored, drawn), ...means, scored };
  }

  /** Take an update on pairs, each of them once before one comes again; return what happened, the pairs in place of what was sampled. */
  learnPairs(now) {
    const { settings, model, start, pairs } = now, { rollout, rule, algorithm } = pairs, { N, T } = rollout, batch = Math.min(N, model.P);
    if (this.pairs !== rollout) Object.assign(this, { pairs: rollout, waiting: [], ref_logp: scoredAll(now, start, rollout) });
    if (this.waiting.length < batch) {
      const drawn = chance(settings.seed, this.steps, "groups", 0, N);
      this.waiting.push(...Array.from(drawn.keys()).sort((a, b) => drawn[a] - drawn[b]));
    }
    const selected = this.waiting.splice(0, batch), of = (x) => groupsOf(x, selected, 2 * T), shaped = (x) => array([batch, 2, T], x);
    const [tokens, mask, ref_logp] = [rollout.tokens, rollout.mask, this.ref_logp].map(of);
    const inputs = mapped({ ref_logp, mask: Float64Array.from(mask) }, shaped);
    const { outputs, scored, lr, grad_norm } = this.update(now, rollout, selected, ({ logp }) => rule({ logp: shaped(logp), ...inputs, ...pairs.parameters }));
    const { slope, rewards, loss, margin, pair_accuracy } = mapped(outputs, (x) => Float32Array.from(x.data));
    const [texts, none] = [selected.flatMap((n) => rollout.texts.slice(2 * n, 2 * n + 2)), new Float32Array(2 * batch * T)];
    // A response's bar is the push of its own pair's loss, which fades once the pair is in order.
    const pushes = { slope: slope.map((x) => -x), advantages: slope.map((x) => -x * batch), cut: none, pull: null };
    const sizes = { N: batch, P: batch, G: 2, T, prompts: selected.map((n) => rollout.prompts[n]), texts, tokens, mask };
    const graded = { correct: null, paid: rewards, rewards, dead: new Uint8Array(batch), uses: new Uint8Array(batch).fill(1) };
    const numbers = { loss: loss[0], margin: margin[0], pair_accuracy: pair_accuracy[0], grad_norm, lr, clip: { low: 0, high: 0, dual: 0 } };
    return { algorithm, pairs: selected, ...sizes, ...graded, ...pushes, ...numbers, logp: Float32Array.from(scored.logp), ref_logp: Float32Array.from(ref_logp) };
  }

  /** Return the share of HELD_OUT prompts that a response answers right, null where none is right. */
  evaluate({ model, task, settings }, isGreedy = false) {
    if (!task.hasAnswers) return null;
    const parts = Array.from({ length: HELD_OUT / ROWS }, (_, part) => {
      const prompts = Array.from({ length: ROWS }, (_, i) => task.heldOut[(part * ROWS + i) % task.heldOut.length]);
      const uniform = isGreedy ? null : chance(0, 0, "evaluation", part, ROWS * model.T);
      return sum(graded(prompts, model.sample(this.weights, prompts.flatMap(task.encode), 1, uniform), 1, model.T, task, settings).correct);
    });
    return sum(parts) / HELD_OUT;
  }

  /** Return what this policy writes to prompts, by random numbers of the seed and `draw`, which no step changes. */
  write({ model, task, settings, start }, prompts, draw, isStart) {
    const rows = Array.from({ length: ROWS }, (_, i) => prompts[i % prompts.length]);
    const uniform = chance(settings.seed, 0, "evaluation", draw, ROWS * model.T);
    const drawn = model.sample(isStart ? start : this.weights, rows.flatMap(task.encode), 1, uniform);
    const { texts, format } = graded(rows, drawn, 1, model.T, task, settings), count = prompts.length;
    return { prompts, texts: texts.slice(0, count), isWellFormed: Array.from(format.slice(0, count), Boolean) };
  }
}

/** Return log π of all responses of a rollout under weights. */
function scoredAll({ model, task }, weights, { prompts, tokens, N, G, T }) {
  const { P } = model, size = G * T;
  const parts = Array.from({ length: Math.ceil(N / P) }, (_, part) => {
    const slots = Array.from({ length: P }, (_, i) => (part * P + i) % N);
    const rows = concat(slots.map((n) => tokens.subarray(n * size, n * size + size)));
    return model.score(weights, slots.flatMap((n) => task.encode(prompts[n])), rows).logp;
  });
  return concat(parts).slice(0, N * size);
}

/** Return what a report tells of a rollout. */
function rolloutReport({ logp, places, ...rollout }, { rewards, advantages, seen, uses, kl }) {
  const { mask, correct, format, texts, entropies, N, G } = rollout, length = sum(mask);
  const dead = Uint8Array.from({ length: N }, (_, n) => +rewards.subarray(n * G, n * G + G).every((r, _, all) => r === all[0]));
  const rows = N * G, of = { accuracy: correct && sum(correct) / rows, reward: sum(rewards) / rows };
  const shares = { sentences: sum(format) / rows, different: new Set(texts).size / rows };
  const numbers = { ...of, ...shares, entropy: sum(entropies) / length, length: length / rows, kl: kl ? kl[0] : null };
  const all = { ...rollout, logp_old: logp, rewards, advantages, seen, uses, dead, ...numbers };
  return mapped(all, (x) => (x instanceof Float64Array ? Float32Array.from(x) : x));
}

/** Return what of a report is one number, or none. */
const singleNumbers = (report) => Object.fromEntries(Object.entries(report).filter(([, value]) => typeof value === "number" || value === null));

/** Return pairs as groups of two, first the chosen response. Throws RangeError for what is no response of the task. */
function pairRollout(task, preferences) {
  const [N, T] = [preferences.length, task.longest], texts = preferences.flatMap(({ chosen, rejected }) => [chosen, rejected]);
  const [tokens, mask] = [new Int32Array(2 * N * T), new Uint8Array(2 * N * T)];
  for (const [row, text] of texts.entries()) {
    const ids = [...task.encode(text), END];
    if (ids.includes(undefined) || ids.length > T) throw new RangeError(`a response of a pair must have fewer than ${T} tokens, all of the task; got ${text.slice(0, 40)}`);
    tokens.set(ids, row * T);
    mask.fill(1, row * T, row * T + ids.length);
  }
  return { N, G: 2, T, prompts: preferences.map(({ prompt }) => prompt), texts, tokens, mask };
}

// --- the worker ---

/** Return on(message), which answers by send(message); see the top of this file. It owns its thread. */
export function trainer(send) {
  Object.assign(Math, { exp, log, expm1 }); // for the algorithms' programs in run.js: browsers have different ones
  let [memory, shipped, model, task] = [null, null, null, null];
  let [settings, runs, isPlaying, pause, timer, replyTo, pairs] = [DEFAULTS, [], false, 0, null, {}, null];
  const post = (reply) => send({ ...reply, ...replyTo });
  const cache = new Map();
  const once = (key, make) => cache.get(key) ?? cache.set(key, make()).get(key);
  const startOf = (name) => once(`weights of ${name}`, () => fromHalves(shipped.checkpoints[name].weights));
  const taskOf = ({ task: name, language }) => once(`task ${name}`, () => {
    const known = language ? sentencesTask(language) : TASKS[name];
    return { ...known, ...split(known), language };
  });
  const ruleOf = (name) => once(`rule ${name}`, () => {
    const { judge, objective, ...about } = shipped.rules[name];
    return { judge: program(judge), objective: program(objective), ...about };
  });
  const known = (name, value, among) => {
    if (!Object.hasOwn(among, value)) throw new RangeError(`${name} must be one of ${Object.keys(among).join(", ")}; got ${value}`);
  };
  const checkPrompts = (of, prompts) => {
    const all = Object.fromEntries(of.prompts().map((one) => [one, true]));
    for (const prompt of prompts) known("prompt", prompt, all);
  };
  const within = (name, value, [low, high, isWhole]) => {
    if (typeof value === "number" && value >= low && value <= high && (!isWhole || Number.isInteger(value))) return;
    throw new RangeError(`${name} must be a ${isWhole ? "whole " : ""}number from ${low} to ${high}; got ${value}`);
  };
  /** Return the settings with these changes. Throws RangeError for one that there is not, or that is out of its range. */
  const changed = (before, changes) => {
    for (const [name, value] of Object.entries(changes)) {
      known("a setting", name, DEFAULTS);
      if (RANGES[name]) within(name, value, RANGES[name]);
    }
    const next = { ...before, ...changes };
    known("checkpoint", next.checkpoint, shipped.checkpoints);
    known("algorithm", next.algorithm, shipped.rules);
    if (next.beside !== null) known("beside", next.beside, shipped.rules);
    const { liked, punished, enough } = next.words, { tokens = [] } = shipped.checkpoints[next.checkpoint].language ?? {};
    for (const [name, weight] of Object.entries(next.words.taste ?? {})) within(`the weight of ${name}`, weight, [-1e6, 1e6]);
    const why = [next.algorithm, next.beside].map((name) => name && shipped.rules[name].refuses_below_0).find(Boolean);
    if (why && (punished.length || next.words.short || next.words.taste)) throw new RangeError(`${why}: punish no word, and ask for no short sentences and no judge`);
    const strange = [...liked, ...punished].find((word) => !tokens.includes(` ${word}`));
    if (strange !== undefined) throw new RangeError(`words must be of the task's vocabulary; got ${String(strange).slice(0, 40)}`);
    within("enough", enough, [1, 100, true]);
    if (next.pairs) {
      known("an algorithm of pairs", next.pairs.algorithm, shipped.pair_rules);
      within("pairs", next.pairs.preferences.length, [1, 1e4, true]);
      within("group_size, of pairs,", next.group_size, [2, 2, true]);
      const { prompts } = pairRollout(taskOf(shipped.checkpoints[next.checkpoint]), next.pairs.preferences);
      checkPrompts(taskOf(shipped.checkpoints[next.checkpoint]), prompts);
    }
    if (ROWS % next.group_size) throw new RangeError(`group_size must be 2, 4, 8, 16 or 32; got ${next.group_size}`);
    const besides = next.beside_parameters ? [[next.beside, next.beside_parameters]] : [];
    const pairNumbers = next.pairs ? [[next.pairs.algorithm, next.pairs.parameters ?? {}]] : [], rules = { ...shipped.rules, ...shipped.pair_rules };
    for (const [algorithm, numbers] of [...Object.entries(next.parameters), ...besides, ...pairNumbers]) {
      known("parameters of", algorithm, rules);
      for (const [name, value] of Object.entries(numbers)) {
        known(`a parameter of ${algorithm}`, name, rules[algorithm].parameters);
        within(name, value, PARAMETER_RANGES[name] ?? [0, 1000]); // wider than sliders are: what an odd number does is worth a look
      }
    }
    return next;
  };
  const ready = () => {
    const algorithms = mapped(shipped.rules, ({ judge, objective, ...about }) => about);
    post({ is: "ready", algorithms, checkpoints: Object.keys(shipped.checkpoints) });
  };
  const take = (next, isNew, isFurther = false) => {
    const began = performance.now(), goesOn = isFurther && next.checkpoint === settings.checkpoint;
    // Another seed, checkpoint or second policy cannot be taken over in the middle of a run.
    isNew ||= !runs.length || ["seed", "checkpoint", "beside"].some((name) => next[name] !== settings[name]);
    settings = next;
    const checkpoint = shipped.checkpoints[settings.checkpoint], transformer = shipped.transformers[checkpoint.transformer];
    task = taskOf(checkpoint);
    const sizes = { transformer, S: task.encode(task.train[0]).length, T: task.longest, G: settings.group_size };
    if (Object.entries(sizes).some(([name, size]) => model?.[name] !== size)) {
      model = { ...transformerOf(memory, transformer, sizes.S, sizes.T, sizes.G), transformer };
    }
    pairs = settings.pairs && pairsOf(settings.pairs);
    const names = [settings.algorithm, settings.beside].filter(Boolean);
    // Both runs begin with the same weights and draw by the same seed, so that what differs is the algorithm's.
    if (isNew) runs = names.map((_, number) => new Run(number, (goesOn && runs[number]?.weights) || startOf(settings.checkpoint)));
    post({ is: isNew ? "started" : "set", settings, bytes: memory.bytes, ms: performance.now() - began });
  };
  const pairsOf = ({ algorithm, preferences, parameters }) => {
    const { objective, parameters: usual } = shipped.pair_rules[algorithm];
    const rule = once(`rule ${algorithm}`, () => program(objective)), numbers = mapped(usual, ([value], name) => parameters?.[name] ?? value);
    return { algorithm, rule, parameters: numbers, rollout: pairRollout(task, preferences) };
  };
  const nowOf = (number, algorithm = number ? settings.beside : settings.algorithm) => {
    const rule = ruleOf(algorithm), numbers = (number && settings.beside_parameters) || (settings.parameters[algorithm] ?? {});
    const parameters = mapped(rule.parameters, ([value], name) => numbers[name] ?? value);
    return { settings, algorithm, rule, parameters, model, task, pairs, start: startOf(settings.checkpoint) };
  };
  const step = () => {
    for (const run of runs) {
      const at = run.steps + 1;
      try {
        const report = run.step(nowOf(run.number));
        post({ is: "step", ...report });
        if (task.hasAnswers && !report.format.includes(1)) throw new Diverged("not one response is well formed any more");
      } catch (error) {
        if (!(error instanceof Diverged)) throw error;
        isPlaying = false;
        post({ is: "diverged", run: run.number, step: at, what: error.message });
      }
    }
  };
  const tick = () => {
    timer = null;
    if (!isPlaying) return;
    step();
    if (isPlaying) timer = setTimeout(tick, pause); // between two steps the worker reads its messages
  };
  const keptOf = (run, number) => {
    const entry = runs[run]?.recent.find(({ report }) => report.step === number);
    if (entry?.report.G === model.G && !entry.report.pairs) return entry;
    throw new RangeError(`step must be one of the last ${KEPT} with these sizes; got ${number}`);
  };
  const DO = {
    open: (message) => {
      [shipped, memory] = [message, machine(bytesOf(message.kernels))];
      memory.begin = memory.top;
      ready();
    },
    add: ({ checkpoints }) => {
      Object.assign(shipped.checkpoints, checkpoints);
      ready();
    },
    start: (message) => take(changed(DEFAULTS, message.settings ?? {}), true, message.goesOn),
    set: (message) => take(changed(settings, message.settings), false),
    reset: () => take(settings, true),
    play: (message) => {
      [isPlaying, pause] = [true, message.pause ?? 0];
      clearTimeout(timer);
      timer = setTimeout(tick, 0);
    },
    pause: () => { isPlaying = false; },
    step: () => {
      isPlaying = false;
      step();
    },
    look: ({ step: number, run = 0 }) => {
      const { report, rollout } = keptOf(run, number);
      post({ is: "step", ...report, after: Float32Array.from(scoredAll({ model, task }, runs[run].weights, rollout)) });
    },
    push: ({ step: number, run = 0, algorithm }) => {
      known("algorithm", algorithm, shipped.rules);
      const now = nowOf(run, algorithm), { rollout, past, scored } = keptOf(run, number);
      // The step was sampled by another algorithm, which may have had no use for a reference.
      const { selected } = rollout, asks = now.rule.needs_reference && !rollout.ref_logp;
      const completed = asks ? { ...rollout, ref_logp: scoredAll(now, now.start, rollout) } : rollout;
      const verdict = judge(now, completed, past), advantages = Float32Array.from(verdict.advantages);
      const outputs = selected.length && objective(now, completed, verdict, selected, scored);
      post({ is: "pushed", run, step: number, algorithm, advantages, ...onAllGroups(outputs, scored, selected, rollout) });
    },
    evaluate: ({ greedy = false }) => {
      for (const run of runs) {
        const heldOut = run.evaluate(nowOf(run.number), greedy);
        post({ is: "evaluated", run: run.number, step: run.steps, greedy, held_out: heldOut });
      }
    },
    write: ({ prompts, draw = 0, isStart = false }) => {
      checkPrompts(task, prompts);
      within("prompts", prompts.length, [1, ROWS, true]);
      within("draw", draw, [0, 1e6, true]);
      for (const run of runs) post({ is: "written", run: run.number, step: run.steps, ...run.write(nowOf(run.number), prompts, draw, isStart) });
    },
  };
  return ({ do: what, id, ...message }) => {
    replyTo = id === undefined ? {} : { id };
    try {
      known("do", what, DO);
      if (!shipped && what !== "open") throw new RangeError(`open comes before ${what}`);
      if (!runs.length && !["open", "add", "start"].includes(what)) throw new RangeError(`start comes before ${what}`);
      DO[what](message);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      post({ is: "refused", why: error.message });
    }
    if (id !== undefined) post({ is: "done" });
    replyTo = {};
  };
}

if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const on = trainer((message) => self.postMessage(message));
  self.onmessage = ({ data }) => on(data);
}
