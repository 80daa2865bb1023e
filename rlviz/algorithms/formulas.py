"""The objective of an algorithm as displayed mathematics, from the formulas of its pieces, with the differences of two marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.notation import LaTeX, Unicode, atoms, mark_differences, mark_slots, safe, typeset
from rlviz.algorithms.observing import ObservingPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import RewardKL, call_of, numbers_in
from rlviz.pieces.formula import Node, call_of_name, formula_of, function_name
from small_models.checks import checked

SHORT = 3  # names and numbers in a limit that stands within the objective; a longer one has a row of its own
ORDER = (
    "objective",
    *("surrogate", "bounds", "aggregate", "ratio", "advantage", "kl", "shape", "select"),
    *("loss", "pair loss", "reward", "value loss", "controller", "values"),
)
BEYOND = {  # arguments of a piece beyond the slots
    "value loss": ("values", "old_values", "returns"),
    "controller": ("beta", "kl", "count"),
    "pair loss": ("chosen", "rejected"),
    "reward": ("logp",),
    "observation loss": ("logp",),
}
PAIRS = {"reward": "reward", "pair loss": "pair_loss"}  # name beyond the slots → field
# before the weights of an objective, and around the weighted terms: LaTeX and Unicode
FRAME = (r"\sum_{g\in S}\sum_{i,t} ", r"\Big[", r"\Big]"), ("Σ_g∈S Σ_i,t ", "· [", "]")


@dataclass(frozen=True)
class Row:
    """A line of mathematics, left = right. slot: where it belongs, or "objective", "loss", "values".

    left: None in the row of values. right: where several, each may begin a new line. sign: "=" or "←".
    """

    slot: str
    left: Node | None
    right: tuple[Node, ...]
    sign: str = "="

    @property
    def key(self) -> tuple[str, str]:
        """The slot and the left side, by which rows of two algorithms are matched."""
        return self.slot, "" if self.left is None else f"{Unicode().write(self.left)} {self.sign}"

    def parts(self, *, tex: bool) -> list[str]:
        """Return the parts of the row as LaTeX or as Unicode; each may begin a new line."""
        writer = LaTeX() if tex else Unicode()
        parts = [writer.write(part) for part in self.right]
        if self.slot == "objective":
            total, start, end = FRAME[not tex]
            weights, value, *penalties = self.right
            parts = [f"{total}{writer.write(weights)}", f"{start}{writer.write(value, 3 if penalties else 0)}"]
            parts += [writer.before_sign + writer.term(part, first=False).lstrip() for part in penalties]
            parts[-1] += end
        if self.left is not None:
            sign = r"\leftarrow" if tex and self.sign == "←" else self.sign
            parts[0] = f"{writer.write(self.left)} {sign} {parts[0]}"
        else:
            parts[:-1] = [f"{part}," for part in parts[:-1]]
        return parts


@dataclass(frozen=True)
class Formulas:
    """An algorithm's objective in rows, or two algorithms' row beside row: Markdown in a notebook, Unicode when printed.

    names: of the algorithm; against another, of that one and of the algorithm. rows: beside each other, a row of each, None where
    one has no such row.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[Row | None, ...], ...]

    def lines(self) -> list[tuple[str, str, Row]]:
        """Return (slot, algorithm, row): equal rows of two once, by the name "both"; slot and name only where they change."""
        lines: list[tuple[str, str, Row]] = []
        before = "", ""
        for pair in self.rows:
            named = [(name, row) for name, row in zip(self.names, pair, strict=True) if row is not None]
            if len(pair) == 2 and pair[0] == pair[1]:
                named = [("both", named[0][1])]
            for name, row in named:
                slot = "" if row.slot == before[0] else row.slot
                lines.append((slot, name if slot or name != before[1] else "", row))
                before = row.slot, name
        return lines

    def __str__(self) -> str:
        lines = [(slot, name, " ".join(row.parts(tex=False))) for slot, name, row in self.lines()]
        width = max(len(slot) for slot, *_ in lines), max(len(name) for _, name, _ in lines)
        if len(self.names) == 1:
            return "\n".join(f"{slot:{width[0]}}  {text}" for slot, _, text in lines)
        return "\n".join(f"{slot:{width[0]}}  {name:{width[1]}}  {text}" for slot, name, text in lines)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        is_single = len(self.names) == 1
        columns = ["slot", "formula"] if is_single else ["slot", "algorithm", "formula"]
        rows = [columns, [":---"] * len(columns)]
        for slot, name, row in self.lines():
            text = " ".join(f"$\\displaystyle {part}$" for part in row.parts(tex=True))
            rows.append([safe(slot), *([] if is_single else [safe(name)]), text])
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        if is_single:
            return table
        before, after = map(safe, self.names)
        return f"{table}\n\nUnderlined: what differs between {before} and {after}."


