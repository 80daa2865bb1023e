"""Nothing is lost: runs that are killed, cut off from power or disk, opened twice, or that diverge."""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlviz import DPO, PPO
from rlviz.algorithms import GRPO
from rlviz.settings import PairSettings
from rlviz.training import (
    RunFolder,
    TrainSettings,
    default_settings,
    records,
    resume,
    run_folder,
    train,
)
from rlviz.training.files import json_text
from small_models.policies import load_policy
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
TINY = TrainSettings(steps=4, num_prompts=2, group_size=2, evaluate_every=0, details_every=3)
posix = pytest.mark.skipif(os.name != "posix", reason="forks, or sends signals")


def start(settings=TINY, algorithm=NO_KL, **kwargs):
    return train(load_policy("chain", device="cpu"), Chain(), algorithm, settings, **kwargs)


def rows(folder):
    """Return the metrics on disk, but for what a clock says."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


def weights(folder):
    return (folder / "checkpoint" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run of four steps that nothing happened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    list(start(replace(TINY, checkpoint_every=2), out=out))
    return out


@pytest.fixture
def copied(finished_run, tmp_path):
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.mark.parametrize(
    ("unsaved", "next_seconds", "save_seconds", "is_due"),
    [
        (1.5, 0.6, 0.01, True),  # before more than two seconds of work would be unsaved
        (1.5, 0.4, 0.01, False),
        (2.4, 0.75, 0.05, False),  # a save of .05 s is 2 % of 2.5 s of work
        (2.6, 0.75, 0.05, True),
    ],
)
def test_when_a_run_saves(unsaved, next_seconds, save_seconds, is_due):
    run = start(replace(TINY, steps=10, checkpoint_every=4))
    run._unsaved_seconds, run._save_seconds = unsaved, save_seconds
    for run.state.step in range(1, 11):
        assert run._save_is_due(next_seconds) == (is_due or run.step in (4, 8, 10))


def test_half_a_step_is_not_saved(monkeypatch, tmp_path, finished_run):
    run = start(out=tmp_path / "run")
    next(run), next(run)
    interrupted = records.record_groups

    def interrupt(*args):
        monkeypatch.setattr(records, "record_groups", interrupted)
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "record_groups", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    run.close()
    list(resume(tmp_path / "run", device="cpu"))
    assert rows(tmp_path / "run") == rows(finished_run)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file a descriptor is of")
def test_all_is_on_the_disk_before_a_checkpoint_takes_its_place(monkeypatch, tmp_path):
    """As the system sees it: every file of the new checkpoint and the records flushed, then the renames, then the folder."""
    run = start(out=tmp_path / "run")
    next(run)
    seen, fsync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(Path(f"/proc/self/fd/{fd}").readlink()), fsync(fd))[1])
    monkeypatch.setattr(Path, "rename", lambda self, to: (seen.append((self.name, to.name)), rename(self, to))[1])
    run.save()
    new, now = tmp_path / "run" / "checkpoint.new", tmp_path / "run" / "checkpoint"
    renamed = seen.index(("checkpoint.new", "checkpoint"))
    records = {now.with_name(f"{name}.jsonl") for name in ("metrics", "samples")}
    weights = {new / file.name for file in now.iterdir() if file.name != "training.json"}
    counters = next(place for place, path in enumerate(seen) if str(path).startswith(str(new / ".training.json")))
    assert weights | records <= set(seen[:counters]) and counters < renamed  # the counters make it whole
    assert seen[renamed + 1 :] == [tmp_path / "run"]
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint*")) == ["checkpoint"]


@pytest.mark.parametrize("older", ["whole", "half", "gone"])
def test_a_new_checkpoint_is_taken_where_a_kill_left_it(older, copied, finished_run):
    shutil.copytree(copied / "checkpoint", copied / "checkpoint.new")
    if older == "half":
        (copied / "checkpoint" / "model.safetensors").unlink()
    elif older == "gone":
        shutil.rmtree(copied / "checkpoint")
    run = resume(copied, steps=5, device="cpu")
    assert run.step == 4 and weights(copied) == weights(finished_run)
    assert [path.name for path in copied.glob("checkpoint*")] == ["checkpoint"]


def test_a_folder_whose_run_was_killed_as_it_began_says_so(tmp_path):
    (tmp_path / "reference").mkdir()
    (tmp_path / ".lock").touch()
    words = r"a run is just beginning in it, or was stopped before its first step \(then delete it\)"
    with pytest.raises(FileExistsError, match=f"^out: .* is not empty: {words}; name a new folder$"):
        start(out=tmp_path)
    with pytest.raises(FileNotFoundError, match=f"holds no run yet: {words}$"):
        resume(tmp_path)
    with pytest.raises(FileExistsError, match="is a file; name a new folder"):
        start(out=tmp_path / ".lock")


def test_a_run_whose_pairs_became_fewer_is_refused(tmp_path):
    run = start(PairSettings(steps=3, num_pairs=8, batch_size=4, evaluate_every=0), DPO, out=tmp_path / "run")
    next(run), run.close()
    file = tmp_path / "run" / "pairs.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))
    with pytest.raises(ValueError, match=r"pairs\.jsonl holds 4 pairs, fewer than the run began with"):
        resume(tmp_path / "run", device="cpu")


def half_a_line(path, line):
    with open(path, "ab") as file:
        file.write(line.encode()[:40])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_ends_a_run_in_a_sentence_that_says_what_is_safe(tmp_path, monkeypatch, finished_run):
    run = start(replace(TINY, steps=5, checkpoint_every=2), out=tmp_path / "run")
    next(run), next(run), next(run)
    words = r"cannot be written \(.*No space left.*\); its last checkpoint, of step 2, is safe: make room"
    with monkeypatch.context() as full:
        full.setattr(run_folder, "append_line", half_a_line)
        with pytest.raises(OSError, match=words):
            next(run)
    with pytest.raises(RuntimeError, match="could not be written; to go on, resume"):
        next(run)
    list(resume(tmp_path / "run", steps=4, device="cpu"))
    assert rows(tmp_path / "run") == rows(finished_run) and len(RunFolder.open(tmp_path / "run").records()) == 4


def test_another_process_is_refused(copied):
    run = resume(copied, steps=6, device="cpu")
    code = (
        "import sys\nfrom rlviz.training import resume\ntry:\n    resume(sys.argv[1], steps=6, device='cpu')\n"
        "except ValueError as error:\n    print(error)"
    )
    words = subprocess.check_output([sys.executable, "-c", code, str(copied)], text=True, timeout=300)
    assert f"run folder {copied}: another process is training in it; wait until that ends" in words
    assert next(run).step == 5


def test_in_one_process_the_newer_run_takes_over(tmp_path, finished_run):
    older = start(out=tmp_path / "run")
    next(older)
    newer = resume(tmp_path / "run", device="cpu")
    for write in (older.__next__, older.save):
        with pytest.raises(
            RuntimeError, match=r"this run in .*run was resumed since by a newer one; to go on, resume\("
        ):
            write()
    list(newer)
    assert rows(tmp_path / "run") == rows(finished_run)


def test_a_run_that_is_closed_or_done_lets_go(tmp_path):
    run = start(out=tmp_path / "run")
    next(run), run.close(), run.close()
    with pytest.raises(RuntimeError, match="was closed; to go on, resume"):
        next(run)
    with pytest.raises(FileExistsError, match="not empty"):
        start(out=tmp_path / "run")
    run = resume(tmp_path / "run", device="cpu")
    assert run.step == 1 and len(list(run)) == 3 and run.folder.lock.why_not == "has done its steps"
    run.close()
    assert list(run) == []


BROKEN = replace(NO_KL, shape=lambda rewards, lengths: rewards * math.nan)
DIVERGED = {
    "GRPO lr": (NO_KL, {"lr": 1e30}, r"step 2 is not a finite number, .*lr is too high \(1e\+30; default 0.0003\)"),
    "GRPO no critic": (NO_KL, {"lr": 1e30, "critic_lr": 1e33}, r"lr is too high \(1e\+30; default 0.0003\)"),
    "PPO critic_lr": (PPO, {"critic_lr": 1e30}, r"the critic's gradient of step 1 .*critic_lr is too high \(1e\+30"),
    "temperature": (NO_KL, {"temperature": 1e-39}, r"step 1 .*temperature is too low \(1e-39; default 1\), begin again"),
    "a piece": (BROKEN, {}, "the mean reward of step 1 .*a piece of your own gave that"),
    "weights": (NO_KL, {"lr": 1e300, "checkpoint_every": 1}, r"lr is too high \(1e\+300"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIVERGED)
def test_a_run_that_diverges_stops_before_its_weights_are_lost(name, tmp_path):
    algorithm, settings, words = DIVERGED[name]
    shape = {"steps": 5, "evaluate_every": 0, "lr_warmup_steps": 0, "num_prompts": 8, **settings}
    run = start(default_settings(algorithm, **shape), algorithm, out=tmp_path / "run")
    with pytest.raises(FloatingPointError, match=words + ".*; the last checkpoint, of step 0, is as it was$"):
        list(run)
    assert all(tensor.isfinite().all() for tensor in load_file(tmp_path / "run/checkpoint/model.safetensors").values())
    for file in (tmp_path / "run").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


def test_a_healthy_run_may_have_metrics_that_are_no_numbers(monkeypatch, tmp_path):
    run = start(out=tmp_path / "run")
    numbers, odd = records.rollout_numbers, {"kl": math.inf, "entropy": math.nan}
    monkeypatch.setattr(records, "rollout_numbers", lambda rollout: numbers(rollout) | odd)
    assert len(list(run)) == 4
    assert all(row["kl"] is None and row["entropy"] is None for row in rows(tmp_path / "run"))
    text = json_text({"a": [1.5, math.nan, {"b": -math.inf}], "c": (math.inf, "NaN")})
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [1.5, None, {"b": None}], "c": [None, "NaN"]}


EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


def in_fork(work):
    """Do some work in a fork of this process; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def until(crash, folder, log, work):
    """Return the work that ends its process, as SIGKILL does, before it writes to the folder for the time number `crash`."""

    def go():
        seen = [0]

        def hook(event, args):
            if event not in EVENTS or not args or not isinstance(args[0], str | os.PathLike):
                return
            reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR)
            if reads or not os.fspath(args[0]).startswith(str(folder)):
                return
            seen[0] += 1
            if seen[0] == crash:
                os._exit(137)

        sys.addaudithook(hook)
        work()
        log.write_text(str(seen[0]))

    return go


