"""Mathematics as a tree, read from the formulas that pieces have as text; two trees compared; a tree as LaTeX and as Unicode.

A leaf knows the slot whose piece it comes from, and of a parameter the value. `compared` marks what differs between two trees.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlviz.pieces.words import parsed

Mark = Literal["", "all", "head"]
# between #0072B2 on white and its brighter twin on black: LaTeX in a notebook has one colour for both, 4.3 : 1 on either
ACCENT = "#1A7EBB"
LOGS = {"logp": "π_θ", "old_logp": "π_old", "ref_logp": "π_ref", "sampler_logp": "π_sampler"}
STANDS_FOR = {"mean_log_ratio": "mean(logp − old_logp)", "tokens": "sum_of_batch(length_j)"}
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "lam": "λ", "lambda": "λ", "phi": "φ", "tau": "τ",
}  # fmt: skip
# name → (LaTeX, Unicode); others are made from their letters
SYMBOLS = {
    "π_θ": (r"\pi_\theta", "π_θ"),
    "π_old": (r"\pi_{\text{old}}", "π_old"),
    "π_ref": (r"\pi_{\text{ref}}", "π_ref"),
    "π_sampler": (r"\pi_{\text{sampler}}", "π_sampler"),
    "loss": (r"\text{loss}", "loss"),
    "ratio": ("r_{i,t}", "r"),
    "advantages": ("A_{i,t}", "A"),
    "lower": (r"\ell_{i,t}", "ℓ"),
    "upper": ("u_{i,t}", "u"),
    "mask": ("m_{i,t}", "m"),
    "reward": ("R_i", "R"),
    "rewards": ("R", "R"),
    "mean": (r"\operatorname{mean}(R)", "mean(R)"),
    "std": (r"\operatorname{std}(R)", "std(R)"),
    "std_of_batch": (r"\operatorname{std}_{\text{batch}}(R)", "std_batch(R)"),
    "max_reward": (r"\max_j R_j", "max R"),
    "min_reward": (r"\min_j R_j", "min R"),
    "reward_j": ("R_j", "R_j"),
    "all_groups": (r"\text{all groups}", "all groups"),
    "length": (r"\lvert o_i\rvert", "|o_i|"),
    "length_j": (r"\lvert o_j\rvert", "|o_j|"),
    "lengths": (r"\lvert o\rvert", "|o|"),
    "score_at_end": (r"R_i\,[t\text{ last}]", "R·[t last]"),
    "token_reward": ("R_{i,t}", "R_t"),
    "td_error": (r"\delta_{i,t}", "δ_t"),
    "value": ("V_{i,t}", "V_t"),
    "next_value": ("V_{i,t+1}", "V_t+1"),
    "values": ("V", "V"),
    "old_values": (r"V_{\text{old}}", "V_old"),
    "A_raw": (r"A^{\text{raw}}_{i,t}", "A_raw"),
    "next_A_raw": (r"A^{\text{raw}}_{i,t+1}", "A_raw,t+1"),
    "entropy": ("H_{i,t}", "H"),
    "old_entropy": (r"H^{\text{old}}_{i,t}", "H_old"),
    "chosen": (r"\mathbb{1}_{\text{chosen}}", "[chosen]"),
    "reward_of_chosen": ("R_w", "R_w"),
    "reward_of_rejected": ("R_l", "R_l"),
    "reward_of_response": ("R(o)", "R(o)"),
    "value_loss": (r"L_{\text{value}}", "L_value"),
    "value_weight": ("c_V", "c_V"),
    "entropy_weight": ("c_H", "c_H"),
    "observation_weight": (r"\lambda", "λ"),
    "groups": ("S", "S"),
    "inf": (r"\infty", "∞"),
}
# function → (LaTeX before its argument, Unicode before it, brackets)
BEFORE = {
    "min": (r"\min", "min"),
    "max": (r"\max", "max"),
    "exp": (r"\exp", "exp"),
    "log": (r"\log", "log"),
    "sigmoid": (r"\sigma", "σ"),
    "one": (r"\mathbb{1}", "1"),
    "sum": (r"\sum_t", "Σ_t "),
    "prod": (r"\prod_t", "Π_t "),
    "mean": (r"\frac{1}{\lvert o_i\rvert}\sum_t", "1/|o_i| Σ_t "),
    "mean_of_batch": (r"\operatorname{mean}_{\text{batch}}", "mean_batch "),
    "mean_of_pairs": (r"\operatorname{mean}_{\text{pairs}}", "mean over pairs of "),
    "mean_of_observed": (r"\operatorname{mean}_{\text{observed}}", "mean over observed tokens of "),
    "sum_of_group": (r"\sum_{j\in g}", "Σ_j∈g "),
    "sum_of_batch": (r"\sum_j", "Σ_j "),
    "sum_to_come": (r"\sum_{t'\ge t}", "Σ_t'≥t "),
    "mean_to_come": (r"\operatorname{mean}_{t'\ge t}", "mean_t'≥t "),
}
PREFIX = ("log", "sum", "prod", "mean", "mean_of_batch", "sum_of_group", "sum_of_batch", "sum_to_come", "mean_to_come")
# function → what stands around its arguments and between them, in LaTeX and in Unicode
AROUND = {
    "sg": ((r"\operatorname{sg}\left[", r"\right]"), ("sg[", "]")),
    "abs": ((r"\left\lvert ", r"\right\rvert"), ("|", "|")),
    "groups_with": ((r"\{g : ", r"\}"), ("{g : ", "}")),
    "sqrt": ((r"\sqrt{", "}"), ("√(", ")")),
    "choose": ((r"\binom{", "}{", "}"), ("C(", ", ", ")")),
}
COMPARISONS: dict[type, tuple[str, str]] = {
    ast.Gt: (">", ">"), ast.GtE: (r"\ge", "≥"), ast.Lt: ("<", "<"), ast.LtE: (r"\le", "≤"), ast.Eq: ("=", "="),
}  # fmt: skip
UNNAMED = {name: len(signs[0]) - 1 for name, signs in AROUND.items()}  # written without name → how many arguments
# how tightly an operator binds; the rest binds as 9
LEVELS = {"if": 0, "or": 1, "is": 2, "+": 3, "·": 5, "−": 5, "^": 7}


@dataclass(frozen=True)
class Node:
    """A part of a formula.

    op: what it is: "name", "number", "call", "+", "·", "/", "^", "−" (of one part), "if", "is" (a comparison), "or", or "list".
    text: of a name, a number, a function, the signs of a comparison. value: of a parameter, or the piece that a call stands for.
    slot: where it comes from. mark: what of it differs from the tree that it was compared with.
    """

    op: str
    parts: tuple[Node, ...] = ()
    text: str = ""
    value: Any = None
    slot: str = field(default="", compare=False)
    mark: Mark = field(default="", compare=False)

    def walk(self) -> Iterator[Node]:
        """Return it and all below it."""
        yield self
        for part in self.parts:
            yield from part.walk()


def read(text: str, slot: str, values: Mapping[str, Any], put: Mapping[str, Node] | None = None) -> Node:
    """Return a clause of a formula as a tree. put: what stands in place of a name. Raises ValueError for what is none."""
    try:
        return _Reader(slot, values, put or {}).node(parsed(text))
    except RecursionError as error:
        raise ValueError(f"formula must have fewer terms; got {len(text)} characters") from error


@dataclass(frozen=True)
class _Reader:
    slot: str
    values: Mapping[str, Any]
    put: Mapping[str, Node]

    def make(self, op: str, *parts: Node, text: str = "", value: Any = None) -> Node:
        return Node(op, parts, text, value, self.slot)

    def name(self, name: str) -> Node:
        if name in self.put:
            return self.put[name]
        if name in STANDS_FOR:
            return self.node(parsed(STANDS_FOR[name]))
        if name in LOGS:
            return self.make("call", self.make("name", text=LOGS[name]), text="log")
        return self.make("name", text=name, value=self.values.get(name))

    def probability(self, node: ast.expr) -> Node | None:
        """Return p where the expression is log p of a token, perhaps with its gradient stopped."""
        match node:
            case ast.Name(id=name) if name in LOGS:
                return self.make("name", text=LOGS[name])
            case ast.Call(func=ast.Name(id="sg"), args=[inner]) if (p := self.probability(inner)) is not None:
                return self.make("call", p, text="sg")
        return None

    def quotient(self, node: ast.expr) -> Node | None:
        """Return p / q where the expression is log p − log q."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            p, q = self.probability(node.left), self.probability(node.right)
            return None if p is None or q is None else self.make("/", p, q)
        return None

    def node(self, node: ast.expr) -> Node:
        match node:
            case ast.Name(id=name):
                return self.name(name)
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return self.make("number", text=f"{number:g}")
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self.make("−", self.node(inner))
            case ast.BinOp(left=left, op=op, right=right):
                if (quotient := self.quotient(node)) is not None:
                    return self.make("call", quotient, text="log")
                return self.binary(op, left, right)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.make("if", *map(self.node, (body, test, other)))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return self.make("or", *map(self.node, parts))
            case ast.Compare(left=left, ops=ops, comparators=parts) if all(type(op) in COMPARISONS for op in ops):
                signs = " ".join(COMPARISONS[type(op)][1] for op in ops)
                return self.make("is", *map(self.node, (left, *parts)), text=signs)
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
                return self.call(name, parts)
            case ast.Tuple(elts=parts):
                return self.make("list", *map(self.node, parts))
        raise ValueError(
            f"formula must be made of names, numbers, + − · /, comparisons and calls; got {ast.unparse(node)}"
        )

    def binary(self, op: ast.operator, left: ast.expr, right: ast.expr) -> Node:
        a, b = self.node(left), self.node(right)
        match op:
            case ast.Add():
                return self.make("+", *parts_of(a, "+"), *parts_of(b, "+"))
            case ast.Sub():
                return self.make("+", *parts_of(a, "+"), self.make("−", b))
            case ast.Mult():
                if a == b:
                    return self.make("^", a, self.make("number", text="2"))
                return self.make("·", *parts_of(a, "·"), *parts_of(b, "·"))
            case ast.Div():
                return self.make("/", a, b)
            case ast.Pow():
                return self.make("^", a, b)
        raise ValueError(f"formula must be made with + − · / and **; got {type(op).__name__}")

    def call(self, name: str, parts: Sequence[ast.expr]) -> Node:
        if name == "exp" and len(parts) == 1:
            for inner in (self.probability(parts[0]), self.quotient(parts[0])):
                if inner is not None:
                    return inner
        if len(parts) != UNNAMED.get(name, len(parts)):
            raise ValueError(f"formula must give {name} {UNNAMED[name]} arguments; got {len(parts)}")
        return self.make("call", *map(self.node, parts), text=name)


