"""What a check says of an answer. It needs no torch, so that a table of grades does not wait for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from rlviz.lessons.messages import translate
from rlviz.markup import Markup, element, joined


@dataclass(frozen=True)
class Verdict:
    """passed, and in a sentence what is right or wrong.

    mistake: its name, of one that is known. is_attempt: whether somebody answered; else the exercise is as the lesson has it.
    """

    passed: bool
    says: str
    mistake: str = field(default="", compare=False)
    is_attempt: bool = field(default=True, compare=False)

    @property
    def word(self) -> str:
        """Right, or Not yet."""
        return translate("Right" if self.passed else "Not yet")

    def __repr__(self) -> str:
        return f"{self.word}: {translate(self.says)}"

    def _repr_html_(self) -> str:
        return joined(self.markup, solution_link()) if self.is_attempt and not self.passed else self.markup

    @property
    def markup(self) -> Markup:
        """The verdict as HTML, which a screen reader says."""
        colour = "#00664a" if self.passed else "#9c3f00"
        style = f"border-left: 5px solid {colour}; padding: 4px 12px; font-size: 15px"
        return element("div", element("b", f"{self.word}:"), f" {translate(self.says)}", role="status", style=style)


def solution_link() -> Markup:
    """Return a link to the solutions of the lesson that runs in JupyterLab, if they lie beside it; nothing is opened here."""
    name = Path(os.environ.get("JPY_SESSION_NAME", "")).name  # the notebook, as Jupyter's server tells its kernel
    if not name or not Path("solutions", name).is_file():
        return Markup()
    return element("p", element("a", translate("Show a solution"), href=f"solutions/{quote(name)}"))
