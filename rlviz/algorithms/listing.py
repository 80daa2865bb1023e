"""The listing of an algorithm: the source of its pieces in the order of their calls, then its loss, as code that runs.

Begin with `show` and `_Writer.page`; `_Resolver` turns a method of a piece into a function with the piece's parameters.
"""

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
OURS = ("advantages", "loss", "token_rewards")  # functions that the page itself defines
CHECKS = ("_check", "check_")  # functions that only check arguments
BUILT_IN = {
    "dataclass": "from dataclasses import dataclass",
    "logsigmoid": "from torch.nn.functional import logsigmoid",
}
Function = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Listing:
    """An algorithm as code. text: Python that runs, or with `marked` a diff of two pages. formulas: the same as mathematics."""

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

    Parameters are keyword arguments with the algorithm's values as defaults; a branch on a parameter is resolved. Every tensor is
    [P, G, T], or [P, G] where the name is rewards or lengths. The page can be run: `exec(str(show(GRPO)))`. against: another
    algorithm; its page with "-" before lines that it alone has and "+" before new ones. In a notebook the `formulas` stand above
    the page. Both may be names, as in `rlviz show`. Raises ValueError for an unknown name.
    """
    from rlviz.algorithms import find_algorithm  # which imports this module

    mathematics = formulas(algorithm, against=against)
    values = [find_algorithm(x) if isinstance(x, str) else x for x in (against, algorithm) if x is not None]
    pages = [_Writer(value).page() for value in values]
    if len(pages) == 1:
        return Listing(pages[0], mathematics)
    lines = difflib.ndiff(pages[0].splitlines(), pages[1].splitlines())
    return Listing("\n".join(line for line in lines if not line.startswith("?")), mathematics, marked=True)


class _Writer:
    """Writes the page of one algorithm: each function once, after the functions that it calls."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.imports = {"import torch"}
        self.written: dict[str, str] = {}  # name → source

    def page(self) -> str:
        """Return the page: imports, the pieces, and the functions that call them."""
        algorithm = self.algorithm
        if isinstance(algorithm, PolicyGradient):
            functions = self.write_policy_gradient(algorithm)
        else:
            functions = [self.write_pairs(algorithm)]
        head = f"# {algorithm.name}" + (f" ({algorithm.source})" if algorithm.source else "")
        return "\n\n\n".join(["\n".join([head, *sorted(self.imports)]), *self.written.values(), *functions])

    def write_pairs(self, algorithm: PreferenceOptimization) -> str:
        """Write the pieces of an algorithm of pairs; return its loss."""
        reward, pair_loss = self.write_piece(algorithm.reward), self.write_piece(algorithm.pair_loss)
        templates = {"ref_logp": "ref_{}_logp", "lengths": "{}_lengths"}
        parameters, lines = ["chosen_logp", "rejected_logp"], []
        for name in algorithm.asks["reward"]:
            parameters += [templates[name].format(side) for side in ("chosen", "rejected")]
        for side in ("chosen", "rejected"):
            optional = [f"{name}={templates[name].format(side)}" for name in algorithm.asks["reward"]]
            lines.append(f"    {side} = {reward}({', '.join([f'{side}_logp', *optional])})")
        nll = ", chosen_nll=-chosen_logp / chosen_lengths" if algorithm.asks["pair_loss"] else ""
        parameters += ["chosen_lengths"] if nll else []
        head = f"def loss({', '.join(dict.fromkeys(parameters))}):"
        return "\n".join([head, *lines, f"    return {pair_loss}(chosen, rejected{nll}).mean()"])

    def write_policy_gradient(self, algorithm: PolicyGradient) -> list[str]:
        """Write the pieces of an algorithm that samples; return its advantages and its loss."""
        asks = algorithm.can.asks
        called = [slot for slot in ORDER if slot != "kl" or algorithm.kl_in_reward] + ["kl"]
        names = {slot: self.write_piece(piece) for slot in called if (piece := getattr(algorithm, slot)) is not None}

        def call(slot: str, *arguments: str) -> str:
            return f"{names[slot]}({', '.join([*arguments, *(f'{name}={name}' for name in asks[slot])])})"

        if isinstance(algorithm, ActorCritic):
            tree = _parse(ActorCritic.token_rewards)
            self.add("token_rewards", None if tree is None else _as_function(tree, _Resolver(algorithm, self)), {})
            advantages = [
                "def advantages(rewards, values, mask):  # and the returns, from rewards of tokens",
                f"    return {names['advantage']}(rewards, values, mask)",
            ]
            return ["\n".join(advantages), self.write_loss(algorithm, call)]

        history = ", history" if algorithm.asks_for("advantage", "history") else ""
        lines, parameters = [], ["rewards", "mask", *asks["advantage"]]
        if "shape" in names:
            lines.append(f"    rewards = {call('shape', 'rewards', 'mask.sum(-1)')}")
            parameters += asks["shape"]
        if algorithm.kl_in_reward:
            lines.append(f"    rewards = rewards - {call('kl', 'old_logp', 'ref_logp', 'mask')}.sum(-1)")
            parameters += ["old_logp", "ref_logp"]
        lines.append(f"    A{history} = {call('advantage', 'rewards')}")
        tokens = "(A if A.dim() == 3 else A.unsqueeze(-1)).expand(mask.shape).masked_fill(~mask, 0.0)"
        head = f"def advantages({', '.join(dict.fromkeys(parameters))}):"
        return ["\n".join([head, *lines, f"    return {tokens}{history}"]), self.write_loss(algorithm, call)]

    def write_loss(self, algorithm: PolicyGradient, call: Callable[..., str]) -> str:
        """Return the loss, which is minimised. call: (slot, *arguments) → the call of its piece."""
        total = self.write_function(aggregation.weighted_sum)
        slots = ("ratio", "bounds", "surrogate", *(("kl",) if algorithm.kl_in_loss else ()))
        parameters = [
            "logp",
            "old_logp",
            "advantages",
            "mask",
            *(n for slot in slots for n in algorithm.can.asks[slot]),
        ]
        lines = []
        if algorithm.can.loss_mask is not None:
            parameters.append("truncated")
            lines.append(f"    mask = {self.write_method(algorithm.shape, 'loss_mask', 'loss_mask')}(mask, truncated)")
        if algorithm.can.choose is not None:
            parameters.remove("chosen")
            choose = self.write_method(algorithm.surrogate, "choose", "choose")
            lines.append(f"    chosen = {choose}(advantages, old_logp, mask)")
        lines.append(f"    ratio = {call('ratio', 'logp', 'old_logp', 'mask')}")
        lines.append(f"    lower, upper = {call('bounds', 'old_logp')}")
        lines.append(f"    objective = {call('surrogate', 'ratio', 'advantages', 'lower', 'upper')}")
        if algorithm.kl_in_loss:
            lines.append(f"    objective = objective - {call('kl', 'logp')}")
        lines.append(f"    weights = {call('aggregate', 'mask')}")

        # Further terms, of a critic or of observed tokens, are added to −J.
        terms = [f"-{total}(objective, weights, mask)"]
        if isinstance(algorithm, ActorCritic):
            parameters += ["values", "old_values", "returns"]
            lines.append(f"    value_loss = {self.write_piece(algorithm.value_loss)}(values, old_values, returns)")
            terms.append(f"+ {algorithm.value_weight:g} * {total}(value_loss, weights, mask)")
            if algorithm.entropy_weight:
                parameters.append("entropy")
                terms.append(f"- {algorithm.entropy_weight:g} * {total}(entropy, weights, mask)")
        if isinstance(algorithm, ObservingPolicyGradient):
            parameters.append("observed")
            piece, mean = self.write_piece(algorithm.observation_loss), self.write_function(aggregation.token_mean)
            lines.append(f"    observation_loss = {total}({piece}(logp), {mean}(observed), observed)")
            terms.append("+ observation_loss")
        head = f"def loss({', '.join(name for name in dict.fromkeys(parameters) if name != 'ratio')}):"
        return "\n".join([head, *lines, f"    return {' '.join(terms)}"])

    def write_piece(self, piece: Any) -> str:
        """Write a piece as a function; return the function's name."""
        if isinstance(piece, FunctionType):
            return self.write_function(piece)
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(piece).__name__).lower()
        return self.write_method(piece, "__call__", name)

    def write_function(self, function: Callable[..., Any]) -> str:
        """Write a function; return its name, another one where its own is a lambda's or taken by the page."""
        name = function.__name__
        if name in OURS or not name.isidentifier():
            name = f"{name.strip('<>')}_piece"
        if name not in self.written:
            tree = _parse(function)
            if tree is not None:
                tree.name = name
            self.add(name, tree, inspect.unwrap(function).__globals__)
        return name

    def write_method(self, piece: Any, method: str, name: str) -> str:
        """Write a method of a piece as a function, with the piece's parameters as its keyword arguments."""
        if name in self.written:
            return name
        function = inspect.unwrap(getattr(type(piece), method))
        tree = _parse(function)
        if tree is not None:
            tree.name = name
            tree = _as_function(tree, _Resolver(piece, self))
        self.add(name, tree, function.__globals__)
        return name

    def add(self, name: str, tree: Function | None, known: dict[str, Any]) -> None:
        """Write a function or a class after everything of the project that it uses. known: the names of its module."""
        if tree is None:
            self.written[name] = f"# {name}: its source is not at hand"
            return
        tree = _Cleaner().visit(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != name):
                continue
            value = known.get(node.id)
            if node.id in BUILT_IN:
                self.imports.add(BUILT_IN[node.id])
            elif inspect.ismodule(value):
                self.imports.add(f"import {value.__name__}" + ("" if value.__name__ == node.id else f" as {node.id}"))
            elif node.id not in self.written and getattr(value, "__module__", "").startswith(PIECES):
                if inspect.isclass(value):
                    self.add(node.id, _parse(value), vars(inspect.getmodule(value)))
                elif isinstance(value, FunctionType):
                    self.write_function(value)
        lines = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
        self.written[name] = "\n".join(part for line in lines for part in _fold(line))


