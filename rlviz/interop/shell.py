"""A bash script's commands, as bash reads it: quotes, comments, continued lines, variables, arrays, arithmetic. Nothing is run.

In comes the text of a script, out go its simple commands in their order, with their words expanded by the assignments above them.
What only a running shell knows (`$(…)`, `$1`, a variable that nothing assigns) stays in a word as it is written, to be named.
Begin with `read_commands`; `_tokens` cuts a text into words, `_split_word` expands one.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LONGEST = 10_000  # characters of a variable, or words of an array
DEEPEST = 40  # brackets within brackets
CLOSERS = {"'": "'", '"': '"', "`": "`", "$(": ")", "${": "}", "(": ")"}
BREAKS = frozenset(" \t\n;&|()<>")
NAME = re.compile(r"([A-Za-z_]\w*)(\+?)=")
REDIRECTION = re.compile(r"\d*(?:&>>?|>>|>\||<<<|<>|[<>])(?:&(?:\d+|-)?)?")
HERE = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
PARAMETER = re.compile(r"(#?)(\w+|[@*])(?:\[([^]]*)\])?(?:(:?[-=+])(.*))?", re.S)
VARIABLE = re.compile(r"\$(\w+|[@*#?$!-])")
OPENING, CLOSING = {"if", "case", "for", "while", "until", "select"}, {"fi", "esac", "done"}
HEADS = {"then", "else", "elif", "do", "!", "{", "}", "time", "exec", "eval", "(", ")"} | OPENING | CLOSING
DECLARING = {"export", "declare", "local", "readonly", "typeset", ":", "true"}
SHELLS = {"bash", "sh", "zsh", "srun", "ssh"}  # whose here-document is a script
ASSIGNING = {"read", "mapfile", "readarray", "let", "getopts"}
COMMAND_IN_TEXT = re.compile(r"(?:^|[\s;&])(?:python3?|accelerate|torchrun|deepspeed|uv|trl|swift)\s+\S")
SUMS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: int(math.copysign(abs(a) // abs(b), a * b)),
    ast.Mod: lambda a, b: int(math.fmod(a, b)),
}
Value = str | list[str]


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

    def add(self, word: str, known: Variables) -> None:
        """Add a word that was expanded by variables."""
        self.words.append(word)
        self.undecided.append({name: known.open[name] for name in known.used & known.open.keys()})


class Variables(dict[str, Value]):
    """Name → value, of an array the list. open: name → the values that it may have, as a condition decides. used: names read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, list[str]] = {}
        self.used: set[str] = set()

    def assign(self, name: str, value: Value, *, maybe: bool) -> None:
        """Set a variable; maybe: whether a condition decides that it is."""
        inherited = [text for used in sorted(self.used) for text in self.open.get(used, ())]
        before = self.open.get(name) or ([_joined(self[name])] if name in self else ["unset"])
        if maybe and _joined(value) not in before:
            self.open[name] = [*before, _joined(value)][-4:]
        elif inherited:
            self.open[name] = inherited[-4:]
        elif not maybe:
            self.open.pop(name, None)
        self[name] = value[:LONGEST]


def _joined(value: Value) -> str:
    """Return a value as one text, of an array its first four words."""
    return value if isinstance(value, str) else " ".join(value[:4])


def read_commands(text: str, known: Variables | None = None, level: int = 0) -> tuple[list[Command], Variables]:
    """Return the simple commands of a script, and its variables after the last.

    A command within a text (`bash -c "…"`) is read, too. Raises ValueError for a quotation mark or bracket without a partner.
    """
    known, commands = Variables() if known is None else known, []
    depth, raw, tested = 0, [], False
    for kind, value, line in _tokens(text.replace("\r\n", "\n")):
        if kind != "end":
            raw.append((kind, value, line))
            continue
        while raw and raw[0][0] == "word" and raw[0][1] in HEADS - {"for", "select"}:
            head = raw.pop(0)[1]
            depth += (head in OPENING) - (head in CLOSING)
        if raw and raw[0][1] in ("for", "select"):
            # a loop over one value has it, over several none that is known
            depth += 1
            values = [value for _, value, _ in raw[3:]]
            for _, name, _ in raw[1:2]:
                known[name] = _expand(values[0], known) if len(values) == 1 else f"${name}"
        elif raw:
            command = _simple(raw, known, maybe=depth > 0 or tested)
            command.comment = line if value == "#" else 0
            nested = [word for word in command.words if " " in word.strip() and COMMAND_IN_TEXT.search(word)]
            commands += [command] if command.words else []
            for word in nested[:4] if level < 3 else ():
                commands += read_commands(word, known, level + 1)[0]
        tested = value in ("&&", "||") and bool(raw) and raw[0][1] in ("[", "[[", "test")
        raw = []
    return commands, known


