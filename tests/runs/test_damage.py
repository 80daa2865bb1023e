"""Run folders that are damaged, cut off or somebody else's: one table of damages × readers.

A reader gives what is right, or refuses in one sentence that names file, line and field; nothing is written, and nothing is run.
"""

import json
import math
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlviz import GRPO, RunFolder, TrainSettings, diagnose, train
from rlviz.markup import Markup, element, joined
from rlviz.pictures.base import plain
from rlviz.runs.curves import draw_figure
from rlviz.runs.inspector import RunInspector, inspect_run, snapshot_reader
from rlviz.runs.panel import Html
from rlviz.study.comparison import read_comparison
from rlviz.training import resume
from small_models.pairs import read_pairs
from small_models.policies import load_policy
from small_models.scorers import RewardModel
from tests.training.runs import PAIRS

pytestmark = pytest.mark.usefixtures("axes_stay")

LONG = "x" * 100_000
PYTHON = "'<'", "NoneType", "object is not", "__init__", "has no attribute", "unexpected keyword", "`"
CALLS = {
    "resume": lambda run: list(resume(run, steps=4, device="cpu")),
    "inspect": inspect_run,
    "diagnose": lambda run: json.dumps(diagnose(run).as_json(), allow_nan=False),
    "compare": lambda run: read_comparison([run]).table(),
    "comparison": lambda run: read_comparison([run.parent]),
    "records": lambda run: (RunFolder.open(run).records(), RunFolder.open(run).missing_steps()),
    "frames": lambda run: (RunFolder.open(run).metrics, RunFolder.open(run).samples),
    "pairs": lambda run: read_pairs(run / "pairs.jsonl"),
    "reward": lambda run: RewardModel.load(run / "reward_model", device="cpu"),
    "reference": lambda run: load_policy(run / "reference", device="cpu"),
    "checkpoint": lambda run: load_policy(run / "checkpoint", device="cpu"),
}
READERS = {  # what reads which file
    "config.json": "resume inspect diagnose compare", "metrics.jsonl": "resume inspect diagnose compare records frames",
    "samples.jsonl": "resume inspect records frames", "summary.json": "compare", "../comparison.json": "comparison",
    "pairs.jsonl": "resume pairs", "reward_model/config.json": "resume reward", "reference/config.json": "resume reference",
    "checkpoint/config.json": "resume checkpoint", "checkpoint/tokenizer_config.json": "resume checkpoint",
    "checkpoint/training.json": "resume",
}  # fmt: skip
RESPONSE, TOKEN = "groups.0.responses.0.", "groups.0.responses.0.tokens.0."
VALUES = {  # file, line, readers where not all → field → what cannot stand there; ... takes it away
    ("config.json", 0): {
        "": [None, []], "task": [5, ..., LONG, "a\x1b]0;b"], "policy": [None], "algorithm": [None], "algorithm.name": [5, LONG],
        "algorithm.piece": [...], "settings": [[]], "settings.steps": ["40", None, 10**12], "settings.top_k": [1.5],
        "settings.seed": [True, 2**63], "settings.lr": ["fast", -1, 1e300], "settings.critic": ["both"],
        "settings.another": [1], "path": ["gpu"],
    },
    ("config.json", 0, "resume"): {  # the others do without pieces of one's own
        "algorithm.bounds": [
            {"piece": "os:system"}, {"piece": "rlviz.pieces.gae:torch"}, {"piece": "rlviz.pieces.bounds:dataclass"},
            {"piece": "rlviz.pieces.nothing:f"}, {"piece": f"rlviz.pieces.kl:{LONG}"}, {"piece": ["rlviz.pieces.kl:k1"]},
            {"piece": "rlviz.pieces.bounds:FixedBounds", "eps": 1}, {"piece": "rlviz.pieces.bounds:FixedBounds", "eps_low": 2.0},
            3, ...,
        ],
    },
    ("metrics.jsonl", 2): {
        "": [None, 3], "step": ["x", 1, 10**10, ...], "entropy": [...], "reward": [LONG, 1e200], "rounds": [1.5, None],
        "tokens_sampled": [10**30], "beta": ["x"], "seconds": [True],
    },
    ("samples.jsonl", 2): {
        "": [None], "groups": [..., None], "groups.0.responses": [[]], "groups.0.prompt": [7],
        RESPONSE + "length": ["<img>"], TOKEN + "push": ["x"], TOKEN + "clipped": [1], TOKEN + "old_prob": [1.5, -1],
        TOKEN + "ratio": [-1], TOKEN + "token": [...],
    },
    ("summary.json", 0): {"": [None], "accuracy_before": [..., "x"]},
    ("../comparison.json", 0): {"": [[]], "contenders": [..., None, ["GRPO"]]},
    ("pairs.jsonl", 1): {"": [None], "prompt": [...], "chosen": [{}]},
    ("reward_model/config.json", 0): {"num_hidden_layers": [10**6], "vocab_size": [10**12]},
    ("reference/config.json", 0): {"num_hidden_layers": [3, 10**6], "text_config": [{"num_hidden_layers": 10**6}]},
    ("checkpoint/config.json", 0): {"num_hidden_layers": [1, 3], "pad_token_id": [1e30]},
    ("checkpoint/tokenizer_config.json", 0): {"unk_token": ["\ud800"]},
    ("checkpoint/training.json", 0): {
        "step": [..., "x"], "train_seconds": [None], "beta": [[]], "reward_pairs": [[{"chosen": "a"}]], "waiting": ["x"],
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _quick_pages(few_rows):
    """A page has its picture as PNG too, which takes longest and holds no text of a run."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RunInspector, "png", b"")
        yield


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory):
    """A run of three steps with all that a folder may hold, beside which a comparison.json stands."""
    out = tmp_path_factory.mktemp("runs") / "grpo-seed0"
    few = {"num_prompts": 2, "group_size": 2, "evaluate_every": 3, "details_every": 1, "refresh_reward_every": 2}
    judge = RewardModel.from_policy(load_policy("chain", device="cpu"))
    more = {"reward_model": judge, "pairs": PAIRS, "reference": "chain"}
    list(train("chain", GRPO, TrainSettings(steps=3, **few), **more, out=out))
    (out / "summary.json").write_text('{"accuracy_before": 0.5}')
    (out.parent / "comparison.json").write_text('{"contenders": {}}')
    return out


@pytest.fixture
def run(undamaged, tmp_path):
    yield shutil.copytree(undamaged.parent, tmp_path / "runs") / undamaged.name
    shutil.rmtree(tmp_path / "runs")  # three megabytes


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def sentence(error):
    """Return the text of an error; fails where no user could act on it."""
    text = str(error)
    assert text and "\n" not in text and len(text) < 700 and not any(word in text for word in PYTHON), text
    return text


def refused(run, readers, *words):
    """All readers refuse, with these words, and nothing is written."""
    before = files_in(run.parent)
    for reader in readers.split():
        with pytest.raises(ValueError, match=r".") as caught:
            CALLS[reader](run)
        text = sentence(caught.value)
        assert all(word in text for word in words), f"{reader}: {text}"
    assert files_in(run.parent) == before


def put(file, line, field, new):
    """Put `new` in the place of a field of a JSON file, or of a line (from 1); "" is all of it."""
    lines = file.read_text().split("\n") if line else [file.read_text()]
    value = inner = json.loads(lines[line - 1 if line else 0])
    *above, last = [int(name) if name.isdigit() else name for name in field.split(".")]
    for name in above:
        inner = inner[name]
    if new is ...:
        del inner[last]
    elif field:
        inner[last] = new
    lines[line - 1 if line else 0] = json.dumps(value if field else new)
    file.write_text("\n".join(lines))


VALUE_ROWS = [(where, field, new) for where, rows in VALUES.items() for field, news in rows.items() for new in news]


@pytest.mark.parametrize(("where", "field", "new"), VALUE_ROWS, ids=lambda value: str(value)[:30])
def test_a_value_that_cannot_be(run, where, field, new):
    name, line, *readers = where
    put(run / name, line, field, new)
    large = isinstance(new, int | float) and abs(new) >= 2**63
    words = [
        name.rpartition("/")[2],
        f"line {line}" if line else "",
        "too large" if large else field.rpartition(".")[2],
    ]
    if "/" in name and not name.endswith(("training.json", "comparison.json")):  # transformers does not name its fields
        words = [name.split("/")[0]]
    refused(run, *(readers or [READERS[name]]), *words)


KINDS = {  # something else in place of a file of text
    "folder": lambda file: file.mkdir(),
    "device": lambda file: file.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "utf-16": lambda file: file.write_bytes('{"a": 1}\n{"b": 1}\n'.encode("utf-16")),
    "empty": lambda file: file.write_bytes(b""),
    "too large": lambda file: file.write_text('{"accuracy_before": 1e999}\n{}'),
    "too deep": lambda file: file.write_text("[" * 100_000),
}


@pytest.mark.skipif(os.name != "posix", reason="makes pipes")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_something_else_in_place_of_a_file(run, name, kind):
    (run / name).unlink()
    KINDS[kind](run / name)
    if name.endswith("metrics.jsonl") and kind in ("empty", "too deep"):  # as the file of a run that has just begun
        assert len(RunFolder.open(run).metrics) == 0
    elif not (name.endswith(".jsonl") and kind in ("empty", "too deep")):
        words = [] if "/" in name and not name.startswith("..") else [name.rpartition("/")[2]]
        refused(run, READERS[name], *words)


def tensors(name, change):
    """Return what changes the tensors of a file: change(name → tensor) gives them anew."""

    def act(run):
        save_file(change(load_file(run / name)), run / name, metadata={"format": "pt"})

    return act


def without(part):
    return lambda weights: {name: tensor for name, tensor in weights.items() if part not in name}


def no_numbers(weights):
    return {name: tensor * math.nan for name, tensor in weights.items()}


def one_layer(run):
    """A policy that is whole, but another."""
    tensors(MODEL, without(".layers.1."))(run)
    put(run / "checkpoint" / "config.json", 0, "num_hidden_layers", 1)


HEAD = "lm_head.weight"
MODEL, MOMENTS, START = (
    f"{name}.safetensors" for name in ("checkpoint/model", "checkpoint/training", "reference/model")
)
CHECKPOINTS = {  # what happened to the checkpoint → the damage, words of the sentence
    "gone": (lambda run: shutil.rmtree(run / "checkpoint"), "lacks checkpoint/"),
    "cut": (lambda run: (run / MODEL).write_bytes((run / MODEL).read_bytes()[:1000]), "cannot be read"),
    "no counters": (lambda run: (run / "checkpoint/training.json").unlink(), "is damaged"),
    "empty moments": (lambda run: (run / MOMENTS).write_bytes(b""), "is damaged"),
    "no head": (tensors(MODEL, without("lm_head")), "lacks the weights lm_head.weight"),
    "one weight more": (tensors(MODEL, lambda w: w | {"v.weight": torch.ones(1)}), "no place for its weights v.weight"),
    "whole numbers": (tensors(MODEL, lambda w: w | {HEAD: w[HEAD].char()}), "whole numbers stand for its weights"),
    "not finite": (tensors(MODEL, no_numbers), "not finite"),
    "a start not finite": (tensors(START, no_numbers), "not finite"),
    "another policy": (one_layer, "other weights than reference/"),
    "no start": (lambda run: shutil.rmtree(run / "reference"), "lacks reference/"),
    "no reference": (lambda run: shutil.rmtree(run / "given_reference"), "lacks given_reference/"),
    "no such moment": (tensors(MOMENTS, lambda m: m | {"policy.99.exp_avg": torch.ones(1)}), "no place for policy.99"),
    "moments of one left out": (tensors(MOMENTS, without("policy.3.")), "tensors; it holds"),
}  # fmt: skip


@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_a_checkpoint_that_is_not_whole(run, damage):
    act, words = CHECKPOINTS[damage]
    act(run)
    refused(run, "resume", words, "train again")


@pytest.mark.parametrize("name", ["metrics", "samples"])
def test_only_the_last_line_may_be_cut_short(run, name):
    file, folder = run / f"{name}.jsonl", RunFolder.open(run)
    first, second, third, _ = lines = file.read_bytes().split(b"\n")
    for middle in (second[:50], b"", b"\xff"):
        file.write_bytes(b"\n".join([first, middle, third, b""]))
        refused(run, READERS[file.name], f"{file.name}, line 2 is not ")
    for tail, steps in ((third[:-30], [1, 2]), (third + b"\n\0\0\0\0", [1, 2, 3]), (third, [1, 2, 3])):
        file.write_bytes(b"\n".join([first, second, tail]))
        assert [record.step for record in folder.records()] == steps and not folder.missing_steps()
    file.write_bytes(b"\n".join([first, third, b""]))
    assert folder.missing_steps() == [2] and "GRPO lacks step 2" in inspect_run(run).caption
    file.write_bytes(b"\n".join(lines[:3]) + b'\n{"step": 4, "rew')
    list(resume(run, steps=4, device="cpu"))
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3, 4]


def test_numbers_that_were_not_finite_are_read_back_as_not_a_number(run):
    put(run / "metrics.jsonl", 3, "loss", None)
    for name in ("old_prob", "ratio", "lower", "advantage", "objective", "weight", "push"):
        put(run / "samples.jsonl", 3, TOKEN + name, None)
    last = RunFolder.open(run).records()[-1]
    assert math.isnan(last.loss) and math.isnan(last.groups[0].responses[0].tokens[0].push) and last.value_loss is None
    inspector = inspect_run(run)
    inspector.go(step=3, group=1, response=1, token=1)
    assert "The run had diverged" in json.dumps(inspector.data)


MARK = "<img src=x onerror=\"document.title='PWNED'\"><script>document.title='PWNED'</script>$$\\href{javascript:1}$$"
RAW = "<img src=x", "<script>document"


def places(value, path=""):
    """Return the fields of JSON, of a list those of its first element."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [path, *(field for name, part in inner for field in places(part, f"{path}.{name}".lstrip(".")))]


def test_no_field_puts_markup_or_latex_into_the_page(undamaged, tmp_path):
    """A field refuses it, or a page shows it as text; so does a folder's name. A page has it in many fields at once."""
    first = {
        name: json.loads((undamaged / name).read_text().split("\n")[0]) for name in ("metrics.jsonl", "samples.jsonl")
    }
    first["config.json"] = json.loads((undamaged / "config.json").read_text())
    run = shutil.copytree(undamaged, tmp_path / "<img src=x>$x$", ignore=shutil.ignore_patterns("*.safetensors"))
    texts = {name: (run / name).read_text() for name in first}
    pages, refused_fields = [], set()  # a page: the fields that have it, none of which is a part of another
    for name, field in [(name, field) for name, value in first.items() for field in places(value)]:
        put(run / name, int(name != "config.json"), field, MARK)
        try:
            snapshot_reader(run, None)()
        except ValueError as error:
            refused_fields.add(sentence(error) and field)
        else:
            parents = {(name, field.rsplit(".", n)[0]) for n in range(1, field.count(".") + 1)} | {(name, "")}
            page = next((page for page in pages if not parents & page), None)
            if page is None:
                pages.append(page := set())
            page.add((name, field))
        (run / name).write_text(texts[name])
    for page in pages:
        for name, field in page:
            put(run / name, int(name != "config.json"), field, MARK)
        html = inspect_run(undamaged, run).html()
        assert not any(raw in html for raw in RAW), page
        for name, text in texts.items():
            (run / name).write_text(text)
    names = {"groups.0.prompt", "groups.0.gold", RESPONSE + "text", TOKEN + "token", "task", "policy", "algorithm.name"}
    assert {field for page in pages for _, field in page} >= names
    assert refused_fields >= {TOKEN + "push", RESPONSE + "length", "settings.lr", "reward"} and len(refused_fields) > 60


def test_every_text_and_attribute_is_escaped():
    assert element("b", MARK) == joined(Markup("<b>"), MARK, Markup("</b>"))
    assert RAW[0] not in element("b", MARK, title=MARK)
    assert element("p", "a & b", aria_live="polite", class_="x") == '<p aria-live="polite" class="x">a &amp; b</p>'
    with pytest.raises(Exception, match=r"must be made by rlviz\.markup"):
        Html().value = f"<b>{MARK}</b>"


def test_matplotlib_typesets_no_name(undamaged, run):
    put(run / "config.json", 0, "algorithm.name", MARK)
    inspector = inspect_run(undamaged, run)
    figure = draw_figure(inspector._curves, inspector.picture["data"], step=1)
    (name,) = {text.get_text() for ax in figure.axes for text in ax.texts if text.get_text().startswith("2 (")}
    assert name == plain(name.replace("\\$", "$")) and r"\$" in name
