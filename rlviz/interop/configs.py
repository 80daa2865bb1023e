"""What a configuration sets: TRL's YAML, JSON, Python call or command line, verl's YAML or overrides. Nothing in it is run.

Of Python only literals are read, and arithmetic on them; of a shell script its assignments, `${NAME:-default}` and `$((…))`.
What is set to anything else is named and left at the library's default. The options that each library has, with their
defaults, are in fields.json, which tests/interop/fields.py wrote.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

from rlviz.interop.owners import BUILDS_ON, READ, Owner, entry_of, of_command, of_options, refusal
from rlviz.interop.python_files import TRL_KINDS, Names, literal, spread, two_numbers
from rlviz.interop.shell import LONGEST, Command, read_commands
from small_models.checks import short_repr
from small_models.files import read_file

LARGEST, LARGEST_NOTEBOOK = 2**18, 2**20  # characters of a configuration or script, and of one whose pictures are in it
SUGGESTED = 40  # unknown names that the nearest known is sought for
SHARE = 1 / 3  # of the names of a configuration that must be a library's
# how options end that decide nothing here
HARMLESS = ("files", "path", "name", "dir", "id", "logger", "report_to", "offload")
DEEPEST, MOST = 12, 10_000  # levels and options of a YAML file, whose aliases could make more
VERL = "ppo_trainer.yaml"
KINDS = (*TRL_KINDS, VERL)
OPEN = "…"  # of fields.json: whatever stands below is not listed
OLD_REWARD = {  # verl's older names, which it still reads, and before the new ones
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_kwargs.": "reward.reward_kwargs.",
    "reward_model.overlong_buffer.": "reward.reward_kwargs.overlong_buffer_cfg.",
    "custom_reward_function.": "reward.custom_reward_function.",
}
GONE = {  # names that many configurations still have
    "max_prompt_length": "gone from TRL, which no longer cuts prompts",
    "torch_dtype": "its name is dtype now",
    "warmup_ratio": "gone from transformers 5: warmup_steps below 1 is a share",
    "overwrite_output_dir": "gone from transformers 5",
    "vllm_device": "gone from TRL: see vllm_mode",
}
LISTS = ("reward_weights", "loss_weights", "loss_type")  # of TRL; of GRPOConfig loss_type is one text
# what verl's fully asynchronous trainer adds to the options, and sets anew
ASYNC = {
    "async_training.require_batches": 1,
    "async_training.trigger_parameter_sync_step": 4,
    "async_training.staleness_threshold": 0.1,
    "algorithm.rollout_correction.bypass_mode": True,
}
NUMBERS = {"epsilon_high", "delta", "top_k", "off_policy_mask_threshold"}  # or None, TRL's default
PUNISHMENT = "get_soft_overlong_punishment"
OVERRIDE = re.compile(r"(?P<plus>[+~]*)(?P<name>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.*)", re.S)
FLAG = re.compile(r"--(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.S)
LAUNCHER = re.compile(
    r"(?:[A-Z_]+=\S+ +)*(?:\S*/)?(?:python3?|accelerate|torchrun|deepspeed|uv|ray|srun|bash|trl|swift)\s"
)
CELL_COMMAND = re.compile(r"(?m)^[ \t]*[!%][^\\\n]*(?:\\[^\n]*\n?[^\\\n]*)*")  # of a notebook: !trl grpo …
PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null)$)[A-Za-z/][\w./-]*", re.I)  # a text for YAML, too
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Config:
    """What a configuration sets.

    kind: one of KINDS. given: option → value. unread: option → text that is no literal. unknown: name → the nearest known, or
    what became of it. punishment: of overlong responses, among TRL's reward functions, (longest, cache). lora: whether TRL's
    model has an adapter. notes: what was guessed. owner: whose it is, where that is neither library's own. asynchronous:
    whether verl's fully asynchronous trainer runs it.
    """

    kind: str
    given: Mapping[str, Any]
    unread: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    punishment: tuple[int, int] | None = None
    lora: bool = False
    notes: tuple[str, ...] = ()
    owner: str = ""
    asynchronous: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Option → value, with the library's default for what is not set; TRL's epsilon_high is epsilon unless given."""
        options = {**defaults(self.kind), **(ASYNC if self.asynchronous else {}), **self.given}
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
    owner: Owner | None = None
    dotted: bool = False  # whether its names are a.b, as verl's are
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
    most = LARGEST_NOTEBOOK if suffix in (".ipynb", ".json") else LARGEST
    if len(text) > most:
        raise ValueError(f"a configuration must have at most {most // 2**10:,} kB; this has {len(text) // 2**10:,}")
    try:
        found = _READERS.get(suffix, _any)(text)
        kind = kind or _kind(found, text)
    except RecursionError:
        raise ValueError("the configuration nests brackets too deeply to be read") from None
    if not found.values and not found.unread:
        raise ValueError(
            "the configuration sets nothing: it has no GRPOConfig(…), no option: value, and no option=value"
        )
    return _known(found, kind)


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8") from None


