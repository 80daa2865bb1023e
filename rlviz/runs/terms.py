"""Where the numbers of a recorded token come from: probabilities → ratio, rewards → A, limits, surrogate, KL, weight, push.

No formula stands here: pieces say theirs (`rlviz.pieces.words.says`), and one is shown only where it gives the recorded number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.slots import CALLS, numbers_in
from rlviz.pieces.formula import Node, formula_of, terms_of
from rlviz.pieces.words import label
from rlviz.runs.formula import (
    PLACE,
    SAME,
    InNames,
    decimals_for,
    describe_gradient,
    fill_template,
    format_number,
    formula_template,
)
from rlviz.types import Batch, GroupRecord, ResponseRecord, StepRecord, TokenRecord

GIVE_IT = "to see the formula, give what trained this run: inspect_run(run, algorithm=…)"
FINE = ("ratio", "lower", "upper", "J", "objective")  # written with as many decimals as it takes to tell them apart
NAMED = 60  # log-ratios of a response that a text names one by one
AMONG = "among the {recorded} recorded tokens of this step, of {recorded_responses} of the {B} responses in the loss"
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

    name: as it is called. key: of its value among the token's numbers. text: a line or more, a template
    (`formula.fill_template`). parts: the numbers that it is made of.
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
    """A token's terms. sentence: what the loss does to it, a template. numbers: key → number as it is shown."""

    sentence: str
    terms: tuple[Term, ...]
    numbers: Mapping[str, str]

    @property
    def words(self) -> str:
        """What the loss does to the token, in a sentence."""
        return fill_template(self.sentence, self.numbers)

    def term(self, key: str) -> Term:
        """Return the term with this key. Raises KeyError where there is none."""
        term = Term("", "", "", self.terms).find(key)
        if term is None:
            raise KeyError(key)
        return term

    def text(self, key: str) -> str:
        """Return a term's lines with the token's numbers in them."""
        return fill_template(self.term(key).text, self.numbers)


