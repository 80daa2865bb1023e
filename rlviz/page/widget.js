// A picture in a notebook (`render`, by anywidget) and in a page without a kernel (`start`): both unpack what Python packed, and mount it.
import { mount } from "./draw.js";
import { hideTwin, startAt, unpack } from "./packed.js";

/** Show the picture at the first place of this name that has none yet. */
export const start = (name, packed) => startAt(name, packed, mount);

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
