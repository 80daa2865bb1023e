"""Work on another engine: what is refused, a worker that is killed, and files that equal the local ones but for seconds."""

import importlib.util
import os
import re
import signal
import socket
import sys
from dataclasses import replace

import pytest

from rlviz.algorithms import DAPO, GRPO
from rlviz.comparison import Contender, compare
from rlviz.engines import check_engine, run_on
from rlviz.maps import MapSettings, Regime, regime_map
from rlviz.settings import TrainSettings


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
    with pytest.raises(ValueError, match=rf"pip install 'rlviz\[{on.partition(':')[0]}\]'$"):
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


def test_ray_gives_the_same_files_and_does_again_what_was_killed(tmp_path):
    ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'rlviz[ray]'")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)  # one for all that follows
    try:
        contender = Contender("GRPO", replace(GRPO, kl=None), TrainSettings(num_prompts=4, group_size=2))
        for on in ("local", "ray"):
            compare([contender], seeds=2, amount=16, out=tmp_path / on, jobs=1 if on == "local" else 2, on=on).result()
        same(tmp_path / "local", tmp_path / "ray")
        assert sorted(run_on("ray", killed_once, [tmp_path / "a", tmp_path / "b"], jobs=2)) == ["a", "b"]
        with pytest.raises(ValueError, match="this task is refused"):
            list(run_on("ray", refuses, [1, 2], jobs=2))
        assert ray.is_initialized()  # somebody else's is left to them
    finally:
        ray.shutdown()