def _parse(thing: Any) -> Function | None:
    """Return the syntax tree of a function or class, None where there is no source, or no `def` in it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return tree if isinstance(tree, Function) else None


def _as_function(tree: Function, resolver: _Resolver) -> Function:
    """Return a method as a function without self, with the numbers that it uses as keyword arguments."""
    assert isinstance(tree, ast.FunctionDef)
    tree.args.args = tree.args.args[1:]
    resolver.visit(tree)
    tree.args.kwonlyargs += [ast.arg(arg=parameter) for parameter in resolver.used]
    tree.args.kw_defaults += [ast.Constant(getattr(resolver.owner, parameter)) for parameter in resolver.used]
    return tree


def _fold(line: str) -> list[str]:
    """Return a line, or a long one as several, with a line for each argument in its first brackets."""
    start = line.find("(") + 1
    if len(line) <= WIDEST or not start:
        return [line]
    depth, cuts = 0, [start]
    for position in range(start, len(line)):
        depth += (line[position] in "([{") - (line[position] in ")]}")
        if depth < 0:
            cuts.append(position)
            break
        if depth == 0 and line[position] == ",":
            cuts.append(position + 1)
    indent = " " * (len(line) - len(line.lstrip()))
    parts = [f"{indent}    {line[a:b].strip()}" for a, b in pairwise(cuts)]
    return [line[:start], *(part for long in parts for part in _fold(long)), indent + line[cuts[-1] :]]


class _Cleaner(ast.NodeTransformer):
    """Removes annotations, docstrings, the pieces' own decorators and checks of arguments."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        # a resolved branch may leave lines behind a return
        ends = next((index for index, part in enumerate(node.body, 1) if isinstance(part, ast.Return)), len(node.body))
        node.body = node.body[:ends]
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        return self._strip(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        for part in node.body:
            if isinstance(part, ast.AnnAssign):
                part.annotation = ast.Attribute(ast.Name("torch", ast.Load()), "Tensor", ast.Load())
        return self._strip(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        only_raises = len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse
        return None if only_raises else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        is_check = isinstance(call, ast.Call) and ast.unparse(call.func).startswith(CHECKS)
        return None if is_check or isinstance(call, ast.Constant) else self.generic_visit(node)

    def _strip(self, node: Function) -> Function:
        node.decorator_list = [part for part in node.decorator_list if "explained" not in ast.unparse(part)]
        node.body = node.body or [ast.Pass()]
        return node


class _Resolver(ast.NodeTransformer):
    """Replaces the attributes of a piece or an algorithm by its values: numbers by their names, pieces by their functions.

    used: the names of the numbers. A branch whose test is then constant is replaced by the body that is run.
    """

    def __init__(self, owner: Any, writer: _Writer) -> None:
        self.owner, self.writer = owner, writer
        self.used: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func) == "self._piece" and isinstance(slot := node.args[0], ast.Constant):
            return ast.Name(self.writer.write_piece(getattr(self.owner, str(slot.value))), ast.Load())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            return node
        value = getattr(self.owner, node.attr)
        if inspect.ismethod(value):
            return ast.Name(self.writer.write_method(self.owner, node.attr, node.attr), ast.Load())
        if callable(value):
            return ast.Name(self.writer.write_piece(value), ast.Load())
        if isinstance(value, int | float) and not isinstance(value, bool) and node.attr in parameters_of(self.owner):
            self.used += [] if node.attr in self.used else [node.attr]
            return ast.Name(node.attr, ast.Load())
        return ast.Constant(value)

    def visit_If(self, node: ast.If | ast.IfExp) -> Any:
        self.generic_visit(node)
        is_true = _constant(node.test)
        return node if is_true is None else (node.body if is_true else node.orelse)

    visit_IfExp = visit_If


def _constant(test: ast.expr) -> bool | None:
    """Return the value of a test of constants, None for any other."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _constant(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        sides = [test.left, *test.comparators]
        if all(isinstance(side, ast.Constant) for side in sides):
            return len({side.value for side in sides if isinstance(side, ast.Constant)}) == 1
    return None
