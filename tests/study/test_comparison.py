"""Comparisons at equal budgets: the statistics by hand and by enumeration, the budgets, stopping and going on, the picture."""

import json
import re
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlviz import DAPO, DPO, GRPO, PPO, PairSettings, TrainSettings, spread, train
from rlviz.runs.comparison import alt, looks, plot_comparison
from rlviz.study.comparison import Comparison, Contender, compare, read_comparison
from rlviz.study.difference import bootstrap, bootstrap_of_the_difference, interval, iqm
from rlviz.training import RunFolder, budget, resume, step as one_step
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain, Sort

NO_KL = replace(GRPO, kl=None)
TINY = TrainSettings(num_prompts=2, group_size=4, details_every=0)
BOTH = [Contender("GRPO", NO_KL, TINY), Contender("DAPO", DAPO, TINY)]


@pytest.fixture(autouse=True)
def _few_held_out_prompts(monkeypatch):
    """Evaluations on 40 prompts instead of 1000; processes of their own keep to 1000."""

    def fewer(policy, task, **settings):
        return evaluate(policy, task, num_prompts=40, **settings)

    monkeypatch.setattr(budget, "evaluate", fewer)


# statistics


def slow_iqm(scores):
    """Take away lowest and highest in turn, a quarter of the scores at each end at most."""
    left = list(scores)
    for _ in range(len(scores) // 4):
        left.remove(min(left))
        left.remove(max(left))
    return sum(left) / len(left)


def test_interquartile_mean_by_hand():
    assert iqm([0.9, 0.1, 0.5, 0.7, 0.3]) == pytest.approx(0.5)  # of .3 .5 .7
    assert iqm([0.0, 0.1, 1.0]) == pytest.approx(1.1 / 3)  # a quarter of three is less than one: all
    assert iqm([0.0, 0.2, 0.4, 9.0]) == pytest.approx(0.3)
    assert iqm([5.0]) == 5.0


@pytest.mark.parametrize("count", range(1, 14))
def test_interquartile_mean_against_taking_away_one_by_one(count):
    scores = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(iqm(scores), [slow_iqm(row) for row in scores])


@pytest.mark.parametrize("scores", [[0.1, 0.7, 0.2, 1.0], [0.5, 0.4, 0.9, 0.3, 0.35]])
def test_bootstrap_against_all_draws(scores):
    every = [slow_iqm(drawn) for drawn in product(scores, repeat=len(scores))]  # each as likely as the next
    low, high = interval(bootstrap(scores))
    assert (low, high) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.02)
    assert bootstrap(scores).mean() == pytest.approx(np.mean(every), abs=0.01)
    assert min(scores) <= low < high <= max(scores)


def test_of_three_seeds_the_interval_is_lowest_to_highest():
    assert interval(bootstrap([0.2, 0.5, 0.9])) == pytest.approx(
        (0.2, 0.9)
    )  # all three draws the lowest: 1 of 27, more than 2.5 %


def test_the_difference_is_spread_by_what_few_draws_lack():
    """The variance of the mean of n draws of n is (n − 1)/n · s²/n; √(n/(n − 1)) further out it is s²/n, of both sides together
    s²/n + s²/n. Of three scores the IQM is the mean."""
    one, two = [0.1, 0.2, 0.6], [0.3, 0.5, 1.0]
    results = bootstrap_of_the_difference(two, one)
    assert results.mean() == pytest.approx(0.3, abs=0.01)
    assert results.var() == pytest.approx(np.var(one, ddof=1) / 3 + np.var(two, ddof=1) / 3, rel=0.05)


def frame_of(ends, *, steps=2, start=0.3):
    """Contender → last accuracies of its seeds; each run takes 10 responses and 1 update a step."""
    rows = []
    for name, accuracies in ends.items():
        for seed, accuracy in enumerate(accuracies):
            for step in range(steps + 1):
                measured = {0: start, steps: accuracy}.get(step, np.nan)
                spent = {"responses": 10.0 * step, "updates": float(step), "seconds": 0.5 * step}
                row = {"contender": name, "seed": seed, "step": step, **spent, "held_out_accuracy": measured}
                rows.append(row)
    return pd.DataFrame(rows)


