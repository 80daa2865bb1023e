"""Carried runs in two processes (gloo, on the CPU) against the same runs in one: weights, records, logs, a run that was cut
off. Skipped without TRL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlviz.training import RunFolder
from small_models.policies import load_policy

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")
pytest.importorskip("datasets", reason="datasets comes with TRL")
ROOT = Path(__file__).parents[2]
NAMES = (
    "GRPO", "DAPO", "Lite PPO", "DCPO", "Dr.GRPO", "REINFORCE++", "KL-Cov", "Own", "straddling", "threes", "minibatches",
)  # fmt: skip
WHOLE = ("GRPO", "DAPO", "Lite PPO", "DCPO", "REINFORCE++", "Own", "straddling")  # without accumulated parts
SCRIPT = ("-m", "tests.interop.in_processes")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folders of the runs in one process and in two."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *SCRIPT)
    told = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    told = {name: value for name, value in told.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    processes = []
    for folder, command in zip(folders, (SCRIPT, launch), strict=True):
        log = (folder / "log").open("w")
        whole = [sys.executable, "-W", "ignore", *command, str(folder)]
        processes.append(subprocess.Popen(whole, cwd=ROOT, env=told, stdout=log, stderr=subprocess.STDOUT))
    try:
        ended = [process.wait(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.terminate()
    assert ended == [0, 0], [(folder / "log").read_text()[-3000:] for folder in folders]
    return folders


def apart(one, two):
    """Return the largest difference between two files of weights."""
    own, other = load_file(one), load_file(two)
    return max(float((own[name] - other[name]).abs().max()) for name in own)


def records(folder):
    """Return the lines of a run's records, without the time that they took."""
    lines = {}
    for name in ("metrics", "samples"):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        lines[name] = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    return lines


def is_near(own, other):
    """Return whether two values of JSON are the same but for rounding."""
    if isinstance(own, dict):
        return own.keys() == other.keys() and all(is_near(own[key], other[key]) for key in own)
    if isinstance(own, list):
        return len(own) == len(other) and all(map(is_near, own, other))
    return own == (pytest.approx(other, rel=1e-5, abs=1e-9) if isinstance(own, float) else other)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_give_the_weights_of_one(name, runs):
    """6 updates by Adam in float64: 1e-14 apart. With the shares of processes weighed by themselves 1e-3."""
    one, two = (folder / f"{name}.safetensors" for folder in runs)
    start = load_policy("chain", device="cpu").model.double().state_dict()
    moved = max(float((value - start[key]).abs().max()) for key, value in load_file(one).items())
    assert apart(one, two) < 1e-12 and moved > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_main_process_writes_the_records_of_one(name, runs):
    one, two = (records(folder / name) for folder in runs)
    assert [row["step"] for row in two["metrics"]] == [1, 2, 3] and two["samples"][1]["groups"][0]["responses"][0][
        "tokens"
    ]
    assert is_near(one, two)


@pytest.mark.parametrize("name", WHOLE)
def test_the_log_is_that_of_one(name, runs):
    """Of accumulated parts TRL logs the mean of means, which depends on how responses were shared out."""
    one, two = (json.loads((folder / f"{name}.json").read_text()) for folder in runs)
    assert len(one) == len(two) == 7
    for own, other in zip(one[:6], two[:6], strict=True):
        assert own.keys() == other.keys()
        for key in own.keys() - {"step_time"}:
            assert own[key] == pytest.approx(other[key], rel=1e-5, abs=1e-6), key


def test_dynamic_sampling_had_to_go_on(runs):
    for name in ("DAPO", "straddling", "threes"):
        told = RunFolder.open(runs[1] / name).records()
        assert all(record.rounds > 1 and record.responses_used < record.responses_sampled for record in told), name


def test_a_run_that_was_cut_off_goes_on_in_two_processes(runs):
    """After update 5 of 6; its checkpoint of update 4 has the history of two rollouts, once."""
    one, two = runs
    assert apart(one / "DCPO.safetensors", two / "resumed.safetensors") < 1e-12
    assert is_near(records(one / "DCPO"), records(two / "resumed"))
    history = json.loads((two / "resumed.trl" / "checkpoint-4" / "rlviz_history.json").read_text())
    visits = [told["visits"][0] for told in history.values()]
    assert sum(visits) == 8 and max(visits) == 2
