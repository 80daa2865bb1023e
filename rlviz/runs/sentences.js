// A run on sentences, as one reads it: a group with rewards and pushes, the diary of one subject, the words that are rewarded, a guide.
import { dress, format, html, mount, say } from "./draw.js";
import { drawPush, groupOf, isPulled, makeBar, NARROW, pushesOf, rowsShown, strongest } from "./group.js";
import { wordsOf } from "./tasks.js";

const LINES = 7; // of the diary: the first, and the latest
const ROWS = { wide: 8, narrow: 5 };
const LONG = 56; // characters of a sentence, from which on it is written smaller
const ROW_MS = 1200; // sentences change no more often than this: nobody could read them
const PARTS = 3; // of the first step: it writes, it is paid, it is pushed

const markOf = (word, { liked, punished }) => (liked.includes(word) ? "is-liked" : punished.includes(word) ? "is-punished" : "");

/**
 * Put the two cards into `root`: a group, and what becomes of the language. offers: {settings() → those of the run, onWord(word, into): into
 * "liked", "punished" or "" it goes, onToken(at): its terms are asked for}.
 */
export function makeStory(root, { story, curves }, { settings, onWord, onToken }) {
  dress(root, SENTENCES_CSS, "sentences"); // sentences.css, which Python puts before
  const board = html("div", { className: "story" }, root);
  const card = (name, title) => {
    const home = html("section", { className: `play-box story-${name}` }, board), head = html("h2", {}, home);
    head.append(html("b", { textContent: title }), " ", html("span", { className: "story-note" }));
    return { home, title: head.firstChild, note: head.lastChild };
  };
  const group = card("group", story.title), diary = card("diary", "What becomes of it");
  const rows = Array.from({ length: ROWS.wide }, (_, i) => {
    const home = html("div", { className: "story-row" }, group.home), text = html("div", { className: "story-words" }, home);
    const words = Array.from({ length: story.longest }, (_, k) => html("button", { type: "button", hidden: true, tabIndex: i || k ? -1 : 0 }, text));
    const reward = html("span", { className: "story-reward", title: "reward" }, home);
    return { home, words, reward, turn: makeBar(home), places: [] };
  });
  const foot = html("p", { className: "play-foot" }, group.home);
  const list = html("ol", { className: "story-lines" }, diary.home), drawn = mount(html("div", {}, diary.home), { ...curves, bare: true });
  const below = html("select", { "aria-label": "curve below", title: "One more curve" }), { options } = curves.picture.controls.show;
  for (const [value, textContent] of Object.entries(options)) html("option", { value, textContent }, below);
  below.onchange = () => drawn.set("show", below.value);
  diary.note.append(below);

  // --- the keyboard's way: Tab leads to one word, the arrows to the others
  const entry = () => rows.flatMap(({ words }) => words).find((one) => one.tabIndex === 0);
  const visibleOf = ({ home, words }) => (home.hidden ? [] : words.filter((one) => !one.hidden));
  const enterAt = (next) => {
    entry().tabIndex = -1;
    next.tabIndex = 0;
  };
  /** A word that is no longer there hands its place on: the sentences change while it trains. */
  function keepEntry(focused) {
    const last = entry(), row = rows.find(({ words }) => words.includes(last)), next = visibleOf(row).at(-1) ?? visibleOf(rows[0]).at(-1);
    if (!next || visibleOf(row).includes(last)) return;
    enterAt(next);
    if (focused === last) next.focus();
  }

  // --- a word's menu: reward it, punish it, neither
  const menu = html("div", { className: "story-menu", role: "group", hidden: true }, board), about = html("p", {}, menu);
  let [chosen, opener] = [null, null];
  const close = (isBack = false) => {
    menu.hidden = true;
    if (isBack) (opener.checkVisibility() ? opener : entry()).focus();
  };
  const choose = (into) => () => (close(true), onWord(chosen.word, into));
  const buttons = Object.fromEntries([["liked", "+ reward it"], ["punished", "− punish it"], ["", "neither"]].map(([into, textContent]) => [into, html("button", { type: "button", textContent, onclick: choose(into) }, menu)]));
  const terms = html("button", { type: "button", textContent: "why this push?", onclick: () => (close(true), onToken(chosen.at)) }, menu);
  html("button", { type: "button", textContent: "✕", onclick: () => close(true) }, menu).setAttribute("aria-label", "Close");
  function open(button, { word, at, text }) {
    [chosen, opener] = [{ word, at }, button];
    const mark = markOf(word, settings()), isWord = word !== "$";
    say(about, text);
    for (const [into, one] of Object.entries(buttons)) {
      one.setAttribute("aria-pressed", String(mark === (into && `is-${into}`)));
      one.hidden = !isWord;
    }
    terms.hidden = at === undefined;
    menu.hidden = false;
    let [left, top] = [0, button.offsetHeight + 2];
    for (let one = button; one !== board; one = one.offsetParent) [left, top] = [left + one.offsetLeft, top + one.offsetTop];
    menu.style.left = `${Math.max(0, Math.min(left, board.clientWidth - menu.offsetWidth))}px`;
    menu.style.top = `${top}px`;
    (isWord ? buttons.liked : terms).focus();
  }
  board.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !menu.hidden) return close(true);
    const row = rows.findIndex(({ words }) => words.includes(event.target)), column = rows[row]?.words.indexOf(event.target);
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    if (row < 0 || !(down || right)) return undefined;
    event.preventDefault();
    const words = visibleOf(rows[row + down] ?? rows[row]), next = words[Math.min(words.length - 1, column + right)];
    if (!next) return undefined;
    enterAt(next);
    return next.focus();
  });
  addEventListener("pointerdown", (event) => { if (!menu.hidden && !menu.contains(event.target)) close(); });

  // --- a group
  function show(record, { n, chosen: at }) {
    const { prompt, rows: first, isDead, isUsed } = groupOf(record, n), most = strongest(record), room = matchMedia(NARROW).matches ? ROWS.narrow : ROWS.wide;
    const pairs = record.pairs ? Math.min(record.N, room >> 1) : 0; // a pair is two rows: there is room for more of them
    const all = pairs ? Array.from({ length: pairs }, (_, i) => groupOf(record, (n + i) % record.N).rows).flat() : first, visible = rowsShown(all, room), focused = document.activeElement;
    say(group.title, pairs ? story.pairsTitle : story.title);
    say(group.note, `step ${record.step}${pairs ? "" : `: ${prompt} …`}`);
    rows.forEach((row, i) => {
      const one = all[visible[i]];
      row.home.hidden = !one;
      if (!one) return;
      row.home.classList.toggle("is-long", one.texts.join("").length > LONG);
      row.words.forEach((button, t) => {
        const text = one.texts[t], place = one.places[t];
        button.hidden = text === undefined;
        if (button.hidden) return;
        say(button, text === "$" ? "■" : text);
        drawPush(button, record, place, most);
        button.classList.add(...[text === "$" ? "play-end" : markOf(text, settings())].filter(Boolean));
        button.setAttribute("aria-pressed", String(place === at));
        const label = text === "$" ? button.getAttribute("aria-label").replace("■", "end of the sentence") : button.getAttribute("aria-label");
        button.setAttribute("aria-label", label);
        // What is pressed is what stands there as the finger goes down: the sentences change while it trains.
        const opens = () => open(button, { word: text, at: record.pairs ? undefined : place, text: label });
        button.onpointerdown = (event) => (event.preventDefault(), event.stopPropagation(), opens());
        button.onclick = (event) => event.detail || opens(); // by the keyboard
      });
      say(row.reward, format(one.reward, ".2f"));
      row.turn(one.A);
    });
    keepEntry(focused);
    const more = all.length - visible.length, dead = record.isDead.reduce((sum, one) => sum + one, 0);
    const isLeashed = all.some(({ places }) => places.some((one) => isPulled(pushesOf(record, one).pull, most)));
    const state = isDead ? "All rewards of this group are equal: a dead group, no word is pushed." : isUsed ? "▔ pushed up, ▁ down; the bar: the advantage A." : "This group is left out of the step.";
    if (pairs) return say(foot, `Of each pair first the sentence that you chose, pushed up ▔; then the other, pushed down ▁. The number: ${record.algorithm}'s own reward. In order: the chosen one's is higher.`);
    say(foot, `${more > 0 ? `And ${more} more. ` : ""}${state}${isLeashed ? " ▴▾ pulled by the KL term." : ""} ■ ends a sentence. Dead groups: ${dead} of ${record.N}.`);
    return undefined;
  }

  // --- the diary
  const entries = [];
  let former = null; // what the run before wrote last
  /** Draw a line a look, those of the run beside in the same line. */
  function drawDiary() {
    const most = entries.at(-1).texts.length > 1 ? LINES >> 1 : LINES, room = most - (former ? 1 : 0), lines = entries.length > room ? [entries[0], ...entries.slice(1 - room)] : entries;
    const before = former ? [{ ...former, isBefore: true }] : [];
    list.replaceChildren(...[...lines, ...before].map(({ step, texts, isBefore }, i) => {
      const line = html("li", { className: isBefore ? "is-before" : i === lines.length - 1 ? "is-latest" : "" });
      html("span", { className: "story-step", textContent: step }, line);
      if (isBefore) line.title = "what the run before wrote";
      for (const { text, isWellFormed } of texts) {
        const words = html("span", { className: isWellFormed ? "" : "is-broken", title: isWellFormed ? "" : "no sentence any more" }, line);
        words.append(`${story.subject} `);
        for (const word of wordsOf(text)) words.append(html("span", { className: markOf(word, settings()), textContent: word }), " ");
      }
      return line;
    }));
    while (list.scrollHeight > list.clientHeight && list.children.length > 3) list.children[1].remove(); // the newest is always there
  }
  /** Add what the runs write now to the diary, at most once a step. */
  function note(written) {
    const step = written[0]?.step;
    if (step === undefined || entries.some((one) => one.step === step)) return;
    entries.push({ step, texts: written });
    drawDiary();
  }
  const lookBelow = (name) => { below.value = name; drawn.set("show", name); };
  /** Begin anew; hasBefore: the run so far stays as one line. */
  const clear = (hasBefore) => {
    former = hasBefore ? (entries.at(-1) ?? former) : null;
    entries.length = 0;
    list.replaceChildren();
    close();
  };

  return { board, drawn, show, note, clear, lookBelow, head: group.note.parentElement, pause: ROW_MS, stages: PARTS, typed: () => rows.filter(({ home }) => !home.hidden).map(({ words }) => words.filter((one) => !one.hidden)) };
}

