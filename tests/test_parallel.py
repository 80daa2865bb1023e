"""Laws of work done at once, for every engine: in this process, by workers of this machine, on a Ray cluster."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz.algorithms import DAPO, GRPO
from rlviz.cli import app
from rlviz.parallel import check_engine, run_on
from rlviz.settings import TrainSettings
from rlviz.study import MapSettings, regime_map
from rlviz.study.comparison import Contender, compare
from small_models.evaluation import evaluate
from tests.parallel_work import TornError, answered, dies, leaves, long, raises

pytestmark = pytest.mark.all_held_out  # as workers have it, who know nothing of tests
posix = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture(scope="module")
def cluster():
    """Return the address of a Ray cluster with two workers, as `ray start --head` begins one, and write no token at home."""
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'rlviz[ray]'")
    with pytest.MonkeyPatch.context() as patch, socket.socket() as free:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        command = f"-m ray.scripts.scripts start --head --block --port={address.partition(':')[2]} --num-cpus=2"
        more = ["--include-dashboard=false", "--disable-usage-stats"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        path = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        head = subprocess.Popen([sys.executable, *command.split(), *more], **quiet, env=path)
        try:
            for _ in range(300):
                with suppress(ValueError):
                    check_engine(f"ray:{address}")
                    break
                assert head.poll() is None, "ray start --head ended"
                time.sleep(0.2)
            yield address
        finally:
            head.terminate()  # it takes its own workers along, and nobody else's as `ray stop` would
            head.wait(60)


@pytest.fixture(params=["workers", "cluster"])
def on(request):
    return "local" if request.param == "workers" else f"ray:{request.getfixturevalue('cluster')}"


def alive(process, kill=os.kill):
    with suppress(ProcessLookupError):
        return kill(process, 0) is None
    return False


def until(happens, seconds=240):
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def run_both(folder, on, jobs):
    """Return a comparison and a map as files: path → content, but for seconds and the process that wrote them."""
    small = TrainSettings(num_prompts=4, group_size=2)
    contenders = [Contender("GRPO", replace(GRPO, kl=None), small), Contender("DAPO", DAPO, small)]
    heard = list(compare(contenders, seeds=1, amount=16, out=folder / "runs", jobs=jobs, on=on))
    grpo_reports = [one.done for one in heard if one.contender == "GRPO"]
    assert grpo_reports == [False, False, True]  # at first and, after each step, 8 more of 16 responses
    pair, quick = (DAPO.without_kl(), GRPO.without_kl()), MapSettings(replicas=2, steps=2)
    regime_map(*pair, cells=(1, 2), settings=quick, out=folder / "map.csv", jobs=jobs, on=on).result()
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}
    lines = {name: sorted(file.read_bytes().splitlines()) for name, file in files.items()}  # cells come in any order
    return {name: [re.sub(rb'seconds": [-\d.e]+', b"", line) for line in of] for name, of in lines.items()}


def test_files_are_equal_whatever_the_engine(on, tmp_path):
    here = run_both(tmp_path / "here", "local", 1)
    assert len(here) > 10
    assert run_both(tmp_path / "there", on, 2) == here


@pytest.mark.parametrize(("jobs", "tasks", "processes"), [(1, "abcd", 1), (3, "c", 1), (2, "abcd", 2)])
def test_results_come_while_later_tasks_go_on_and_one_at_a_time_needs_no_worker(jobs, tasks, processes, tmp_path):
    heard = []
    for report in run_on("local", answered, [tmp_path / name for name in tasks], jobs=jobs):
        heard.append(report)
        (tmp_path / "heard").touch()
    by = {process for _, process, *threads in heard if threads}
    assert sorted(name for name, *_ in heard) == sorted(tasks * 2)
    assert (len(by), by == {os.getpid()}) == (processes, processes == 1)
    assert processes == 1 or {threads for *_, threads in heard if threads != "done"} == {1}


def test_a_cluster_gives_a_chunk_before_it_begins_the_next(cluster, tmp_path):
    heard = []
    for report in run_on(f"ray:{cluster}", answered, [tmp_path / name for name in "abcd"], jobs=2):
        heard.append(report[0])
        (tmp_path / "heard").touch()
    assert heard == [*"aabbccdd"]


@posix
def test_a_stop_ends_the_workers(on, tmp_path):
    """The quick task lets the consumer stop; of a cluster's chunk the second one, which never ends, comes later."""
    files = [tmp_path / "quick", tmp_path / "late", tmp_path / "later"]
    working = run_on(on, long, files, jobs=2 if on == "local" else 1)
    assert next(working) == "quick"
    if on == "local":
        until((tmp_path / "late.begun").exists)
    working.close()
    workers = [int(file.read_text()) for file in tmp_path.glob("*.begun")]
    until(lambda: not any(map(alive, workers)), 30)
    assert os.getpid() not in workers


