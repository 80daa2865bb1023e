"""ramble: chain with filler before the answer, for whatever has to do with the length of a response."""

from __future__ import annotations

import random
import re

from small_models.tasks.base import Grade
from small_models.tasks.chain import Chain


class Ramble(Chain):
    """`35271=` → `38078....#8`: chain, with any number of dots before the answer, which the rule does not mind.

    Demonstrations have none to six of them.
    """

    name = "ramble"
    description = "sum of five digits modulo 10, with filler before the answer that helps nothing"
    max_new_tokens = 24

    def grade(self, prompt: str, response: str) -> Grade:
        answer = re.fullmatch(r"[0-9]*\.*#([0-9])", response)
        return Grade(format=answer is not None, correct=answer is not None and answer[1] == self.gold(prompt))

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        return super().demonstrate(prompt, rng).replace("#", "." * rng.randint(0, 6) + "#")
