"""Messages of the checks in Chinese, where RLVIZ_LANGUAGE=zh asks for it: one table, `messages.zh.json`, English → Chinese.

A row may have places, such as {steps}, for what a message holds; what stands there is translated, too, if it has a row.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from small_models.files import read_json

TABLE = Path(__file__).with_name("messages.zh.json")
PLACE = re.compile(r"\{(\w+)\}")
ESCAPED = re.compile(r"[.()\[\]*+?^$|\\]")  # what a pattern would not take for itself


def translate(message: str) -> str:
    """Return a message in the language of RLVIZ_LANGUAGE; in English where that is not zh, or the table has no row for it."""
    return to_chinese(message) if os.environ.get("RLVIZ_LANGUAGE") == "zh" else message


def to_chinese(message: str) -> str:
    """Return a message in Chinese; in English where the table has no row for it."""
    if message in read_table():
        return read_table()[message]
    for pattern, row in patterns():
        if match := pattern.fullmatch(message):
            values = {name: to_chinese(value.strip()) for name, value in match.groupdict().items()}
            return read_table()[row].format(**values)
    return message


@cache
def read_table() -> dict[str, str]:
    """Return English → Chinese."""
    return read_json(TABLE, dict[str, str])


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return the rows that have places as patterns, those first that say most beside them."""
    rows = sorted((row for row in read_table() if PLACE.search(row)), key=lambda row: -len(PLACE.sub("", row)))
    return [(re.compile(PLACE.sub(r"(?P<\1>.*?)", ESCAPED.sub(r"\\\g<0>", row)), re.DOTALL), row) for row in rows]
