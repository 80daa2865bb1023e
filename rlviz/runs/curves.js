// The curves of a run in a page, as svg.py drew them: `mount` shows them, reads their values at the pointer and moves a handle.
// No formula stands here: pixels and axes are all it knows.
const NS = "http://www.w3.org/2000/svg";
const CSS = `
.rl-box{--k:var(--jp-content-font-color1,var(--vscode-editor-foreground,CanvasText));--w:var(--jp-layout-color0,var(--vscode-editor-background,Canvas));
--t:#444;--g:#7f7f7f;--f:#e3e3e3;--b:#0072b2;--v:#d55e00;--n:#009e73;--s:#a6cfe8;--edge:#767676;
color:var(--k);font:15px/1.4 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;max-width:1000px;position:relative;box-sizing:border-box}
.rl-box.rl-dark{--t:#c8c8c8;--f:#454545;--b:#56a9e0;--v:#f0803c;--n:#2fbf93;--s:#28506b;--g:#9a9a9a;--edge:#9a9a9a}
.rl-box *{box-sizing:border-box}
.rl-picture svg{display:block;width:100%;height:auto;margin:0 auto;font-family:"DejaVu Sans",Verdana,"Bitstream Vera Sans",sans-serif;touch-action:pan-y;overflow:hidden}
.rl-picture text{white-space:pre}
.rl-handle{cursor:ew-resize;outline:none;touch-action:none}
.rl-handle .grip{fill:var(--w);stroke:var(--k);stroke-width:2}.rl-handle .mark{fill:var(--k)}
.rl-handle:hover .grip,.rl-handle.busy .grip{fill:var(--s)}.rl-handle:focus-visible .grip{stroke:var(--v);stroke-width:4}
.rl-read{pointer-events:none}
.rl-controls{display:flex;flex-wrap:wrap;gap:4px 18px;align-items:center;margin:2px 0}
.rl-box select,.rl-box button{font:inherit;font-size:14px;color:var(--k);background:var(--w);border:1px solid var(--edge);border-radius:4px;padding:1px 5px;max-width:16em}
.rl-box button[aria-pressed=true]{background:var(--b);color:var(--w);border-color:var(--b)}
.rl-box :focus-visible{outline:2px solid var(--v);outline-offset:2px}.rl-box .rl-handle:focus-visible{outline:none}
.rl-box p{margin:4px 0}
.rl-call{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px;overflow-wrap:anywhere}`;
let serial = 0;

const svg = (name, attributes = {}, parent) => {
  const element = document.createElementNS(NS, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  parent?.append(element);
  return element;
};
/** Make an element with these properties and children; texts go in as texts. */
export const make = (name, properties = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) key.includes("-") ? element.setAttribute(key, value) : (element[key] = value);
  element.append(...children);
  return element;
};
const shareOf = (value, [low, high]) => (value - low) / (high - low);
const valueAt = (share, [low, high]) => low + share * (high - low);
const short = (value) => (value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(2) : value.toPrecision(2)).replace("-", "−");

/** Give `root` the house's colours, and follow the page from light to dark by the colour that its text really has. */
export function coloured(root) {
  root.classList.add("rl-box");
  const mine = (event) => { event.target.dataset.lmSuppressShortcuts = "true"; }; // or JupyterLab takes the arrow keys for itself
  root.addEventListener("focusin", mine);
  root.prepend(make("style", { textContent: CSS }));
  const look = () => {
    const [r, g, b] = getComputedStyle(root).color.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
    root.classList.toggle("rl-dark", 0.3 * r + 0.59 * g + 0.11 * b > 140);
  };
  const watch = new MutationObserver(look);
  for (const element of [document.documentElement, document.body])
    watch.observe(element, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class", "style", "data-theme"] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", look);
  requestAnimationFrame(look);
  look();
  return () => { watch.disconnect(); scheme.removeEventListener("change", look); };
}

/** The points of a path that is a line, or of a line's markers, in the figure's pixels; a gap comes before a third that is true. */
function pointsOf(element) {
  if (element.tagName === "g") return [...element.children].map((use) => [+use.getAttribute("x"), +use.getAttribute("y")]);
  return [...element.getAttribute("d").matchAll(/([ML ])([\d.e+-]+) ([\d.e+-]+)/g)].map(([, letter, x, y]) => [+x, +y, letter === "M"]);
}

/** Where a line is at x, in pixels: between two of its points, or at a marker near x; null where it is not. */
function heightAt(element, x) {
  const points = pointsOf(element);
  if (element.tagName === "g") {
    const near = points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs((best?.[0] ?? Infinity) - x) ? point : best), null);
    return near && Math.abs(near[0] - x) < 12 ? near[1] : null;
  }
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1, gap]] = [points[i - 1], points[i]];
    if (!gap && x0 !== x1 && Math.min(x0, x1) <= x && x <= Math.max(x0, x1)) return y0 + ((x - x0) / (x1 - x0)) * (y1 - y0);
  }
  return null;
}

