"""What the table of verdicts says of a claim, word by word, for lessons to show in place of sentences written by hand."""

from __future__ import annotations

import os
from pathlib import Path

from rlviz.names import closest


def quoted(name: str, about: str = "", *, folder: str | os.PathLike[str] = "experiments") -> list[str]:
    """Return what the table says of a claim, a line a part or number: those that hold `about`, each with tag and outcome.

    folder: that has the verdicts.md which `rlviz experiment --all` wrote; a lesson's is `experiments`. Raises FileNotFoundError
    where it has none, ValueError for a claim that is not in it, and where no line holds `about`.
    """
    table = Path(folder) / "verdicts.md"
    if not table.is_file():
        raise FileNotFoundError(f"folder: {folder} has no verdicts.md, which `rlviz experiment --all` writes")
    sections = table.read_text(encoding="utf-8").split("\n## ")[1:]
    claims = {section.partition("\n")[0]: section for section in sections}
    lines = [line[2:] for line in claims[closest("name", name, list(claims))].splitlines() if line.startswith("- ")]
    found = [line for line in lines if about in line]
    if not found:
        raise ValueError(f"about must be words that the table says of {name}; got {about!r}")
    return found
