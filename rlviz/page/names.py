"""The values of a picture's names at one setting: controls, data, texts and the curve's outputs, as numbers and in texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlviz.page.picture import Channel, Choice, Draws, Picture, Say, Slider

FIELD = re.compile(r"\{(\w+)(?::([^}]*))?\}")
Array = NDArray[np.float64]


class Names:
    """The values of a picture's names, as arrays, as numbers, as conditions and in texts."""

    def __init__(self, picture: Picture, values: Mapping[str, Any], *parts: Mapping[str, Any]) -> None:
        """values: of the controls; parts: data, texts and outputs, of which a later one hides an earlier one."""
        known: dict[str, Any] = {}
        for name, control in picture.controls.items():
            if isinstance(control, Choice):
                known |= {f"{name}={option}": float(option == values[name]) for option in control.options}
            elif isinstance(control, Slider) and control.many:
                known |= {f"{name}{i}": float(number) for i, number in enumerate(values[name], start=1)}
        for part in (values, *parts):
            known |= {name: v.detach().numpy() if hasattr(v, "detach") else v for name, v in part.items()}
        self.known = known

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def array(self, channel: Channel) -> Array:
        """Return a channel as an array of numbers."""
        value = channel if isinstance(channel, int | float) else self.known[channel]
        return np.atleast_1d(np.asarray(value, dtype=float)).ravel()

    def words(self, name: str) -> list[str]:
        """Return a channel that names a list of words, or of numbers to be written out."""
        value = self.known[name]
        return [word if isinstance(word, str) else formatted(float(word), "g") for word in np.ravel(value).tolist()]

    def one(self, channel: Channel) -> float:
        """Return a channel's (first) number."""
        if isinstance(channel, int | float):
            return float(channel)
        array = self.array(channel)
        return float(array[0]) if len(array) else math.nan

    def holds(self, when: str) -> bool:
        """Return whether a condition holds: of a name, that it is known and its first value neither 0 nor NaN."""
        if not when:
            return True
        if when.startswith("!"):
            return not self.holds(when[1:])
        value = self.known.get(when)
        if value is None or isinstance(value, str):
            return bool(value)
        first = self.one(when)
        return first != 0 and not math.isnan(first)

    def fill(self, text: str) -> str:
        """Return a text with its {names} filled in."""

        def field(match: re.Match[str]) -> str:
            value = self.known.get(match[1], match[0])
            if isinstance(value, str):
                return value
            if isinstance(value, list | tuple):
                return ", ".join(map(str, value))
            return formatted(self.one(match[1]), match[2] or "g")

        return FIELD.sub(field, text)

    def conclude(self, sentences: tuple[Say, ...]) -> str:
        """Return the first of the sentences that holds; an empty text where none does."""
        return next((self.fill(sentence.text) for sentence in sentences if self.holds(sentence.when)), "")


def formatted(value: float, spec: str) -> str:
    """Return a number as Python writes it, with a real minus and ∞; "r" is two digits, four where it is next to 1."""
    if math.isnan(value):
        return "no number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if spec == "r":
        spec = ".2f" if abs(value - 1) >= 0.01 else ".4f"
    if spec == "d":
        return f"{round(value)}".replace("-", "−")
    text = format(value, spec)
    if float(text.rstrip("%")) == 0:  # no sign for what rounds to 0
        text = text.lstrip("+-")
    return text.replace("-", "−")


def uniform(shape: tuple[int, ...], of: int, seed: int) -> Array:
    """Return numbers in [0, 1) by a hash of their indices, row by row, `of` indices a row; run.js makes the same."""
    return _hash(_indices(shape, of), seed).reshape(shape)


def _indices(shape: tuple[int, ...], of: int) -> NDArray[np.uint64]:
    row, column = np.divmod(np.arange(math.prod(shape), dtype=np.uint64), np.uint64(shape[-1]))
    return row * np.uint64(of) + column


def _hash(index: NDArray[np.uint64], seed: int) -> Array:
    word = np.uint64(0xFFFFFFFF)
    h = (index ^ np.uint64(seed * 0x9E3779B9 & 0xFFFFFFFF)) * np.uint64(0x85EBCA6B) & word
    h ^= h >> np.uint64(13)
    h = h * np.uint64(0xC2B2AE35) & word
    h ^= h >> np.uint64(16)
    h = h * np.uint64(0x27D4EB2F) & word
    h ^= h >> np.uint64(15)
    return h / 4294967296.0


def drawn(draws: Draws, values: Mapping[str, Any]) -> Array:
    """Return the numbers of a recipe, with these values of the controls for its sizes."""
    shape = tuple(int(values[size]) if isinstance(size, str) else size for size in draws.shape)
    of = draws.of or shape[-1]
    if draws.kind == "uniform":
        return uniform(shape, of, draws.seed)
    # Box and Muller's: a radius and an angle from two hashes.
    index = np.uint64(2) * _indices(shape, of)
    radius = np.sqrt(-2 * np.log(1 - _hash(index, draws.seed)))
    return (radius * np.cos(2 * np.pi * _hash(index + np.uint64(1), draws.seed))).reshape(shape)
