// What the site's pages do: a model trains, explorers answer, recorded runs play, a run is looked into. Data stand in the page
// itself; recordings, programs and weights come as scripts, because a page that is opened from the disk may fetch nothing.
import { mount } from "./draw.js";
import { frozenInspector } from "./inspector.js";
import { unpack } from "./packed.js";
import { player, fromAddress, toAddress } from "./player.js";
import { playground } from "./playground.js";

const packed = (globalThis.packed = {}); // name → what was packed, as files of recordings and of training put it there

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

for (const place of document.querySelectorAll("[data-playground]")) {
  const folder = place.dataset.playground;
  unpack(place.querySelector("script").textContent).then((given) => {
    place.replaceChildren();
    const recording = (name) => loaded(`recordings/${name}.js`, `recordings/${name}`);
    const play = (home, name) => player(home, [{ name, title: "", load: () => recording(name) }]);
    const run = playground(place, given, (part) => loaded(`${folder}${part}.js`, `training/${part}`), { player: play });
    globalThis.rlviz = { run };
  });
}
for (const place of document.querySelectorAll("[data-picture]")) {
  unpack(place.querySelector("script").textContent).then((given) => {
    place.replaceChildren();
    mount(place, { ...given, pages: { tables: `${place.dataset.folder}tables.html` } });
  });
}
for (const place of document.querySelectorAll("[data-player]")) {
  packed[`recordings/${place.dataset.player}`] = place.querySelector("script").textContent;
  const runs = [...place.parentElement.querySelectorAll("datalist option")].map((option) => {
    const name = option.value.match(/([\w-]+)\.js$/)[1];
    return { name, title: option.textContent, load: () => loaded(option.value, `recordings/${name}`) };
  });
  place.replaceChildren();
  player(place, runs, { linked: true });
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
