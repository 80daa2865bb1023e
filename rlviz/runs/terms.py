"""Where the numbers of a recorded token come from: probabilities → ratio, rewards → A, limits, surrogate, KL, weight, push.

No formula stands here: pieces say theirs (`rlviz.pieces.words.says`), and one is shown only where it gives the recorded number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.slots import CALLS, numbers_in
from rlviz.pieces.formula import Node, formula_of, terms_of
from rlviz.pieces.words import label
from rlviz.runs.formula import PLACE, SAME, InNames, decimals_for, filled, gradient_in_words, shown, template
from rlviz.types import Batch, GroupRecord, ResponseRecord, StepRecord, TokenRecord

GIVE_IT = "to see the formula, give what trained this run: inspect_run(run, algorithm=…)"
FINE = ("ratio", "lower", "upper", "J", "objective")  # told with as many decimals as it takes to tell them apart
DIVERGED = "The run had diverged: its numbers are not finite, so there is nothing to work out."
# the slot whose piece makes a number, and, of bounds, which of the two that it returns
MADE_BY = {
    "J": ("surrogate", 0),
    "ratio": ("ratio", 0),
    "lower": ("bounds", 0),
    "upper": ("bounds", 1),
    "advantages": ("advantage", 0),
    "KL": ("kl", 0),
    "weight": ("aggregate", 0),
}
NAMES = {"advantages": "advantage A", "lower": "lower limit", "upper": "upper limit", "KL": "KL penalty"}
LEAVES = {
    "logp": "= log(new_prob) = log({new_prob}), after this step's updates",
    "old_logp": "= log(old_prob) = log({old_prob}), when it was sampled",
    "sampler_logp": "= log(sampler_prob) = log({sampler_prob}), by the engine that drew it",
    "ref_logp": "= log(ref_prob) = log({ref_prob}), under the reference policy",
    "entropy": "of the whole next-token distribution, nats, after this step's updates",
    "chosen": "1 for a token that the surrogate chose among all of the rollout, else 0",
    "reward": "of this response, after shaping; those of its group: {rewards}",
    "mean": "of the {G} rewards of the group: {rewards}",
    "std": "of the {G} rewards of the group, with {G} − 1: {rewards}",
    "G": "responses in the group",
    "mean_log_ratio": "mean over the response's {length} tokens of log(new_prob / old_prob): {log_ratios}",
    "length": "tokens of this response that the loss sees",
    "B": "responses that the loss saw in this step",
    "tokens": "tokens that the loss saw in this step",
}


@dataclass(frozen=True)
class Term:
    """A number and where it comes from.

    name: as it is called. key: of its value among the token's numbers. text: a line or more, a template (`formula.filled`).
    parts: the numbers that it is made of.
    """

    name: str
    key: str
    text: str
    parts: tuple[Term, ...] = ()

    def find(self, key: str) -> Term | None:
        """Return the term with this key, itself or below it."""
        return self if self.key == key else next(filter(None, (part.find(key) for part in self.parts)), None)


@dataclass(frozen=True)
class TokenTerms:
    """A token's terms. said: what the loss does to it, a template. numbers: key → number as it is shown."""

    said: str
    terms: tuple[Term, ...]
    numbers: Mapping[str, str]

    @property
    def words(self) -> str:
        """What the loss does to the token, in a sentence."""
        return filled(self.said, self.numbers)

    def term(self, key: str) -> Term:
        """Return the term with this key. Raises KeyError where there is none."""
        found = next(filter(None, (term.find(key) for term in self.terms)), None)
        if found is None:
            raise KeyError(key)
        return found

    def text(self, key: str) -> str:
        """Return a term's lines with the token's numbers in them."""
        return filled(self.term(key).text, self.numbers)


