"""Comparisons at equal budgets: the table by hand, budgets, runs cut in the middle of a step, folders of others, runs on disk."""

import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from rlviz import DAPO, DPO, GRPO, PairSettings, TrainSettings, train
from rlviz.study import Comparison, Contender, bootstrap_of_the_difference, compare, interval, read_comparison
from rlviz.study.budget import BudgetedRun
from rlviz.training import RunFolder, find_task, resume
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain
from tests.study.conftest import FEW

FREE = replace(GRPO, kl=None)
TINY = TrainSettings(num_prompts=2, group_size=4, details_every=0)
BOTH = [Contender("GRPO", FREE, TINY), Contender("DAPO", DAPO, TINY)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a comparison of both over 60 responses with two seeds, and its folder."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "num_prompts", FEW)
        return compare(BOTH, "chain", seeds=2, amount=60, out=folder).result(), folder


def comparison_of(ends, budget="responses", amount=20.0):
    """Compare runs of two steps, of 10 responses, 2 updates and half a second each, from .3 to these last accuracies."""
    rows = [
        {"contender": name, "seed": seed, "step": step, "responses": 10.0 * step, "updates": 2.0 * step,
         "seconds": 0.5 * step, "held_out_accuracy": (0.3, np.nan, accuracy)[step]}
        for name, accuracies in ends.items() for seed, accuracy in enumerate(accuracies) for step in range(3)
    ]  # fmt: skip
    return Comparison(pd.DataFrame(rows), "chain", budget, amount)


def test_the_table_by_hand():
    one, two = [0.5, 0.9, 0.6, 0.7, 0.1], [0.8, 0.8, 0.9, 0.8, 0.8]
    first, second = comparison_of({"one": one, "two": two}).table().to_dict("records")
    assert (first["runs"], first["lowest"], first["highest"]) == (5, 0.1, 0.9)
    assert (first["iqm"], first["mean"]) == pytest.approx((0.6, 0.56))  # of .5 .6 .7, and of all
    assert (first["responses"], first["updates"], first["seconds"]) == (20.0, 4.0, 1.0)
    every = [np.sort(draw)[1:4].mean() for draw in product(one, repeat=5)]  # each as likely as the next
    assert (first["low"], first["high"]) == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.02)
    assert np.isnan(first["difference"]) and first["exceeds"] is None
    assert second["difference"] == pytest.approx(0.2) and second["exceeds"] is False  # within one's spread
    ends = interval(bootstrap_of_the_difference(two, one))
    assert (second["difference_low"], second["difference_high"]) == ends


def test_a_sentence_says_what_the_difference_is_worth():
    low, high = [0.50, 0.53, 0.54, 0.57, 0.58], [0.70, 0.73, 0.74, 0.77, 0.78]
    for first, second, *words in (
        (low, high, "two ends 0.200 above one (95 % interval +0.", "this exceeds the seeds'"),
        (high, low, "two ends 0.200 below one (95 % interval -0.", "this exceeds the seeds'"),
        (low, low, "two ends level with one", "does not exceed the seeds' spread."),
        (low[:3], high[:3], "exceeds", "one pair of equals in eight would pass for different."),
        (low[:2], high[:2], "two ends 0.200 above one; 2 seeds of a side are too few to say more."),
    ):
        (sentence,) = comparison_of({"one": first, "two": second}).verdict()
        assert all(part in sentence for part in words), sentence


def test_between_evaluations_it_interpolates_and_beyond_them_it_refuses():
    (row,) = comparison_of({"one": [0.7]}, amount=15.0).at_budget().to_dict("records")  # .3 at 0, .7 at 20 responses
    assert row["held_out_accuracy"] == pytest.approx(0.6)
    assert (row["responses"], row["updates"], row["seconds"]) == (15.0, 3.0, 0.75)
    assert comparison_of({"one": [0.7]}, "seconds", 0.25).at_budget()["held_out_accuracy"][0] == pytest.approx(0.4)
    with pytest.raises(ValueError, match="evaluations of one, seed 0, reach from 0 to 20 responses; got 21"):
        comparison_of({"one": [0.7]}, amount=21.0).at_budget()


def test_responses_are_equal_to_within_a_step(finished):
    result, folder = finished
    losses = set()
    for _, run in result.frame.groupby(["contender", "seed"]):
        spent = run["responses"].to_numpy()
        assert spent[-1] >= 60 > spent[-2]
        assert (run["responses_sampled"].to_numpy()[1:] == np.diff(spent)).all()
        assert run["held_out_accuracy"].notna().to_numpy()[[0, -1]].all()  # before the first step, and at the end
        losses.add(run["loss"].iloc[1])
    assert len(losses) > 2  # seeds differ
    assert result.at_budget()["responses"].tolist() == [60.0] * 4
    pd.testing.assert_frame_equal(read_comparison([folder], amount=60).table(), result.table())


def test_evaluations_are_a_tenth_of_the_budget_apart(tmp_path):
    twice = Contender("Mine, 3.0", FREE, replace(TINY, updates_per_rollout=2))
    frame = compare([twice], seeds=1, amount=160, out=tmp_path).result().frame
    measured = frame[frame["held_out_accuracy"].notna()]
    assert measured["responses"].tolist() == list(range(0, 161, 16))
    assert measured["updates"].tolist() == list(range(0, 41, 4))
    assert (tmp_path / "mine-3-0-seed0" / "metrics.jsonl").exists()


