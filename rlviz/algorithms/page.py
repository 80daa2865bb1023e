"""An algorithm on one page: the source of its own pieces in the order in which they are called, then its loss, as code that runs."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import call_of, parameters_of
from rlviz.pieces import aggregation
from small_models.checks import checked

PIECES = "rlviz.pieces."
ORDER = ("select", "shape", "kl", "advantage", "aggregate", "ratio", "bounds", "surrogate")  # kl: where it is in the reward
BUILT_IN = {"dataclass": "from dataclasses import dataclass", "logsigmoid": "from torch.nn.functional import logsigmoid"}
Function = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Page:
    """The text of `show`: Python that runs, or with `marked` the lines of two pages, those of the second alone behind "+"."""

    text: str
    marked: bool = False

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", self.text))])
        return f"{fence}{'diff' if self.marked else 'python'}\n{self.text}\n{fence}"


@checked
def show(algorithm: Algorithm, *, against: Algorithm | None = None) -> Page:
    """Return the algorithm on one page: its pieces' own source without annotations, then `loss`, which is minimised.

    Parameters are keyword arguments with the algorithm's values as defaults; choices that a parameter settles are settled.
    Every tensor is [P, G, T], or [P, G] where the name is rewards or lengths. The page can be run: `exec(str(show(GRPO)))`.
    against: another algorithm; its page with "-" where a line is gone and "+" where one came.
    """
    if against is None:
        return Page(_Writer(algorithm).page())
    before, after = (_Writer(one).page().splitlines() for one in (against, algorithm))
    return Page("\n".join(line for line in difflib.ndiff(before, after) if not line.startswith("?")), marked=True)


class _Writer:
    """Writes each function once, what it needs before it."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.imports = {"import torch"}
        self.written: dict[str, str] = {}  # name → source

    def page(self) -> str:
        """Return the whole page."""
        algorithm = self.algorithm
        if isinstance(algorithm, PreferenceOptimization):
            last = self.pairs(algorithm)
        else:
            last = self.policy_gradient(algorithm)
        head = f"# {algorithm.name}" + (f" ({algorithm.source})" if algorithm.source else "")
        return "\n\n\n".join(["\n".join([head, *sorted(self.imports)]), *self.written.values(), last])

    def pairs(self, algorithm: PreferenceOptimization) -> str:
        """Write the pieces of an algorithm of pairs; return its loss."""
        reward, pair_loss = self.piece(algorithm.reward), self.piece(algorithm.pair_loss)
        return "\n".join(
            [
                "def loss(chosen_logp, rejected_logp, ref_chosen_logp, ref_rejected_logp):",
                f"    chosen = {reward}(chosen_logp, ref_chosen_logp)",
                f"    rejected = {reward}(rejected_logp, ref_rejected_logp)",
                f"    return {pair_loss}(chosen, rejected).mean()",
            ]
        )

    def policy_gradient(self, algorithm: PolicyGradient) -> str:
        """Write the pieces of an algorithm that samples; return what makes advantages of rewards, and its loss."""
        critic = algorithm if isinstance(algorithm, ActorCritic) else None
        pieces = {slot: getattr(algorithm, slot) for slot in ORDER}
        early = [slot for slot in ORDER if slot != "kl" or algorithm.kl_in_reward]
        names = {slot: self.piece(pieces[slot]) for slot in early if pieces[slot] is not None}
        if algorithm.kl_in_loss:
            names["kl"] = self.piece(algorithm.kl)

        def call(slot: str, *given: str, **renamed: str) -> str:
            asked = [f"{name}={renamed.get(name, name)}" for name in algorithm.can.asks[slot]]
            return f"{names[slot]}({', '.join([*given, *asked])})"

        judge = ["def advantages(rewards, mask, values):" if critic else ""]
        if not critic:
            needed = [*algorithm.can.asks["advantage"], *algorithm.can.asks.get("shape", {})]
            needed += ["old_logp", "ref_logp"] if algorithm.kl_in_reward else []
            judge = [f"def advantages({', '.join(dict.fromkeys(['rewards', 'mask', *needed]))}):"]
            if "shape" in names:
                judge.append(f"    rewards = {call('shape', 'rewards', 'mask.sum(-1)')}")
        if algorithm.kl_in_reward and critic is None:
            judge.append(f"    rewards = rewards - {call('kl', 'old_logp', 'ref_logp', 'mask')}.sum(-1)")
        if critic:
            judge.append(f"    return {names['advantage']}(rewards, values, mask)  # of tokens, [P, G, T]; and the returns")
        else:
            remembers = algorithm.asks_for("advantage", "history")
            judge.append(f"    A{', history' if remembers else ''} = {call('advantage', 'rewards')}")
            spread = "(A if A.dim() == 3 else A.unsqueeze(-1)).expand(mask.shape).masked_fill(~mask, 0.0)"
            judge.append(f"    return {spread}{', history' if remembers else ''}")

        needed = [n for slot in ("bounds", "surrogate", "kl") if slot in names for n in algorithm.can.asks.get(slot, {})]
        if algorithm.kl_in_reward:
            needed = [name for name in needed if name != "ref_logp"]
        takes = [n for n in dict.fromkeys(["logp", "old_logp", "advantages", "mask", *needed]) if n != "ratio"]
        takes += ["values", "old_values", "returns", "entropy"] if critic else []
        total = self.function(aggregation.weighted_sum)
        loss = [
            f"def loss({', '.join(takes)}):",
            f"    ratio = {names['ratio']}(logp, old_logp, mask)",
            f"    lower, upper = {call('bounds', 'old_logp')}",
            f"    objective = {call('surrogate', 'ratio', 'advantages', 'lower', 'upper')}",
            *([f"    objective = objective - {call('kl', 'logp')}"] if algorithm.kl_in_loss else []),
            f"    weights = {names['aggregate']}(mask)",
        ]
        minimised = f"-{total}(objective, weights, mask)"
        if critic:
            value = self.piece(critic.value_loss)
            minimised += f" + {critic.value_weight:g} * {total}({value}(values, old_values, returns), weights, mask)"
            if critic.entropy_weight:
                minimised += f" - {critic.entropy_weight:g} * {total}(entropy, weights, mask)"
            else:
                loss[0] = loss[0].replace(", entropy", "")
        return "\n\n\n".join(["\n".join(judge), "\n".join([*loss, f"    return {minimised}"])])

    def piece(self, piece: Any) -> str:
        """Write a piece as a function; return what it is called there."""
        if isinstance(piece, FunctionType):
            return self.function(piece)
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(piece).__name__).lower()
        return self.method(piece, "__call__", name)

    def function(self, function: FunctionType) -> str:
        """Write a function."""
        name = function.__name__
        if name not in self.written:
            self.add(name, _parsed(function), function.__globals__)
        return name

    def method(self, piece: Any, method: str, name: str) -> str:
        """Write a method of a piece as a function, the piece's parameters as its keyword arguments."""
        if name in self.written:
            return name
        function = getattr(type(piece), method)
        tree = _parsed(function)
        if isinstance(tree, ast.FunctionDef):
            tree.name = name
            tree.args.args = tree.args.args[1:]
            settled = _Settled(piece, self)
            tree = settled.visit(tree)
            tree.args.kwonlyargs += [ast.arg(arg=parameter) for parameter in settled.used]
            tree.args.kw_defaults += [ast.Constant(getattr(piece, parameter)) for parameter in settled.used]
        self.add(name, tree, function.__globals__)
        return name

    def add(self, name: str, tree: Function | None, known: dict[str, Any]) -> None:
        """Write a function or a class after what it needs."""
        self.written[name] = ""  # one that calls itself is written once
        del self.written[name]
        if tree is None:
            self.written[name] = f"# {name}: its source is not at hand"
            return
        tree = _Plain().visit(tree)
        for inner in ast.walk(tree):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id != name:
                self.need(inner.id, known.get(inner.id))
        self.written[name] = ast.unparse(ast.fix_missing_locations(tree))

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


