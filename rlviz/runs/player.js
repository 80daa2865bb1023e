// A recorded run that plays: the loop, whose present stage lights up, curves that grow, and groups whose tokens are pushed. All
// numbers and texts were written when the run was recorded; here they are only shown. A run on pairs has curves alone.
import { dress, mount } from "./draw.js";

const PHASES = [
  ["sample", "a group of responses to each prompt"],
  ["grade", "each response: right or wrong"],
  ["advantage", "better or worse than expected?"],
  ["update", "push tokens up or down"],
];
const LAST = PHASES.length - 1;
const SPEEDS = [0.5, 1, 2, 4, 8];
const STEP_MILLISECONDS = 1200; // at speed 1
const SHADES = 9;

/** Make an element with these properties and children; texts go in as texts. */
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) key.includes("-") ? element.setAttribute(key, value) : (element[key] = value);
  element.append(...children);
  return element;
}
/** The hash of the address as name → text, and the other way round: a link shows what its sender saw. */
export const fromAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export const toAddress = (values) => history.replaceState(null, "", `#${new URLSearchParams({ ...fromAddress(), ...values })}`);

/**
 * Put a player of recorded runs into `el`. runs: {name, title, load} each, where `load` promises what was recorded.
 * linked: run, step and group are part of the address, and the player waits there where the address names a step.
 */
