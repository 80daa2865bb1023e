"""Laws of work done at once, for every engine: in this process, by workers of this machine, on a Ray cluster."""

import importlib.util
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz import parallel
from rlviz.algorithms import DAPO, GRPO
from rlviz.cli import app
from rlviz.parallel import check_engine, run_on
from rlviz.settings import TrainSettings
from rlviz.study import MapSettings, regime_map
from rlviz.study.comparison import Contender, compare
from small_models.evaluation import evaluate
from tests.parallel_work import TornError, answered, endless, killed_always, leaves, long, raises

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


def engine(name, request):
    """Return what `run_on` and the commands are given for an engine."""
    if name == "cluster":
        return f"ray:{request.getfixturevalue('cluster')}", None
    return "local", {"here": 1, "workers": 2}[name]


@pytest.fixture(params=["here", "workers", "cluster"])
def on_each(request):
    return engine(request.param, request)


@pytest.fixture(params=["workers", "cluster"])
def by_workers(request):
    return engine(request.param, request)


def made(folder, on, jobs):
    """Return a comparison and a map as files: path → content, but for seconds and the process that wrote them."""
    small = TrainSettings(num_prompts=4, group_size=2)
    contenders = [Contender("GRPO", replace(GRPO, kl=None), small), Contender("DAPO", DAPO, small)]
    heard = list(compare(contenders, seeds=1, amount=16, out=folder / "runs", jobs=jobs, on=on))
    of_grpo = [one.done for one in heard if one.contender == "GRPO"]
    assert of_grpo == [False, False, True]  # at first and, after each step, 8 more of 16 responses
    pair, quick = (DAPO.without_kl(), GRPO.without_kl()), MapSettings(replicas=2, steps=2)
    regime_map(*pair, cells=(1, 2), settings=quick, out=folder / "map.jsonl", jobs=jobs, on=on).result()
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.is_file() and file.name != ".lock"}
    lines = {name: sorted(file.read_bytes().splitlines()) for name, file in files.items()}  # cells come in any order
    return {name: [re.sub(rb'seconds": [-\d.e]+', b"", line) for line in of] for name, of in lines.items()}


def test_files_are_equal_whatever_the_engine(by_workers, tmp_path):
    here = made(tmp_path / "here", "local", 1)
    assert len(here) > 10
    assert made(tmp_path / "there", *by_workers) == here


def test_each_step_is_told_while_the_work_goes_on(on_each, tmp_path):
    heard = []
    for name, said in run_on(on_each[0], answered, [tmp_path / name for name in "abc"], jobs=on_each[1]):
        heard.append((name, said))
        (tmp_path / name).touch()
    assert [said for name, said in heard if name == "b"] == [1, "answered"]
    assert len(heard) == 6


def test_a_stop_closes_the_work_after_its_step(on_each, tmp_path):
    files = [tmp_path / "one", tmp_path / "other"]
    working = run_on(on_each[0], endless, files, jobs=on_each[1])
    begun, heard = {}, 0
    while len(begun) < (1 if on_each == ("local", 1) else 2) or heard < 9:
        begun.update([next(working)])
        heard += 1
    working.close()
    assert len([file for file in files if file.exists() and int(file.read_text()) >= 0]) == len(begun)
    assert not list(Path.cwd().glob(".rlviz-*"))


def test_work_of_one_long_step_is_interrupted(by_workers, tmp_path):
    working = run_on(by_workers[0], long, [tmp_path / "late"], jobs=by_workers[1], at_once=True)
    assert next(working) == "begun"
    began = time.monotonic()
    working.close()
    assert time.monotonic() - began < 50 and not (tmp_path / "late").exists()  # it would take 100 seconds


@posix
def test_what_a_killed_worker_did_is_tried_three_times(by_workers, tmp_path):
    on, jobs = by_workers
    with pytest.raises(RuntimeError, match=r"its workers died three times, .*; what is done is kept$"):
        list(run_on(on, killed_always, [tmp_path / "c"], jobs=jobs))
    assert (tmp_path / "c").read_text() == "tried\n" * 3


@pytest.mark.parametrize(
    ("work", "task", "error", "says"),
    [
        (raises, "whole", ValueError, "^this task is refused$"),
        (raises, "torn", RuntimeError, "^TornError: torn at the end$"),
        (leaves, "left", RuntimeError, "^a task ended by itself before it was done .*; what is done is kept$"),
        (leaves, (step for step in "ab"), ValueError, "^jobs: what is to be done cannot be sent .*; use jobs=1$"),
    ],
)
def test_what_goes_wrong_is_said_here(by_workers, work, task, error, says):
    heard = []
    with pytest.raises(error, match=says):
        heard.extend(run_on(by_workers[0], work, [task], jobs=by_workers[1]))
    with pytest.raises(TornError if task == "torn" else RuntimeError if work is leaves else error):
        list(run_on("local", work, [task], jobs=1))
    assert list(run_on(by_workers[0], leaves, [], jobs=by_workers[1])) == []  # nothing to do needs no worker