def comparison_of(ends, budget="responses", amount=20.0):
    return Comparison(frame_of(ends), "chain", budget, amount)


def test_equals_do_not_exceed_the_spread():
    ends = [0.80, 0.82, 0.84, 0.86, 0.88]
    made = comparison_of({"one": ends, "two": ends})
    (row,) = made.differences().to_dict("records")
    assert row["difference"] == 0 and row["low"] < 0 < row["high"] and row["exceeds"] is False
    (sentence,) = made.verdict()
    assert "two ends level with one" in sentence
    assert "does not exceed the seeds' spread." in sentence


def test_what_lies_apart_exceeds_it_and_the_numbers_are_said():
    ends = {"one": [0.50, 0.52, 0.54, 0.56, 0.58], "two": [0.90, 0.92, 0.94, 0.96, 0.98], "three": [0.1] * 5}
    first, second = comparison_of(ends).differences().to_dict("records")
    assert first["difference"] == pytest.approx(0.94 - 0.54)
    assert 0.3 < first["low"] < 0.4 < first["high"] < 0.5 and first["exceeds"] is True
    assert second["difference"] == pytest.approx(-0.44) and second["against"] == "one"
    assert -0.5 < second["low"] < -0.44 < second["high"] < -0.4 and second["exceeds"] is True


def limits_by_all_draws(scores, others):
    """Return the middle 95 % of the difference of two IQMs over all draws of each side, moved out by √(n/(n − 1))."""
    sides = []
    for side in (scores, others):
        every = np.array([slow_iqm(drawn) for drawn in product(side, repeat=len(side))])
        sides.append(slow_iqm(side) + (len(side) / (len(side) - 1)) ** 0.5 * (every - slow_iqm(side)))
    return np.quantile(np.subtract.outer(*sides), [0.025, 0.975])


SPREAD_ENDS = [0.50, 0.53, 0.54, 0.57, 0.58]


@pytest.mark.parametrize(
    ("shift", "where", "verdict"),
    [
        (0.2, "0.200 above one", "exceeds"),
        (-0.2, "0.200 below one", "exceeds"),
        (0.01, "0.010 above one", "does not exceed"),
        (-0.01, "0.010 below one", "does not exceed"),
        (0.0004, "level with one", "does not exceed"),
        (-0.0004, "level with one", "does not exceed"),
    ],
)
def test_the_sentence_is_whole_whichever_is_better(shift, where, verdict):
    ends = {"one": SPREAD_ENDS, "two": [end + shift for end in SPREAD_ENDS]}
    (sentence,) = comparison_of(ends).verdict()
    low, high = (float(number) for number in re.findall(r"[+-][0-9.]+", sentence))
    assert sentence == (
        f"two ends {where} (95 % interval {low:+.3f} to {high:+.3f}): this {verdict} the seeds' spread."
    )
    assert (low, high) == pytest.approx(limits_by_all_draws(ends["two"], ends["one"]), abs=0.008)


def test_of_three_seeds_it_is_said_that_they_are_few_and_of_two_nothing():
    three = {"one": [0.1, 0.2, 0.3], "two": [0.7, 0.8, 0.9]}
    assert "one pair of equals in eight would pass for different" in comparison_of(three).verdict()[0]
    equal = dict.fromkeys(three, three["one"])
    assert comparison_of(equal).verdict()[0].endswith("this does not exceed the seeds' spread.")
    two = comparison_of({name: scores[:2] for name, scores in three.items()})
    assert two.differences()["exceeds"].tolist() == [None]
    assert two.verdict() == ["two ends 0.600 above one; 2 seeds of a side are too few to say more."]


