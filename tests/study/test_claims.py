"""All claims in tables: what each rule says of frames made by hand and of tiny trials, its picture, the committed verdicts."""

import math
import re
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click import unstyle
from matplotlib.text import Annotation
from PIL import Image
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.runs.arms import draw_claim
from rlviz.study import claims
from rlviz.study.claim import Claim, Panel, Trials, read, verdict_table
from rlviz.study.claims import CLAIMS, NAMES, find_claim
from rlviz.study.claims.overlong import ARMS as OVERLONG_ARMS, ROOM
from rlviz.study.claims.starved import carried_on
from rlviz.study.frames import after, by_seed, doublings, first_reached, gap, in_words, means, scaled, select, times
from rlviz.study.trials import Graded, answered, logp_under, shipped
from rlviz.study.verdict import NEGLIGIBLE, NOT_SEEN, REVERSED, SEEN, Arithmetic, Part, judged, titles
from small_models.tasks import Chain, Ramble
from tests.study.made import made, overlong

COMMITTED = Path(__file__).parents[2] / "notebooks/experiments"
TINY = 0.004


# each claim


@pytest.mark.parametrize("name", NAMES)
def test_each_outcome_can_be_reached_whatever_the_order_of_rows_and_titles_say_it(name):
    judge = find_claim(name).judge
    verdicts = {effect: judge(made(name, effect)) for effect in (1, 0, -1)}
    for effect, outcomes in ((1, {SEEN}), (0, {NOT_SEEN, NEGLIGIBLE}), (-1, {REVERSED})):
        says = verdicts[effect].says
        assert set(verdicts[effect].parts) <= outcomes, says
        assert re.search(r"\d", says) and "nan" not in says
    up, down, mixed = verdicts[1], verdicts[-1], judge(made(name, 1).sample(frac=1, random_state=0))
    numbers = [np.sort([float(x) for x in re.findall(r"[+-]?\d+\.?\d*", of.says)]) for of in (up, mixed)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)
    assert up.parts or name == "std_weighting"  # of which nothing is measured: given the groups, it is arithmetic
    assert all(each.shown for each in up.said if isinstance(each, Part))
    said = {each.shown.panel for each in up.said if isinstance(each, Part | Arithmetic) and each.shown}
    assert titles(up).keys() == titles(down).keys() == said
    for panel, title in titles(up).items():
        seen, opposite = (
            [line for line in of.lines if not line.endswith("arithmetic")] for of in (title, titles(down)[panel])
        )
        assert len(seen) == len(opposite) and not set(seen) & set(opposite)
        assert all(SEEN in line and REVERSED not in line for line in seen)
        assert all(REVERSED in line and f": {SEEN}" not in line for line in opposite)
        assert set(title.rows.values()) <= {SEEN} and set(titles(down)[panel].rows.values()) <= {REVERSED}


@pytest.mark.parametrize("name", ["dcpo_headline", "dupo_headline", "dapo_headline"])
def test_a_headline_number_is_not_seen_in_half_its_size(name):
    verdict = find_claim(name).judge(made(name, 0.5))
    assert set(verdict.parts) == {NOT_SEEN} and "of the claimed sign but smaller" in verdict.says


def test_each_part_of_the_claim_on_overlong_answers_looks_at_its_own_arm():
    frame = overlong(1)
    for arm, seen in (("filter", 5), ("double punishment", 3), ("soft punishment", 1)):
        frame.loc[frame["arm"] == arm, "held_out_accuracy"] -= 0.5
        assert find_claim("overlong").judge(frame).parts == (*[SEEN] * seen, *[REVERSED] * (7 - seen))


def test_each_remedy_for_overlong_answers_is_judged_by_the_same_looks():
    """Each remedy costs .1 in the first half of the steps and adds .1 in the second: the same values for each."""
    frame = overlong(1)
    early = (frame["arm"] != "no remedy") & (frame["step"] <= frame["step"].max() / 2)
    frame.loc[early, "held_out_accuracy"] -= 0.2
    said = [part for part in find_claim("overlong").judge(frame).said if isinstance(part, Part)]
    for arm in ("soft punishment", "double punishment", "filter"):
        gained = [part.values for part in said if f"gained by the {arm}" in part.words]
        np.testing.assert_allclose(gained, [[-0.1] * len(gained[0]), [0.1] * len(gained[0])])


def outcome_of_one_trial(part):
    """Two seeds that are one trial have no spread: the sign decides, and the size where one is claimed."""
    value, same = part.values
    assert value == same or math.isnan(value)
    if math.isnan(value):
        return NOT_SEEN
    if abs(value) < part.smallest:
        return NEGLIGIBLE
    return REVERSED if value < 0 else SEEN if value >= part.claimed else NOT_SEEN