export function player(el, runs, { linked = false } = {}) {
  const wanted = linked ? fromAddress() : {};
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let data = null, curves = null, run = Math.max(0, runs.findIndex(({ name }) => name === wanted.run)), place = 0, stage = LAST, group = Math.max(0, (wanted.group | 0) - 1);
  let speed = 1, timer = null, playing = !still && wanted.step === undefined, seen = false, asked = 0;

  const root = make("section", { className: "rlviz-picture rl-play", "aria-label": "A recorded run" });
  const pick = make("select", { "aria-label": "recorded run" }, ...runs.map(({ title }) => make("option", { textContent: title })));
  const button = make("button", { type: "button" });
  const slider = make("input", { type: "range", min: 1, step: 1, "aria-label": "step" });
  const where = make("output");
  const pace = make("select", { "aria-label": "speed" }, ...SPEEDS.map((one) => make("option", { textContent: `${one}×` })));
  const look = make("p"), said = make("p", { className: "said", role: "status" });
  const loop = make("ol", { className: "loop", "aria-label": "one step of training" }, ...PHASES.map(([name, words]) => make("li", {}, make("b", { textContent: name }), make("span", { textContent: words }))));
  const again = make("p", { className: "again", textContent: "↺ and the updated policy samples the next groups" });
  const home = make("div"), chips = make("div", { className: "rl-controls", role: "group", "aria-label": "group" }), table = make("table");
  const shown = make("div", { className: "group" }, chips, table);
  const legend = make("p", { className: "legend", textContent: "A token with a bar above is pushed up, with a bar below pushed down, the harder the stronger its colour; in a dotted frame, it has reached its limit: the clipped objective pushes it no further." });
  const call = make("p", { className: "rl-call" });
  root.append(
    make("div", { className: "rl-controls" }, ...(runs.length > 1 ? [pick] : []), button, slider, where, pace),
    look, loop, again, make("div", { className: "rl-curves" }, home), said, shown, legend, call,
  );
  el.append(root);
  dress(root, DRAW_CSS, "draw");
  dress(root, PLAYER_CSS, "player");
  pick.selectedIndex = run;
  pace.selectedIndex = SPEEDS.indexOf(speed);

  /** Show the run's curves up to a step, over those of the whole run in grey: r1_… is so much of r0_…. */
  function grow(measured) {
    const { data: numbers } = curves;
    for (const name of Object.keys(numbers).filter((one) => /^r0_.*_at$/.test(one))) {
      const many = numbers[name].findLastIndex((step) => step <= measured) + 1, values = name.replace("_at", "");
      for (const one of [name, values]) numbers[one.replace("r0_", "r1_")] = numbers[one].slice(0, many);
    }
    curves.choose({ step: measured });
  }
  const cell = (...parts) => make("td", {}, ...parts);
  function token(text, push, clipped) {
    const element = make("span", { className: `token${push > 0 ? " up" : push < 0 ? " down" : ""}${clipped ? " clipped" : ""}`, textContent: text });
    element.style.setProperty("--push", `${Math.round((70 * Math.abs(push)) / SHADES)}%`);
    return element;
  }
  function row({ tokens, push, clipped, right, reward, advantage }) {
    const words = clipped.length ? make("span", { className: "unseen", textContent: ` (${clipped.length} at their limit)` }) : "";
    const parts = [cell(...tokens.map((text, i) => token(text, push[i], clipped.includes(i))), words), cell(right ? "✓ right" : "✗ wrong"), cell(reward), cell(advantage)];
    for (const [i, name] of ["tokens", "grade", "grade", "advantage"].entries()) parts[i].className = name;
    return make("tr", {}, ...parts);
  }
  function show() {
    const now = data.steps[place], at = now.groups[Math.min(group, now.groups.length - 1)];
    root.dataset.stage = stage;
    for (const [i, item] of [...loop.children].entries()) {
      item.classList.toggle("now", playing && i === stage);
      if (playing && i === stage) item.setAttribute("aria-current", "step"); else item.removeAttribute("aria-current");
    }
    button.textContent = playing ? "❚❚ Pause" : "▶ Play";
    slider.value = now.step;
    where.value = `step ${now.step} of ${data.steps.length}`;
    slider.setAttribute("aria-valuetext", where.value);
    said.setAttribute("aria-live", playing ? "off" : "polite"); // a step a second is too much to listen to
    if (said.textContent !== now.said) said.textContent = now.said;
    const measured = stage === LAST ? now.step : now.step - 1;
    grow(measured);
    for (const part of [loop, again, shown, legend]) part.hidden = !at; // of pairs nothing is sampled
    if (!at) return;
    if (chips.childElementCount !== now.groups.length) {
      chips.replaceChildren(...now.groups.map((_, i) => make("button", { type: "button", textContent: `group ${i + 1}`, onclick: () => { group = i; show(); tell(); } })));
    }
    for (const [i, chip] of [...chips.children].entries()) chip.setAttribute("aria-pressed", at === now.groups[i]);
    if (table.shows === at) return;
    table.shows = at;
    table.replaceChildren(
      make("caption", { textContent: `The responses to ${at.prompt} (right answer ${at.gold})` }),
      make("thead", {}, make("tr", {}, ...["response", "graded", "reward", "advantage"].map((words) => make("th", { scope: "col", textContent: words })))),
      make("tbody", {}, ...at.responses.map(row)),
    );
  }
  const tell = () => { if (linked && !playing) toAddress({ run: runs[run].name, step: data.steps[place].step, group: group + 1 }); };
  function go(to) {
    place = Math.min(data.steps.length - 1, Math.max(0, to));
    stage = LAST;
    show();
    tell();
  }
  function beat() {
    if (stage < LAST && data.steps[place].groups.length) stage += 1;
    else if (place < data.steps.length - 1) [place, stage] = [place + 1, data.steps[place].groups.length ? 0 : LAST];
    else return pause();
    show();
  }
  function pause() {
    playing = false;
    clock();
    if (data) go(place);
  }
  function play() {
    playing = true;
    if (place === data.steps.length - 1) [place, stage] = [0, 0];
    clock();
    show();
  }
  function clock() {
    clearInterval(timer);
    timer = playing && seen && data ? setInterval(beat, STEP_MILLISECONDS / PHASES.length / speed) : null;
  }
  async function open(which, step = 1) {
    const turn = ++asked, loaded = await runs[which].load();
    if (turn !== asked) return; // another run was asked for meanwhile
    [data, run] = [loaded, which];
    look.textContent = data.look;
    call.textContent = data.call;
    slider.max = data.steps.length;
    const steered = { moved: (values) => { if (playing) pause(); go(values.step - 1); } };
    home.replaceChildren();
    curves = mount(home, data.curves, steered);
    go(step - 1);
    clock();
  }
  button.addEventListener("click", () => (playing ? pause() : data && play()));
  slider.addEventListener("input", () => { playing = false; clock(); go(+slider.value - 1); });
  pick.addEventListener("change", () => open(pick.selectedIndex));
  pace.addEventListener("change", () => { speed = SPEEDS[pace.selectedIndex]; clock(); });
  slider.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); button.click(); } });
  const watch = new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; clock(); }); // nobody watches what is out of sight
  watch.observe(root);
  open(run, +wanted.step || 1);
  return { root, destroy() { clearInterval(timer); watch.disconnect(); root.remove(); } };
}