@checked
def formulas(algorithm: Algorithm | str, *, against: Algorithm | str | None = None) -> Formulas:
    """Return the algorithm's objective as mathematics, from the formulas that its pieces have as text.

    The objective stands first; below it are the ratio, the advantage, the rewards, the groups of the sum, further definitions of
    the pieces, and their numbers. m is 1 on the tokens in the loss and 0 on padding. A piece without a formula stands as a
    function by its name. against: another algorithm; its rows stand beside these, with differences marked, underlined and
    coloured in a notebook, «…» in a text. Both may be names, as in `rlviz show`. Raises ValueError for an unknown name.
    """
    from rlviz.algorithms import find_algorithm  # which imports this module

    values = [find_algorithm(x) if isinstance(x, str) else x for x in (against, algorithm) if x is not None]
    if len(values) == 1:
        return Formulas((values[0].name,), tuple((row,) for row in _rows(values[0])))
    before, after = (value.name for value in values)
    names = (before, after) if before != after else (f"{before} before", f"{after} after")
    return Formulas(names, tuple(_side_by_side(*values)))


def _pieces(algorithm: Algorithm) -> dict[str, Any]:
    """Return slot, or name beyond the slots → piece, or weight of a part of a critic's loss."""
    pieces = {**algorithm.slots(), **algorithm.beyond_the_slots()}
    if isinstance(algorithm, ActorCritic):
        pieces |= {name: getattr(algorithm, name) for name in ("value_weight", "entropy_weight")}
    return {slot: piece for slot, piece in pieces.items() if piece is not None}


def _name(text: str, slot: str = "", value: Any = None) -> Node:
    return Node("name", (), text, value, slot)


def _negative(node: Node, slot: str = "") -> Node:
    return Node("−", (node,), slot=slot)


def _rows(algorithm: Algorithm) -> list[Row]:
    """Return the rows of one algorithm, in their order."""
    writer = _RowWriter()
    if isinstance(algorithm, PreferenceOptimization):
        writer.add_pairs(algorithm)
    else:
        writer.add_slots(algorithm)
    writer.add_values(_pieces(algorithm))
    return sorted([*writer.rows, *writer.defined], key=lambda row: ORDER.index(row.slot))


