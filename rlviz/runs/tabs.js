// Playgrounds behind tabs: sentences, the judge, and the tasks with right answers.
import { html } from "./draw.js";
import { judging } from "./judge.js";
import { unpack } from "./packed.js";
import { addressText, playground } from "./playground.js";

/** Which of several payloads, title → payload, an address asks for, by its tab or its task; the first where it asks for none of them. */
export function tabOf(tabs, hash) {
  const address = new URLSearchParams(hash.replace(/^#/, "")), task = addressText(address, "task"), all = Object.entries(tabs);
  const isNamed = ([, { tab }]) => tab && tab === address.get("tab"), has = ([, { controls }]) => controls.task.options.some(({ value }) => value === task);
  return (all.find(isNamed) ?? all.find(has) ?? all[0])[0];
}

/** Put playgrounds into `root`, one at a time, behind tabs; tabs: title → payload. Returns {run: that of the tab in sight}. */
export function tabbed(root, tabs, load, options) {
  root.classList.add("play-tabbed");
  const bar = html("div", { className: "play-tabs", role: "tablist" }, root), home = html("div", { role: "tabpanel" }, root), state = { run: null };
  const buttons = Object.fromEntries(Object.keys(tabs).map((title) => [title, html("button", { type: "button", role: "tab", textContent: title, onclick: () => open(title, true) }, bar)]));
  const resting = {}; // tabs with answers of their visitor in them: they are hidden, and come back as they were
  let current = null;
  function open(title, isPressed = false) {
    if (title === current) return;
    if (current && tabs[current].judge) state.run.pause();
    else state.run?.stop();
    current = title;
    if (isPressed) history.replaceState(history.state, "", tabs[title].tab ? `#tab=${tabs[title].tab}` : `#task=${tabs[title].controls.task.value}`);
    for (const [name, one] of Object.entries(buttons)) Object.assign(one, { tabIndex: name === title ? 0 : -1 }).setAttribute("aria-selected", String(name === title));
    for (const [name, { place }] of Object.entries(resting)) place.hidden = name !== title;
    for (const one of [...home.children]) if (!Object.values(resting).some(({ place }) => place === one)) one.remove();
    home.setAttribute("aria-label", title);
    if (resting[title]) {
      state.run = resting[title].run;
      return;
    }
    const place = html("div", {}, home);
    state.run = (tabs[title].judge ? judging : playground)(place, tabs[title], load, options);
    if (tabs[title].judge) resting[title] = { place, run: state.run };
  }
  bar.onkeydown = ({ key }) => {
    const titles = Object.keys(tabs), by = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!by) return;
    open(titles[(titles.indexOf(current) + by + titles.length) % titles.length], true);
    buttons[current].focus();
  };
  addEventListener("hashchange", () => open(tabOf(tabs, location.hash)));
  open(tabOf(tabs, location.hash));
  return state;
}

/** The playground of a page that has its parts in it, packed; inspect(home, data) shows a recorded run. `rlviz.run` tells how it goes. */
export async function playgroundHere(inspect) {
  const partOf = (name) => unpack(document.querySelector(`[data-part="${name}"]`).textContent);
  const play = async (home, name) => inspect(home, await partOf(`recordings/${name}`));
  globalThis.rlviz = tabbed(document.getElementById("playground"), await partOf("tabs"), partOf, { player: play });
}
