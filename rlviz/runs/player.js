// A recorded run that plays: the loop, whose present stage lights up, curves that grow, and groups whose tokens are pushed. All
// numbers and texts were written when the run was recorded; here they are only shown. A run on pairs has curves alone.
import { coloured, make, mount, readAddress, writeAddress } from "./curves.js";

const STAGES = [
  ["sample", "a group of responses to each prompt"],
  ["grade", "each response: right or wrong"],
  ["advantage", "better or worse than expected?"],
  ["update", "push tokens up or down"],
];
const LAST = STAGES.length - 1;
const SPEEDS = [0.5, 1, 2, 4, 8];
const STEP_MILLISECONDS = 1200; // at speed 1
const SHADES = 9;
const PLAY_CSS = `
.rl-play{--ground:color-mix(in srgb,var(--k) 5%,transparent)}
.rl-play .loop{display:grid;grid-template-columns:repeat(4,1fr);gap:8px 22px;list-style:none;margin:10px 0;padding:0}
.rl-play .loop li{border:2px solid var(--f);border-radius:8px;padding:5px 10px;position:relative;font-size:13px;line-height:1.3}
.rl-play .loop b{display:block;font-size:16px}
.rl-play .loop li:not(:last-child)::after{content:"→";position:absolute;right:-20px;top:28%;font-size:16px}
.rl-play .loop li.now{border-color:var(--b);background:color-mix(in srgb,var(--b) 14%,transparent)}
.rl-play .again{font-size:13px;margin:-4px 0 4px;text-align:right;max-width:none}.rl-play select{max-width:none}
.rl-play input[type=range]{flex:1;min-width:120px;accent-color:var(--b)}
.rl-play output{font-variant-numeric:tabular-nums;min-width:8em}
.rl-play .said{min-height:1.4em}.rl-play [hidden]{display:none!important}
.rl-play .group{min-height:16.5em;overflow-x:auto}
.rl-play table{border-collapse:collapse;font-size:14px}
.rl-play th,.rl-play td{text-align:left;padding:1px 14px 1px 0;font-weight:normal;white-space:nowrap;font-variant-numeric:tabular-nums}
.rl-play th{color:var(--t)}.rl-play caption{text-align:left;font-weight:600;padding:2px 0}
.rl-play .token{font-family:ui-monospace,"DejaVu Sans Mono",monospace;display:inline-block;min-width:1.05em;text-align:center;padding:1px 2px;border:2px solid transparent}
.rl-play .up{background:color-mix(in srgb,var(--b) var(--push),transparent);border-top-color:var(--b)}
.rl-play .down{background:color-mix(in srgb,var(--v) var(--push),transparent);border-bottom-color:var(--v)}
.rl-play .clipped{outline:1px dotted var(--k);outline-offset:-2px}
.rl-play[data-stage="0"] .grade,.rl-play[data-stage="0"] .advantage,.rl-play[data-stage="1"] .advantage{visibility:hidden}
.rl-play:not([data-stage="3"]) .token{background:none;border-color:transparent;outline:none}
.rl-play .legend{font-size:13px;color:var(--t)}
.rl-play .unseen{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
@media (max-width:600px){.rl-play .loop{grid-template-columns:1fr 1fr}.rl-play .loop li:nth-child(2)::after{content:none}.rl-play .loop span{display:none}}`;

/**
 * Put a player of recorded runs into `el`. runs: {name, title, load} each, where `load` promises what was recorded.
 * linked: run, step and group are part of the address, and the player waits there where the address names a step.
 */
export function player(el, runs, { linked = false } = {}) {
  const wanted = linked ? readAddress() : {};
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let data = null, run = Math.max(0, runs.findIndex(({ name }) => name === wanted.run)), place = 0, stage = LAST, group = Math.max(0, (wanted.group | 0) - 1);
  let speed = 1, timer = null, playing = !still && wanted.step === undefined, seen = false, asked = 0;

  const root = make("section", { className: "rl-play", "aria-label": "A recorded run" });
  const pick = make("select", { "aria-label": "recorded run" }, ...runs.map(({ title }) => make("option", { textContent: title })));
  const button = make("button", { type: "button" });
  const slider = make("input", { type: "range", min: 1, step: 1, "aria-label": "step" });
  const where = make("output");
  const pace = make("select", { "aria-label": "speed" }, ...SPEEDS.map((one) => make("option", { textContent: `${one}×` })));
  const look = make("p"), said = make("p", { className: "said", role: "status" });
  const loop = make("ol", { className: "loop", "aria-label": "one step of training" }, ...STAGES.map(([name, words]) => make("li", {}, make("b", { textContent: name }), make("span", { textContent: words }))));
  const again = make("p", { className: "again", textContent: "↺ and the updated policy samples the next groups" });
  const picture = make("div"), chips = make("div", { className: "rl-controls", role: "group", "aria-label": "group" }), table = make("table");
  const shown = make("div", { className: "group" }, chips, table);
  const legend = make("p", { className: "legend", textContent: "A token with a bar above is pushed up, with a bar below pushed down, the harder the stronger its colour; in a dotted frame, it has reached its limit: the clipped objective pushes it no further." });
  const call = make("p", { className: "rl-call" });
  root.append(
    make("style", { textContent: PLAY_CSS }),
    make("div", { className: "rl-controls" }, ...(runs.length > 1 ? [pick] : []), button, slider, where, pace),
    look, loop, again, picture, said, shown, legend, call,
  );
  el.append(root);
  const uncolour = coloured(root);
  const drawn = mount(picture, { point: (x) => { pause(); go(Math.round(x) - 1); } });
  pick.selectedIndex = run;
  pace.selectedIndex = SPEEDS.indexOf(speed);

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
    drawn.root.querySelectorAll("[data-grow]").forEach((window, i) => {
      const { box: [x, , width], x: [low, high] } = data.axes[i];
      const reached = (width * (measured - low)) / (high - low);
      window.setAttribute("width", reached + 2);
      drawn.root.querySelectorAll("[data-cursor]")[i].setAttribute("transform", `translate(${reached})`);
    });
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
  const tell = () => { if (linked && !playing) writeAddress({ run: runs[run].name, step: data.steps[place].step, group: group + 1 }); };
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
    timer = playing && seen && data ? setInterval(beat, STEP_MILLISECONDS / STAGES.length / speed) : null;
  }
  async function open(which, step = 1) {
    const turn = ++asked, loaded = await runs[which].load();
    if (turn !== asked) return; // another run was asked for meanwhile
    [data, run] = [loaded, which];
    look.textContent = data.look;
    call.textContent = data.call;
    slider.max = data.steps.length;
    drawn.update({ size: data.size, still: data.still, moving: data.moving, axes: data.axes, panels: data.panels, alt: data.alt });
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
  return { root, destroy() { clearInterval(timer); watch.disconnect(); drawn.destroy(); uncolour(); root.remove(); } };
}
