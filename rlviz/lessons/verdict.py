"""What a check says of an answer. It needs no torch, so that a table of grades does not wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlviz.lessons.messages import translate
from rlviz.markup import Markup, element


@dataclass(frozen=True)
class Verdict:
    """passed, and in a sentence what is right or wrong; mistake: its name, of one that is known."""

    passed: bool
    says: str
    mistake: str = field(default="", compare=False)

    @property
    def word(self) -> str:
        """Right, or Not yet."""
        return translate("Right" if self.passed else "Not yet")

    def __repr__(self) -> str:
        return f"{self.word}: {translate(self.says)}"

    def _repr_html_(self) -> str:
        return self.markup

    @property
    def markup(self) -> Markup:
        """The verdict as HTML, which a screen reader says."""
        colour = "#00664a" if self.passed else "#9c3f00"
        style = f"border-left: 5px solid {colour}; padding: 4px 12px; font-size: 15px"
        return element("div", element("b", f"{self.word}:"), f" {translate(self.says)}", role="status", style=style)
