// What Python packed for a page, and the place where it is shown.

/** Return what `pack` of widget.py packed: JSON, gzip, base64. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Hide the PNG that stands in for the picture where no script runs: the next output of the same cell. */
export function hideTwin(element) {
  const output = element.closest(".jp-OutputArea-child, .output_area, .cell-output");
  const image = output?.nextElementSibling?.querySelector("img");
  if (image) output.nextElementSibling.style.display = "none";
}

/** Call show(place, data) with the first place of this name that shows nothing yet, and with what was packed for it. */
export async function startAt(name, packed, show) {
  const place = document.querySelector(`[data-rlviz="${name}"]:not([data-live])`);
  if (!place) return;
  place.dataset.live = "";
  const given = await unpack(packed);
  hideTwin(place);
  place.replaceChildren();
  show(place, given);
}