@pytest.mark.parametrize(("seeds", "wrong"), [(3, 0.12), (5, 0.05), (10, 0.04)])
def test_how_often_equals_pass_for_different_is_as_documented(seeds, wrong, monkeypatch):
    monkeypatch.setattr(spread, "RESAMPLES", 1000)
    random = np.random.default_rng(0)
    pairs = 500
    found = 0
    for _ in range(pairs):
        one, two = random.normal(size=(2, seeds))
        low, high = interval(bootstrap_of_the_difference(two, one))
        found += not low <= 0 <= high
    assert found / pairs == pytest.approx(wrong, abs=3 * (wrong * (1 - wrong) / pairs) ** 0.5)


def test_the_table_by_hand():
    made = comparison_of({"one": [0.5, 0.9, 0.6, 0.7, 0.1]}, amount=20.0)
    (row,) = made.table().to_dict("records")
    assert row["runs"] == 5
    assert row["iqm"] == pytest.approx(0.6)
    assert row["mean"] == pytest.approx(0.56)
    assert (row["lowest"], row["highest"]) == (0.1, 0.9)
    assert (row["responses"], row["updates"], row["seconds"]) == (20.0, 2.0, 1.0)
    assert 0.1 <= row["low"] < 0.6 < row["high"] <= 0.9


def test_between_evaluations_it_interpolates_and_beyond_them_it_refuses():
    made = comparison_of({"one": [0.7]}, amount=15.0)  # .3 at 0, .7 at 20 responses
    (row,) = made.at_budget().to_dict("records")
    assert row["held_out_accuracy"] == pytest.approx(0.6)
    assert (row["responses"], row["updates"], row["seconds"]) == (15.0, 1.5, 0.75)
    assert comparison_of({"one": [0.7]}, "seconds", 0.25).at_budget()["held_out_accuracy"][0] == pytest.approx(0.4)
    with pytest.raises(ValueError, match="evaluations of one, seed 0, reach from 0 to 20 responses; got 21"):
        comparison_of({"one": [0.7]}, amount=21.0).at_budget()


def test_curves_lie_where_all_seeds_have_evaluations():
    frame = frame_of({"one": [0.7, 0.9, 0.5]})
    frame = frame[(frame["seed"] != 0) | (frame["step"] > 0)]  # of seed 0 no start
    frame.loc[(frame["seed"] == 0) & (frame["step"] == 1), "held_out_accuracy"] = 0.4
    curves = Comparison(frame, "chain", "responses", 20.0).curves(points=3)
    assert curves["responses"].tolist() == [10.0, 15.0, 20.0]
    # at 10: .4 measured, .6 and .4 between .3 and the ends; at 20 the ends
    assert curves["lowest"].tolist() == pytest.approx([0.4, 0.45, 0.5])
    assert curves["highest"].tolist() == pytest.approx([0.6, 0.75, 0.9])
    assert curves["iqm"].tolist() == pytest.approx([1.4 / 3, (0.55 + 0.75 + 0.45) / 3, 0.7])
    half = Comparison(frame, "chain", "responses", 15.0).curves(points=2)
    assert half["responses"].tolist() == [10.0, 15.0]


# running


def without_time(frame):
    return frame.drop(columns=["seconds", "step_seconds"])


def test_responses_are_equal_to_within_a_step(tmp_path):
    result = compare(BOTH, "chain", seeds=2, amount=60, out=tmp_path / "out").result()
    steps = set()
    for (_, _), run in result.frame.groupby(["contender", "seed"]):
        spent = run["responses"].to_numpy()
        assert spent[-1] >= 60 > spent[-2]
        taken = np.diff(spent)
        assert (run["responses_sampled"].to_numpy()[1:] == taken).all()
        steps.add(len(taken))
        assert run["held_out_accuracy"].notna().to_numpy()[[0, -1]].all()  # before the first step, and at the end
        assert run["updates"].tolist() == list(range(len(run)))
    assert len(steps) > 1  # dynamic sampling takes more of them in a step
    assert result.at_budget()["responses"].tolist() == [60.0] * 4
    assert result.contenders == ["GRPO", "DAPO"]
    assert (result.budget, result.amount, result.task) == ("responses", 60, "chain")


