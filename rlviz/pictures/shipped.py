"""The programs of the library's own algorithms: traced once, shipped as data, compared by a test with what they are traced from.

`python -m rlviz.pictures.shipped [NAME …]` traces them anew; `--missing` traces only those that are not there yet, such as a new
algorithm's, and keeps the others as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm
    from rlviz.page.tracing import Program
    from rlviz.pictures.spec import ExplorerSpec

FOLDER = Path(__file__).parent / "programs"


@cache
def load_programs(name: str) -> tuple[dict[str, Program], dict[str, str]]:
    """Return the programs of a picture, id → program, and which is whose, key → id; none where none are shipped."""
    path = FOLDER / f"{name}.json.gz"
    if not path.is_file():
        return {}, {}
    stored = json.loads(gzip.decompress(path.read_bytes()))
    return stored["programs"], stored["keys"]


def trace_missing(
    spec: ExplorerSpec, members: Mapping[str, Algorithm], programs: Mapping[str, Program], ids: Mapping[str, str]
) -> tuple[dict[str, Program], dict[str, str], dict[str, str]]:
    """Return programs, id → program, key → id, and key → reason where a page cannot follow.

    programs, ids: those that are known. What two keys have alike, an equal curve, is traced once and there once.
    """
    from rlviz.page.tracing import CannotTrace

    all_programs, all_ids, reasons = dict(programs), dict[str, str](), dict[str, str]()
    traced: list[tuple[Any, str, str]] = []  # curve, id, reason
    for key in spec.keys(members):
        if key in ids:
            all_ids[key] = ids[key]
            continue
        arguments, choices = spec.curve_arguments(key, members)
        curve = spec.curve(*arguments, **choices)
        id_, reason = next(((id_, reason) for other, id_, reason in traced if other == curve), ("", ""))
        if not id_ and not reason:
            try:
                program = spec.trace(key, members)
                id_ = hashlib.sha256(json.dumps(program, separators=(",", ":")).encode()).hexdigest()[:8]
                all_programs[id_] = program
            except CannotTrace as error:
                reason = str(error)
            traced.append((curve, id_, reason))
        if id_:
            all_ids[key] = id_
        else:
            reasons[key] = reason
    return all_programs, all_ids, reasons


def trace_programs(spec: ExplorerSpec, *, only_missing: bool = False) -> dict[str, Any]:
    """Return all programs of a picture as they are stored; only_missing: those that are shipped stay as they are."""
    known = load_programs(spec.name) if only_missing else ({}, {})
    programs, ids, reasons = trace_missing(spec, spec.members, *known)
    for key, reason in reasons.items():
        sys.stderr.write(f"{spec.name}, {key}: {reason}\n")
    return {"programs": {id_: programs[id_] for id_ in dict.fromkeys(ids.values())}, "keys": ids}


if __name__ == "__main__":
    from rlviz.pictures.catalogue import EXPLORERS, find_explorer

    FOLDER.mkdir(exist_ok=True)
    for name in [name for name in sys.argv[1:] if name != "--missing"] or EXPLORERS:
        stored = trace_programs(find_explorer(name).spec, only_missing="--missing" in sys.argv)
        path = FOLDER / f"{name}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(stored, allow_nan=False, separators=(",", ":")).encode(), 9, mtime=0))
        sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")