def parts_of(node: Node, op: str) -> tuple[Node, ...]:
    """Return the terms of a sum, the factors of a product; of another node itself."""
    return node.parts if node.op == op else (node,)


# what differs


def painted(node: Node, changed: AbstractSet[str]) -> Node:
    """Return a node marked whole, or where it holds parts of slots that stayed, in those of slots that changed."""
    if all(not part.slot or part.slot in changed for part in node.walk()):
        return replace(node, mark="all")
    head: Mark = "head" if node.slot in changed else ""
    return replace(node, parts=tuple(painted(part, changed) for part in node.parts), mark=head)


def compared(a: Node, b: Node, changed: AbstractSet[str]) -> tuple[Node, Node]:
    """Return two trees with what differs between them marked, in slots that changed alone."""
    if a == b:
        return a, b
    for outer, inner in ((a, b), (b, a)):
        if (grown := _grown(outer, inner, changed)) is not None:
            return grown if outer is a else grown[::-1]
    for op in "·+":  # one of the two may be a single term, or factor, of the other
        if op in (a.op, b.op) and (a.op == b.op or any(part in parts_of(b, op) for part in parts_of(a, op))):
            return _chains(a, b, op, changed)
    if (a.op, a.text, len(a.parts)) == (b.op, b.text, len(b.parts)) and a.parts:
        pairs = [compared(one, other, changed) for one, other in zip(a.parts, b.parts, strict=True)]
        head: Mark = "" if a.value == b.value else "head"  # two rules of one name
        ours, theirs = (replace(each, mark=head) for each in (a, b))
        return _with_parts(ours, (pair[0] for pair in pairs)), _with_parts(theirs, (pair[1] for pair in pairs))
    return painted(a, changed), painted(b, changed)