def _simple(raw: list[tuple[str, Any, int]], known: Variables, *, maybe: bool) -> Command:
    """Return a command with its words expanded; what it assigns is remembered unless it is for that command alone."""
    command, texts = Command(raw[0][2]), {}
    heads = [value for kind, value, _ in raw if kind == "word" and not NAME.match(value)]
    alone = not heads or heads[0] in DECLARING
    for kind, value, _ in raw:
        known.used = set()
        if kind == "here":
            if command.words[:1] == ["read"]:
                texts[command.words[-1]] = _expand(value, known)
            elif command.words and command.words[0] in SHELLS and COMMAND_IN_TEXT.search(value):
                command.add(value, known)
            continue
        assignment = NAME.match(value[0] if kind == "array" else value)
        if assignment is None or not (kind == "array" or alone or not command.words):
            for word in _split_word(value, known):
                command.add(word, known)
            continue
        name, more = assignment[1], assignment[2]
        if kind == "array":
            new: Any = [word for written in value[1] for word in _split_word(written, known)]
            before = known.get(name, [])
            new = [*([before] if isinstance(before, str) else before), *new] if more else new
        else:
            new = (_joined(known.get(name, "")) if more else "") + _expand(value[assignment.end() :], known)
        if alone:
            known.assign(name, new, maybe=maybe)
        elif " " in new and COMMAND_IN_TEXT.search(str(new)):
            command.add(new, known)  # COMMAND="…" sbatch
    if command.words and command.words[0] in ASSIGNING:
        known.update({word: f"${word}" for word in command.words[1:] if word.isidentifier()} | texts)
    if alone:
        command.words = []
    return command


# -- words
def _tokens(text: str) -> Iterator[tuple[str, Any, int]]:
    """Give ("word", as written, line), ("array", (NAME=, words), line), ("here", text, line), ("end", operator, line)."""
    at, line, size = 0, 1, len(text)
    delimiters: list[str] = []  # of here-documents that begin on the next line
    array: tuple[str, list[str]] | None = None
    while at < size:
        here = text[at]
        if here == "\n" and array is None:
            at += 1
            for delimiter in delimiters:
                last = re.compile(rf"^\t*{delimiter}$", re.M).search(text, at)
                begin, at = at, last.end() if last else size
                yield "here", text[begin : last.start() if last else size], line
                line += text.count("\n", begin, at)
            yield "end", "\n", line
            delimiters, line = [], line + 1
        elif here in " \t\r\n":
            line += here == "\n"
            at += 1
        elif here == "\\" and text[at + 1 : at + 2] in ("\n", ""):  # a continued line, or the end of the text
            at, line = at + 2, line + 1
        elif here == "#":
            above = text.rfind("\n", 0, at)
            if text[above - 1 : above] == "\\" and not text[above:at].strip():
                yield "end", "#", line
            end = text.find("\n", at)
            at = size if end < 0 else end
        elif array is not None and here == ")":
            yield "array", array, line
            at, array = at + 1, None
        elif (match := HERE.match(text, at)) and text[at + 2 : at + 3] != "<":
            delimiters.append(re.escape(match[2]))
            at = match.end()
        elif array is None and (match := REDIRECTION.match(text, at)):
            at = match.end()
            if not match[0].endswith(("-", *"0123456789")):  # its file is the next word
                while text[at : at + 1] in (" ", "\t"):
                    at += 1
                at = _closing(text, at) if text[at : at + 1] == "(" else _word_end(text, at)
        elif array is None and here in ";&|()":
            double = text[at : at + 2] in ("&&", "||", ";;")
            yield "end", text[at : at + 1 + double], line
            at += 1 + double
        else:
            end = max(_word_end(text, at), at + 1)
            word = text[at:end]
            if array is None and text[end : end + 1] == "(" and NAME.fullmatch(word):
                array, end = (word, []), end + 1
            elif array is not None:
                array[1].append(word)
            else:
                yield "word", word, line
            line += text.count("\n", at, end)
            at = end
    if array is not None:
        raise ValueError(f"in line {line} an array has no closing bracket")
    yield "end", "\n", line


def _word_end(text: str, at: int) -> int:
    """Return where a word ends."""
    while at < len(text) and text[at] not in BREAKS:
        if text[at] in "'\"`" or text[at : at + 2] in ("$(", "${"):
            at = _closing(text, at)
        else:
            at += 1 + (text[at] == "\\")
    return min(at, len(text))


