// The playground: a small language model trains in this page. One step is seen from left to right: answers are sampled, compared
// within their group, their tokens are pushed, and the curves grow. All numbers come from the worker (train.js); here they are shown.
import { dress, format, html, mount, say } from "./draw.js";
import { drawPush, groupOf, isPulled, largest, makeBar, mostTelling, NARROW, percent, pushesOf, rowsShown, strongest, textOf } from "./group.js";
import { makeGuide, makeReward, makeStory } from "./sentences.js";
import { TASKS } from "./tasks.js";

const NAME = "play"; // before each control's name in the address
const STAGES = ["sample", "compare", "push", "repeat"];
const ROWS_SHOWN = { wide: 8, narrow: 4 }; // of a group
const TOKEN_MS = 260; // in a step that is played slowly
const STAGE_MS = 1400;
const PACES = { slow: 2600, "2 a second": 500, "4 a second": 250, full: 0 }; // ms that a step is shown
const TABLE_MS = 400; // at full speed groups are drawn no more often than this: nobody could read them
const PAID = ["reward", "liked", "punished", "enough", "only_sentences", "short"]; // what is paid
const BEGIN_ANEW = ["task", "seed", "algorithm", "beside", ...PAID]; // other controls are turned while it trains
const WIDTHS = ["eps_low", "eps_high"];
const KEPT_WHOLE = 200; // steps, of which every token can be looked at
const CURVES = ["accuracy", "reward", "sentences", "different", "entropy", "kl", "clipped", "dead", "grad_norm"];
const LEAST = { entropy: 0.5, kl: 0.01, clipped: 0.02, grad_norm: 0.5 }; // what an axis shows at least
const SHORT = 60; // steps that the axis shows at first

const exactly = (share) => `${format(100 * share, ".2g")} %`;
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// ------------------------------------------------------------------------------------- settings, address and Python's call

const isOffered = ({ why, recorded }) => !why || Boolean(recorded);
/** The text that an address has for a control; a task can be asked for by its name alone, as in #task=chain. */
export const addressText = (address, name) => (address.get(`${NAME}.${name}`) ?? (name === "task" ? address.get(name) : null))?.trim();