@posix
@pytest.mark.parametrize("what", ["train", "resume"])
def test_a_crash_at_any_file_operation_leaves_a_folder_that_goes_on(what, tmp_path, finished_run):
    settings, out, log, half = replace(TINY, checkpoint_every=2), tmp_path / "run", tmp_path / "log", tmp_path / "half"
    if what == "resume":
        run = start(settings, out=half)
        next(run), next(run), next(run)
        del run

    def begin():
        list(start(settings, out=out))

    def go_on():
        list(resume(out, device="cpu"))

    def fresh():
        shutil.rmtree(out, ignore_errors=True)
        if what == "resume":
            shutil.copytree(half, out)

    fresh()
    work = begin if what == "train" else go_on
    assert in_fork(until(0, out, log, work)) == 0
    operations = int(log.read_text())
    for crash in [*range(1, operations, operations // 3), operations]:
        fresh()
        assert in_fork(until(crash, out, log, work)) == 137
        if what == "train" and not (out / "config.json").exists():
            fresh()
            assert in_fork(begin) == 0
        elif RunFolder.open_to_write(out).load_state("cpu")[2]["step"] < 4:
            assert in_fork(go_on) == 0, f"no resuming after a crash at operation {crash}"
        assert rows(out) == rows(finished_run) and weights(out) == weights(finished_run), (
            f"operation {crash} of {operations}"
        )
