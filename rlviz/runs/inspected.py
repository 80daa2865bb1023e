"""A step of a run as the inspector's page takes it: groups, responses, tokens, their terms, rows of other algorithms.

Every number is written here, so that the page only picks. A column holds a value a token; one value alone stands for all tokens,
{"r": […]} holds one a response.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, Algorithm, PolicyGradient, differences
from rlviz.runs.counterfactual import Counterfactual, Counterfactuals, differ
from rlviz.runs.formula import decimals_for, shown
from rlviz.runs.terms import Term, can_be_worked_out, push_of, token_terms
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord

Column = Any  # a text, {"r": texts}, or a list of texts
TOKEN_NUMBERS = ("old_prob", "new_prob", "ref_prob", "ratio", "lower", "upper", "value", "weight", "push")
NARROW = 0.01  # limits as near to 1 as this are told with four decimals


@dataclass
class Table:
    """Values that come back often, each kept once: `number(value)` is the place at which `values` has it."""

    values: list[Any] = field(default_factory=list)
    _places: dict[Any, int] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        if value not in self._places:
            self._places[value] = len(self.values)
            self.values.append(value)
        return self._places[value]


class StepWriter:
    """Writes the steps of one run. terms, sentences: what the steps name by numbers; they grow, so send them with the steps."""

    def __init__(self, algorithm: PolicyGradient | None, others: Sequence[Algorithm] = ()) -> None:
        self.algorithm = algorithm
        self.terms, self.sentences = Table(), Table()
        family = [*ALGORITHMS, *(other for other in others if other not in ALGORITHMS)]
        self._others = None if algorithm is None else Counterfactuals(algorithm, family)

    @property
    def family(self) -> list[dict[str, Any]]:
        """The algorithms of the rows: name, and in what each differs from the run's: slot, before, after, why."""
        if self._others is None:
            return []
        rows = [self._others.algorithm, *self._others.others]
        return [
            {
                "name": row.name,
                "differs": [
                    [line.slot, line.before, line.after, line.why] for line in differences(self._others.algorithm, row)
                ],
            }
            for row in rows
        ]

    @property
    def tables(self) -> dict[str, Any]:
        """Terms as [name, key, text, parts], and sentences, in the order of their numbers."""
        return {"terms": [_tree(term) for term in self.terms.values], "said": self.sentences.values}

    def step(self, record: StepRecord, *, first_visit: bool = False) -> dict[str, Any]:
        """Return a step, its groups in full. first_visit: whether none of its prompts was sampled in a step before."""
        tokens = (token for group in record.groups for response in group.responses for token in response.tokens)
        strongest_push = max((abs(push_of(token)) for token in tokens), default=0.0)
        return {
            "step": record.step,
            "groups": [self._group(record, group, first_visit, strongest_push) for group in record.groups],
            "open": strongest(record),
        }

    def _group(
        self, record: StepRecord, group: GroupRecord, first_visit: bool, strongest_push: float
    ) -> dict[str, Any]:
        tokens = [token for response in group.responses for token in response.tokens]
        right = sum(response.correct for response in group.responses)
        cut = sum(token.clipped for token in tokens)
        written: dict[str, Any] = {
            "prompt": group.prompt,
            "gold": group.gold,
            "words": f"{len(group.responses)} responses, {right} right"
            + (f"; after its updates {cut} of {len(tokens)} tokens are clipped" if tokens else ""),
            "responses": [_response(response, strongest_push) for response in group.responses],
        }
        return written | self._tokens(record, group, first_visit) if tokens else written

    def _tokens(self, record: StepRecord, group: GroupRecord, first_visit: bool) -> dict[str, Any]:
        lengths = [len(response.tokens) for response in group.responses]
        tokens = [token for response in group.responses for token in response.tokens]
        told = [terms for row in token_terms(self.algorithm, record, group) for terms in row]
        numbers = [{**_numbers(token), **terms.numbers} for token, terms in zip(tokens, told, strict=True)]
        keys = dict.fromkeys(key for each in numbers for key in each)
        finite = all(map(can_be_worked_out, tokens))
        rows = self._others.of(group, first_visit=first_visit) if self._others is not None and finite else []
        scale = _scale(tokens, rows)
        return {
            "moment": _moment(record),
            "numbers": {key: column([each.get(key, "") for each in numbers], lengths) for key in keys},
            "said": column([self.sentences.number(terms.said) for terms in told], lengths),
            "terms": column([" ".join(str(self.terms.number(t)) for t in terms.terms) for terms in told], lengths),
            "others": [_row(row, rows[0], lengths, scale) for row in rows],
        }


