"""Every claim: tiny trials, and verdicts that are those of the committed trials; trials' parts; the command."""

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.study import CLAIMS, Claim, Effect, Trials, claims, find_claim, forest
from rlviz.study.claims import NAMES
from rlviz.study.claims.overlong import ARMS as OVERLONG_ARMS, ROOM
from rlviz.study.frames import by_seed
from rlviz.study.trials import SMALL, Graded, load_shipped, sample_and_grade, score_samples
from rlviz.study.verdicts import read_trials, verdict_lines, verdict_table
from small_models.tasks import Chain, Ramble

COMMITTED = Path(__file__).parents[2] / "notebooks/experiments"


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_trial_has_all_that_its_effects_read(name, tmp_path, monkeypatch):
    claim, few = find_claim(name), replace(SMALL, num_prompts=2, group_size=4)
    monkeypatch.setattr(import_module(f"{claims.__name__}.{name}"), "SMALL", few, raising=False)
    frame = claim.run((0,), 0.004)
    frame = pd.concat([frame, frame.assign(seed=1)], ignore_index=True)
    frame.to_csv(tmp_path / "x.csv", index=False)
    lines = verdict_lines(claim, frame)
    assert lines == verdict_lines(claim, read_trials(tmp_path / "x.csv"))
    forest(claim, claim.effects(frame)).savefig(tmp_path / "x.png", dpi=30)


def test_the_committed_table_and_pictures_say_what_the_committed_trials_do():
    frames = {claim: read_trials(COMMITTED / f"{claim.name}.csv") for claim in CLAIMS}
    assert (COMMITTED / "verdicts.md").read_text(encoding="utf-8") == verdict_table(frames)
    for claim, frame in frames.items():
        assert set(frame["seed"]) == set(range(5))
        description = Image.open(COMMITTED / f"{claim.name}.png").info["Description"]
        assert description == "\n".join([claim.says, *verdict_lines(claim, frame)])


# what trials are made of


def test_costs_are_those_that_were_measured_and_a_seed_that_was_not_changes_nothing(tmp_path):
    claim, committed = find_claim("critic_cost"), read_trials(COMMITTED / "critic_cost.csv")
    trials = Trials([claim], range(7), tmp_path)
    trials.finish()
    assert verdict_lines(claim, trials.frame(claim)) == verdict_lines(claim, committed)
    assert claim.trial(5, 1.0).empty


def test_responses_are_graded_and_scored():
    policy, task = load_shipped("chain"), Chain()
    prompts = task.held_out_prompts[:3]
    samples, right = sample_and_grade(policy, task, prompts, group_size=2, seed=5)
    texts = zip(prompts, samples.texts(policy), strict=True)
    assert right.tolist() == [[task.grade(prompt, text).correct for text in row] for prompt, row in texts]
    scored = score_samples(policy, samples)
    torch.testing.assert_close(scored[samples.mask], samples.logp[samples.mask])  # by the policy that wrote them
    for response, correct in (("38078....#8", True), ("#8", True), ("38078...#7", False)):
        assert Ramble().grade("35271=", response).correct is correct
    graded = Graded()
    assert graded.gold("a35271=") == "8" and graded.grade("e35271=", "38078#8").correct


def test_the_soft_punishment_weighs_what_the_paper_s_does_and_the_contrast_twice_as_much():
    rewards, longest = torch.tensor([[1.0, 0.0]]), torch.full((1, 2), ROOM)
    paper = 1 / (1 - -1)  # the most that is taken off, over how far apart right and wrong are
    for arm, weight in (("soft punishment", paper), ("double punishment", 2 * paper)):
        assert (rewards - OVERLONG_ARMS[arm].shape(rewards, longest)).tolist() == [[weight, weight]]


# the command


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """Return a function that runs `rlviz experiment` with claims "up" and "down", and the list of trials that were run."""
    tried = []

    def fake(name, sign):
        def trial(seed, scale):
            tried.append((name, seed))
            return pd.DataFrame({"arm": ["0.50"], "value": [sign * (1 + 0.1 * seed)]})

        def effects(frame):
            return [Effect("value", by_seed(frame, "value"), 0.5)]

        return Claim(name, f"{name} | says so.", "nobody", 1, trial, effects, ("the rest, for it is large",))

    monkeypatch.setattr(claims, "CLAIMS", (fake("up", 1), fake("down", -1)))

    def run(which, seeds=3):
        options = ["--seeds", str(seeds), "--jobs", "1", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, ["experiment", which, *options])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    return run, tried


def test_all_write_a_table_with_pictures_and_go_on_where_they_stopped(experiment, tmp_path):
    run, tried = experiment
    run("up")
    assert not (tmp_path / "verdicts.md").exists()  # a folder of one claim has no table
    run("--all")
    assert tried == [("up", 0), ("up", 1), ("up", 2), ("down", 0), ("down", 1), ("down", 2)]
    table = (tmp_path / "verdicts.md").read_text()
    for name, words in (("up", "1 of 1 measured part seen"), ("down", "0 of 1 measured part seen, 1 reversed")):
        row = rf"| [{name}](#{name}) | {name} \| says so. | {words}; 1 not testable here | [{name}.png]({name}.png) |"
        assert row in table
        assert Image.open(tmp_path / f"{name}.png").info["Description"].startswith(f"{name} | says so.")
        assert read_trials(tmp_path / f"{name}.csv")["arm"].tolist() == ["0.50"] * 3  # a name, and no number
    assert "- measured: value: +1.1 (by seed +1 to +1.2, smallest effect of interest 0.5), seen\n" in table
    assert "**In all 1 of 2 measured parts seen, 1 reversed; 2 not testable here.**" in table
    shutil.rmtree(tmp_path / "trials")  # which is not committed
    run("down")
    assert tried[6:] == [("down", 0), ("down", 1), ("down", 2)]  # the other claim is read from its CSV
    assert (tmp_path / "verdicts.md").read_text() == table
    assert "stays as it is: it has no 4 seeds of up." in run("down", 4)
    assert tried[9:] == [("down", 3)] and (tmp_path / "verdicts.md").read_text() == table


def test_every_file_with_a_claim_is_listed_under_its_name():
    files = Path(claims.__file__).parent.glob("[a-z]*.py")
    assert sorted(NAMES) == sorted(file.stem for file in files) and [claim.name for claim in CLAIMS] == list(NAMES)
    result = CliRunner().invoke(app, ["experiment", "--list"], env={"COLUMNS": "400"})
    assert result.exit_code == 0 and all(name in result.output for name in NAMES)
