"""A run folder from somebody else: whatever stands in its fields, no markup and no LaTeX reaches the page."""

import importlib
import json
import pkgutil
import re
import shutil

import pytest

import rlviz.pieces
from rlviz import GRPO, PPO, TrainSettings, train
from rlviz.algorithms.describe import from_json
from rlviz.markup import Markup, element, joined
from rlviz.pictures.base import plain
from rlviz.runs.curves import on_paper
from rlviz.runs.inspector import RunInspector, inspect_run
from rlviz.runs.panel import Html
from rlviz.training import default_settings, find_task
from small_models.policies import load_policy

pytestmark = pytest.mark.usefixtures("axes_stay", "no_png", "few_rows")


@pytest.fixture(scope="module")
def no_png():
    """A page has its picture as PNG too, which takes longest and holds no markup."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunInspector, "png", b"")
        yield


MARK = (
    "<img src=x onerror=\"document.title='PWNED'\"><script>document.title='PWNED'</script>$$\\href{javascript:1}{x}$$"
)
TEXTS = {("group", "prompt"), ("group", "gold"), ("response", "text"), ("token", "token"), ("config", "rlviz")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("hostile") / "run"
    settings = TrainSettings(steps=1, num_prompts=2, group_size=2, evaluate_every=0, details_every=1)
    for _ in train(load_policy("chain", device="cpu"), find_task("chain"), GRPO, settings, out=out):
        pass
    return out


def fields(whole):
    """Return each kind of record with its fields, as they stand on disk."""
    config = json.loads((whole / "config.json").read_text())
    groups = json.loads((whole / "samples.jsonl").read_text().splitlines()[0])["groups"]
    responses = [response for group in groups for response in group["responses"]]
    found = {
        "metric": json.loads((whole / "metrics.jsonl").read_text().splitlines()[0]),
        "group": groups[0] if groups else {},
        "response": responses[0] if responses else {},
        "token": responses[0]["tokens"][0] if responses else {},
        "config": config,
        "algorithm": config["algorithm"],
        "setting": config["settings"],
    }
    return [(kind, name) for kind, record in found.items() for name in record]


def marked(run, kind, name):
    """Write markup into one field, wherever it stands."""
    if kind in ("config", "algorithm", "setting"):
        config = json.loads((run / "config.json").read_text())
        {"config": config, "algorithm": config["algorithm"], "setting": config["settings"]}[kind][name] = MARK
        (run / "config.json").write_text(json.dumps(config))
        return
    file = run / ("metrics.jsonl" if kind == "metric" else "samples.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        groups = row.get("groups", ())
        responses = [response for group in groups for response in group["responses"]]
        tokens = [token for response in responses for token in response["tokens"]]
        for record in {"metric": [row], "group": groups, "response": responses, "token": tokens}[kind]:
            record[name] = MARK
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def written(inspector):
    """Return all that is markup of an inspector: the page without a kernel, whose data is packed."""
    return inspector.html()


def test_no_field_puts_markup_or_latex_into_the_page(whole, tmp_path):
    shown, refused = set(), {}
    for kind, name in fields(whole):
        run = shutil.copytree(whole, tmp_path / f"{kind}-{name}")
        marked(run, kind, name)
        try:
            inspector = inspect_run(run)
        except ValueError as error:
            refused[kind, name] = str(error)
            continue
        page = written(inspector)
        assert not any(start in page for start in ("<img src=x", "<script>document")), (kind, name)
        if (kind, name) in TEXTS and kind != "config":
            assert MARK.replace(" ", "␣")[:20] in json.dumps(inspector.data, ensure_ascii=False).replace(
                "\\", ""
            ).replace(" ", "␣")
        shown.add((kind, name))
    assert shown >= TEXTS
    assert {("response", "length"), ("token", "push"), ("setting", "lr"), ("metric", "reward")} <= set(refused)
    assert max(map(len, refused.values())) < 700
    assert len(refused) > 60 and not {kind for kind, _ in shown} & {"metric", "setting"}


def test_what_a_run_of_another_kind_has_beside_that(whole, tmp_path):
    """A critic's values, and a reference that was given: whatever such a run writes and the first does not."""
    out = tmp_path / "run"
    few = default_settings(PPO, steps=1, num_prompts=2, group_size=2, evaluate_every=0, details_every=1)
    for _ in train(load_policy("chain", device="cpu"), find_task("chain"), PPO, few, reference="chain", out=out):
        pass
    new = set(fields(out)) - set(fields(whole))
    assert {("config", "reference"), ("algorithm", "value_loss")} <= new
    for kind, name in sorted(new):
        run = shutil.copytree(out, tmp_path / f"{kind}-{name}")
        marked(run, kind, name)
        page = written(inspect_run(run))
        assert not any(start in page for start in ("<img src=x", "<script>document")), (kind, name)


def test_config_names_nothing_but_pieces():
    """Whatever else a module of the pieces has by name, such as torch or a helper that it imports, is neither called nor kept."""
    others = set()
    for found in pkgutil.iter_modules(rlviz.pieces.__path__, "rlviz.pieces."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if getattr(value, "__module__", None) != found.name:
                others.add(f"{found.name}:{name}")
    assert len(others) > 100 and "rlviz.pieces.bounds:torch" in others
    for named in others:
        with pytest.raises(ValueError, match=r"is not a piece of rlviz; from Python|has no piece"):
            from_json({"piece": named, "code": MARK})


def test_two_runs_beside_each_other(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / f"run{MARK.split('>', maxsplit=1)[0].replace('/', '')}$x$")
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["name"] = config["task"] = MARK
    (run / "config.json").write_text(json.dumps(config))
    inspector = inspect_run(whole, run)
    found = written(inspector)
    assert "&lt;img src=x" in found and "<img src=x" not in found and "<script>document" not in found
    assert inspector.run["names"][1] == f"2 ({MARK})"
    figure = on_paper(inspector._curves, inspector.picture["data"], step=1)
    (name,) = {text.get_text() for ax in figure.axes for text in ax.texts if text.get_text().startswith("2 (")}
    assert re.search(r"(?<!\\)\$", name) is None and r"\$" in name  # matplotlib draws the signs and typesets nothing


def test_every_text_and_attribute_is_escaped():
    assert element("b", MARK) == joined(Markup("<b>"), MARK, Markup("</b>"))
    assert "<img" not in element("b", MARK, title=MARK) and element("p", 3) == "<p>3</p>"
    assert element("img", alt='"><script>') == '<img alt="&quot;&gt;&lt;script&gt;">'
    assert element("div", element("i", "a & b"), aria_live="polite", class_="x") == (
        '<div aria-live="polite" class="x"><i>a &amp; b</i></div>'
    )


def test_an_html_widget_takes_only_what_was_escaped():
    widget = Html()
    with pytest.raises(Exception, match=r"must be made by rlviz\.markup"):
        widget.value = f"<b>{MARK}</b>"
    widget.value = element("b", "x")
    assert widget.value == '<div class="mathjax_ignore tex2jax_ignore"><b>x</b></div>'
    widget.value = Markup()
    assert widget.value == ""


def test_dollar_signs_of_a_name_are_drawn():
    assert plain("a $x$ b") == r"a \$x\$ b"