/** Put the reward into `root`, in words that can be pressed; return put(settings). onChange(values): as a person changes it. */
export function makeReward(root, { controls, story }, onChange) {
  const home = html("div", { className: "play-controls story-chips", role: "group", "aria-label": "what you reward" }, root);
  let now = null;
  const without = (name, words) => ({ [name]: now[name].filter((one) => !words.includes(one)) });
  const put = (into, words) => onChange({ ...without("liked", words), ...without("punished", words), ...(into && { [into]: [...now[into].filter((one) => !words.includes(one)), ...words] }) });
  function chip(name, words, title) {
    const sign = name === "liked" ? "+" : "−";
    html("button", { type: "button", className: `story-chip is-${name}`, textContent: `${sign} ${title}`, title: `${words.join(", ")}: press to take it away`, onclick: () => onChange(without(name, words)) }, home);
  }
  function adder(name, words) {
    const select = html("select", { "aria-label": words }, home);
    html("option", { value: "", textContent: words }, select);
    const groups = html("optgroup", { label: "all of" }, select);
    for (const [title, members] of Object.entries(story.groups)) html("option", { value: members.join(" "), textContent: title }, groups);
    for (const [title, members] of Object.entries(story.groups)) {
      const one = html("optgroup", { label: title }, select);
      for (const word of members) html("option", { value: word, textContent: word }, one);
    }
    select.onchange = () => put(name, select.value.split(" "));
  }
  function redraw() {
    const focus = [...home.children].indexOf(document.activeElement);
    home.replaceChildren(html("span", { className: "play-label", textContent: "You reward:" }));
    for (const name of ["liked", "punished"]) {
      let remaining = now[name];
      for (const [title, members] of Object.entries(story.groups)) {
        if (!members.every((one) => remaining.includes(one))) continue;
        remaining = remaining.filter((one) => !members.includes(one));
        chip(name, members, `${title}: ${members.slice(0, 3).join(", ")}${members.length > 3 ? " …" : ""}`);
      }
      for (const word of remaining) chip(name, [word], word);
    }
    adder("liked", "+ word");
    adder("punished", "− word");
    for (const name of ["only_sentences", "short"]) {
      const label = html("label", { className: "story-switch", title: controls[name].about }, home);
      html("input", { type: "checkbox", checked: now[name], onchange: (event) => onChange({ [name]: event.target.checked }) }, label);
      label.append(controls[name].label);
    }
    if (focus >= 0) (home.children[Math.min(focus, home.children.length - 1)] ?? home).focus?.();
  }
  return { home, put: (settings) => { now = settings; redraw(); }, move: put };
}

