"""Key to second frame: how long an explorer in JupyterLab takes to show what an arrow key asked for.

`rlviz lab` runs, one notebook holds every explorer, and a browser presses an arrow key on the first slider of each, again and
again. The clock is the page's own: from the key's event to the second frame after the picture changed (the frame in which the
change is drawn, and the one that tells that it was); two frames at 60 Hz are 33 ms.

    python tests/benchmarks/bench_touch.py [MOVES] [NAME …]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

from conftest import BROWSERS, WINDOW, Lab, run_all, serving, shutil, started, watched, write_notebook
from playwright.sync_api import Locator, Page

from rlviz.pictures.catalogue import EXPLORERS

MOVES, PATIENCE_MS = 30, 1500
TIMED = """(slider, patience) => new Promise((resolve) => {
  const picture = slider.closest(".rlviz-picture");
  let began = null;
  const end = (took) => { observer.disconnect(); resolve(took); };
  const observer = new MutationObserver(() => {
    if (began !== null) requestAnimationFrame(() => requestAnimationFrame(() => end(performance.now() - began)));
  });
  observer.observe(picture, { subtree: true, childList: true, attributes: true, characterData: true });
  slider.addEventListener("keydown", () => { began = performance.now(); }, { once: true, capture: true });
  setTimeout(() => end(null), patience);
})"""


def milliseconds(page: Page, slider: Locator, key: str) -> float | None:
    """Return how long a key takes, None where the picture does not change."""
    slider.focus()
    handle = slider.element_handle()
    page.evaluate("([slider, patience]) => { window.timed = (" + TIMED + ")(slider, patience) }", [handle, PATIENCE_MS])
    page.keyboard.press(key)
    took = page.evaluate("() => window.timed")
    page.wait_for_timeout(100)
    return None if took is None else float(took)


def measure(page: Page, name: str, moves: int) -> list[float]:
    """Return the milliseconds of so many keys on the first slider of an explorer; at its end, the other way."""
    cell = page.locator(".jp-Notebook .jp-CodeCell", has=page.locator(".jp-InputArea", has_text=f"explore_{name}()"))
    cell.scroll_into_view_if_needed()
    page.wait_for_timeout(1500)
    slider = cell.locator(".rlviz-picture input[type=range]").first
    keys, found = ["ArrowRight", "ArrowLeft"], list[float]()
    for _ in range(moves):
        took = milliseconds(page, slider, keys[0])
        if took is None:
            keys.reverse()
        else:
            found.append(took)
    return found


def main(arguments: list[str]) -> None:
    moves = int(arguments[0]) if arguments else MOVES
    names = arguments[1:] or EXPLORERS
    chromium = next(path for path in map(shutil.which, BROWSERS) if path)
    root = Path(tempfile.mkdtemp(prefix="rlviz-touch-"))
    cells = ["%matplotlib inline\nfrom rlviz import *", *(f"explore_{name}()" for name in names)]
    with serving(root, "lab", "--dir", str(root / "course")) as url:
        lab = Lab(url, root / "course")
        write_notebook(lab.folder / "touch.ipynb", cells)
        address = f"http://127.0.0.1:{lab.port}/lab/tree/touch.ipynb?token={lab.token}"
        with started(chromium) as browser:
            notebook = watched(browser.new_page(viewport=WINDOW), address)
            run_all(notebook.page, cells=len(cells))
            print(f"{'explorer':14}{'median ms':>10}{'p95 ms':>9}{'moves':>7}")
            for name in names:
                took = measure(notebook.page, name, moves)
                last = quantiles(took, n=20)[-1] if len(took) > 1 else float("nan")
                print(f"{name:14}{median(took) if took else float('nan'):10.0f}{last:9.0f}{len(took):7}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