def _grown(outer: Node, inner: Node, changed: AbstractSet[str]) -> tuple[Node, Node] | None:
    """Compare a function, or a quotient, that came around what it is of; None where `inner` is no part of `outer`."""
    if outer.op not in ("call", "/") or outer.text in UNNAMED or outer.slot not in changed:
        return None
    place = next((place for place, part in enumerate(outer.parts) if _bare(part) == _bare(inner)), None)
    if place is None or (outer.op == "/" and place):
        return None
    part, inner = compared(outer.parts[place], inner, changed)
    parts = (part if at == place else painted(other, changed) for at, other in enumerate(outer.parts))
    return replace(_with_parts(outer, parts), mark="head"), inner


def _bare(node: Node, slot: str | None = None) -> Node:
    """Return a tree without what other slots' pieces put into it."""
    slot = node.slot if slot is None else slot
    return Node("name") if node.slot != slot else _with_parts(node, (_bare(part, slot) for part in node.parts))


def _with_parts(node: Node, parts: Iterable[Node]) -> Node:
    return replace(node, parts=tuple(parts))


def _chains(a: Node, b: Node, op: str, changed: AbstractSet[str]) -> tuple[Node, Node]:
    """Compare the terms of two sums, or the factors of two products, of which one may be a single one."""
    both = parts_of(a, op), parts_of(b, op)
    alike = any(part in both[1] for part in both[0])
    classes: list[Node] = []
    first, second = ([_number(part, classes) for part in parts] for parts in both)
    made: tuple[list[Node], list[Node]] = ([], [])
    for kind, i, j, k, n in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        gone, come = both[0][i:j], both[1][k:n]
        if kind != "equal" and len(gone) == len(come):
            pairs = [compared(one, other, changed) for one, other in zip(gone, come, strict=True)]
            gone, come = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        elif kind != "equal":
            gone, come = (tuple(painted(part, changed) for part in parts) for parts in (gone, come))
        made[0].extend(gone)
        made[1].extend(come)
    if not alike and all(part.mark == "all" for part in (*made[0], *made[1])):
        return painted(a, changed), painted(b, changed)
    return tuple(  # type: ignore[return-value]
        _with_parts(each, parts) if each.op == op else parts[0] for each, parts in zip((a, b), made, strict=True)
    )


