"""Names say what a thing is: no participle, pronoun or preposition of the list names a function, class, argument or variable."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BANNED = set("told said kept own shown given asked made found each whole there through rest some".split())
FIELDS = {"rlviz/page/picture.py": ["whole"]}  # of the grammar of pictures, as saved notebooks have it
DECLARATIONS = (  # of JavaScript
    r"\b(?:const|let|var|class|function\*?)\s+([\w$]+)",
    r"\b(?:const|let|var)\s*([{[][^=;]*)(?:=|\sof\s)",  # what is taken apart
    r"\bfunction\*?\s*[\w$]*\s*\(([^()]*)\)",
    r"^\s*(?:(?:async|static|get|set)\s+)*(?!(?:if|for|while|switch|catch)\b)([\w$]+)\s*\(([^()]*)\)\s*{",  # a method
    r"\(([^()]*)\)\s*=>",
    r"([\w$]+)\s*=>",
    r"^\s*this\.([\w$]+)\s*=[^=]",
)


def is_banned(name):
    word = name.strip("_$")
    return word in BANNED or bool(re.match("of_|of[A-Z]", word))


def python_names(text):
    """Give the names that a Python file binds."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def javascript_names(text):
    """Give the names that a JavaScript file declares."""
    code = re.sub(r"/\*.*?\*/|(?<![:\\])//[^\n]*", "", text, flags=re.S)
    for match in (match for declaration in DECLARATIONS for match in re.finditer(declaration, code, re.M)):
        for part in ",".join(match.groups()).split(","):  # of `a: b = c` the name is b
            yield from re.findall(r"[\w$]+", part.partition("=")[0].rpartition(":")[2])


LANGUAGES = {".py": python_names, ".js": javascript_names, ".mjs": javascript_names}


def rooms():
    """Return folder, or file directly in a package → its files."""
    files = {}
    for package in ("rlviz", "small_models", "tests"):
        for file in sorted((ROOT / package).rglob("*")):
            if file.suffix in LANGUAGES:
                files.setdefault("/".join(file.relative_to(ROOT).parts[:2]), []).append(file)
    return files


@pytest.mark.parametrize("room", rooms())
def test_no_name_is_a_word_of_the_list(room):
    named = {
        file.relative_to(ROOT).as_posix(): sorted(
            set(filter(is_banned, LANGUAGES[file.suffix](file.read_text(encoding="utf-8"))))
        )
        for file in rooms()[room]
    }
    assert {file: names for file, names in named.items() if names and names != FIELDS.get(file)} == {}


PYTHON = """def f(_told): pass
class given: pass
for of_x in y: pass
self.kept = 1
import x as own
[each for each in x]"""
JAVASCRIPT = """const {a, b: told} = c
let ofRow = 1
f((given, x) => x)
xs.map(each => each)
function own(a) {}
function f(a, made) {}
for (const said of xs) {}
  some(x, y) {
  draw(x, rest) {
  this.asked = 1
let [a, there] = c"""


@pytest.mark.parametrize(("language", "lines"), [(".py", PYTHON), (".js", JAVASCRIPT)])
def test_such_a_name_would_be_seen(language, lines):
    for line in lines.splitlines():
        assert any(map(is_banned, LANGUAGES[language](line))), line


def test_what_is_only_read_is_no_name_of_ours():
    assert not any(map(is_banned, python_names("x.told(own=each)")))
    assert not any(map(is_banned, javascript_names("if (x.each(rest)) { y = told; } // const own\nxs.some((x) => x)")))
