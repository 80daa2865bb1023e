"""The listing of an algorithm: its pieces' source in the order in which they are called, then its loss, as code that runs."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.formulas import Formulas, formulas
from rlviz.algorithms.observing import ObservingPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import parameters_of
from rlviz.pieces import aggregation
from small_models.checks import checked

PIECES = "rlviz.pieces."
WIDEST = 110  # characters of a line
# as training calls them; a kl that is in the loss comes last
ORDER = ("select", "shape", "kl", "advantage", "aggregate", "ratio", "bounds", "surrogate")
OURS = ("advantages", "loss", "token_rewards")  # what the page defines itself
BUILT_IN = {
    "dataclass": "from dataclasses import dataclass",
    "logsigmoid": "from torch.nn.functional import logsigmoid",
}
Function = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _Call:
    """A piece by its name, and what it asks for by name."""

    name: str
    asks: tuple[str, ...]

    def __call__(self, *given: str) -> str:
        return f"{self.name}({', '.join([*given, *(f'{name}={name}' for name in self.asks)])})"


@dataclass(frozen=True)
class Listing:
    """What `show` returns. text: Python that runs, or with `marked` the lines of two pages, those of the second alone behind "+".

    formulas: the same as mathematics, which a notebook shows above the text.
    """

    text: str
    formulas: Formulas
    marked: bool = False

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", self.text))])
        code = f"{fence}{'diff' if self.marked else 'python'}\n{self.text}\n{fence}"
        return f"{self.formulas._repr_markdown_()}\n\n{code}"


@checked
def show(algorithm: Algorithm | str, *, against: Algorithm | str | None = None) -> Listing:
    """Return the algorithm on one page: its pieces' own source without annotations, then `loss`, which is minimised.

    Parameters are keyword arguments with the algorithm's values as defaults; choices that a parameter settles are settled.
    Every tensor is [P, G, T], or [P, G] where the name is rewards or lengths. The page can be run: `exec(str(show(GRPO)))`.
    against: another algorithm; its page with "-" where a line is gone and "+" where one came. In a notebook the `formulas` stand
    above the page. Both may be names, as in `rlviz show`. Raises ValueError for an unknown name.
    """
    from rlviz.algorithms import find_algorithm  # which imports this module

    told = formulas(algorithm, against=against)
    pages = [
        _Writer(find_algorithm(one) if isinstance(one, str) else one).page()
        for one in (against, algorithm)
        if one is not None
    ]
    if len(pages) == 1:
        return Listing(pages[0], told)
    before, after = (page.splitlines() for page in pages)
    return Listing(
        "\n".join(line for line in difflib.ndiff(before, after) if not line.startswith("?")), told, marked=True
    )


class _Writer:
    """Writes each function once, what it needs before it."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.imports = {"import torch"}
        self.written: dict[str, str] = {}  # name → source

    def page(self) -> str:
        """Return the whole page."""
        algorithm = self.algorithm
        last = self.policy_gradient(algorithm) if isinstance(algorithm, PolicyGradient) else self.pairs(algorithm)
        head = f"# {algorithm.name}" + (f" ({algorithm.source})" if algorithm.source else "")
        return "\n\n\n".join(["\n".join([head, *sorted(self.imports)]), *self.written.values(), last])

    def pairs(self, algorithm: PreferenceOptimization) -> str:
        """Write the pieces of an algorithm of pairs; return its loss."""
        reward, pair_loss = self.piece(algorithm.reward), self.piece(algorithm.pair_loss)
        asks = algorithm.asks["reward"]
        sides = {"ref_logp": "ref_{}_logp", "lengths": "{}_lengths"}
        named = {side: {name: sides[name].format(side) for name in asks} for side in ("chosen", "rejected")}
        takes = ["chosen_logp", "rejected_logp", *(own[name] for name in asks for own in named.values())]
        lines = [
            f"    {side} = {reward}({', '.join([f'{side}_logp', *(f'{name}={own[name]}' for name in asks)])})"
            for side, own in named.items()
        ]
        nll = ", chosen_nll=-chosen_logp / chosen_lengths" if algorithm.asks["pair_loss"] else ""
        takes += ["chosen_lengths"] if nll else []
        return "\n".join(
            [
                f"def loss({', '.join(dict.fromkeys(takes))}):",
                *lines,
                f"    return {pair_loss}(chosen, rejected{nll}).mean()",
            ]
        )

    def policy_gradient(self, algorithm: PolicyGradient) -> str:
        """Write the pieces of an algorithm that samples; return what makes advantages of rewards, and its loss."""
        called = [slot for slot in ORDER if slot != "kl" or algorithm.kl_in_reward] + ["kl"]
        names = {slot: self.piece(piece) for slot in called if (piece := getattr(algorithm, slot)) is not None}
        calls = {slot: _Call(name, tuple(algorithm.can.asks[slot])) for slot, name in names.items()}
        if isinstance(algorithm, ActorCritic):
            tree = _parsed(ActorCritic.token_rewards)
            self.add("token_rewards", None if tree is None else _bound(tree, _Settled(algorithm, self)), {})
            judge = [
                "def advantages(rewards, values, mask):  # and the returns, from rewards of tokens",
                f"    return {names['advantage']}(rewards, values, mask)",
            ]
        else:
            judge = self.group_advantages(algorithm, calls)
        return "\n\n\n".join(["\n".join(judge), "\n".join(self.loss(algorithm, calls))])

    def group_advantages(self, algorithm: PolicyGradient, calls: dict[str, _Call]) -> list[str]:
        """Return the lines that make advantages of the rewards of groups."""
        history = ", history" if algorithm.asks_for("advantage", "history") else ""
        lines, needed = [], list(calls["advantage"].asks)
        if "shape" in calls:
            lines.append(f"    rewards = {calls['shape']('rewards', 'mask.sum(-1)')}")
            needed += calls["shape"].asks
        if algorithm.kl_in_reward:
            lines.append(f"    rewards = rewards - {calls['kl']('old_logp', 'ref_logp', 'mask')}.sum(-1)")
            needed += ["old_logp", "ref_logp"]
        lines.append(f"    A{history} = {calls['advantage']('rewards')}")
        spread = "(A if A.dim() == 3 else A.unsqueeze(-1)).expand(mask.shape).masked_fill(~mask, 0.0)"
        head = f"def advantages({', '.join(dict.fromkeys(['rewards', 'mask', *needed]))}):"
        return [head, *lines, f"    return {spread}{history}"]

    def loss(self, algorithm: PolicyGradient, calls: dict[str, _Call]) -> list[str]:
        """Return the lines of the loss, which is minimised."""
        total = self.function(aggregation.weighted_sum)
        in_use = [calls[slot] for slot in ("ratio", "bounds", "surrogate") + (("kl",) if algorithm.kl_in_loss else ())]
        takes = ["logp", "old_logp", "advantages", "mask", *(name for call in in_use for name in call.asks)]
        if algorithm.can.choose is not None:
            takes.remove("chosen")
        lines = [
            f"    ratio = {calls['ratio']('logp', 'old_logp', 'mask')}",
            f"    lower, upper = {calls['bounds']('old_logp')}",
            f"    objective = {calls['surrogate']('ratio', 'advantages', 'lower', 'upper')}",
            f"    weights = {calls['aggregate']('mask')}",
        ]
        if algorithm.can.choose is not None:
            chosen = self.method(algorithm.surrogate, "choose", "choose")
            lines.insert(0, f"    chosen = {chosen}(advantages, old_logp, mask)")
        if algorithm.can.loss_mask is not None:
            takes.append("truncated")
            lines.insert(0, f"    mask = {self.method(algorithm.shape, 'loss_mask', 'loss_mask')}(mask, truncated)")
        if algorithm.kl_in_loss:
            lines.insert(-1, f"    objective = objective - {calls['kl']('logp')}")
        minimised = [f"-{total}(objective, weights, mask)"]
        if isinstance(algorithm, ActorCritic):
            takes += ["values", "old_values", "returns"]
            lines.append(f"    value_loss = {self.piece(algorithm.value_loss)}(values, old_values, returns)")
            minimised.append(f"+ {algorithm.value_weight:g} * {total}(value_loss, weights, mask)")
            if algorithm.entropy_weight:
                takes.append("entropy")
                minimised.append(f"- {algorithm.entropy_weight:g} * {total}(entropy, weights, mask)")
        if isinstance(algorithm, ObservingPolicyGradient):
            takes.append("observed")
            each, shares = self.piece(algorithm.observation_loss), self.function(aggregation.token_mean)
            lines.append(f"    observation_loss = {total}({each}(logp), {shares}(observed), observed)")
            minimised.append("+ observation_loss")
        given = [name for name in dict.fromkeys(takes) if name != "ratio"]
        return [f"def loss({', '.join(given)}):", *lines, f"    return {' '.join(minimised)}"]

    def piece(self, piece: Any) -> str:
        """Write a piece as a function; return what it is called there."""
        if isinstance(piece, FunctionType):
            return self.function(piece)
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(piece).__name__).lower()
        return self.method(piece, "__call__", name)

    def function(self, function: Callable[..., Any]) -> str:
        """Write a function; one whose name is no name for it here, such as a lambda's, gets another."""
        name = function.__name__
        if name in OURS or not name.isidentifier():
            name = f"{name.strip('<>')}_piece"
        if name not in self.written:
            tree = _parsed(function)
            if tree is not None:
                tree.name = name
            self.add(name, tree, inspect.unwrap(function).__globals__)
        return name

    def method(self, piece: Any, method: str, name: str) -> str:
        """Write a method of a piece as a function, the piece's parameters as its keyword arguments."""
        if name in self.written:
            return name
        function = inspect.unwrap(getattr(type(piece), method))
        tree = _parsed(function)
        if tree is not None:
            tree.name = name
            tree = _bound(tree, _Settled(piece, self))
        self.add(name, tree, function.__globals__)
        return name

    def add(self, name: str, tree: Function | None, known: dict[str, Any]) -> None:
        """Write a function or a class after what it needs."""
        if tree is None:
            self.written[name] = f"# {name}: its source is not at hand"
            return
        tree = _Plain().visit(tree)
        for inner in ast.walk(tree):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id != name:
                self.need(inner.id, known.get(inner.id))
        lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
        self.written[name] = "\n".join(part for line in lines for part in _folded(line))

    def need(self, name: str, value: Any) -> None:
        """Write what a name stands for, if that is one of the project's own."""
        if name in BUILT_IN:
            self.imports.add(BUILT_IN[name])
        elif inspect.ismodule(value):
            self.imports.add(f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}"))
        elif name not in self.written and getattr(value, "__module__", "").startswith(PIECES):
            if inspect.isclass(value):
                self.add(name, _parsed(value), vars(inspect.getmodule(value)))
            elif isinstance(value, FunctionType):
                self.function(value)