def _any(text: str) -> _Found:
    """Read a text of which nobody says what it is."""
    if re.search(r"\w+Config\s*\(|(?m:^(?:from [\w.]+ )?import \w)", text[:LARGEST]):
        return _python(text)
    if re.search(r"(?m)^\[+\w[\w.-]*\]+\s*$", text):
        return _toml(text)
    is_yaml = re.match(r"\s*\{", text) or re.search(r"(?m)^\w+:(\s|$)", text)
    if is_yaml or not re.search(r"(?:^|\s)(?:--\w|[+~]*\w+(?:\.\w+)+=|#!)|(?m:^\w+ rlhf\b)", text):
        return _yaml(text) if is_yaml or "```" not in text else _prose(text)
    try:
        found = _shell(text)
    except ValueError:
        try:
            return _prose(text)
        except ValueError:
            pass
        raise
    return found if found.values or found.unread or found.owner else _prose(text)


def _python(text: str) -> _Found:
    source = CELL_COMMAND.sub(lambda match: "\n" * match[0].count("\n"), text)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ValueError(f"the Python in it cannot be parsed: line {getattr(error, 'lineno', '?')}") from None
    names = Names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(each, names.called(each)) for each in calls]
    configs = [(each, name) for each, name in named if name in TRL_KINDS and each.keywords]
    kind = configs[0][1] if configs else names.parsed()
    found = _Found(kind=kind, owner=names.owner(kind))
    if found.owner and found.owner.framework not in BUILDS_ON:
        raise refusal(found.owner)
    if not configs:
        return _of_no_call(tree, text, found)
    call, _ = configs[0]
    if len(configs) > 1:
        found.notes.append(f"{len(configs)} configurations stand in it: this is the first, of line {call.lineno}")
    for keyword in call.keywords:
        for name, node in spread(keyword.arg, keyword.value, names.constants):
            _set(found, name, node, names.constants)
    if any(name == "carried" for _, name in named):
        found.notes.append(
            "carried(…) puts another algorithm in its trainer: what the options say of one is not trained"
        )
    bases = {name: names.classes.get(name, [name]) for _, name in named}
    trainers = {name for name, those in bases.items() if any(each.endswith("Trainer") for each in those)}
    for name in sorted(trainers - {each.replace("Config", "Trainer") for each in TRL_KINDS}):
        found.notes.append(f"its trainer {name} is not TRL's own: what it changes is not seen")
    found.lora = any(keyword.arg == "peft_config" for each in calls for keyword in each.keywords)
    found.punishment = next((two_numbers(each) for each, name in named if name == PUNISHMENT), None)
    return found


def _of_no_call(tree: ast.Module, text: str, found: _Found) -> _Found:
    """Read the command line in a script's docstring, as TRL's own examples have it, or of a notebook's cell."""
    cells = "\n".join(match[0].strip("!% \t") for match in CELL_COMMAND.finditer(text))
    for words, where in ((cells, "a cell"), (ast.get_docstring(tree, clean=False) or "", "its docstring")):
        with suppress(ValueError):
            command = _prose(words)
            command.kind, command.owner = found.kind, command.owner or found.owner
            command.notes.append(f"the command line in {where} was read")
            return command
    raise ValueError("no call of GRPOConfig or DPOConfig with options stands in the Python")