def test_evaluations_are_a_tenth_of_the_budget_apart(tmp_path):
    grpo = Contender("GRPO", NO_KL, replace(TINY, updates_per_rollout=2))
    result = compare([grpo], seeds=1, budget="updates", amount=40, out=tmp_path).result()
    measured = result.frame[result.frame["held_out_accuracy"].notna()]
    assert measured["updates"].tolist() == [0, *range(4, 41, 4)]
    assert measured["step"].tolist() == [0, *range(2, 21, 2)]


def test_other_budgets(tmp_path):
    slow = [Contender("GRPO", NO_KL, replace(TINY, updates_per_rollout=2)), Contender("PPO", PPO, TINY)]
    updates = compare(slow, seeds=1, budget="updates", amount=2, out=tmp_path / "updates").result()
    assert updates.frame.groupby("contender")["updates"].max().to_dict() == {"GRPO": 2, "PPO": 2}
    assert updates.frame.groupby("contender")["responses"].max().to_dict() == {"GRPO": 8, "PPO": 16}
    seconds = compare(BOTH, seeds=1, budget="seconds", amount=0.2, out=tmp_path / "seconds").result()
    for _, run in seconds.frame.groupby("contender"):
        assert run["seconds"].iloc[-1] >= 0.2 > run["seconds"].iloc[-2]
        assert pd.notna(run["held_out_accuracy"].iloc[-1])
    assert seconds.at_budget()["seconds"].tolist() == pytest.approx([0.2, 0.2])


