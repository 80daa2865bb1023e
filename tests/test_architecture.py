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
page:
pieces: types
algorithms: names types pieces
tabular: types pieces algorithms small_models
training: names types settings pieces algorithms small_models
study: page names types settings parallel pieces algorithms tabular training small_models
pictures: page names types pieces algorithms tabular training study
runs: page names types settings pieces algorithms training study pictures small_models
interop: runs settings types pieces algorithms training small_models
lessons: tabular types pieces algorithms training pictures runs interop small_models
site: algorithms page pictures runs study training lessons
cli: page lessons interop names types settings parallel pieces algorithms training pictures runs study site small_models
__main__: cli
"""


ALLOWED = {
    part: set(above.split()) for part, _, above in (line.partition(":") for line in MAY_IMPORT.strip().splitlines())
}


def part_of(module: str) -> str:
    """Return a leaf by its whole name, else the part of rlviz that a module belongs to, or its package."""
    package, *names = module.split(".")
    return module if module in LEAVES else names[0] if package == "rlviz" and names else package


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports_of(file: Path) -> set[str]:
    modules = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            modules.add(node.module or "")
    return modules


FILES = [file for package in ("rlviz", "small_models") for file in sorted((ROOT / package).rglob("*.py"))]


def test_imports_run_one_way():
    assert set(TopologicalSorter(ALLOWED).static_order()) == set(ALLOWED)  # raises CycleError
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


def test_pictures_leave_pyplot_alone_and_a_page_knows_torch_where_curves_are_traced_alone():
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert file.parent.name != "pictures" or "pyplot" not in text.replace("without pyplot", ""), file
        assert file.parent.name != "page" or ("import torch" in text) == (file.name == "tracing.py"), file


def test_html_is_made_in_one_place():
    """Where every text is escaped; SVG is made in svg.py, and a terminal has none.

    What stands in a file of ours as a whole, as a style sheet, is marked.
    """
    for file in (f for f in FILES if f.name not in ("markup.py", "svg.py") and f.parent.name != "cli"):
        for node in ast.walk(tree_of(file)):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            texts = [part.value for part in parts if isinstance(part, ast.Constant)]
            tags = [text for text in texts if re.search(r"</?[a-z]+[ >]|^>|<$|</$", str(text))]
            widget = isinstance(node, ast.Call) and ast.unparse(node.func) in ("widgets.HTML", "widgets.HTMLMath")
            assert not tags and not widget, (file, ast.unparse(node))


def name_branches(tree: ast.Module) -> list[str]:
    """Return the comparisons of some `.name` with a text, and the matches on one."""
    branches = []
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        leaves = [leaf for side in sides for leaf in getattr(side, "elts", [side])]
        names = {ast.unparse(leaf) for leaf in leaves if isinstance(leaf, ast.Attribute) and leaf.attr == "name"}
        names -= {"os.name", "field.name"}  # an operating system, a dataclass's field
        texts = any(isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) for leaf in leaves)
        is_matched = isinstance(node, ast.Match) and ast.unparse(node.subject).endswith(".name")
        if (names and texts) or is_matched:
            branches.append(ast.unparse(node))
    return branches


def test_no_branch_on_an_algorithm_s_name():
    assert {file: branches for file in FILES if (branches := name_branches(tree_of(file)))} == {}
    match = "match a.name:\n    case 'DAPO': pass"
    for code in ("self.name == 'DAPO'", "'x' == a.name", "algorithm.name in ('GRPO', 'DAPO')", match):
        assert name_branches(ast.parse(code)), code  # such a branch would be seen


def test_every_name_that_the_package_offers_is_there():
    import rlviz

    for name in rlviz.__all__:
        assert getattr(rlviz, name) is not None
    with pytest.raises(AttributeError, match=r"attribute .*nothing"):
        rlviz.nothing  # noqa: B018
