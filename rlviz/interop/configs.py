"""What a configuration sets: TRL's YAML, JSON, Python call or command line, verl's YAML or overrides. Nothing in it is run.

In comes a file or its text, out goes a `Config`: options of the library, and what was not read. Of Python only literals are read,
and arithmetic on them; of a shell script its assignments, `${NAME:-default}` and `$((…))`. What is set to anything else is named
and left at the library's default. Begin with `read_config`: a reader per kind of file gives a `Config`, `_kind` says whose
options these are, `_sort` sorts them. The options of each library, with their defaults, are in fields.json, which
tests/interop/fields.py wrote.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any

from rlviz.interop.owners import BUILDS_ON, READ, Owner, command_owner, entry_point, options_owner, refusal
from rlviz.interop.python_files import TRL_KINDS, Names, literal, spread, two_numbers
from rlviz.interop.shell import LONGEST, Command, read_commands
from small_models.checks import short_repr
from small_models.files import read_file

LARGEST, LARGEST_NOTEBOOK = 2**18, 2**20  # characters of a configuration or script, and of one whose pictures are in it
SUGGESTED = 20  # unknown names that the nearest known is sought for
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
# what verl's fully asynchronous trainer sets anew
ASYNC = {"algorithm.rollout_correction.bypass_mode": True}
# numbers whose default is none
NUMBERS = {
    *("epsilon_high", "delta", "top_k", "off_policy_mask_threshold"),
    *("actor_rollout_ref.actor.clip_ratio_low", "actor_rollout_ref.actor.clip_ratio_high"),
    "actor_rollout_ref.actor.loss_scale_factor",
}
PUNISHMENT = "get_soft_overlong_punishment"
OVERRIDE = re.compile(r"(?P<plus>[+~]*)(?P<name>[A-Za-z_]\w*(?:\.\w+)+)=(?P<value>.*)", re.S)
FLAG = re.compile(r"--(?P<name>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?", re.S)
LAUNCHER = re.compile(
    r"(?:[A-Z_]+=\S+ +)*(?:\S*/)?(?:python3?|accelerate|torchrun|deepspeed|uv|ray|srun|bash|trl|swift)\s"
)
# commands that start no training, whatever their words are
STARTS_NOTHING = {
    "[", "[[", "test", "echo", "printf", "source", ".", "cd", "rm", "cat", "cp", "mv", "mkdir", "sed", "grep", "pkill",
    "git", "pip", "pip3", "conda",
}  # fmt: skip
CELL_COMMAND = re.compile(r"(?m)^[ \t]*[!%][^\\\n]*(?:\\[^\n]*\n?[^\\\n]*)*")  # of a notebook: !trl grpo …
PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null)$)[A-Za-z/][\w./-]*", re.I)  # a text for YAML, too
FILE_NAME = re.compile(r"[^\s=]+\.(?:ya?ml|json|py|ipynb|sh|md)")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass
class Config:
    """What a configuration sets. A reader fills it with what stands in a text, `_sort` with options of a library.

    values: option → value. unread: option → text that is no literal. kind: one of KINDS. unknown: name → the nearest known, or
    what became of it. owner: whose it is, in the end only where that is neither library's own. notes: what was guessed.
    dotted: whether its names are a.b, as verl's are. added: names with hydra's +. punishment: of overlong responses, among
    TRL's reward functions, (longest, cache). lora: whether TRL's model has an adapter. asynchronous: whether verl's fully
    asynchronous trainer runs it.
    """

    values: dict[str, Any] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    kind: str = ""
    unknown: dict[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    notes: list[str] = field(default_factory=list)
    dotted: bool = False
    added: set[str] = field(default_factory=set)
    punishment: tuple[int, int] | None = None
    lora: bool = False
    asynchronous: bool = False

    @cached_property
    def options(self) -> dict[str, Any]:
        """Option → value, with the library's default for what is not set; TRL's epsilon_high is epsilon where it is not set."""
        options = {**defaults(self.kind), **(ASYNC if self.asynchronous else {}), "use_peft": self.lora, **self.values}
        if self.kind == "GRPOConfig" and options["epsilon_high"] is None:
            options["epsilon_high"] = options["epsilon"]
        return options


@cache
def _table() -> dict[str, Any]:
    return json.loads(files("rlviz.interop").joinpath("fields.json").read_text(encoding="utf-8"))


def defaults(kind: str) -> dict[str, Any]:
    """Return option → default, verl's with dots."""
    return _table()[kind]