def _parsed(thing: Any) -> Function | None:
    """Return the syntax tree of a function or class, None where there is no source, or no `def` in it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return tree if isinstance(tree, Function) else None


def _bound(tree: Function, settled: _Settled) -> Function:
    """Return a method as a function without self, the numbers that it uses as keyword arguments."""
    assert isinstance(tree, ast.FunctionDef)
    tree.args.args = tree.args.args[1:]
    settled.visit(tree)
    tree.args.kwonlyargs += [ast.arg(arg=parameter) for parameter in settled.used]
    tree.args.kw_defaults += [ast.Constant(getattr(settled.owner, parameter)) for parameter in settled.used]
    return tree


def _folded(line: str) -> list[str]:
    """Return a line, or a long one as several: what stands in its first brackets has a line an argument."""
    start = line.find("(") + 1
    if len(line) <= WIDEST or not start:
        return [line]
    depth, cuts = 0, [start]
    for place in range(start, len(line)):
        depth += (line[place] in "([{") - (line[place] in ")]}")
        if depth < 0:
            cuts.append(place)
            break
        if depth == 0 and line[place] == ",":
            cuts.append(place + 1)
    indent = " " * (len(line) - len(line.lstrip()))
    parts = [f"{indent}    {line[a:b].strip()}" for a, b in pairwise(cuts)]
    return [line[:start], *(part for long in parts for part in _folded(long)), indent + line[cuts[-1] :]]


class _Plain(ast.NodeTransformer):
    """Takes off annotations, docstrings, the pieces' own decorators and what only checks arguments."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        ends = next((place for place, part in enumerate(node.body, 1) if isinstance(part, ast.Return)), len(node.body))
        node.body = node.body[:ends]  # what a settled choice left behind a return is never reached
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        return self._bare(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                part.annotation = ast.Attribute(ast.Name("torch", ast.Load()), "Tensor", ast.Load())
        return self._bare(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        refuses = len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
        return None if refuses else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        checks = isinstance(call, ast.Call) and ast.unparse(call.func).startswith(("_check", "check_lazily"))
        return None if checks or isinstance(call, ast.Constant) else self.generic_visit(node)

    def _bare(self, node: Function) -> Function:
        node.decorator_list = [each for each in node.decorator_list if "says" not in ast.unparse(each)]
        node.body = node.body or [ast.Pass()]
        return node


class _Settled(ast.NodeTransformer):
    """Puts what a piece or an algorithm holds in place of its attributes: numbers by name, choices by what they choose."""

    def __init__(self, owner: Any, writer: _Writer) -> None:
        self.owner, self.writer = owner, writer
        self.used: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func) == "self._piece" and isinstance(slot := node.args[0], ast.Constant):
            return ast.Name(self.writer.piece(getattr(self.owner, str(slot.value))), ast.Load())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return node
        value = getattr(self.owner, node.attr)
        if inspect.ismethod(value):
            return ast.Name(self.writer.method(self.owner, node.attr, node.attr), ast.Load())
        if callable(value):
            return ast.Name(self.writer.piece(value), ast.Load())
        if isinstance(value, int | float) and not isinstance(value, bool) and node.attr in parameters_of(self.owner):
            self.used += [] if node.attr in self.used else [node.attr]
            return ast.Name(node.attr, ast.Load())
        return ast.Constant(value)

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        holds = _settles(node.test)
        return node if holds is None else (node.body if holds else node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        holds = _settles(node.test)
        return node if holds is None else (node.body if holds else node.orelse)


def _settles(test: ast.expr) -> bool | None:
    """Return what a test of constants alone says, None where it waits for a value."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _settles(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        sides = [test.left, *test.comparators]
        if all(isinstance(side, ast.Constant) for side in sides):
            return len({side.value for side in sides if isinstance(side, ast.Constant)}) == 1
    return None
