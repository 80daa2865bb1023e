"""The objective of an algorithm as displayed mathematics, made of its pieces' own formulas; of two what differs is marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.notation import LaTeX, Unicode, atoms, compared, painted, repainted, safe, typeset
from rlviz.algorithms.observing import ObservingPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import RewardKL, call_of, numbers_in
from rlviz.pieces.formula import Node, call_of_name, formula_of, function_name
from small_models.checks import checked

SHORT = 3  # a limit of so many names and numbers stands within the objective, a longer one in a row of its own
ORDER = (
    "objective",
    *("surrogate", "bounds", "aggregate", "ratio", "advantage", "kl", "shape", "select"),
    *("loss", "pair loss", "reward", "value loss", "controller", "values"),
)
BEYOND = {  # what a piece beyond the slots is called with
    "value loss": ("values", "old_values", "returns"),
    "controller": ("beta", "kl", "count"),
    "pair loss": ("chosen", "rejected"),
    "reward": ("logp",),
    "observation loss": ("logp",),
}
PAIRS = {"reward": "reward", "pair loss": "pair_loss"}  # what is beyond the slots → the field that holds it
# before an objective's weights, and around what is weighed: LaTeX and Unicode
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
        """By what the row is found among another algorithm's."""
        return self.slot, "" if self.left is None else f"{Unicode().write(self.left)} {self.sign}"

    def with_right(self, right: Iterable[Node]) -> Row:
        """Return the row with this on its right."""
        return replace(self, right=tuple(right))

    def atoms(self) -> Iterator[tuple[str, str, bool]]:
        """Return (slot, name or number or function, whether it is marked) for all that is on the right."""
        for part in self.right:
            yield from atoms(part)

    def parts(self, *, tex: bool) -> list[str]:
        """Return what may begin a new line, each as LaTeX or as Unicode."""
        writer = LaTeX() if tex else Unicode()
        parts = [writer.write(part) for part in self.right]
        if self.slot == "objective":
            total, start, end = FRAME[not tex]
            weights, value, *taken = self.right
            parts = [f"{total}{writer.write(weights)}", f"{start}{writer.write(value, 3 if taken else 0)}"]
            parts += [writer.before_sign + writer.term(part, first=False).lstrip() for part in taken]
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
        """Return (slot, algorithm, row): what two have alike once, by the name "both"; slot and name only where they change."""
        told: list[tuple[str, str, Row]] = []
        before = "", ""
        for beside in self.rows:
            found = [(name, row) for name, row in zip(self.names, beside, strict=True) if row is not None]
            if len(beside) == 2 and beside[0] == beside[1]:
                found = [("both", found[0][1])]
            for name, row in found:
                slot = "" if row.slot == before[0] else row.slot
                told.append((slot, name if slot or name != before[1] else "", row))
                before = row.slot, name
        return told

    def __str__(self) -> str:
        lines = [(slot, name, " ".join(row.parts(tex=False))) for slot, name, row in self.lines()]
        width = max(len(slot) for slot, *_ in lines), max(len(name) for _, name, _ in lines)
        if len(self.names) == 1:
            return "\n".join(f"{slot:{width[0]}}  {said}" for slot, _, said in lines)
        return "\n".join(f"{slot:{width[0]}}  {name:{width[1]}}  {said}" for slot, name, said in lines)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        alone = len(self.names) == 1
        columns = ["slot", "formula"] if alone else ["slot", "algorithm", "formula"]
        rows = [columns, [":---"] * len(columns)]
        for slot, name, row in self.lines():
            said = " ".join(f"$\\displaystyle {part}$" for part in row.parts(tex=True))
            rows.append([safe(slot), *([] if alone else [safe(name)]), said])
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        if alone:
            return table
        before, after = map(safe, self.names)
        return f"{table}\n\nUnderlined: what differs between {before} and {after}."


@checked
def formulas(algorithm: Algorithm | str, *, against: Algorithm | str | None = None) -> Formulas:
    """Return the algorithm's objective as mathematics, made of the formulas that its pieces have as text.

    The objective stands first, whole; below it are the ratio, the advantage, the rewards, the groups of the sum, what else its
    pieces define, and their numbers. m is 1 on the tokens that count and 0 on padding. A piece without a formula stands as a
    function by its name. against: another algorithm; its rows stand beside these, and what differs between the two is marked,
    underlined and coloured in a notebook, «…» in a text. Both may be names, as in `rlviz show`. Raises ValueError for an unknown
    name.
    """
    from rlviz.algorithms import find_algorithm  # which imports this module

    chosen = [find_algorithm(one) if isinstance(one, str) else one for one in (against, algorithm) if one is not None]
    if len(chosen) == 1:
        return Formulas((chosen[0].name,), tuple((row,) for row in _rows(chosen[0])))
    before, after = (one.name for one in chosen)
    names = (before, after) if before != after else (f"{before} before", f"{after} after")
    return Formulas(names, tuple(_beside(*chosen)))


