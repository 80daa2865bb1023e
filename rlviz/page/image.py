"""Figures as small PNG files: at most 256 colours; those that fill an area stay as they are."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

FILLS = 0.0005  # of the pixels, 220 of 1000 × 440: a colour that has as many is kept
STEP = 17  # between the 16 levels of a channel, black and white among them, of all other colours


def png(
    figure: Figure, *, dpi: float | Literal["figure"] = "figure", metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return a figure as a PNG with a palette; dpi, metadata: of `Figure.savefig`."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, metadata=metadata, pil_kwargs={"compress_level": 1})
    return in_palette(file.getvalue())


def in_palette(data: bytes) -> bytes:
    """Return a PNG with a palette, its texts and its resolution kept; as it is, if it has a palette or is translucent.

    Nearly all colours of a figure are the soft edges of its letters and lines. There, half a step more or less cannot be seen;
    a file is small if there are few of them. Where more than 256 colours are left, median cut and one round of k-means choose.
    """
    image = Image.open(io.BytesIO(data))
    pixels = np.asarray(image.convert("RGBA"))
    kinds, kind_of, count = np.unique(pixels.view(np.uint32), return_inverse=True, return_counts=True)
    colours = kinds.view(np.uint8).reshape(-1, 4)
    if image.mode == "P" or colours[:, 3].min() < 255:
        return data
    edges = count < FILLS * count.sum()
    colours[edges] = np.rint(colours[edges] / STEP) * STEP
    few = Image.fromarray(colours[kind_of].reshape(pixels.shape)).convert("RGB")
    texts = PngInfo()
    for name, text in image.info.items():
        if isinstance(name, str) and isinstance(text, str):
            texts.add_text(name, text)
    file = io.BytesIO()
    few.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(
        file, "png", optimize=True, pnginfo=texts, dpi=image.info.get("dpi")
    )
    return file.getvalue()
