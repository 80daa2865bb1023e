"""Where the numbers of a recorded token come from: probabilities → ratio, rewards → A, limits, surrogate, KL, weight, push.

No formula stands here: pieces have theirs (`rlviz.pieces.words.explained`), shown only where it gives the recorded number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

import torch
from torch.nn.utils.rnn import pad_sequence

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.slots import CALLS, numbers_in
from rlviz.pieces.formula import Node, formula_of, terms_of
from rlviz.pieces.words import label
from rlviz.runs.counterfactual import RecordedGroup, log_probability
from rlviz.runs.formula import PLACE, FormulaLine, describe_gradient, format_number, format_numbers
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord

SAME = 1e-5  # records are float32
NAMED = 60  # log-ratios of a response that a text names one by one
AMONG = "among the {recorded} recorded tokens of this step, of {recorded_responses} of the {B} responses in the loss"
DIVERGED = "The run had diverged: its numbers are not finite, so there is nothing to work out."
RECORDED = ("old_prob", "new_prob", "ref_prob", "ratio", "lower", "upper", "value", "weight", "push", "objective")
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
# why a number that belongs to more than this token is not worked out
WHY = {"aggregate": ", of the whole rollout", "advantage": ", which looks at more than this group's rewards"}
LEAVES = {
    "logp": "= log(new_prob) = log({new_prob}), after this step's updates",
    "old_logp": "= log(old_prob) = log({old_prob}), when it was sampled",
    "sampler_logp": "= log(sampler_prob) = log({sampler_prob}), by the engine that drew it",
    "ref_logp": "= log(ref_prob) = log({ref_prob}), under the reference policy",
    "entropy": "of the whole next-token distribution, nats, after this step's updates",
    "chosen": "1 for a token that the surrogate chose among all of the rollout, else 0",
    "value": "what the critic said before this token, when it was sampled",
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


@dataclass(frozen=True)
class TokenTerms:
    """A token's terms. sentence: what the loss does to it, a template. numbers: key → number as it is shown."""

    sentence: str
    terms: tuple[Term, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)


def is_finite(token: TokenRecord) -> bool:
    """Return whether a token's numbers are finite, so that something can be worked out."""
    numbers = [value for value in vars(token).values() if isinstance(value, float)]
    return token.ratio > 0 and all(map(math.isfinite, numbers))


