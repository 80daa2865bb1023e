"""Jupyter's sliders, for what trains: each holds one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from rlviz.pictures.idea import check_number
from small_models.checks import check_type


def tidy(value: float) -> float:
    """Return 0.21 for the 0.21000000000000005 that a slider makes of 0.2 and a step of 0.01, and 0 for what is next to it."""
    return float(f"{round(value, 12):.10g}") + 0.0 if isinstance(value, float) else value


class Control:
    """A slider with a number box beside it: the box carries the name that screen readers read, and takes exact values.

    name: of the argument that it sets. words: its label.
    """

    def __init__(self, name: str, slider: widgets.Widget, box: widgets.Widget, words: str = "") -> None:
        self.name, self.slider, self.box = name, slider, box
        slider.readout = False
        slider.layout.width = "185px"
        box.description = words or name
        box.style.description_width = "130px"
        box.layout.width = "215px"
        box.tooltip = words or name
        widgets.link((slider, "value"), (box, "value"), transform=(tidy, tidy))
        self.row = widgets.HBox([box, slider])

    @property
    def value(self) -> Any:
        return tidy(self.slider.value)


def float_control(name: str, value: float, low: float, high: float, step: float, words: str = "") -> Control:
    """Return a control of a number between `low` and `high`, or as far as `value` lies; it redraws while the slider moves.

    Raises ValueError for what is no finite number.
    """
    check_number(name, value)
    low, high = min(low, value), max(high, value)
    return Control(
        name,
        widgets.FloatSlider(value=value, min=low, max=high, step=step, continuous_update=True),
        widgets.BoundedFloatText(value=value, min=low, max=high, step=step),
        words,
    )


def int_control(name: str, value: int, low: int, high: int, words: str = "") -> Control:
    """Return a control of a whole number between `low` and `high`, or as far as `value` lies; refuses what is none."""
    check_type(name, value, int)
    low, high = min(low, value), max(high, value)
    return Control(
        name,
        widgets.IntSlider(value=value, min=low, max=high, continuous_update=True),
        widgets.BoundedIntText(value=value, min=low, max=high),
        words,
    )


def choice_control(name: str, value: float, options: Sequence[float], words: str = "") -> Control:
    """Return a control that picks one of `options`, for numbers that change by factors; `value` joins them if it is none."""
    check_number(name, value)
    named = [(f"{option:g}", option) for option in sorted({*options, value})]
    return Control(
        name, widgets.SelectionSlider(options=named, value=value), widgets.Dropdown(options=named, value=value), words
    )
