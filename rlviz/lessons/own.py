"""A student's own functions: saved as files in mine/ beside the notebook, and loaded in later lessons."""

from __future__ import annotations

import importlib.util
import inspect
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlviz.lessons import check
from rlviz.training.files import write_text
from small_models.checks import cut

FOLDER = "mine"


def save_solution(name: str, function: Callable[..., Any]) -> None:
    """Write a function to mine/NAME.py, with the imports and the functions of the notebook that it uses.

    name: of its check, if there is one (`check.NAME`), which it must pass. Raises ValueError for a name that is none, and for
    what was not made with `def`; says so, and writes nothing, where the check does not pass.
    """
    if not name.isidentifier():
        raise ValueError(f"name must be a Python name, such as 'pessimistic'; got {name!r}")
    if name in check.EXERCISES and not getattr(check, name)(function).passed:
        print(f"Not kept yet: check.{name} does not pass.")  # noqa: T201 - the check below it says why
        return
    imports: dict[str, None] = {}
    sources: dict[str, None] = {}
    _gather(function, imports, sources, set())
    head = f'"""Your own {name}, taken up by load_solution({name!r})."""\n'
    parts = [head, *imports, "", *(f"\n{source}" for source in sources), f"\nkept = {function.__name__}\n"]
    file = Path(FOLDER) / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    write_text(file, "\n".join(parts))
    print(f"Kept in {file}.")  # noqa: T201 - the cell's output


def load_solution(name: str, *, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that was saved under this name if it is there and still right, else `otherwise`; print which."""
    file = Path(FOLDER) / f"{name}.py"
    why = f"there is no {file} here."
    if file.is_file():
        spec = importlib.util.spec_from_file_location(f"{FOLDER}_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
            function: Callable[..., Any] = module.kept
            verdict = getattr(check, name)(function) if name in check.EXERCISES else None
            if verdict is None or verdict.passed:
                print(f"Using your own {name} ({file}).")  # noqa: T201 - the cell's output
                return function
            why = f"{file} does not pass its check: {verdict.says}"
        except Exception as error:  # it is the student's file: whatever is wrong in it, the lesson goes on
            why = f"{file} cannot be used ({type(error).__name__}: {cut(str(error), 100)})."
    print(f"Using the library's {name}: {why}")  # noqa: T201 - the cell's output
    return otherwise


def _gather(function: Any, imports: dict[str, None], sources: dict[str, None], seen: set[str]) -> None:
    """Collect, in this order, the import lines and the definitions that a function needs, and its own source."""
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise ValueError(f"function must be made with def, so that its source can be kept; got {cut(repr(function))}")
    seen.add(function.__name__)
    for name in sorted(_global_names(function.__code__)):
        if name in seen or name not in function.__globals__:
            continue
        value = function.__globals__[name]
        home = inspect.getmodule(value)
        if isinstance(value, types.ModuleType):
            imports[f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"] = None
        elif isinstance(value, int | float | str):
            sources[f"{name} = {value!r}"] = None
        elif (
            home is not None
            and home.__name__ not in ("__main__", function.__module__)
            and hasattr(home, getattr(value, "__name__", ""))
        ):
            original = value.__name__
            imports[f"from {home.__name__} import {original}" + (f" as {name}" if original != name else "")] = None
        else:
            _gather(value, imports, sources, seen)
            if value.__name__ != name:  # as load_solution(…) returns a function under a name of the notebook's choice
                sources[f"{name} = {value.__name__}"] = None
    sources[textwrap.dedent(inspect.getsource(function))] = None


def _global_names(code: types.CodeType) -> set[str]:
    """Return the global names that a function uses, those of the functions within it among them."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_global_names, inner))