def read_config(source: str | Path, kind: str | None = None) -> Config:
    """Return what a file, or the text of one, sets. kind: one of KINDS, where the text itself leaves that open.

    Raises ValueError for what is no such configuration, FileNotFoundError where there is no file.
    """
    if isinstance(source, str) and FILE_NAME.fullmatch(source):
        raise ValueError(f"a text must be that of a configuration; for a file give Path({short_repr(source)})")
    text, suffix = (source, "") if isinstance(source, str) else (_text(source), source.suffix.lower())
    most = LARGEST_NOTEBOOK if suffix == ".ipynb" else LARGEST
    if len(text) > most:
        raise ValueError(f"a configuration must have at most {most // 2**10:,} kB; this has {len(text) // 2**10:,}")
    try:
        config = _READERS.get(suffix, _read_any)(text)
        config.kind = kind or _kind(config, text)
    except RecursionError:
        raise ValueError("the configuration nests brackets too deeply to be read") from None
    if config.kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {short_repr(kind)}")
    if not config.values and not config.unread:
        raise ValueError(
            "the configuration sets nothing: it has no GRPOConfig(…), no option: value, and no option=value"
        )
    _sort(config)
    return config


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8") from None


# -- a reader for each kind of file
def _read_any(text: str) -> Config:
    """Read a text of which nobody says what it is."""
    if re.search(r"\w+Config\s*\(|(?m:^(?:from [\w.]+ )?import \w)", text[:LARGEST]):
        return _read_python(text)
    if re.search(r"(?m)^\[+\w[\w.-]*\]+\s*$", text):
        return _read_toml(text)
    is_yaml = re.match(r"\s*\{", text) or re.search(r"(?m)^\w+:(\s|$)", text)
    if is_yaml or not re.search(r"(?:^|\s)(?:--\w|[+~]*\w+(?:\.\w+)+=|#!)|(?m:^\w+ rlhf\b)", text):
        return _read_yaml(text) if is_yaml or "```" not in text else _read_prose(text)
    try:
        config = _read_shell(text)
    except ValueError:
        # an apostrophe makes a page for people no script; where it is no such page either, the script's fault is told
        with suppress(ValueError):
            return _read_prose(text)
        raise
    return config if _says_something(config) else _read_prose(text)


def _says_something(config: Config) -> bool:
    return bool(config.values or config.unread or config.owner)