/** The values that an address asks for, as far as they exist and lie in their range; what else it says is ignored. */
export function wished(controls, hash) {
  const address = new URLSearchParams(hash.replace(/^#/, "")), values = {};
  for (const [name, { options, stops, low, high, words, isSwitch }] of Object.entries(controls)) {
    const text = addressText(address, name), number = Number(text);
    if (words && text !== undefined) values[name] = words.filter((one) => text.split(/[\s,]+/).includes(one));
    else if (!text) continue;
    else if (isSwitch) {
      if (["true", "false"].includes(text)) values[name] = text === "true";
    } else if (options) {
      if (options.some((one) => one.value === text && isOffered(one))) values[name] = text;
    } else if (Number.isFinite(number)) {
      const within = Math.min(high, Math.max(low, number));
      values[name] = name === "seed" ? Math.round(within) : Number.isInteger(low) && stops ? stops.reduce((a, b) => (Math.abs(b - within) < Math.abs(a - within) ? b : a)) : within;
    }
  }
  if (values.punished) values.punished = values.punished.filter((one) => !(values.liked ?? controls.liked.value).includes(one));
  return values;
}

/** All settings where some are asked for: an algorithm brings its own numbers. */
export function settingsOf({ controls, numbers }, wishes) {
  const first = Object.fromEntries(Object.entries(controls).map(([name, { value }]) => [name, value]));
  return { ...first, ...numbers[wishes.algorithm ?? first.algorithm], ...wishes };
}

/** What a prompt of a policy's task asks for, with a right answer to it. */
export function askedBy(policy, prompt) {
  const task = policy.split("-")[0], gold = TASKS[task].gold(prompt), digits = prompt.replace(/\D/g, "").split("");
  if (task === "sort") return `Write the letters in order: ${gold}. $ ends an answer.`;
  if (task === "trip") return `Write three digits with the sum ${prompt.replace("=", "")}, such as ${gold}. $ ends an answer.`;
  return `Add the digits: ${digits.join("+")} = ${digits.reduce((sum, one) => sum + +one, 0)}, so write #${gold}, with or without the sums on the way. $ ends an answer.`;
}

/** What the worker is told of these settings. */
export function messageOf({ controls, numbers, story }, settings) {
  const { algorithm, beside, task: checkpoint, seed, group_size, updates_per_rollout, lr, reward } = settings;
  const names = Object.keys(numbers[algorithm]).filter((name) => controls[name]);
  const parameters = Object.fromEntries(names.map((name) => [name, settings[name]]));
  const widths = Object.fromEntries(Object.entries(numbers[algorithm]).filter(([name]) => name in parameters && WIDTHS.includes(name)));
  const twin = beside === algorithm ? { ...parameters, ...widths } : null; // the same, with its own ε
  const { liked, punished, enough, only_sentences, short } = settings, words = story && { words: { liked, punished, enough, only_sentences, short, taste: settings.taste ?? null } };
  const pairs = settings.pairs && { pairs: settings.pairs }; // what it learns from in place of its own answers
  return { ...words, ...pairs, algorithm, beside: beside || null, beside_parameters: twin, checkpoint, seed, group_size, updates_per_rollout, lr, evaluate_every: 5, parameters: { [algorithm]: parameters }, mistake: reward === "mistake" };
}

/** What Python's WordReward takes of these settings, where they are not its defaults. */
function rewardLine(controls, settings) {
  const python = (value) => (Array.isArray(value) ? `[${value.map((one) => `"${one}"`).join(", ")}]` : typeof value === "boolean" ? (value ? "True" : "False") : value);
  const changed = PAID.filter((name) => controls[name] && String(settings[name]) !== String(controls[name].value));
  return { words: changed.map((name) => `${name}=${python(settings[name])}`).join(", ") };
}
/** The lines that train the same in Python, by torch. */
export function linesOf({ call, controls, numbers, usualNumbers = numbers, responses, story }, settings) {
  const usual = usualNumbers[settings.algorithm], { python } = controls.algorithm.options.find((one) => one.value === settings.algorithm);
  const changed = Object.keys(usual).filter((name) => controls[name] && settings[name] !== usual[name]);
  const fields = {
    ...settings, python, ...(story && rewardLine(controls, settings)), num_prompts: responses / settings.group_size,
    task: settings.task === "chain-rare" ? '"chain-rare", "chain"' : `"${settings.task}"`,
    numbers: changed.length ? `.with_parameters(${changed.map((name) => `${name}=${settings[name]}`).join(", ")})` : "",
  };
  return call.map((line) => line.replace(/\{(\w+)\}/g, (_, name) => fields[name])).join("\n");
}

// ------------------------------------------------------------------------------------------------------- the worker, and a run

/** A worker as a function: it is sent a message with an id, and promises the replies that carry it, when they are all there. */
export function asking(worker) {
  const waiting = new Map();
  let count = 0;
  worker.onmessage = ({ data: { id, ...reply } }) => {
    const one = waiting.get(id);
    if (!one) return; // it comes twice, or late
    if (reply.is !== "done") return one.replies.push(reply);
    waiting.delete(id);
    one.done(one.replies);
  };
  worker.onerror = (event) => {
    for (const { failed } of waiting.values()) failed(new Error(event.message ?? "its worker does not start"));
    waiting.clear();
  };
  return (message) => new Promise((done, failed) => {
    waiting.set(++count, { replies: [], done, failed });
    worker.postMessage({ ...message, id: count });
  });
}

/** A step as the page shows it: the worker's report, with the numbers that are curves. */
const withCurves = (report) => ({
  ...report,
  clipped: report.clip.low + report.clip.high + report.clip.dual,
  dead: report.dead.reduce((sum, one) => sum + one, 0) / report.N,
  isDead: report.dead,
});
/** Its numbers without its tokens. */
const numbersOf = (record) => Object.fromEntries(Object.entries(record).filter(([, value]) => typeof value !== "object" || value === null));

/** A run by its steps, as columns that a picture's data may have; before: its accuracy on new prompts before the first step. */
export function columnsOf(records, before, prefix = "") {
  const looked = records.filter((one) => one.held_out !== null);
  const data = { step: records.map((one) => one.step), lookStep: [0, ...looked.map((one) => one.step)], look: [before ?? NaN, ...looked.map((one) => one.held_out)] };
  for (const name of CURVES) data[name] = records.map((one) => one[name] ?? NaN);
  return Object.fromEntries(Object.entries(data).map(([name, values]) => [prefix + name, values.length ? values : [NaN]]));
}

// ------------------------------------------------------------------------------------------------------- a step, in four boxes

function makeBoxes(root, curves) {
  const board = html("ol", { className: "play-boxes", "aria-label": "one step of training" }, root), boxes = {};
  for (const [i, name] of STAGES.entries()) {
    const item = html("li", { className: `play-box play-${name}` }, board), head = html("h2", {}, item);
    head.append(html("b", { textContent: i + 1 }), ` ${name} `, html("span", { className: "play-what" }));
    boxes[name] = { item, what: head.lastChild, body: html("div", { className: "play-rows" }, item), foot: html("p", { className: "play-foot" }, item) };
  }
  const drawn = mount(html("div", {}, boxes.repeat.body), curves), typed = () => [...boxes.sample.body.children].map((row) => [...row.children]);
  return { board, boxes, drawn, head: boxes.sample.item, pause: TABLE_MS, stages: STAGES.length, typed, show: (record, options) => showGroup(boxes, record, options) };
}

function rowCompared({ isRight, isPaid, A }) {
  const row = html("div", { className: "play-row" });
  html("span", { className: isRight ? "play-right" : "play-wrong", textContent: isRight ? "✓ right" : isPaid ? "✗ but paid" : "✗ wrong" }, row);
  makeBar(row)(A);
  html("span", { className: "play-number", textContent: format(A, "+.2f") }, row);
  return row;
}
function rowPushed({ places, texts }, record, most, chosen, onToken) {
  const row = html("div", { className: "play-row" });
  for (const [t, at] of places.entries()) {
    const button = html("button", { type: "button", textContent: texts[t], "aria-pressed": String(at === chosen) }, row);
    drawPush(button, record, at, most);
    button.onclick = () => onToken(at);
  }
  return row;
}
function showGroup(boxes, record, { n, chosen, settings, onToken }) {
  const { prompt, rows, isDead, isUsed } = groupOf(record, n), mean = rows.reduce((sum, one) => sum + one.reward, 0) / rows.length;
  const visible = rowsShown(rows, matchMedia(NARROW).matches ? ROWS_SHOWN.narrow : ROWS_SHOWN.wide), more = rows.length - visible.length;
  const most = strongest(record), pushes = rows.flatMap(({ places }) => places.map((at) => pushesOf(record, at)));
  const hasPull = pushes.some(({ pull }) => isPulled(pull, most));
  const idle = isDead ? "a dead group" : "all are cut";
  say(boxes.sample.what, `a group: ${rows.length} answers to ${prompt}`);
  say(boxes.compare.what, !isDead ? `against their mean, ${format(mean, ".2f")}` : rows.some(({ A }) => A) ? "all equal, but not to those before" : "all equal: nothing to compare");
  say(boxes.push.what, !isUsed ? "left out of this step" : pushes.some(({ push }) => push) ? "each token up ↑ or down ↓" : hasPull ? `${idle}: only the KL pulls` : `${idle}: no push`);
  boxes.sample.body.replaceChildren(...visible.map((i) => {
    const row = html("div", { className: "play-row" });
    for (const textContent of rows[i].texts) html("span", { className: "play-typed", textContent }, row);
    return row;
  }));
  boxes.compare.body.replaceChildren(...visible.map((i) => rowCompared(rows[i])));
  boxes.push.body.replaceChildren(...visible.map((i) => rowPushed(rows[i], record, most, chosen, onToken)));
  say(boxes.sample.foot, `${more > 0 ? `And ${more} more. ` : ""}${askedBy(settings.task, prompt)}`);
  say(boxes.compare.foot, `The bar is the advantage A. Groups with nothing to compare: ${record.isDead.reduce((sum, one) => sum + one, 0)} of ${record.N}.`);
  const cut = `Dotted: cut at the last update. During all updates: ${exactly(record.clipped)} of the tokens.`;
  const clip = settings.updates_per_rollout === 1 && !record.clipped ? "With one update the ratio is still 1, so no ε cuts anything." : cut;
  boxes.push.foot.replaceChildren(clip, ...(hasPull ? [html("span", { className: "play-pull", textContent: " ▴▾ The KL term's pull to the first model." })] : []));
}

/** The terms of a token's objective with its numbers; `others`: what other algorithms would have pushed. */
function showToken(section, record, at, others) {
  const [A, ratio, lower, upper] = ["advantages", "ratio", "lower", "upper"].map((name) => record[name][at]);
  const { push, pull } = pushesOf(record, at), parts = record.pull ? `: ${format(push, "+.3g")} by the advantage, ${format(pull, "+.3g")} by the KL term` : "";
  const beyond = ["", "The ratio is below its lower limit", "The ratio is above its upper limit", "The dual clip holds"][record.cut[at]];
  section.replaceChildren();
  const line = html("p", {}, section);
  line.append("This ", html("code", { textContent: textOf(record, at) }), ` was sampled with probability ${format(Math.exp(record.logp_old[at]), ".3g")}. `);
  line.append(`At the last update: ratio of new to old probability r = ${format(ratio, ".4f")}, limits ${format(lower, ".4g")} to ${format(upper, ".4g")}, advantage A = ${format(A, "+.2f")}. `);
  line.append(html("b", { textContent: `Push on its log-probability: ${format(push + pull, "+.3g")}${parts}.` }), beyond ? ` ${beyond}: cut by the clip, so the advantage pushes no more.` : "");
  if (!others.length) return;
  const list = html("p", { className: "play-others" }, section);
  list.append("Pushes of others on the same answers, each in its own loss's scale: ");
  for (const [i, { algorithm, slope }] of others.entries()) list.append(html("span", { textContent: `${algorithm} ${format(slope[at] || 0, "+.3g")}${i < others.length - 1 ? "," : "."}` }), " ");
}

// ---------------------------------------------------------------------------------------------------------------- the controls

/** A control and its label: {home, put(value)}, of a slider setIdle(why), too: "" where it acts; `onChange(value)` is called when a person moves it. */
function makeControl({ label, options, stops, high, about = "" }, onChange) {
  const home = html("label", { className: "play-control", title: about });
  html("span", { className: "play-label", textContent: label }, home);
  if (options) {
    const select = html("select", { "aria-label": label }, home), sections = {};
    for (const { value, text, section, why, recorded } of options) {
      const into = section ? (sections[section] ??= html("optgroup", { label: section }, select)) : select;
      const needs = recorded ? `needs ${why}: a recorded run` : `needs ${why}`;
      html("option", { value, textContent: why ? `${text}: ${needs}` : text, disabled: !isOffered({ why, recorded }) }, into);
    }
    select.onchange = () => onChange(select.value);
    return { home, put: (value) => { select.value = value; } };
  }
  if (!stops) {
    const box = html("input", { type: "number", min: 0, max: high, step: 1, "aria-label": label }, home);
    box.onchange = () => onChange(Math.min(high, Math.max(0, Math.round(Number(box.value) || 0))));
    return { home, put: (value) => { box.value = value; } };
  }
  const slider = html("input", { type: "range", min: 0, step: 1, "aria-label": label }, home), output = html("output", {}, home), note = html("small", {}, home);
  let places = stops;
  slider.oninput = () => onChange(places[slider.value]);
  return { home, put: (value) => {
    places = [...new Set([...stops, value])].sort((a, b) => a - b);
    slider.max = places.length - 1;
    slider.value = places.indexOf(value);
    output.value = format(value, ".4g");
    slider.setAttribute("aria-valuetext", output.value);
  }, setIdle: (why) => {
    slider.disabled = Boolean(why);
    say(note, why);
  } };
}

// ------------------------------------------------------------------------------------------------------------------- the whole

/**
 * Put the playground into `root`. payload: what `page_payload` of playground.py returns. load(part) promises a part: "programs", which are
 * {worker, open}, the worker's script and the message that opens it, or a policy's weights. linked: whether the settings are part of the address. player(home, name), where recorded runs
 * are offered, shows one there. waits: what is said until Train is pressed, and nothing loaded before; "": it trains at once. Returns what `rlviz.run` is to a page.
 */
export function playground(root, payload, load, { linked = true, player = null, waits = "" } = {}) {
  const { controls, story } = payload, isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const wishes = linked ? wished(controls, location.hash) : {};
  const run = { records: [], beside: [], before: null, besideBefore: null, ms: null }, view = { step: null, n: 0, token: null, others: [], at: 0 };
  let settings = settingsOf(payload, wishes), ghost = {}, changes = [], turn = 0, isPlaying = false, pace = story?.pace ?? "full", opening = null, ask = null, worker = null, language = null, restsAt = story?.restsAt;
  const loaded = new Set(); // policies that the worker has
  let isWaiting = Boolean(waits);
  let isFirst = !isStill && Object.keys(wishes).every((name) => name === "task"); // a visitor's first step is played slowly

  dress(root, PLAYGROUND_CSS, "playground"); // playground.css, which Python puts before
  root.classList.add("play");
  const status = html("p", { className: "play-said", role: "status" }, root);
  if (story) makeGuide(root, story.guide, { find: (name) => root.querySelector(name), act: walk });
  const display = story ? makeStory(root, payload, { settings: () => settings, onWord, onToken: inspect }) : makeBoxes(root, payload.curves);
  const { board, drawn } = display, chips = html("p", { className: "play-groups" }, display.head), bar = html("div", { className: "play-buttons", role: "group", "aria-label": "training" }, root);
  const button = (textContent, title, onclick, home = bar) => html("button", { type: "button", textContent, title, onclick }, home);
  button("‹", "The group before", () => turnTo(-1), chips).setAttribute("aria-label", "The group before");
  const which = html("span", {}, chips);
  button("›", "The next group", () => turnTo(1), chips).setAttribute("aria-label", "The next group");
  const toggle = button("", "Train, or pause", () => (isWaiting ? again() : isPlaying ? pause() : play()));
  const single = button("One step", "Train one step, and show it slowly", () => stepOnce());
  button("⟲ Again", "Begin again; this run stays as a grey line", () => again());
  const speed = html("select", { "aria-label": "speed" }, bar);
  for (const name of Object.keys(PACES)) html("option", { value: name, textContent: `speed: ${name}`, selected: name === pace }, speed);
  speed.onchange = () => { pace = speed.value; };
  const scrub = html("input", { type: "range", min: 1, step: 1, "aria-label": "step" }, bar), where = html("output", {}, bar);
  scrub.oninput = () => { const step = +scrub.value; pause(); Object.assign(view, { step, token: null }); show(); };

  const reward = story && makeReward(html("div", { className: "story-reward-row" }, root), payload, change);
  const panel = html("div", { className: "play-controls", role: "group", "aria-label": "settings" }, root), widgets = {};
  for (const [name, control] of Object.entries(controls)) {
    if (control.words || control.isSwitch) continue; // which the reward has
    (control.inRewardRow ? reward.home.parentElement : panel).append((widgets[name] = makeControl(control, (value) => change({ [name]: value }))).home);
    if (control.options?.length === 1) widgets[name].home.classList.add("play-only");
  }
  const tape = html("section", { className: "play-tape", hidden: true }, root);
  const about = html("details", { className: "play-about" }, root), list = html("dl", {}, about);
  about.prepend(html("summary", { textContent: "What these are" }));
  for (const { label, about: words } of Object.values(controls)) if (words) html("dt", { textContent: label }, list), html("dd", { textContent: words }, list);
  html("p", { textContent: "Another task, algorithm, reward or seed begins a new run; all else is turned while it trains, at a dotted line in the curves." }, about);
  const question = html("section", { className: "play-asked", hidden: true });
  board.before(question);
  const terms = html(story ? "section" : "li", { className: "play-terms", hidden: true, "aria-live": "polite" });
  if (display.boxes) display.boxes.push.item.after(terms);
  else board.append(terms);
  const tries = html("p", { className: "play-tries" }, root);
  if (story) panel.before(tries); // what one can ask stands above what one can turn
  tries.append(html("b", { textContent: "Try:" }));
  for (const one of payload.tries) {
    const link = html("a", { textContent: one.title, href: `#${addressOf(settingsOf(payload, one.values))}` }, tries);
    link.onclick = (event) => { event.preventDefault(); attempt(one); };
  }
  const fold = html("details", { className: "play-call" }, root);
  html("summary", { textContent: "The same in Python, by torch" }, fold);
  const code = html("pre", {}, fold);

  // --- settings

  const recorded = () => controls.algorithm.options.find((one) => one.value === settings.algorithm).recorded;
  function addressOf(values) {
    const address = new URLSearchParams(location.hash.slice(1));
    address.delete("task");
    for (const name in controls) address.set(`${NAME}.${name}`, controls[name].words ? values[name].join(" ") : values[name]);
    return address;
  }
  function tell() {
    reward?.put(settings);
    for (const name in widgets) {
      widgets[name].put(settings[name]);
      const { idle } = controls[name]; // {of, at, why}: it does nothing while another control stands there
      widgets[name].setIdle?.(idle && settings[idle.of] === idle.at ? idle.why : "");
      widgets[name].home.hidden = recorded() ? name !== "algorithm" : Boolean(controls[name].own) && !(name in payload.numbers[settings.algorithm]);
    }
    for (const one of widgets.beside.home.querySelectorAll("option[value]:not([value=''])")) say(one, one.value + (one.value === settings.algorithm ? ", own ε" : ""));
    fold.hidden = Boolean(recorded());
    if (!recorded()) say(code, linesOf(payload, settings));
    if (!linked) return;
    try {
      history.replaceState(history.state, "", `#${addressOf(settings)}`);
    } catch { /* a page without an address of its own, such as a frame's */ }
  }
  function change(values) {
    const isOther = values.algorithm && values.algorithm !== settings.algorithm;
    settings = { ...settings, ...(isOther ? payload.numbers[values.algorithm] : {}), ...values };
    if (isOther && settings.beside === settings.algorithm) settings.beside = "";
    tell();
    if (Object.keys(values).some((name) => BEGIN_ANEW.includes(name))) {
      question.hidden = true;
      return again(!["task", ...PAID].some((name) => name in values)); // of another reward a grey line would say nothing
    }
    if (run.records.length) changes.push(run.records.length);
    run.isChanged = true;
    return draw();
  }
  function attempt({ values, question: text, see, below }) {
    settings = settingsOf(payload, values);
    question.hidden = false;
    question.replaceChildren(html("p", { className: "play-question", textContent: text }));
    const answer = html("details", {}, question);
    html("summary", { textContent: "What one should see" }, answer);
    html("p", { textContent: see }, answer);
    tell();
    (display.lookBelow ?? ((name) => drawn.set("show", name)))(below);
    root.scrollIntoView(); // what it shows stands above what was pressed
    return again(false);
  }
  /** A person says of a word whether it is liked, punished or neither. */
  function onWord(word, into) {
    reward.move(into, [word]);
  }
  /** Do what a step of the guide asks for. */
  function walk(act) {
    if (typeof act === "object") return change(act), again();
    const record = run.records.findLast(({ tokens, isDead }) => tokens && isDead.includes(1));
    if (act === "dead group" && record) Object.assign(view, { step: record.step, n: record.isDead.indexOf(1), token: null }), pause();
    return undefined;
  }

  // --- training

  /** Begin anew, with the run so far as a grey line; whatever was going on ends. */
  async function again(hasGhost = true, goesOn = false) {
    const mine = ++turn, isAsked = isWaiting;
    isWaiting = single.disabled = false;
    if (hasGhost && run.records.length) ghost = columnsOf(run.records, run.before, "ghost_");
    else if (!hasGhost) ghost = {};
    isPlaying = false;
    Object.assign(run, { records: [], beside: [], before: null, besideBefore: null, isChanged: false });
    Object.assign(view, { step: null, token: null, others: [] });
    [changes, terms.hidden] = [[], true];
    if (story) display.clear(hasGhost);
    delete board.dataset.stage;
    if (showRecorded()) return;
    say(status, "The model is loaded.");
    try {
      await prepare(goesOn);
      const looks = await ask({ do: "evaluate" });
      await keepDiary(mine);
      if (mine !== turn) return;
      [run.before, run.besideBefore] = [looks[0].held_out, looks[1]?.held_out ?? null];
    } catch (error) {
      if (!ask) opening = null; // it is loaded again next time
      if (mine === turn) say(status, `It cannot train here: ${error.message}`);
      return;
    }
    draw();
    say(status, story?.first ?? `Before training, ${percent(run.before)} of the answers to new prompts are right.`);
    if (isStill && !isAsked) return pause();
    await play();
  }
  /** Let the worker have the policy, at the beginning of a run; goesOn: from the weights of the run before. Throws an Error for settings that it refuses. */
  async function prepare(goesOn = false) {
    ask = await (opening ??= opened()); // one worker, however often it is begun anew while that starts
    if (!loaded.has(settings.task)) {
      const checkpoint = await load(settings.task);
      language = checkpoint.language ?? null;
      await ask({ do: "add", checkpoints: { [settings.task]: checkpoint } });
    }
    loaded.add(settings.task);
    const [answer] = await ask({ do: "start", goesOn, settings: messageOf(payload, settings) });
    if (answer.is === "refused") throw new Error(answer.why);
  }
  /** At every tenth step, write down what the model now says of the same subject. */
  async function keepDiary(mine) {
    if (!story || run.records.length % story.every) return;
    const written = await ask({ do: "write", prompts: [story.subject] });
    if (mine === turn && written[0].is === "written") display.note(written.map(({ step, texts: [text], isWellFormed: [is] }) => ({ step, text, isWellFormed: is })));
  }
  /** Play the recorded run of an algorithm that cannot train here, in place of the boxes; return whether it is one. */
  function showRecorded() {
    const recording = recorded();
    for (const part of [board, bar, about, tries]) part.hidden = Boolean(recording);
    tape.hidden = !recording;
    tape.replaceChildren(); // a run that plays there stops
    if (!recording) return false;
    const { name, text, links } = recording, note = html("p"), home = html("div");
    say(status, text);
    for (const [words, href] of Object.entries(links)) note.append(html("a", { textContent: words, href }), " ");
    tape.replaceChildren(note, home);
    player(home, name);
    return true;
  }
  async function opened() {
    const { worker: text, open } = await load("programs"), script = new Blob([text], { type: "text/javascript" });
    worker = new Worker(URL.createObjectURL(script));
    const send = asking(worker);
    await send(open);
    return send;
  }
  /** Do one step of both runs; return whether it could be done. */
  async function advance(mine) {
    const { records, beside, isChanged } = run; // others, where it begins anew meanwhile
    run.isChanged = false;
    const sent = isChanged ? [ask({ do: "set", settings: messageOf(payload, settings) })] : [];
    const replies = (await Promise.all([...sent, ask({ do: "step" })])).flat();
    for (const one of replies) if (one.is === "step") (one.run ? beside : records).push(withCurves(one));
    const old = records.length - KEPT_WHOLE - 1;
    for (const list of [records, beside]) if (list[old]) list[old] = numbersOf(list[old]);
    run.ms = replies.find((one) => one.is === "step")?.ms.all ?? null;
    await keepDiary(mine);
    if (mine !== turn) {
      if (records === run.records && !isPlaying) show(); // it was paused in that step
      return false;
    }
    const broken = replies.find((one) => one.is === "diverged"), refused = replies.find((one) => one.is === "refused");
    if (!broken && !refused) return true;
    pause();
    say(status, refused?.why ?? `${broken.run ? besideName() : settings.algorithm} diverged in step ${broken.step}: ${broken.what}. ⟲ begins again.`);
    return false;
  }
  async function play() {
    if (isPlaying || !ask) return;
    const mine = ++turn;
    [isPlaying, view.step, view.token, terms.hidden, toggle.textContent] = [true, null, null, true, "❚❚ Pause"];
    while (mine === turn && run.records.length < payload.mostSteps && !(story && run.records.length === restsAt && run.rested !== run.records)) {
      const from = performance.now(), isSlow = isFirst;
      isFirst = false;
      if (!(await advance(mine))) return;
      if (isSlow) await slowly(mine);
      else if (from - view.at > (pace === "full" || story ? display.pause : 0)) show();
      else draw();
      await wait(Math.max(0, PACES[pace] - (performance.now() - from)));
    }
    if (mine !== turn) return;
    run.rested = run.records; // pressed again, it goes on
    pause();
  }
  function pause() {
    turn += 1;
    isPlaying = false;
    toggle.textContent = "▶ Train";
    delete board.dataset.stage;
    show();
  }
  async function stepOnce() {
    pause();
    if (!ask) return;
    const mine = turn;
    [view.step, view.token, terms.hidden] = [null, null, true];
    if (await advance(mine)) await (isStill ? show() : slowly(mine));
  }
  /** Show the last step stage by stage, its tokens one after another. */
  async function slowly(mine) {
    view.n = mostTelling(run.records.at(-1));
    show();
    board.dataset.stage = "0";
    const typed = display.typed();
    for (const one of typed.flat()) one.style.visibility = "hidden";
    for (let t = 0; t < largest(typed.map((row) => row.length)) && mine === turn; t++) {
      for (const row of typed) row[t]?.style.removeProperty("visibility");
      await wait(story ? TOKEN_MS / 3 : TOKEN_MS);
    }
    for (let stage = 1; stage < display.stages && mine === turn; stage++) {
      board.dataset.stage = String(stage);
      await wait(STAGE_MS);
    }
    if (mine === turn) delete board.dataset.stage;
  }

  // --- what is seen

  const besideName = () => settings.beside + (settings.beside === settings.algorithm ? ", own ε" : "");
  const place = () => (view.step ?? run.records.length) - 1;
  function draw() {
    const { data } = drawn, last = run.records.length, hasGhost = "ghost_step" in ghost, hasBeside = run.beside.length > 0;
    Object.assign(data, columnsOf(run.records, run.before), columnsOf(run.beside, run.besideBefore, "beside_"), ghost);
    Object.assign(data, { hasGhost: +hasGhost, hasBeside: +hasBeside, hasChanged: +(changes.length > 0), changed: changes.length ? changes : [NaN] });
    Object.assign(data, { algorithmName: settings.algorithm, besideName: besideName(), now: place() + 1, isBack: +(view.step !== null && view.step < last) });
    data.steps = Math.max(SHORT, last, hasGhost ? largest(ghost.ghost_step) : 0);
    const sides = ["", ...(hasBeside ? ["beside_"] : []), ...(hasGhost ? ["ghost_"] : [])];
    for (const [name, least] of Object.entries(LEAST)) {
      const most = 1.05 * Math.max(least, ...sides.map((side) => largest(data[side + name].filter(Number.isFinite))));
      Object.assign(data, { [`most_${name}`]: most, [`least_${name}`]: -payload.below * most });
    }
    const rewards = sides.flatMap((side) => data[`${side}reward`].filter(Number.isFinite)), lowest = rewards.reduce((a, b) => Math.min(a, b), 0);
    Object.assign(data, { most_reward: Math.max(1, largest(rewards)), least_reward: Math.min(-payload.below, lowest) });
    drawn.draw();
    Object.assign(scrub, { max: Math.max(1, last), disabled: last === 0, value: Math.max(1, place() + 1) });
    where.value = `step ${place() + 1}`;
    status.setAttribute("aria-live", isPlaying ? "off" : "polite"); // ten a second are too many to listen to
    if (last) say(status, sentence(run.records[place()]));
  }
  function sentence({ step, accuracy, reward: paid, sentences, different, pair_accuracy }) {
    const [first] = run.records;
    if (story) {
      const at = ghost.ghost_step?.indexOf(step) ?? -1, of = (name) => ghost[`ghost_${name}`][at];
      const before = at >= 0 ? ` The run before: ${format(of("reward"), ".2f")}, ${percent(of("sentences"))}.` : "";
      const pairs = pair_accuracy === undefined ? "" : ` Pairs in order: ${percent(pair_accuracy)}.`;
      return `Step ${step}: reward ${format(first.reward, ".2f")} → ${format(paid, ".2f")}. ${percent(sentences)} are still sentences, ${percent(different)} differ from each other.${before}${pairs}`;
    }
    const looked = run.records.slice(0, step).findLast((one) => one.held_out !== null)?.held_out ?? run.before;
    return `Step ${step}: ${percent(accuracy)} of its answers are right. Of those to prompts it never trains on: ${percent(looked)}, and ${percent(run.before)} at first.`;
  }
  function show() {
    draw();
    const record = run.records[place()];
    if (!record) return;
    if (!record.tokens) return say(which, " its tokens are gone ");
    view.at = performance.now();
    if ((isPlaying && !view.token) || view.n >= record.N) view.n = mostTelling(record);
    display.show(record, { n: view.n, chosen: view.token, settings, onToken: inspect });
    say(which, ` ${story ? "" : "prompt "}${view.n + 1} of ${record.N} `);
    terms.hidden = view.token === null;
    if (view.token === null) return;
    showToken(terms, record, view.token, view.others);
    if (story) html("button", { type: "button", textContent: "✕", onclick: () => { view.token = null; show(); } }, terms).setAttribute("aria-label", "Close");
    terms.scrollIntoView({ block: "nearest" });
  }
  function turnTo(by) {
    const record = run.records[place()];
    if (!record) return;
    Object.assign(view, { step: place() + 1, n: (view.n + by + record.N) % record.N, token: null });
    pause();
  }
  /** Tell of a token what its objective is made of, and what other algorithms would have pushed. */
  async function inspect(at) {
    const step = place() + 1, isNew = view.pushedStep !== step;
    Object.assign(view, { step, token: at, others: isNew ? [] : view.others });
    pause();
    if (!isNew) return;
    const pushes = [];
    for (const algorithm of payload.others.filter((name) => name !== settings.algorithm)) {
      const [one] = await ask({ do: "push", step, run: 0, algorithm });
      if (one.is === "pushed") pushes.push(one);
    }
    if (view.step !== step) return;
    Object.assign(view, { others: pushes, pushedStep: step });
    show();
  }

  addEventListener("hashchange", () => {
    if (!linked || !root.isConnected) return;
    const now = settingsOf(payload, wished(controls, location.hash));
    if (Object.keys(controls).some((name) => String(now[name]) !== String(settings[name]))) [settings] = [now], tell(), again();
  });
  tell();
  toggle.textContent = "▶ Train";
  single.disabled = isWaiting;
  if (!isWaiting) again();
  else draw(), say(status, waits), board.before(bar); // in a first screen that has other text, too
  return {
    get step() { return run.records.length; },
    get reward() { return run.records.at(-1)?.reward ?? null; },
    get sentences() { return run.records.at(-1)?.sentences ?? null; },
    get different() { return run.records.at(-1)?.different ?? null; },
    get accuracy() { return run.records.findLast((one) => one.held_out !== null)?.held_out ?? run.before; },
    get msPerStep() { return run.ms; },
    get settings() { return { ...settings }; },
    get records() { return run.records.map(numbersOf); },
    pause,
    /** What the worker answers to a message; where no run has begun, one begins that waits. */
    async talk(message) {
      if (!ask) await prepare();
      return ask(message);
    },
    /** The words and the grammar of the policy, once it is there. */
    get language() { return language; },
    /** Train anew with these settings until step `rests`, and wait until it rests; goesOn: from the weights of the run before. */
    async train(values, rests, goesOn = false) {
      [settings, restsAt] = [{ ...settings, ...values }, rests];
      tell();
      await again(false, goesOn);
    },
    /** Train no more, and give the worker back. */
    stop() {
      turn += 1;
      worker?.terminate();
    },
  };
}

/** A playground in a notebook; its settings are no part of the address. */
export const playgroundIn = (place, { given: payload, parts }) => playground(place, payload, async (part) => parts[part], { linked: false });
