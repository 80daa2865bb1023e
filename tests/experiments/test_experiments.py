"""Each experiment end to end at its smallest: trials, picture, command line, and an interrupted run that goes on."""

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click import unstyle
from matplotlib.text import Annotation
from PIL import Image
from rlviz.experiments import EXPERIMENTS, find_experiment, runner as running
from rlviz.experiments.base import Experiment, gap
from rlviz.experiments.parts import NEGLIGIBLE, NOT_SEEN, REVERSED, SEEN, Part, judged, titles
from rlviz.experiments.runs import FREE, SMALL, Graded, answered, logp_under, shipped, train_arms
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.pictures.base import new_figure
from rlviz.pieces.advantages import GroupAdvantage
from small_models.tasks import Chain, Ramble

RUNNER = CliRunner()
TINY = 0.02


def outcome_of_one_trial(part):
    """Two seeds that are one trial have no spread: the sign decides, and the size where one is claimed."""
    value, same = part.values
    assert value == same or math.isnan(value)
    if math.isnan(value):
        return NOT_SEEN
    if abs(value) < part.smallest:
        return NEGLIGIBLE
    if value < 0:
        return REVERSED
    return SEEN if value >= part.claimed else NOT_SEEN


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS])
def test_a_tiny_trial_can_be_judged_and_drawn(name, tmp_path, monkeypatch):
    experiment = find_experiment(name)
    frame = experiment.run((0,), TINY)
    frame = pd.concat([frame, frame.assign(seed=1)], ignore_index=True)
    parts, without_check = [], Part.__post_init__

    def note(part):
        without_check(part)
        parts.append(part)

    with monkeypatch.context() as watched:
        watched.setattr(Part, "__post_init__", note)
        verdict = experiment.judge(frame)
    said = {str(part): part for part in parts}  # also those that a verdict mentions without counting them
    counted = [said[text] for text in verdict.says.removesuffix(".").split("; ") if text in said]
    assert verdict.parts == tuple(map(outcome_of_one_trial, counted))
    assert counted or "arithmetic" in str(verdict)
    frame.to_csv(tmp_path / "x.csv", index=False)
    read = running.read(tmp_path / "x.csv")
    assert experiment.judge(read).says == verdict.says
    figure = experiment.picture(read)
    figure.savefig(tmp_path / "x.png", dpi=30)
    drawn = {ax.get_label(): " ".join(ax.get_title(loc="left").casefold().split()) for ax in figure.axes}
    for panel, title in titles(verdict).items():
        assert drawn[panel] == " ".join(f"{line}." for line in title.lines).casefold()
        assert set(title.rows.values()) <= {text.get_text() for text in figure.findobj(Annotation)}


@pytest.mark.parametrize("name", ["std_weighting", "stale_samples"])
def test_the_same_seed_gives_the_same_trial(name):
    trial = find_experiment(name).trial
    first = trial(1, TINY)
    pd.testing.assert_frame_equal(first, trial(1, TINY))
    assert not first.equals(trial(2, TINY))


def test_each_arm_is_trained_from_the_same_start_with_its_own_algorithm():
    other = replace(FREE, advantage=GroupAdvantage(scale="none"))
    settings = replace(SMALL, steps=2, num_prompts=4)
    found = train_arms(
        shipped("chain"), Chain(), {"first": FREE, "other": other, "again": FREE}, settings, "loss", "kl"
    )
    assert list(found) == ["step", "loss", "kl", "arm"]
    first, changed, again = (found[found["arm"] == arm].drop(columns="arm") for arm in ("first", "other", "again"))
    assert list(first["step"]) == [1, 2]
    assert np.array_equal(first, again) and not np.array_equal(first, changed)