def token_terms(algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> list[list[TokenTerms]]:
    """Return the terms of each token of a step's group, [G][T]; algorithm: what trained the run, None where that is not known."""
    whole = _Group(algorithm, record, group)
    return [[whole.terms(response, token) for token in response.tokens] for response in group.responses]


def push_of(token: TokenRecord) -> float:
    """Return a token's push, 0 where the run had diverged and it is not a number."""
    return 0.0 if math.isnan(token.push) else token.push


def can_be_worked_out(token: TokenRecord) -> bool:
    """Return whether a token's numbers are finite."""
    numbers = [value for value in vars(token).values() if isinstance(value, float)]
    return token.ratio > 0 and all(map(math.isfinite, numbers))


def log_probability(probability: float) -> float:
    """Return the log of a recorded probability; one of 0 is one that float32 could not hold."""
    return math.log(max(probability, sys.float_info.min))


class _Group:
    """What the terms of a group's tokens share."""

    def __init__(self, algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> None:
        self.algorithm, self.record, self.group = algorithm, record, group
        self.pieces = {} if algorithm is None else algorithm.slots()
        self.parameters = {slot: {"inf": math.inf, **numbers_in(piece)} for slot, piece in self.pieces.items()}
        self.formulas = {key: self._formula(*made_by) for key, made_by in MADE_BY.items()}
        self._lines: dict[str, tuple[str, list[tuple[str, Node]]]] = {}
        tokens = [t for g in record.groups for r in g.responses for t in r.tokens if can_be_worked_out(t)]
        self.all_pushes = sum(abs(token.push) for token in tokens)
        self.all_objectives = sum(abs(token.weight * token.objective) for token in tokens)
        self.recorded = len(tokens)
        own = [t for r in group.responses for t in r.tokens if can_be_worked_out(t) and t.weight]
        values = _at_these_numbers(algorithm, own) if algorithm is not None else []
        self.objectives = {id(token): value for token, value in zip(own, values, strict=False)}
        self.responses = {id(response): self._of_response(response) for response in group.responses}

    @cached_property
    def shared(self) -> tuple[dict[str, float], dict[str, str]]:
        """The numbers that all tokens of the group have, and texts."""
        rewards = [response.reward for response in self.group.responses]
        record = self.record
        values = {"mean": _mean(rewards), "G": float(len(rewards)), "B": float(record.responses_used)}
        if len(rewards) > 1:
            squares = [(reward - values["mean"]) * (reward - values["mean"]) for reward in rewards]
            values["std"] = math.sqrt(sum(squares) / (len(rewards) - 1))
        tokens = record.response_length * record.responses_sampled
        if record.responses_used == record.responses_sampled and math.isfinite(tokens):
            values["tokens"] = float(round(tokens))  # no group was left out, so this is all that the loss saw
        return values, {
            "rewards": ", ".join(map(shown, rewards)),
            "recorded": str(self.recorded),
            "recorded_responses": str(sum(bool(r.tokens) for g in record.groups for r in g.responses)),
        }

    def _of_response(self, response: ResponseRecord) -> tuple[dict[str, float], dict[str, str]]:
        """Return the numbers that all tokens of a response have, and texts."""
        logs = [_log_ratio(token) for token in response.tokens if token.weight and not token.observed]
        values = {"reward": response.reward, "length": float(len(logs))} | (
            {"mean_log_ratio": _mean(logs)} if logs else {}
        )
        return values, {"log_ratios": ", ".join(map(shown, logs))}

    def terms(self, response: ResponseRecord, token: TokenRecord) -> TokenTerms:
        if not can_be_worked_out(token):
            return TokenTerms(DIVERGED, (), {})
        *_, kl_slope = self.objectives.get(id(token), (None,))
        said, of_words = gradient_in_words(self.algorithm, token, kl_slope)
        values = self._values(response, token)
        decimals = decimals_for(token)
        numbers = {name: shown(value, decimals if name in FINE else 3) for name, value in values.items()}
        numbers |= self.shared[1] | self.responses[id(response)][1] | of_words
        terms: list[Term] = []
        if token.weight:
            terms = [self._objective(token, values, numbers), self._made("weight", values, numbers)]
            terms += self._shares(token, numbers)
        return TokenTerms(said, tuple(terms), {key: numbers[key] for key in _used(said, terms) if key in numbers})

    def _values(self, response: ResponseRecord, token: TokenRecord) -> dict[str, float]:
        values = numbers_of(token) | self.shared[0] | self.responses[id(response)][0]
        for name in ("old_prob", "new_prob", "ref_prob", "value", "weight", "push", "objective"):
            if getattr(token, name) is not None:
                values[name] = getattr(token, name)
        values["sampler_prob"] = _drawn(token)
        j, penalty, _ = self.objectives.get(id(token), (token.objective, None, None))
        return values | {"J": j} | ({} if penalty is None else {"KL": penalty})

    def _objective(self, token: TokenRecord, values: dict[str, float], numbers: dict[str, str]) -> Term:
        parts = tuple(self._made(name, values, numbers) for name in CALLS["surrogate"][0])
        if self.algorithm is None:
            return Term("objective", "objective", f"as recorded; {GIVE_IT}", parts)
        total = values["J"] - values.get("KL", 0.0)
        if not math.isclose(total, token.objective, rel_tol=SAME, abs_tol=SAME):
            numbers["total"] = shown(total)
            doubt = (
                f"{self.algorithm.name} gives {{total}} at this token's numbers, its record says {{objective}}: the run was "
                "trained with another algorithm, or a piece looks at more than one token"
            )
            return Term("objective", "objective", doubt, parts)
        values["J"] = token.objective + values.get("KL", 0.0)
        numbers["J"] = shown(values["J"], decimals_for(token))
        j = self._made("J", values, numbers)
        if "KL" not in values:
            return j
        return Term("J − KL", "objective", "= {J} − {KL!}", (j, self._made("KL", values, numbers)))

    def _made(self, key: str, values: dict[str, float], numbers: dict[str, str]) -> Term:
        """Return the term of a number that a piece made: its formula where it gives that number, else what it was called with."""
        slot, _ = MADE_BY[key]
        name = NAMES.get(key, key)
        if self.algorithm is None:
            return Term(name, key, "as recorded")
        piece, parameters = self.pieces[slot], self.parameters[slot]
        known = {**values, **parameters}
        formula = self.formulas[key]
        if formula is not None and _gives(formula, known, values[key]):
            if key not in self._lines:
                self._lines[key] = _lines(key, formula, parameters)
            text, steps = self._lines[key]
            decimals = max(len(numbers["ratio"].partition(".")[2]), 3) if key in FINE else 3
            numbers |= {step: shown(part.evaluate(known), decimals) for step, part in steps}
            names = dict.fromkeys(part.text for part in formula.walk() if part.op == "name")
            parts = [name for name in names if name in values]
        else:
            asked = [part for part in CALLS[slot][1] if self.algorithm.asks_for(slot, part) and part in values]
            parts = [part for part in CALLS[slot][0] if part in values] + asked
            given = ", ".join([f"{part} {{{part}}}" for part in parts] or CALLS[slot][0])
            text = f"= [{getattr(piece, '__name__', label(piece))}]({given}){self._why_not(slot)}"
        if slot == "advantage" and "reward" not in parts:
            parts += [part for part in ("reward", "value") if part in values]
        return Term(name, key, text, tuple(self._part(part, values, numbers) for part in parts))

    def _part(self, key: str, values: dict[str, float], numbers: dict[str, str]) -> Term:
        if key in MADE_BY:
            return self._made(key, values, numbers)
        return Term(key, key, LEAVES.get(key, "what the critic said before this token, when it was sampled"))

    def _formula(self, slot: str, place: int) -> Node | None:
        """Return the formula of a slot's piece, of bounds the one at this place; None where it has none."""
        if (formula := formula_of(self.pieces.get(slot))) is None:
            return None
        return next(iter(terms_of(formula.main, "list")[place:]), None)

    def _why_not(self, slot: str) -> str:
        """Say why no formula of a number that belongs to more than this token is worked out."""
        assert self.algorithm is not None
        if slot == "advantage":
            if self.algorithm.asks_for("advantage", "history"):
                return ", which also remembers what this prompt earned before"
            if "critic" in self.algorithm.models:
                return ", made of the critic's values and the rewards of the whole rollout"
            if self.algorithm.kl_in_reward:
                return ", after the KL penalty was taken off the rewards"
            return ", which looks at more than this group's rewards"
        return ", of the whole rollout" if slot == "aggregate" else ""

    def _shares(self, token: TokenRecord, numbers: dict[str, str]) -> list[Term]:
        numbers["share_of_push"] = _percent(abs(token.push), self.all_pushes)
        numbers["share_of_loss"] = _percent(abs(token.weight * token.objective), self.all_objectives)
        among = "among the {recorded} recorded tokens of this step, of {recorded_responses} of the {B} responses in the loss"
        gradient = Term("share of the gradient", "share_of_push", f"|push| {among}")
        push = "= weight · ∂objective/∂log π = {weight} · {slope!}" if "slope" in numbers else "−∂loss/∂log π"
        loss = Term("share of the loss", "share_of_loss", f"|weight · objective| {among}")
        return [Term("push", "push", push, (gradient, loss))]


def _lines(key: str, formula: Node, parameters: Mapping[str, float]) -> tuple[str, list[tuple[str, Node]]]:
    """Return a formula in names, with numbers, and its last step: a template, and what is worked out for the last step."""
    lines = [InNames().write(formula), template(formula, parameters)]
    steps: list[tuple[str, Node]] = []
    if formula.op == "call" and any(part.parts for part in formula.parts):
        steps = [(f"{key}_{index}", part) for index, part in enumerate(formula.parts)]
        lines.append(f"{formula.text}({', '.join(f'{{{step}}}' for step, _ in steps)})")
    return "\n".join(f"= {line}" for line in dict.fromkeys(lines)), steps


def _used(said: str, terms: Sequence[Term]) -> list[str]:
    """Return the keys of all numbers that a sentence and terms have places for, or show."""
    keys = [place[1] for place in PLACE.finditer(said)]
    for term in terms:
        keys += [term.key, *_used(term.text, term.parts)]
    return list(dict.fromkeys(keys))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"


def _drawn(token: TokenRecord) -> float:
    """Return the probability with which a token was drawn."""
    return token.old_prob if token.sampler_prob is None else token.sampler_prob


def _log_ratio(token: TokenRecord) -> float:
    return log_probability(token.new_prob) - log_probability(token.old_prob)


def numbers_of(token: TokenRecord) -> dict[str, float]:
    """Return what a piece may be given of this token: argument's name → number."""
    numbers = {
        "ratio": token.ratio,
        "advantages": token.advantage,
        "lower": token.lower,
        "upper": math.inf if token.upper is None else token.upper,
        "logp": log_probability(token.new_prob),
        "old_logp": log_probability(token.old_prob),
        "sampler_logp": log_probability(_drawn(token)),
    }
    if token.ref_prob is not None:
        numbers["ref_logp"] = log_probability(token.ref_prob)
    own = {"entropy": token.entropy, "chosen": token.chosen}
    return numbers | {name: float(value) for name, value in own.items() if value is not None}


def _at_these_numbers(
    algorithm: PolicyGradient, tokens: Sequence[TokenRecord]
) -> list[tuple[float, float | None, float | None]]:
    """Return of each token J as the algorithm gives it at its ratio and limits; of a KL penalty value and slope by log π."""
    if not tokens:
        return []
    columns = [numbers_of(token) for token in tokens]
    tensors = {name: torch.tensor([row[name] for row in columns]).double().view(-1, 1, 1) for name in columns[0]}
    alone = replace(
        algorithm,
        ratio=lambda logp, old_logp, mask: tensors["ratio"],
        bounds=lambda old_logp: (tensors["lower"], tensors["upper"]),
    )
    mask = torch.ones_like(tensors["ratio"], dtype=torch.bool)
    chosen = tensors["chosen"] > 0 if "chosen" in tensors else None
    known = tensors.get("ref_logp"), None, tensors.get("entropy"), chosen, tensors["sampler_logp"]
    batch = Batch(tensors["old_logp"], tensors["advantages"], mask, *known)
    logp = tensors["logp"].requires_grad_()
    j = alone.without_kl().objective(logp, batch).value
    if not algorithm.kl_in_loss:
        return [(value, None, None) for value in j.flatten().tolist()]
    penalties = j - alone.objective(logp, batch).value
    slopes = torch.zeros_like(penalties)
    if penalties.requires_grad:  # a penalty of one's own may have no slope
        (slopes,) = torch.autograd.grad(penalties.sum(), logp)
    return list(zip(*(one.flatten().tolist() for one in (j, penalties, slopes)), strict=True))


def _gives(formula: Node, names: Mapping[str, float], value: float) -> bool:
    try:
        return math.isclose(formula.evaluate(names), value, rel_tol=SAME, abs_tol=SAME)
    except (LookupError, ArithmeticError, ValueError, TypeError):  # a name or function that a token has no number for
        return False
