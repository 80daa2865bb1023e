"""Take the README's picture, an explorer as a page shows it: python .ci/picture.py (needs playwright, and a Chromium on PATH)"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from rlviz import DCPO, GRPO
from rlviz.pictures import explore_clip
from rlviz.pictures.frozen import freeze, page

OUT = Path(__file__).parent.parent / "notebooks" / "images" / "rlviz.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1000, 720


def main() -> None:
    """Freeze an explorer, open it at twice the size, point at it, and cut out what is shown."""
    explorer = explore_clip(DCPO, old_prob=0.55, beside=(GRPO,))
    grid = {"algorithm": (GRPO, DCPO), "eps_low": (0.16, 0.2), "eps_high": (0.2, 0.28), "old_prob": (0.1, 0.3, 0.55)}
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "clip.html"
        file.write_text(page("rlviz", freeze(explorer, grid)), encoding="utf-8")
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=2)
        tab.goto(file.as_uri())
        shown = tab.locator(".rl-explorer")
        shown.wait_for()
        graph, call = (tab.locator(name).last.bounding_box() for name in (".rl-picture > svg", ".rl-call"))
        assert graph is not None
        assert call is not None
        tab.mouse.move(graph["x"] + 0.32 * graph["width"], graph["y"] + 0.36 * graph["height"])
        whole = {"x": 0, "y": 0, "width": WIDTH, "height": call["y"] + call["height"] + 10}
        shot = tab.screenshot(clip=whole)
        browser.close()
    OUT.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