def test_pairs_have_no_budget_of_responses(tmp_path):
    dpo = Contender("DPO", DPO, PairSettings(num_pairs=20, batch_size=10))
    with pytest.raises(ValueError, match="DPO learns from pairs, and its steps sample no responses; choose updates"):
        compare([BOTH[0], dpo], seeds=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    made = compare([BOTH[0], dpo], seeds=1, budget="updates", amount=2, out=tmp_path / "out").result()
    table = made.table().set_index("contender")
    assert table["updates"].tolist() == [2, 2]
    assert np.isnan(table.loc["DPO", "responses"])
    with pytest.raises(ValueError, match="DPO learns from pairs"):
        read_comparison([tmp_path / "out"])
    assert read_comparison([tmp_path / "out"], budget="updates").contenders == ["GRPO", "DPO"]


def test_a_run_is_the_one_that_train_makes(tmp_path):
    compare([BOTH[0]], seeds=[3], amount=24, out=tmp_path).result()
    run = RunFolder.open(tmp_path / "grpo-seed3")
    plain = list(train(load_policy("chain"), Chain(), NO_KL, replace(TINY, seed=3, steps=3)))
    assert run.metrics["loss"].tolist() == [record.loss for record in plain]
    assert run.metrics["grad_norm"].tolist() == [record.grad_norm for record in plain]
    assert run.config["settings"] == asdict(replace(TINY, seed=3, steps=3))
    assert len(run.records()) == 3
    assert json.loads((run.path / "summary.json").read_text())["finished"]


@pytest.mark.quick(1)
def test_stopped_and_begun_again_it_is_the_same(tmp_path):
    whole = compare(BOTH, seeds=2, amount=60, out=tmp_path / "whole").result()
    for pulled in (1, 3, 9, 14):  # within the first run, and in later ones
        comparing = compare(BOTH, seeds=2, amount=60, out=tmp_path / "parts")
        for _ in range(pulled):
            next(comparing)
        comparing.close()
        assert list(comparing) == []
    done = compare(BOTH, seeds=2, amount=60, out=tmp_path / "parts")
    assert 0 < len(done.missing) < 4
    pd.testing.assert_frame_equal(without_time(done.result().frame), without_time(whole.frame))
    again = compare(BOTH, seeds=2, amount=60, out=tmp_path / "parts")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    assert again.missing == []
    pd.testing.assert_frame_equal(without_time(again.result().frame), without_time(whole.frame))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")} == before


def test_a_run_of_an_unfinished_comparison_is_not_resumed_without_an_end(tmp_path):
    comparing = compare(BOTH[:1], seeds=[0], budget="seconds", amount=1000.0, out=tmp_path)
    next(comparing), next(comparing)
    comparing.close()
    with pytest.raises(ValueError, match="belongs to a comparison, which ends it by a budget"):
        resume(tmp_path / "grpo-seed0")
    run = resume(tmp_path / "grpo-seed0", steps=4)
    assert run.step < run.settings.steps == 4


def test_cut_off_in_the_middle_of_a_step_it_goes_on_from_the_checkpoint(tmp_path, monkeypatch):
    settings = replace(TINY, checkpoint_every=3)
    contenders = [Contender("GRPO", NO_KL, settings)]
    whole = compare(contenders, seeds=1, amount=60, out=tmp_path / "whole").result()
    for steps in (1, 5):  # before there is a checkpoint, and two steps after it
        comparing = compare(contenders, seeds=1, amount=60, out=tmp_path / "cut")
        for _ in range(steps + 1):
            next(comparing)
        with monkeypatch.context() as patched:

            def interrupted(*given):
                raise KeyboardInterrupt

            patched.setattr(one_step, "learn", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(comparing)
    last = compare(contenders, seeds=1, amount=60, out=tmp_path / "cut").result()
    pd.testing.assert_frame_equal(without_time(last.frame), without_time(whole.frame))


def test_cut_off_before_the_last_evaluation_it_only_makes_up_for_that(tmp_path):
    whole = compare(BOTH[:1], seeds=1, amount=60, out=tmp_path).result()
    folder = tmp_path / "grpo-seed0"
    *lines, last = (folder / "metrics.jsonl").read_text().splitlines()
    lines.append(json.dumps({**json.loads(last), "held_out_accuracy": None}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    again = compare(BOTH[:1], seeds=1, amount=60, out=tmp_path)
    assert len(again.missing) == 1
    (progress,) = again
    assert progress.done
    pd.testing.assert_frame_equal(again.result().frame, whole.frame)
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["steps"] = 1000  # cut off a moment later: evaluated, and not closed yet
    (folder / "config.json").write_text(json.dumps(config))
    (progress,) = compare(BOTH[:1], seeds=1, amount=60, out=tmp_path)
    assert progress.done and progress.accuracy == whole.frame["held_out_accuracy"].iloc[-1]
    assert compare(BOTH[:1], seeds=1, amount=60, out=tmp_path).missing == []


def test_more_may_be_asked_for_later(tmp_path):
    whole = compare(BOTH, seeds=2, amount=60, out=tmp_path / "whole").result()
    compare(BOTH, seeds=1, amount=30, out=tmp_path / "more").result()
    more = compare(BOTH, seeds=2, amount=60, out=tmp_path / "more")
    assert len(more.missing) == 4
    learned = more.result().frame
    for column in ("loss", "responses", "reward", "updates"):
        pd.testing.assert_series_equal(learned[column], whole.frame[column])
    less = compare(BOTH, seeds=1, amount=30, out=tmp_path / "more")
    assert less.missing == []
    assert less.result().at_budget()["responses"].tolist() == [30.0, 30.0]


def test_a_piece_of_ones_own_takes_part(tmp_path):
    def generous(old_logp):
        return old_logp.new_zeros(()), old_logp.new_full((), 3.0)

    mine = Contender("Mine, 3.0", replace(NO_KL, bounds=generous), replace(TINY, updates_per_rollout=2))
    for amount in (16, 32):
        result = compare([BOTH[0], mine], seeds=1, amount=amount, out=tmp_path).result()
    assert result.contenders == ["GRPO", "Mine, 3.0"]
    assert (tmp_path / "mine-3-0-seed0" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"contenders": []}, "contenders must be one or more"),
        ({"contenders": [*BOTH, Contender("grpo", NO_KL)]}, "names of their own, in letters or digits; got 'GRPO'"),
        ({"seeds": 0}, "seeds must be from 1 to 10,000"),
        ({"seeds": [1, 1]}, "or different numbers; got \\[1, 1\\]"),
        ({"budget": "tokens"}, "budget must be one of responses, updates, seconds; got 'tokens'"),
        ({"amount": 0}, "amount must be above 0 and finite; got 0"),
        ({"amount": float("inf")}, "amount must be above 0 and finite; got inf"),
        ({"jobs": 0}, "jobs must be at least 1; got 0"),
        ({"task": "chian"}, "task 'chian' is not known; did you mean chain"),
        ({"policy": "no-such-owner/no-such-model"}, "no folder here, no shipped policy"),
        ({"contenders": [Contender("GRPO", GRPO, replace(TINY, group_size=1))]}, "group_size must be at least 2"),
        ({"contenders": [Contender("DPO", DPO)]}, "DPO learns from pairs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_anything_is_written(given, says, tmp_path):
    given = {"contenders": BOTH, "task": "chain", "seeds": 1, **given}
    with pytest.raises(ValueError, match=says):
        compare(**given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_of_other_settings_are_left_alone(tmp_path):
    compare(BOTH, seeds=1, amount=8, out=tmp_path).result()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for contender, says in (
        (Contender("GRPO", NO_KL, replace(TINY, lr=1e-3)), "has 0.0003, and not 0.001, lr"),
        (Contender("GRPO", GRPO, TINY), "has another algorithm"),
    ):
        with pytest.raises(ValueError, match=f"grpo-seed0 {says}; name another folder"):
            compare([contender], seeds=1, amount=8, out=tmp_path)
    with pytest.raises(ValueError, match="has chain, and not sort, task"):
        compare(BOTH, "sort", "chain", seeds=1, amount=8, out=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_without_a_folder_the_same_comparison_is_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = compare(BOTH, seeds=1, amount=8)
    other = compare(BOTH, seeds=1, amount=16)
    again = compare(BOTH, seeds=2, amount=8)
    assert [made.folder.name for made in (one, other, again)] == ["compare-001", "compare-002", "compare-001"]
    assert one.folder.parent == Path("runs")


# runs on disk


def a_run(folder, algorithm=NO_KL, task=None, steps=4, **settings):
    task = task or Chain()
    chosen = replace(TINY, steps=steps, evaluate_every=2, **settings)
    return list(train(load_policy(task.name), task, algorithm, chosen, out=folder))


def test_runs_on_disk_are_grouped_by_what_they_are(tmp_path):
    for seed in (0, 1):
        a_run(tmp_path / f"grpo{seed}", seed=seed)
        a_run(tmp_path / f"fast{seed}", seed=seed, lr=1e-3)
    a_run(tmp_path / "with-kl", replace(GRPO), seed=0)
    a_run(tmp_path / "dapo", DAPO, seed=5, steps=6)
    folders = [tmp_path / name for name in ("grpo1", "fast0", "grpo0", "fast1", "dapo", "with-kl")]
    made = read_comparison(folders)
    names = ["GRPO (no kl, lr 0.0003)", "GRPO (no kl, lr 0.001)", "DAPO", "GRPO (KLInLoss, beta 0.04, k3, lr 0.0003)"]
    found = made.at_budget().groupby("contender", sort=False)["seed"].apply(list).to_dict()
    assert sorted(found.items()) == sorted(zip(names, [[0, 1], [0, 1], [5], [0]], strict=True))
    assert made.contenders[0] == names[0]
    assert made.amount == 32  # four steps of eight: as far as all of them reach
    assert read_comparison(folders, budget="updates", amount=3).at_budget()["updates"].tolist() == [3] * 6
    with pytest.raises(ValueError, match="got 33 responses"):
        read_comparison(folders, amount=33).table()


def test_a_folder_of_runs_stands_for_its_runs(tmp_path):
    result = compare(BOTH, seeds=2, amount=24, out=tmp_path).result()
    made = read_comparison([tmp_path], amount=24)
    assert made.contenders == ["GRPO", "DAPO"]  # in the comparison's order
    pd.testing.assert_frame_equal(made.table(), result.table())


def test_runs_on_disk_that_cannot_be_compared(tmp_path):
    a_run(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match="holds no run"):
        read_comparison([tmp_path / "one", tmp_path / "none"])
    with pytest.raises(ValueError, match="are the same run twice: GRPO with seed 0"):
        read_comparison([tmp_path / "one", tmp_path / "one"])
    a_run(tmp_path / "sort", task=Sort())
    with pytest.raises(ValueError, match=r"of different tasks: .*one of chain, .*sort of sort; compare within one"):
        read_comparison([tmp_path / "one", tmp_path / "sort"])
    begun = train(load_policy("chain"), Chain(), NO_KL, replace(TINY, seed=1), out=tmp_path / "begun")
    next(begun)
    with pytest.raises(ValueError, match="begun has no evaluation on held-out prompts yet"):
        read_comparison([tmp_path / "one", tmp_path / "begun"])
    (tmp_path / "begun" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json lacks task"):
        read_comparison([tmp_path / "begun"])
    with pytest.raises(ValueError, match="budget must be one of"):
        read_comparison([tmp_path / "one"], budget="tokens")


# the picture


def drawn(count=4):
    ends = {f"contender {index}": np.linspace(0.5, 0.6, 5) + 0.03 * index for index in range(count)}
    made = comparison_of(ends)
    return made, plot_comparison(made.curves(), made.table(), made.at_budget(), title="chain")


def test_lines_and_intervals_are_the_numbers():
    made, figure = drawn(2)
    left, right = figure.axes
    curves, table = made.curves(), made.table()
    assert [line.get_label() for line in left.lines] == ["contender 0", "contender 1"]
    for line, name in zip(left.lines, made.contenders, strict=True):
        of_it = curves[curves["contender"] == name]
        np.testing.assert_array_equal(line.get_xdata(), of_it["responses"])
        np.testing.assert_array_equal(line.get_ydata(), of_it["iqm"])
    band = left.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(0.3), pytest.approx(0.63))
    assert left.get_xlabel() == "responses sampled"
    spans = [line.get_xdata() for line in right.lines if line.get_linewidth() > 3]
    np.testing.assert_allclose(spans, table[["low", "high"]])
    points = [line.get_xdata()[0] for line in right.lines if line.get_marker() in "os"]
    assert points == table["iqm"].tolist()
    assert [text.get_text() for text in right.texts] == ["0.550", "0.580"]
    assert [label.get_text() for label in right.get_yticklabels()] == made.contenders


def test_contenders_differ_in_grey_and_words_are_large_and_inside():
    assert len({(looks(index)["linestyle"], looks(index)["marker"]) for index in range(11)}) == 11
    assert len({(looks(index)["linestyle"], looks(index)["color"]) for index in range(11)}) == 11
    for count in (4, 6):
        _, figure = drawn(count)
        figure.draw_without_rendering()
        words_are_large_and_inside(figure)


def words_are_large_and_inside(figure):
    right, legend = figure.axes[-1], figure.axes[0].get_legend()
    words = [*right.texts, *(legend.get_texts() if legend else [])]
    for ax in figure.axes:
        low, high = ax.get_xlim()
        words += [text for text in ax.get_xticklabels() if low <= text.get_position()[0] <= high]
        words += [*ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
    assert all(text.get_fontsize() >= 11 for text in words)
    for text in words:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0, text


def test_many_contenders_are_drawn_apart_as_differences_from_the_first():
    made, figure = drawn(6)
    *graphs, ends = figure.axes
    assert [ax.get_title() for ax in graphs] == made.contenders[1:]
    curves = {name: of_it.reset_index() for name, of_it in made.curves().groupby("contender")}
    for ax in graphs:
        mine, first = curves[ax.get_title()], curves["contender 0"]
        np.testing.assert_allclose(ax.lines[1].get_ydata(), mine["iqm"] - first["iqm"], atol=1e-12)
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert band.max() == pytest.approx((mine["highest"] - first["iqm"]).max())
        assert band.min() == pytest.approx((mine["lowest"] - first["iqm"]).min())
    assert [label.get_text() for label in ends.get_yticklabels()] == made.contenders
    assert "minus the first's" in alt(5) and "minus" not in alt(4)