def _set(found: _Found, name: str, node: ast.expr, constants: Mapping[str, ast.expr]) -> None:
    try:
        found.values[name] = literal(node, constants)
    except ValueError:
        try:
            found.unread[name] = " ".join(ast.unparse(node).split())[:60]
        except RecursionError:
            found.unread[name] = "a long expression"


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
    value = _of_yaml(text)
    if not isinstance(value, dict):
        raise ValueError("the YAML must be a mapping of options, such as beta: 0.04")
    return _tree(value)


def _of_yaml(text: str) -> Any:
    import yaml  # type: ignore[import-untyped]  # transformers needs it

    depth = accumulate((bracket in "[{") - (bracket in "]}") for bracket in re.findall(r"[][{}]", text))
    if max(depth, default=0) > 5 * DEEPEST:  # its reader's time goes with the square of the depth
        raise RecursionError
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the YAML in it cannot be parsed{f': line {mark.line + 1}' if mark else ''}") from None


def _tree(value: Mapping[Any, Any]) -> _Found:
    own = {name: each for name, each in value.items() if name not in ("defaults", "hydra")}
    flat = dict(_flat(own))
    found = _Found(dotted=any(isinstance(value.get(root), dict) for root in _table()["verl"]), owner=of_options(flat))
    for name, each in flat.items() if found.dotted else ((str(name), each) for name, each in value.items()):
        if isinstance(each, str) and "${" in each:
            found.unread[name] = each
        else:
            found.values[name] = _number(each)
    return found


def _toml(text: str) -> _Found:
    """Read the names of a TOML file, which neither TRL nor verl takes."""
    section, found = "", _Found(dotted=True)
    for line in text.splitlines():
        match = re.match(r"\s*(\[*)([\w.-]+)\]*\s*(=?)", line)
        if match and match[1]:
            section = f"{match[2]}."
        elif match and match[3]:
            found.unread[section + match[2]] = "…"
    found.owner = of_options(found.unread)
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
    """Read the command of a script that trains: the first with a known entry point, else the one with most known options."""
    try:
        commands, _ = read_commands(text)
    except ValueError as error:
        raise ValueError(f"the shell script in it cannot be parsed: {error}") from None
    known = {name for kind in KINDS for name in defaults(kind)}
    starts = [each for each in commands if not _bare(each.words)]
    owned = [each for each in starts if of_command(each.words)]

    def known_options(command: Command) -> tuple[int, int]:
        names = list(_options_of(command.words))
        return sum(name in known for name in names), len(names)

    most = max((known_options(each) for each in starts), default=(0, 0))
    likely = owned or [each for each in starts if known_options(each) >= (most[0] / 2, 1)]
    chosen = likely[0] if likely else None
    if chosen is None:  # options alone, on as many lines as one likes
        alone = [each for each in commands if _bare(each.words)]
        words = [word for each in alone for word in each.words]
        chosen = Command(1, words, [values for each in alone for values in each.undecided])
    found = _Found(owner=of_command(chosen.words))
    if len(likely) > 1:
        found.notes.append(f"{len(likely)} commands may train: this is the first, of line {chosen.line}")
    after = commands[commands.index(chosen) + 1 :][:1] if chosen in commands else []
    lost = bool(after) and _bare(after[0].words) and after[0].line > chosen.line
    if lost or chosen.comment:
        line, first = chosen.comment or after[0].line, after[0].words[0][:60] if lost else "anything below it"
        found.notes.append(
            f"line {line}: a comment or a blank after the backslash ends the command for bash, which does not pass {first}"
        )
    _read_words(found, chosen)
    return found