def _read_python(text: str) -> Config:
    """Read the first call of TRL's configuration in a Python file, or the command line that its docstring or a cell has."""
    source = CELL_COMMAND.sub(lambda match: "\n" * match[0].count("\n"), text)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ValueError(f"the Python in it cannot be parsed: line {getattr(error, 'lineno', None) or '?'}") from None
    names = Names(tree)
    calls = [(node, names.called(node)) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    configs = [(call, name) for call, name in calls if name in TRL_KINDS and call.keywords]
    kind = configs[0][1] if configs else names.parsed()
    config = Config(kind=kind or "", owner=names.owner(kind))
    if config.owner and config.owner.framework not in BUILDS_ON:
        raise refusal(config.owner)
    if not configs:
        # TRL's own examples have their command line in the docstring, a notebook has it in a cell
        cells = "\n".join(match[0].strip("!% \t") for match in CELL_COMMAND.finditer(text))
        for words, where in ((cells, "a cell"), (ast.get_docstring(tree, clean=False) or "", "its docstring")):
            with suppress(ValueError):
                command = _read_prose(words)
                command.kind, command.owner = config.kind, command.owner or config.owner
                command.notes.append(f"the command line in {where} was read")
                return command
        raise ValueError("no call of GRPOConfig or DPOConfig with options stands in the Python")
    first, notes = configs[0][0], config.notes
    if len(configs) > 1:
        notes.append(f"{len(configs)} configurations stand in it: this is the first, of line {first.lineno}")
    for keyword in first.keywords:
        for name, node in spread(keyword.arg, keyword.value, names.constants):
            try:
                config.values[name] = literal(node, names.constants)
            except ValueError:
                config.unread[name] = "a long expression"
                with suppress(RecursionError):
                    config.unread[name] = " ".join(ast.unparse(node).split())[:60]
    if any(name == "carried" for _, name in calls):
        notes.append("carried(…) puts another algorithm in its trainer: what the options say of one is not trained")
    bases = {name: names.classes.get(name, [name]) for _, name in calls}
    trainers = {name for name, above in bases.items() if any(base.endswith("Trainer") for base in above)}
    for name in sorted(trainers - {kind.replace("Config", "Trainer") for kind in TRL_KINDS}):
        notes.append(f"its trainer {name} is not TRL's own: what it changes is not seen")
    config.lora = any(keyword.arg == "peft_config" for call, _ in calls for keyword in call.keywords)
    config.punishment = next((two_numbers(call) for call, name in calls if name == PUNISHMENT), None)
    return config


def _read_notebook(text: str) -> Config:
    try:
        sources = [cell["source"] for cell in _json_object(text)["cells"] if cell["cell_type"] == "code"]
        code = "\n".join("".join(lines) for lines in sources)
    except (TypeError, KeyError):
        raise ValueError("the notebook in it cannot be parsed") from None
    return _read_python(code)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the JSON in it cannot be parsed: line {getattr(error, 'lineno', '?')}") from None
    if not isinstance(value, dict):
        raise ValueError('the JSON must be an object of options, such as {"beta": 0.04}')
    return value


def _read_yaml(text: str) -> Config:
    value = _yaml_value(text)
    if not isinstance(value, dict):
        raise ValueError("the YAML must be a mapping of options, such as beta: 0.04")
    return _tree_contents(value)


def _yaml_value(text: str) -> Any:
    import yaml  # type: ignore[import-untyped]  # transformers needs it

    depth = accumulate((bracket in "[{") - (bracket in "]}") for bracket in re.findall(r"[][{}]", text))
    if max(depth, default=0) > 5 * DEEPEST:  # its reader's time goes with the square of the depth
        raise RecursionError
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"the YAML in it cannot be parsed{f': line {mark.line + 1}' if mark else ''}") from None


def _tree_contents(tree: Mapping[Any, Any]) -> Config:
    """Return the options of nested mappings: with dots where a root is one of verl's, else those of the first level."""
    flat = dict(_flat({name: value for name, value in tree.items() if name not in ("defaults", "hydra")}))
    dotted = any(isinstance(tree.get(name.partition(".")[0]), dict) for name in defaults(VERL))
    config = Config(dotted=dotted, owner=options_owner(flat))
    for name, value in flat.items() if dotted else tree.items():
        if isinstance(value, str) and "${" in value:
            config.unread[str(name)] = value
        else:
            config.values[str(name)] = _number(value)
    return config


def _read_toml(text: str) -> Config:
    """Read the sections of a TOML file, which neither TRL nor verl takes."""
    sections = re.findall(r"(?m)^\s*\[+([\w.-]+)", text)
    return Config(
        dotted=True, owner=options_owner(f"{name}." for name in sections), unread=dict.fromkeys(sections, "…")
    )


