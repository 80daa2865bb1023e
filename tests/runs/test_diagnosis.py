"""`diagnose`: each rule on a run that was trained to trigger it and on one that must not; how windows are smoothed; refusals."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from rlviz import GRPO, RunFolder, TrainSettings, diagnose, train
from rlviz.cli import app
from rlviz.runs.diagnosis import Diagnosis, findings_in
from rlviz.runs.measures import (
    AboveLeast,
    BelowBest,
    BelowStart,
    Course,
    Drift,
    First,
    FromStart,
    InNoise,
    LastQuarter,
    Latest,
    LatestBelowBest,
    Most,
    Now,
    TimesStart,
)
from rlviz.runs.rules import RULES, Rule
from small_models.policies import load_policy
from tests.runs.diagnosed_runs import PLANS, read

ROOT = Path(__file__).parents[2]
NAMES = [rule.name for rule in RULES]

# rule → a run that triggers it, and one that must not although something of it is there
RUNS = {
    "no_reward": ("another task's policy", "lr x 100"),  # it was right at first
    "entropy_rose": ("lr x 5, 8 updates", "trip, lr x 7"),
    "broken": ("lr x 100", "learned judge", "narrow below"),  # accuracy fell, and reward rose
    "hacked": ("learned judge", "trip, lr x 7", "sound"),  # both fell; both rose
    "reward_alone": ("format alone pays", "leash", "stopped"),  # neither rose; both did
    "judge_lost": ("learned judge", "sound"),
    "gradient_grew": ("leash", "sound, with KL"),
    "ratios_far": ("16 updates, lr x 3", "8 updates"),
    "kl_negative": ("top-p, KL to old", "sound, with KL"),
    "leash": ("leash", "lr / 300", "leash of 0.5"),
    "no_learning": ("lr / 300", "G = 2"),  # slowly
    "dead_groups": ("G = 2", "leash", "experts, 8 updates"),  # most of them all right
    "truncated": ("cut off", "sound, 4 updates"),  # one in eight at first
    "entropy_gone": ("lr x 100", "sound, 4 updates"),
    "noisy_samples": ("hot", "warm samples", "learned judge"),
    "engines_apart": ("old sampler", "rough sampler", "top-p, KL to old"),
    "mismatch_grew": (
        "rough, lr x 10",
        "rough sampler",
        "top-p, KL to old",
        "old sampler",
    ),  # the last is said of by the other
    "sampled_worse": ("warm samples", "sound"),
    "sampled_better": ("cold", "sound, 4 updates", "top-p, KL to old"),  # one evaluation alone
    "overdone": ("DPO, lr x 10", "sound DPO", "learned judge"),
    "clipped_often": ("narrow limits", "8 updates", "GSPO with experts"),
    "solved": ("sound DAPO", "G = 2", "sound"),
    "still_rising": ("never evaluated", "sound"),
    "ended_early": ("stopped", "sound"),
    "no_evaluation": ("never evaluated", "sound"),
    "critic_blind": ("sound PPO", "sound"),
    "chosen_fell": ("DPO, both reason", "few pairs"),
    "pairs_spent": ("few pairs", "sound DPO"),
    "clipped_sequences": (
        "GSPO with experts",
        "narrow limits",
        "GSPO, wide limits",
    ),  # as many, by the ratios of tokens
    "many_rounds": ("many rounds", "sound"),
    "length_grew": ("sound", "few prompts", "learned judge"),
    "length_fell": ("format alone pays", "sound DAPO", "hot"),
    "clipped_low_side": ("narrow below", "8 updates", "sound PPO"),
    "clipped_high_side": ("narrow above", "8 updates"),
    "routing": ("experts, 8 updates", "GSPO with experts"),
    "warming_up": ("long warm-up", "sound"),
    "loss_is_kl": ("sound, with KL", "sound PPO"),
    "loss_zero": ("sound", "sound DAPO"),  # one update, and another mean than that over responses
    "ratio_one": ("sound", "8 updates"),
}
SOUND = [name for name in PLANS if name.startswith("sound")]


def course(name):
    run = KEPT[name]
    columns = {column: np.array(values, dtype=float) for column, values in run["columns"].items()}
    return Course(columns, run["settings"])


KEPT = read()
FOUND = {name: {finding.rule: finding for finding in findings_in(course(name))} for name in KEPT}


def test_the_runs_on_disk_are_those_of_the_script():
    assert list(KEPT) == list(PLANS)
    for name, plan in PLANS.items():
        assert KEPT[name]["settings"] == json.loads(json.dumps(vars(plan.settings))), name


def test_every_rule_has_a_run_that_triggers_it_and_one_that_does_not():
    assert list(RUNS) == NAMES and len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_on_its_run(name):
    triggers, *_ = RUNS[name]
    finding = FOUND[triggers][name]
    columns = KEPT[triggers]["columns"]
    assert math.isfinite(finding.number) and 1 <= finding.step <= len(columns["step"])
    assert not re.search(r"nan|inf|[{}]|\d%|-\d", finding.finding)


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_on_a_run_that_must_not_trigger_it(name):
    _, *others = RUNS[name]
    assert others and not [other for other in others if name in FOUND[other]]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_gets_no_warning(name):
    assert not [finding.finding for finding in FOUND[name].values() if finding.grade == "warning"]


def test_what_a_rule_names_is_there():
    """Settings are options of `rlviz train`, lessons are notebooks, silenced rules are rules, and each limit has a reason."""
    command = get_command(app).commands["train"]
    options = {option for parameter in command.params for option in parameter.opts}
    for rule in RULES:
        assert f"--{rule.setting.replace('_', '-')}" in options, rule.name
        assert set(re.findall(r"--[a-z-]+", rule.advice)) <= options, rule.name
        assert (ROOT / "notebooks" / f"{rule.lesson}.ipynb").is_file()
        assert set(rule.silences) <= set(NAMES) - {rule.name}
        assert rule.where and all(condition.because for condition in rule.where)
    grades = [rule.grade for rule in RULES]
    assert grades == sorted(grades, reverse=True)  # warnings, then notes


def a_course(settings=None, **columns):
    length = len(next(iter(columns.values())))
    steps = {"step": np.arange(1.0, length + 1)}
    return Course(steps | {name: np.array(values, dtype=float) for name, values in columns.items()}, settings or {})


NAN = math.nan


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        # x = 1 9 2 8 3 7 4, a window of 5: medians of 1 9 2, of 1 9 2 8, 1 9 2 8 3, 9 2 8 3 7, 2 8 3 7 4; the first window's is 3
        (Now("x"), [NAN, NAN, 2, 5, 3, 7, 4]),
        (Latest("x"), [1, 9, 2, 8, 3, 7, 4]),
        (First("x"), [3] * 7),
        (FromStart("x"), [NAN, NAN, NAN, NAN, 0, 4, 1]),
        (BelowStart("x"), [NAN, NAN, NAN, NAN, 0, -4, -1]),
        (TimesStart("x"), [NAN, NAN, NAN, NAN, 1, 7 / 3, 4 / 3]),
        (Most("x"), [NAN, NAN, 2, 5, 5, 7, 7]),
        (BelowBest("x"), [NAN, NAN, 0, 0, 2, 0, 3]),
        (AboveLeast("x"), [NAN, NAN, 0, 3, 1, 5, 2]),
        (LatestBelowBest("x"), [0, 0, 7, 1, 6, 2, 5]),
        # a quarter of 4 to 7 steps is one step
        (LastQuarter("x"), [NAN, NAN, 0, 3, -2, 4, -3]),
        # differences 8 7 6 5 4 3: their median is 5.5, so a step's standard deviation 5.5 · 1.4826 / √2 = 5.76595
        (InNoise("x"), [NAN, NAN, NAN, NAN, 0, 4 / 5.76595, 1 / 5.76595]),
        # thirds of 1, 1, 1, 1, 1, 2, 2 steps; at the end (7 + 4 − 1 − 9) / 2 = .5, over the noise · √(2 / 2)
        (Drift("x"), [0, 8 / 8.15429, 1 / 8.15429, 7 / 8.15429, 2 / 8.15429, 0, 0.5 / 5.76595]),
        (Now("nothing of this name"), [NAN] * 7),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_a_measure_by_hand(measure, expected):
    found = measure.of(a_course(x=[1, 9, 2, 8, 3, 7, 4]))
    assert found == pytest.approx(np.array(expected), rel=1e-5, nan_ok=True)


def test_what_is_measured_now_and_then_stays_until_it_is_measured_again():
    found = a_course(x=[NAN, 1, NAN, NAN, 5, NAN]).latest("x")
    assert found == pytest.approx(np.array([NAN, 1, 1, 1, 5, 5]), nan_ok=True)


@pytest.mark.parametrize(("steps", "window"), [(3, 5), (40, 5), (60, 7), (120, 15), (400, 25)])
def test_a_window_is_an_eighth_of_the_run_within_limits(steps, window):
    assert a_course(x=[0] * steps).window == window


RISES = Rule("rises", "note", (Now("x").at_least(2, "two"),), "{0:.1f} since {step}", "", "lr", "", "04_grpo")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1] * 10 + [3] * 10, ("3.0 since 13", 13)),  # the third 3 makes it the median of five
        ([3] * 20, ("3.0 since 1", 1)),  # ever since there is a median
        ([1] * 15 + [3] * 5, ("3.0 since 18", 18)),  # three steps
        ([1] * 16 + [3] * 4, None),  # two steps are too few
        ([3] * 10 + [1] * 10, None),  # not at the end
        ([3] * 19, None),  # a rule needs twenty steps
        ([3] * 10 + [NAN] * 10, ("3.0 since 1", 1)),  # what was measured last stands
        ([NAN] * 20, None),
    ],
)
def test_since_which_step_a_rule_holds(values, found):
    findings = findings_in(a_course(x=values), [RISES])
    assert [(finding.finding, finding.step) for finding in findings] == ([found] if found else [])


def test_a_rule_that_says_more_silences_another_and_the_order_is_that_of_the_rules():
    louder = replace(RISES, name="louder", silences=("rises",))
    course = a_course(x=[3] * 20)
    assert [finding.rule for finding in findings_in(course, [RISES, louder])] == ["louder"]
    assert [finding.rule for finding in findings_in(course, [RISES, replace(louder, silences=())])] == [
        "rises",
        "louder",
    ]


SMALL = TrainSettings(steps=8, num_prompts=4, group_size=4, evaluate_every=0, details_every=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run that has made its steps, its folder, and its records."""
    out = tmp_path_factory.mktemp("diagnosed") / "run"
    run = train(load_policy("chain", device="cpu"), "chain", GRPO, SMALL, out=out)
    return run, out, list(run)


