// A picture in a page: `mount` shows one, `explorer` puts controls and words around it, `frozen` answers from frames that were
// drawn before, and `render` lets a kernel answer, through anywidget. No formula stands here: pixels and axes are all it knows.
const NS = "http://www.w3.org/2000/svg";
const CSS = `
.rl-box{--k:var(--jp-content-font-color1,var(--vscode-editor-foreground,CanvasText));--w:var(--jp-layout-color0,var(--vscode-editor-background,Canvas));
--t:#444;--g:#7f7f7f;--f:#e3e3e3;--b:#0072b2;--v:#d55e00;--n:#009e73;--p:#aa4499;--s:#a6cfe8;--o:#8c510a;--i:#332288;--edge:#767676;
color:var(--k);font:15px/1.4 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;max-width:1000px;position:relative;box-sizing:border-box}
.rl-box.rl-dark{--t:#c8c8c8;--f:#454545;--b:#56a9e0;--v:#f0803c;--n:#2fbf93;--p:#d98acb;--s:#28506b;--o:#d9a05b;--i:#a29bf0;--g:#9a9a9a;--edge:#9a9a9a}
.rl-box *{box-sizing:border-box}
.rl-picture svg{display:block;width:100%;height:auto;margin:0 auto;font-family:"DejaVu Sans",Verdana,"Bitstream Vera Sans",sans-serif;touch-action:pan-y;overflow:hidden}
.rl-picture text{white-space:pre}
.rl-handle{cursor:ew-resize;outline:none;touch-action:none}.rl-handle.y{cursor:ns-resize}
.rl-handle .grip{fill:var(--w);stroke:var(--k);stroke-width:2}.rl-handle .mark{fill:var(--k)}
.rl-handle:hover .grip,.rl-handle.busy .grip{fill:var(--s)}.rl-handle:focus-visible .grip{stroke:var(--v);stroke-width:4}
.rl-read{pointer-events:none}
.rl-controls{display:flex;flex-wrap:wrap;gap:4px 18px;align-items:center;margin:2px 0}
.rl-control{display:flex;align-items:center;gap:6px;min-height:28px}.rl-control[hidden]{display:none}
.rl-control .name{white-space:nowrap}
.rl-control input[type=range]{width:120px;accent-color:var(--b);margin:0}
.rl-control input[type=number]{width:78px}.rl-value{min-width:2.6em;font-variant-numeric:tabular-nums}
.rl-box input[type=number],.rl-box select,.rl-box button{font:inherit;font-size:14px;color:var(--k);background:var(--w);border:1px solid var(--edge);border-radius:4px;padding:1px 5px;max-width:16em}
.rl-box button[aria-pressed=true]{background:var(--b);color:var(--w);border-color:var(--b)}
.rl-box :focus-visible{outline:2px solid var(--v);outline-offset:2px}.rl-box .rl-handle:focus-visible{outline:none}
.rl-chips{flex-wrap:wrap;gap:4px}.rl-box .rl-chips button{font-size:13px;padding:0 6px}.rl-box details>summary{cursor:pointer;width:fit-content}.rl-box p{margin:4px 0}
.rl-said{font-weight:600}.rl-call{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:13px;overflow-wrap:anywhere}
@media (max-width:600px){.rl-controls>.rl-control{width:100%}.rl-control .rl-control{flex:1 1 35%}.rl-control .name{min-width:8em}.rl-control input[type=range]{flex:1;width:60px}}`;
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
const isLog = (axes, along) => axes.scale[along === "x" ? 0 : 1] === "log";
const shareOf = (value, [low, high], log) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
const valueAt = (share, [low, high], log) => (log ? low * (high / low) ** share : low + share * (high - low));
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
 * Put a picture into `el`. on.drag(handle, place) and on.step(handle, steps) tell what was done to a handle, on.point(axes, x, y)
 * where a person clicked, in the numbers of the axes. `update` takes {size, still, moving, alt, axes, panels, handles}; what is
 * absent stays as it was.
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
  let state = { handles: [], panels: [], axes: [], alt: "" }, views = [], narrow = null, handles = [], busy = null, stale = false;

  function layOut() {
    stale = false;
    narrow = root.clientWidth > 0 && root.clientWidth < 600;
    const focused = handles.indexOf(root.getRootNode().activeElement);
    for (const view of views) view.svg.remove();
    source.remove();
    const stacked = narrow && state.panels.length > 1;
    if (stacked) { source.append(whole); root.append(source); }
    views = (stacked ? state.panels : [[0, 0, ...state.size]]).map((crop) => {
      const view = svg("svg", { viewBox: crop.join(" ") });
      if (stacked) view.style.maxWidth = `${crop[2]}px`; // a narrow part is not drawn larger than the others
      if (stacked) svg("use", { href: `#${id}all` }, view); else view.append(whole);
      root.append(view);
      const made = { svg: view, crop, handles: svg("g", {}, view), read: svg("g", { class: "rl-read" }, view) };
      view.addEventListener("pointermove", (event) => read(made, event));
      view.addEventListener("pointerleave", () => made.read.replaceChildren());
      view.addEventListener("click", (event) => { const at = where(made, event); if (at && !busy) on.point?.(at.axes, at.x, at.y); });
      return made;
    });
    handles = [];
    put();
    if (focused >= 0) handles[focused]?.focus();
  }
  const pixel = (view, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(view.svg.getScreenCTM().inverse());
  const along = (axes, direction, at) => {
    const [x, y, width, height] = axes.box;
    return direction === "x" ? valueAt((at.x - x) / width, axes.x, isLog(axes, "x")) : valueAt(1 - (at.y - y) / height, axes.y, isLog(axes, "y"));
  };
  function where(view, event) {
    const at = pixel(view, event);
    const place = state.axes.findIndex(({ on, box: [x, y, width, height] }) => on && at.x >= x && at.x <= x + width && at.y >= y && at.y <= y + height);
    return place < 0 ? null : { axes: place, px: at, x: along(state.axes[place], "x", at), y: along(state.axes[place], "y", at) };
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
      lines.push([`${name} ${short(along(axes, "y", { y: top }))}`, top]);
      svg("circle", { cx: at.px.x, cy: top, r: 4, fill: "var(--w)", stroke: "var(--k)", "stroke-width": 2 }, view.read);
    }
    const said = [`${short(at.x)}${lines.length ? "" : `, ${short(at.y)}`}`, ...lines.sort((a, b) => a[1] - b[1]).map((line) => line[0])];
    const left = at.px.x > x + width / 2;
    const top = Math.min(Math.max(at.px.y - 8 - 18 * (said.length - 1), y + 14), y + height - 18 * (said.length - 1) - 4);
    const text = svg("text", { "font-size": 14, fill: "var(--k)", stroke: "var(--w)", "stroke-width": 5, "paint-order": "stroke", "text-anchor": left ? "end" : "start" }, view.read);
    for (const [row, words] of said.entries()) svg("tspan", { x: at.px.x + (left ? -10 : 10), y: top + 18 * row, "font-weight": row ? "normal" : "bold" }, text).textContent = words;
  }

  function handle(place) {
    const { axes, along: direction } = state.handles[place];
    const [left, top, across, down] = state.axes[axes].box, middle = [left + across / 2, top + down / 2];
    const view = views.find(({ crop: [x, y, width, height] }) => x <= middle[0] && middle[0] <= x + width && y <= middle[1] && middle[1] <= y + height) ?? views[0];
    const group = svg("g", { class: `rl-handle ${direction}`, tabindex: 0, role: "slider", "aria-orientation": direction === "x" ? "horizontal" : "vertical" }, view.handles);
    let held; // the axes as they were when the drag began: limits that follow the control would run away under the hand
    svg("rect", { fill: "transparent" }, group);
    svg("circle", { class: "grip", r: 9 }, group);
    svg("path", { class: "mark", d: direction === "x" ? "M-6 0l4-3.5v7zM6 0l-4-3.5v7z" : "M0-6l-3.5 4h7zM0 6l-3.5-4h7z" }, group);
    group.addEventListener("pointerdown", (event) => {
      busy = group;
      held = state.axes[axes];
      group.setPointerCapture(event.pointerId);
      group.classList.add("busy");
      group.focus();
      view.read.replaceChildren();
      event.preventDefault();
    });
    group.addEventListener("pointermove", (event) => {
      if (busy === group) on.drag?.(place, along(held, direction, pixel(view, event)));
    });
    const end = () => { group.classList.remove("busy"); setTimeout(() => { if (busy === group) busy = null; if (stale && !busy) layOut(); }); };
    group.addEventListener("pointerup", end);
    group.addEventListener("lostpointercapture", end);
    group.addEventListener("click", (event) => event.stopPropagation());
    group.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
      if (steps === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation(); // JupyterLab moves between cells with arrow keys
      on.step?.(place, steps);
    });
    return group;
  }
  /** Place the handles, and say what each is and stands at. */
  function put() {
    while (handles.length < state.handles.length) handles.push(handle(handles.length));
    for (const [place, group] of handles.entries()) {
      const one = state.handles[place], axes = state.axes[one?.axes];
      const hidden = !axes || one.hidden;
      group.setAttribute("display", hidden ? "none" : "inline");
      if (hidden) continue;
      const share = Math.min(1, Math.max(0, shareOf(one.at, one.along === "x" ? axes.x : axes.y, isLog(axes, one.along))));
      for (const [name, value] of [["label", one.label], ["valuemin", one.min], ["valuemax", one.max], ["valuenow", one.value], ["valuetext", one.words]])
        if (value !== undefined) group.setAttribute(`aria-${name}`, value);
      const [x, y, width, height] = axes.box, [rect, grip, mark] = group.children;
      const at = one.along === "x" ? [x + share * width, y + height - 16 - 24 * (place % 2)] : [x + width - 16 - 24 * (place % 2), y + (1 - share) * height];
      const area = one.along === "x" ? { x: at[0] - 9, y, width: 18, height } : { x, y: at[1] - 9, width, height: 18 };
      for (const key in area) rect.setAttribute(key, area[key]);
      grip.setAttribute("cx", at[0]);
      grip.setAttribute("cy", at[1]);
      mark.setAttribute("transform", `translate(${at[0]} ${at[1]})`);
    }
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

/** A control as a page has it: its row, and `show`, which sets it to what it is told. set(value) tells what a person chose. */
function control(told, set) {
  const row = make("div", { className: "rl-control" });
  const name = make("span", { className: "name", textContent: told.label });
  const range = (label, place) => {
    const slider = make("input", { type: "range", "aria-label": label });
    const box = told.kind === "stops" ? make("span", { className: "rl-value" }) : make("input", { type: "number", "aria-label": label });
    slider.addEventListener("input", () => set(+slider.value, place));
    box.addEventListener("change", () => { if (box.value !== "") set(+box.value, place); });
    return [slider, box];
  };
  if (told.kind === "choice") {
    const select = make("select", { "aria-label": told.label });
    select.addEventListener("change", () => set(select.selectedIndex));
    row.append(name, select);
    return { row, show(next) {
      const names = JSON.stringify(next.options);
      if (select.dataset.names !== names) select.replaceChildren(...next.options.map((words) => make("option", { textContent: words })));
      select.dataset.names = names;
      select.selectedIndex = next.value;
    } };
  }
  if (told.kind === "chips") {
    row.classList.add("rl-chips");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", told.label);
    let chosen = [];
    const buttons = told.options.map((words, place) => {
      const button = make("button", { type: "button", textContent: words });
      button.addEventListener("click", () => set(chosen.includes(place) ? chosen.filter((one) => one !== place) : [...chosen, place].slice(-told.most)));
      return button;
    });
    row.append(name, ...buttons);
    return { row, show(next) {
      chosen = next.value;
      for (const [place, button] of buttons.entries()) button.setAttribute("aria-pressed", chosen.includes(place));
    } };
  }
  const many = told.kind === "numbers" ? told.value.length : 1;
  let values = [];
  const send = set;
  if (told.kind === "numbers") set = (value, place) => send(values.map((one, i) => (i === place ? value : one)));
  const parts = Array.from({ length: many }, (_, place) => range(many > 1 ? `${told.label} ${place + 1}` : told.label, place));
  row.append(name, ...(many > 1 ? parts.map((pair) => make("span", { className: "rl-control" }, ...pair)) : parts.flat()));
  if (many > 1) row.style.flexWrap = "wrap";
  return { row, show(next) {
    values = [next.value].flat();
    for (const [place, [slider, box]] of parts.entries()) {
      const limits = next.kind === "stops" ? [0, next.options.length - 1, 1] : [next.min, next.max, next.step];
      for (const part of next.kind === "stops" ? [slider] : [slider, box]) [part.min, part.max, part.step] = limits;
      slider.value = values[place];
      slider.setAttribute("aria-valuetext", next.kind === "numbers" ? values[place] : next.words);
      if (next.kind === "stops") box.textContent = next.words; else if (box.getRootNode().activeElement !== box || box.value !== String(values[place])) box.value = values[place];
    }
  } };
}

/**
 * Put controls, a picture and words into `el`. on.set(name, value) tells what a person chose with a control, on.drag(handle, place)
 * with a handle. `update` takes what `mount` takes and {parts, conclusion, details, call}.
 */
export function explorer(el, on = {}) {
  const root = make("div", { className: "rl-explorer" });
  const [main, more] = [0, 0].map(() => make("div", { className: "rl-controls" }));
  const fold = make("details", {}, make("summary", { textContent: "More" }), more);
  const place = make("div");
  const said = make("p", { className: "rl-said", role: "status", "aria-live": "polite" });
  const rest = make("p"), call = make("p", { className: "rl-call" });
  const details = make("details", {}, make("summary", { textContent: "Details" }), rest);
  root.append(main, fold, place, said, details, call);
  el.append(root);
  const uncolour = coloured(root);
  let parts = [], controls = {}, handles = [], later = null;
  const part = (name) => parts.find((one) => one.name === name);
  let dragged = false, keys = []; // keys pressed before the answer to a drag go on from where it leads
  const go = (handle, steps) => {
    const { control: name, sign } = handles[handle], told = part(name);
    const [low, high, step] = told.kind === "range" ? [told.min, told.max, told.step] : [0, told.options.length - 1, 1];
    const to = Number.isFinite(steps) ? told.value + sign * steps * step : sign * steps > 0 ? high : low;
    choose(name, Math.min(high, Math.max(low, +to.toPrecision(10))));
  };
  const picture = mount(place, {
    drag(handle, at) { dragged = true; on.drag?.(handle, at); },
    point(axes, x, y) {
      for (const [place, one] of handles.entries()) if (one.click && !one.hidden && one.axes === axes) on.drag?.(place, one.along === "x" ? x : y);
    },
    step: (handle, steps) => (dragged ? keys.push([handle, steps]) : go(handle, steps)),
  });
  const choose = (name, value) => {
    const told = part(name);
    if (JSON.stringify(told.value) === JSON.stringify(value)) return;
    told.value = value; // a second key, pressed before the answer, goes on from here
    on.set?.(name, value);
  };
  return {
    root,
    parts: () => parts,
    update(next) {
      if (next.parts) {
        parts = structuredClone(next.parts);
        for (const told of parts) {
          if (!controls[told.name]) {
            controls[told.name] = control(told, (value) => choose(told.name, value));
            (told.rare ? more : main).append(controls[told.name].row);
          }
          controls[told.name].row.hidden = told.hidden;
          controls[told.name].show(told);
        }
        fold.hidden = !parts.some((told) => told.rare && !told.hidden);
        dragged = false;
      }
      if (next.handles) handles = next.handles;
      if (next.handles || next.parts) {
        next = { ...next, handles: handles.map((one) => ({ ...one, ...(({ label, min, max, value, words, options }) => ({ label, min: min ?? 0, max: max ?? options?.length - 1, value, words }))(part(one.control)) })) };
      }
      picture.update(next);
      if (!dragged) for (const [handle, steps] of keys.splice(0)) go(handle, steps);
      clearTimeout(later); // said when the hand rests, not for each step on the way
      const { conclusion, details: more_words, call: line } = next;
      if (more_words !== undefined) { rest.textContent = more_words; details.hidden = !more_words; }
      if (line !== undefined) call.textContent = line;
      if (conclusion !== undefined) later = setTimeout(() => { if (said.textContent !== conclusion) said.textContent = conclusion; }, said.textContent ? 120 : 0);
    },
    destroy() { picture.destroy(); uncolour(); root.remove(); },
  };
}

/** Return what was packed as JSON, gzip and base64. */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

/** Take the picture out of sight that a saved output holds after the live one, for places where no script runs. */
export function hideTwin(el) {
  const next = el.closest(".jp-OutputArea-child, .output_area, .cell-output")?.nextElementSibling;
  if (next?.querySelector("img")) next.hidden = true;
}

/** The hash of the address as name → text, and the other way round: a link shows what its sender saw. */
export const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export const writeAddress = (values) => history.replaceState(null, "", `#${new URLSearchParams({ ...readAddress(), ...values })}`);

/**
 * Show frames that were drawn before, of an explorer over a grid of its controls. linked: its state is part of the address.
 * prefix: of its names there, where another picture of the page is linked, too.
 */
export function frozen(el, data, { linked = false, prefix = "" } = {}) {
  const at = data.controls.map((one) => one.value);
  const wanted = linked ? readAddress() : {};
  for (const [place, one] of data.controls.entries()) {
    const index = one.options.indexOf(wanted[prefix + one.name]);
    if (index >= 0) at[place] = index;
  }
  const number = (places) => places.reduce((found, place, i) => found * data.controls[i].options.length + place, 0);
  const frame = (places) => data.frames[data.index[number(places)]];
  const replaced = (place, value) => at.map((one, i) => (i === place ? value : one));
  const placeOf = (name) => data.controls.findIndex((one) => one.name === name);
  const shown = explorer(el, {
    set(name, value) { at[placeOf(name)] = value; show(); },
    drag(handle, to) {
      // the frame, among those along the handle's control, in which the handle stands nearest to the pointer
      const place = placeOf(data.handles[handle].control), log = data.axes[frame(at).still][data.handles[handle].axes].scale[data.handles[handle].along === "x" ? 0 : 1] === "log";
      const away = (value) => { const there = frame(replaced(place, value)).at[handle]; return there === null ? Infinity : Math.abs(log ? Math.log(there / to) : there - to); };
      at[place] = data.controls[place].options.reduce((best, _, value) => (away(value) < away(best) ? value : best), at[place]);
      show();
    },
  });
  function show() {
    const now = frame(at);
    const handles = data.handles.map((one, i) => ({ ...one, at: now.at[i], hidden: now.at[i] === null }));
    const parts = data.controls.map((one, i) => ({ ...one, value: at[i], words: one.options[at[i]], hidden: now.hidden?.includes(one.name) ?? false, rare: false }));
    const ordered = data.order.map((place) => parts[place]); // as the live explorer has them; the grid's order is the frames'
    shown.update({
      size: data.size, panels: data.panels[now.still], axes: data.axes[now.still], still: data.stills[now.still], alt: `${data.alt} ${now.said.join(" ")}`,
      moving: now.moving.map((piece) => data.pieces[piece]).join(""), handles, parts: ordered, conclusion: now.said[0], details: now.said[1], call: now.call,
    });
    if (linked) writeAddress(Object.fromEntries(parts.map((one) => [prefix + one.name, one.words])));
  }
  show();
  return shown;
}

/** For anywidget: traits in; `asked`, of which only the latest waits while the kernel is busy, out. */
function render({ model, el }) {
  const whole = model.get("parts") !== undefined;
  let turn = model.get("answered") ?? 0;
  const ask = (what) => { model.set("asked", { turn: ++turn, ...what }); model.save_changes(); };
  const on = { set: (control, to) => ask({ control, to }), drag: (handle, place) => ask({ handle, place }) };
  const shown = whole ? explorer(el, on) : mount(el);
  const names = ["size", "still", "moving", "alt", "axes", "panels", ...(whole ? ["handles", "parts", "conclusion", "details", "call"] : [])];
  let stale = new Set(names), due = false;
  const show = () => {
    due = false;
    // what was answered before the last request would set controls back under a person's hand
    const late = whole && model.get("answered") < turn;
    shown.update(Object.fromEntries([...stale].filter((name) => !(late && name === "parts")).map((name) => [name, model.get(name)])));
    stale = new Set(late && stale.has("parts") ? ["parts"] : []);
  };
  const listeners = [...names, ...(whole ? ["answered"] : [])].map((name) => [`change:${name}`, () => {
    if (name !== "answered") stale.add(name);
    if (!due) { due = true; queueMicrotask(show); } // one update a message
  }]);
  for (const [event, listener] of listeners) model.on(event, listener);
  show();
  if (model.get("twin")) requestAnimationFrame(() => hideTwin(el));
  return () => { for (const [event, listener] of listeners) model.off(event, listener); shown.destroy(); };
}
export default { render };
