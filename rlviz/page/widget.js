// A picture in a notebook (`render`, by anywidget) and in a page without a kernel (`start`): both unpack what Python packed, and mount it.
import { mount } from "./draw.js";

/** Return what `pack` of widget.py packed: JSON, gzip, base64. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Hide the PNG that stands in for the picture where no script runs: the next output of the same cell. */
function hideTwin(element) {
  const output = element.closest(".jp-OutputArea-child, .output_area");
  const image = output?.nextElementSibling?.querySelector("img");
  if (image) image.closest(".jp-OutputArea-child, .output_area").style.display = "none";
}

/** Show the picture at the first place of this name that has none yet. */
export async function start(name, packed) {
  const place = document.querySelector(`[data-rlviz="${name}"]:not([data-live])`);
  if (!place) return;
  place.dataset.live = "";
  const given = await unpack(packed);
  hideTwin(place);
  place.replaceChildren();
  mount(place, given);
}

/** Show a live picture: the kernel is told of a control when it is let go, and asked for what a page cannot compute. */
export async function render({ model, el }) {
  const waiting = new Map();
  let turn = 0;
  const host = {
    ask(key, values) {
      turn += 1;
      model.set("asked", { turn, key, values });
      model.save_changes();
      return new Promise((answer) => waiting.set(turn, answer));
    },
    changed(values) {
      model.set("values", { ...values });
      model.save_changes();
    },
  };
  model.on("change:answered", () => {
    const answered = model.get("answered");
    waiting.get(answered.turn)?.(answered);
    waiting.delete(answered.turn);
  });
  const given = await unpack(model.get("packed"));
  const picture = mount(el, { ...given, values: { ...given.values, ...model.get("values") } }, host);
  if (model.get("twin")) hideTwin(el);
  model.on("change:values", () => picture.choose(model.get("values")));
}
