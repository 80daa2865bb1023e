"""Take the README's picture, the playground as it trains: python .ci/picture.py (needs playwright, and a Chromium on PATH)"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import sync_playwright

from rlviz.runs.playground import standalone_page

OUT = Path(__file__).parent.parent / "notebooks" / "images" / "rlviz.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1280, 690
SHOWN = "#play.enough=3"  # no slow first step
STEPS = 42  # where the language breaks


def main() -> None:
    """Train in the page, and take what is seen then."""
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "playground.html"
        file.write_text(standalone_page(), encoding="utf-8")
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(f"{file.as_uri()}{SHOWN}")
        while tab.evaluate("globalThis.rlviz?.run.step ?? 0") < STEPS:
            tab.wait_for_timeout(200)
        tab.get_by_role("button", name="Pause").click()
        tab.wait_for_timeout(500)
        shot = tab.screenshot()
        browser.close()
    OUT.parent.mkdir(exist_ok=True)
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(128).save(OUT, optimize=True)


if __name__ == "__main__":
    main()