def _bare(words: Sequence[str]) -> bool:
    """Whether words are options alone, without a command."""
    return bool(words) and bool(OVERRIDE.fullmatch(words[0]) or FLAG.fullmatch(words[0]))


def _options_of(words: Sequence[str]) -> Iterator[str]:
    for word in words[entry_of(words)[0] :]:
        match = OVERRIDE.fullmatch(word) or FLAG.fullmatch(word)
        if match:
            yield match["name"].replace("-", "_")


def _read_words(found: _Found, command: Command) -> None:
    """Read overrides (a.b=c) and flags (--a b c) of a command, those of what launches it left out."""
    first = entry_of(command.words)[0]
    flags: dict[str, list[str]] = {}
    words, current = list(zip(command.words, command.undecided, strict=True))[first:], ""
    undecided: dict[str, list[str]] = {}
    if len(words) > MOST:
        raise ValueError(f"the command must have at most {MOST:,} words")
    for word, open_values in words:
        override, flag = OVERRIDE.fullmatch(word), FLAG.fullmatch(word)
        if override:
            current = override["name"]
            found.dotted = True
            _take(found, current, override["value"])
            found.added |= {current} if "+" in override["plus"] else set()
        elif flag:
            current = flag["name"].replace("-", "_")
            if current in flags:
                found.notes.append(f"--{current} stands twice, and the last was taken")
            flags[current] = [] if flag["value"] is None else [flag["value"]]
        elif current in flags:
            flags[current].append(word)
        undecided |= {} if current.endswith(HARMLESS) else open_values
    for name, values in flags.items():
        _take(found, name, *(values or ["true"]))
    for name in ("config", "config_name", "config_path", "config_file"):
        if flags.get(name):
            found.notes.append(f"--{name} {flags[name][0]} is another file: what it sets was not read")
            found.values.pop(name, None)
    for name, values in undecided.items():
        found.notes.append(
            f"a condition of the script decides {name} ; of {' , '.join(each[:60] for each in values)} the last was taken"
        )


def _take(found: _Found, name: str, *texts: str) -> None:
    if name in found.values:
        found.notes.append(f"{name} is set more than once, and the last was taken")
    if any(re.search(r"\$[\w{(@*]|`", text) for text in texts):
        found.unread[name] = " ".join(texts)[:60]
        return
    values = []
    for text in texts:
        try:
            plain = NUMBER.fullmatch(text) or PLAIN.fullmatch(text)
            values.append(_number(text if plain else _of_yaml(text[:LONGEST])))
        except (ValueError, RecursionError):
            values.append(text)
    found.values[name] = values if len(values) > 1 else values[0]


def _prose(text: str) -> _Found:
    """Read the command in a text for people, a docstring or a page: a line that starts a program, and what continues it."""
    lines = re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines()
    commands = [line.strip().lstrip("$> ").strip("`") for line in lines if "--" in line or OVERRIDE.search(line)]
    for strict in (True, False):  # a known program first, then any line with options
        for line in commands:
            if bool(LAUNCHER.match(line)) == strict:
                with suppress(ValueError):
                    found = _shell(line)
                    if found.values or found.unread or found.owner:
                        return found
    raise ValueError("no command that trains stands in the text")