/** Put a walk of a few sentences into `root`, each of which points at a part of the page. find(of): that part; act(what): what a step does, or the settings that it has. */
export function makeGuide(root, steps, { find, act }) {
  const home = html("section", { className: "story-guide", "aria-label": "a walk of three minutes" }, root), words = html("p", { role: "status" }, home);
  const button = (textContent, onclick) => html("button", { type: "button", textContent, onclick }, home);
  let at = 0;
  const doIt = button("Do it", () => act(steps[at].values)), back = button("‹ Back", () => go(at - 1)), next = button("Next ›", () => go(at + 1));
  button("✕", () => { mark(null); home.hidden = true; }).setAttribute("aria-label", "Close the walk");
  function mark(part) {
    for (const one of document.querySelectorAll(".is-spoken-of")) one.classList.remove("is-spoken-of");
    part?.classList.add("is-spoken-of");
  }
  function go(to, isFirst = false) {
    if (to === steps.length) to = 0;
    at = to;
    const { title, text, of, does } = steps[at], part = find(of);
    words.replaceChildren(html("b", { textContent: `${at + 1} of ${steps.length} · ${title}. ` }), text);
    back.disabled = at === 0;
    doIt.hidden = !steps[at].values;
    say(next, at === steps.length - 1 ? "From the start" : "Next ›");
    if (isFirst) return; // a visitor who has just come is moved nowhere
    home.classList.add("is-walking");
    mark(part);
    part?.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    if (does) act(does);
  }
  go(0, true);
  return home;
}