def _response(response: ResponseRecord, strongest_push: float) -> dict[str, Any]:
    return {
        "text": response.text,
        "graded": "right" if response.correct else "wrong" if response.well_formed else "not well formed",
        "reward": f"{response.reward:.2f}".replace("-", "−"),
        "advantage": f"{response.advantage:+.2f}".replace("-", "−") if response.advantage else "0.00",
        "length": f"{response.length or 'not recorded'}{' (cut off)' if response.truncated else ''}",
        "tokens": [visible(token.token) for token in response.tokens],
        "clipped": [place for place, token in enumerate(response.tokens) if token.clipped],
        # −9 … 9: share of the strongest push in the step
        "push": [_size(push_of(token), strongest_push) for token in response.tokens],
    }


def _size(push: float, strongest_push: float) -> int:
    """Return a push as a whole number from −9 to 9, 0 for none alone."""
    share = push / strongest_push if 0 < strongest_push < math.inf else 0.0
    return round(9 * share) or (push > 0) - (push < 0)


def _numbers(token: TokenRecord) -> dict[str, str]:
    """Return a token's recorded numbers as they are shown."""
    decimals = decimals_for(token)
    values = {name: getattr(token, name) for name in TOKEN_NUMBERS}
    values["upper"] = math.inf if token.upper is None else token.upper
    return {name: shown(value, decimals) for name, value in values.items() if value is not None}


def _scale(tokens: Sequence[TokenRecord], rows: Sequence[Counterfactual]) -> float:
    """Return what share of the rollout the group has in the run: a row weighs its tokens as if the group were all of it."""
    alone = 0.0 if not rows or rows[0].weights is None else float(rows[0].weights.sum())
    return sum(token.weight for token in tokens) / alone if alone else 1.0


def _moment(record: StepRecord) -> str:
    """Say what ratio, J and push tell of: a record holds what the step's last update left, not what its loss saw."""
    if record.token_ratio_std is None:
        return ""
    if record.token_ratio_std == 0:
        return "Computed after this step's update, whose own loss saw every ratio at 1."
    return "Computed after this step's updates, which began with every ratio at 1."


def _row(row: Counterfactual, own: Counterfactual, lengths: Sequence[int], scale: float) -> dict[str, Any]:
    """Return what an algorithm would have done: its columns, and of each token the slots that are the reason."""
    if row.output is None or row.pushes is None or row.advantages is None or row.weights is None or own.pushes is None:
        return {"needs": row.needs}
    there = torch.tensor([[[t < length for t in range(max(lengths))] for length in lengths]])

    def texts(values: Tensor, decimals: int = 3) -> Column:
        return column([shown(value, decimals) for value in values[there].tolist()], lengths)

    def truths(values: Tensor) -> list[int]:
        return values[there].int().tolist()

    moved = differ(row.pushes, own.pushes)
    reasons = [""] * int(there.sum())
    for slot, mask in row.reasons.items():
        reasons = [
            f"{words} {slot}" if why else words for words, why in zip(reasons, truths(moved & mask), strict=True)
        ]
    limits = torch.cat([row.output.lower[there], row.output.upper[there]])
    narrow = bool(((limits - 1).abs() < NARROW).any())
    return {
        "needs": row.needs,
        "A": texts(row.advantages),
        "ratio": texts(row.output.ratio, 4 if narrow else 3),
        "lower": texts(row.output.lower, 4 if narrow else 3),
        "upper": texts(row.output.upper, 4 if narrow else 3),
        "clipped": column(truths(row.output.clipped & (row.weights > 0)), lengths),
        "weight": texts(scale * row.weights),
        "push": texts(scale * row.pushes),
        "differs": column(truths(moved), lengths),
        "why": column([words.strip() for words in reasons], lengths),
    }


def column(values: Sequence[Any], lengths: Sequence[int]) -> Column:
    """Return a value a token as short as it can be said; lengths: of the responses."""
    if len(set(values)) == 1:
        return values[0]
    rows, start = [], 0
    for length in lengths:
        rows.append(values[start : start + length])
        start += length
    if all(len(set(row)) <= 1 for row in rows):
        return {"r": [row[0] if row else "" for row in rows]}
    return list(values)


def _tree(term: Term) -> list[Any]:
    return [term.name, term.key, term.text, [_tree(part) for part in term.parts]]


def strongest(record: StepRecord) -> tuple[int, int, int]:
    """Return group, response and token, from 0, of the strongest push, in a group with right and wrong responses if possible."""
    places = [
        (_mixed(group), abs(push_of(token)), (g, r, t))
        for g, group in enumerate(record.groups)
        for r, response in enumerate(group.responses)
        for t, token in enumerate(response.tokens)
    ]
    return max(places, key=lambda place: place[:2])[2] if places else (0, 0, 0)


def _mixed(group: GroupRecord) -> bool:
    return len({response.correct for response in group.responses}) > 1


def visible(token: str) -> str:
    """Return a token with signs for white space, and for nothing at all."""
    return token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"


def token_steps(records: Iterable[StepRecord]) -> list[int]:
    """Return the steps that were recorded with tokens."""
    return [record.step for record in records if record.has_tokens]