def test_responses_are_graded_and_scored():
    policy, task = shipped("chain"), Chain()
    prompts = task.held_out_prompts[:3]
    samples, right = answered(policy, task, prompts, group_size=2, seed=5)
    texts = samples.texts(policy)
    assert right.tolist() == [
        [task.grade(p, text).correct for text in row] for p, row in zip(prompts, texts, strict=True)
    ]
    scored = logp_under(policy, samples)
    assert not scored.requires_grad
    torch.testing.assert_close(scored[samples.mask], samples.logp[samples.mask])  # the policy that wrote them


def test_the_tasks_mark_what_they_say():
    task = Ramble()
    for response, correct in (("38078....#8", True), ("#8", True), ("...#8", True), ("38078...#7", False)):
        assert task.grade("35271=", response).correct is correct
        assert task.grade("35271=", response).format
    assert not task.grade("35271=", "..3#8").format
    graded = Graded()
    assert graded.gold("a35271=") == "8"
    assert graded.grade("e35271=", "38078#8").correct
    letters = pd.Series([prompt[0] for prompt in graded.train_prompts])
    assert set(letters) == set("abcde")
    assert letters.value_counts(normalize=True).between(0.19, 0.21).all()
    digits = pd.Series([prompt[5] for prompt in graded.train_prompts])
    assert (
        pd.crosstab(letters, digits, normalize="index").stack().between(0.08, 0.12).all()
    )  # no letter gives the answer away


def fake(name, trial=None, value=1.0):
    """Return an experiment without any training."""

    def picture(frame):
        figure = new_figure(3, 3)
        figure.add_subplot().plot(frame["seed"], frame["value"])
        return figure

    return Experiment(
        name, f"{name} claims | something.", "nobody", 1,
        trial or (lambda seed, scale: pd.DataFrame({"value": [value + 0.1 * seed]})),
        lambda frame: judged(Part("value", tuple(frame.groupby("seed")["value"].mean()), smallest=0.5)), picture,
    )  # fmt: skip


@pytest.fixture
def three(monkeypatch):
    calls = []

    def counted(seed, scale):
        calls.append(seed)
        return pd.DataFrame({"value": [1.0 + 0.1 * seed]})

    every = (
        fake("first", counted),
        fake("second", value=-2.0),
        fake("third", lambda seed, scale: pd.DataFrame({"value": [(-1.0) ** seed]})),
    )
    known = {each.name: each for each in every}
    monkeypatch.setattr("rlviz.experiments.EXPERIMENTS", every)
    monkeypatch.setattr("rlviz.experiments.find_experiment", known.__getitem__)
    monkeypatch.setattr(running, "find_experiment", known.__getitem__)
    return calls


def test_all_write_a_table_with_pictures_and_go_on_where_they_stopped(three, tmp_path):
    command = ["experiment", "--all", "--seeds", "3", "--jobs", "1", "--out", str(tmp_path / "o")]
    result = RUNNER.invoke(app, command)
    assert result.exit_code == 0, result.output
    table = (tmp_path / "o/verdicts.md").read_text()
    for name, parts in (
        ("first", "1 of 1 measured part seen"),
        ("second", "0 of 1 measured part seen, 1 reversed"),
        ("third", "0 of 1 measured part seen, 1 not seen at this scale"),
    ):
        claim = rf"{name} claims \| something."
        assert f"| [{name}](#{name}) | {claim} | {parts} | [{name}.png]({name}.png) |" in table
        assert Image.open(tmp_path / f"o/{name}.png").info["Description"].startswith(f"{name} claims")
        assert len(pd.read_csv(tmp_path / f"o/{name}.csv")) == 3
    assert "- measured: value: +1.1 (by seed +1 to +1.2, worth speaking of from 0.5), seen\n" in table
    assert "**In all 1 of 3 measured parts seen, 1 not seen at this scale, 1 reversed.**" in table
    assert three == [0, 1, 2]
    (tmp_path / "o/trials/first-1.csv").unlink()
    assert RUNNER.invoke(app, command).exit_code == 0
    assert three == [0, 1, 2, 1]
    assert (tmp_path / "o/verdicts.md").read_text() == table
    more = RUNNER.invoke(app, [*command[:3], "4", *command[4:]])
    assert more.exit_code == 0
    assert three == [0, 1, 2, 1, 3]


