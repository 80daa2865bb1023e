"""Real runs among one's own: logs of TRL and verl, damage in a sentence each."""

from __future__ import annotations

import json
import math
import re
import sys

import pytest

from rlviz import RunFolder, diagnose, inspect_run
from rlviz.runs import import_run, logs
from rlviz.runs.learning import plot_learning_curves
from rlviz.runs.logs import BEFORE
from tests.interop.batch import HERE, frozen
from tests.runs import trl_runs

# of TRL 1.16.0's own trainer on `chain`, some columns left out: a training line an update, an evaluation, the line at the end
TRL = [
    {"loss": -0.01, "grad_norm": 1.5, "learning_rate": 3e-4, "reward": 0.375, "completions/mean_length": 5.3,
     "rewards/accuracy_reward/mean": 0.375, "clip_ratio/low_mean": 0.0, "entropy": 0.63, "epoch": 0.1, "step": 1},
    {"loss": math.nan, "grad_norm": 2.5, "learning_rate": 2e-4, "entropy": 0.62, "clip_ratio/low_mean": 0.1, "step": 2},
    {"eval_reward": 0.5, "eval_rewards/accuracy_reward/mean": 0.5, "step": 2},
    {"train_runtime": 1.2, "train_loss": 0.1, "step": 2},
]  # fmt: skip
VERL = [
    (1, {"critic/rewards/mean": 0.3, "actor/pg_loss": 0.1, "actor/pg_clipfrac": 0.02, "actor/lr": 1e-6}),
    (2, {"critic/rewards/mean": 0.4, "actor/grad_norm": None, "val-core/openai/gsm8k/acc/mean@1": 0.45}),
]


@pytest.fixture
def trl_run(tmp_path):
    """Return the folder of a run of TRL with two checkpoints, of which the later one has all."""
    for step, history in ((1, TRL[:1]), (2, TRL)):
        folder = tmp_path / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}, indent=2))
    return tmp_path / "out"


def test_a_log_of_trl(trl_run, tmp_path):
    run = import_run(trl_run, tmp_path / "run")
    assert run.source == "trl" and run.others == ("epoch", "eval_reward", "train_loss", "train_runtime")
    frame = RunFolder.open(tmp_path / "run").metrics
    assert frame["step"].tolist() == [1, 2] and frame["lr"].tolist() == [3e-4, 2e-4]
    assert (frame["reward"][0], frame["accuracy"][0], frame["held_out_accuracy"][1]) == (0.375, 0.375, 0.5)
    assert math.isnan(frame["reward"][1]) and math.isnan(frame["loss"][1])
    assert frame[["tokens_sampled", "rounds"]].isna().all(axis=None)  # stand as 0 in the file, and are not known
    assert {"kl", "rounds", "tokens_sampled"} < set(run.lacking) and not {"reward", "entropy"} & set(run.lacking)
    saved, log = diagnose(tmp_path / "run"), diagnose(trl_run)
    assert saved.findings == log.findings and (saved.findings[0].rule, saved.findings[0].step) == ("not_finite", 2)
    assert saved.lacking == run.lacking and "not recorded: seconds, well_formed, truncated, kl" in saved.summary
    assert len(plot_learning_curves(frame).axes) > 1


