"""trip: write any three digits with a given sum. Many answers are right, so this task shows what happens to variety."""

from __future__ import annotations

import random
import re
from functools import lru_cache

from small_models.tasks.base import Grade, Task, match_prompt


@lru_cache
def _digits_with_sum(total: int) -> tuple[str, ...]:
    return tuple(digits for digits in map("{:03d}".format, range(1000)) if sum(map(int, digits)) == total)


class Trip(Task):
    """`09+4=` → `490`, or `058`, or any of the 75 answers with sum 13. A number up to 18 plus a digit, so sums 0 to 27."""

    name = "trip"
    description = "any three digits with a given sum (up to 75 right answers)"
    max_new_tokens = 5
    held_out_share = 0.2

    def all_prompts(self) -> list[str]:
        return [f"{number:02d}+{digit}=" for number in range(19) for digit in range(10)]

    def total(self, prompt: str) -> int:
        """Return the sum asked for: `09+4=` → 13."""
        numbers = match_prompt(prompt, r"(\d{1,9}(?:\+\d{1,9})*)=*", "09+4=")[1]
        return sum(map(int, numbers.split("+")))

    def right_answers(self, prompt: str) -> tuple[str, ...]:
        """Return every right answer, in order."""
        return _digits_with_sum(self.total(prompt))

    def gold(self, prompt: str) -> str:
        return self.right_answers(prompt)[0]

    def grade(self, prompt: str, response: str) -> Grade:
        well_formed = re.fullmatch(r"[0-9]{3}", response) is not None
        correct = well_formed and sum(map(int, response)) == self.total(prompt)
        return Grade(format=well_formed, correct=correct)

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        return rng.choice(self.right_answers(prompt))
