// A picture in a notebook (`render`, by anywidget) and in a page without a kernel (`start`): both unpack what Python packed, and mount it.
import { mount } from "./draw.js";
import { vacant, unpack } from "./load.js";

/** Hide the PNG that stands in for the picture where no script runs: the next output of the same cell. */
function hideTwin(element) {
  const output = element.closest(".jp-OutputArea-child, .output_area");
  const image = output?.nextElementSibling?.querySelector("img");
  if (image) image.closest(".jp-OutputArea-child, .output_area").style.display = "none";
}

/** Show the picture at the first place of this name that has none yet. */
export async function start(name, packed) {
  const place = vacant(name);
  if (!place) return;
  place.dataset.live = "";
  const given = JSON.parse(await unpack(packed));
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
  const given = JSON.parse(await unpack(model.get("packed")));
  const picture = mount(el, { ...given, values: { ...given.values, ...model.get("values") } }, host);
  if (model.get("twin")) hideTwin(el);
  model.on("change:values", () => picture.choose(model.get("values")));
}
