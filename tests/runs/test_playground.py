"""The playground as a value: what an address may set, what the worker is told, the call in Python, the rows that are shown."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape
from urllib.parse import urlencode

import pytest
import torch
from typer.testing import CliRunner

import rlviz.algorithms
from rlviz import DAPO, GRPO, TrainSettings, train, train_in_page
from rlviz.algorithms import ALGORITHMS, RELATIVES, GroupPolicyGradient, numbers
from rlviz.cli import app
from rlviz.page.script import module
from rlviz.runs import in_page
from rlviz.runs.playground import (
    RECORDED,
    SLIDERS,
    STORY,
    TAB_FILES,
    controls,
    page_payload,
    standalone_page,
)
from rlviz.runs.recordings import RECORDINGS
from rlviz.runs.tries import SENTENCE_TRIES, TRIES
from rlviz.types import Batch
from small_models.tasks import TASKS, WordReward
from small_models.tasks.sentences import HAPPY

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is missing: no page can be asked")
GROUPS = [one for one in (*ALGORITHMS, *RELATIVES) if isinstance(one, GroupPolicyGradient)]
GROUPS = [one for one in GROUPS if not one.can.from_teacher]  # which learn from a teacher, which the page has not
FIRST = {name: control["value"] for name, control in controls().items()}
STORY_FIRST = {name: control["value"] for name, control in controls(task=STORY).items()}


OFFERS = "export { askedBy, linesOf, messageOf, rowsShown, settingsOf, wished };"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A function: calls (name, arguments…) of playground.js → what they return."""
    folder = tmp_path_factory.mktemp("playground")
    (folder / "playground.mjs").write_text(module(*TAB_FILES, offers=OFFERS), encoding="utf-8")
    runner = __file__.replace("test_playground.py", "playground.mjs")

    def run(*calls, task="chain"):
        message = {"script": str(folder / "playground.mjs"), "given": page_payload(task=task), "calls": calls}
        (folder / "calls.json").write_text(json.dumps(message), encoding="utf-8")
        done = subprocess.run(
            ["node", runner, folder / "calls.json"], capture_output=True, text=True, check=False, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return run


WISHES = {  # task → an address → what it sets
    "chain": {
        "": {},
        "#play.eps_high=0.4&play.algorithm=DAPO": {"eps_high": 0.4, "algorithm": "DAPO"},
        "#play.eps_high=1e9&play.eps_low=-3": {"eps_high": 5, "eps_low": 1e-4},
        "#play.lr=1e999&play.beta=NaN&play.group_size=x": {},
        "#play.group_size=9&play.updates_per_rollout=1000": {"group_size": 8, "updates_per_rollout": 16},
        "#play.seed=3.6": {"seed": 4},
        "#play.algorithm=PPO": {},  # it needs a critic
        "#play.algorithm=__proto__&play.task=%3Cimg%3E&play.reward=constructor": {},
        "#play.toString=1&play.eps=1&algorithm=DAPO": {},
        "#clip.algorithm=DAPO&play.eps_low=": {},
    },
    STORY: {
        "#play.liked=dog+cat&play.punished=cat+sad&play.short=true": {
            "liked": "dog cat",
            "punished": "sad",
            "short": True,
        },
        "#play.liked=&play.only_sentences=TRUE&play.enough=99": {"liked": "", "enough": 3},
        "#play.punished=happy,sad": {"punished": "sad"},  # happy is liked
        "#play.liked=%3Cscript%3E+constructor+__proto__": {"liked": ""},
        f"#play.liked={'dog+' * 400}x{'y' * 9000}": {"liked": "dog"},
        "#task=sentences&play.short=1": {"task": "sentences"},
    },
}


@pytest.mark.parametrize("task", WISHES)
def test_an_address_sets_what_there_is_within_its_range(task, ask):
    """Of words those that the task has, each once."""
    values = ask(*(["wished", controls(task=task), address] for address in WISHES[task]), task=task)
    in_words = lambda wish: {name: " ".join(v) if isinstance(v, list) else v for name, v in wish.items()}  # noqa: E731
    assert [in_words(one) for one in values] == list(WISHES[task].values())


def test_an_algorithm_brings_its_own_numbers_and_the_worker_is_told_of_those_with_a_slider(ask):
    settings, message = ask(
        ["settingsOf", "GIVEN", {"algorithm": "DCPO", "lr": 1e-3}],
        ["messageOf", "GIVEN", {**FIRST, **numbers(DAPO), "algorithm": "DAPO", "eps_high": 0.5, "reward": "mistake"}],
    )
    assert (settings["eps_low"], settings["eps_high"], settings["lr"], settings["task"]) == (0.16, 0.2, 1e-3, "chain")
    assert message["parameters"] == {"DAPO": {"eps_low": 0.2, "eps_high": 0.5}}
    assert message["mistake"] is True and message["beside"] is None and message["checkpoint"] == "chain"


def test_the_lines_in_python_train_what_the_page_trains(ask):
    chosen = {**FIRST, **numbers(DAPO), "algorithm": "DAPO", "eps_high": 0.5, "group_size": 4, "seed": 3}
    lines, rare = ask(
        ["linesOf", "GIVEN", chosen],
        ["linesOf", "GIVEN", {**chosen, "task": "chain-rare", "algorithm": "GRPO", **numbers(GRPO), "beta": 0.1}],
    )
    seen = {}
    exec(lines.partition("for record")[0], seen)  # the page's own text
    assert seen["settings"] == TrainSettings(num_prompts=32, group_size=4, seed=3)
    assert 'train("chain", DAPO.with_parameters(eps_high=0.5), settings)' in lines
    assert 'train("chain-rare", "chain", GRPO.with_parameters(beta=0.1), settings)' in rare
    algorithm = DAPO.with_parameters(eps_high=0.5)
    assert next(train("chain", algorithm, replace(seen["settings"], num_prompts=4))).step == 1


def test_every_algorithm_of_groups_can_be_chosen_by_a_name_that_python_has():
    options = {one["value"]: one for one in controls()["algorithm"]["options"]}
    assert [name for name, one in options.items() if "why" not in one] == [one.name for one in GROUPS]
    assert set(in_page.OFFERED) == {one.name for one in GROUPS}
    assert all(getattr(rlviz.algorithms, one["python"]).name == name for name, one in options.items())
    assert [options[name]["why"] for name in ("PPO", "DPO", "Distillation")] == ["a critic", "pairs", "a teacher"]


def test_a_recorded_run_stands_for_what_cannot_train_here_and_only_where_it_can_be_played(ask):
    with_runs = controls(recorded={"PPO": {"Lesson": "03.html"}, "DPO": {}})
    for name, one in RECORDED.items():
        recording = RECORDINGS[one[0]]
        assert (recording.algorithm.name, recording.task, recording.settings.seed) == (name, "chain", 0)
    addresses = [f"#play.algorithm={name}" for name in ("PPO", "DPO", "Distillation")]
    values = ask(*(["wished", options, address] for options in (with_runs, controls()) for address in addresses))
    assert values == [{"algorithm": "PPO"}, {"algorithm": "DPO"}, {}, {}, {}, {}]


def test_where_not_all_rows_can_be_shown_right_and_wrong_ones_are(ask):
    for rights, most, rows in (("101", 8, [0, 1, 2]), ("0" * 30 + "11", 4, [0, 1, 30, 31]), ("0" * 16, 3, [0, 1, 2])):
        assert ask(["rowsShown", [{"isRight": one == "1"} for one in rights], most]) == [rows]


@pytest.mark.parametrize("name", in_page.OFFERED)
def test_with_one_update_no_width_moves_anything_so_its_slider_rests(name):
    """At ratio 1 the loss has the same slope at both ends of a slider that says it acts from the second update on."""
    resting = [slider for slider, one in SLIDERS.items() if "idle" in one and slider in numbers(in_page.OFFERED[name])]
    chance = torch.Generator().manual_seed(0)
    old = -torch.rand(3, 5, 7, generator=chance, dtype=torch.double)
    advantages = torch.randn(3, 5, 1, generator=chance, dtype=torch.double).expand(3, 5, 7)
    slopes = []
    for end in (0, -1):
        algorithm = in_page.OFFERED[name].with_parameters(
            **{name: float(SLIDERS[name]["stops"][end]) for name in resting}
        )
        logp, entropy = (one.clone().requires_grad_() for one in (old, -old))
        batch = Batch(old, advantages, torch.ones_like(old).bool(), old - 0.1, entropy=entropy)
        slopes.append(torch.autograd.grad(algorithm.loss(logp, batch).loss, logp)[0])
    torch.testing.assert_close(*slopes)


def test_beside_its_own_kind_an_algorithm_keeps_its_own_limits_and_all_else_is_equal(ask):
    mine = {**FIRST, "eps_low": 0.02, "eps_high": 0.02, "beta": 0, "beside": "GRPO"}
    twin, other = ask(["messageOf", "GIVEN", mine], ["messageOf", "GIVEN", {**mine, "beside": "DAPO"}])
    assert twin["parameters"] == {"GRPO": {"eps_low": 0.02, "eps_high": 0.02, "beta": 0}}
    assert twin["beside_parameters"] == {"eps_low": 0.2, "eps_high": 0.2, "beta": 0}
    assert other["beside_parameters"] is None


def as_text(value):
    """Return a setting as an address has it."""
    return " ".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value


@pytest.mark.parametrize(("task", "tries"), [("chain", TRIES), (STORY, SENTENCE_TRIES)])
def test_tries_set_controls_that_there_are(task, tries, ask):
    addresses = [urlencode({f"play.{name}": as_text(value) for name, value in one.values.items()}) for one in tries]
    values = ask(*(["wished", controls(task=task), address] for address in addresses), task=task)
    assert values == [one.values for one in tries]


def test_without_a_wish_happy_words_are_paid_and_no_kl_holds(ask):
    settings, message = ask(
        ["settingsOf", "GIVEN", {}], ["messageOf", "GIVEN", {**STORY_FIRST, "liked": ["dog"]}], task=STORY
    )
    assert (settings["beta"], settings["task"], settings["liked"]) == (0, STORY, [*HAPPY])
    reward = {"liked": ["dog"], "punished": [], "enough": 3, "only_sentences": False, "short": False, "taste": None}
    assert message["words"] == reward
    assert message["checkpoint"] == STORY and message["parameters"] == {
        "GRPO": {"eps_low": 0.2, "eps_high": 0.2, "beta": 0}
    }


def test_the_lines_in_python_train_on_the_same_sentences(ask):
    chosen = {
        **STORY_FIRST,
        **numbers(GRPO),
        "beta": 0.5,
        "liked": ["dog"],
        "punished": ["cat"],
        "enough": 1,
        "short": True,
    }
    lines, plain = ask(["linesOf", "GIVEN", chosen], ["linesOf", "GIVEN", {**STORY_FIRST, **numbers(GRPO)}], task=STORY)
    assert "GRPO.with_parameters(beta=0.5), settings" in lines
    assert "Sentences(WordReward()), GRPO, settings" in plain
    names = {}
    exec(lines.partition("for record")[0], names)  # the page's own text
    call = lines.partition("for record in ")[2].partition(":\n")[0].replace("train(", "list_of(")
    _, task, algorithm, _ = eval(call, names | {"list_of": lambda *parts: parts})
    assert task.words == WordReward(["dog"], ["cat"], enough=1, short=True)
    assert algorithm == GRPO.with_parameters(beta=0.5)


def test_the_right_answer_that_is_shown_is_the_task_s(ask):
    tasks = {task.name: task for task in TASKS}
    page = {name: tasks[name].held_out_prompts[:20] for name in {*in_page.CHECKPOINTS.values()} - {STORY}}
    answers = ask(*(["askedBy", name, prompt] for name, prompts in page.items() for prompt in prompts))
    golds = [tasks[name].gold(prompt) for name, prompts in page.items() for prompt in prompts]
    assert all(re.search(rf"(#|such as |order: ){gold}[,.]", words) for words, gold in zip(answers, golds, strict=True))
    assert ask(["askedBy", "chain-rare", "12164="])[0].startswith("Add the digits: 1+2+1+6+4 = 14, so write #4, with")


def test_the_page_is_one_file_that_asks_nobody(tmp_path):
    text = standalone_page()
    assert text.index(escape("default-src 'none'; script-src 'sha256-")) < text.index("<script")
    result = CliRunner().invoke(app, ["playground", "--no-browser", "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0 and (tmp_path / "page.html").read_text(encoding="utf-8") == text
    result = CliRunner().invoke(app, ["playground", "--no-browser", "--out", str(tmp_path / "no" / "page.html")])
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_a_rule_of_one_s_own_is_traced_and_joins_the_choice():
    mine = replace(GRPO, name="Mine", surrogate=lambda ratio, advantages, lower, upper: ratio * advantages)
    page = train_in_page(mine, "trip")
    options = page.payload["given"]["controls"]["algorithm"]["options"]
    assert options[0]["value"] == "Mine" and options[0]["section"] == "Yours"
    assert set(page.payload["parts"]["programs"]["open"]["rules"]) == {"Mine", *in_page.OFFERED}
    bundle = page._repr_mimebundle_()
    assert "data-rlviz" in bundle["text/html"] and bundle["text/plain"].startswith("Mine trains here")
