"""lookup: follow a digit through a table that only a tool can read. An answer without looking is right one time in ten."""

from __future__ import annotations

import hashlib
import random
import re
from itertools import pairwise, product

from small_models.tasks.base import Grade, Task, matched

LETTERS = "bcdfghjklmnpqrstvwxz"


class Lookup(Task):
    """`kq:2:3=` → `?3;1,?1;2,#2`: in table kq look up 3, then what stands there, and answer. The tool wrote `1,` and `2,`.

    The policy writes calls, `?`, a digit and `;`, and at last `#` and its answer. After each `;` the environment writes what
    stands in the table and a comma, or `-,` to a call that is written otherwise or is one too many. A table gives each digit
    a digit. Its name says nothing of what stands in it, and held-out prompts are of tables that training never shows.
    """

    name = "lookup"
    description = "one or two look-ups in a table that a tool reads"
    max_new_tokens = 18  # two look-ups and an answer take 13, a refused call between them 5
    call_end = ";"
    max_calls = 2
    refusal = "-,"
    demonstrated = 0.4  # below a half, the likeliest response is a guess: looking has to be found out

    def all_prompts(self) -> list[str]:
        names = map("".join, product(LETTERS, repeat=2))
        return [f"{name}:{times}:{key}=" for name, times, key in product(names, (1, 2), range(10))]

    def kept_together(self, prompt: str) -> str:
        return self.asked(prompt)[0]

    def asked(self, prompt: str) -> tuple[str, int, str]:
        """Return the table's name, how many look-ups lead to the answer, and the first key: `kq:2:3=` → kq, 2, 3."""
        name, times, key = matched(prompt, r"([^:]+):([0-9]):([0-9])=*", "kq:2:3=").groups()
        return name, int(times), key

    def entries(self, prompt: str) -> str:
        """Return the prompt's table, the digits that stand at 0 to 9: the last ten digits of a checksum of its name."""
        return str(int(hashlib.sha256(self.asked(prompt)[0].encode()).hexdigest(), 16))[-10:]

    def path(self, prompt: str) -> list[str]:
        """Return the keys to look up in order, and at last the answer."""
        _, times, key = self.asked(prompt)
        entries, path = self.entries(prompt), [key]
        for _ in range(times):
            path.append(entries[int(path[-1])])
        return path

    def gold(self, prompt: str) -> str:
        return self.path(prompt)[-1]

    def observe(self, prompt: str, written: str) -> str:
        call = re.search(r"(?:^|,)\?([0-9]);\Z", written)
        if call is None or written.count(self.call_end) > self.max_calls:
            return self.refusal
        return f"{self.entries(prompt)[int(call[1])]},"

    def grade(self, prompt: str, response: str) -> Grade:
        """Grade the one answer at the end of a response; format: nothing but answered calls stands before it."""
        answer = re.fullmatch(r"[^#]*#([0-9])", response)
        return Grade(
            format=re.fullmatch(r"(\?[0-9];[0-9],)*#[0-9]", response) is not None,
            correct=answer is not None and answer[1] == self.gold(prompt),
        )

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        """Return a response that goes on looking with probability `demonstrated`, then writes the right answer, known or not."""
        path, response = self.path(prompt), ""
        for key, entry in pairwise(path):
            if rng.random() >= self.demonstrated:
                break
            response += f"?{key};{entry},"
        return f"{response}#{path[-1]}"
