"""lookup: follow a digit through a table that only a tool can read. An answer without looking is right one time in ten."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

from small_models.checks import short_repr
from small_models.tasks.base import Grade, Step, Task, match_prompt

LETTERS = "bcdfghjklmnpqrstvwxz"


class Lookup(Task):
    """`kq:2:3=` → `?3;1,?1;2,#2`: in table kq look up 3, then what stands there, and answer. The tool wrote `1,` and `2,`.

    The policy writes calls, `?`, a digit and `;`, and at last `#` and its answer. After each `;` the environment writes what
    stands in the table and a comma, or `-,` to a call that is written otherwise or is one too many. A table gives each digit
    a digit. Its name says nothing of what stands in it, and held-out prompts are of tables that training never shows.

    hops: how many look-ups a prompt may ask for, as many calls as the most of them are answered. table: the ten digits of every
    table, so that what the tool writes can be known; None: each table has its own. tool: False: nothing answers a call, and
    the policy goes on by itself. Raises ValueError for hops below 1 or above 9 and for a table that is not ten digits.
    """

    name = "lookup"
    description = "one or two look-ups in a table that a tool reads"
    call_end = ";"
    refusal = "-,"
    demonstrated = 0.4  # below a half, the likeliest response is a guess: looking has to be found out

    def __init__(self, hops: Sequence[int] = (1, 2), table: str | None = None, *, tool: bool = True) -> None:
        if not hops or not all(isinstance(hop, int) and 1 <= hop <= 9 for hop in hops):
            raise ValueError(f"hops must be whole numbers from 1 to 9, one at least; got {short_repr(hops)}")
        if table is not None and not re.fullmatch("[0-9]{10}", table, re.ASCII):
            raise ValueError(f"table must be ten digits, those that stand at 0 to 9; got {short_repr(table)}")
        self.hops, self.table, self.max_calls = tuple(hops), table, max(hops)
        self.max_new_tokens = 5 * self.max_calls + 8  # a look-up takes 5, as a refused call does; an answer 3
        if not tool:
            self.call_end = ""

    @property
    def described(self) -> dict[str, Any]:
        arguments = {"hops": list(self.hops), "table": self.table, "tool": bool(self.call_end)}
        usual = {"hops": [1, 2], "table": None, "tool": True}
        return super().described | ({} if arguments == usual else arguments)

    def all_prompts(self) -> list[str]:
        names = map("".join, product(LETTERS, repeat=2))
        return [f"{name}:{times}:{key}=" for name, times, key in product(names, self.hops, range(10))]

    def split_key(self, prompt: str) -> str:
        return self.parse_prompt(prompt)[0]

    def parse_prompt(self, prompt: str) -> tuple[str, int, str]:
        """Return the table's name, how many look-ups lead to the answer, and the first key: `kq:2:3=` → kq, 2, 3."""
        name, times, key = match_prompt(prompt, r"([^:]+):([0-9]):([0-9])=*", "kq:2:3=").groups()
        return name, int(times), key

    def entries(self, prompt: str) -> str:
        """Return the prompt's table, the digits that stand at 0 to 9: the last ten digits of a checksum of its name."""
        if self.table is not None:
            return self.table
        return str(int(hashlib.sha256(self.parse_prompt(prompt)[0].encode()).hexdigest(), 16))[-10:]

    def path(self, prompt: str) -> list[str]:
        """Return the keys to look up in order, and at last the answer."""
        _, times, key = self.parse_prompt(prompt)
        entries, path = self.entries(prompt), [key]
        for _ in range(times):
            path.append(entries[int(path[-1])])
        return path

    def gold(self, prompt: str) -> str:
        return self.path(prompt)[-1]

    def observe(self, prompt: str, written: str) -> str:
        key = self.key(written)
        if key is None or written.count(";") > self.max_calls:
            return self.refusal
        return f"{self.entries(prompt)[int(key)]},"

    def key(self, written: str) -> str | None:
        """Return the digit that the call at the end of a text asks for, None where it is no call."""
        call = re.search(r"(?:^|,)\?([0-9]);\Z", written)
        return None if call is None else call[1]

    def grade(self, prompt: str, response: str) -> Grade:
        """Grade the one answer at the end of a response; format: nothing but answered calls stands before it."""
        answer = re.fullmatch(r"[^#]*#([0-9])", response)
        return Grade(
            format=re.fullmatch(r"(\?[0-9];[0-9],)*#[0-9]", response) is not None,
            correct=answer is not None and answer[1] == self.gold(prompt),
        )

    def steps(self, prompt: str, response: str) -> tuple[Step, ...]:
        """Return a step for each call, 1 where it looks up what has to be looked up next, and the answer as the last one."""
        keys = self.path(prompt)[:-1]
        # a call that ends the response is of the last step
        ends = [call.end() for call in re.finditer(";", response[:-1])]
        looked_up = [self.key(response[:end]) for end in ends]
        right = [keys[turn : turn + 1] == [key] for turn, key in enumerate(looked_up)]
        return (
            *(Step(end, float(is_right)) for end, is_right in zip(ends, right, strict=True)),
            *super().steps(prompt, response),
        )

    def quality(self, prompt: str, response: str) -> float:
        """Return the reward of the answer: what a pair compares are answers, not calls."""
        return self.score(prompt, response).reward

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        """Return a response that goes on looking with probability `demonstrated`, then writes the right answer, known or not."""
        path, response = self.path(prompt), ""
        for key, entry in pairwise(path):
            if rng.random() >= self.demonstrated:
                break
            response += f"?{key};{entry},"
        return f"{response}#{path[-1]}"
