"""A bash script's commands, with the variables, defaults, arrays and sums above them put in. Nothing is run.

In comes the text of a script, out go its simple commands in their order. What only a running shell knows (`$(…)`, `$1`, a
variable that nothing assigns) stays in a word as it is written, to be named. Begin with `read_commands`; TOKEN cuts a text into
words, `_words` expands one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlviz.interop.python_files import literal

LONGEST = 10_000  # characters of a variable or a sum, or words of an array
DEEPEST = 6  # brackets within brackets


def _balanced(opening: str, closing: str) -> str:
    """Return a pattern of a pair of brackets with what is between them."""
    other = rf"[^{opening}{closing}]"
    pair = rf"\{opening}{other}*\{closing}"
    for _ in range(DEEPEST - 1):
        pair = rf"\{opening}(?:{other}|{pair})*\{closing}"
    return pair


EXPANSION = rf"\${_balanced('(', ')')}|\${_balanced('{', '}')}|\$\w+\b|\$[@*#?$!-]|`[^`]*`"
# each text has one way only to be matched, so that what never ends fails in a time that grows with its length
DOUBLE = rf'"(?:\\.|{EXPANSION}|\$(?![({{\w@*#?$!-])|[^"\\`$])*"'
WORD = rf"(?:\\.|'[^']*'|{DOUBLE}|{EXPANSION}|[^\s;&|()<>'\"\\`$]|\$)+"
PIECE = re.compile(rf"\\.|'[^']*'|{DOUBLE}|{EXPANSION}|[^\\'\"`$]+|.", re.S)
QUOTED = re.compile(rf"\\.|{EXPANSION}|[^\\`$]+|.", re.S)  # what stands between double quotes
TOKEN = re.compile(
    r"""(?P<blank>(?:[^\S\n]|\\\n|\\\Z)+) | (?P<comment>\#[^\n]*)
    | (?P<here><<-?[ \t]*(?P<quote>['"]?)(?P<mark>\w+)(?P=quote)[^\n]*(?:\n(?P<body>.*?)(?:^\t*(?P=mark)$|\Z)|\Z))
    | (?P<file>\d*(?:&>>?|>>|>\||<<<|<>|[<>])(?:&(?:\d+|-)|[ \t]*(?:WORD|\([^()]*\))?))
    | (?P<array>[A-Za-z_]\w*\+?=\() | (?P<end>&&|\|\||;;|[\n;&|()]) | (?P<word>WORD)""".replace("WORD", WORD),
    re.S | re.M | re.X,
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
PARAMETER = re.compile(r"(\w+|[@*])(?:\[([^]]*)\])?(?:(:?[-=+])(.*))?", re.S)
OPENING, CLOSING = {"if", "case", "for", "while", "until", "select"}, {"fi", "esac", "done"}
HEADS = {"then", "else", "elif", "do", "!", "{", "}", "time", "exec", "eval"} | OPENING | CLOSING
DECLARING = {"export", "declare", "local", "readonly", "typeset", ":"}
COMMAND_IN_TEXT = re.compile(r"(?:^|[\s;&])(?:python3?|accelerate|torchrun|deepspeed|uv|trl|swift)\s+\S")
Value = str | list[str]
Raw = tuple[str, list[str] | None]  # a word as it is written; of an array NAME= and its words


@dataclass
class Command:
    """A simple command.

    line: where it begins. words: expanded. undecided: of each word, variable → values, as an `if` decides.
    comment: the line of a comment that ended it below a continued line, 0 where none did.
    """

    line: int
    words: list[str] = field(default_factory=list)
    undecided: list[dict[str, list[str]]] = field(default_factory=list)
    comment: int = 0


class Variables(dict[str, Value]):
    """Name → value, of an array the list. open: name → the values that it may have, as a condition decides."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, list[str]] = {}

    def undecided(self, written: str) -> dict[str, list[str]]:
        """Return the variables in a text whose value a condition decides."""
        names = re.findall(r"[A-Za-z_]\w*", written) if self.open and "$" in written else []
        return {name: self.open[name] for name in names if len(self.open.get(name, ())) > 1}

    def assign(self, name: str, value: Value, written: str = "", *, maybe: bool = False) -> None:
        """Set a variable to what was written; maybe: whether a condition decides that it is."""
        before, after = (
            text if isinstance(text, str) else " ".join(text[:4]) for text in (self.get(name, "unset"), value)
        )
        inherited = [text for texts in self.undecided(written).values() for text in texts]
        if maybe:
            self.open[name] = list(dict.fromkeys([*self.open.get(name, [before]), after]))[-4:]
        elif inherited:
            self.open[name] = inherited[-4:]
        else:
            self.open.pop(name, None)
        self[name] = value[:LONGEST]


def read_commands(text: str, level: int = 0) -> list[Command]:
    """Return the simple commands of a script. A command within a text (`bash -c "…"`) is read, too.

    Raises ValueError for a quotation mark or an array's bracket without a partner.
    """
    known, commands, depth, is_test = Variables(), [], 0, False
    for line, raw, end, body in _written(text.replace("\r\n", "\n")):
        while raw and raw[0][0] in HEADS:
            head = raw.pop(0)[0]
            depth += (head in OPENING) - (head in CLOSING)
            if head == "for" and raw:
                known.pop(raw[0][0], None)
        command = _expanded(line, raw, known, maybe=depth > 0 or is_test)
        is_test = end in ("&&", "||") and command.words[:1] in (["["], ["[["], ["test"])
        if not command.words:
            continue
        if end.isdigit():
            command.comment = int(end)
        # what is read only a running shell knows, but for read -d '' NAME <<EOF
        if command.words[0] in ("read", "mapfile", "readarray"):
            for name in command.words[1:]:
                known.assign(name, f"${name}")
            if command.words[0] == "read" and body:
                known.assign(command.words[-1], body.replace("\\\n", ""))
        commands.append(command)
        nested = [word for word in command.words if " " in word.strip() and COMMAND_IN_TEXT.search(word)]
        for word in nested[:4] if level < 3 else ():
            commands += read_commands(word, level + 1)
    return commands


def _written(text: str) -> Iterator[tuple[int, list[Raw], str, str]]:
    """Give each command as it is written: line, words, what ended it (of a comment the line), text of a here-document."""
    at, line, begin, body, before = 0, 1, 1, "", ""
    raw: list[Raw] = []
    array: list[str] | None = None
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueError(
                f"in line {line} a quotation mark has no partner, or brackets are more than {DEEPEST} deep"
            )
        kind, word = match.lastgroup, match[0]
        begin = begin if raw else line
        if array is not None and kind in ("word", "end"):
            if kind == "word":
                array.append(word)
            elif word == ")":
                array = None
        elif kind == "array":
            array = []
            raw.append((word[:-1], array))
        elif kind == "word":
            raw.append((word, None))
        elif kind == "here":
            body = match["body"] or ""
        elif array is None and (kind == "end" or (kind == "comment" and "\\\n" in before)):
            yield begin, raw, word if kind == "end" else str(line), body
            raw, body = [], ""
        at, line, before = match.end(), line + word.count("\n"), word
    if array is not None:
        raise ValueError(f"in line {begin} an array has no closing bracket")
    yield begin, raw, "\n", body


def _expanded(line: int, raw: list[Raw], known: Variables, *, maybe: bool) -> Command:
    """Return a command with its words expanded; what it assigns is remembered unless it is for that command alone."""
    command = Command(line)
    is_declaring = bool(raw) and raw[0][0] in DECLARING
    raw = raw[is_declaring:]
    is_alone = is_declaring or all(ASSIGNMENT.fullmatch(written) for written, _ in raw)
    for written, array in raw:
        assignment = ASSIGNMENT.fullmatch(written) if is_declaring or not command.words else None
        if assignment is None:
            words = _words(written, known)
            command.words += words
            command.undecided += [known.undecided(written)] * len(words)
        elif is_alone:
            name, more, text = assignment.groups()
            before = known.get(name, "") if more else ""
            if array is None:
                known.assign(name, _joined(before) + _text(text, known), text, maybe=maybe)
            else:
                items = [word for item in array for word in _words(item, known)]
                items = [*([before] if isinstance(before, str) and before else before), *items]
                known.assign(name, items, " ".join(array), maybe=maybe)
    if is_declaring:
        command.words = []
    return command


# -- expansion
def _text(written: str, known: Variables) -> str:
    """Return the value of a word that is not divided, as in an assignment."""
    return " ".join(_words(written, known))


def _words(written: str, known: Variables) -> list[str]:
    """Return the words that one word as it is written becomes."""
    fields, is_quoted = [""], False
    for text in PIECE.findall(written):
        words = [text]
        if text[0] == "\\":
            words = [text[1:].strip("\n")]
        elif text[0] == "'":
            words = [text[1:-1]]
        elif text[0] == '"':
            inner = [_quoted(part, known) for part in QUOTED.findall(text[1:-1])]
            value = inner[0] if len(inner) == 1 else "".join(map(_joined, inner))
            words = [value] if isinstance(value, str) else value
        elif text[0] in "$`":
            value = _value(text, known)
            if isinstance(value, str):  # what only a running shell knows stays undivided
                value = [value] if "$(" in value or "`" in value or value == text else re.split(r"\s+", value)
            words = value
        is_quoted |= text[0] in "'\"" and words != []
        first, *others = words or [""]
        fields[-1] += first
        fields += others
    return fields if is_quoted else [word for word in fields if word]


def _quoted(part: str, known: Variables) -> Value:
    """Return a part of what stands between double quotes; an array gives its words."""
    if part[0] == "\\":
        return "" if part[1] == "\n" else part[1] if part[1] in '"\\$`' else part
    return _value(part, known) if part[0] in "$`" else part


def _joined(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _value(written: str, known: Variables) -> Value:
    """Return what an expansion stands for; as it is written where only a running shell knows."""
    if written.startswith("$(("):
        return _sum(written, known)
    match = PARAMETER.fullmatch(written[2:-1] if written.startswith("${") else written[1:])
    if match is None:
        return written
    name, index, how, other = match.groups()
    if name in "@*":
        return []  # of a script that gets no words
    value = known.get(name)
    if isinstance(value, list) and index not in ("@", "*"):
        place = int(index or 0) if (index or "0").isdigit() else len(value)
        value = value[place] if place < len(value) else None
    if how is None:
        return written if value is None else value
    is_empty = value is None or (value in ("", []) and how.startswith(":"))
    if how.endswith("+"):
        return "" if is_empty else _text(other, known)
    if is_empty and how.endswith("="):
        known.assign(name, _text(other, known))
    return _text(other, known) if is_empty or value is None else value


def _sum(written: str, known: Variables) -> str:
    """Return the value of whole-number arithmetic, $((…)) as it is written where a part of it is not known."""
    text = _text(written[3:-2], known).strip() if len(written) <= LONGEST else ""
    numbers = {
        name: ast.Constant(int(value))
        for name, value in known.items()
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value)
    }
    try:
        return str(int(literal(ast.parse(text.replace("/", "//"), mode="eval").body, numbers)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return written
