// A run, one of its steps, one token: curves, groups, the token's numbers, and the token under other algorithms.
// Python has written every number and every sentence; texts of a run become text nodes, never markup.
import { dress, mount } from "./draw.js";

const FIRST = 60, SLACK = 12;  // tokens of a response that stand before the fold; so few more do not fold
const NEAR = 8;  // tokens beside a chosen one in the fold that stand with it
const FAMILY_NOTE = "Each by its own loss, as if all groups of the rollout were like this one. Bold differs from this run. *: the record lacks something; a click on a name tells what, and which slots change the push.";

/** An element: children that are strings become text. */
function node(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined && value !== null) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((child) => child !== null && child !== undefined));
  return e;
}

const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
/** Give the focus to what has this key, if there is one. */
const focusOn = (place, key) => key && [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
/** A column holds one value, one a response ({r}), or one a token. */
const pick = (column, response, token) =>
  Array.isArray(column) ? column[token] : column !== null && typeof column === "object" ? column.r[response] : column;
/** A text as nodes, the control tokens in it dim. */
function withControl(text, control) {
  if (!control.length) return [text];
  const escaped = control.map((token) => token.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp(`(${escaped.join("|")})`)).map((part, place) => (place % 2 ? node("span", { class: "ri-dim" }, part) : part));
}
/** A template with a token's numbers; behind "!" a negative one stands in brackets. */
const fillIn = (template, number) =>
  template.replace(/\{(\w+)(!?)\}/g, (_, key, sign) => (sign && number(key).startsWith("−") ? `(${number(key)})` : number(key)));

/** Show an inspector in `el`. ask(place): the reader wants to see [step, group, response, token], the last three from 0. */
export function inspector(el, ask) {
  const state = { picture: null, run: null, data: null, place: null };
  const open = new Set(["objective"]);  // terms, rows and folds that the reader has opened, whichever token is shown
  const curves = node("div", { class: "ri-curves" }), bar = node("div", { class: "ri-bar" }), groups = node("div", { class: "ri-groups" });
  const caption = node("p", { class: "ri-said", role: "status", "aria-live": "polite" });
  const differs = node("div"), responses = node("div"), token = node("div");
  const head = node("div", { class: "ri-head" }, bar, differs);
  const left = node("div", { class: "ri-col ri-left" }, groups, responses);
  const right = node("div", { class: "ri-col ri-right", role: "region", "aria-label": "The chosen token", tabindex: 0 }, token);
  const root = node("div", { class: "rlviz-picture ri mathjax_ignore tex2jax_ignore" }, node("div", { class: "ri-main" }, curves, head, left, right));
  el.append(root);
  dress(root, DRAW_CSS, "draw");
  dress(root, INSPECTOR_CSS, "inspector");
  let clock = null;
  /** Return where one stops: at the steps with tokens, of a run without any at each. */
  const stops = () => (state.run.tokens.length ? state.run.tokens : state.run.at);
  /** Go on from stop to stop, at the end from the first one again, or stay. */
  function play(isOn) {
    clearInterval(clock);
    const after = () => stops().find((s) => s > state.place[0]);
    const turn = () => {
      const next = root.isConnected ? after() : undefined;
      next === undefined ? play(false) : move({ step: next });
    };
    clock = isOn ? setInterval(turn, Math.max(250, Math.min(1500, 30000 / stops().length))) : null;
    if (isOn) move({ step: after() ?? stops()[0] });
    drawBar();
  }
  /** Go where the reader wants to, and stop playing. */
  function go(change) {
    if (clock) play(false);
    move(change);
  }
  /** Go to a place, of which what is not named stays. */
  function move(change) {
    const [step, group, response, token] = state.place;
    const wanted = { step, group, response, token, ...change };
    wanted.step = state.run.at.reduce((best, s) => (Math.abs(s - wanted.step) < Math.abs(best - wanted.step) ? s : best), state.run.at[0]);
    const place = [wanted.step, wanted.group, wanted.response, wanted.token];
    if (wanted.step === step) { state.place = fit(place); draw(change.group !== undefined && change.group !== group); }
    if (wanted.step !== step || String(state.place) !== String([step, group, response, token])) ask(wanted.step === step ? state.place : place);
  }
  const steps = () => state.data.runs.filter(Boolean);
  const at = (list, index) => list[clamp(index, list.length)];
  function fit([step, group, response, token]) {
    const count = (f) => Math.max(1, ...steps().map(f));
    group = clamp(group, count((s) => s.groups.length));
    response = clamp(response, count((s) => at(s.groups, group)?.responses.length ?? 0));
    return [step, group, response, clamp(token, count((s) => at(at(s.groups, group)?.responses ?? [], response)?.tokens.length ?? 0))];
  }

  let drawn = null;
  function drawPicture() {
    if (state.picture !== drawn?.picture) drawn = { picture: state.picture, ...mount(curves, state.picture, { moved: go }) };
    if (state.place) drawn.choose({ step: state.place[0] });
  }

  function drawBar() {
    const { at, tokens, steps } = state.run, step = state.place[0], kind = tokens.length ? "step with tokens" : "step";
    const to = (list) => list.length === 0 ? { disabled: true } : { onclick: () => go({ step: list[0] }) };
    const before = stops().filter((s) => s < step).reverse(), after = stops().filter((s) => s > step);
    const slider = node("input", { type: "range", min: at[0] ?? 1, max: at.at(-1) ?? 1, "aria-label": "step", "aria-valuetext": `step ${step} of ${steps}`, disabled: at.length < 2, oninput: (e) => go({ step: +e.target.value }) });
    slider.value = step;
    caption.setAttribute("aria-live", clock ? "off" : "polite"); // one a second is too much to listen to
    swap(bar, [
      node("button", { "data-key": "play", disabled: stops().length < 2, onclick: () => play(!clock) }, clock ? "❚❚ Pause" : "▶ Play"),
      node("button", { "data-key": "previous", title: `Previous ${kind}`, "aria-label": `Previous ${kind}`, ...to(before) }, "◀"),
      slider,
      node("button", { "data-key": "next", title: `Next ${kind}`, "aria-label": `Next ${kind}`, ...to(after) }, "▶"),
      state.run.live ? node("button", { "data-key": "refresh", title: "Read the run again", onclick: () => ask(null) }, "Refresh") : null,
      caption,
    ].filter(Boolean), slider);
  }

  /** Put other children into a place; the focus stays on what has the same key. */
  function swap(place, children, slider) {
    const held = place.contains(document.activeElement) ? document.activeElement : null;
    const old = place.querySelector("input[type=range]");
    if (slider && old && held === old) {  // while it is held it must stay the one that it is
      for (const name of ["min", "max", "aria-valuetext"]) old.setAttribute(name, slider.getAttribute(name));
      old.value = slider.value;
      children = children.map((child) => (child === slider ? old : child));
      const others = [...place.children].filter((child) => child !== old);
      for (const child of others) child.remove();
      const where = children.indexOf(old);
      old.before(...children.slice(0, where));
      old.after(...children.slice(where + 1));
      return;
    }
    place.replaceChildren(...children);
    focusOn(place, held?.dataset.key);
  }

  function drawGroups() {
    const count = Math.max(0, ...steps().map((s) => s.groups.length)), [, chosen] = state.place;
    swap(groups, Array.from({ length: count }, (_, g) => {
      const shared = steps().map((s) => at(s.groups, g)), prompts = [...new Set(shared.map((group) => group.prompt))].join(" | ");
      const marks = shared.map((group) => group.marks ?? group.responses.map((r) => (r.graded === "right" ? "●" : "○")).join("")).join(" ");
      const button = node("button", { "data-key": `group ${g}`, "aria-pressed": String(g === chosen), onclick: () => go({ group: g }) },
        node("span", {}, `${g + 1}: ${prompts.length > 40 ? prompts.slice(0, 39) + "…" : prompts} `), node("span", { "aria-hidden": "true", class: "ri-dim" }, marks));
      button.setAttribute("aria-label", `group ${g + 1}: ${prompts}; ${shared.map((group) => group.words).join("; ")}`);
      if (!shared.some((group) => group.numbers)) button.style.opacity = 0.7;
      return button;
    }));
  }

  /** Scroll the column of the responses, and nothing else, so that a token that was chosen is in sight. */
  let sought = "";
  function bringChosen() {
    const chosen = responses.querySelector(".tok[aria-pressed=true]"), wanted = String(state.place);
    if (!chosen || sought === wanted) return;
    sought = wanted;
    const box = chosen.getBoundingClientRect(), view = left.getBoundingClientRect();
    if (box.top < view.top || box.bottom > view.bottom) left.scrollTop += box.top - view.top - left.clientHeight / 3;
  }
  let table = { rows: [] };  // what the responses were last drawn from, and their rows [run][response]
  function drawResponses() {
    const [, g, chosen] = state.place, { data, run: { names } } = state;
    const key = responses.contains(document.activeElement) ? document.activeElement.dataset.key ?? "" : null;
    if (table.data === data && table.g === g && table.names === names) {  // only the choice is another: two rows change
      for (const [run, rows] of table.rows.entries()) {
        const group = at(data.runs[run]?.groups ?? [], g), ends = [table.chosen, chosen].map((r) => clamp(r, rows.length));
        for (const r of new Set(rows.length ? ends : [])) {
          const row = responseRow(group, r);
          rows[r].replaceWith(row);
          rows[r] = row;
        }
      }
    } else {
      table = { data, g, names, rows: [] };
      responses.replaceChildren(...data.runs.map((step, run) => {
        table.rows[run] = [];
        const name = names[run];
        if (!step) return node("p", {}, `${name} has no step ${state.place[0]}.`);
        const group = at(step.groups, g);
        if (!group) return node("p", { class: "ri-said" }, state.run.note[run]);
        const head = node("p", { class: "ri-said" }, node("b", {}, data.runs.length > 1 ? `${name}: ` : ""),
          `${group.prompt}${group.gold ? ` (right answer ${group.gold})` : ""}: ${group.words}. `, group.numbers ? "" : state.run.note[run]);
        const reads = group.reads ? node("details", { open: open.has("reads"), ontoggle: (e) => (e.target.open ? open.add("reads") : open.delete("reads")) },
          node("summary", { "data-key": "reads" }, "What the model reads"), node("code", { class: "ri-reads" }, ...withControl(group.reads, group.control))) : "";
        table.rows[run] = group.responses.map((_, r) => responseRow(group, r));
        const heading = ["", "response", "graded", "reward", "A", "tokens"].map((word) => node("th", { scope: "col" }, word));
        return node("div", {}, head, reads, node("table", { class: step.has_words ? "ri-words" : false, onkeydown: keys }, node("thead", {}, node("tr", {}, ...heading)), node("tbody", {}, ...table.rows[run])));
      }), steps().some((s) => at(s.groups, g)?.numbers)
        ? node("p", { class: "ri-said ri-dim" }, (steps().some((s) => at(s.groups, g)?.marks) ? "● reward above the group's mean, ○ not." : "● right, ○ wrong.") + " Blue below a line: pushed up; vermilion above a line: pushed down; darker and thicker: harder, on one scale for the step. ✂: clipped after the updates. Purple: A pushes no more, only the KL term does. Arrow keys move between tokens.") : "");
    }
    table.chosen = chosen;
    if (key) focusOn(responses, key);
    else if (key !== null) responses.querySelector("button[aria-pressed=true]")?.focus({ preventScroll: true });
  }
  function responseRow(group, r) {
    const [, g, chosen, t] = state.place, response = group.responses[r], { tokens, text } = response;
    const here = r === clamp(chosen, group.responses.length), marked = clamp(t, tokens.length);
    const cells = [node("span", {}, ...(tokens.length ? tokenButtons() : textAlone())), response.graded, response.reward, response.advantage, response.length];
    return node("tr", { class: here ? "here" : false, onclick: (e) => e.target.closest("button") || go({ response: r }) },
      node("th", { scope: "row" }, `${here ? "▸ " : ""}${r + 1}`), ...cells.map((cell) => node("td", {}, cell)));

    function tokenButtons() {
      const key = `fold ${g} ${r}`, clipped = new Set(response.clipped), isLong = tokens.length > FIRST + SLACK, isOpen = !isLong || open.has(key);
      const inSight = (place) => isOpen || place < FIRST || (here && Math.abs(place - marked) <= NEAR);
      const nodes = [];
      let hidden = 0, hiddenClips = 0;
      for (const [place, token] of tokens.entries()) {
        if (!inSight(place)) {
          if (inSight(place - 1)) nodes.push(" … ");
          hidden += 1;
          hiddenClips += clipped.has(place);
          continue;
        }
        // A word's space stands before its button, so that words in a row read, and are copied, as a sentence.
        nodes.push(token.startsWith(" ") ? " " : "", tokenButton(token.trim(), response, r, place, here && place === marked, clipped.has(place), group.control.includes(token)));
      }
      const words = isOpen ? "fewer" : `${hidden} more tokens${hiddenClips ? `, ${hiddenClips} of them clipped` : ""}`;
      return isLong ? [...nodes, " ", foldButton(key, isOpen, words)] : nodes;
    }
    function textAlone() {
      const most = 6 * FIRST, key = `fold ${g} ${r}`, isLong = text.length > most + 6 * SLACK, isOpen = !isLong || open.has(key);
      const code = node("code", {}, ...withControl(isOpen ? text : `${text.slice(0, most)} … `, group.control));
      return isLong ? [code, " ", foldButton(key, isOpen, isOpen ? "fewer" : `${text.length - most} more characters`)] : [code];
    }
    function foldButton(key, isOpen, words) {
      const turn = () => { isOpen ? open.delete(key) : open.add(key); table.data = null; drawResponses(); };
      return node("button", { "data-key": key, class: "ri-fold", "aria-expanded": String(isOpen), "aria-label": `response ${r + 1}: ${words}`, onclick: turn }, words);
    }
  }
  function tokenButton(text, response, r, place, chosen, cut, isControl) {
    const isEnd = text === "■", push = response.push[place];
    const way = push > 0 ? "up" : push < 0 ? "down" : "none", isOfKL = push && (cut || response.advantage === "0.00");
    const button = node("button", {
      class: `tok ${way}${isOfKL ? " kl" : ""}${isEnd ? " end" : ""}${isControl ? " control" : ""}`, tabindex: chosen ? 0 : -1, "aria-pressed": String(chosen), onclick: () => go({ response: r, token: place }),
      "aria-label": `response ${r + 1}, token ${place + 1}, ${isEnd ? "its end" : text}, ${way === "none" ? "not pushed" : `pushed ${way}${isOfKL ? " by the KL term" : ""}`}${cut ? ", clipped" : ""}`,
    }, cut ? node("span", { "aria-hidden": "true" }, "✂\ufe0e") : null, node("code", {}, text));
    button.style.setProperty("--z", Math.abs(push));
    return button;
  }
  function keys(event) {
    const [, , response, token] = state.place;
    const move = { ArrowLeft: { token: token - 1 }, ArrowRight: { token: token + 1 }, ArrowUp: { response: response - 1 }, ArrowDown: { response: response + 1 }, Home: { token: 0 }, End: { token: 1e6 } }[event.key];
    if (!move || !event.target.closest(".tok")) return;
    event.preventDefault();
    event.stopPropagation();  // JupyterLab moves between cells with arrow keys
    go(move);
  }

  function drawToken() {
    const held = token.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const parts = state.data.runs.map((step, run) => (step ? tokenView(step, run) : null)).filter(Boolean);
    token.replaceChildren(...parts);
    focusOn(token, held);
  }
  function tokenView(step, run) {
    const [s, g, r0, t0] = state.place, group = at(step.groups, g);
    if (!group?.numbers) return null;
    const r = clamp(r0, group.responses.length), response = group.responses[r], t = clamp(t0, response.tokens.length);
    const flat = group.responses.slice(0, r).reduce((sum, one) => sum + one.tokens.length, 0) + t;
    const cell = (column) => pick(column, r, flat), number = (key) => cell(group.numbers[key] ?? "");
    const tables = state.data.tables[run];
    const terms = cell(group.terms) === "" ? [] : String(cell(group.terms)).split(" ").map((place) => tables.terms[place]);
    const where = `${state.data.runs.length > 1 ? `${state.run.names[run]}, r` : "R"}esponse ${r + 1}, token ${t + 1} of ${response.tokens.length}, “${response.tokens[t].trim()}”, after the updates of step ${s}`;
    const top = node("div", { class: "ri-top" }, node("h4", {}, where), node("p", { class: "ri-said", role: "status", "aria-live": "polite" }, fillIn(tables.said[cell(group.said)], number)), group.moment ? node("p", { class: "ri-said ri-dim" }, group.moment) : null);
    const below = [];
    for (const [place, term] of terms.entries()) {
      if (place > 0) { below.push(termView(term, number, `${run}`)); continue; }
      const inSight = term[3].filter((part) => part[1] === "J");  // of J − KL: J is in sight too, and its parts open at once
      for (const [name, key, text] of [...inSight, term]) top.append(...lines(`${name} = ${number(key)}`, text, number));
      for (const part of term[3]) below.push(...(inSight.includes(part) ? part[3] : [part]).map((one) => termView(one, number, `${run}`)));
    }
    if (!terms.length) below.push(node("p", {}, ["old_prob", "new_prob", "ratio"].filter(number).map((key) => `${key} ${number(key)}`).join(", ")));
    return node("div", {}, top, node("div", { class: "ri-terms" }, ...below), group.others.length ? others(group.others, state.run.family[run], cell, run) : "");
  }
  /** Scroll so that what was opened begins below the token's sum, which stays. */
  const bring = (fold) => { right.scrollTop += fold.getBoundingClientRect().top - right.getBoundingClientRect().top - (getComputedStyle(token.querySelector(".ri-top")).position === "sticky" ? token.querySelector(".ri-top").offsetHeight : 0); };
  const lines = (first, text, number) => [first, ...fillIn(text, number).split("\n")].map((line) => node("span", { class: "line" }, line));
  function termView([name, key, text, parts], number, path) {
    const place = `${path} ${key}`;
    const [, ...body] = lines("", text, number);
    const summary = node("summary", { "data-key": place }, `${name} `, node("b", {}, number(key)));
    return node("details", { open: open.has(place), ontoggle: (e) => (e.target.open ? open.add(place) : open.delete(place)) },
      summary, ...body, ...parts.map((part) => termView(part, number, place)));
  }
  function others(rows, family, cell, run) {
    const thisRun = rows[0], body = [];
    for (const [place, row] of rows.entries()) {
      const { name, differs } = family[place], key = `${run} row ${place}`, isOpen = open.has(key);
      const toggle = node("button", { "data-key": key, "aria-expanded": String(isOpen), onclick: () => { isOpen ? open.delete(key) : open.add(key); drawToken(); } }, place ? name : `${name} (this run)`);
      const cells = [node("th", { scope: "row" }, toggle)];
      const why = row.push === undefined ? [] : cell(row.why).split(" ").filter(Boolean);
      if (row.push === undefined) cells.push(node("td", { colspan: 6, class: "same why" }, row.needs.join("; ")));
      else {
        const limits = (one) => `${cell(one.lower)} … ${cell(one.upper)}`;
        const values = [[cell(row.A), cell(thisRun.A)], [cell(row.ratio), cell(thisRun.ratio)], [limits(row), limits(thisRun)], [cell(row.weight), cell(thisRun.weight)]];
        cells.push(...values.map(([value, before]) => node("td", { class: value === before ? "same" : "other" }, value)));
        const push = cell(row.push), way = push.startsWith("−") ? "down" : push === "0" ? "" : "up";
        cells.push(node("td", { class: cell(row.differs) ? "other" : "same" }, node("span", { class: way ? `ri-${way}` : "" }, { up: "↑ ", down: "↓ ", "": "" }[way]), push, cell(row.clipped) ? " ✂\ufe0e" : ""));
        const together = place && cell(row.differs) && !why.length ? "several slots together" : "";
        cells.push(node("td", { class: "why" }, why.join(", ") || together, row.needs.length ? " *" : ""));
      }
      body.push(node("tr", {}, ...cells));
      if (!isOpen) continue;
      const words = row.push === undefined ? "" : `ratio ${cell(row.ratio)}, weight ${cell(row.weight)}${cell(row.clipped) ? ", its gradient is cut" : ""}`;
      const items = differs.map(([slot, before, after, reason]) => node("li", {}, node(why.includes(slot) ? "b" : "span", {}, `${slot}${why.includes(slot) ? " (changes this token)" : ""}`), `: ${before} → ${after}: ${reason}`));
      body.push(node("tr", { class: "more" }, node("td", { colspan: 7 }, node("p", {}, words), row.needs.length ? node("p", {}, `* ${row.needs.join("; ")}`) : "", items.length ? node("ul", {}, ...items) : "")));
    }
    const heading = ["algorithm", "A", "ratio", "limits", "weight", "push", "slots"].map((word) => node("th", { scope: "col" }, word));
    const fold = node("details", { class: "ri-others", open: open.has("others"), ontoggle: (e) => { if (e.target.open && !open.has("others")) bring(fold); e.target.open ? open.add("others") : open.delete("others"); } });
    fold.append(node("summary", { "data-key": "others" }, "More: the same token under another algorithm"), node("p", { class: "ri-said ri-dim" }, FAMILY_NOTE),
      node("table", {}, node("thead", {}, node("tr", {}, ...heading)), node("tbody", {}, ...body)));
    return fold;
  }
  function drawDifferences() {
    const { differs: rows, names } = state.run;
    differs.replaceChildren(...(rows === null ? [] : [rows.length === 0 ? node("p", {}, "The two runs do not differ in what is recorded.")
      : node("details", {}, node("summary", {}, `What differs from ${names[0]} to ${names[1]}`), node("ul", {}, ...rows.map(([what, words]) => node("li", {}, node("b", {}, what), `: ${words}`))))]));
  }

  function draw(scroll) {
    drawPicture();
    if (!state.run || !state.place) return;
    drawBar();
    caption.textContent = state.data?.caption ?? "";
    if (!state.data?.runs?.some(Boolean)) { for (const part of [groups, responses, token]) part.replaceChildren(); return; }
    drawGroups();
    drawResponses();
    drawToken();
    bringChosen();
    if (scroll) right.scrollTop = 0;
  }
  return {
    root,
    /** Show {picture, run, data, place}; what is absent stays as it was. */
    show(next) {
      Object.assign(state, next);
      if (state.data?.runs && state.place) state.place = fit(state.place);
      if (next.run) drawDifferences();
      draw(false);
    },
    destroy() { clearInterval(clock); root.remove(); },
  };
}

/** anywidget: the kernel sends a step's data when that step is chosen. */
function renderInspector({ model, el }) {
  const names = ["picture", "run", "data", "place"];
  const view = inspector(el, (place) => {
    if (place === null) model.send({ refresh: true });
    else { model.set("place", place); model.save_changes(); }
  });
  let due = false;
  const stale = new Set(names);
  const show = () => { due = false; const next = Object.fromEntries([...stale].map((name) => [name, model.get(name)])); stale.clear(); view.show(next); };
  show();
  const later = names.map((name) => [`change:${name}`, () => { stale.add(name); if (!due) { due = true; queueMicrotask(show); } }]);
  for (const [event, listener] of later) model.on(event, listener);
  return () => { for (const [event, listener] of later) model.off(event, listener); view.destroy(); };
}
export default { render: renderInspector };

/** A page without a kernel: all steps are there. Announces each place as an event "place", and goes where el.go(place) says. */
export function frozenInspector(el, { picture, run, tables, steps, place: first }) {
  const written = {};  // the same object for the same step, so that only what changes is drawn
  const show = (place) => {
    const data = (written[place[0]] ??= { ...steps[place[0]], tables });
    view.show({ data, place: fitted(place, data) });
    el.dispatchEvent(new CustomEvent("place", { bubbles: true, detail: place }));
  };
  const fitted = ([step, group, ...tail], data) => {
    const groups = data.runs?.find(Boolean)?.groups ?? [];
    const informative = groups.findIndex((one) => one.numbers);
    return [step, groups[group] && !groups[group].numbers && informative >= 0 ? informative : group, ...tail];
  };
  const view = inspector(el, show);
  view.show({ picture, run });
  el.go = show;
  show(first);
  return view;
}