def test_folder_run_and_records_say_the_same(trained):
    run, out, records = trained
    found = diagnose(out)
    assert "ratio_one" in [finding.rule for finding in found]
    for source in (str(out), RunFolder.open(out), run):
        assert diagnose(source) == found
    assert diagnose(records, SMALL).findings == found.findings
    assert (
        found.summary
        == f"{out}: GRPO on chain, 8 steps: {len(found)} note{'s' * (len(found) > 1)}; most rules need 20."
    )


def test_a_diagnosis_is_a_text_a_table_for_a_notebook_and_json(trained):
    found = diagnose(trained[2])
    text = str(found)
    assert text.startswith("this run, 8 steps: ") and "Note: Every ratio is 1" in text and "  Meaning: With one" in text
    assert "Lesson: notebooks/02_the_ratio.ipynb" in text
    assert json.loads(json.dumps(found.as_json())) == [vars(finding) for finding in found]
    assert found._repr_html_().count("<li") == len(found) == len(list(found)) > 0


def test_nothing_unusual_is_said():
    found = Diagnosis("this run", 40, ())
    assert str(found) == "this run, 40 steps: nothing unusual."
    assert found.as_json() == [] and "<ul>" not in found._repr_html_()


def test_steps_left_are_no_finding_where_a_comparison_s_budget_ends_the_run(trained, tmp_path):
    records = trained[2]
    assert "ended_early" in [finding.rule for finding in diagnose(records, replace(SMALL, steps=9))]
    folder = shutil.copytree(trained[1], tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["steps"] = 1_000_000
    (folder / "config.json").write_text(json.dumps(config))
    assert "ended_early" in [finding.rule for finding in diagnose(folder)]
    (tmp_path / "comparison.json").write_text("{}")
    assert "ended_early" not in [finding.rule for finding in diagnose(folder)]
    with pytest.raises(ValueError, match=r"holds a comparison; diagnose one of its runs: run$"):
        diagnose(tmp_path)


def test_markup_in_a_folder_s_name_and_texts_is_shown_as_it_is(trained, tmp_path):
    mark = "<img src=x onerror=alert(1)>"
    folder = shutil.copytree(trained[1], tmp_path / mark)
    config = json.loads((folder / "config.json").read_text())
    config["algorithm"]["name"] = config["task"] = mark
    (folder / "config.json").write_text(json.dumps(config))
    html = diagnose(folder)._repr_html_()
    assert "<img" not in html and html.count("&lt;img src=x") == 3


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ([], "has no step yet, so there is nothing to diagnose"),
        (3, "run must be a run folder, a run that is kept in one, or a list of step records; got int"),
        ([1, 2], "run must be a run folder"),
        (None, "run must be a run folder"),
    ],
)
def test_what_is_no_run_is_refused(source, says):
    with pytest.raises(ValueError, match=says):
        diagnose(source)


def test_a_run_without_a_folder_keeps_no_records(trained):
    run = train(load_policy("chain", device="cpu"), "chain", GRPO, SMALL)
    with pytest.raises(ValueError, match=r"give the list of them, and settings=run\.settings"):
        diagnose(run)
    with pytest.raises(FileNotFoundError, match="holds no run"):
        diagnose(trained[1].parent)


def test_a_policy_that_is_lost_before_there_is_a_median_is_called_broken():
    run = train("chain", "grpo", TrainSettings(steps=25, num_prompts=8, lr=3e-2, evaluate_every=0))
    found = list(diagnose(list(run), run.settings))
    assert found[0].setting == "lr" and "broken" in [finding.rule for finding in found]