@posix
def test_when_all_is_done_no_worker_is_left(tmp_path):
    """Nor any after a stop: `joblib` would let them wait for minutes, with the memory that they have."""
    heard = list(run_on("local", answered, [tmp_path / "a", tmp_path / "b"], jobs=2))
    workers = {process for _, process, *threads in heard if threads}
    assert len(workers) >= 1 and os.getpid() not in workers
    until(lambda: not any(map(alive, workers)), 10)


@posix
@pytest.mark.parametrize(
    ("work", "task", "error", "says"),
    [
        (raises, "whole", ValueError, "^this task is refused$"),
        (raises, "torn", RuntimeError, "^TornError: torn at the end$"),
        (leaves, "left", RuntimeError, "^a task ended by itself before it was done .*; what is done is kept$"),
        (
            dies,
            "dead",
            RuntimeError,
            "^a worker died, most likely out of memory .*; what is done is kept; try fewer jobs$",
        ),
        (leaves, (step for step in "ab"), ValueError, "^jobs: what is to be done cannot be sent .*; use jobs=1$"),
    ],
)
def test_what_goes_wrong_is_one_sentence(on, work, task, error, says):
    heard = []
    with pytest.raises(error, match=says):
        heard.extend(run_on(on, work, [task, task], jobs=2))
    if work in (raises, leaves):
        with pytest.raises(TornError if task == "torn" else RuntimeError if work is leaves else error):
            list(run_on("local", work, [task], jobs=1))
    assert list(run_on(on, leaves, [], jobs=2)) == []  # nothing to do needs no worker


def test_a_script_may_define_its_work_and_need_no_guard(tmp_path):
    script = "from rlviz.parallel import run_on\nclass Task: pass\ndef work(task):\n    yield task\n"
    (tmp_path / "own.py").write_text(
        f"{script}print([type(one) is Task for one in run_on('local', work, [Task()] * 2, jobs=2)])"
    )
    result = subprocess.run(
        [sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=False, timeout=240
    )
    assert result.stdout == "[True, True]\n", result.stderr


@posix
@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("local", "TERM", 143), ("local", "HUP", 129), ("ray", "INT", 130)],  # Ctrl-C: tests/study/test_runner.py
)
def test_a_signal_keeps_the_runs_and_the_same_command_goes_on(
    name, number, code, tmp_path, request, monkeypatch, default_signals
):
    on = "local" if name == "local" else f"ray:{request.getfixturevalue('cluster')}"
    what = ["compare", "--algorithms", "grpo,dapo", "--num-prompts", "2", "--group-size", "4", "--seeds", "1"]
    command = [*what, "--jobs", "2", "--out", str(tmp_path), "--on", on, "--amount", "100000"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-m", "rlviz", *command], **piped)
    metrics = [tmp_path / f"{one}-seed0" / "metrics.jsonl" for one in ("grpo", "dapo")]
    until(lambda: all(file.exists() and len(file.read_text().splitlines()) >= 3 for file in metrics))
    os.killpg(process.pid, getattr(signal, f"SIG{number}"))  # as a terminal does: to all of its processes
    _, errors = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in errors) == (code, False), errors
    assert "Stopped. The runs that are done are kept; the same command goes on." in " ".join(errors.split())
    until(lambda: not alive(process.pid, os.killpg))  # no worker is left
    steps = [len(file.read_text().splitlines()) for file in metrics]
    goes_on = ["--jobs", "1", "--out", str(tmp_path), "--amount", str(8 * (max(steps) + 2))]
    monkeypatch.setitem(evaluate.__kwdefaults__, "num_prompts", 24)
    assert CliRunner().invoke(app, [*what, *goes_on]).exit_code == 0
    for file in metrics:
        done = [int(line.partition('"step": ')[2].partition(",")[0]) for line in file.read_text().splitlines()]
        assert done == list(range(1, len(done) + 1))
    assert len(metrics[0].read_text().splitlines()) == max(steps) + 2  # DAPO may have drawn a group anew


@pytest.mark.parametrize("on", ["ray", "ray:auto"])
def test_an_engine_that_is_not_installed_says_how(on, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"{re.escape(sys.executable)} -m pip install 'rlviz\[ray\]'$"):
        compare([Contender("GRPO", GRPO)], on=on)


def test_a_cluster_that_cannot_be_reached_is_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        for address in (f"ray:127.0.0.1:{port}", f"ray://127.0.0.1:{port}", f"ray:ray://127.0.0.1:{port}"):
            with pytest.raises(ValueError, match=r"^on: no Ray cluster can be reached at .*127.0.0.1:\d+ \([^\n]+\)$"):
                check_engine(address)
        taken.listen()
        check_engine(f"ray:127.0.0.1:{port}")
    for address in ("here", "127.0.0.1:99999", "127.0.0.1:port", ":1"):
        with pytest.raises(ValueError, match=rf"at {address} \(an address is HOST:PORT"):
            check_engine(f"ray:{address}")
