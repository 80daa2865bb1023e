"""Work on another engine: what is refused, a worker that is killed, and files that equal the local ones but for seconds."""

import importlib.util
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

from rlviz import engines
from rlviz.algorithms import DAPO, GRPO
from rlviz.comparison import Contender, compare
from rlviz.engines import check_engine, run_on
from rlviz.maps import MapSettings, Regime, regime_map
from rlviz.settings import TrainSettings

pytestmark = pytest.mark.all_held_out  # as in processes that the engines start


def killed_once(mark):
    """Kill the worker that does this first; a mark is a file."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield "begun"
    yield mark.name


def refuses(task):
    yield task
    raise ValueError("this task is refused")


def leaves(task):
    yield task
    sys.exit(0)


@pytest.mark.parametrize("on", ["dask", "", "ray:", "local:2", "joblib:host:1", ":1"])
def test_an_engine_that_there_is_not_is_refused(on):
    with pytest.raises(ValueError, match=r"^on must be local, joblib, ray, or ray:ADDRESS of a cluster; got '"):
        check_engine(on)


@pytest.mark.parametrize("on", ["joblib", "ray", "ray:auto"])
def test_an_engine_that_is_not_installed_says_how(on, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=rf"{re.escape(sys.executable)} -m pip install 'rlviz\[{on.partition(':')[0]}\]'$"
    ):
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
    monkeypatch.setattr(engines, "REACH_SECONDS", 0.2)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as there:

        def serve():
            link, _ = there.accept()
            with link:
                link.recv(1024)
                if answer is None:
                    link.recv(1)  # until the other side leaves
                else:
                    link.sendall(answer)

        answering = threading.Thread(target=serve)
        answering.start()
        words = "timed out" if answer is None else "what listens there is not Ray"
        with pytest.raises(ValueError, match=rf"^on: no Ray cluster can be reached at 127.0.0.1:\d+ \({words}\)$"):
            check_engine(f"ray:127.0.0.1:{there.getsockname()[1]}")
        answering.join()


def test_work_that_ends_its_process_is_no_success():
    with pytest.raises(RuntimeError, match="a task ended by itself before it was done"):
        list(run_on("local", leaves, [1], jobs=1))
    assert list(run_on("ray", leaves, [], jobs=1)) == []  # nothing to do needs no engine


def same(mine, other):
    """Assert that two folders hold equal files, but for seconds and the process that wrote them."""
    files = sorted(file.relative_to(mine) for file in mine.rglob("*") if file.is_file() and file.name != ".lock")
    assert files == sorted(f.relative_to(other) for f in other.rglob("*") if f.is_file() and f.name != ".lock")
    for file in files:
        one, two = (re.sub(rb'seconds": [-\d.e]+', b"", (folder / file).read_bytes()) for folder in (mine, other))
        assert one == two, file


def test_joblib_gives_the_same_files_and_does_again_what_was_killed(tmp_path):
    pytest.importorskip("joblib", reason="joblib is an extra: pip install 'rlviz[joblib]'")
    small = TrainSettings(num_prompts=4, group_size=2)
    contenders = [Contender("GRPO", replace(GRPO, kl=None), small), Contender("DAPO", DAPO, small)]
    for on in ("local", "joblib"):
        comparing = compare(contenders, seeds=1, amount=16, out=tmp_path / on, jobs=1 if on == "local" else 2, on=on)
        assert len(comparing.result().at_budget()) == 2
    same(tmp_path / "local", tmp_path / "joblib")
    maps = [
        regime_map(
            DAPO.without_kl(), GRPO.without_kl(), cells=(1, 2), regime=Regime(), settings=MapSettings(replicas=2, steps=2),
            out=tmp_path / f"{on}.jsonl", jobs=2, on=on,
        ).result()
        for on in ("local", "joblib")
    ]  # fmt: skip
    assert maps[0].to_csv() == maps[1].to_csv()
    assert sorted(run_on("joblib", killed_once, [tmp_path / "a", tmp_path / "b"], jobs=2)) == ["a", "b"]
    with pytest.raises(ValueError, match="this task is refused"):
        list(run_on("joblib", refuses, [1, 2], jobs=2))
    with pytest.raises(RuntimeError, match="a task ended by itself"):
        list(run_on("joblib", leaves, [1, 2], jobs=2))


@pytest.fixture(scope="module")
def ray():
    """Return ray, without the token that it would otherwise write into the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        yield pytest.importorskip("ray", reason="Ray is an extra: pip install 'rlviz[ray]'")


@pytest.fixture(scope="module")
def cluster(ray):
    """Return the address of a Ray cluster with two workers, as `ray start --head` begins one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = f"start --head --block --port={address.partition(':')[2]} --num-cpus=2"
    head = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            *command.split(),
            "--include-dashboard=false",
            "--disable-usage-stats",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
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


def test_a_ray_cluster_gives_the_same_files_and_does_again_what_was_killed(ray, cluster, tmp_path):
    on = f"ray:{cluster}"
    contender = Contender("GRPO", replace(GRPO, kl=None), TrainSettings(num_prompts=4, group_size=2))
    tables = [
        compare([contender], seeds=2, amount=16, out=tmp_path / name, jobs=jobs, on=engine).result().at_budget()
        for name, jobs, engine in (("here", 1, "local"), ("there", None, on))
    ]
    assert tables[0].drop(columns="seconds").to_csv() == tables[1].drop(columns="seconds").to_csv()
    same(tmp_path / "here", tmp_path / "there")
    ray.init(cluster, log_to_driver=False)
    try:
        assert sorted(run_on(on, killed_once, [tmp_path / "a", tmp_path / "b"], jobs=2)) == ["a", "b"]
        with pytest.raises(ValueError, match="this task is refused"):
            list(run_on(on, refuses, [1, 2], jobs=2))
        assert ray.is_initialized()  # somebody else's connection is left to them
    finally:
        ray.shutdown()
