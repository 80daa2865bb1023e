"""A step of a run as the inspector's page takes it: groups, responses, tokens, their terms, rows of other algorithms.

Every number is written here, so that the page only picks. A column holds a value a token; one value alone stands for all tokens,
{"r": […]} holds one a response.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, Algorithm, PolicyGradient, differences
from rlviz.runs.counterfactual import Counterfactual, differ, evaluate_group
from rlviz.runs.formula import format_number, format_numbers
from rlviz.runs.terms import Term, is_finite, token_terms, token_values
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.tasks.base import verdict

Column = Any  # a text, {"r": texts}, or a list of texts
SHOWN = ("old_prob", "new_prob", "ref_prob", "ratio", "lower", "upper", "value", "weight", "push")  # of all tokens
WORD = re.compile(r" \S")  # the beginning of a word
END = "■"  # a response's last token, in a run on words
NARROW = 0.01  # limits as near to 1 as this are written with four decimals


@dataclass
class Table:
    """Values that come back often, each stored once: `index(value)` is the place at which `values` has it."""

    values: list[Any] = field(default_factory=list)
    _indices: dict[Any, int] = field(default_factory=dict)

    def index(self, value: Any) -> int:
        if value not in self._indices:
            self._indices[value] = len(self.values)
            self.values.append(value)
        return self._indices[value]


class StepWriter:
    """Writes the steps of one run. terms, sentences: what the steps name by numbers; they grow, so send them with the steps."""

    def __init__(self, algorithm: PolicyGradient | None, others: Sequence[Algorithm] = ()) -> None:
        self.algorithm = algorithm
        self.terms, self.sentences = Table(), Table()
        family = [*ALGORITHMS, *(other for other in others if other not in ALGORITHMS)]
        self.others = [] if algorithm is None else [other for other in family if other != algorithm]

    @property
    def family(self) -> list[dict[str, Any]]:
        """The algorithms of the rows: name, and in what each differs from the run's: slot, before, after, why."""
        family: list[dict[str, Any]] = []
        if self.algorithm is None:
            return family
        for other in [self.algorithm, *self.others]:
            lines = differences(self.algorithm, other)
            family.append({"name": other.name, "differs": [[x.slot, x.before, x.after, x.why] for x in lines]})
        return family

    @property
    def tables(self) -> dict[str, Any]:
        """Terms as [name, key, text, parts], and sentences, in the order of their numbers."""

        def tree(term: Term) -> list[Any]:
            return [term.name, term.key, term.text, [tree(part) for part in term.parts]]

        return {"terms": [tree(term) for term in self.terms.values], "said": self.sentences.values}

    def step(self, record: StepRecord, *, first_visit: bool = False) -> dict[str, Any]:
        """Return a step, its groups in full. first_visit: whether none of its prompts was sampled in a step before."""
        responses = [response for group in record.groups for response in group.responses]
        strongest = max((abs(finite_push(token)) for response in responses for token in response.tokens), default=0.0)
        has_words = any(WORD.search(response.text) for response in responses)
        groups = []
        for group in record.groups:
            tokens = [token for response in group.responses for token in response.tokens]
            clipped = sum(token.clipped for token in tokens)
            after = f"; after its updates {clipped} of {len(tokens)} tokens are clipped" if tokens else ""
            rewards = _write_rewards(group)
            written: dict[str, Any] = {
                "prompt": group.user_text or group.prompt,
                "reads": group.prompt if group.user_text else "",
                "control": group.control,
                "gold": group.gold,
                **rewards,
                "words": rewards["words"] + after,
                "responses": [_write_response(response, strongest, has_words) for response in group.responses],
            }
            groups.append(written | self._write_tokens(record, group, first_visit) if tokens else written)
        return {"step": record.step, "groups": groups, "open": strongest_push(record), "has_words": has_words}

    def _write_tokens(self, record: StepRecord, group: GroupRecord, first_visit: bool) -> dict[str, Any]:
        """Return columns over the tokens of a group: numbers, sentences, terms, and the rows of other algorithms."""
        lengths = [len(response.tokens) for response in group.responses]
        tokens = [token for response in group.responses for token in response.tokens]
        terms = [terms for row in token_terms(self.algorithm, record, group) for terms in row]
        numbers = []
        for token, written in zip(tokens, terms, strict=True):
            values = token_values(token)
            texts = format_numbers({name: values[name] for name in SHOWN if name in values})
            numbers.append(texts | written.numbers)
        keys = dict.fromkeys(key for texts in numbers for key in texts)
        # A group that diverged has nothing to compute with.
        rows = []
        if self.algorithm is not None and all(map(is_finite, tokens)):
            rows = evaluate_group(self.algorithm, self.others, group, first_visit=first_visit)
        # A row weighs its tokens as if the group were the rollout; it is shown at the share that the group has in the run.
        weight = 0.0 if not rows or rows[0].weights is None else float(rows[0].weights.sum())
        scale = sum(token.weight for token in tokens) / weight if weight else 1.0
        # A record holds what the step's last update left, and not what its loss saw.
        moment = "Computed after this step's updates, which began with every ratio at 1."
        if record.token_ratio_std is None:
            moment = ""
        elif record.token_ratio_std == 0:
            moment = "Computed after this step's update, whose own loss saw every ratio at 1."
        return {
            "moment": moment,
            "numbers": {key: column([texts.get(key, "") for texts in numbers], lengths) for key in keys},
            "said": column([self.sentences.index(written.sentence) for written in terms], lengths),
            "terms": column([" ".join(str(self.terms.index(t)) for t in written.terms) for written in terms], lengths),
            "others": [_write_row(row, rows[0], lengths, scale) for row in rows],
        }


