// What the site's pages do: explorers answer, the recorded runs play, and a call can be copied. Data stand in the page itself, and
// recordings come as scripts, because a page that is opened from the disk may fetch nothing.
import { frozen, readAddress, unpack, writeAddress } from "./picture.js";
import { frozenInspector } from "./inspector.js";
import { player } from "./player.js";

const loaded = (globalThis.recordings = {}); // name → what was packed, as the files of the recordings put it there

function load(address, name) {
  return new Promise((done, failed) => {
    if (loaded[name]) return done(unpack(loaded[name]));
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(unpack(loaded[name]));
    script.onerror = () => failed(new Error(`${address} cannot be read`));
    document.head.append(script);
  });
}

for (const place of document.querySelectorAll("[data-picture]")) {
  unpack(place.querySelector("script").textContent).then((given) => {
    place.replaceChildren();
    globalThis.rlviz.mount(place, given);
  });
}
const pictures = document.querySelectorAll("[data-explorer]");
for (const [number, place] of pictures.entries()) {
  unpack(place.querySelector("script").textContent).then((data) => {
    place.replaceChildren();
    frozen(place, data, { linked: true, prefix: pictures.length > 1 ? `${number + 1}.` : "" });
    const button = place.parentElement.querySelector(".copy"), words = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const call = place.querySelector(".rl-call");
      try {
        await navigator.clipboard.writeText(`from rlviz import *\n\n${call.textContent}\n`);
        button.textContent = "Copied: paste it into a notebook";
      } catch {
        getSelection().selectAllChildren(call); // no clipboard here: the person copies what is now marked
        button.textContent = "Press Ctrl+C; it needs: from rlviz import *";
      }
      setTimeout(() => { button.textContent = words; }, 3000);
    });
  });
}
for (const place of document.querySelectorAll("[data-player]")) {
  loaded[place.dataset.player] = place.querySelector("script").textContent;
  const runs = [...place.parentElement.querySelectorAll("datalist option")].map((option) => {
    const name = option.value.match(/([\w-]+)\.js$/)[1];
    return { name, title: option.textContent, load: () => load(option.value, name) };
  });
  place.replaceChildren();
  player(place, runs, { linked: true });
}
for (const place of document.querySelectorAll("[data-inspector]")) {
  unpack(place.querySelector("script").textContent).then((data) => {
    const wanted = readAddress().place?.split("-").map(Number) ?? [];
    if (wanted.length === data.place.length && wanted.every(Number.isInteger) && data.steps[wanted[0]]) data.place = wanted;
    place.replaceChildren();
    place.addEventListener("place", ({ detail }) => writeAddress({ place: detail.join("-") }));
    frozenInspector(place, data);
  });
}
