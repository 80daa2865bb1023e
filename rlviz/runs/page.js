// What a panel's kernel knows of its page: that it is still there, and its address, where the page is the panel's own.
const BEAT_MILLISECONDS = 5000;

/** Call `beat` every few seconds, also where the tab is hidden: a browser slows the timers of hidden pages, but not of workers. */
function every(beat) {
  try {
    const source = URL.createObjectURL(new Blob([`setInterval(() => postMessage(0), ${BEAT_MILLISECONDS})`]));
    const worker = new Worker(source);
    worker.onmessage = beat;
    URL.revokeObjectURL(source);
    return () => worker.terminate();
  } catch { // a page whose policy lets no worker in
    const timer = setInterval(beat, BEAT_MILLISECONDS);
    return () => clearInterval(timer);
  }
}

function render({ model, el }) {
  el.style.display = "none";
  const own = document.body.dataset.voila !== undefined; // in a notebook the address is not the panel's
  const beat = () => { model.set("beat", (model.get("beat") ?? 0) + 1); model.save_changes(); };
  const tell = () => { model.set("wanted", location.hash.slice(1)); model.save_changes(); };
  const follow = () => history.replaceState(null, "", model.get("address") ? `#${model.get("address")}` : location.pathname + location.search);
  if (own) {
    if (location.hash.length > 1) tell();
    addEventListener("hashchange", tell);
    model.on("change:address", follow);
  }
  beat();
  const end = every(beat);
  return () => { end(); removeEventListener("hashchange", tell); model.off("change:address", follow); };
}
export default { render };