class _RowWriter:
    """Writes the rows of an algorithm, a piece at a time. defined: rows for definitions inside the formulas of pieces."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.defined: list[Row] = []

    def add(self, slot: str, left: Node | None, *right: Node, sign: str = "=") -> None:
        self.rows.append(Row(slot, left, right, sign))

    def read(
        self, slot: str, piece: Any, arguments: Sequence[str], replacements: Mapping[str, Node] | None = None
    ) -> Node:
        """Return a piece's formula and add rows for its definitions; the call of its name where it has no formula."""
        numbers, replacements = numbers_in(piece), replacements or {}
        if (formula := formula_of(piece)) is None:
            return call_of_name(piece, [typeset(_name(name), slot, {}, replacements) for name in arguments], slot)
        for left, right in formula.defined:
            row = Row(slot, typeset(left, "", {}, {}), (typeset(right, slot, numbers, replacements),))
            self.defined.append(row)
        return typeset(formula.main, slot, numbers, replacements)

    def add_slots(self, algorithm: PolicyGradient) -> None:
        """Add the rows of an algorithm that samples."""

        def read(slot: str, replacements: Mapping[str, Node] | None = None) -> Node:
            protocol = RewardKL if slot == "kl" and algorithm.kl_in_reward else algorithm.protocols[slot]
            arguments = (*call_of(protocol)[0], *algorithm.can.asks[slot])
            return self.read(slot, getattr(algorithm, slot), arguments, replacements)

        # Two short limits replace lower and upper within the surrogate, longer ones get rows of their own.
        bounds = read("bounds")
        limits = bounds.parts if bounds.op == "list" and len(bounds.parts) == 2 else ()
        is_short = bool(limits) and all(sum(not part.parts for part in limit.walk()) <= SHORT for limit in limits)
        names = [_name(name, "bounds") for name in ("lower", "upper")]
        surrogate = read("surrogate", dict(zip(("lower", "upper"), limits if is_short else names, strict=True)))
        texts = [surrogate, *(row.right[0] for row in self.defined if row.slot == "surrogate")]
        if not is_short or not any(part.slot == "bounds" for text in texts for part in text.walk()):
            if limits:
                for name, limit in zip(("lower", "upper"), limits, strict=True):
                    self.add("bounds", _name(name), limit)
            else:
                self.add("bounds", Node("list", (_name("lower"), _name("upper"))), bounds)

        # The mask carries the shaping as its value where that filters responses, so that a comparison sees it change.
        mask = _name("mask", value=None if algorithm.can.loss_mask is None else algorithm.shape)
        objective = [Node("·", (mask, read("aggregate"))), surrogate]
        if algorithm.kl_in_loss:
            objective.append(_negative(read("kl"), "kl"))
        self.add("objective", _name("J"), *objective)
        self.add("ratio", _name("ratio"), read("ratio"))
        self.add("advantage", _name("advantages"), read("advantage"))
        self.add("select", _name("groups"), read("select"))
        if algorithm.shape is not None and (shape := read("shape")) != _name("reward"):
            self.add("shape", _name("reward"), shape, sign="←")

        has_critic = isinstance(algorithm, ActorCritic)
        if isinstance(algorithm, ActorCritic):
            self.add_critic(algorithm)
        if isinstance(algorithm, ObservingPolicyGradient):
            slot = "observation loss"
            loss = self.read(slot, algorithm.observation_loss, BEYOND[slot])
            mean = Node("call", (loss,), "mean_of_observed", slot=slot)
            self.add("loss", _name("loss"), Node("+", (_negative(_name("J")), mean)))
        if algorithm.kl_in_reward:
            # A critic's KL comes off the reward of each token, a group's off the reward of the response, summed.
            penalty = read("kl") if has_critic else Node("call", (read("kl"),), "sum", slot="kl")
            name = "token_reward" if has_critic else "reward"
            self.add("kl", _name(name), Node("+", (_name(name, "kl"), _negative(penalty, "kl")), slot="kl"), sign="←")

    def add_critic(self, algorithm: ActorCritic) -> None:
        """Add the rows of a critic: the reward of a token, the total loss, the critic's own loss, and the controller of beta."""
        self.add("advantage", _name("token_reward"), _name("score_at_end"))
        terms = [_negative(_name("J"))]
        for weight, loss in (("value_weight", "value_loss"), ("entropy_weight", "entropy")):
            if value := getattr(algorithm, weight):
                mean = Node("call", (_name(loss),), "aggregate")
                term = Node("·", (_name(weight, weight, value), mean), slot=weight)
                terms.append(term if weight == "value_weight" else _negative(term, weight))
        self.add("loss", _name("loss"), Node("+", tuple(terms)))
        for slot, piece in algorithm.beyond_the_slots().items():
            left, sign = ("value_loss", "=") if slot == "value loss" else ("beta", "←")
            self.add(slot, _name(left), self.read(slot, piece, BEYOND[slot]), sign=sign)

    def add_pairs(self, algorithm: PreferenceOptimization) -> None:
        """Add the rows of an algorithm of pairs: the loss, and the reward that the policy gives a response."""
        reward, pair_loss = ((*BEYOND[slot], *algorithm.asks[name]) for slot, name in PAIRS.items())
        rewards = {side: _name(f"reward_of_{side}", "pair loss") for side in ("chosen", "rejected")}
        loss = self.read("pair loss", algorithm.pair_loss, pair_loss, rewards)
        self.add("loss", _name("loss"), Node("call", (loss,), "mean_of_pairs"))
        self.add("reward", _name("reward_of_response"), self.read("reward", algorithm.reward, reward))

    def add_values(self, pieces: Mapping[str, Any]) -> None:
        """Add the row of the numbers that the formulas name, and of all numbers of a piece without a formula.

        Where two pieces have different numbers of one name, the slot stands behind the name.
        """
        named = {
            (part.slot, part.text) for row in [*self.rows, *self.defined] for side in row.right for part in side.walk()
        }
        numbers = [
            (slot, name, value)
            for slot, piece in pieces.items()
            for name, value in ({slot: piece} if isinstance(piece, int | float) else numbers_in(piece)).items()
            if not isinstance(value, bool) and ((slot, name) in named or (slot, function_name(piece)) in named)
        ]
        entries: dict[str, Node] = {}
        for slot, name, value in numbers:
            clash = any(name == other and value != other_value for _, other, other_value in numbers)
            text = f"{name}_{slot.replace(' ', '_')}" if clash else name
            number = Node("number", (), f"{abs(value):g}", value, slot)
            equation = _name(text, slot), _negative(number, slot) if value < 0 else number
            entries.setdefault(text, Node("is", equation, "=", slot=slot))
        if entries:
            self.add("values", None, *entries.values())


# two algorithms


def _side_by_side(a: Algorithm, b: Algorithm) -> list[tuple[Row | None, Row | None]]:
    """Return the rows of two algorithms in pairs, with their differences marked."""
    ours, theirs = ({row.key: row for row in _rows(algorithm)} for algorithm in (a, b))
    pieces, others = _pieces(a), _pieces(b)
    changed = {slot for slot in pieces.keys() | others.keys() if pieces.get(slot) != others.get(slot)}
    keys = sorted({**theirs, **ours}, key=lambda key: ORDER.index(key[0]))
    pairs = [(ours.get(key), theirs.get(key)) for key in keys]
    rows = [(_mark_row(x, y, changed), _mark_row(y, x, changed)) for x, y in pairs]
    marked = {
        slot
        for pair in rows
        for row in pair
        if row
        for part in row.right
        for slot, _, is_marked in atoms(part)
        if is_marked
    }

    def mark_all(row: Row | None) -> Row | None:
        return row and replace(row, right=tuple(mark_slots(part, changed - marked) for part in row.right))

    # Two different pieces may be written alike; then no mark tells them apart, so all of their slot is marked.
    return [(mark_all(first), mark_all(second)) for first, second in rows] if changed - marked else rows


def _mark_row(row: Row | None, other: Row | None, changed: AbstractSet[str]) -> Row | None:
    """Return a row with what the other row of its key has not marked."""
    others = () if other is None else other.right
    return row and replace(row, right=tuple(mark_differences(part, others, changed) for part in row.right))
