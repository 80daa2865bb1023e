"""chain: add five digits modulo 10. Writing the running sums first makes it easy; guessing at once is right one time in ten."""

from __future__ import annotations

import random
import re
from itertools import accumulate

from small_models.tasks.base import Grade, Task


class Chain(Task):
    """`35271=` → `38078#8`: running sums modulo 10, then `#` and the answer. Also well formed: `#8`, the answer alone."""

    name = "chain"
    description = "sum of five digits modulo 10, with or without the running sums before the answer"
    max_new_tokens = 9
    digits = 5

    def all_prompts(self) -> list[str]:
        return [f"{number:0{self.digits}d}=" for number in range(10**self.digits)]

    def running_sums(self, prompt: str) -> str:
        """Return the running sums modulo 10 as digits, one a step: `35271=` → `38078`."""
        return "".join(str(total % 10) for total in accumulate(int(digit) for digit in prompt.rstrip("=")))

    def gold(self, prompt: str) -> str:
        return self.running_sums(prompt)[-1]

    def grade(self, prompt: str, response: str) -> Grade:
        answer = re.fullmatch(r"[0-9]*#([0-9])", response)
        return Grade(format=answer is not None, correct=answer is not None and answer[1] == self.gold(prompt))

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        sums = self.running_sums(prompt) if rng.random() < 0.5 else ""
        return f"{sums}#{self.gold(prompt)}"