def _write_response(response: ResponseRecord, strongest: float, has_words: bool) -> dict[str, Any]:
    tokens, pushes = [visible_token(token.token) for token in response.tokens], []
    if has_words and tokens and not response.truncated:
        tokens[-1] = END

    for push in map(finite_push, response.tokens):
        share = push / strongest if 0 < strongest < math.inf else 0.0
        pushes.append(round(9 * share) or (push > 0) - (push < 0))  # −9 … 9, 0 for none alone
    return {
        "text": response.text,
        "graded": verdict(response.correct, response.well_formed),
        "reward": f"{response.reward:.2f}".replace("-", "−"),
        "advantage": f"{response.advantage:+.2f}".replace("-", "−") if response.advantage else "0.00",
        "length": f"{response.length or 'not recorded'}{' (cut off)' if response.truncated else ''}",
        "tokens": tokens,
        "clipped": [index for index, token in enumerate(response.tokens) if token.clipped],
        "push": pushes,
    }


def _write_rewards(group: GroupRecord) -> dict[str, str]:
    """Return how many responses are right; of rewards that are numbers their range, and dots, full above the mean."""
    rewards = [response.task_reward for response in group.responses]
    if all(response.reward_parts is None for response in group.responses):
        return {"words": f"{len(rewards)} responses, {sum(rewards):.0f} right"}
    words = f"{len(rewards)} responses, rewards {min(rewards):.2f} to {max(rewards):.2f}".replace("-", "−")
    return {"words": words, "marks": "".join("●" if reward > fmean(rewards) else "○" for reward in rewards)}


def _write_row(row: Counterfactual, run: Counterfactual, lengths: Sequence[int], scale: float) -> dict[str, Any]:
    """Return what an algorithm would have done: its columns, and of each token the slots that are the reason."""
    if row.output is None or row.pushes is None or row.advantages is None or row.weights is None or run.pushes is None:
        return {"needs": row.needs}
    is_token = torch.tensor([[[t < length for t in range(max(lengths))] for length in lengths]])

    def texts(values: Tensor, decimals: int = 3) -> Column:
        return column([format_number(value, decimals) for value in values[is_token].tolist()], lengths)

    def flags(values: Tensor) -> list[int]:
        return values[is_token].int().tolist()

    differs = differ(row.pushes, run.pushes)
    reasons = [""] * int(is_token.sum())
    for slot, mask in row.reasons.items():
        is_reason = flags(differs & mask)
        reasons = [f"{slots} {slot}" if why else slots for slots, why in zip(reasons, is_reason, strict=True)]
    # Limits of a sequence ratio differ from 1 in the fourth decimal.
    decimals = 4 if ((row.output.upper[is_token] - 1).abs() < NARROW).any() else 3
    return {
        "needs": row.needs,
        "A": texts(row.advantages),
        "ratio": texts(row.output.ratio, decimals),
        "lower": texts(row.output.lower, decimals),
        "upper": texts(row.output.upper, decimals),
        "clipped": column(flags(row.output.clipped & (row.weights > 0)), lengths),
        "weight": texts(scale * row.weights),
        "push": texts(scale * row.pushes),
        "differs": column(flags(differs), lengths),
        "why": column([slots.strip() for slots in reasons], lengths),
    }


def column(values: Sequence[Any], lengths: Sequence[int]) -> Column:
    """Return a value a token in the shortest form; lengths: of the responses."""
    if len(set(values)) == 1:
        return values[0]
    ends = list(accumulate(lengths))
    rows = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    if all(len(set(row)) <= 1 for row in rows):
        return {"r": [row[0] if row else "" for row in rows]}
    return list(values)


def finite_push(token: TokenRecord) -> float:
    """Return a token's push, 0 where the run had diverged and it is not a number."""
    return 0.0 if math.isnan(token.push) else token.push


def strongest_push(record: StepRecord) -> tuple[int, int, int]:
    """Return group, response and token, from 0, of the strongest push, in a group whose task's rewards differ if possible."""
    pushes = {
        (g, r, t): (len({response.task_reward for response in group.responses}) > 1, abs(finite_push(token)))
        for g, group in enumerate(record.groups)
        for r, response in enumerate(group.responses)
        for t, token in enumerate(response.tokens)
    }
    return max(pushes, key=lambda place: pushes[place], default=(0, 0, 0))


def visible_token(token: str) -> str:
    """Return the token with visible white space, but for the one space before a word; "∅" for an empty one."""
    space = " " if WORD.match(token) else ""
    return space + token.removeprefix(space).replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"