def _flat(tree: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return name.name → value. Raises ValueError for more levels or options than a configuration has."""
    flat: list[tuple[str, Any]] = []

    def add(branch: Mapping[Any, Any], before: str, level: int) -> None:
        if level > DEEPEST:
            raise ValueError(f"the configuration must have at most {DEEPEST} levels")
        for name, value in branch.items():
            if isinstance(value, Mapping) and value:
                add(value, f"{before}{name}.", level + 1)
                continue
            flat.append((f"{before}{name}", value))
            if len(flat) > MOST:
                raise ValueError(f"the configuration must have at most {MOST:,} options")

    add(tree, "", 0)
    return flat


def _number(value: Any) -> Any:
    """Return a number for a text that is one: YAML takes 1e-6 for a text, and both libraries for a number."""
    if not isinstance(value, str) or not NUMBER.fullmatch(value.strip()):
        return value
    return int(value) if value.strip().isdigit() else float(value)


def _read_shell(text: str) -> Config:
    """Read the command of a script that trains: the first with a known entry point, else the one with most known options."""
    try:
        commands = read_commands(text)
    except ValueError as error:
        raise ValueError(f"the shell script in it cannot be parsed: {error}") from None
    known = {name for kind in KINDS for name in defaults(kind)}
    starts = [
        command
        for command in commands
        if not (_is_bare(command.words) or command.words[0] in STARTS_NOTHING or "install" in command.words[:4])
    ]
    owned = [command for command in starts if command_owner(command.words)]
    owned = [command for command in owned if _is_read(command_owner(command.words))] or owned

    def known_options(command: Command) -> tuple[int, int]:
        words = command.words[entry_point(command.words)[0] :]
        matches = [match for word in words if (match := OVERRIDE.fullmatch(word) or FLAG.fullmatch(word))]
        return sum(match["name"].replace("-", "_") in known for match in matches), len(matches)

    most = max((known_options(command) for command in starts), default=(0, 0))
    likely = owned or [command for command in starts if known_options(command) >= (most[0] / 2, 1)]
    chosen = likely[0] if likely else None
    if chosen is None:  # options alone, on as many lines as one likes
        alone = [command for command in commands if _is_bare(command.words)]
        words = [word for command in alone for word in command.words]
        chosen = Command(1, words, [values for command in alone for values in command.undecided])
    config = Config(owner=command_owner(chosen.words))
    if len(likely) > 1:
        config.notes.append(f"{len(likely)} commands may train: this is the first, of line {chosen.line}")
    after = next((command for command in commands if command.line > chosen.line), Command(0))
    if chosen.comment or _is_bare(after.words):
        config.notes.append(
            f"line {chosen.comment or after.line}: a comment or a blank after the backslash ends the command for bash, which "
            "does not pass what is below it"
        )
    _read_words(config, chosen)
    return config


def _is_read(owner: Owner | None) -> bool:
    """Whether a command is one of TRL's or verl's whose options are read."""
    return bool(owner and not owner.trainer and BUILDS_ON.get(owner.framework, owner.framework) in ("TRL", "verl"))


def _is_bare(words: Sequence[str]) -> bool:
    """Whether words are options alone, without a command."""
    return bool(words) and bool(OVERRIDE.fullmatch(words[0]) or FLAG.fullmatch(words[0]))


def _read_words(config: Config, command: Command) -> None:
    """Read overrides (a.b=c) and flags (--a b c) of a command, without those of what launches it."""
    words, current = list(zip(command.words, command.undecided, strict=True))[entry_point(command.words)[0] :], ""
    flags: dict[str, list[str]] = {}
    undecided: dict[str, list[str]] = {}
    if len(words) > MOST:
        raise ValueError(f"the command must have at most {MOST:,} words")
    for word, open_values in words:
        override, flag = OVERRIDE.fullmatch(word), FLAG.fullmatch(word)
        if override:
            current = override["name"]
            config.dotted = True
            _set(config, current, override["value"])
            config.added |= {current} if "+" in override["plus"] else set()
        elif flag:
            current = flag["name"].replace("-", "_")
            if current in flags:
                config.notes.append(f"--{current} stands twice, and the last was taken")
            flags[current] = [] if flag["value"] is None else [flag["value"]]
        elif current in flags:
            flags[current].append(word)
        elif word.startswith(("$", "`")):
            config.notes.append(f"{word[:60]} may hold options, which only a running shell knows: they were not read")
        undecided |= {} if current.endswith(HARMLESS) else open_values
    for name, values in flags.items():
        _set(config, name, *(values or ["true"]))
    for name in ("config", "config_name", "config_path", "config_file"):
        if flags.get(name):
            config.notes.append(f"--{name} {flags[name][0]} is another file: what it sets was not read")
            config.values.pop(name, None)
    for name, values in undecided.items():
        texts = " , ".join(value[:60] for value in values)
        config.notes.append(f"a condition of the script decides {name} ; of {texts} the last was taken")


def _set(config: Config, name: str, *texts: str) -> None:
    """Set an option to what the words of a command line mean in YAML."""
    if name in config.values:
        config.notes.append(f"{name} is set more than once, and the last was taken")
    if any(re.search(r"\$[\w{(@*]|`", text) for text in texts):
        config.unread[name] = " ".join(texts)[:60]
        return
    values: list[Any] = list(texts)
    for position, text in enumerate(texts):
        with suppress(ValueError, RecursionError):
            plain = NUMBER.fullmatch(text) or PLAIN.fullmatch(text)
            values[position] = _number(text if plain else _yaml_value(text[:LONGEST]))
    config.values[name] = values if len(values) > 1 else values[0]


def _read_prose(text: str) -> Config:
    """Read the command in a text for people, a docstring or a page: a line that starts a program, and what continues it."""
    lines = re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines()
    commands = [line.strip().lstrip("$> ").strip("`") for line in lines if "--" in line or OVERRIDE.search(line)]
    configs: list[Config] = []
    for line in sorted(commands, key=lambda line: not LAUNCHER.match(line)):  # a known program first, then any options
        with suppress(ValueError):
            if _says_something(config := _read_shell(line)):
                configs.append(config)
        if configs and _is_read(configs[-1].owner):
            return configs[-1]
    if not configs:
        raise ValueError("no command that trains stands in the text")
    return configs[0]


_READERS = {
    **{".toml": _read_toml, ".md": _read_prose, ".rst": _read_prose, ".py": _read_python, ".ipynb": _read_notebook},
    **{
        ".json": lambda text: _tree_contents(_json_object(text)),
        ".yaml": _read_yaml,
        ".yml": _read_yaml,
        ".sh": _read_shell,
    },
}


# -- whose options, and which
def _kind(config: Config, text: str) -> str:
    """Return which of the three it is: by its owner, by what it calls, by the share of names that a library has.

    Raises ValueError for another framework's, and where nothing says whose it is.
    """
    names = [*config.values, *config.unread]
    owner = config.owner or options_owner(names)
    if owner and owner.framework == "verl" and not owner.trainer:
        # what builds on verl is started as verl is: its options alone tell
        by_options = options_owner(names)
        owner = by_options if by_options and BUILDS_ON.get(by_options.framework) == "verl" else owner
    is_verl = any(name.startswith("actor_rollout_ref.") for name in names)
    library = "verl" if is_verl else BUILDS_ON.get(owner.framework, owner.framework) if owner else ""
    if owner:
        is_other_verl = library == "verl" and config.dotted and not is_verl and owner.framework != "verl"
        if owner.trainer or library not in ("TRL", "verl") or is_other_verl:
            raise refusal(owner)
    config.owner = owner
    if config.kind or not names:
        return config.kind or TRL_KINDS[0]
    verls = sum(_renamed(name) in defaults(VERL) or _is_below_open(name) for name in names)
    if config.dotted and (library == "verl" or verls >= SHARE * len(names)):
        return VERL
    beside = {*_table()["beside"], *GONE}
    trls = sum(name in beside or any(name in defaults(kind) for kind in TRL_KINDS) for name in names)
    scores = {k: (sum(n in defaults(k) for n in names), k[: -len("Config")].lower() in text.lower()) for k in TRL_KINDS}
    first, second = sorted(TRL_KINDS, key=lambda kind: scores[kind], reverse=True)
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


def _sort(config: Config) -> None:
    """Sort what stands in a text into options of the library, and names that it does not have."""
    kind, evidence = config.kind, config.owner.evidence if config.owner else ""
    is_async = "fully_async" in evidence or any(name.startswith("async_training.") for name in config.values)
    names, beside = defaults(kind), set() if kind == VERL else set(_table()["beside"])
    values: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for name, value in {**config.unread, **config.values}.items():
        positive, new = name.removeprefix("no_"), _renamed(name) if kind == VERL else name
        if kind != VERL and name != positive and positive in names:  # --no_x of a command line
            values[positive] = False
        elif new in names or (kind == VERL and _is_below_open(new)):
            (values if name in config.values else unread)[new] = value
        elif name == "**":
            unread["other options"] = f"**{value}"
        elif name not in beside and not (is_async and name.startswith(("async_training.", "rollout."))):
            config.unknown[name] = _nearest(name, names, config) if len(config.unknown) < SUGGESTED else ""
    if kind == "GRPOConfig" and isinstance(values.get("scale_rewards"), bool):
        values["scale_rewards"] = "group" if values["scale_rewards"] else "none"
    for name in LISTS[: 2 + (kind == "DPOConfig")]:
        if isinstance(values.get(name), str | int | float):
            values[name] = [values[name]]
    for name, value in values.items():
        _check(name, value, names.get(name))
    if "one_step_off" in evidence:
        config.notes.append("one step off: a rollout was sampled by the weights of the step before")
    config.lora = config.lora or bool(config.values.get("use_peft"))
    config.owner = config.owner if config.owner and config.owner.framework in BUILDS_ON else None
    config.notes = list(dict.fromkeys(config.notes))
    config.values, config.unread, config.asynchronous = values, unread, is_async


def _check(name: str, value: Any, default: Any) -> None:
    """Raise ValueError for a value of another type than the option's default has. What is null is left to the library."""
    if isinstance(default, bool):
        if not isinstance(value, bool | int | None):
            raise ValueError(f"{name} must be true or false; got {short_repr(value)}")
    elif isinstance(default, int | float) or name in NUMBERS:
        is_pair = name.endswith("_threshold") and isinstance(value, str)  # verl's 0.5_2.0
        is_pair = is_pair and all(NUMBER.fullmatch(part) for part in re.split("[_,]", value))
        if isinstance(value, bool) or not (is_pair or isinstance(value, int | float | None)):
            raise ValueError(f"{name} must be a number; got {short_repr(value)}")


def _renamed(name: str) -> str:
    """Return verl's newer name of an option."""
    for old, new in OLD_REWARD.items():
        if name == old or (old.endswith(".") and name.startswith(old)):
            return new + name[len(old) :]
    return name


def _is_below_open(name: str) -> bool:
    """Whether a name is below one of which fields.json lists nothing, or one that a reward manager is called with."""
    parts, names = name.split("."), defaults(VERL)
    above = (".".join(parts[:level]) for level in range(1, min(len(parts), DEEPEST)))
    return name.startswith("reward.reward_kwargs.") or any(names.get(folder) in (OPEN, {}) for folder in above)


def _nearest(name: str, names: Mapping[str, Any], config: Config) -> str:
    """Return what is known of a name that the library does not have, "" for nothing."""
    if name in GONE:
        return GONE[name]
    if name in config.added:
        return "added by +, which the trainer reads only where its code asks for it"
    last = name.rpartition(".")[2]
    near = get_close_matches(name, names, n=1, cutoff=0.75)
    near += [known for known in names if "." in known and known.rpartition(".")[2] == last]
    return f"the nearest known is {near[0]}" if near else ""
