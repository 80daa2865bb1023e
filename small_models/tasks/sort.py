"""sort: write five letters in alphabetical order."""

from __future__ import annotations

import random
import re
from itertools import product

from small_models.tasks.base import Grade, Task


class Sort(Task):
    """`dbace=` → `abcde`. Letters a to h, repeats allowed."""

    name = "sort"
    description = "five letters in alphabetical order"
    max_new_tokens = 7
    letters = "abcdefgh"
    count = 5

    def all_prompts(self) -> list[str]:
        return ["".join(letters) + "=" for letters in product(self.letters, repeat=self.count)]

    def gold(self, prompt: str) -> str:
        return "".join(sorted(prompt.rstrip("=")))

    def grade(self, prompt: str, response: str) -> Grade:
        well_formed = re.fullmatch(f"[{self.letters}]{{{self.count}}}", response) is not None
        return Grade(format=well_formed, correct=response == self.gold(prompt))

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        return self.gold(prompt)
