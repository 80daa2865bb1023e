"""Take the README's picture, an explorer as a page shows it: python .ci/picture.py (needs playwright, and a Chromium on PATH)"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from rlviz import DCPO, GRPO, explore_clip
from rlviz.page.widget import page

OUT = Path(__file__).parent.parent / "notebooks" / "images" / "rlviz.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1180, 720


def main() -> None:
    """Open an explorer in a page, and cut out what stands above its call."""
    explorer = explore_clip(DCPO, old_prob=0.1, beside=(GRPO,), up_to=4.0)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "clip.html"
        file.write_text(page("rlviz", explorer.html()), encoding="utf-8")
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(file.as_uri())
        call = tab.locator(".rlviz-call")
        call.wait_for()
        tab.wait_for_timeout(2000)  # the hint of a handle has moved once
        box = call.bounding_box()
        assert box is not None
        shot = tab.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": box["y"]})
        browser.close()
    OUT.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
