"""PNGs with a palette: what fills an area stays, what edges a letter moves by half a step at most, and texts are kept."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from rlviz.page.image import in_palette, png
from rlviz.page.style import new_figure, save_figure
from rlviz.pictures import explore_clip

GREY = np.arange(256, dtype=np.uint8)


def encoded(pixels: np.ndarray, **how: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png", **how)
    return file.getvalue()


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")).astype(int)


def picture(*, fill: int = 200) -> np.ndarray:
    """Return 400 × 1000 opaque pixels: white, a fill of so many, which is no multiple of 17, and one pixel of each grey."""
    pixels = np.full((400, 1000, 4), 255, dtype=np.uint8)
    pixels[0, :256, :3] = GREY[:, None]
    pixels[1, :fill, :3] = (230, 159, 3)
    return pixels


def test_fills_are_kept_and_edges_move_by_half_a_step_at_most():
    """16 levels are 17 apart, from 0 to 255: the farthest that a grey can be from one is 8."""
    before = picture(fill=200)
    image = Image.open(io.BytesIO(in_palette(encoded(before))))
    after = decoded(in_palette(encoded(before)))
    assert image.mode == "P"
    assert (after[1] == before[1]).all() and (after[2:] == 255).all()
    moved = np.abs(after[0, :256, 0] - GREY)
    assert moved.max() == 8 and len(np.unique(after[0, :256, 0])) == 16
    assert after[0, 0, 0] == 0 and after[0, 255, 0] == 255


def test_texts_and_resolution_are_kept():
    texts = PngInfo()
    texts.add_text("Description", "ε rises – “a”")
    image = Image.open(io.BytesIO(in_palette(encoded(picture(), pnginfo=texts, dpi=(150, 150)))))
    assert image.info["Description"] == "ε rises – “a”"
    assert round(image.info["dpi"][0]) == 150


def test_every_way_from_a_figure_to_a_png_has_a_palette(tmp_path):
    figure = new_figure(4, 3)
    figure.subplots().plot([1, 2])
    save_figure(figure, tmp_path / "x.png", description="words")
    data, _ = figure._repr_mimebundle_()
    written = {
        "saved": (tmp_path / "x.png").read_bytes(),
        "shown": base64.b64decode(data["image/png"]),
        "explorer": explore_clip().png,
        "figure": png(figure),
    }
    images = {name: Image.open(io.BytesIO(one)) for name, one in written.items()}
    assert {name: image.mode for name, image in images.items()} == dict.fromkeys(written, "P")
    assert images["figure"].size == (400, 300) and images["saved"].size == (600, 450)