def test_of_two_lines_of_a_step_the_first_one_s_number_stays(tmp_path):
    """TRL evaluates after it has logged a step, and logs at the end of it all once more."""
    rows = [{"step": 1, "reward": 0.4, "kl": 0.1}, {"step": 1, "reward": 0.9, "eval_rewards/accuracy/mean": 0.5}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    (row,) = import_run(tmp_path).rows
    assert row == {"step": 1, "reward": 0.4, "kl": 0.1, "held_out_accuracy": 0.5}


def test_completions_of_trl(trl_run, tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow comes with rlviz[trl]")
    from pyarrow import parquet

    rows = {"step": [1] * 4, "prompt": ["1=", "1=", "2=", "2="], "completion": ["#1", "#7", "#2", "#2"],
            "accuracy_reward": [1.0, 0.0, 1.0, 1.0], "advantage": [0.7, -0.7, 0.0, 0.0]}  # fmt: skip
    (trl_run / "completions").mkdir()
    parquet.write_table(pyarrow.table(rows), trl_run / "completions" / "completions_00001.parquet")
    (group, other) = import_run(trl_run, tmp_path / "run").groups[1]
    assert (
        [(r.text, r.correct, r.advantage) for r in group.responses] == [("#1", True, 0.7), ("#7", False, -0.7)]
        and group.prompt == "1="
        and len(other.responses) == 2
    )
    inspector = inspect_run(tmp_path / "run")
    assert inspector.caption.startswith(
        "Step 1 of 2. TRL's GRPOTrainer or RLOOTrainer: reward 0.38, entropy 0.63 nats, "
    )
    assert inspector.caption.endswith("Its log was imported, and tokens were not logged.")
    assert inspector.run["tokens"] == []
    assert "not recorded" in json.dumps(inspector.data) and inspector.run["at"] == [1, 2]
    inspector.place = [2, 0, 0, 0]
    assert inspector.data["runs"][0]["groups"] == []
    (trl_run / "completions" / "completions_00002.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"completions_00002\.parquet is no whole parquet file"):
        import_run(trl_run)


def test_completions_without_pyarrow(trl_run, monkeypatch):
    (trl_run / "completions").mkdir()
    (trl_run / "completions" / "completions_00001.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = import_run(trl_run)
    assert "1 files of completions were not read" in run.notes[0] and not run.groups and len(run.rows) == 2


def test_a_completion_is_right_above_a_half_by_the_first_function():
    rows = [{"completion": "#1", "right": right, "short": 1.0, "advantage": 0.7} for right in (0.5, 0.6, 0.0)]
    responses = logs._group(rows).responses
    assert [(r.correct, r.reward) for r in responses] == [(False, 1.5), (True, 1.6), (False, 1.0)]


def test_a_log_of_pairs(tmp_path):
    row = {"loss": 0.69, "rewards/margins": 0.1, "rewards/accuracies": 0.6, "rewards/chosen": 0.2, "step": 1}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": [row, row | {"step": 2, "loss": 0.6}]}))
    import_run(tmp_path / "trainer_state.json", tmp_path / "run")
    records = RunFolder.open(tmp_path / "run").records()
    assert [(r.margin, r.pair_accuracy) for r in records] == [(0.1, 0.6)] * 2 and math.isnan(records[0].pull)


def test_a_log_that_verl_wrote(tmp_path):
    """By verl 0.9.1's own loss, metrics and FileLogger, on batch.safetensors."""
    run = import_run(HERE / "verl.jsonl", tmp_path / "run")
    batch, (first, second) = frozen(), run.rows
    assert first["reward"] == batch.correct.mean() and first["truncated"] == 1 / 64  # one fills its row
    assert first["response_length"] == batch.mask.sum() / 64 and (first["seconds"], second["seconds"]) == (3.0, 4.0)
    old, ref = (logp[batch.mask] for logp in (batch.old_logp, batch.ref_logp))
    kl = ((ref - old).exp() - (ref - old) - 1).mean()  # k3 of the reference
    assert [first["kl"], first["loss"]] == pytest.approx([float(kl), 0.001 * float(kl)], rel=1e-5)
    off = ((old - ref).exp() - (old - ref) - 1).mean()  # where the reference sampled: verl's rollout_corr/k3_kl
    assert first["mismatch_kl"] == pytest.approx(float(off), rel=1e-5) and {"lr", "entropy", "grad_norm"} < set(first)
    assert "held_out_accuracy" not in first and second["held_out_accuracy"] == first["reward"]
    assert {"explained_variance"} < set(first) and run.notes == (BEFORE,)
    assert {"actor/pg_clipfrac", "critic/score/mean"} < set(run.others) and "actor/loss" not in run.others
    assert diagnose(tmp_path / "run").steps == 2


def test_a_log_of_verl_that_was_cut_short(tmp_path):
    rows = [json.dumps({"step": step, "data": data}) for step, data in VERL]
    (tmp_path / "exp.jsonl").write_text("\n".join([*rows, '{"step": 3, "da']))
    run = import_run(tmp_path, tmp_path / "run")
    assert math.isnan(run.rows[1].pop("grad_norm"))  # verl's logger writes null for a number that is not finite
    assert run.rows == (
        {"step": 1, "reward": 0.3, "loss": 0.1, "lr": 1e-6},
        {"step": 2, "reward": 0.4, "held_out_accuracy": 0.45},
    )
    assert run.others == ("actor/pg_clipfrac",)  # both sides of the clip in one number, which is neither of ours
    assert diagnose(tmp_path / "run").steps == 2


NAMES = ("reward", "kl", "completions/clipped_ratio", "rewards/right/mean", "rewards/long/mean")
ROWS = [{"step": 5 * n, "reward": 0.1 * n, "kl": 1e-3 * n, "completions/clipped_ratio": 0.5, "rewards/right/mean": 0.25,
         "rewards/long/mean": -0.5} for n in (1, 2, 3)]  # fmt: skip


def table(head, lines):
    return "\n".join(",".join(map(str, line)) for line in (head, *lines))


STEPS = [row["step"] for row in ROWS]
WRITTEN = {  # file → its text
    "TRL": {"trainer_state.json": json.dumps({"log_history": ROWS})},
    # as W&B's web page exports panels: RUN - METRIC, the least and the largest beside each
    "W&B's table": {
        "wandb_export.csv": table(
            ["train/global_step", *(f"grpo-7 - train/{name}{end}" for name in NAMES for end in ("", "__MIN", "__MAX"))],
            [[f'"{row["step"]}"', *(f'"{row[name]}"' for name in NAMES for _ in range(3))] for row in ROWS],
        )
    },
    # as `run.history()` gives it: a row a call of log, of which an evaluation has one, too
    "W&B's history": {
        "history.csv": table(
            ["", "_step", "train/global_step", *(f"train/{name}" for name in NAMES), "eval/runtime"],
            [
                *([n, n, row["step"], *(row[name] for name in NAMES), ""] for n, row in enumerate(ROWS)),
                [3, 3, 15, *[""] * 5, 2.5],
            ],
        )
    },
    "W&B's rows": {
        "history.jsonl": "\n".join(
            json.dumps({"_step": n, "train/global_step": row["step"], **{f"train/{name}": row[name] for name in NAMES}})
            for n, row in enumerate(ROWS)
        )
    },
    "TensorBoard's tables": {
        f"run-grpo-tag-train_{name.replace('/', '_')}.csv": table(
            ["Wall time", "Step", "Value"], [["1.7e9", row["step"], row[name]] for row in ROWS]
        )
        for name in NAMES
    },
}


@pytest.mark.parametrize("files", WRITTEN.values(), ids=WRITTEN)
def test_one_run_however_it_was_written(files, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run = import_run(tmp_path)
    assert [row["step"] for row in run.rows] == STEPS and run.source == "trl"
    columns = {"reward": [0.1, 0.2, 0.3], "kl": [1e-3, 2e-3, 3e-3], "truncated": [0.5] * 3, "part:right": [0.25] * 3}
    for column, values in (columns | {"part:long": [-0.5] * 3}).items():
        assert run.logged[column].tolist() == pytest.approx(values)


def test_points_of_tensorboard_as_json(tmp_path):
    (tmp_path / "run-.-tag-actor_kl_loss.json").write_text("[[1.7e9, 1, 0.25], [1.7e9, 2, NaN]]")
    run = import_run(tmp_path / "run-.-tag-actor_kl_loss.json")
    assert run.source == "verl" and [row["step"] for row in run.rows] == [1, 2]
    assert run.rows[0]["kl"] == 0.25 and math.isnan(run.rows[1]["kl"])


def test_what_verl_printed(tmp_path):
    """Its own line, behind what Ray puts before it; numbers of numpy are printed with their type."""
    text = (
        "(TaskRunner pid=42) step:1 - critic/rewards/mean:0.5 - actor/grad_norm:np.float64(1.5e-02) - perf/x:3\n"
        "Training Progress:  50%|█████     | 1/2\n"
        "(TaskRunner pid=42) step:2 - critic/rewards/mean:-0.25 - actor/grad_norm:nan - val-core/gsm8k/acc/mean@1:0.75\n"
    )
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    run = import_run(tmp_path)
    assert run.rows[0] == {"step": 1, "reward": 0.5, "grad_norm": 0.015} and run.others == ("perf/x",)
    assert run.rows[1]["reward"] == -0.25 and math.isnan(run.rows[1]["grad_norm"])
    assert run.rows[1]["held_out_accuracy"] == 0.75


def test_what_trl_printed(tmp_path):
    """transformers prints numbers as texts since version 5, as numbers before; of steps neither says anything."""
    lines = [
        "loading",
        "{'loss': '0.1', 'reward': '0.5', 'kl': 'nan'}",
        "  3%|█ | 3/9 {'loss': 0.2, 'reward': nan, 'kl': -1e-05}",
        "{'train_runtime': 3}",
    ]
    (tmp_path / "slurm.txt").write_text("\n".join(lines), encoding="utf-8")
    first, second = import_run(tmp_path).rows
    assert first["step"] == 1 and first["reward"] == 0.5 and math.isnan(first["kl"])
    assert second["step"] == 2 and math.isnan(second["reward"]) and second["kl"] == -1e-5


def test_a_place_in_the_inspector_may_be_a_step_alone(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"step": {n}, "data": {{"critic/rewards/mean": 0.5}}}}\n' for n in (1, 2))
    )
    import_run(tmp_path / "a.jsonl", tmp_path / "run")
    inspector = inspect_run(tmp_path / "run")
    inspector.place = [1]
    assert inspector.place == [1, 0, 0, 0] and "Step 1 of 2." in inspector.caption


def test_a_report(rlviz, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps({"log_history": trl_runs.read()["long pays"]}))
    import_run(tmp_path / "out", tmp_path / "run")  # which keeps what diagnose looks at
    result = rlviz("diagnose", tmp_path / "run", "--out", tmp_path / "report.html")
    assert result.exit_code == 0 and "Warning: The reward" in result.stdout and "Written" in result.stdout
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "pays 100 % less than at first" in text and not re.search(r"https?://(?!www\.w3\.org)", text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", '{"log_history": [{"loss": 1}]}', "log_history[0] must be an object with a step"),
        ("a.json", '{"log_history": [{"step": 1, "x": 1}]}', "has none of the metrics that are known: reward, loss"),
        ("a.jsonl", '{"step": 1}\n{"step": 2, "data": {}}', "line 1 must be an object with a step"),
        ("a.jsonl", '{"step": 1e400, "data": {}}\n{}', "too large"),
        ("a.json", '{"a": 1}', "is no log of TRL: it has no log_history"),
        ("a.csv", "x,y\n1,2\n", "line 2 must have a step: a column train/global_step"),
        ("tag-reward.csv", "Wall time,Step,Value\n0,first,1\n", "points of a time, a step and a value; got step 'first'"),
        ("a.txt", "{'loss': open('x')}", "has none of the metrics that are known"),
    ],
)  # fmt: skip
def test_damage_in_a_sentence(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        import_run(tmp_path / name, tmp_path / "run")
    assert name in str(caught.value) and not (tmp_path / "run").exists()


def test_the_command(rlviz, trl_run, tmp_path):
    result = rlviz("import", trl_run, "--out", tmp_path / "run")
    assert result.exit_code == 0 and "2 steps up to step 2" in result.stdout
    assert (tmp_path / "run" / "learning_curves.png").stat().st_size > 10_000
    for path, words in (
        (tmp_path / "nothing", "is not there"),
        (tmp_path, "has no log in it. Known are trainer_state.json of TRL"),
        (tmp_path / "run", "is a run of rlviz already"),
    ):
        refused = rlviz("import", path)
        assert refused.exit_code == 2 and words in " ".join(refused.stderr.split())
    assert "is not empty" in rlviz("import", trl_run, "--out", tmp_path / "run").stderr
    rows = json.loads(rlviz("diagnose", tmp_path / "run", "--format", "json").stdout)
    assert [row["rule"] for row in rows] == ["not_finite"]  # of the loss of step 2