@cache
def tiny(name):
    return find_claim(name).run((0,), TINY)


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_trial_can_be_judged_and_drawn(name, tmp_path):
    claim, frame = find_claim(name), tiny(name)
    frame = pd.concat([frame, frame.assign(seed=1)], ignore_index=True)
    verdict = claim.judge(frame)
    assert verdict.parts == tuple(outcome_of_one_trial(each) for each in verdict.said if isinstance(each, Part))
    assert verdict.parts or "arithmetic" in str(verdict)
    frame.to_csv(tmp_path / "x.csv", index=False)
    kept = read(tmp_path / "x.csv")
    assert claim.judge(kept).says == verdict.says
    figure = draw_claim(claim, kept)
    figure.savefig(tmp_path / "x.png", dpi=30)
    drawn = {ax.get_label(): " ".join(ax.get_title(loc="left").casefold().split()) for ax in figure.axes}
    for panel, title in titles(verdict).items():
        assert drawn[panel] == " ".join(f"{line}." for line in title.lines).casefold()
        assert set(title.rows.values()) <= {text.get_text() for text in figure.findobj(Annotation)}


def test_the_same_seed_gives_the_same_trial():
    """Of a claim that warms up, samples, trains and records groups."""
    again, other = (find_claim("std_weighting").trial(seed, TINY).assign(seed=0) for seed in (0, 1))
    pd.testing.assert_frame_equal(tiny("std_weighting"), again)
    assert not again.equals(other)


def test_costs_are_those_that_were_measured_and_none_is_made_up():
    claim = find_claim("critic_cost")
    pd.testing.assert_frame_equal(claim.run(range(5)), read(COMMITTED / "critic_cost.csv"))
    assert claim.trial(5, 1.0).empty


def test_a_seed_that_was_not_measured_leaves_the_verdict_on_costs_as_it_is(tmp_path):
    claim = find_claim("critic_cost")
    trials = Trials([claim], range(7), tmp_path)
    trials.finish()
    assert claim.judge(trials.frame(claim)).says == claim.judge(read(COMMITTED / "critic_cost.csv")).says


def test_all_arms_begin_with_the_same_responses_and_the_same_coin():
    first = select(tiny("entropy_clip"), step=1, setting=("trip", "trip, a coin for a reward"))
    assert first.groupby("setting")["accuracy"].nunique().tolist() == [1, 1]


def test_the_committed_table_is_what_the_rule_makes_of_the_committed_trials():
    frames = {each.name: read(COMMITTED / f"{each.name}.csv") for each in CLAIMS}
    assert {frozenset(frame["seed"]) for frame in frames.values()} == {frozenset(range(5))}
    verdicts = [(each, each.judge(frames[each.name])) for each in CLAIMS]
    assert (COMMITTED / "verdicts.md").read_text(encoding="utf-8") == verdict_table(verdicts, 5)
    for each, verdict in verdicts:
        told = Image.open(COMMITTED / f"{each.name}.png").info["Description"]
        assert told == f"{each.claim} {verdict.says}"


def test_every_file_with_a_claim_is_listed_once_and_names_are_found_or_offered():
    files = Path(claims.__file__).parent.glob("*.py")
    assert sorted(NAMES) == sorted(file.stem for file in files if "\nCLAIM = " in file.read_text(encoding="utf-8"))
    assert [each.name for each in CLAIMS] == list(NAMES)


# what they are made of


def test_arms_are_compared_seed_by_seed():
    frame = pd.DataFrame({"seed": [0, 1, 0, 1], "arm": ["b", "b", "a", "a"], "x": [3.0, 5.0, 1.0, 4.0]})
    for rows in (frame, frame.iloc[[1, 3, 0, 2]]):
        assert tuple(gap(rows, "x", "b", "a")) == (2.0, 1.0)
        assert tuple(times(rows, "x", "b", "a")) == (3.0, 1.25)
        assert tuple(doublings(rows, "x", "b", "a")) == pytest.approx((math.log2(3), math.log2(1.25)))
    lacking = gap(frame.drop(index=3), "x", "b", "a")
    assert lacking[0] == 2.0 and math.isnan(lacking[1])
    assert list(by_seed(frame.drop(index=0), "x", arm="b").isna()) == [
        True,
        False,
    ]  # the seed is there, its rows are not
    more = pd.concat([frame, frame.assign(x=[12.0, 5.0, 1.0, 4.0])])  # b of seed 0 is 3 and 12: geometric mean 6
    assert times(more, "x", "b", "a")[0] == 7.5 and doublings(more, "x", "b", "a")[0] == pytest.approx(math.log2(6))
    assert (scaled(100, 0.001), scaled(100, 0.1), scaled(100, 0.001, 4)) == (1, 10, 4)
    assert means(frame, "x") == "b 4.00, a 2.50" and means(frame, "x", 0) == "b 4, a 2"
    assert in_words({"dense": 1.25, "experts": 2.0}, "×{:.1f}") == "dense ×1.2, experts ×2.0"