@posix
def test_a_worker_ends_its_step_at_sigterm_and_leaves_the_other_signals_to_the_first_process(by_workers, tmp_path):
    files = [tmp_path / "one", tmp_path / "other"]
    working = run_on(by_workers[0], endless, files, jobs=by_workers[1])
    steps = {}
    while len(steps) < 2:
        steps.update([next(working)])
    workers = set(steps)
    for worker, number in itertools.product(workers, (signal.SIGINT, signal.SIGHUP)):
        os.kill(worker, number)
    later = {worker: step + 20 for worker, step in steps.items()}
    while any(steps[worker] < later[worker] for worker in workers):
        steps.update([next(working)])
    assert not any(file.exists() for file in files)
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    while not all(file.exists() for file in files):
        next(working)
    assert next(step for _, step in working if step < 9) < 9  # begun again
    working.close()


def test_a_script_may_define_its_work_and_need_no_guard(tmp_path):
    script = "from rlviz.parallel import run_on\nclass Task: pass\ndef work(task):\n    yield task\n"
    (tmp_path / "own.py").write_text(
        f"{script}print([type(one) is Task for one in run_on('local', work, [Task()] * 2, jobs=2)])"
    )
    said = subprocess.run(
        [sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=False, timeout=240
    )
    assert said.stdout == "[True, True]\n", said.stderr


def alive(group):
    with suppress(ProcessLookupError):
        return os.killpg(group, 0) is None
    return False


@posix
@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("local", "TERM", 143), ("ray", "INT", 130)],  # the others, and Ctrl-C: tests/cli, tests/study/test_runner.py
)
def test_a_signal_keeps_the_runs_and_the_same_command_goes_on(
    name, number, code, tmp_path, request, monkeypatch, default_signals
):
    on = "local" if name == "local" else f"ray:{request.getfixturevalue('cluster')}"
    what = ["compare", "--algorithms", "grpo,dapo", "--num-prompts", "2", "--group-size", "4", "--seeds", "1"]
    command = [*what, "--jobs", "2", "--out", str(tmp_path), "--on", on, "--amount", "100000"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-m", "rlviz", *command], **piped)
    metrics, began = [tmp_path / f"{one}-seed0" / "metrics.jsonl" for one in ("grpo", "dapo")], time.monotonic()
    while not all(file.exists() and len(file.read_text().splitlines()) >= 3 for file in metrics):
        assert time.monotonic() - began < 240 and process.poll() is None, "no run started"
        time.sleep(0.05)
    os.killpg(process.pid, getattr(signal, f"SIG{number}"))  # as a terminal does: to all of its processes
    _, errors = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in errors) == (code, False), errors
    assert "Stopped. The runs that are done are kept; the same command goes on." in " ".join(errors.split())
    while alive(process.pid):  # no worker is left
        assert time.monotonic() - began < 240, "a worker goes on"
        time.sleep(0.05)
    done = [len(file.read_text().splitlines()) for file in metrics]
    for file, steps in zip(metrics, done, strict=True):
        assert json.loads((file.parent / "checkpoint" / "training.json").read_text())["step"] == steps
    goes_on = ["--jobs", "1", "--out", str(tmp_path), "--amount", str(8 * (max(done) + 2))]
    monkeypatch.setitem(evaluate.__kwdefaults__, "num_prompts", 24)
    assert CliRunner().invoke(app, [*what, *goes_on]).exit_code == 0
    assert [json.loads(line)["step"] for line in metrics[0].read_text().splitlines()] == list(range(1, max(done) + 3))


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
    for address in ("here", "127.0.0.1:99999", "127.0.0.1:port", ":1"):
        with pytest.raises(ValueError, match=rf"at {address} \(an address is HOST:PORT"):
            check_engine(f"ray:{address}")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", None], ids=["hangs up", "web", "silent"])
def test_what_listens_and_is_not_ray_is_refused_at_once(answer, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(parallel, "REACH_SECONDS", 0.2)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as there:

        def serve():
            link, _ = there.accept()
            with link:
                link.recv(1024)
                link.recv(1) if answer is None else link.sendall(answer)  # until the other side leaves

        answering = threading.Thread(target=serve)
        answering.start()
        words = "timed out" if answer is None else "what listens there is not Ray"
        with pytest.raises(ValueError, match=rf"^on: no Ray cluster can be reached at 127.0.0.1:\d+ \({words}\)$"):
            check_engine(f"ray:127.0.0.1:{there.getsockname()[1]}")
        answering.join()