class _Plain(ast.NodeTransformer):
    """Takes off annotations, docstrings, the pieces' own decorators and what only checks arguments."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        return self._bare(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                part.annotation = ast.Attribute(ast.Name("torch", ast.Load()), "Tensor", ast.Load())
        return self._bare(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        checks = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.startswith("_check")
        return None if checks or isinstance(call, ast.Constant) else self.generic_visit(node)

    def _bare(self, node: Function) -> Function:
        node.decorator_list = [each for each in node.decorator_list if "says" not in ast.unparse(each)]
        node.body = node.body or [ast.Pass()]
        return node


class _Settled(ast.NodeTransformer):
    """Puts a piece's parameters in place of its attributes: numbers by their names, choices by what they choose."""

    def __init__(self, piece: Any, writer: _Writer) -> None:
        self.piece, self.writer = piece, writer
        self.used: list[str] = []

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return node
        value = getattr(self.piece, node.attr)
        if inspect.ismethod(value):
            return ast.Name(self.writer.method(self.piece, node.attr, node.attr), ast.Load())
        if callable(value):
            return ast.Name(self.writer.piece(value), ast.Load())
        if isinstance(value, int | float) and not isinstance(value, bool) and node.attr in parameters_of(self.piece):
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
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        sides = [test.left, *test.comparators]
        if all(isinstance(side, ast.Constant) for side in sides):
            return len({side.value for side in sides if isinstance(side, ast.Constant)}) == 1
    return None
