"""Write the table of the family into rlviz/algorithms/README.md, between its two marks: python .ci/family.py"""

from __future__ import annotations

import re
from pathlib import Path

from rlviz.algorithms import family_table

README = Path(__file__).parent.parent / "rlviz" / "algorithms" / "README.md"
MARKED = re.compile(r"(?<=<!-- family -->\n).*?(?=<!-- /family -->)", re.S)


def table() -> str:
    """Return the family as a Markdown table."""
    family = family_table().reset_index()
    family["source"] = family["source"].str.replace(r"(\d{4}\.\d{5})", r"[\1](https://arxiv.org/abs/\1)", regex=True)
    rows = [list(family.columns), ["---"] * len(family.columns), *family.values.tolist()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    README.write_text(MARKED.sub(lambda _: table(), README.read_text(encoding="utf-8")), encoding="utf-8")
