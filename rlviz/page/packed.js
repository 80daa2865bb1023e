// What Python packed for a page, and the place where it is shown. An output of a notebook carries this in the clear, all else packed.

/** Return the text that `packed_text` of widget.py packed: gzip, base64. */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Return what `pack` of widget.py packed: JSON, gzip, base64. */
export const unpack = async (text) => JSON.parse(await unpacked(text));

/** Return the first place of this name without a mark. */
const vacant = (name, mark) => document.querySelector(`[data-rlviz="${name}"]:not([data-${mark}])`);

/** Hide the PNG that stands in for the picture where no script runs: the next output of the same cell. */
export function hideTwin(element) {
  const output = element.closest(".jp-OutputArea-child, .output_area, .cell-output");
  const image = output?.nextElementSibling?.querySelector("img");
  if (image) output.nextElementSibling.style.display = "none";
}

/**
 * Run a packed script, and its start(name, data), if there is a place to fill. The place is found at once: JupyterLab may take a
 * cell out of its page while the script is unpacked, which then runs when the cell is back. A page of its own lets this text run by
 * its hash, which `starting` of widget.py takes. An empty script is that of another output of the same saved notebook, drawn or to be.
 */
export async function load(name, script, data) {
  const place = vacant(name, "awaits");
  if (!place) return;
  place.dataset.awaits = "";
  const shared = (globalThis.rlvizScript ??= {});
  shared.arrives ??= new Promise((resolve) => (shared.arrive = resolve));
  if (script) shared.arrive(script);
  const textContent = `${await unpacked(script || (await shared.arrives))}\nstart("${name}", "${data}");`;
  place.append(Object.assign(document.createElement("script"), { type: "module", textContent }));
}

/** Call show(place, data) with the first place of this name that shows nothing yet, and with what was packed for it. */
export async function startAt(name, packed, show) {
  const place = vacant(name, "live");
  if (!place) return;
  place.dataset.live = "";
  const payload = await unpack(packed);
  hideTwin(place);
  place.replaceChildren();
  show(place, payload);
}