def test_seconds_are_the_budget_of_those_that_sample_nothing(tmp_path):
    both = [BOTH[0], Contender("DPO", DPO, PairSettings(num_pairs=20, batch_size=10))]
    result = compare(both, seeds=1, budget="seconds", amount=0.2, out=tmp_path).result()
    for _, run in result.frame.groupby("contender"):
        assert run["seconds"].iloc[-1] >= 0.2 > run["seconds"].iloc[-2] and pd.notna(run["held_out_accuracy"].iloc[-1])
    assert np.isnan(result.table().set_index("contender").loc["DPO", "responses"])
    with pytest.raises(ValueError, match=r"DPO learns from pairs, .*choose seconds"):
        read_comparison([tmp_path])
    assert read_comparison([tmp_path], budget="seconds").contenders == ["GRPO", "DPO"]


def test_a_run_is_the_one_that_train_makes(tmp_path):
    comparing = compare([BOTH[0]], seeds=[3], amount=24, out=tmp_path)
    next(comparing), next(comparing)
    comparing.close()
    with pytest.raises(ValueError, match="belongs to a comparison, which ends it by a budget"):
        resume(tmp_path / "grpo-seed3")
    compare([BOTH[0]], seeds=[3], amount=24, out=tmp_path).finish()
    run = RunFolder.open(tmp_path / "grpo-seed3")
    plain = list(train(load_policy("chain"), Chain(), FREE, replace(TINY, seed=3, steps=3)))
    assert run.metrics[["loss", "grad_norm"]].values.tolist() == [[one.loss, one.grad_norm] for one in plain]
    assert run.config["settings"] == asdict(replace(TINY, seed=3, steps=3))
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["finished"] and summary["accuracy_after"] == run.metrics["held_out_accuracy"].iloc[-1]


def test_more_seeds_may_be_asked_for_later_and_less(finished, tmp_path):
    compare(BOTH, seeds=1, amount=60, out=tmp_path).finish()
    more = compare(BOTH, seeds=2, amount=60, out=tmp_path)
    assert len(more.missing) == 2
    frame = more.result().frame
    for column in ("loss", "responses", "reward", "updates"):
        pd.testing.assert_series_equal(frame[column], finished[0].frame[column])
    less = compare(BOTH, seeds=1, amount=60, out=tmp_path)
    assert less.missing == [] and less.result().at_budget()["responses"].tolist() == [60.0] * 2


@pytest.mark.parametrize(
    ("who", "task", "differs"), [(GRPO, "chain", "contenders"), (FREE, "sort", "task, contenders")]
)
def test_a_folder_of_another_comparison_is_left_alone(finished, who, task, differs):
    folder = finished[1]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(
        ValueError, match=f"^out: the comparison in .* has .*{differs} of its own; name another folder$"
    ):
        compare([Contender("GRPO", who, TINY)], task, "chain", seeds=1, amount=60, out=folder)
    with pytest.raises(ValueError, match=r"^out: .* is not empty, and holds no comparison; name another folder$"):
        compare([BOTH[0]], seeds=1, amount=8, out=folder / "grpo-seed0")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_runs_on_disk_are_grouped_by_what_they_are(tmp_path):
    def run(name, algorithm=FREE, task="chain", steps=4, **settings):
        settings = replace(TINY, steps=steps, evaluate_every=2, **settings)
        list(train(load_policy(task), find_task(task), algorithm, settings, out=tmp_path / name))

    for seed in (0, 1):
        run(f"grpo{seed}", seed=seed)
        run(f"fast{seed}", seed=seed, lr=1e-3)
    run("dapo", DAPO, seed=5, steps=6)
    folders = [tmp_path / name for name in ("grpo1", "fast0", "grpo0", "fast1", "dapo")]
    comparison = read_comparison(folders)
    seeds = comparison.at_budget().groupby("contender", sort=False)["seed"].apply(list).to_dict()
    names = [f"GRPO ({tmp_path / 'grpo1'})", f"GRPO ({tmp_path / 'fast0'})", "DAPO"]
    assert list(seeds.items()) == list(zip(names, ([0, 1], [0, 1], [5]), strict=True))
    assert comparison.amount == 32  # four steps of eight: as far as all of them reach
    with pytest.raises(ValueError, match="got 33 responses"):
        read_comparison(folders, amount=33).table()
    with pytest.raises(ValueError, match=r"grpo0 and .*grpo0 are the same run twice: GRPO with seed 0"):
        read_comparison(folders[2:3] * 2)
    run("sort", task="sort")
    with pytest.raises(ValueError, match=r"of different tasks: .*grpo0 of chain, .*sort of sort; compare within one"):
        read_comparison([tmp_path / "grpo0", tmp_path / "sort"])
    next(train(load_policy("chain"), Chain(), FREE, TINY, out=tmp_path / "begun"))
    with pytest.raises(ValueError, match="begun has no evaluation on held-out prompts yet"):
        read_comparison([tmp_path / "begun"])


def test_steps_in_a_folder_that_lost_its_configuration_are_not_thrown_away(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    job = BudgetedRun(tmp_path, BOTH[0], 0, Chain(), "chain", "cpu", "responses", 64)
    with pytest.raises(FileExistsError, match="is not empty"):
        next(job.run())
    assert (tmp_path / "metrics.jsonl").exists()