def _pieces(algorithm: Algorithm) -> dict[str, Any]:
    """Return what an algorithm is made of: slot, or what is beyond them → piece, or the weight of a part of a critic's loss."""
    pieces = {**algorithm.slots(), **algorithm.beyond_the_slots()}
    if isinstance(algorithm, ActorCritic):
        pieces |= {name: getattr(algorithm, name) for name in ("value_weight", "entropy_weight")}
    return {slot: piece for slot, piece in pieces.items() if piece is not None}


def _name(text: str, slot: str = "", value: Any = None) -> Node:
    return Node("name", (), text, value, slot)


def _number(value: int | float, slot: str) -> Node:
    node = Node("number", (), f"{abs(value):g}", value, slot)
    return Node("−", (node,), slot=slot) if value < 0 else node


def _rows(algorithm: Algorithm) -> list[Row]:
    """Return the rows of one algorithm, in their order."""
    made = _Rows()
    if isinstance(algorithm, PreferenceOptimization):
        made.pairs(algorithm)
    else:
        made.slots(algorithm)
    made.values(_pieces(algorithm))
    return sorted([*made.rows, *made.defined], key=lambda row: ORDER.index(row.slot))


class _Rows:
    """Writes the rows of an algorithm, a piece at a time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.defined: list[Row] = []  # what stands behind them

    def add(self, slot: str, left: Node | None, *right: Node, sign: str = "=") -> None:
        self.rows.append(Row(slot, left, right, sign))

    def read(self, slot: str, piece: Any, called_with: Sequence[str], put: Mapping[str, Node] | None = None) -> Node:
        """Return a piece's formula and add rows for what it defines; where none can be read, return the call of its name."""
        numbers, put = numbers_in(piece), put or {}
        if (formula := formula_of(piece)) is None:
            return call_of_name(piece, [typeset(_name(name), slot, {}, put) for name in called_with], slot)
        for left, right in formula.defined:
            row = Row(slot, typeset(left, "", {}, {}), (typeset(right, slot, numbers, put),))
            self.defined.append(row)
        return typeset(formula.main, slot, numbers, put)

    def slots(self, algorithm: PolicyGradient) -> None:
        """Add the rows of an algorithm that samples."""

        def node(slot: str, put: Mapping[str, Node] | None = None) -> Node:
            protocol = RewardKL if slot == "kl" and algorithm.kl_in_reward else algorithm.protocols[slot]
            return self.read(slot, getattr(algorithm, slot), (*call_of(protocol)[0], *algorithm.can.asks[slot]), put)

        limits = node("bounds")
        within = _within(limits)
        surrogate = node("surrogate", within)
        inside = [surrogate, *(row.right[0] for row in self.defined if row.slot == "surrogate")]
        if within["lower"].op == "name" or not any(part.slot == "bounds" for each in inside for part in each.walk()):
            if limits.op == "list" and len(limits.parts) == 2:
                for name, limit in zip(within, limits.parts, strict=True):
                    self.add("bounds", _name(name), limit)
            else:
                self.add("bounds", Node("list", tuple(map(_name, within))), limits)
        padding = (
            replace(_name("mask"), value=algorithm.shape) if algorithm.can.loss_mask is not None else _name("mask")
        )
        objective = [Node("·", (padding, node("aggregate"))), surrogate]
        if algorithm.kl_in_loss:
            objective.append(Node("−", (node("kl"),), slot="kl"))
        self.add("objective", _name("J"), *objective)
        self.add("ratio", _name("ratio"), node("ratio"))
        self.add("advantage", _name("advantages"), node("advantage"))
        self.add("select", _name("groups"), node("select"))
        if algorithm.shape is not None and (shaped := node("shape")) != _name("reward"):
            self.add("shape", _name("reward"), shaped, sign="←")
        of_token = isinstance(algorithm, ActorCritic)
        if isinstance(algorithm, ActorCritic):
            self.critic(algorithm)
        if isinstance(algorithm, ObservingPolicyGradient):
            slot = "observation loss"
            (piece,) = algorithm.beyond_the_slots().values()
            added = Node("call", (self.read(slot, piece, BEYOND[slot]),), "mean_of_observed", slot=slot)
            self.add("loss", _name("loss"), Node("+", (Node("−", (_name("J"),)), added)))
        if algorithm.kl_in_reward:
            penalty = node("kl")
            taken = Node("−", (penalty if of_token else Node("call", (penalty,), "sum", slot="kl"),), slot="kl")
            name = "token_reward" if of_token else "reward"
            self.add("kl", _name(name), Node("+", (_name(name, "kl"), taken), slot="kl"), sign="←")

    def critic(self, algorithm: ActorCritic) -> None:
        """Add the rows of what a critic adds: the reward of a token, the whole loss, the critic's own, and what moves beta."""
        self.add("advantage", _name("token_reward"), _name("score_at_end"))
        terms = [Node("−", (_name("J"),))]
        for weight, of, sign in (("value_weight", "value_loss", "+"), ("entropy_weight", "entropy", "−")):
            value = getattr(algorithm, weight)
            term = Node("·", (_name(weight, weight, value), Node("call", (_name(of),), "aggregate")), slot=weight)
            terms += [term if sign == "+" else Node("−", (term,), slot=weight)] if value else []
        self.add("loss", _name("loss"), Node("+", tuple(terms)))
        for slot, piece in algorithm.beyond_the_slots().items():
            left, sign = ("value_loss", "=") if slot == "value loss" else ("beta", "←")
            self.add(slot, _name(left), self.read(slot, piece, BEYOND[slot]), sign=sign)

    def pairs(self, algorithm: PreferenceOptimization) -> None:
        """Add the rows of an algorithm of pairs: the loss, and the reward that the policy gives a response."""
        reward, pair_loss = ((*BEYOND[slot], *algorithm.asks[name]) for slot, name in PAIRS.items())
        put = {side: _name(f"reward_of_{side}", "pair loss") for side in ("chosen", "rejected")}
        loss = self.read("pair loss", algorithm.pair_loss, pair_loss, put)
        self.add("loss", _name("loss"), Node("call", (loss,), "mean_of_pairs"))
        self.add("reward", _name("reward_of_response"), self.read("reward", algorithm.reward, reward))

    def values(self, pieces: Mapping[str, Any]) -> None:
        """Add the row of the numbers that the formulas name, and of all those of a piece without one.

        Where two pieces have unlike numbers of one name, the name is told with the slot.
        """
        named = {
            (part.slot, part.text) for row in [*self.rows, *self.defined] for side in row.right for part in side.walk()
        }
        found = [
            (slot, name, value)
            for slot, piece in pieces.items()
            for name, value in ({slot: piece} if isinstance(piece, int | float) else numbers_in(piece)).items()
            if not isinstance(value, bool) and ((slot, name) in named or (slot, function_name(piece)) in named)
        ]
        entries: dict[str, Node] = {}
        for slot, name, value in found:
            clash = any(name == other and value != its for _, other, its in found)
            text = f"{name}_{slot.replace(' ', '_')}" if clash else name
            entries.setdefault(text, Node("is", (_name(text, slot), _number(value, slot)), "=", slot=slot))
        if entries:
            self.add("values", None, *entries.values())


