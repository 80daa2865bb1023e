"""chain: add five digits modulo 10. Writing the running sums first makes it easy; guessing at once is right one time in ten.

ramble: chain with filler before the answer, for whatever has to do with the length of a response.
"""

from __future__ import annotations

import random
import re
from itertools import accumulate

from small_models.tasks.base import Grade, Step, Task, match_prompt


class Chain(Task):
    """`35271=` → `38078#8`: running sums modulo 10, then `#` and the answer. Also well formed: `#8`, the answer alone.

    reasoning: share of the demonstrations that write the running sums.
    """

    name = "chain"
    description = "sum of five digits modulo 10, with or without the running sums before the answer"
    max_new_tokens = 9
    digits = 5

    def __init__(self, reasoning: float = 0.5) -> None:
        self.reasoning = reasoning

    def all_prompts(self) -> list[str]:
        return [f"{number:0{self.digits}d}=" for number in range(10**self.digits)]

    def running_sums(self, prompt: str) -> str:
        """Return the running sums modulo 10 as digits, one a step: `35271=` → `38078`."""
        digits = match_prompt(prompt, r"([0-9]+)=*", "35271=")[1]
        return "".join(str(total % 10) for total in accumulate(map(int, digits)))

    def gold(self, prompt: str) -> str:
        return self.running_sums(prompt)[-1]

    def grade(self, prompt: str, response: str) -> Grade:
        answer = re.fullmatch(r"[0-9]*#([0-9])", response)
        return Grade(format=answer is not None, correct=answer is not None and answer[1] == self.gold(prompt))

    def steps(self, prompt: str, response: str) -> tuple[Step, ...]:
        """Return a step for each digit before the `#`, and one for the rest, whose reward is the outcome: 1 if right, else 0.

        A digit earns 1 where it equals the running sum of its place, however wrong those before it are; one with no sum left
        to write earns 0. Any other character belongs to the step after it. Where nothing follows the last digit (there is
        no `#`), that digit's step is the last one: it earns the outcome, 0, whether its sum is right or not.
        """
        sums = self.running_sums(prompt)
        before = response[:-1].partition("#")[0]  # a digit that ends the response is part of the last step
        ends = [digit.end() for digit in re.finditer("[0-9]", before)]
        steps = (Step(end, float(response[end - 1] == sums[place : place + 1])) for place, end in enumerate(ends))
        return (*steps, *super().steps(prompt, response))

    def quality(self, prompt: str, response: str) -> float:
        """Return (right running sums + (digits + 1) · outcome) / (2 · digits + 1): the outcome outweighs all sums together.

        So a right response is better than any wrong one, and of two that are both right or both wrong, the one with more
        right sums. Digits that are wrong, or too many, cost nothing.
        """
        *sums, last = self.steps(prompt, response)
        weight = self.digits + 1
        return (sum(step.reward for step in sums) + weight * last.reward) / (self.digits + weight)

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        sums = self.running_sums(prompt) if rng.random() < self.reasoning else ""
        return f"{sums}#{self.gold(prompt)}"


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