def _closing(text: str, begin: int, level: int = 0, quoted: bool = False) -> int:
    """Return where the quotation or expansion that begins at a place ends."""
    opener = text[begin : begin + 2] if text[begin] == "$" else text[begin]
    if level > DEEPEST:
        raise ValueError(f"in line {text.count(chr(10), 0, begin) + 1} brackets are nested more than {DEEPEST} deep")
    at, closer = begin + len(opener), CLOSERS[opener]
    quoted = opener == '"' or (quoted and opener == "${")
    while at < len(text):
        here = text[at]
        if here == closer:
            return at + 1
        if here == "\\" and opener != "'":
            at += 2
        elif opener == "'" or (here in "'\"" and quoted):
            at += 1
        elif text[at : at + 2] in ("$(", "${") or (here in "'\"`" and opener != "`"):
            at = _closing(text, at, level + 1, quoted)
        elif here == "(" and opener in ("$(", "("):
            at = _closing(text, at, level + 1)
        else:
            at += 1
    what = "a bracket" if closer in ")}" else "a quotation mark"
    raise ValueError(f"in line {text.count(chr(10), 0, begin) + 1} {what} has no partner")


# -- expansion
def _expand(raw: str, known: Variables) -> str:
    """Return a word's value where no word is divided, as in an assignment."""
    return "".join(" ".join(part) if isinstance(part, list) else part for part, _ in _parts(raw, known))


def _expand_quoted(inner: str, known: Variables) -> Value:
    """Return what stands between double quotes: an array alone gives its words, all else is one text."""
    parts = [part for part, _ in _parts(inner, known, quoted=True)]
    if len(parts) == 1:
        return parts[0]
    return "".join(" ".join(part) if isinstance(part, list) else part for part in parts)


def _split_word(raw: str, known: Variables) -> list[str]:
    """Return the words that one word as written becomes."""
    fields: list[list[str]] = []
    glued = False  # whether the next part goes on with the last field
    for part, quoted in _parts(raw, known):
        undivided = quoted or "$" in part or "`" in part
        words = part if isinstance(part, list) else [part] if undivided else part.split()
        glued = glued and (undivided or not part or not part[0].isspace())
        for word in words:
            if not glued:
                fields.append([])
            fields[-1].append(word)
            glued = False
        glued = bool(words) and (undivided or not part[-1].isspace()) if part else glued
    return ["".join(parts) for parts in fields]


def _parts(raw: str, known: Variables, quoted: bool = False) -> Iterator[tuple[Value, bool]]:
    """Give the parts of a word: value, and whether it stays undivided (quoted, or no expansion)."""
    at = plain = 0
    while at < len(raw):
        here, following = raw[at], raw[at + 1 : at + 2]
        if here not in ("\\`$" if quoted else "\\'\"`$"):
            at += 1
            continue
        if at > plain:
            yield raw[plain:at], True
        if here == "\\":
            escaped = not quoted or following in tuple('"\\$`')
            yield ("" if following == "\n" else following if escaped else here + following), True
            end = at + 2
        elif here == "'" or (here + following == "$'" and not quoted):
            begin = at + (here == "$")
            end = _closing(raw, begin)
            yield raw[begin + 1 : end - 1], True
        elif here == '"':
            end = _closing(raw, at)
            yield _expand_quoted(raw[at + 1 : end - 1], known), True
        else:
            if here == "`" or here + following in ("$(", "${"):
                end = _closing(raw, at)
            else:
                match = VARIABLE.match(raw, at)
                end = match.end() if match else at + 1
            yield (_value(raw[at:end], known) if end > at + 1 else here), False
        at = plain = end
    if at > plain:
        yield raw[plain:at], True


def _value(written: str, known: Variables) -> Value:
    """Return what an expansion stands for; as it is written where only a running shell knows."""
    if written.startswith("$((") and written.endswith("))"):
        total = _sum(written[3:-2], known)
        return written if total is None else str(total)
    match = PARAMETER.fullmatch(written[2:-1] if written.startswith("${") else written[1:])
    if match is None or written[0] == "`" or written.startswith("$("):
        return written
    count, name, index, operation, word = match.groups()
    if name in "@*":
        return []  # of a script that gets no words
    known.used.add(name)
    value: Any = known.get(name)
    if isinstance(value, list) and index not in ("@", "*"):
        known_index = not index or index.isdigit()
        value = dict(enumerate(value)).get(int(index or 0)) if known_index else written
    if operation is None:
        return written if value is None else str(len(value)) if count else value
    empty = value is None or (value in ("", []) and operation[0] == ":")
    if operation[-1] == "+":
        return "" if empty else _expand_quoted(word, known)
    if not empty:
        return value
    value = _expand(word, known)
    if operation[-1] == "=":
        known.assign(name, value, maybe=False)
    return value


def _sum(text: str, known: Variables) -> int | None:
    """Return the value of whole-number arithmetic, None where a part of it is not known."""

    def number(node: ast.expr) -> int:
        if isinstance(node, ast.Name):
            known.used.add(node.id)
            return int(str(known[node.id]))
        if isinstance(node, ast.BinOp) and type(node.op) in SUMS:
            return SUMS[type(node.op)](number(node.left), number(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -number(node.operand)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError

    expanded = _expand_quoted(text, known) if len(text) <= LONGEST else ""
    try:
        return number(ast.parse(str(expanded).strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ArithmeticError, RecursionError, MemoryError):
        return None