def _number(node: Node, classes: list[Node]) -> int:
    """Return which of the nodes seen so far this one equals; pieces need have no hash."""
    place = next((place for place, one in enumerate(classes) if one == node), len(classes))
    classes += [node] if place == len(classes) else []
    return place


def repainted(node: Node, slots: AbstractSet[str]) -> Node:
    """Return a node with all that comes from these slots marked, beside what is marked already."""
    if node.mark == "all" or (node.slot in slots and not node.parts):
        return replace(node, mark="all")
    mark: Mark = "head" if node.slot in slots else node.mark
    return replace(node, parts=tuple(repainted(part, slots) for part in node.parts), mark=mark)


def atoms(node: Node, *, marked: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Return (slot, text, whether it is marked) of each name, number and function in a tree."""
    marked = marked or node.mark == "all"
    if node.text and node.op != "is":
        yield node.slot, node.text, marked or (node.mark == "head" and node.text not in UNNAMED)
    for part in node.parts:
        yield from atoms(part, marked=marked)


def value_of(value: int | float, slot: str) -> Node:
    """Return a number as a node."""
    node = Node("number", (), f"{abs(value):g}", value, slot)
    return Node("−", (node,), slot=slot) if value < 0 else node


# what it looks like


class Writer:
    """What LaTeX and Unicode have in common: the order, the signs and the brackets."""

    column: int  # of the tables of symbols
    minus: str
    times: str
    comma: str
    before_sign: str  # what makes a sign that nothing stands before one between two terms
    mark: tuple[str, str]  # what stands around what is marked

    def bracketed(self, inside: str) -> str:
        raise NotImplementedError

    def fraction(self, node: Node, level: int) -> str:
        raise NotImplementedError

    def power(self, base: str, exponent: str) -> str:
        raise NotImplementedError

    def words(self, text: str) -> str:
        raise NotImplementedError

    def symbol(self, name: str) -> str:
        raise NotImplementedError

    def number(self, text: str) -> str:
        raise NotImplementedError

    def own(self, name: str) -> str:
        """Return the name of a function that is not in the tables."""
        raise NotImplementedError

    def prefixed(self, head: str, inside: str) -> str:
        raise NotImplementedError

    def marked(self, text: str) -> str:
        return f"{self.mark[0]}{text}{self.mark[1]}"

    def write(self, node: Node, level: int = 0) -> str:
        """Return a node's text, in brackets where it binds less tightly than `level`."""
        text = self.fraction(node, level) if node.op == "/" else self.inside(node)
        if LEVELS.get(node.op, 9) < level:
            text = self.bracketed(text)
        return self.marked(text) if node.mark == "all" else text

    def inside(self, node: Node) -> str:
        parts = node.parts
        match node.op:
            case "name":
                return self.symbol(node.text)
            case "number":
                return self.number(node.text)
            case "+":
                return "".join(self.term(part, first=not place) for place, part in enumerate(parts))
            case "−":
                return f"{self.minus}{self.write(parts[0], 5)}"
            case "·":
                return self.product(
                    [self.write(part, 6 if place or part.op != "−" else 5) for place, part in enumerate(parts)]
                )
            case "^":
                return self.power(self.write(parts[0], 8), self.write(parts[1]))
            case "is":
                signs = node.text.split(" ")
                said = {unicode: (tex, unicode)[self.column] for tex, unicode in COMPARISONS.values()}
                return self.write(parts[0], 3) + "".join(
                    f" {said[sign]} {self.write(part, 3)}" for sign, part in zip(signs, parts[1:], strict=True)
                )
            case "or":
                return self.words(" or ").join(self.write(part, 2) for part in parts)
            case "if":
                value, test, other = parts
                joined = self.write(value, 1), self.write(test, 1), self.write(other, 0)
                return f"{joined[0]}{self.words(' if ')}{joined[1]}{self.words(', else ')}{joined[2]}"
            case "list":
                return ", ".join(self.write(part) for part in parts)
        return self.called(node)

    def term(self, part: Node, *, first: bool) -> str:
        """Return a term of a sum with the sign before it; the sign of one that differs is marked with it."""
        minus = part.op == "−"
        if first:
            return self.write(part, 4)
        if not minus:
            return f" + {self.write(part, 4)}"
        whole = f"{self.minus} {self.write(part.parts[0], 5)}"
        return f" {self.marked(f'{self.before_sign}{whole}') if part.mark == 'all' else whole}"

    def product(self, factors: Sequence[str]) -> str:
        return self.times.join(factors)

    def called(self, node: Node) -> str:
        name, parts = node.text, node.parts
        if name in AROUND:
            start, *between = AROUND[name][self.column]
            return start + "".join(self.write(part) + sign for part, sign in zip(parts, between, strict=True))
        head = BEFORE[name][self.column] if name in BEFORE else self.own(name)
        if name in PREFIX and len(parts) == 1:
            inside = self.write(parts[0], 6 if name == "log" else 5)
            return self.prefixed(self.before(node, head.rstrip()), inside)
        return self.before(node, head) + self.bracketed(self.comma.join(self.write(part) for part in parts))

    def before(self, node: Node, text: str) -> str:
        return self.marked(text) if node.mark == "head" else text


class LaTeX(Writer):
    """A tree as LaTeX that MathJax, KaTeX and latex2mathml read; what is marked is underlined and in the accent."""

    column, minus, times, comma, before_sign = 0, "-", r"\,", ",\\ ", "{}"
    mark = rf"\textcolor{{{ACCENT}}}{{\underline{{", "}}"

    def bracketed(self, inside: str) -> str:
        return rf"\left({inside}\right)" if r"\frac" in inside or r"\sum" in inside else f"({inside})"

    def fraction(self, node: Node, level: int) -> str:
        return rf"\frac{{{self.write(node.parts[0])}}}{{{self.write(node.parts[1])}}}"

    def power(self, base: str, exponent: str) -> str:
        return f"{{{base}}}^{{{exponent}}}"

    def words(self, text: str) -> str:
        return rf"\text{{{text}}}"

    def symbol(self, name: str) -> str:
        if name in SYMBOLS:
            return SYMBOLS[name][0]
        head, _, rest = name.partition("_")
        if head in GREEK:
            head = "\\" + {"eps": "varepsilon", "lam": "lambda"}.get(head, head)
        elif len(head) != 1 and not head.isupper():
            return rf"\text{{{self.letters(name)}}}"
        return rf"{head}_{{\text{{{self.letters(rest)}}}}}" if rest else head

    def letters(self, name: str) -> str:
        return "".join(sign if sign.isalnum() else " " for sign in name)

    def number(self, text: str) -> str:
        mantissa, _, exponent = text.partition("e")
        if not exponent:
            return text.replace("inf", r"\infty")
        return (f"{mantissa} \\cdot " if mantissa != "1" else "") + f"10^{{{int(exponent)}}}"

    def product(self, factors: Sequence[str]) -> str:
        numbers = [factor[0].isdigit() for factor in factors]
        signs = [r" \cdot " if after else self.times for after in numbers[1:]]
        return "".join(part for pair in zip(factors, [*signs, ""], strict=True) for part in pair)

    def own(self, name: str) -> str:
        return rf"\operatorname{{{name}}}" if name == "clip" else rf"\text{{{self.letters(name).strip()}}}"

    def prefixed(self, head: str, inside: str) -> str:
        return f"{head} {inside}"


class Unicode(Writer):
    """A tree as a line of Unicode; what is marked stands in «…»."""

    column, minus, times, comma, before_sign = 1, "−", "·", ", ", ""
    mark = "«", "»"

    def bracketed(self, inside: str) -> str:
        return f"({inside})"

    def fraction(self, node: Node, level: int) -> str:
        top, bottom = node.parts
        text = f"{self.write(top, 6 if top.op == '/' else 5)} / {self.write(bottom, 6)}"
        return self.bracketed(text) if level > 5 else text

    def power(self, base: str, exponent: str) -> str:
        return f"{base}²" if exponent == "2" else f"{base}^{exponent}"

    def words(self, text: str) -> str:
        return text

    def symbol(self, name: str) -> str:
        if name in SYMBOLS:
            return SYMBOLS[name][1]
        head, line, rest = name.partition("_")
        return f"{GREEK.get(head, head)}{line}{rest}"

    def number(self, text: str) -> str:
        return text.replace("inf", "∞").replace("-", "−")

    def own(self, name: str) -> str:
        return name.strip("_")

    def prefixed(self, head: str, inside: str) -> str:
        return f"{head}{'' if inside.startswith('(') else ' '}{inside}"


def safe(text: str, longest: int = 60) -> str:
    """Return a name that may stand in Markdown and in a terminal: nothing in it is markup, mathematics or a command to either.

    The signs that would be are replaced by their wide forms, which look alike.
    """
    signs = " ".join("".join(sign if sign.isprintable() else "�" for sign in text).split())
    wide = re.sub(r"[^\w\s.,:;@+()/%·−-]|:(?=//)|@(?=\S*\.)|(?<=www)\.|\b_|_\b", lambda sign: _wide(sign[0]), signs)
    return wide if len(wide) <= longest else f"{wide[: longest - 1]}…"


def _wide(sign: str) -> str:
    return chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign
