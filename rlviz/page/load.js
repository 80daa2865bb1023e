// What an output of a notebook carries in the clear: it unpacks the script of the pictures, and runs it at the picture's place.
/** Return the text that `pack` of widget.py packed: gzip, base64. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Return the first place of this name that shows no picture yet. */
export function vacant(name) {
  return document.querySelector(`[data-rlviz="${name}"]:not([data-live])`);
}

/** Run the packed script, and start it with the packed data, if there is a place to fill. */
export async function load(name, script, data) {
  const textContent = `${await unpack(script)}\nstart("${name}", "${data}");`;
  vacant(name)?.append(Object.assign(document.createElement("script"), { type: "module", textContent }));
}
