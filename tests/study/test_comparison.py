"""Comparisons at equal budgets: the verdict by hand, the budgets, cut off in a step and going on, runs on disk."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlviz import DAPO, DPO, GRPO, PPO, PairSettings, TrainSettings, train
from rlviz.study import Comparison, Contender, compare, read_comparison, unpaired
from rlviz.study.frames import select
from rlviz.training import RunFolder, resume, step as one_step
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain, Sort
from tests.study.conftest import FEW

NO_KL = replace(GRPO, kl=None)
TINY = TrainSettings(num_prompts=2, group_size=4, details_every=0)
BOTH = [Contender("GRPO", NO_KL, TINY), Contender("DAPO", DAPO, TINY)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a comparison of both over 60 responses with two seeds, made in one go, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "num_prompts", FEW)  # as in the tests, for which it is made
        return compare(BOTH, "chain", seeds=2, amount=60, out=folder).result(), folder


# the verdict


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


SPREAD_ENDS = [0.50, 0.53, 0.54, 0.57, 0.58]


@pytest.mark.parametrize(
    ("shift", "where", "exceeds"),
    [
        (0.2, "0.200 above one", True),
        (-0.2, "0.200 below one", True),
        (0.01, "0.010 above one", False),
        (-0.01, "0.010 below one", False),
        (0.0004, "level with one", False),
        (0.0, "level with one", False),
    ],
)
def test_the_sentence_is_whole_whichever_is_better(shift, where, exceeds):
    ends = {"one": SPREAD_ENDS, "two": [end + shift for end in SPREAD_ENDS], "three": [0.1] * 5}
    made, found = comparison_of(ends), unpaired([end + shift for end in SPREAD_ENDS], SPREAD_ENDS)
    row, other = made.differences().to_dict("records")
    assert row == {
        "contender": "two", "against": "one", "seeds": 5, "difference": pytest.approx(shift), "low": found.low,
        "high": found.high, "exceeds": exceeds,
    }  # fmt: skip
    assert other["difference"] == pytest.approx(0.1 - 0.54666667) and other["exceeds"] is True  # IQM of .53 .54 .57
    verdict = "exceeds" if exceeds else "does not exceed"
    assert made.verdict()[0] == (
        f"two ends {where} (95 % interval {found.low:+.3f} to {found.high:+.3f}): this {verdict} the seeds' spread."
    )


def test_of_three_seeds_it_is_said_that_they_are_few_and_of_two_nothing():
    three = {"one": [0.1, 0.2, 0.3], "two": [0.7, 0.8, 0.9]}
    assert "one pair of equals in eight would pass for different" in comparison_of(three).verdict()[0]
    equal = dict.fromkeys(three, three["one"])
    assert comparison_of(equal).verdict()[0].endswith("this does not exceed the seeds' spread.")
    two = comparison_of({name: scores[:2] for name, scores in three.items()})
    assert two.differences()["exceeds"].tolist() == [None]
    assert two.verdict() == ["two ends 0.600 above one; 2 seeds of a side are too few to say more."]


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


def test_responses_are_equal_to_within_a_step(whole):
    (result, _), steps = whole, set()
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


def test_a_run_of_an_unfinished_comparison_is_not_resumed_without_an_end(tmp_path):
    comparing = compare(BOTH[:1], seeds=[0], budget="seconds", amount=1000.0, out=tmp_path)
    next(comparing), next(comparing)
    comparing.close()
    with pytest.raises(ValueError, match="belongs to a comparison, which ends it by a budget"):
        resume(tmp_path / "grpo-seed0")
    run = resume(tmp_path / "grpo-seed0", steps=4)
    assert run.step < run.settings.steps == 4


def test_cut_off_in_the_middle_of_a_step_it_goes_on_from_the_checkpoint(whole, tmp_path, monkeypatch):
    settings = replace(TINY, checkpoint_every=3)
    contenders = [Contender("GRPO", NO_KL, settings)]
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
    last = compare(contenders, seeds=1, amount=60, out=tmp_path / "cut").result().frame
    expected = select(whole[0].frame, contender="GRPO", seed=0).dropna(axis="columns", how="all")
    pd.testing.assert_frame_equal(without_time(last).dropna(axis="columns", how="all"), without_time(expected))


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


def test_more_may_be_asked_for_later(whole, tmp_path):
    compare(BOTH, seeds=1, amount=30, out=tmp_path / "more").result()
    more = compare(BOTH, seeds=2, amount=60, out=tmp_path / "more")
    assert len(more.missing) == 4
    learned = more.result().frame
    for column in ("loss", "responses", "reward", "updates"):
        pd.testing.assert_series_equal(learned[column], whole[0].frame[column])
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


def test_a_folder_of_runs_stands_for_its_runs(whole):
    result, folder = whole
    made = read_comparison([folder], amount=60)
    assert made.contenders == ["GRPO", "DAPO"]  # in the comparison's order
    pd.testing.assert_frame_equal(made.table(), result.table())


def test_runs_on_disk_that_cannot_be_compared(tmp_path):
    a_run(tmp_path / "one")
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
