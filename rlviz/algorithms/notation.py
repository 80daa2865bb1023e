"""Formulas as mathematics: two trees compared, and a tree as LaTeX and as Unicode.

A leaf has the slot of its piece, and a parameter its value. Begin with `typeset`, then `mark_differences`, then the two writers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from typing import Any

from rlviz.pieces.formula import ARGUMENTS, Node, chain, parse_formula

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
LATEX_SIGNS = {"≥": r"\ge", "≤": r"\le", "←": r"\leftarrow"}
# how tightly an operator binds; the rest binds as 9
LEVELS = {"if": 0, "or": 1, "is": 2, "+": 3, "·": 5, "−": 5, "^": 7}


def typeset(node: Node, slot: str, values: Mapping[str, Any], replacements: Mapping[str, Node]) -> Node:
    """Return the tree of a formula as it is displayed: log-probabilities as log π, differences of logs as the log of a quotient.

    slot: the slot of its piece. values: of its parameters. replacements: name → node that replaces it.
    """

    def make(op: str, *parts: Node, text: str = "") -> Node:
        return Node(op, parts, text, slot=slot)

    if node.op == "name":
        if node.text in replacements:
            return replacements[node.text]
        if node.text in STANDS_FOR:
            return typeset(parse_formula(STANDS_FOR[node.text]).main, slot, values, replacements)
        if node.text in LOGS:
            return make("call", make("name", text=LOGS[node.text]), text="log")
        return replace(node, value=values.get(node.text), slot=slot)
    parts = [typeset(part, slot, values, replacements) for part in node.parts]
    match node.op, node.text:
        case "call", "exp" if parts and _is_log(parts[0]):
            return parts[0].parts[0]
        case "call", "sg" if _is_log(parts[0], allow_quotient=False):
            return make("call", make("call", *parts[0].parts, text="sg"), text="log")
        case "+", _:
            terms: list[Node] = []
            for part in parts:
                subtracted = part.parts[0] if part.op == "−" else None
                if terms and subtracted and all(_is_log(x, allow_quotient=False) for x in (terms[-1], subtracted)):
                    quotient = make("/", *terms.pop().parts, *subtracted.parts)
                    terms.append(make("call", quotient, text="log"))
                else:
                    terms.append(part)
            return chain("+", terms, slot)
        case "·", _:
            factors: list[Node] = []
            for part in parts:
                square = factors and factors[-1] == part
                factors.append(make("^", factors.pop(), Node("number", text="2", value=2)) if square else part)
            return chain("·", factors, slot)
    return replace(node, parts=tuple(parts), slot=slot)


def _is_log(node: Node, *, allow_quotient: bool = True) -> bool:
    """Return whether a node is a log; allow_quotient: a log of a quotient counts, too."""
    is_log = (node.op, node.text, len(node.parts)) == ("call", "log", 1)
    return is_log and (allow_quotient or node.parts[0].op != "/")


# differences between two trees


def mark_changed(node: Node, changed: AbstractSet[str]) -> Node:
    """Return a node without counterpart, marked; parts of slots that did not change stay without a mark."""
    if all(not part.slot or part.slot in changed for part in node.walk()):
        return replace(node, mark="all")
    parts = tuple(mark_changed(part, changed) for part in node.parts)
    return replace(node, parts=parts, mark="head" if node.slot in changed else "")


def mark_differences(node: Node, others: Sequence[Node], changed: AbstractSet[str]) -> Node:
    """Return a tree with what stands in none of the other trees, in the same slot, marked, in slots that changed alone.

    A function whose arguments differ is marked alone, and only where no other tree calls it in that slot; one that stands around
    its arguments, such as sg[…], with them. A number that two trees share says nothing of their kinship.
    """
    shared = [(part.slot, part) for other in others for part in other.walk()]
    called = {(slot, part.text) for slot, part in shared if part.op == "call"}

    def mark(node: Node) -> Node:
        if (node.slot, node) in shared:
            return node
        if node.op == "is" or not any((part.slot, part) in shared for part in node.walk() if part.op != "number"):
            return mark_changed(node, changed)
        is_new = node.slot in changed and (node.slot, node.text) not in called
        if is_new and node.text in AROUND:
            return replace(node, mark="all")
        return replace(node, parts=tuple(map(mark, node.parts)), mark="head" if is_new else "")

    return mark(node)


def mark_slots(node: Node, slots: AbstractSet[str]) -> Node:
    """Return a node with all parts of these slots marked, beside the marks that it has."""
    if node.mark == "all" or (node.slot in slots and not node.parts):
        return replace(node, mark="all")
    parts = tuple(mark_slots(part, slots) for part in node.parts)
    return replace(node, parts=parts, mark="head" if node.slot in slots else node.mark)


def atoms(node: Node, *, marked: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield (slot, text, whether it is marked) of each name, number and function in a tree."""
    marked = marked or node.mark == "all"
    if node.text and node.op != "is":
        yield node.slot, node.text, marked or (node.mark == "head" and node.text not in ARGUMENTS)
    for part in node.parts:
        yield from atoms(part, marked=marked)


# the writers


