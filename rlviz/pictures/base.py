"""Colours, sizes and figures of what is drawn by hand, as lessons and the pictures of runs import them from here."""

from rlviz.page.style import (  # noqa: F401
    BLUE,
    CYCLE,
    FAINT,
    GREEN,
    GREY,
    LINE,
    LINE_STYLES,
    TEXT,
    VERMILION,
    dress,
    new_figure,
    plain,
    save_figure,
)

COLOURS = CYCLE