/**
 * Put a picture into `el`. on.drag(x) and on.step(steps) tell what was done to its handle, on.point(x) where a person clicked, in
 * the numbers of the axes. `update` takes {size, still, moving, alt, axes, panels, handle}; what is absent stays as it was. handle:
 * {axes, value, min, max, label, words}, null where there is none.
 */
export function mount(el, on = {}) {
  const id = `rl${(++serial).toString(36)}${Math.random().toString(36).slice(2, 7)}_`;
  const own = (text) => text.replaceAll("\ue000", id);
  const root = make("div", { className: "rl-picture" });
  el.append(root);
  const uncolour = coloured(root);
  const source = svg("svg", { width: 0, height: 0, style: "position:absolute" });
  const whole = svg("g", { id: `${id}all`, role: "img", "stroke-linejoin": "round" });
  const still = svg("g", {}, whole), moving = svg("g", {}, whole);
  let state = { handle: null, panels: [], axes: [], alt: "" }, views = [], narrow = null, handle = null, busy = false, stale = false;

  function layOut() {
    stale = false;
    narrow = root.clientWidth > 0 && root.clientWidth < 600;
    const focused = handle !== null && handle === root.getRootNode().activeElement;
    for (const view of views) view.svg.remove();
    source.remove();
    const stacked = narrow && state.panels.length > 1;
    if (stacked) { source.append(whole); root.append(source); }
    views = (stacked ? state.panels : [[0, 0, ...state.size]]).map((crop) => {
      const view = svg("svg", { viewBox: crop.join(" ") });
      if (stacked) view.style.maxWidth = `${crop[2]}px`; // a narrow part is not drawn larger than the others
      if (stacked) svg("use", { href: `#${id}all` }, view); else view.append(whole);
      root.append(view);
      const made = { svg: view, crop, handle: svg("g", {}, view), read: svg("g", { class: "rl-read" }, view) };
      view.addEventListener("pointermove", (event) => read(made, event));
      view.addEventListener("pointerleave", () => made.read.replaceChildren());
      view.addEventListener("click", (event) => { const at = where(made, event); if (at && !busy) on.point?.(at.x); });
      return made;
    });
    handle = null;
    put();
    if (focused) handle?.focus();
  }
  const pixel = (view, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(view.svg.getScreenCTM().inverse());
  const acrossAt = ({ box: [left, , width], x }, at) => valueAt((at.x - left) / width, x);
  const upAt = ({ box: [, top, , height], y }, at) => valueAt(1 - (at.y - top) / height, y);
  function where(view, event) {
    const at = pixel(view, event);
    const place = state.axes.findIndex(({ box: [x, y, width, height] }) => at.x >= x && at.x <= x + width && at.y >= y && at.y <= y + height);
    return place < 0 ? null : { axes: place, px: at, x: acrossAt(state.axes[place], at), y: upAt(state.axes[place], at) };
  }

  /** Show what the lines are at the pointer: a rule there, and the value of each line that has a name. */
  function read(view, event) {
    view.read.replaceChildren();
    const at = busy ? null : where(view, event);
    if (!at) return;
    const axes = state.axes[at.axes], [x, y, width, height] = axes.box;
    svg("path", { d: `M${at.px.x} ${y}V${y + height}`, stroke: "var(--k)", "stroke-opacity": 0.3 }, view.read);
    const lines = [];
    for (const line of whole.querySelectorAll("[data-curve]")) {
      const [, place, name] = line.dataset.curve.match(/^(\d+) (.*)$/s);
      const top = +place === at.axes ? heightAt(line, at.px.x) : null;
      if (top === null || top < y - 1 || top > y + height + 1) continue;
      lines.push([`${name} ${short(upAt(axes, { y: top }))}`, top]);
      svg("circle", { cx: at.px.x, cy: top, r: 4, fill: "var(--w)", stroke: "var(--k)", "stroke-width": 2 }, view.read);
    }
    const said = [`${short(at.x)}${lines.length ? "" : `, ${short(at.y)}`}`, ...lines.sort((a, b) => a[1] - b[1]).map((line) => line[0])];
    const left = at.px.x > x + width / 2;
    const top = Math.min(Math.max(at.px.y - 8 - 18 * (said.length - 1), y + 14), y + height - 18 * (said.length - 1) - 4);
    const text = svg("text", { "font-size": 14, fill: "var(--k)", stroke: "var(--w)", "stroke-width": 5, "paint-order": "stroke", "text-anchor": left ? "end" : "start" }, view.read);
    for (const [row, words] of said.entries()) svg("tspan", { x: at.px.x + (left ? -10 : 10), y: top + 18 * row, "font-weight": row ? "normal" : "bold" }, text).textContent = words;
  }

  /** Make the handle, in the view that shows its axes. */
  function makeHandle() {
    const [left, top, width, height] = state.axes[state.handle.axes].box, middle = [left + width / 2, top + height / 2];
    const view = views.find(({ crop: [x, y, w, h] }) => x <= middle[0] && middle[0] <= x + w && y <= middle[1] && middle[1] <= y + h) ?? views[0];
    const group = svg("g", { class: "rl-handle", tabindex: 0, role: "slider", "aria-orientation": "horizontal" }, view.handle);
    let held; // the axes as they were when the drag began: limits that follow would run away under the hand
    svg("rect", { fill: "transparent", width: 18 }, group);
    svg("circle", { class: "grip", r: 9 }, group);
    svg("path", { class: "mark", d: "M-6 0l4-3.5v7zM6 0l-4-3.5v7z" }, group);
    group.addEventListener("pointerdown", (event) => {
      busy = true;
      held = state.axes[state.handle.axes];
      group.setPointerCapture(event.pointerId);
      group.classList.add("busy");
      group.focus();
      view.read.replaceChildren();
      event.preventDefault();
    });
    group.addEventListener("pointermove", (event) => { if (busy) on.drag?.(acrossAt(held, pixel(view, event))); });
    const end = () => { group.classList.remove("busy"); setTimeout(() => { busy = false; if (stale) layOut(); }); };
    group.addEventListener("pointerup", end);
    group.addEventListener("lostpointercapture", end);
    group.addEventListener("click", (event) => event.stopPropagation());
    group.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
      if (steps === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation(); // JupyterLab moves between cells with arrow keys
      on.step?.(steps);
    });
    return group;
  }
  /** Place the handle, and say what it is and stands at. */
  function put() {
    const told = state.handle, axes = state.axes[told?.axes];
    handle?.setAttribute("display", axes ? "inline" : "none");
    if (!axes) return;
    handle ??= makeHandle();
    for (const [name, value] of [["label", told.label], ["valuemin", told.min], ["valuemax", told.max], ["valuenow", told.value], ["valuetext", told.words]])
      handle.setAttribute(`aria-${name}`, value);
    const [x, y, width, height] = axes.box, [rect, grip, mark] = handle.children;
    const at = x + width * Math.min(1, Math.max(0, shareOf(told.value, axes.x)));
    for (const [name, value] of Object.entries({ x: at - 9, y, height })) rect.setAttribute(name, value);
    for (const part of [grip, mark]) part.setAttribute("transform", `translate(${at} ${y + height - 16})`);
  }
  const wide = new ResizeObserver(() => { if (state.size && root.clientWidth && narrow !== root.clientWidth < 600) layOut(); });
  wide.observe(root);
  return {
    root,
    update(next) {
      const first = !state.size && next.size, before = state;
      state = { ...state, ...next };
      if (next.still !== undefined && next.still !== before.still) still.innerHTML = own(state.still);
      if (next.moving !== undefined && next.moving !== before.moving) moving.innerHTML = own(state.moving);
      stale ||= narrow && next.panels && JSON.stringify(next.panels) !== JSON.stringify(before.panels);
      if (first || (stale && !busy)) layOut(); // after a drag: the handle under the hand stays
      whole.setAttribute("aria-label", state.alt);
      if (state.size) put();
    },
    destroy() { wide.disconnect(); uncolour(); root.remove(); },
  };
}

/** The hash of the address as name → text, and the other way round: a link shows what its sender saw. */
export const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export const writeAddress = (values) => history.replaceState(null, "", `#${new URLSearchParams({ ...readAddress(), ...values })}`);

/** For anywidget: what the kernel draws, one update a message. */
function render({ model, el }) {
  const shown = mount(el);
  const names = ["size", "still", "moving", "alt", "axes", "panels"];
  let stale = new Set(names), due = false;
  const show = () => {
    due = false;
    shown.update(Object.fromEntries([...stale].map((name) => [name, model.get(name)])));
    stale = new Set();
  };
  const listeners = names.map((name) => [`change:${name}`, () => {
    stale.add(name);
    if (!due) { due = true; queueMicrotask(show); }
  }]);
  for (const [event, listener] of listeners) model.on(event, listener);
  show();
  return () => { for (const [event, listener] of listeners) model.off(event, listener); shown.destroy(); };
}
export default { render };
