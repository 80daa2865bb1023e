"""What a configuration sets: TRL's YAML, JSON, Python call or command line, verl's YAML or overrides. Nothing in it is run.

Of Python only literals are read, and arithmetic on them; of a shell script its assignments, `${NAME:-default}` and `$((…))`.
What is set to anything else is named and left at the library's default. The options that each library has, with their
defaults, are in fields.json, which tests/interop/fields.py wrote.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from small_models.checks import shown
from small_models.files import read_file

LARGEST = 2**20  # bytes of a configuration
# how options end that decide nothing here
HARMLESS = ("files", "path", "name", "dir", "id", "logger", "report_to", "offload")
LONGEST = 10_000  # characters of a variable of a script
DEEPEST, MOST = 12, 10_000  # levels and options of a YAML file, whose aliases could make more
TRL_KINDS, VERL = ("GRPOConfig", "DPOConfig"), "ppo_trainer.yaml"
KINDS = (*TRL_KINDS, VERL)
OPEN = "…"  # of fields.json: whatever stands below is not listed
OLD_REWARD = {  # verl's older names, which it still reads, and before the new ones
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_kwargs.": "reward.reward_kwargs.",
    "custom_reward_function.": "reward.custom_reward_function.",
}
GONE = {  # names that many configurations still have
    "max_prompt_length": "gone from TRL, which no longer cuts prompts",
    "torch_dtype": "its name is dtype now",
    "warmup_ratio": "gone from transformers 5: warmup_steps below 1 is a share",
    "overwrite_output_dir": "gone from transformers 5",
    "vllm_device": "gone from TRL: see vllm_mode",
}
PUNISHMENT = "get_soft_overlong_punishment"
OVERRIDE = re.compile(r"(?P<plus>[+~]*)(?P<name>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.*)", re.S)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
USED = re.compile(r"\$\{(\w+)(?:\[@\])?(?::?-([^{}]*))?\}|\$(\w+)")
SUM = re.compile(r"\$\(\(((?:[^$()]|\([^$()]*\))*)\)\)")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Config:
    """What a configuration sets.

    kind: one of KINDS. given: option → value. unread: option → text that is no literal. unknown: name → the nearest known, or
    what became of it. punishment: of overlong responses, among TRL's reward functions, (longest, cache). lora: whether TRL's
    model has an adapter. notes: what was guessed.
    """

    kind: str
    given: Mapping[str, Any]
    unread: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    punishment: tuple[int, int] | None = None
    lora: bool = False
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Option → value, with the library's default for what is not set; TRL's epsilon_high is epsilon unless given."""
        options = {**defaults(self.kind), **self.given}
        if self.kind == "GRPOConfig" and options["epsilon_high"] is None:
            options["epsilon_high"] = options["epsilon"]
        return options


@dataclass
class _Found:
    """What stands in a text, before anybody asks which options there are."""

    values: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)  # by hydra's +
    kind: str | None = None
    punishment: tuple[int, int] | None = None
    lora: bool = False
    notes: list[str] = field(default_factory=list)


@cache
def _table() -> dict[str, Any]:
    return json.loads(files("rlviz.interop").joinpath("fields.json").read_text(encoding="utf-8"))


@cache
def defaults(kind: str) -> dict[str, Any]:
    """Return option → default, verl's with dots."""
    return dict(_flat(_table()["verl"])) if kind == VERL else dict(_table()[kind])


def read_config(source: str | Path, kind: str | None = None) -> Config:
    """Return what a file, or the text of one, sets. kind: one of KINDS, where the text itself leaves that open.

    Raises ValueError for what is no such configuration, FileNotFoundError where there is no file.
    """
    text, suffix = (source, "") if isinstance(source, str) else (_text(source), source.suffix.lower())
    if len(text) > LARGEST:
        raise ValueError(f"a configuration must have at most {LARGEST // 2**20} MB")
    found = _READERS.get(suffix, _any)(text)
    if not found.values and not found.unread:
        raise ValueError(
            "the configuration sets nothing: it has no GRPOConfig(…), no option: value, and no option=value"
        )
    return _known(found, kind or found.kind or _kind(found, text))


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8") from None


