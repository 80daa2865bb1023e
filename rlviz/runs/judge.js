// You are the judge: of two sentences one presses the better one, a model of this taste is fitted, the policy trains on it, and a blind
// test shows whether one really likes the result.
import { dress, format, html, say } from "./draw.js";
import { NARROW, percent } from "./group.js";
import { playground } from "./playground.js";
import { sentencesTask, wordsOf } from "./tasks.js";
import { agreement, fitTaste, readPreferences, shuffled, signTest, wilson, writePreferences } from "./taste.js";

const PAIRS_DRAWN = 64; // at once, two sentences to each of so many subjects
const BEST_OF = [1, 4, 16, 64, 256];
const POOL = 128; // sentences that the worker writes at once
const MOST_SHOWN = 8; // features of the taste
const CLEAR = 0.35; // of the largest weight: words that are marked in the sentences as liked, or not
const RARE = 0.05; // a result of the blind test that chance gives less often is none of chance's
const STORED = "rlviz: pairs of the judge", MOST_STORED = 1000; // answers that survive a reload
const OVERLINE = 2; // deviations to each side of a weight

const scoreOf = (taste, task, text) => Object.entries(task.features(text)).reduce((sum, [name, value]) => sum + (taste.weights[name] ?? 0) * value, 0);

/** Put the tab into `root`. payload, load, options: those of `playground`, and payload.judge: texts and numbers of judge.py. Returns what `rlviz.run` is. */
export function judging(root, payload, load, options) {
  const { judge, story } = payload, preferences = [], files = [], rounds = []; // files: the pairs of others
  let task = null, supply = [], pair = null, fit = null, taste = null, pool = [], blind = null, draw = 0, isNow = false, isBusy = false, goal = judge.first;
  let isFurther = false; // the pairs asked for last are from the policy as it is: training goes on from it
  dress(root, JUDGE_CSS, "judge"); // judge.css, which Python puts before
  root.classList.add("play", "judge");
  const status = html("p", { className: "play-said", role: "status", textContent: judge.question }, root), board = html("div", { className: "judge-cards" }, root);
  const card = (title) => {
    const home = html("section", { className: "play-box" }, board), head = html("h2", {}, home);
    head.append(html("b", { textContent: title }), html("span", { className: "story-note" }));
    return { home, title: head.firstChild, note: head.lastChild };
  };
  const choice = card("Which do you like better?"), belief = card("What it believes you like");
  const subject = html("p", { className: "judge-subject" }, choice.home);
  const sides = [0, 1].map((i) => {
    const button = html("button", { type: "button", className: "judge-side", onclick: () => choose(i) }, choice.home);
    html("kbd", { textContent: i + 1 }, button);
    return { button, text: html("span", {}, button) };
  });
  const more = html("div", { className: "play-buttons" }, choice.home);
  const everyone = () => [...files.flat(), ...preferences];
  const button = (textContent, title, onclick, home = more) => html("button", { type: "button", textContent, title, onclick }, home);
  const equal = button("equal (0)", "Neither is better", () => choose(null)), undo = button("undo (u)", "Take the last answer back", back);
  button("clear", "Forget all answers, and those of files", clear);
  const list = html("ul", { className: "judge-weights" }, belief.home), favourites = html("ol", { className: "judge-best" }, belief.home);
  const actions = html("div", { className: "play-buttons" }, root);
  const learn = button("▶ Train on it", "", () => train({ goesOn: isFurther }), actions);
  const method = html("select", { "aria-label": "how it trains", onchange: () => drawChanges() }, actions), methodNow = () => judge.methods[method.value];
  for (const [value, { title }] of judge.methods.entries()) html("option", { value, textContent: title }, method);
  const test = button("Blind test", "Eight pairs, before and after, without saying which", () => beginTest(), actions);
  const ask = button("Ten more pairs", "From the policy as it is now", () => askMore(), actions);
  button("Save pairs", "As a file that rlviz train --pairs reads", () => save(), actions);
  const file = html("input", { type: "file", accept: ".jsonl,.json,application/json", multiple: true, hidden: true, onchange: () => open([...file.files]) }, actions);
  button("Load pairs", "Files of judged pairs, such as those of a class", () => file.click(), actions);
  const reveal = html("ol", { className: "judge-reveal" }, choice.home), table = html("table", { className: "judge-rounds", hidden: true }, choice.home);
  const changes = html("p", { className: "judge-changes", hidden: true }, choice.home);
  function drawChanges() {
    changes.replaceChildren(html("b", { textContent: "Again from the first model, with: " }));
    for (const { title, values } of methodNow().changes) html("a", { href: "#", textContent: title, onclick: (event) => (event.preventDefault(), train(values)) }, changes);
  }
  drawChanges();
  const home = html("div", { hidden: true }, root);
  const run = playground(home, payload, load, { ...options, linked: false, waits: judge.waits });

  // --- pairs

  async function write(prompts, isStart, number) {
    const [written] = await run.talk({ do: "write", prompts, isStart, draw: number });
    if (written.is !== "written") throw new Error(written.why);
    return written.texts;
  }
  /** Let the policy write pairs: two sentences to each of some subjects; now: as it is now, rather than as it began. */
  async function refill(now) {
    const prompts = shuffled(run.language.prompts).slice(0, PAIRS_DRAWN), texts = await write(prompts.flatMap((one) => [one, one]), !now, ++draw);
    supply = prompts.map((prompt, i) => ({ prompt, texts: [texts[2 * i], texts[2 * i + 1]] })).filter(({ texts: [a, b] }) => a.trim() !== b.trim() && wordsOf(`${a} ${b}`).every((word) => task.words.includes(word)));
  }
  function show({ prompt, texts }) {
    say(subject, `${prompt} …`);
    sides.forEach(({ text }, i) => say(text, texts[i].trim() || "(nothing)"));
  }
  async function next() {
    if (blind) return showTest();
    if (!supply.length) await refill(isNow);
    // It asks about what it knows least: of the pairs at hand, that with the largest variance of the difference.
    const doubts = supply.map(({ texts: [a, b] }) => fit.doubt(a, b)), at = doubts.indexOf(Math.max(...doubts));
    [pair] = supply.splice(at, 1);
    show(pair);
    return tell();
  }
  function choose(i) {
    if (isBusy || !(pair || blind)) return;
    if (blind) {
      answerTest(i);
      return;
    }
    const { prompt, texts } = pair, [chosen, rejected] = i === 1 ? [texts[1], texts[0]] : texts;
    preferences.push({ prompt, chosen, rejected, equal: i === null });
    refit();
    next();
  }
  /** Take the last answer back. */
  function back() {
    if (blind) {
      blind.answers.pop();
      return showTest();
    }
    const last = preferences.pop();
    if (!last) return undefined;
    if (pair) supply.push(pair);
    pair = { prompt: last.prompt, texts: [last.chosen, last.rejected] };
    show(pair);
    refit();
    return tell();
  }
  function tell() {
    const count = everyone().length, missing = Math.max(0, goal - count);
    say(choice.note, blind ? `${blind.answers.length + 1} of ${blind.pairs.length}` : `${count} pair${count === 1 ? "" : "s"}${missing ? `, ${missing} to go` : ""}`);
    say(choice.title, blind ? "Blind: which do you like better?" : "Which do you like better?");
    learn.disabled = isBusy || count < judge.first || Boolean(blind);
    test.disabled = ask.disabled = isBusy || !rounds.length || Boolean(blind);
    say(learn, isFurther ? "▶ Train it further" : "▶ Train on it");
    learn.title = isFurther ? "On from the policy as it is now; the KL stays the one to the first model" : "From the first model";
    undo.disabled = blind ? !blind.answers.length : !preferences.length;
    if (!blind && !rounds.length) say(status, missing ? judge.question : judge.ready);
  }

  // --- what it believes

  function refit(used = everyone()) {
    fit = fitTaste(used, task, { withGroups: true });
    store();
    taste = used.length >= judge.first ? fit : null;
    list.replaceChildren();
    favourites.replaceChildren();
    if (!taste) return say(belief.note, `after ${judge.first} pairs`);
    say(belief.note, `from ${used.length} pairs`);
    const strength = (name) => Math.abs(taste.weights[name]), names = Object.keys(taste.weights).sort((a, b) => strength(b) - strength(a)).slice(0, MOST_SHOWN);
    const most = 1.06 * Math.max(1e-9, ...names.map((name) => strength(name) + OVERLINE * taste.deviations[name]));
    for (const name of names) {
      const [weight, deviation] = [taste.weights[name], taste.deviations[name]], item = html("li", { title: `${format(weight, "+.2f")} ± ${format(deviation, ".2f")}` }, list);
      html("span", { textContent: name === "length" ? "(length)" : name }, item);
      const scale = html("span", { className: "judge-scale" }, item), bar = html("i", { className: weight < 0 ? "play-down" : "play-up" }, scale), whisker = html("u", {}, scale);
      const place = (value) => `${50 + (50 * value) / most}%`;
      Object.assign(bar.style, { left: place(Math.min(0, weight)), width: `${(50 * Math.abs(weight)) / most}%` });
      Object.assign(whisker.style, { left: place(weight - OVERLINE * deviation), width: `${(50 * 2 * OVERLINE * deviation) / most}%` });
    }
    html("li", { className: "play-foot", textContent: `Its favourite of the first 1, 4, … 256 sentences about ${story.subject}, before training:` }, favourites);
    for (const n of BEST_OF.filter((one) => one <= pool.length)) {
      const among = pool.slice(0, n), best = among.reduce((a, b) => (scoreOf(taste, task, b) > scoreOf(taste, task, a) ? b : a));
      const item = html("li", {}, favourites);
      html("span", { className: "story-step", textContent: n }, item);
      html("span", { textContent: best.trim() }, item);
    }
    const isUncertain = names.every((name) => strength(name) < OVERLINE * taste.deviations[name]);
    html("li", { className: "play-foot", textContent: `Blue: you like it; orange: you do not; line: ± 2 standard deviations. ${isUncertain ? judge.uncertain : ""}` }, list);
    return undefined;
  }

  // --- training on it

  /** Return the pairs that a loss on pairs can learn from: one is better, both end within a response, and the subject is the task's. */
  function decided(preferences) {
    const ends = (text) => wordsOf(text).length < task.longest, plain = (text) => wordsOf(text).map((word) => ` ${word}`).join("");
    const usable = preferences.filter(({ prompt, chosen, rejected, equal }) => !equal && ends(chosen) && ends(rejected) && run.language.prompts.includes(prompt));
    return usable.map(({ prompt, chosen, rejected }) => ({ prompt, chosen: plain(chosen), rejected: plain(rejected) }));
  }
  /** Train as the method chosen does; changed: of its values {steps, beta, pairs: how many of them, gate: whether sentences are asked for, onPairs: by which loss}. */
  async function train({ goesOn = false, ...changed }) {
    const { values, says } = methodNow(), { steps, beta, pairs = Infinity, gate = true, onPairs } = { ...values, ...changed };
    if (isBusy || everyone().length < judge.first) return;
    const used = everyone().slice(0, pairs), preferences = onPairs ? decided(used) : used, left = used.length - preferences.length;
    const leftOut = left ? judge.leftOut.replace("{left}", left) : "";
    if (!preferences.length) return void say(status, leftOut);
    refit(used);
    const { weights } = taste, groupOf = (word) => Object.keys(task.groups).find((name) => task.groups[name].includes(word));
    const worth = Object.fromEntries(task.words.map((word) => [word, weights[word] + (weights[groupOf(word)] ?? 0)]));
    const largest = Math.max(...Object.values(worth).map(Math.abs)), words = (sign) => task.words.filter((word) => sign * worth[word] > CLEAR * largest);
    // A reward of 0 is the mean of what the first policy writes, 1 its favourite of all; what is no sentence loses some spreads.
    const rewards = pool.map((text) => scoreOf(taste, task, text)), mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
    const spread = Math.sqrt(rewards.reduce((sum, one) => sum + (one - mean) ** 2, 0) / rewards.length), unit = Math.max(...rewards) - mean || 1;
    const price = gate ? judge.gate * spread : 0, scaled = Object.fromEntries(Object.entries(weights).map(([name, weight]) => [name, weight / unit]));
    const reward = { ...scaled, sentence: price / unit, base: -(mean + price) / unit };
    isBusy = true;
    home.hidden = false;
    reveal.replaceChildren();
    tell();
    const numbers = { steps, beta, count: preferences.length };
    say(status, `${says.replace(/\{(\w+)\}/g, (_, name) => numbers[name])} ${leftOut}`);
    setTimeout(() => home.scrollIntoView({ block: matchMedia(NARROW).matches ? "start" : "nearest" }), 100); // once it has its height
    const source = onPairs ? { pairs: { algorithm: onPairs, preferences, parameters: { beta } }, group_size: 2 } : { pairs: null, group_size: payload.controls.group_size.value };
    await run.train({ taste: reward, liked: words(1), punished: words(-1), only_sentences: false, beta, ...source }, steps, goesOn);
    isBusy = isFurther = false;
    const [first] = run.records;
    rounds.push({ by: onPairs ?? run.settings.algorithm, goesOn, pairs: preferences.length, steps: run.step, beta, from: first?.reward ?? NaN, to: run.reward, sentences: run.sentences, gate, test: "" });
    isNow = true;
    supply = [];
    changes.hidden = false;
    drawRounds();
    say(status, judge.trained);
    tell();
  }
  function drawRounds() {
    table.hidden = !rounds.length;
    table.replaceChildren();
    const row = (cells, name) => cells.forEach((textContent) => html(name, { textContent }, table.lastChild));
    html("tr", {}, table);
    row(["round", "you preferred the trained one", "still sentences", "its reward", "by", "pairs", "steps", "β", "sentences asked for"], "th");
    rounds.forEach((one, i) => {
      html("tr", {}, table);
      row([i + 1 + (one.goesOn ? `, on from ${i}` : ""), one.test, percent(one.sentences), `${format(one.from, ".2f")} → ${format(one.to, ".2f")}`, one.by, one.pairs, one.steps, one.beta, one.gate ? "yes" : "no"], "td");
    });
  }
  function askMore() {
    [goal, supply, isNow, isFurther] = [everyone().length + judge.more, [], true, true];
    reveal.replaceChildren();
    root.scrollIntoView({ block: "start" });
    say(status, judge.again);
    next();
  }

  // --- the blind test

  async function beginTest() {
    isBusy = true;
    const prompts = shuffled(run.language.prompts).slice(0, judge.test), [before, after] = [await write(prompts, true, ++draw), await write(prompts, false, ++draw)];
    const pairs = prompts.map((prompt, i) => ({ prompt, sides: shuffled([{ text: before[i] }, { text: after[i], isTrained: true }]) }));
    [blind, isBusy] = [{ pairs, answers: [] }, false];
    reveal.replaceChildren();
    root.scrollIntoView({ block: "start" });
    say(status, judge.blind);
    showTest();
  }
  function showTest() {
    const { prompt, sides: both } = blind.pairs[blind.answers.length];
    show({ prompt, texts: both.map(({ text }) => text) });
    tell();
  }
  function answerTest(i) {
    const { sides: both } = blind.pairs[blind.answers.length];
    blind.answers.push(i === null ? null : Boolean(both[i].isTrained));
    if (blind.answers.length < blind.pairs.length) return showTest();
    const decided = blind.answers.filter((one) => one !== null), wins = decided.filter(Boolean).length;
    const [low, high] = decided.length ? wilson(wins, decided.length) : [0, 1];
    const equals = blind.answers.length - decided.length, words = `${wins} of ${decided.length}${equals ? `, ${equals} equal` : ""}`;
    const verdict = signTest(wins, decided.length) > RARE ? "which may be chance" : `${2 * wins > decided.length ? "more" : "less"} often than chance`;
    Object.assign(rounds.at(-1), { test: `${words} (${percent(low)} to ${percent(high)})` });
    for (const [n, { prompt, sides: ends }] of blind.pairs.entries()) {
      const trained = ends.find(({ isTrained }) => isTrained), before = ends.find(({ isTrained }) => !isTrained), answer = blind.answers[n];
      html("li", { textContent: `${answer === null ? "=" : answer ? "✓" : "✗"} ${prompt}${trained.text} (before: ${before.text.trim() || "nothing"})` }, reveal);
    }
    blind = null;
    drawRounds();
    say(status, `You preferred the trained policy in ${words}: ${verdict} (95 % interval ${percent(low)} to ${percent(high)}).`);
    return next();
  }

  // --- files, and what survives a reload

  const stored = (act) => {
    try {
      return act(sessionStorage);
    } catch {
      return null; // a page without a store, such as a frame's, or what is in it cannot be read
    }
  };
  const store = () => stored((home) => home.setItem(STORED, writePreferences(preferences.slice(-MOST_STORED))));
  function clear() {
    if (!task || isBusy) return;
    [preferences.length, files.length, goal] = [0, 0, judge.first];
    refit();
    tell();
  }
  function save() {
    const link = html("a", { href: URL.createObjectURL(new Blob([writePreferences(everyone())], { type: "application/jsonl" })), download: "pairs.jsonl" });
    link.click();
  }
  /** Take the pairs of files, each of one judge; one that cannot be read is named, and none of its pairs are taken. */
  async function open(chosen) {
    const words = [];
    for (const one of chosen) {
      try {
        files.push(readPreferences(await one.text(), task));
        words.push(`${one.name}: ${files.at(-1).length} pairs.`);
      } catch (error) {
        words.push(`${one.name} cannot be read: ${error.message}.`);
      }
    }
    const { compared, share } = agreement([...files, preferences]);
    if (compared) words.push(`${compared} times two judged the same pair, and said the same in ${percent(share)}.`);
    file.value = "";
    refit();
    tell();
    say(status, words.join(" "));
  }

  const keyed = (event) => {
    if (!root.isConnected) return removeEventListener("keydown", keyed);
    const { top, bottom, height } = choice.home.getBoundingClientRect();
    if (!height || bottom < 0 || top > innerHeight) return undefined; // what nobody sees is not judged
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return undefined;
    const act = { 1: () => choose(0), 2: () => choose(1), 0: () => choose(null), "=": () => choose(null), u: back }[event.key];
    return act && (event.preventDefault(), act());
  };
  addEventListener("keydown", keyed);
  (async () => {
    try {
      const prompts = Array(POOL).fill(story.subject), first = await write(prompts, true, ++draw);
      task = sentencesTask(run.language);
      pool = [...first, ...(await write(prompts, true, ++draw))];
      preferences.push(...(stored((home) => readPreferences(home.getItem(STORED) ?? "", task)) ?? []));
      refit();
      await next();
    } catch (error) {
      say(status, `It cannot train here: ${error.message}`);
    }
  })();
  tell();
  const ours = {
    get preferences() { return everyone().map((one) => ({ ...one })); },
    get rounds() { return rounds.map((one) => ({ ...one })); },
  };
  return Object.create(run, Object.getOwnPropertyDescriptors(ours));
}