def test_rows_are_chosen_by_value_by_step_and_where_a_goal_is_first_reached():
    frame = pd.DataFrame({"step": [1, 2, 3, 4], "arm": ["a", "b", "c", "a"]})
    assert list(select(frame, arm="a")["step"]) == [1, 4]
    assert list(select(frame, arm=("a", "b"), step=(2, 3, 4))["step"]) == [2, 4]
    assert list(after(frame, 0.5)["step"]) == [3, 4] and list(after(frame, 0.25)["step"]) == [2, 3, 4]
    runs = pd.DataFrame({"arm": [*"bbbaaa"], "seed": [0, 0, 1, 0, 0, 0], "step": [3, 2, 1, 1, 2, 3]})
    runs["right"] = [0.9, 0.8, 0.1, 0.1, 0.2, 0.7]
    found = first_reached(runs, runs["right"] >= 0.7)
    assert list(zip(found["arm"], found["seed"], strict=True)) == [("b", 0), ("b", 1), ("a", 0)]
    np.testing.assert_equal(found["step"].to_numpy(), [2, math.nan, 3])
    path = pd.DataFrame({"arm": "0.2", "rollout": [0, 1, 0, 1, 2], "seed": [0, 0, 1, 1, 1]})
    path["rare"] = [0.1, 0.9, 0.1, 0.2, 0.3]
    # a path that stopped at the goal counts on in the mean: at last (.9 + .3) / 2
    assert carried_on(path).groupby("rollout")["rare"].mean().tolist() == pytest.approx([0.1, 0.55, 0.6])


def test_responses_are_graded_and_scored_and_tasks_mark_what_they_say():
    policy, task = shipped("chain"), Chain()
    prompts = task.held_out_prompts[:3]
    samples, right = answered(policy, task, prompts, group_size=2, seed=5)
    texts = zip(prompts, samples.texts(policy), strict=True)
    assert right.tolist() == [[task.grade(prompt, text).correct for text in row] for prompt, row in texts]
    scored = logp_under(policy, samples)
    assert not scored.requires_grad
    torch.testing.assert_close(scored[samples.mask], samples.logp[samples.mask])  # the policy that wrote them
    for response, correct in (("38078....#8", True), ("#8", True), ("...#8", True), ("38078...#7", False)):
        grade = Ramble().grade("35271=", response)
        assert grade.correct is correct and grade.format
    assert not Ramble().grade("35271=", "..3#8").format
    graded = Graded()
    assert graded.gold("a35271=") == "8" and graded.grade("e35271=", "38078#8").correct
    letters, digits = (pd.Series([prompt[place] for prompt in graded.train_prompts]) for place in (0, 5))
    assert set(letters) == set("abcde") and letters.value_counts(normalize=True).between(0.19, 0.21).all()
    given_away = pd.crosstab(letters, digits, normalize="index").stack()
    assert given_away.between(0.08, 0.12).all()  # no letter gives the answer away


def test_the_soft_punishment_weighs_what_the_paper_s_does_and_the_contrast_twice_as_much():
    rewards, longest = torch.tensor([[1.0, 0.0]]), torch.full((1, 2), ROOM)
    paper = 1 / (1 - -1)  # the most that is taken off, over how far apart right and wrong are
    for arm, weight in (("soft punishment", paper), ("double punishment", 2 * paper)):
        assert (rewards - OVERLONG_ARMS[arm].shape(rewards, longest)).tolist() == [[weight, weight]]


# the command


def fake(name, value=lambda seed: 1.0 + 0.1 * seed):
    """Return a claim without any training."""

    def judge(frame):
        return judged(Part("value", by_seed(frame, "value"), 0.5).titled("left", "it is [more|less]"))

    def trial(seed, scale):
        return pd.DataFrame({"arm": ["0.50"], "value": [value(seed)]})

    return Claim(name, f"{name} claims | something.", "nobody", 1, trial, judge, [[Panel("left", "value", "unit")]])