def token_terms(algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> list[list[TokenTerms]]:
    """Return the terms of each token of a step's group, [G][T]; algorithm: what trained the run, None where that is not known."""
    writer = _TermWriter(algorithm, record, group)
    return [[writer.terms(response, token) for token in response.tokens] for response in group.responses]


def finite_push(token: TokenRecord) -> float:
    """Return a token's push, 0 where the run had diverged and it is not a number."""
    return 0.0 if math.isnan(token.push) else token.push


def is_finite(token: TokenRecord) -> bool:
    """Return whether a token's numbers are finite, so that something can be worked out."""
    numbers = [value for value in vars(token).values() if isinstance(value, float)]
    return token.ratio > 0 and all(map(math.isfinite, numbers))


def log_probability(probability: float) -> float:
    """Return the log of a recorded probability; one of 0 is one that float32 could not hold."""
    return math.log(max(probability, sys.float_info.min))


class _TermWriter:
    """Writes the terms of a group's tokens, from what these share: pieces, formulas, sums over the step, numbers of the group."""

    def __init__(self, algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> None:
        self.algorithm = algorithm
        self.pieces = {} if algorithm is None else algorithm.slots()
        self.parameters = {slot: {"inf": math.inf, **numbers_in(piece)} for slot, piece in self.pieces.items()}
        self.formulas: dict[str, Node | None] = {}  # key → its piece's formula, None where that has none
        for key, (slot, index) in MADE_BY.items():
            formula = formula_of(self.pieces.get(slot))
            self.formulas[key] = None if formula is None else next(iter(terms_of(formula.main, "list")[index:]), None)
        # key → its template, what its last step works out, and its names
        self._lines: dict[str, tuple[str, dict[str, Node], list[str]]] = {}
        # Shares of the gradient and the loss are of all tokens that the step recorded, in all groups.
        finite = [t for g in record.groups for r in g.responses for t in r.tokens if is_finite(t)]
        self.all_pushes = sum(abs(token.push) for token in finite)
        self.all_objectives = sum(abs(token.weight * token.objective) for token in finite)
        trained = [t for r in group.responses for t in r.tokens if is_finite(t) and t.weight]
        computed = compute_objectives(algorithm, trained) if algorithm is not None else []
        self.objectives = {id(token): values for token, values in zip(trained, computed, strict=False)}

        # The numbers that all tokens of the group have, and texts.
        rewards = [response.reward for response in group.responses]
        mean = sum(rewards) / len(rewards)
        self.group_values = {"mean": mean, "G": float(len(rewards)), "B": float(record.responses_used)}
        if len(rewards) > 1:
            squares = [(reward - mean) * (reward - mean) for reward in rewards]
            self.group_values["std"] = math.sqrt(sum(squares) / (len(rewards) - 1))
        tokens = record.response_length * record.responses_sampled
        if record.responses_used == record.responses_sampled and math.isfinite(tokens):
            self.group_values["tokens"] = float(
                round(tokens)
            )  # no group was left out, so this is all that the loss saw
        self.group_texts = {
            "rewards": ", ".join(map(format_number, rewards)),
            "recorded": str(len(finite)),
            "recorded_responses": str(sum(bool(r.tokens) for g in record.groups for r in g.responses)),
        }
        # Each response's own numbers and text, from the log-ratios of its trained tokens; of a long one a text names the first.
        self.response_values: dict[int, dict[str, float]] = {}
        self.response_texts: dict[int, str] = {}
        for response in group.responses:
            trained = [token for token in response.tokens if token.weight and not token.observed]
            logs = [log_probability(token.new_prob) - log_probability(token.old_prob) for token in trained]
            values = {"reward": response.reward, "length": float(len(logs))}
            self.response_values[id(response)] = values | ({"mean_log_ratio": sum(logs) / len(logs)} if logs else {})
            more = f", and {len(logs) - NAMED} more" if len(logs) > NAMED else ""
            self.response_texts[id(response)] = ", ".join(map(format_number, logs[:NAMED])) + more

    def terms(self, response: ResponseRecord, token: TokenRecord) -> TokenTerms:
        """Return a token's sentence, and its terms with all their numbers."""
        if not is_finite(token):
            return TokenTerms(DIVERGED, (), {})
        # What the algorithm itself gives at the recorded ratio and limits; of a token outside the loss, the record alone.
        j, penalty, kl_slope = self.objectives.get(id(token), (token.objective, None, None))
        sentence, texts = describe_gradient(self.algorithm, token, kl_slope)

        values = token_numbers(token) | self.group_values | self.response_values[id(response)]
        recorded = ("old_prob", "new_prob", "ref_prob", "value", "weight", "push", "objective")
        values |= {name: number for name in recorded if (number := getattr(token, name)) is not None}
        values |= {"sampler_prob": _sampler_prob(token), "J": j} | ({} if penalty is None else {"KL": penalty})

        decimals = decimals_for(token)
        numbers = {name: format_number(value, decimals if name in FINE else 3) for name, value in values.items()}
        numbers |= self.group_texts | {"log_ratios": self.response_texts[id(response)]} | texts
        terms: list[Term] = []
        if token.weight:
            loss = abs(token.weight * token.objective)
            shares = {"share_of_push": (abs(token.push), self.all_pushes), "share_of_loss": (loss, self.all_objectives)}
            numbers |= {name: f"{part / total:.1%}" if total else "0 %" for name, (part, total) in shares.items()}
            gradient = Term("share of the gradient", "share_of_push", f"|push| {AMONG}")
            push = "= weight · ∂objective/∂log π = {weight} · {slope!}" if "slope" in numbers else "−∂loss/∂log π"
            share = Term("share of the loss", "share_of_loss", f"|weight · objective| {AMONG}")
            objective = self._objective(token, values, numbers)
            weight = self._term("weight", values, numbers)
            terms = [objective, weight, Term("push", "push", push, (gradient, share))]
        return TokenTerms(
            sentence, tuple(terms), {key: numbers[key] for key in _keys(sentence, terms) if key in numbers}
        )

    def _objective(self, token: TokenRecord, values: dict[str, float], numbers: dict[str, str]) -> Term:
        """Return the term of J − KL, or of a doubt where the algorithm does not give what was recorded."""
        parts = tuple(self._term(name, values, numbers) for name in CALLS["surrogate"][0])
        if self.algorithm is None:
            return Term("objective", "objective", f"as recorded; {GIVE_IT}", parts)
        # A formula is shown only if it gives what was recorded, up to the rounding of float32.
        total = values["J"] - values.get("KL", 0.0)
        if not math.isclose(total, token.objective, rel_tol=SAME, abs_tol=SAME):
            numbers["total"] = format_number(total)
            doubt = (
                f"{self.algorithm.name} gives {{total}} at this token's numbers, its record says {{objective}}: the run was "
                "trained with another algorithm, or a piece looks at more than one token"
            )
            return Term("objective", "objective", doubt, parts)
        values["J"] = token.objective + values.get("KL", 0.0)
        numbers["J"] = format_number(values["J"], decimals_for(token))
        j = self._term("J", values, numbers)
        if "KL" not in values:
            return j
        return Term("J − KL", "objective", "= {J} − {KL!}", (j, self._term("KL", values, numbers)))

    def _term(self, key: str, values: dict[str, float], numbers: dict[str, str]) -> Term:
        """Return the term of a number: its piece's formula where that gives the number, else what the piece was called with."""
        if key not in MADE_BY:
            return Term(key, key, LEAVES.get(key, "what the critic said before this token, when it was sampled"))
        slot, _ = MADE_BY[key]
        name = NAMES.get(key, key)
        if self.algorithm is None:
            return Term(name, key, "as recorded")
        piece, formula = self.pieces[slot], self.formulas[key]
        known = {**values, **self.parameters[slot]}
        if formula is not None and _gives(formula, known, values[key]):
            if key not in self._lines:
                self._lines[key] = _formula_lines(key, formula, self.parameters[slot])
            text, steps, names = self._lines[key]
            decimals = max(len(numbers["ratio"].partition(".")[2]), 3) if key in FINE else 3
            numbers |= {step: format_number(part.evaluate(known), decimals) for step, part in steps.items()}
            parts = [name for name in names if name in values]
        else:
            required, optional = CALLS[slot]
            parts = [part for part in required if part in values]
            parts += [part for part in optional if self.algorithm.asks_for(slot, part) and part in values]
            arguments = ", ".join([f"{part} {{{part}}}" for part in parts] or required)
            # why no formula of a number that belongs to more than this token is worked out
            why = ", of the whole rollout" if slot == "aggregate" else ""
            if slot == "advantage" and self.algorithm.asks_for("advantage", "history"):
                why = ", which also remembers what this prompt earned before"
            elif slot == "advantage" and "critic" in self.algorithm.models:
                why = ", made of the critic's values and the rewards of the whole rollout"
            elif slot == "advantage" and self.algorithm.kl_in_reward:
                why = ", after the KL penalty was taken off the rewards"
            elif slot == "advantage":
                why = ", which looks at more than this group's rewards"
            text = f"= [{getattr(piece, '__name__', label(piece))}]({arguments}){why}"
        # A name can stand for many numbers (rewards of a group): the token's own is added, so that a reader can follow it.
        if slot == "advantage" and "reward" not in parts:
            parts += [part for part in ("reward", "value") if part in values]
        return Term(name, key, text, tuple(self._term(part, values, numbers) for part in parts))


def _formula_lines(key: str, formula: Node, parameters: Mapping[str, float]) -> tuple[str, dict[str, Node], list[str]]:
    """Return a formula in names, with numbers, and its last step, as a template; what that step works out; the names."""
    lines = [InNames().write(formula), formula_template(formula, parameters)]
    steps: dict[str, Node] = {}
    if formula.op == "call" and any(part.parts for part in formula.parts):
        steps = {f"{key}_{index}": part for index, part in enumerate(formula.parts)}
        lines.append(f"{formula.text}({', '.join(f'{{{step}}}' for step in steps)})")
    names = list(dict.fromkeys(part.text for part in formula.walk() if part.op == "name"))
    return "\n".join(f"= {line}" for line in dict.fromkeys(lines)), steps, names


def _gives(formula: Node, names: Mapping[str, float], value: float) -> bool:
    try:
        return math.isclose(formula.evaluate(names), value, rel_tol=SAME, abs_tol=SAME)
    except (LookupError, ArithmeticError, ValueError, TypeError):  # a name or function that a token has no number for
        return False


def _keys(sentence: str, terms: Sequence[Term]) -> list[str]:
    """Return the keys of all numbers that a sentence and terms have places for, or show."""
    keys = [place[1] for place in PLACE.finditer(sentence)]
    for term in terms:
        keys += [term.key, *_keys(term.text, term.parts)]
    return list(dict.fromkeys(keys))


def _sampler_prob(token: TokenRecord) -> float:
    """Return the probability with which a token was drawn."""
    return token.old_prob if token.sampler_prob is None else token.sampler_prob


def token_numbers(token: TokenRecord) -> dict[str, float]:
    """Return what a piece may be given of this token: argument's name → number."""
    numbers = {
        "ratio": token.ratio,
        "advantages": token.advantage,
        "lower": token.lower,
        "upper": math.inf if token.upper is None else token.upper,
        "logp": log_probability(token.new_prob),
        "old_logp": log_probability(token.old_prob),
        "sampler_logp": log_probability(_sampler_prob(token)),
    }
    if token.ref_prob is not None:
        numbers["ref_logp"] = log_probability(token.ref_prob)
    optional = {"entropy": token.entropy, "chosen": token.chosen}
    return numbers | {name: float(value) for name, value in optional.items() if value is not None}


def compute_objectives(
    algorithm: PolicyGradient, tokens: Sequence[TokenRecord]
) -> list[tuple[float, float | None, float | None]]:
    """Return of each token J as the algorithm gives it at its ratio and limits; of a KL penalty value and slope by log π."""
    if not tokens:
        return []
    columns = [token_numbers(token) for token in tokens]
    tensors = {name: torch.tensor([row[name] for row in columns]).double().view(-1, 1, 1) for name in columns[0]}
    # The recorded ratio and limits stand in for the pieces that made them from all tokens of a response.
    at_record = replace(
        algorithm,
        ratio=lambda logp, old_logp, mask: tensors["ratio"],
        bounds=lambda old_logp: (tensors["lower"], tensors["upper"]),
    )
    mask = torch.ones_like(tensors["ratio"], dtype=torch.bool)
    chosen = tensors["chosen"] > 0 if "chosen" in tensors else None
    known = tensors.get("ref_logp"), None, tensors.get("entropy"), chosen, tensors["sampler_logp"]
    batch = Batch(tensors["old_logp"], tensors["advantages"], mask, *known)
    logp = tensors["logp"].requires_grad_()
    j = at_record.without_kl().objective(logp, batch).value
    if not algorithm.kl_in_loss:
        return [(value, None, None) for value in j.flatten().tolist()]
    penalties = j - at_record.objective(logp, batch).value
    slopes = torch.zeros_like(penalties)
    if penalties.requires_grad:  # a penalty of one's own may have no slope
        (slopes,) = torch.autograd.grad(penalties.sum(), logp)
    return list(zip(*(values.flatten().tolist() for values in (j, penalties, slopes)), strict=True))