def token_terms(algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> list[list[TokenTerms]]:
    """Return the terms of each token of a step's group, [G][T]; algorithm: what trained the run, None where that is not known."""
    rows = [response.tokens for response in group.responses]
    if not all(is_finite(token) for row in rows for token in row):
        return [[TokenTerms(DIVERGED)] * len(row) for row in rows]
    writer = _TermWriter(algorithm, record, group)
    objectives: list[list[dict[str, float]]] = [[{} for _ in row] for row in rows]
    if algorithm is not None:
        objectives = compute_objectives(algorithm, group)
    terms = []
    for response, computed in zip(group.responses, objectives, strict=True):
        values, texts = response_numbers(response)
        pairs = zip(response.tokens, computed, strict=True)
        terms.append([writer.terms(token, token_values(token) | values | more, texts) for token, more in pairs])
    return terms


def token_values(token: TokenRecord) -> dict[str, float]:
    """Return a token's recorded numbers, and those that a piece may be given of it, by the argument's name."""
    values = {name: value for name in RECORDED if (value := getattr(token, name)) is not None}
    values |= {"upper": math.inf if token.upper is None else token.upper, "advantages": token.advantage}
    values["sampler_prob"] = token.old_prob if token.sampler_prob is None else token.sampler_prob
    logs = {"logp": "new_prob", "old_logp": "old_prob", "sampler_logp": "sampler_prob", "ref_logp": "ref_prob"}
    values |= {log: log_probability(values[name]) for log, name in logs.items() if name in values}
    optional = {"entropy": token.entropy, "chosen": token.chosen}
    return values | {name: float(value) for name, value in optional.items() if value is not None}


def response_numbers(response: ResponseRecord) -> tuple[dict[str, float], dict[str, str]]:
    """Return what all tokens of a response share: numbers from the log-ratios of its trained tokens, and these as a text."""
    trained = [token for token in response.tokens if token.weight and not token.observed]
    logs = [log_probability(token.new_prob) - log_probability(token.old_prob) for token in trained]
    values = {"reward": response.reward, "length": float(len(logs))}
    more = f", and {len(logs) - NAMED} more" if len(logs) > NAMED else ""
    texts = {"log_ratios": ", ".join(map(format_number, logs[:NAMED])) + more}
    return values | ({"mean_log_ratio": sum(logs) / len(logs)} if logs else {}), texts


def compute_objectives(algorithm: PolicyGradient, group: GroupRecord) -> list[list[dict[str, float]]]:
    """Return of each token J as the algorithm gives it; of a KL penalty in its loss value and slope by log π."""
    x = RecordedGroup.from_record(group)
    logp = x.logp.requires_grad_()
    # The recorded ratio and limits stand in for the pieces that made them, which may need more than this group.
    numbers = [
        [(t.ratio, t.lower, math.inf if t.upper is None else t.upper) for t in r.tokens] for r in group.responses
    ]
    rows = [torch.tensor(row, dtype=torch.double).view(-1, 3) for row in numbers]
    ratio, lower, upper = pad_sequence(rows, batch_first=True, padding_value=1.0)[None].unbind(-1)
    at_record = replace(algorithm, ratio=lambda logp, old_logp, mask: ratio, bounds=lambda old_logp: (lower, upper))
    columns = {"J": at_record.without_kl().objective(logp, x.batch).value}
    if algorithm.kl_in_loss:
        columns["KL"] = columns["J"] - at_record.objective(logp, x.batch).value
        columns["slope_kl"] = torch.zeros_like(logp)
        if columns["KL"].requires_grad:  # a penalty of one's own may have no slope
            (columns["slope_kl"],) = torch.autograd.grad(columns["KL"].sum(), logp)
    tokens = [zip(*row, strict=True) for row in zip(*(values[0].tolist() for values in columns.values()), strict=True)]
    return [
        [dict(zip(columns, token, strict=True)) for token, _ in zip(row, response.tokens, strict=False)]
        for row, response in zip(tokens, group.responses, strict=True)
    ]


class _Formula:
    """A piece's formula. text: in names, with numbers, and its last step, a template; steps: what the last step works out."""

    def __init__(self, key: str, formula: Node, parameters: Mapping[str, float]) -> None:
        self.node, self.parameters = formula, {"inf": math.inf, **parameters}
        self.names = list(dict.fromkeys(part.text for part in formula.walk() if part.op == "name"))
        self.steps: dict[str, Node] = {}
        lines = [FormulaLine().line(formula), FormulaLine(self.parameters).line(formula)]
        if formula.op == "call" and any(part.parts for part in formula.parts):
            self.steps = {f"{key}_{index}": part for index, part in enumerate(formula.parts)}
            lines.append(f"= {formula.text}({', '.join(f'{{{step}}}' for step in self.steps)})")
        self.text = "\n".join(dict.fromkeys(lines))

    def evaluate(self, values: Mapping[str, float], value: float) -> dict[str, float] | None:
        """Return the value of each step; None where the formula does not give the value, up to the rounding of float32."""
        known = {**values, **self.parameters}
        try:
            if not math.isclose(self.node.evaluate(known), value, rel_tol=SAME, abs_tol=SAME):
                return None
        except (LookupError, ArithmeticError, ValueError, TypeError):  # a name that a token has no number for
            return None
        return {step: part.evaluate(known) for step, part in self.steps.items()}


class _TermWriter:
    """Writes the terms of a group's tokens, from what these share: pieces, formulas, sums over the step, numbers of the group."""

    def __init__(self, algorithm: PolicyGradient | None, record: StepRecord, group: GroupRecord) -> None:
        self.algorithm = algorithm
        self.pieces = {} if algorithm is None else algorithm.slots()
        self.formulas: dict[str, _Formula] = {}
        for key, (slot, index) in MADE_BY.items():
            formula = formula_of(self.pieces.get(slot))
            sides = () if formula is None else terms_of(formula.main, "list")[index:]
            if sides:
                self.formulas[key] = _Formula(key, sides[0], numbers_in(self.pieces[slot]))
        # Shares of the gradient and the loss are of all tokens that the step recorded, in all groups.
        recorded = [t for g in record.groups for r in g.responses for t in r.tokens if is_finite(t)]
        self.all_pushes = sum(abs(token.push) for token in recorded)
        self.all_objectives = sum(abs(token.weight * token.objective) for token in recorded)
        # The numbers that all tokens of the group have, and texts.
        rewards = [response.reward for response in group.responses]
        self.values = {"mean": fmean(rewards), "G": float(len(rewards)), "B": float(record.responses_used)}
        if len(rewards) > 1:
            self.values["std"] = stdev(rewards)
        tokens = record.response_length * record.responses_sampled
        if record.responses_used == record.responses_sampled and math.isfinite(tokens):
            self.values["tokens"] = float(round(tokens))  # no group was left out, so this is all that the loss saw
        self.texts = {
            "rewards": ", ".join(map(format_number, rewards)),
            "recorded": str(len(recorded)),
            "recorded_responses": str(sum(bool(r.tokens) for g in record.groups for r in g.responses)),
        }

    def terms(self, token: TokenRecord, values: dict[str, float], texts: Mapping[str, str]) -> TokenTerms:
        """Return a token's sentence, and its terms with all their numbers."""
        sentence, more = describe_gradient(self.algorithm, token, values.get("slope_kl"))
        values |= self.values | more
        terms: list[Term] = []
        if token.weight:
            objective, weight = self._objective(token, values), self._term("weight", values)
            gradient = Term("share of the gradient", "share_of_push", f"|push| {AMONG}")
            share = Term("share of the loss", "share_of_loss", f"|weight · objective| {AMONG}")
            push = "= weight · ∂objective/∂log π = {weight} · {slope!}"
            terms = [objective, weight, Term("push", "push", push, (gradient, share))]
        numbers = {**format_numbers(values), **self.texts, **texts}
        loss = abs(token.weight * token.objective)
        shares = {"share_of_push": (abs(token.push), self.all_pushes), "share_of_loss": (loss, self.all_objectives)}
        numbers |= {name: f"{part / total:.1%}" if total else "0 %" for name, (part, total) in shares.items()}
        return TokenTerms(sentence, tuple(terms), {key: numbers[key] for key in _keys(sentence, terms)})

    def _objective(self, token: TokenRecord, values: dict[str, float]) -> Term:
        """Return the term of J − KL, or of a doubt where the algorithm does not give what was recorded."""
        penalty, why = values.get("KL", 0.0), "as recorded; to see the formula, give what trained this run: "
        why += "inspect_run(run, algorithm=…)"
        if self.algorithm is not None:
            values["total"] = values["J"] - penalty
            if math.isclose(values["total"], token.objective, rel_tol=SAME, abs_tol=SAME):
                values["J"] = token.objective + penalty
                j = self._term("J", values)
                if "KL" not in values:
                    return j
                return Term("J − KL", "objective", "= {J} − {KL!}", (j, self._term("KL", values)))
            why = (
                f"{self.algorithm.name} gives {{total}} at this token's numbers, its record says {{objective}}: the run was "
                "trained with another algorithm, or a piece looks at more than one token"
            )
        return Term("objective", "objective", why, tuple(self._term(name, values) for name in CALLS["surrogate"][0]))

    def _term(self, key: str, values: dict[str, float]) -> Term:
        """Return the term of a number: its piece's formula where that gives the number, else what the piece was called with."""
        if key not in MADE_BY:
            return Term(key, key, LEAVES.get(key, "as recorded"))
        slot, name = MADE_BY[key][0], NAMES.get(key, key)
        if self.algorithm is None:
            return Term(name, key, "as recorded")
        formula = self.formulas.get(key)
        steps = None if formula is None else formula.evaluate(values, values[key])
        if formula is not None and steps is not None:
            values |= steps
            text, parts = formula.text, [name for name in formula.names if name in values]
        else:
            piece, (required, optional) = self.pieces[slot], CALLS[slot]
            names = [*required, *(part for part in optional if self.algorithm.asks_for(slot, part))]
            parts = [part for part in names if part in values]
            arguments = ", ".join([f"{part} {{{part}}}" for part in parts] or required)
            text = f"= [{getattr(piece, '__name__', label(piece))}]({arguments}){WHY.get(slot, '')}"
        # A name can stand for many numbers (rewards of a group): the token's own is added, so that a reader can follow it.
        if slot == "advantage" and "reward" not in parts:
            parts += [part for part in ("reward", "value") if part in values]
        return Term(name, key, text, tuple(self._term(part, values) for part in parts))


def _keys(sentence: str, terms: Sequence[Term]) -> list[str]:
    """Return the keys of all numbers that a sentence and terms have places for, or show."""
    keys = [place[1] for place in PLACE.finditer(sentence)]
    for term in terms:
        keys += [term.key, *_keys(term.text, term.parts)]
    return list(dict.fromkeys(keys))