def _within(limits: Node) -> dict[str, Node]:
    """Return what stands for lower and upper in the surrogate: two short limits themselves, else their names."""
    short = all(sum(not part.parts for part in limit.walk()) <= SHORT for limit in limits.parts)
    own = limits.parts if limits.op == "list" and len(limits.parts) == 2 and short else (None, None)
    return {
        name: _name(name, "bounds") if one is None else one for name, one in zip(("lower", "upper"), own, strict=True)
    }


# two algorithms


def _beside(a: Algorithm, b: Algorithm) -> list[tuple[Row | None, Row | None]]:
    """Return the rows of two algorithms beside each other, what differs between them marked."""
    ours, theirs = ({row.key: row for row in _rows(one)} for one in (a, b))
    pieces, others = _pieces(a), _pieces(b)
    changed = {slot for slot in pieces.keys() | others.keys() if pieces.get(slot) != others.get(slot)}
    keys = sorted({**theirs, **ours}, key=lambda key: ORDER.index(key[0]))
    rows = [_marked(ours.get(key), theirs.get(key), changed) for key in keys]
    seen = {slot for beside in rows for row in beside if row for slot, _, marked in row.atoms() if marked}
    if not (unseen := changed - seen):
        return rows
    return [(_all_of(one, unseen), _all_of(other, unseen)) for one, other in rows]  # two pieces that are written alike


def _marked(a: Row | None, b: Row | None, changed: AbstractSet[str]) -> tuple[Row | None, Row | None]:
    ours, theirs = (() if row is None else row.right for row in (a, b))
    if "values" in {row.slot for row in (a, b) if row}:  # in any order
        first = [part if part in theirs else painted(part, changed) for part in ours]
        second = [part if part in ours else painted(part, changed) for part in theirs]
    else:
        pairs = [compared(one, other, changed) for one, other in zip(ours, theirs, strict=False)]
        first, second = [one for one, _ in pairs], [other for _, other in pairs]
        for marked, parts in ((first, ours), (second, theirs)):
            marked += [painted(part, changed) for part in parts[len(pairs) :]]
    return a and a.with_right(first), b and b.with_right(second)


def _all_of(row: Row | None, slots: AbstractSet[str]) -> Row | None:
    """Return a row with all that comes from these slots marked."""
    return row and row.with_right(repainted(part, slots) for part in row.right)