def _any(text: str) -> _Found:
    """Read a text of which nobody says what it is."""
    if re.search(r"\b(GRPO|DPO)Config\s*\(", text):
        return _python(text)
    looks_like_words = re.search(r"\s--\w|(?<![\w.])\w+(?:\.\w+)+=", f" {text}") and not re.search(
        r"(?m)^\w+:(\s|$)", text
    )
    return _shell(text) if looks_like_words else _yaml(text)


def _python(text: str) -> _Found:
    source = "\n".join("" if line.lstrip().startswith(("!", "%")) else line for line in text.splitlines())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the Python in it cannot be parsed: line {getattr(error, 'lineno', '?')}") from None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(each, _name(each)) for each in calls]
    configs = [(each, name) for each, name in named if name in TRL_KINDS and each.keywords]
    if not configs:
        return _of_no_call(tree, [name for _, name in named if name.endswith("Config")])
    call, kind = configs[0]
    found = _Found(kind=kind)
    if len(configs) > 1:
        found.notes.append(f"{len(configs)} configurations stand in it: this is the first, of line {call.lineno}")
    for keyword in call.keywords:
        _set(found, keyword.arg or "**", keyword.value)
    if any(name == "carried" for _, name in named):
        found.notes.append(
            "carried(…) puts another algorithm in its trainer: what the options say of one is not trained"
        )
    found.lora = any(keyword.arg == "peft_config" for each in calls for keyword in each.keywords)
    found.punishment = next((_two(each) for each, name in named if name == PUNISHMENT), None)
    return found


def _two(call: ast.Call) -> tuple[int, int] | None:
    """Return the two whole numbers that a call is given, None where it is given anything else."""
    try:
        longest, cache = (_literal(value) for value in (*call.args, *(keyword.value for keyword in call.keywords)))
    except ValueError:
        return None
    return (longest, cache) if isinstance(longest, int) and isinstance(cache, int) else None


def _of_no_call(tree: ast.Module, others: list[str]) -> _Found:
    """Read the command line in a script's docstring, as TRL's own examples have it."""
    usage = ast.get_docstring(tree) or ""
    if "--" in usage:
        found = _shell(usage)
        found.notes.append("the command line in its docstring was read")
        return found
    also = f"; it has {', '.join(sorted(set(others)))}" if others else ""
    raise ValueError(f"no call of GRPOConfig or DPOConfig with options stands in the Python{also}")


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _set(found: _Found, name: str, node: ast.expr) -> None:
    try:
        found.values[name] = _literal(node)
    except ValueError:
        found.unread[name] = " ".join(ast.unparse(node).split())[:60]


def _literal(node: ast.expr) -> Any:
    """Return a literal, or arithmetic on numbers. Raises ValueError for anything else."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _literal(node.left), _literal(node.right)
        if not all(isinstance(side, int | float) for side in (left, right)):
            raise ValueError
        try:
            return OPERATORS[type(node.op)](left, right)
        except ArithmeticError:
            raise ValueError from None
    try:
        return ast.literal_eval(node)
    except (TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError from None


def _notebook(text: str) -> _Found:
    cells = _json_of(text).get("cells")
    code = [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []
    sources = [cell.get("source") for cell in code if cell.get("cell_type") == "code"]
    return _python("\n".join("".join(map(str, one)) for one in sources if isinstance(one, str | list)))


def _json_of(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the JSON in it cannot be parsed") from None
    if not isinstance(value, dict):
        raise ValueError("the JSON must be an object of options")
    return value


def _json(text: str) -> _Found:
    return _tree(_json_of(text))


def _yaml(text: str) -> _Found:
    import yaml  # type: ignore[import-untyped]  # transformers needs it

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the YAML in it cannot be parsed{f': line {mark.line + 1}' if mark else ''}") from None
    if not isinstance(value, dict):
        raise ValueError("the YAML must be a mapping of options, such as beta: 0.04")
    return _tree(value)


def _tree(value: Mapping[Any, Any]) -> _Found:
    nested = any(isinstance(value.get(root), dict) for root in _table()["verl"])
    if not nested:
        return _Found({str(name): _number(each) for name, each in value.items()})
    own = {name: each for name, each in value.items() if name not in ("defaults", "hydra")}
    found = _Found(kind=VERL)
    for name, each in _flat(own):
        if isinstance(each, str) and "${" in each:
            found.unread[name] = each
        else:
            found.values[name] = _number(each)
    return found


def _flat(tree: Mapping[Any, Any], before: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Give name.name → value. Raises ValueError for more levels or options than a configuration has."""
    if level > DEEPEST:
        raise ValueError(f"the configuration must have at most {DEEPEST} levels")
    count = 0
    for name, value in tree.items():
        inner = (
            _flat(value, f"{before}{name}.", level + 1)
            if isinstance(value, Mapping) and value
            else iter([(f"{before}{name}", value)])
        )
        for each in inner:
            count += 1
            if count > MOST:
                raise ValueError(f"the configuration must have at most {MOST:,} options")
            yield each


