// What the site's pages do: what is typed is found, a model trains, explorers answer, recorded runs are watched. Data stand in the page
// itself; recordings, programs and weights come as scripts, because a page that is opened from the disk may fetch nothing.
import { mount } from "./draw.js";
import { frozenInspector } from "./inspector.js";
import { unpack } from "./packed.js";
import { playground } from "./playground.js";
import { searchBox } from "./search.js";
import { tabbed } from "./tabs.js";

const SCREEN = matchMedia("(min-width: 900px) and (min-height: 560px)"); // where a slide is one screen, as in site.css
const LOWEST = 110, FLAT = 180, HIGHEST = 800; // pixels of a panel on a slide; where they are flat, three stand in a row
const TURNS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -Infinity, End: Infinity };
const CONTROLS = "input, select, textarea, [tabindex='0']"; // the last are a picture's handles
const packed = (globalThis.packed = {}); // name → what was packed, as files of recordings and of training put it there

/** The hash of the address as name → text, and the other way round: a link shows what its sender saw. */
const fromAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const toAddress = (values) => history.replaceState(null, "", `#${new URLSearchParams({ ...fromAddress(), ...values })}`);

function loaded(address, name) {
  return new Promise((done, failed) => {
    if (packed[name]) return done(unpack(packed[name]));
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(unpack(packed[name]));
    script.onerror = () => failed(new Error(`${address} cannot be read`));
    document.head.append(script);
  });
}

/** Make a picture's panels as high as its slide leaves them; once they are, only lower, or they would jump while a hand drags. */
function fit(place, picture) {
  const room = place.parentElement, panels = place.querySelector(".rlviz-panels");
  let tall = 300, isFound = false, size = "";
  new ResizeObserver(() => {
    const now = `${innerWidth} ${innerHeight}`, free = room.clientHeight - place.offsetHeight;
    if (!SCREEN.matches || !panels.offsetHeight || (isFound && now === size && free >= 0)) return;
    size = now;
    const better = Math.min(HIGHEST, Math.max(LOWEST, tall * (1 + free / panels.offsetHeight)));
    isFound = Math.abs(better - tall) < 2;
    if (better < FLAT && place.querySelectorAll(".rlviz-row svg[viewBox]").length % 3 === 0) {
      picture.columns = 3;
      for (const panel of picture.panels) panel.tall = 1;
    }
    tall = better;
    place.style.setProperty("--rlviz-tall", tall);
    place.style.paddingRight = place.style.paddingRight === "9px" ? "8px" : "9px"; // it is laid out anew where its width changed
  }).observe(place);
}
/** Page through slides by keys and buttons. A control keeps its keys, but for those of a clicker: Page Up and Page Down. */
function lecture(slides) {
  const turn = (by) => {
    const here = slides.findIndex((one) => one.getBoundingClientRect().bottom > innerHeight / 2);
    const to = slides[Math.min(slides.length - 1, Math.max(0, here + by))];
    to.scrollIntoView();
    to.focus({ preventScroll: true });
  };
  const keyed = (event) => {
    const by = TURNS[event.key], isClicker = event.key.startsWith("Page");
    const keyUsers = event.key === " " ? `${CONTROLS}, a, button, summary` : CONTROLS;
    if (!by || event.altKey || event.ctrlKey || event.metaKey || (!isClicker && event.target.closest(keyUsers))) return;
    event.preventDefault();
    event.stopPropagation();
    turn(event.shiftKey ? -by : by);
  };
  addEventListener("keydown", keyed, true); // before a handle takes Page Down for ten steps
  for (const button of document.querySelectorAll("[data-turn]")) button.onclick = () => turn(+button.dataset.turn);
}

for (const place of document.querySelectorAll("[data-playground], [data-tabs]")) {
  const { playground: single, tabs, waits = "" } = place.dataset, load = (part) => loaded(`${single ?? tabs}${part}.js`, `training/${part}`);
  unpack(place.querySelector("script").textContent).then((payload) => {
    place.replaceChildren();
    const player = async (home, name) => frozenInspector(home, await loaded(`recordings/${name}.js`, `recordings/${name}`));
    const options = { player, linked: !waits, waits };
    globalThis.rlviz = tabs ? tabbed(place, payload, load, options) : { run: playground(place, payload, load, options) };
  });
}
for (const place of document.querySelectorAll("[data-picture]")) {
  unpack(place.querySelector("script").textContent).then((payload) => {
    place.replaceChildren();
    const { picture } = payload, isFirst = place.closest(".lesson > .cell:nth-child(2)");
    if (isFirst && picture.panels.length > 2 && picture.panels.every((panel) => (panel.tall ?? 1) === 1)) {
      picture.columns ??= 3; // or two rows of high graphs would leave a lesson's first screen
      place.style.setProperty("--rlviz-tall", Math.max(190, innerHeight - 530));
    }
    mount(place, payload);
    if (place.closest(".slide")) fit(place, payload.picture);
  });
}
for (const place of document.querySelectorAll("[data-inspector]")) {
  unpack(place.querySelector("script").textContent).then((data) => {
    const wanted = fromAddress().place?.split("-").map(Number) ?? [];
    if (wanted.length === data.place.length && wanted.every(Number.isInteger) && data.steps[wanted[0]]) data.place = wanted;
    place.replaceChildren();
    place.addEventListener("place", ({ detail }) => toAddress({ place: detail.join("-") }));
    frozenInspector(place, data);
  });
}
// A puzzle answers with the verdict of its check once all of it is chosen; a guess stands beside its result.
for (const quiz of document.querySelectorAll("[data-quiz]")) {
  quiz.addEventListener("change", () => {
    const chosen = [...quiz.querySelectorAll(":checked")].map((one) => one.value).join("");
    const verdict = quiz.querySelector(`template[data-choice="${chosen}"]`);
    if (verdict) quiz.querySelector("[aria-live]").replaceChildren(verdict.content.cloneNode(true));
  });
}
for (const field of document.querySelectorAll("[data-guesses] [name]")) {
  field.addEventListener("input", () => {
    const words = field.value.trim() ? `you said ${field.value.trim()}; the run says` : "The run says";
    for (const place of document.querySelectorAll(`[data-guess="${field.name}"]`)) place.textContent = words;
  });
}
for (const place of document.querySelectorAll("[data-search]")) {
  searchBox(place, () => loaded(`${place.dataset.search}search.js`, "search"));
}
const slides = [...document.querySelectorAll(".slide")];
if (slides.length) lecture(slides);