def command(monkeypatch, out, *three, seeds=3, which="--all"):
    monkeypatch.setattr(claims, "CLAIMS", three)
    given = ["experiment", which, "--seeds", str(seeds), "--jobs", "1", "--out", str(out)]
    return CliRunner().invoke(app, given)


def test_all_write_a_table_with_pictures_and_go_on_where_they_stopped(tmp_path, monkeypatch):
    asked, out = [], tmp_path / "o"
    three = [
        fake("first", lambda seed: asked.append(seed) or 1.0 + 0.1 * seed),
        fake("second", lambda seed: -2.0 + 0.1 * seed),
        fake("third", lambda seed: (-1.0) ** seed),
    ]
    result = command(monkeypatch, out, *three)
    assert result.exit_code == 0, result.output
    table = (out / "verdicts.md").read_text()
    for name, parts in (
        ("first", "1 of 1 measured part seen"),
        ("second", "0 of 1 measured part seen, 1 reversed"),
        ("third", "0 of 1 measured part seen, 1 not seen at this scale"),
    ):
        claim = rf"{name} claims \| something."
        assert f"| [{name}](#{name}) | {claim} | {parts} | [{name}.png]({name}.png) |" in table
        assert Image.open(out / f"{name}.png").info["Description"].startswith(f"{name} claims")
        assert read(out / f"{name}.csv")["arm"].tolist() == ["0.50"] * 3  # a name, and no number
    assert "- measured: value: +1.1 (by seed +1 to +1.2, smallest effect of interest 0.5), seen\n" in table
    assert "**In all 1 of 3 measured parts seen, 1 not seen at this scale, 1 reversed.**" in table
    assert asked == [0, 1, 2]
    (out / "trials/first-1.csv").unlink()
    assert command(monkeypatch, out, *three, which="first").exit_code == 0
    assert asked == [0, 1, 2, 1] and (out / "verdicts.md").read_text() == table
    assert command(monkeypatch, out, *three, seeds=4, which="first").exit_code == 0
    assert asked == [0, 1, 2, 1, 3]


def test_a_new_claim_joins_the_table_of_a_folder_and_no_other_runs_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rlviz.runs.arms.draw_claim", lambda *of: None)
    monkeypatch.setattr("rlviz.page.style.save_figure", lambda figure, file, **_: file.touch())
    asked = []
    old, new = fake("old", lambda seed: asked.append(seed) or 1.0 + 0.1 * seed), fake("new")
    assert command(monkeypatch, tmp_path, new, which="new").exit_code == 0
    assert not (tmp_path / "verdicts.md").exists()  # a folder of one claim has no table
    assert command(monkeypatch, tmp_path, old).exit_code == 0
    shutil.rmtree(tmp_path / "trials")  # which is not committed
    assert command(monkeypatch, tmp_path, old, new, which="new").exit_code == 0
    table = (tmp_path / "verdicts.md").read_text()
    assert asked == [0, 1, 2] and table.index("| [old](#old) |") < table.index("| [new](#new) |")
    assert command(monkeypatch, tmp_path, old, new).exit_code == 0
    assert (tmp_path / "verdicts.md").read_text() == table
    result = command(monkeypatch, tmp_path, old, new, seeds=4, which="new")
    assert "stays as it is: it has no 4 seeds of old." in " ".join(result.output.split())
    assert (tmp_path / "verdicts.md").read_text() == table


def test_a_trial_that_fails_leaves_those_that_are_done(tmp_path, monkeypatch):
    result = command(monkeypatch, tmp_path, fake("first"), fake("broken", lambda seed: 1 / 0), seeds=2)
    assert result.exit_code != 0
    assert [file.name for file in (tmp_path / "trials").iterdir()] == ["first-0.csv"]
    assert not (tmp_path / "verdicts.md").exists()


def test_trials_of_the_version_before_are_read(tmp_path):
    """They were written like these: NAME-SEED.csv in trials/, six digits, the seed as a column."""
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials/first-0.csv").write_text("arm,value,seed\n0.50,7,0\n")
    trials = Trials([fake("first")], range(2), tmp_path)
    assert [job.key for job in trials.missing] == [("first", 1)] and list(trials) == [("first", 1)]
    assert trials.frame(fake("first"))["value"].tolist() == [7.0, 1.1]


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
    result = CliRunner().invoke(app, ["experiment", *arguments])
    assert result.exit_code == 2
    assert sentence in " ".join(unstyle(result.output).replace("│", " ").split())


def test_the_list_names_every_claim():
    result = CliRunner().invoke(app, ["experiment", "--list"], env={"COLUMNS": "400"})
    assert result.exit_code == 0 and all(each.name in result.output for each in CLAIMS)