def _kind(found: _Found, text: str) -> str:
    """Return which of the three it is: by its owner, by what it calls, by the share of names that a library has.

    Raises ValueError for another framework's, and where nothing says whose it is.
    """
    names = [*found.values, *found.unread]
    owner = found.owner or of_options(names)
    if owner and owner.framework == "verl" and not owner.trainer:
        owner = next((each for each in [of_options(names)] if each and BUILDS_ON.get(each.framework) == "verl"), owner)
    of_verl = any(name.startswith("actor_rollout_ref.") for name in names)
    library = "verl" if of_verl else BUILDS_ON.get(owner.framework, owner.framework) if owner else ""
    if owner and (
        owner.trainer
        or (library not in ("TRL", "verl"))
        or (library == "verl" and found.dotted and not of_verl and owner.framework != "verl")
    ):
        raise refusal(owner)
    found.owner = owner
    if found.kind or not names:
        return found.kind or TRL_KINDS[0]
    verls = sum(_renamed(name) in defaults(VERL) or _below_open(name) for name in names)
    if found.dotted and (library == "verl" or verls >= SHARE * len(names)):
        return VERL
    beside = {*_table()["beside"], *GONE}
    trls = sum(name in beside or any(name in defaults(kind) for kind in TRL_KINDS) for name in names)
    scores = {k: (sum(n in defaults(k) for n in names), k[: -len("Config")].lower() in text.lower()) for k in TRL_KINDS}
    first, second = sorted(TRL_KINDS, key=lambda each: scores[each], reverse=True)
    if not scores[first][0] or (library != "TRL" and trls < SHARE * len(names)):
        raise ValueError(
            f"nothing in it says whose it is: of its {len(names)} names TRL has {trls} and verl {verls}. {READ} "
            f"(YAML, JSON, a call, a command line); where it is one of these, say which: --kind, one of {', '.join(KINDS)}"
        )
    if scores[first] == scores[second]:
        raise ValueError(
            f"the options fit GRPOConfig and DPOConfig alike: say which with kind (--kind), one of {', '.join(KINDS)}"
        )
    return first


def _known(found: _Found, kind: str) -> Config:
    """Sort what was found into options of the library, and names that it does not have."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {short_repr(kind)}")
    evidence = found.owner.evidence if found.owner else ""
    is_async = "fully_async" in evidence or any(name.startswith("async_training.") for name in found.values)
    names = {**defaults(kind), **(ASYNC if is_async else {})}
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
        elif name not in beside and not (is_async and name.startswith(("async_training.", "rollout."))):
            unknown[name] = _say(name, names, found) if len(unknown) < SUGGESTED else ""
    if kind == "GRPOConfig" and isinstance(given.get("scale_rewards"), bool):
        given["scale_rewards"] = "group" if given["scale_rewards"] else "none"
    for name in LISTS[: 2 + (kind == "DPOConfig")]:
        if isinstance(given.get(name), str | int | float):
            given[name] = [given[name]]
    for name, value in given.items():
        _check(name, value, names.get(name))
    if "one_step_off" in evidence:
        found.notes.append("one step off: a rollout was sampled by the weights of the step before")
    lora = found.lora or bool(found.values.get("use_peft"))
    owner = found.owner.framework if found.owner and found.owner.framework in BUILDS_ON else ""
    notes = tuple(dict.fromkeys(found.notes))
    return Config(kind, given, unread, unknown, found.punishment, lora, notes, owner, is_async)


def _check(name: str, value: Any, default: Any) -> None:
    """Raise ValueError for a value of another type than the option's default has. What is null is left to the library."""
    if isinstance(default, bool):
        if not isinstance(value, bool | int | None):
            raise ValueError(f"{name} must be true or false; got {short_repr(value)}")
    elif isinstance(default, int | float) or name in NUMBERS:
        between = name.endswith("_threshold") and isinstance(value, str)  # verl's 0.5_2.0
        numbers = between and all(NUMBER.fullmatch(each) for each in re.split("[_,]", value))
        if isinstance(value, bool) or not (numbers or isinstance(value, int | float | None)):
            raise ValueError(f"{name} must be a number; got {short_repr(value)}")


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
    return free or any(names.get(".".join(parts[:place])) in (OPEN, {}) for place in range(1, min(len(parts), DEEPEST)))


def _say(name: str, names: Mapping[str, Any], found: _Found) -> str:
    if name in GONE:
        return GONE[name]
    if name in found.added:
        return "added by +, which the trainer reads only where its code asks for it"
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    last = [each for each in names if "." in name and each.rpartition(".")[2] == name.rpartition(".")[2]][:1]
    return f"the nearest known is {(near or last)[0]}" if near or last else ""


_READERS = {
    ".toml": _toml,
    ".md": _prose,
    ".rst": _prose,
    ".py": _python,
    ".ipynb": _notebook,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".sh": _shell,
}
