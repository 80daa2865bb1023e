"""Imports run one way, so that a picture cannot come to depend on a widget, nor a small model on rlviz."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# they import nothing of ours but each other; every part may import them
LEAVES = {"rlviz.markup", "rlviz.ranges", "small_models.checks", "small_models.files", "small_models.host"}
# part → what it may import of this project beside the leaves and itself; each part only what stands above it
MAY_IMPORT = """
small_models:
names:
types:
settings: names
parallel:
imports:
page:
pieces: types
algorithms: names types pieces
tabular: types pieces algorithms small_models
training: names types settings pieces algorithms small_models
study: names types settings parallel pieces algorithms tabular training small_models
pictures: page names types pieces algorithms tabular training study
runs: page names types settings pieces algorithms training study pictures small_models
interop: runs settings types pieces algorithms training small_models
lessons: tabular types pieces algorithms training pictures runs interop small_models
site: algorithms page pictures runs study training
cli: page lessons imports interop names types settings parallel pieces algorithms training pictures runs study site small_models
__main__: cli
"""


def whole(part: str) -> str:
    """Return a part's name as it is imported."""
    return part if part == "small_models" else f"rlviz.{part}"


ALLOWED = {
    whole(part): {whole(name) for name in above.split()}
    for part, _, above in (line.partition(":") for line in MAY_IMPORT.strip().splitlines())
}


def part_of(module: str) -> str:
    return (
        module
        if module in ("rlviz", "small_models", *LEAVES)
        else ".".join(module.split(".")[: 2 if module.startswith("rlviz") else 1])
    )


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module or "")
    return found


FILES = [file for package in ("rlviz", "small_models") for file in sorted((ROOT / package).rglob("*.py"))]


def test_the_table_has_no_circle():
    order = list(TopologicalSorter(ALLOWED).static_order())
    assert set(order) == set(ALLOWED)


def test_imports_run_one_way():
    for file in FILES:
        part = part_of(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        if part == "rlviz":  # the package's own list of names to re-export
            continue
        ours = {part_of(name) for name in imports_of(file) if name.split(".")[0] in ("rlviz", "small_models")}
        assert ours - {part, "rlviz"} <= (LEAVES if part in LEAVES else ALLOWED[part] | LEAVES), file


def test_no_circle_within_training():
    files = (ROOT / "rlviz" / "training").glob("*.py")
    needs = {f"rlviz.training.{file.stem}": imports_of(file) for file in files if file.stem != "__init__"}
    order = list(TopologicalSorter(needs).static_order())  # raises CycleError
    assert set(needs) < set(order)


PICTURES = [file for file in FILES if "pictures" in file.parts]


def names_from(tree: ast.Module, *packages: str) -> set[str]:
    """Return the names that a module imports from these packages."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
        if (node.module or "" if isinstance(node, ast.ImportFrom) else alias.name).startswith(packages)
    }


def test_pictures_leave_pyplot_and_its_global_state_alone():
    for file in PICTURES:
        assert not names_from(tree_of(file), "matplotlib.pyplot"), file


def test_a_page_s_room_knows_torch_where_curves_are_traced_alone():
    for file in (ROOT / "rlviz/page").glob("*.py"):
        tree = tree_of(file)
        assert bool(names_from(tree, "torch")) == (file.name == "tracing.py"), file.name


def test_html_is_made_in_one_place():
    """Where every text is escaped; SVG is made in svg.py, and a terminal has none.

    What stands in a file of ours as a whole, as a style sheet, is marked.
    """
    for file in (f for f in FILES if f.name not in ("markup.py", "svg.py") and f.parent.name != "cli"):
        for node in ast.walk(tree_of(file)):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            texts = [part.value for part in parts if isinstance(part, ast.Constant)]
            found = [text for text in texts if re.search(r"</?[a-z]+[ >]|^>|<$|</$", str(text))]
            widget = isinstance(node, ast.Call) and ast.unparse(node.func) in ("widgets.HTML", "widgets.HTMLMath")
            assert not found and not widget, (file, ast.unparse(node))


def branches_on_a_name(tree: ast.Module) -> list[str]:
    """Return the comparisons of some `.name` with a text, and the matches on one."""
    found = []
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        inside = [
            leaf
            for side in sides
            for leaf in (side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side])
        ]
        attributes = [ast.unparse(side) for side in inside if isinstance(side, ast.Attribute) and side.attr == "name"]
        named = set(attributes) - {"os.name", "field.name"}  # an operating system, a dataclass's field
        texts = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in inside)
        matched = isinstance(node, ast.Match) and ast.unparse(node.subject).endswith(".name")
        if (named and texts) or matched:
            found.append(ast.unparse(node))
    return found


def test_no_branch_on_an_algorithm_s_name():
    assert {file: found for file in FILES if (found := branches_on_a_name(tree_of(file)))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "self.name == 'DAPO'",
        "'x' == a.name",
        "algorithm.name in ('GRPO', 'DAPO')",
        "match a.name:\n    case 'DAPO': pass",
    ],
)
def test_such_a_branch_would_be_found(code):
    assert branches_on_a_name(ast.parse(code))


def test_every_name_that_the_package_offers_is_there():
    import rlviz

    for name in rlviz.__all__:
        assert getattr(rlviz, name) is not None
    with pytest.raises(AttributeError, match=r"attribute .*nothing"):
        rlviz.nothing  # noqa: B018
