"""The programs of the library's own algorithms: traced once, shipped as data, compared by a test with what they are traced from.

`python -m rlviz.pictures.shipped [NAME …]` traces them anew; `--missing` traces only those that are not there yet, such as a new
algorithm's, and keeps the others as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlviz.page.tracing import Program
    from rlviz.pictures.idea import Idea

FOLDER = Path(__file__).parent / "programs"


@cache
def shipped(name: str) -> tuple[dict[str, Program], dict[str, str]]:
    """Return the programs of a picture, id → program, and which is whose, key → id; none where none are shipped."""
    path = FOLDER / f"{name}.json.gz"
    if not path.is_file():
        return {}, {}
    stored = json.loads(gzip.decompress(path.read_bytes()))
    return stored["programs"], stored["keys"]


def traced(idea: Idea, *, kept: bool = False) -> dict[str, Any]:
    """Return all programs of a picture as they are stored: what two algorithms share is there once.

    kept: whether a program that is shipped is taken as it is.
    """
    from rlviz.page.tracing import CannotTrace
    from rlviz.pictures.idea import keys_of

    programs: dict[str, Any] = {}
    keys: dict[str, str] = {}
    old_programs, old_keys = shipped(idea.name) if kept else ({}, {})
    curves: list[tuple[Any, str]] = []
    options = [list(idea.controls[pick].options) for pick in idea.picks()]  # type: ignore[union-attr]
    for key in keys_of(options):
        if key in old_keys:
            keys[key] = old_keys[key]
            programs[keys[key]] = old_programs[keys[key]]
            continue
        arguments, others = idea.build(key, idea.members)
        curve = idea.curve(*arguments, **others)
        known = next((program for one, program in curves if one == curve), None)
        if known is not None:  # what two algorithms, or two choices, have alike is traced once
            keys[key] = known
            continue
        try:
            program = idea.traced(key, idea.members)
        except CannotTrace as error:
            sys.stderr.write(f"{idea.name}, {key}: {error}\n")
            continue
        text = json.dumps(program, separators=(",", ":"))
        keys[key] = hashlib.sha256(text.encode()).hexdigest()[:8]
        programs[keys[key]] = program
        curves.append((curve, keys[key]))
    return {"programs": programs, "keys": keys}


def write(idea: Idea, *, kept: bool = False) -> Path:
    """Trace a picture's programs and write them; kept: as in `traced`."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{idea.name}.json.gz"
    text = json.dumps(traced(idea, kept=kept), allow_nan=False, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


if __name__ == "__main__":
    from rlviz.pictures.catalogue import EXPLORERS, find_explorer

    names = [each for each in sys.argv[1:] if each != "--missing"]
    for each in names or EXPLORERS:
        written = write(find_explorer(each).idea, kept="--missing" in sys.argv)
        sys.stdout.write(f"{written.name}: {written.stat().st_size} bytes\n")
