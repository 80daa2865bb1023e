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

from rlviz.algorithms import DAPO, GRPO
from rlviz.parallel import check_engine, run_on
from rlviz.settings import TrainSettings
from rlviz.study.comparison import Contender, compare
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


def files_of(folder, on, jobs):
    """Return a comparison as files: path → lines, but for seconds and the process that wrote them."""
    small = TrainSettings(num_prompts=4, group_size=2)
    contenders = [Contender("GRPO", replace(GRPO, kl=None), small), Contender("DAPO", DAPO, small)]
    heard = list(compare(contenders, seeds=1, amount=16, out=folder, jobs=jobs, on=on))
    grpo_reports = [one.done for one in heard if one.contender == "GRPO"]
    assert grpo_reports == [False, False, True]  # at first and, after each step, 8 more of 16 responses
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}
    texts = {name: re.sub(rb'seconds": [-\d.e]+', b"", file.read_bytes()) for name, file in files.items()}
    return {name: sorted(text.splitlines()) for name, text in texts.items()}


def test_files_are_equal_whatever_the_engine(on, tmp_path):
    here = files_of(tmp_path / "here", "local", 1)
    assert len(here) > 10
    assert files_of(tmp_path / "there", on, 2) == here


@posix
@pytest.mark.parametrize(("jobs", "tasks", "processes"), [(1, "abcd", 1), (3, "c", 1), (2, "abcd", 2)])
def test_results_come_while_later_tasks_go_on_and_one_at_a_time_needs_no_worker(jobs, tasks, processes, tmp_path):
    heard = []
    for report in run_on("local", answered, [tmp_path / name for name in tasks], jobs=jobs):
        heard.append(report)
        (tmp_path / "heard").touch()
    by = {process for _, process, *threads in heard if threads}
    until(lambda: not any(process != os.getpid() and alive(process) for process in by), 10)  # no worker is left
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


WRONG = {  # work → its error on a task, and the sentence
    raises: (RuntimeError, "^TornError: torn at the end$"),
    leaves: (RuntimeError, "^a task ended by itself before it was done .*; what is done is kept$"),
    dies: (RuntimeError, "^a worker died, most likely out of memory .*; what is done is kept; try fewer jobs$"),
}


@posix
@pytest.mark.parametrize("work", WRONG, ids=lambda work: work.__name__)
def test_what_goes_wrong_is_one_sentence(on, work):
    error, says = WRONG[work]
    with pytest.raises(error, match=says):
        list(run_on(on, work, ["torn", "torn"], jobs=2))
    if work is not dies:
        with pytest.raises(TornError if work is raises else error):
            list(run_on("local", work, ["torn"], jobs=1))
    assert list(run_on(on, leaves, [], jobs=2)) == []  # nothing to do needs no worker


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(ValueError, match=r"^jobs: what is to be done cannot be sent .*; use jobs=1$"):
        list(run_on("local", leaves, [(step for step in "ab")] * 2, jobs=2))


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
@pytest.mark.parametrize(("name", "number", "code"), [("local", "TERM", 143), ("ray", "INT", 130)])
def test_a_signal_keeps_the_runs_and_leaves_no_worker(name, number, code, tmp_path, request, default_signals):
    """That the same command goes on: tests/cli/test_compare.py."""
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
    until(lambda: not alive(process.pid, os.killpg))


def test_an_engine_that_is_not_installed_says_how(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"{re.escape(sys.executable)} -m pip install 'rlviz\[ray\]'$"):
        compare([Contender("GRPO", GRPO)], on="ray")


def test_a_cluster_that_cannot_be_reached_is_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", "127.0.0.1:99999", ".:80"):
            with pytest.raises(ValueError, match=rf"^on: no Ray cluster can be reached at {address} \([^\n]+\)$"):
                check_engine(f"ray:{address}")
        taken.listen()
        check_engine(f"ray:127.0.0.1:{port}")
    for wrong in ("ray:", "ray:here", "ray:127.0.0.1:port", "ray::1", "local:1"):
        with pytest.raises(ValueError, match=rf"^on must be local, ray, or ray:HOST:PORT of a cluster; got '{wrong}'$"):
            check_engine(wrong)