def test_the_committed_table_is_what_the_rule_makes_of_the_committed_trials():
    folder = Path(__file__).parents[2] / "notebooks/experiments"
    frames = {each.name: running.read(folder / f"{each.name}.csv") for each in EXPERIMENTS}
    assert {frozenset(frame["seed"]) for frame in frames.values()} == {frozenset(range(5))}
    table = running.verdict_table([(each, each.judge(frames[each.name])) for each in EXPERIMENTS], 5)
    assert (folder / "verdicts.md").read_text(encoding="utf-8") == table
    for each in EXPERIMENTS:
        told = Image.open(folder / f"{each.name}.png").info["Description"]
        assert told == f"{each.claim} {each.judge(frames[each.name]).says}"


def test_arms_may_be_called_like_numbers(tmp_path):
    def judge(frame):
        return judged(Part("value", gap(frame, "value", "1e-3", "0.50"), smallest=0.5))

    arms = pd.DataFrame({"arm": ["1e-3", "0.50"], "value": [2.0, 1.0]})
    experiment = replace(fake("numbers"), trial=lambda seed, scale: arms, judge=judge)
    for seed in (0, 1):
        running.write(running.kept(tmp_path, "numbers", seed), experiment.run((seed,)).to_csv(index=False))
    assert running.conclude(experiment, (0, 1), tmp_path).says == (
        "measured: value: +1 (by seed +1 to +1, worth speaking of from 0.5), seen."
    )


def test_a_trial_that_fails_leaves_those_that_are_done(three, tmp_path, monkeypatch):
    def broken(seed, scale):
        raise RuntimeError("no memory")

    every = (find("first"), fake("broken", broken))
    monkeypatch.setattr("rlviz.experiments.EXPERIMENTS", every)
    monkeypatch.setattr(running, "find_experiment", {each.name: each for each in every}.__getitem__)
    result = RUNNER.invoke(app, ["experiment", "--all", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "no memory" in result.output
    assert [file.name for file in (tmp_path / "trials").iterdir()] == ["first-0.csv"]
    assert not (tmp_path / "verdicts.md").exists()


def find(name):
    from rlviz.experiments import find_experiment as now

    return now(name)


def test_ctrl_c_keeps_what_is_done_and_ends_the_others(tmp_path):
    of_tiny_trials = (
        f"from rlviz.experiments import runner; runner.run_trials.__kwdefaults__['scale'] = {TINY}; "
        "from rlviz.cli import main; main()"
    )
    command = [sys.executable, "-c", of_tiny_trials, "experiment", "entropy_knobs", "--seeds", "500", "--jobs", "2"]
    command += ["--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("trials/*.csv")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Stopped" in output and "Traceback" not in output
    done = list(tmp_path.glob("trials/*.csv"))
    assert 1 <= len(done) < 500
    assert all(len(pd.read_csv(file)) > 10 for file in done)
    deadline = time.monotonic() + 30
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not alive(process.pid)


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give the name of one experiment, or --all"),
        (["starved", "--all"], "give the name of one experiment, or --all"),
        (["starvd"], "did you mean starved?"),
        (["starved", "--seeds", "1"], "greater than or equal to 2"),
        (["starved", "--jobs", "0"], "greater than or equal to 1"),
        (["kl_estimators", "--out", "/proc/nothing"], "cannot be written or read"),
    ],
)
def test_mistakes_are_sentences(arguments, sentence):
    result = RUNNER.invoke(app, ["experiment", *arguments])
    assert result.exit_code == 2
    assert sentence in " ".join(unstyle(result.output).replace("│", " ").split())


def test_the_list_names_every_claim():
    result = RUNNER.invoke(app, ["experiment", "--list"], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    for each in EXPERIMENTS:
        assert each.name in result.output
