// A picture in a notebook, by anywidget: what Python packed is unpacked and mounted.
import { mount } from "./draw.js";
import { hideTwin, unpack } from "./packed.js";

/** Show a live picture: the kernel is told of a control when it is let go, and asked for what a page cannot compute. */
export async function render({ model, el }) {
  const waiting = new Map();
  let turn = 0;
  const host = {
    ask(key, values) {
      turn += 1;
      model.set("request", { turn, key, values });
      model.save_changes();
      return new Promise((answer) => waiting.set(turn, answer));
    },
    changed(values) {
      model.set("values", { ...values });
      model.save_changes();
    },
  };
  model.on("change:reply", () => {
    const reply = model.get("reply");
    waiting.get(reply.turn)?.(reply);
    waiting.delete(reply.turn);
  });
  let picture;
  async function open() {
    const packed = model.get("packed"), payload = await unpack(packed);
    if (packed !== model.get("packed")) return; // another one came meanwhile
    const values = { ...payload.values, ...model.get("values") }, data = { ...payload.data, ...model.get("data") };
    picture = mount(el, { ...payload, values, data }, host);
  }
  model.on("change:packed", open);
  await open();
  if (model.get("twin")) hideTwin(el);
  model.on("change:values", () => picture?.choose(model.get("values"))); // none yet: it will open with them
  model.on("change:data", () => {
    Object.assign(picture?.data ?? {}, model.get("data"));
    picture?.draw();
  });
}
