"""The JavaScript of the pictures: files that pages take as they are, or one text where a page can take no second file."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

FOLDERS = tuple(Path(__file__).parent.parent / name for name in ("page", "runs", "site"))
IMPORT = re.compile(r"^import .* from \"\./[\w.]+\";\n", re.MULTILINE)
COMMENT = re.compile(r"^[ \t]*(//[^\n]*|/\*\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (default [^;]+;\n|)", re.MULTILINE)


def script(name: str) -> Path:
    """Return where the file NAME.js is."""
    return next(path for folder in FOLDERS if (path := folder / f"{name}.js").is_file())


def _text(name: str) -> str:
    """Return a file without imports and comments, after its style as the constant NAME_CSS, if it reads one.

    A saved notebook has it once for each picture, so what only its readers need stays out.
    """
    path, constant = script(name), f"{name.upper()}_CSS"
    text = path.read_text(encoding="utf-8")
    style = json.dumps(path.with_suffix(".css").read_text(encoding="utf-8")) if constant in text else ""
    lines = COMMENT.sub("", IMPORT.sub("", text)).splitlines()
    return (f"const {constant} = {style};\n" if style else "") + "\n".join(line.lstrip() for line in lines) + "\n"


@cache
def module(*names: str, offers: str = "") -> str:
    """Return the files as one module, each after those that it imports from; `offers` is added, such as an export.

    The last file's default export stays.
    """
    *before, last = map(_text, names)
    return "\n".join([*(EXPORT.sub("", text) for text in before), last, offers])


def classic(*names: str, offers: str = "") -> str:
    """Return the files as one script for pages that may load no modules: those opened from the disk, or not read to their end.

    The names in it are seen nowhere else, but for what `offers` puts somewhere.
    """
    return "\n".join(["(() => {", '"use strict";', *(EXPORT.sub("", _text(name)) for name in names), offers, "})();"])
