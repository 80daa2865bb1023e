"""Imports run one way, so that a picture cannot come to depend on a widget, nor a small model on rlviz."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAVES = {
    "rlviz.markup",
    "rlviz.ranges",
    "small_models.checks",
    "small_models.files",
    "small_models.host",
}  # they import nothing of ours; every part may import them
# part → what it may import of this project beside the leaves (itself always); each part only what stands above it
ALLOWED = {
    "small_models": set(),
    "rlviz.names": set(),
    "rlviz.types": set(),
    "rlviz.settings": {"rlviz.names"},
    "rlviz.parallel": set(),
    "rlviz.imports": set(),
    "rlviz.page": set(),
    "rlviz.pieces": {"rlviz.types"},
    "rlviz.algorithms": {"rlviz.names", "rlviz.types", "rlviz.pieces"},
    "rlviz.tabular": {"rlviz.types", "rlviz.pieces", "rlviz.algorithms", "small_models"},
    "rlviz.training": {
        "rlviz.names",
        "rlviz.types",
        "rlviz.settings",
        "rlviz.pieces",
        "rlviz.algorithms",
        "small_models",
    },
    "rlviz.study": {
        "rlviz.names",
        "rlviz.types",
        "rlviz.settings",
        "rlviz.parallel",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.tabular",
        "rlviz.training",
        "small_models",
    },
    "rlviz.pictures": {
        "rlviz.page",
        "rlviz.names",
        "rlviz.types",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.tabular",
        "rlviz.training",
        "rlviz.study",
    },
    "rlviz.runs": {
        "rlviz.page",
        "rlviz.names",
        "rlviz.types",
        "rlviz.settings",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.training",
        "rlviz.study",
        "rlviz.pictures",
        "small_models",
    },
    "rlviz.lessons": {
        "rlviz.tabular",
        "rlviz.types",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.training",
        "rlviz.pictures",
        "rlviz.runs",
        "rlviz.interop",
        "small_models",
    },
    "rlviz.site": {"rlviz.algorithms", "rlviz.page", "rlviz.pictures", "rlviz.runs", "rlviz.study", "rlviz.training"},
    "rlviz.interop": {
        "rlviz.runs",
        "rlviz.settings",
        "rlviz.types",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.training",
        "small_models",
    },
    "rlviz.cli": {
        "rlviz.page",
        "rlviz.lessons",
        "rlviz.imports",
        "rlviz.interop",
        "rlviz.names",
        "rlviz.types",
        "rlviz.settings",
        "rlviz.parallel",
        "rlviz.pieces",
        "rlviz.algorithms",
        "rlviz.training",
        "rlviz.pictures",
        "rlviz.runs",
        "rlviz.study",
        "rlviz.site",
        "small_models",
    },
    "rlviz.__main__": {"rlviz.cli"},
}


def part_of(module: str) -> str:
    return (
        module
        if module in ("rlviz", "small_models", *LEAVES)
        else ".".join(module.split(".")[: 2 if module.startswith("rlviz") else 1])
    )


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
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


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_run_one_way(file):
    part = part_of(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    if part == "rlviz":  # the package's own list of names to re-export
        return
    ours = {part_of(name) for name in imports_of(file) if name.split(".")[0] in ("rlviz", "small_models")}
    assert ours - {part, "rlviz"} <= (LEAVES if part in LEAVES else ALLOWED[part] | LEAVES)


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


def draws(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("plot_")


@pytest.mark.parametrize("file", PICTURES, ids=lambda file: file.name)
def test_what_draws_knows_only_its_curve(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert not names_from(tree, "matplotlib.pyplot")
    computing = names_from(tree, "torch", "rlviz.pieces", "rlviz.algorithms", "rlviz.tabular", "rlviz.training")
    for part in filter(draws, tree.body):
        used = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
        assert not used & computing, part.name


def test_the_functions_that_draw_are_found():
    found = [node.name for file in PICTURES for node in ast.parse(file.read_text(encoding="utf-8")).body if draws(node)]
    assert {"plot_clip", "plot_difficulty", "plot_importance", "plot_token_weights"} <= set(found)


def test_a_page_s_room_knows_torch_where_curves_are_traced_alone():
    for file in (ROOT / "rlviz/page").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert bool(names_from(tree, "torch")) == (file.name == "tracing.py"), file.name


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f.name not in ("markup.py", "svg.py") and f.parent.name != "cli"],
    ids=lambda f: str(f.relative_to(ROOT)),
)
def test_html_is_made_in_one_place(file):
    """Where every text is escaped; SVG is made in svg.py, and a terminal has none.

    What stands in a file of ours as a whole, as a style sheet, is marked.
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        texts = [part.value for part in parts if isinstance(part, ast.Constant)]
        assert not any(re.search(r"</?[a-z]+[ >]|^>|<$|</$", str(text)) for text in texts), ast.unparse(node)
        assert not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("widgets.HTML", "widgets.HTMLMath"))


def branches_on_a_name(source: str) -> list[str]:
    """Return the comparisons of some `.name` with a text, and the matches on one."""
    found = []
    for node in ast.walk(ast.parse(source)):
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


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_branch_on_an_algorithm_s_name(file):
    assert branches_on_a_name(file.read_text(encoding="utf-8")) == []


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
    assert branches_on_a_name(code)


def test_help_and_the_package_itself_do_not_import_torch():
    script = (
        "import sys, rlviz; from rlviz.cli import app; from typer.testing import CliRunner; "
        "result = CliRunner().invoke(app, ['--help']); assert 'train' in result.output; "
        "result = CliRunner().invoke(app, ['train', '--help']); assert '--eps-low' in result.output; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'matplotlib', 'joblib')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0


def test_every_name_that_the_package_offers_is_there():
    import rlviz

    for name in rlviz.__all__:
        assert getattr(rlviz, name) is not None
    with pytest.raises(AttributeError, match=r"attribute .*nothing"):
        rlviz.nothing  # noqa: B018