def _number(value: Any) -> Any:
    """Return a number for a text that is one: YAML takes 1e-6 for a text, and both libraries for a number."""
    if not isinstance(value, str) or not NUMBER.fullmatch(value.strip()):
        return value
    return int(value) if value.strip().isdigit() else float(value)


def _shell(text: str) -> _Found:
    """Read overrides (a.b=c) and flags (--a b) of the commands in a script, its variables filled in."""
    found, known = _Found(), _Variables()
    text = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    text = re.sub(r"\\[ \t]*\r?\n", "\n", text)
    text = SUM.sub(lambda match: match[0].replace(" ", ""), text)
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        raise ValueError("the shell script in it cannot be parsed: a quotation mark has no partner") from None
    flags: list[str] = []
    for word in _expanded(words, known, found):
        override = OVERRIDE.fullmatch(word)
        if override:
            found.kind = VERL
            _take(found, override["name"], override["value"])
            found.added |= {override["name"]} if "+" in override["plus"] else set()
        else:
            flags.append(word)
    if found.kind is None:
        _flags(found, flags)
    return found


class _Variables(dict[str, str]):
    """Name → value of a script's variables; twice: those that were assigned two values."""

    def __init__(self) -> None:
        super().__init__()
        self.twice: set[str] = set()


def _expanded(words: list[str], known: _Variables, found: _Found, level: int = 0) -> Iterator[str]:
    """Give the words of a script with its variables filled in; assignments are remembered in the order in which they stand."""
    for raw in words:
        word = re.sub(r"^\w+\+?=\((?=\w+\.)", "", raw).rstrip(";")  # the first element of an array
        override = OVERRIDE.fullmatch(word)
        assignment = None if override else ASSIGNMENT.fullmatch(word)
        if assignment:
            name, value = assignment[1], _filled(assignment[2], known)
            known.twice |= {name} if known.get(name, value) != value else set()
            known[name] = value[:LONGEST]
            continue
        filled = _filled(word, known)
        filled = filled if "(" in filled else filled.rstrip(")")  # of an array the last
        if override:
            used = {match[1] or match[3] for match in USED.finditer(override["value"])} & known.twice
            used = set() if override["name"].endswith(HARMLESS) else used
            found.notes += [
                f"{override['name']}: the script assigns {name} more than once, and the last was taken"
                for name in sorted(used)
            ]
        if level < 4 and filled != word and re.fullmatch(r"\$\{?\w+\}?", word) and OVERRIDE.search(filled):
            yield from _expanded(shlex.split(filled), known, found, level + 1)
        else:
            yield filled


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with variables and arithmetic filled in; what is not known stays as it is."""
    for _ in range(8):
        before = text
        if len(text) > LONGEST:
            break
        text = USED.sub(lambda match: known.get(match[1] or match[3], match[0] if match[2] is None else match[2]), text)
        text = SUM.sub(lambda match: _sum(match, known), text)
        if text == before:
            break
    return text


def _sum(match: re.Match[str], known: Mapping[str, str]) -> str:
    terms = (
        re.sub(r"[A-Za-z_]\w*", lambda name: known.get(name[0], name[0]), match[1])
        .replace("/", "//")
        .replace("////", "//")
    )
    try:
        return str(_literal(ast.parse(terms.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return match[0]


def _take(found: _Found, name: str, value: str) -> None:
    import yaml

    if name in found.values:
        found.notes.append(f"{name} is set more than once, and the last was taken")
    if re.search(r"\$[\w{(@*]|`", value):
        found.unread[name] = value[:60]
        return
    try:
        found.values[name] = _number(yaml.safe_load(value))
    except (yaml.YAMLError, ValueError, RecursionError):
        found.values[name] = value


def _flags(found: _Found, words: list[str]) -> None:
    """Read the flags of the first command: where one comes again, a second begins."""
    for place, word in enumerate(words):
        match = re.fullmatch(r"--([A-Za-z]\w*(?:-\w+)*)(?:=(.*))?", word, re.S)
        if match:
            following = words[place + 1] if place + 1 < len(words) else "--"
            value = match[2] if match[2] is not None else "true" if following.startswith("--") else following
            name = match[1].replace("-", "_")
            if name in found.values:
                found.notes.append(f"--{name} stands twice: only the command before it was read")
                break
            _take(found, name, value)
    found.values.pop("config_file", None)  # of accelerate


def _kind(found: _Found, text: str) -> str:
    """Return which of TRL's two configurations has more of the names, of equals the one whose name stands in the text.

    Raises ValueError where neither has more.
    """
    names = [*found.values, *found.unread]
    scores = {k: (sum(n in defaults(k) for n in names), k[: -len("Config")].lower() in text.lower()) for k in TRL_KINDS}
    first, second = sorted(TRL_KINDS, key=lambda each: scores[each], reverse=True)
    if not scores[first][0]:
        raise ValueError(f"no option of TRL or verl is among what the configuration sets: {', '.join(names[:4])[:80]}")
    if scores[first] == scores[second]:
        raise ValueError(
            f"the options fit GRPOConfig and DPOConfig alike: say which with kind (--kind), one of {', '.join(KINDS)}"
        )
    return first


def _known(found: _Found, kind: str) -> Config:
    """Sort what was found into options of the library, and names that it does not have."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {shown(kind)}")
    names = defaults(kind)
    beside = set() if kind == VERL else set(_table()["beside"])
    given: dict[str, Any] = {}
    unread: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for name, value in {**found.unread, **found.values}.items():
        new = _renamed(name) if kind == VERL else name
        if kind != VERL and name.removeprefix("no_") in names and name.startswith("no_"):  # --no_x of a command line
            given[name.removeprefix("no_")] = False
            continue
        if new in names or (kind == VERL and _below_open(new)):
            (given if name in found.values else unread)[new] = value
        elif name == "**":
            unread["other options"] = f"**{value}"
        elif name not in beside:
            unknown[name] = _say(name, names, found)
    if kind == "GRPOConfig" and isinstance(given.get("scale_rewards"), bool):
        given["scale_rewards"] = "group" if given["scale_rewards"] else "none"
    if kind == "DPOConfig" and isinstance(given.get("loss_type"), str):
        given["loss_type"] = [given["loss_type"]]
    lora = found.lora or bool(found.values.get("use_peft"))
    return Config(kind, given, unread, unknown, found.punishment, lora, tuple(dict.fromkeys(found.notes)))


def _renamed(name: str) -> str:
    for old, new in OLD_REWARD.items():
        if name == old or (old.endswith(".") and name.startswith(old)):
            return new + name[len(old) :]
    return name


def _below_open(name: str) -> bool:
    """Whether a name is below one of which fields.json lists nothing."""
    parts = name.split(".")
    names = defaults(VERL)
    free = name.startswith("reward.reward_kwargs.")  # what a reward manager is called with
    return free or any(names.get(".".join(parts[:place])) in (OPEN, {}) for place in range(1, len(parts)))


def _say(name: str, names: Mapping[str, Any], found: _Found) -> str:
    if name in GONE:
        return GONE[name]
    if name in found.added:
        return "added by +, which the trainer reads only where its code asks for it"
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    last = [each for each in names if "." in name and each.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    return f"the nearest known is {(near or last)[0]}" if near or last else ""


_READERS = {".py": _python, ".ipynb": _notebook, ".json": _json, ".yaml": _yaml, ".yml": _yaml, ".sh": _shell}
