"""The names of a Python file, read and never run: imports, classes, constants, and the literals that a call is given."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

from rlviz.interop.owners import BUILDS_ON, Owner, module_framework

TRL_KINDS = ("GRPOConfig", "DPOConfig")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Names:
    """The names of a Python file: what it imports, from where, what it defines, and its constants."""

    def __init__(self, tree: ast.Module) -> None:
        self.imported: dict[str, tuple[str, str]] = {}  # here → (module, name there)
        self.modules: list[str] = []
        self.used: list[str] = []
        self.classes: dict[str, list[str]] = {}
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self.modules.append(node.module)
                self.imported |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                self.modules += [alias.name for alias in node.names]
                self.imported |= {alias.asname or alias.name: (alias.name, "") for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = [last_name(base) for base in node.bases]
            elif isinstance(node, ast.Name | ast.Attribute):
                self.used.append(last_name(node))
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    assigned.setdefault(node.id, []).append(node)
        once = {name for name, places in assigned.items() if len(places) == 1}
        self.constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in once
        }

    def called(self, call: ast.Call) -> str:
        """Return what a call calls, by its name where it comes from."""
        name = last_name(call.func)
        return self.imported.get(name, ("", name))[1] or name

    def parsed(self) -> str | None:
        """Return the configuration of TRL that a parser is given, or whose options a dictionary has."""
        names = [self.imported.get(name, ("", name))[1] for name in self.used]
        return next((name for name in names if name in TRL_KINDS), None)

    def owner(self, kind: str | None) -> Owner | None:
        """Return whose the file is; None for TRL's own, and where its imports say nothing."""
        origin = next((module for module, name in self.imported.values() if kind and name == kind), "")
        is_own = kind in self.classes and not set(self.classes[kind]) & {"TrainingArguments", *TRL_KINDS}
        from_trl = origin.partition(".")[0] == "trl" or (not origin and ("trl", "") in self.imported.values())
        is_trls = kind is not None and not is_own and from_trl
        for module in self.modules:
            framework = module_framework(module)
            # beside TRL's own configuration only what takes over its loss counts, beside another's only where that is from
            is_other = framework not in ("", "TRL", "verl") and not is_trls and origin in ("", module)
            if framework in BUILDS_ON or is_other:
                return Owner(framework, f"it imports {module}")
        if origin and module_framework(origin) != "TRL":
            return Owner(origin.partition(".")[0], f"its {kind} is that of {origin}")
        if is_own:
            return Owner("the file itself", f"it defines a {kind} of its own")
        names = [name for module, name in self.imported.values() if module_framework(module) == "TRL"]
        configs = [name for name in names if name.endswith("Config") and name not in ("ModelConfig", "SFTConfig")]
        return Owner("TRL", "whose loss is another", configs[0]) if kind is None and configs else None


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def two_numbers(call: ast.Call) -> tuple[int, int] | None:
    """Return the two whole numbers that a call is given, None where it is given anything else."""
    try:
        longest, cache = (literal(value) for value in (*call.args, *(keyword.value for keyword in call.keywords)))
    except ValueError:
        return None
    return (longest, cache) if isinstance(longest, int) and isinstance(cache, int) else None


def spread(name: str | None, node: ast.expr, constants: Mapping[str, ast.expr]) -> list[tuple[str, ast.expr]]:
    """Return the options of a keyword: of **options, where these are a dictionary in the file, each."""
    if name is not None:
        return [(name, node)]
    node = constants.get(getattr(node, "id", ""), node)
    if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
        return [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
    if isinstance(node, ast.Dict):
        return [(str(getattr(key, "value", "**")), value) for key, value in zip(node.keys, node.values, strict=True)]
    return [("**", node)]


def literal(node: ast.expr, constants: Mapping[str, ast.expr] | None = None) -> Any:
    """Return a literal, a constant of the file, or arithmetic on numbers. Raises ValueError for anything else."""
    constants = constants or {}
    if isinstance(node, ast.Name) and node.id in constants:
        return literal(constants[node.id], {name: value for name, value in constants.items() if name != node.id})
    try:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = literal(node.left, constants), literal(node.right, constants)
            if not all(isinstance(side, int | float) for side in (left, right)):
                raise ValueError
            return OPERATORS[type(node.op)](left, right)
        return ast.literal_eval(node)
    except (TypeError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        raise ValueError from None