class Unicode:
    """Writes a tree as a line of Unicode: the order, the signs and the brackets. Marked parts stand in «…»."""

    column = 1  # of the tables of symbols
    minus, times, comma = "−", "·", ", "
    before_sign = ""  # keeps a sign at the beginning from being read as unary
    mark = "«", "»"

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
                return self.write(parts[0], 3) + "".join(
                    f" {self.sign(sign)} {self.write(part, 3)}" for sign, part in zip(signs, parts[1:], strict=True)
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
        if first:
            return self.write(part, 4)
        if part.op != "−":
            return f" + {self.write(part, 4)}"
        text = f"{self.minus} {self.write(part.parts[0], 5)}"
        return f" {self.marked(self.before_sign + text) if part.mark == 'all' else text}"

    def called(self, node: Node) -> str:
        name, parts = node.text, node.parts
        if name in AROUND:
            start, *between = AROUND[name][self.column]
            return start + "".join(self.write(part) + sign for part, sign in zip(parts, between, strict=True))
        head = BEFORE[name][self.column] if name in BEFORE else self.function(name)
        is_prefix = name in PREFIX and len(parts) == 1
        head = head.rstrip() if is_prefix else head
        head = self.marked(head) if node.mark == "head" else head
        if is_prefix:
            return self.prefixed(head, self.write(parts[0], 6 if name == "log" else 5))
        return head + self.bracketed(self.comma.join(self.write(part) for part in parts))

    def marked(self, text: str) -> str:
        return f"{self.mark[0]}{text}{self.mark[1]}"

    def bracketed(self, inside: str) -> str:
        return f"({inside})"

    def fraction(self, node: Node, level: int) -> str:
        top, bottom = node.parts
        text = f"{self.write(top, 6 if top.op == '/' else 5)} / {self.write(bottom, 6)}"
        return self.bracketed(text) if level > 5 else text

    def power(self, base: str, exponent: str) -> str:
        return f"{base}²" if exponent == "2" else f"{base}^{exponent}"

    def product(self, factors: Sequence[str]) -> str:
        return self.times.join(factors)

    def words(self, text: str) -> str:
        return text

    def sign(self, sign: str) -> str:
        return sign

    def symbol(self, name: str) -> str:
        if name in SYMBOLS:
            return SYMBOLS[name][1]
        head, line, subscript = name.partition("_")
        return f"{GREEK.get(head, head)}{line}{subscript}"

    def number(self, text: str) -> str:
        return text.replace("inf", "∞").replace("-", "−")

    def function(self, name: str) -> str:
        """Return the name of a function that is not in the tables."""
        return name.strip("_")

    def prefixed(self, head: str, inside: str) -> str:
        return f"{head}{'' if inside.startswith('(') else ' '}{inside}"


class LaTeX(Unicode):
    """Writes a tree as LaTeX for MathJax, KaTeX and latex2mathml; marked parts are underlined and in the accent."""

    column = 0
    minus, times, comma, before_sign = "-", r"\,", ",\\ ", "{}"
    mark = rf"\textcolor{{{ACCENT}}}{{\underline{{", "}}"

    def bracketed(self, inside: str) -> str:
        return rf"\left({inside}\right)" if r"\frac" in inside or r"\sum" in inside else f"({inside})"

    def fraction(self, node: Node, level: int) -> str:
        return rf"\frac{{{self.write(node.parts[0])}}}{{{self.write(node.parts[1])}}}"

    def power(self, base: str, exponent: str) -> str:
        return f"{{{base}}}^{{{exponent}}}"

    def product(self, factors: Sequence[str]) -> str:
        numbers = [factor[0].isdigit() for factor in factors]
        signs = [r" \cdot " if after else self.times for after in numbers[1:]]
        return "".join(part for pair in zip(factors, [*signs, ""], strict=True) for part in pair)

    def words(self, text: str) -> str:
        return rf"\text{{{text}}}"

    def sign(self, sign: str) -> str:
        return LATEX_SIGNS.get(sign, sign)

    def symbol(self, name: str) -> str:
        if name in SYMBOLS:
            return SYMBOLS[name][0]
        head, _, subscript = name.partition("_")
        if head in GREEK:
            head = "\\" + {"eps": "varepsilon", "lam": "lambda"}.get(head, head)
        elif len(head) != 1 and not head.isupper():
            return rf"\text{{{_letters(name)}}}"
        return rf"{head}_{{\text{{{_letters(subscript)}}}}}" if subscript else head

    def number(self, text: str) -> str:
        mantissa, _, exponent = text.partition("e")
        if not exponent:
            return text.replace("inf", r"\infty")
        return (f"{mantissa} \\cdot " if mantissa != "1" else "") + f"10^{{{int(exponent)}}}"

    def function(self, name: str) -> str:
        return rf"\operatorname{{{name}}}" if name == "clip" else rf"\text{{{_letters(name).strip()}}}"

    def prefixed(self, head: str, inside: str) -> str:
        return f"{head} {inside}"


def _letters(name: str) -> str:
    return "".join(sign if sign.isalnum() else " " for sign in name)


def safe(text: str, longest: int = 60) -> str:
    """Return a name without markup, mathematics or commands, for Markdown and a terminal: such signs get their wide forms."""
    signs = " ".join("".join(sign if sign.isprintable() else "�" for sign in text).split())

    def widen(sign: re.Match[str]) -> str:
        return chr(ord(sign[0]) + 0xFEE0) if "!" <= sign[0] <= "~" else sign[0]

    wide = re.sub(r"[^\w\s.,:;@+()/%·−-]|:(?=//)|@(?=\S*\.)|(?<=www)\.|\b_|_\b", widen, signs)
    return wide if len(wide) <= longest else f"{wide[: longest - 1]}…"
