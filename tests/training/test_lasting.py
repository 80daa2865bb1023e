"""Nothing is lost: runs that are killed, cut off from power or disk, opened twice, damaged, or that diverge."""

import errno
import gc
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlviz import DPO, PPO
from rlviz.algorithms import GRPO
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.training import (
    PairSettings,
    RunFolder,
    TrainSettings,
    default_settings,
    files,
    records,
    resume,
    run as run_module,
    run_folder,
    train,
)
from rlviz.training.files import FolderLock, json_text, whole_file, write_text
from small_models.evaluation import Evaluation
from small_models.pairs import Pair
from small_models.policies import Policy, load_policy
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


def all_bytes(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four steps that nothing happened to, its checkpoint.old of step 2."""
    out = tmp_path_factory.mktemp("whole") / "run"
    list(start(replace(TINY, checkpoint_every=2), out=out))
    return out


@pytest.fixture
def copied(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


class TestDamagedRecords:
    @pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl"])
    def test_a_damaged_line_in_the_middle_is_refused_and_nothing_is_rewritten(self, name, copied):
        lines = (copied / name).read_text().splitlines()
        lines[1] = lines[1][:30]
        (copied / name).write_text("\n".join(lines) + "\n")
        before = all_bytes(copied)
        with pytest.raises(ValueError, match=rf"{name}, line 2 is not JSON .*; nothing was changed: mend that file"):
            resume(copied, steps=6, device="cpu")
        assert all_bytes(copied) == before

    def test_a_field_of_the_wrong_type_too(self, copied):
        lines = (copied / "metrics.jsonl").read_text().splitlines()
        lines[0] = json.dumps({**json.loads(lines[0]), "seconds": True})
        (copied / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        before = all_bytes(copied)
        with pytest.raises(ValueError, match=r"metrics.jsonl, line 1: seconds must be a number; got true; nothing was"):
            resume(copied, steps=6, device="cpu")
        assert all_bytes(copied) == before

    @pytest.mark.parametrize(
        ("name", "wrong", "says"),
        [
            ("waiting", "x", 'training.json: waiting must be a list; got "x"'),
            (
                "waiting",
                [99],
                "not one of this version (training.json: waiting must be places among 2 pairs, each from 0)",
            ),
            ("waiting", ..., "not one of this version (it lacks waiting)"),
            ("reward_pairs", [{"chosen": "a", "rejected": "b"}], "training.json: reward_pairs[0] lacks prompt"),
            ("beta", [], "training.json: beta must be a number or null; got []"),
        ],
    )
    def test_counters_that_are_none(self, name, wrong, says, tmp_path):
        pairs = [Pair("26954=", "28726#6", "#5"), Pair("81937=", "89818#8", "#3")]
        few = PairSettings(steps=2, batch_size=1, evaluate_every=0)
        list(start(few, DPO, pairs=pairs, out=tmp_path / "run"))
        shutil.rmtree(tmp_path / "run" / "checkpoint.old")
        file = tmp_path / "run" / "checkpoint" / "training.json"
        state = {**json.loads(file.read_text()), name: wrong}
        file.write_text(json.dumps({name: value for name, value in state.items() if value is not ...}))
        before = all_bytes(tmp_path / "run")
        with pytest.raises(ValueError, match=re.escape(says)):
            resume(tmp_path / "run", steps=3, device="cpu")
        assert all_bytes(tmp_path / "run") == before

    @pytest.mark.parametrize("tail", ['{"step": 5, "rew', "\0\0\0\0", '{"step": 5, "rew\n'])
    def test_a_last_line_that_a_crash_cut_short_is_left_out(self, tail, copied):
        with open(copied / "metrics.jsonl", "a") as file:
            file.write(tail)
        assert len(RunFolder.open(copied).metrics) == 4
        list(resume(copied, steps=5, device="cpu"))
        assert [row["step"] for row in rows(copied)] == [1, 2, 3, 4, 5]

    def test_records_that_are_missing_are_said_to_be(self, copied):
        lines = (copied / "metrics.jsonl").read_text().splitlines()
        (copied / "metrics.jsonl").write_text("\n".join(lines[2:]) + "\n")
        with pytest.warns(UserWarning, match=r"metrics.jsonl lacks 2 of the 4 steps done, the first of them step 1"):
            resume(copied, steps=6, device="cpu")


class TestWhenItSaves:
    def test_a_run_can_be_resumed_from_its_beginning_on(self, whole, tmp_path):
        run = start(out=tmp_path / "run")
        assert json.loads((tmp_path / "run" / "checkpoint" / "training.json").read_text())["step"] == 0
        del run
        list(resume(tmp_path / "run", device="cpu"))
        assert rows(tmp_path / "run") == rows(whole)
        assert load_file(tmp_path / "run/checkpoint/model.safetensors").keys() and all(
            torch.equal(tensor, load_file(whole / "checkpoint/model.safetensors")[name])
            for name, tensor in load_file(tmp_path / "run/checkpoint/model.safetensors").items()
        )

    def saved_steps(self, monkeypatch, tmp_path, step_seconds, save_seconds, steps, evaluation_seconds=0.0):
        """Return at which steps a run saved whose steps, saves and evaluations take so many seconds of a clock of our own."""
        now, saved = [0.0], []
        monkeypatch.setattr(run_module.time, "perf_counter", lambda: now[0])
        run = start(replace(TINY, steps=steps, evaluate_every=1), out=tmp_path / "run")
        numbers = run.advance()
        run.state.step = 0

        def measure(policy, task, **settings):
            now[0] += evaluation_seconds
            return Evaluation(accuracy=0.5, well_formed=1.0, length=2.0, entropy=0.0)

        def learn():
            now[0] += step_seconds
            run.state.step += 1
            return numbers

        def save_state(folder, policy, tensors, state):
            now[0] += save_seconds
            saved.append(state["step"])

        monkeypatch.setattr(run, "advance", learn)
        monkeypatch.setattr(run_module, "evaluate", measure)
        monkeypatch.setattr(RunFolder, "save_state", save_state)
        list(run)
        return saved

    def test_before_more_than_two_seconds_of_work_would_be_unsaved(self, monkeypatch, tmp_path):
        assert self.saved_steps(monkeypatch, tmp_path, 0.5, 0.01, 10) == [4, 8, 10]

    def test_after_each_step_that_takes_longer(self, monkeypatch, tmp_path):
        assert self.saved_steps(monkeypatch, tmp_path, 3.0, 0.01, 3) == [1, 2, 3]

    def test_evaluations_are_work_too(self, monkeypatch, tmp_path):
        # 1 s a step: after two of them a third would make 3
        assert self.saved_steps(monkeypatch, tmp_path, 0.5, 0.01, 6, evaluation_seconds=0.5) == [2, 4, 6]

    def test_less_often_where_a_save_is_dear(self, monkeypatch, tmp_path):
        # the first save, at the beginning, took 0 s here; the median is then of 0 and .125 s: after more than 3.125 s of work,
        # and from then on .125 s: after more than 6.25 s
        assert self.saved_steps(monkeypatch, tmp_path, 0.5, 0.125, 25) == [4, 11, 24, 25]

    def test_what_is_saved_is_not_saved_again(self, monkeypatch, tmp_path):
        run = start(out=tmp_path / "run")
        next(run), run.save()
        before = (tmp_path / "run" / "checkpoint").stat().st_ino
        run.save()
        assert (tmp_path / "run" / "checkpoint").stat().st_ino == before

    def test_half_a_step_is_not_saved(self, monkeypatch, tmp_path, whole):
        run = start(out=tmp_path / "run")
        next(run), next(run)
        interrupted = records.groups_of_step

        def interrupt(*given):
            monkeypatch.setattr(records, "groups_of_step", interrupted)
            raise KeyboardInterrupt

        monkeypatch.setattr(records, "groups_of_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(run)
        run.close()
        list(resume(tmp_path / "run", device="cpu"))
        assert rows(tmp_path / "run") == rows(whole)


class TestPowerCut:
    @pytest.mark.parametrize(
        "names", [["model.safetensors", "training.safetensors", "training.json"], ["training.json"]]
    )
    def test_an_empty_checkpoint_gives_way_to_the_one_before(self, names, copied, whole):
        for name in names:
            (copied / "checkpoint" / name).write_bytes(b"")
        with pytest.warns(
            UserWarning, match=r"the one before it, of step 2, is whole, and the steps after it are done again"
        ):
            run = resume(copied, device="cpu")
        assert run.step == 2
        list(run)
        assert rows(copied) == rows(whole)

    def test_with_both_damaged_it_is_refused(self, copied):
        for name in ("checkpoint", "checkpoint.old"):
            (copied / name / "training.safetensors").write_bytes(b"")
        with pytest.raises(ValueError, match=r"the checkpoint in .*checkpoint is damaged"):
            resume(copied, device="cpu")

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file a descriptor is of")
    def test_all_is_on_the_disk_before_a_checkpoint_takes_its_place(self, monkeypatch, tmp_path):
        """As the system sees it: every file of the new checkpoint and the records flushed, then the renames, then the folder."""
        run = start(out=tmp_path / "run")
        next(run)
        seen = []
        fsync, rename = os.fsync, Path.rename
        monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(Path(f"/proc/self/fd/{fd}").readlink()), fsync(fd))[1])
        monkeypatch.setattr(Path, "rename", lambda self, to: (seen.append((self.name, to.name)), rename(self, to))[1])
        run.save()
        renames = [("checkpoint", "checkpoint.old"), ("checkpoint.new", "checkpoint")]
        first = seen.index(renames[0])
        new = tmp_path / "run" / "checkpoint.new"
        flushed = {*(new / file.name for file in (tmp_path / "run" / "checkpoint").iterdir()), new}
        assert set(seen[:first]) == flushed | {tmp_path / "run" / name for name in ("metrics.jsonl", "samples.jsonl")}
        assert seen[first:] == [*renames, tmp_path / "run"]


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_space_for_tensors(*_, **__):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


FULL = {
    "model": (Policy, "save", no_space_for_tensors),
    "tensors": (run_folder, "save_file", no_space_for_tensors),
    "flush": (files.os, "fsync", no_space),
    "state": (Path, "write_text", no_space),
    "records": (run_folder, "append_line", no_space),
}


class TestFullDisk:
    @pytest.mark.parametrize("what", FULL)
    def test_it_ends_in_a_sentence_that_says_what_is_safe(self, what, tmp_path, monkeypatch, whole):
        run = start(replace(TINY, steps=5, checkpoint_every=2), out=tmp_path / "run")
        next(run), next(run), next(run)
        with monkeypatch.context() as full:
            full.setattr(*FULL[what])
            with pytest.raises(
                OSError,
                match=r"cannot be written \(.*No space left.*\); its last checkpoint, of step 2, is safe: make room",
            ):
                next(run)
        assert not (tmp_path / "run" / "checkpoint.new").exists()
        with pytest.raises(RuntimeError, match="could not be written; to go on, resume"):
            next(run)
        list(resume(tmp_path / "run", steps=4, device="cpu"))
        assert rows(tmp_path / "run") == rows(whole)

    @pytest.mark.parametrize("what", ["model", "flush"])  # before the folder is a run's, and in its first checkpoint
    def test_at_the_beginning_it_leaves_nothing_behind(self, what, tmp_path, monkeypatch):
        with monkeypatch.context() as full:
            full.setattr(*FULL[what])
            with pytest.raises(OSError, match=r"cannot be written \(.*No space left.*\); make room, then begin again"):
                start(out=tmp_path / "run")
        assert list((tmp_path / "run").iterdir()) == []
        assert len(list(start(out=tmp_path / "run"))) == 4

    def test_a_line_that_fits_only_in_part_is_taken_back(self, tmp_path):
        resource = pytest.importorskip("resource")
        file = tmp_path / "rows.jsonl"
        files.append_line(file, "a" * 100)
        code = (
            "import resource, signal, sys\nfrom pathlib import Path\nfrom rlviz.training.files import append_line\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))\n"
            "try:\n    append_line(Path(sys.argv[1]), 'b' * 100)\nexcept OSError:\n    sys.exit(7)"
        )
        assert resource and subprocess.run([sys.executable, "-c", code, file], check=False).returncode == 7
        assert file.read_text() == "a" * 100 + "\n"


class TestLock:
    def test_another_process_is_refused_by_name(self, copied):
        run = resume(copied, steps=6, device="cpu")
        code = (
            "import sys\nfrom rlviz.training import resume\ntry:\n    resume(sys.argv[1], steps=6, device='cpu')\n"
            "except ValueError as error:\n    print(error, flush=True)\ninput()\nresume(sys.argv[1], steps=6, device='cpu')"
        )
        command = [sys.executable, "-c", code, str(copied)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            said = other.stdout.readline()
            assert f"run folder {copied}: process {os.getpid()} is training in it; wait until that ends" in said
            assert next(run).step == 5
            del run
            gc.collect()
            other.communicate("\n", timeout=300)
        assert other.returncode == 0

    @posix
    def test_a_dead_process_holds_nothing(self, copied):
        child = os.fork()
        if child == 0:
            lock = FolderLock(copied)
            os.kill(os.getpid(), signal.SIGKILL if lock.why_not is None else signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert resume(copied, steps=5, device="cpu").step == 4

    def test_in_one_process_the_newer_run_takes_over(self, tmp_path, whole):
        older = start(out=tmp_path / "run")
        next(older)
        newer = resume(tmp_path / "run", device="cpu")
        with pytest.raises(
            RuntimeError, match=r"this run in .*run was resumed since by a newer one; to go on, resume\("
        ):
            next(older)
        with pytest.raises(RuntimeError, match="by a newer one"):
            older.save()
        list(newer)
        assert rows(tmp_path / "run") == rows(whole)

    def test_close_saves_and_lets_go(self, tmp_path):
        run = start(out=tmp_path / "run")
        next(run), run.close(), run.close()
        assert run.folder.lock.why_not == "was closed"
        with pytest.raises(RuntimeError, match="was closed; to go on, resume"):
            next(run)
        assert resume(tmp_path / "run", device="cpu").step == 1

    def test_a_run_that_is_done_lets_go(self, tmp_path):
        run = start(out=tmp_path / "run")
        list(run)
        assert run.folder.lock.why_not == "has done its steps"
        run.close()
        assert list(run) == []


class TestDivergence:
    @pytest.mark.parametrize(
        ("algorithm", "settings", "says"),
        [
            (NO_KL, {"lr": 1e30}, r"step 2 is not a finite number, .*lr is too high \(1e\+30; default 0.0003\)"),
            (PPO, {"lr": 1e30}, r"the loss of step 1 .*lr is too high \(1e\+30"),
            (PPO, {"critic_lr": 1e30}, r"the critic's gradient of step 1 .*critic_lr is too high \(1e\+30"),
            (
                NO_KL,
                {"temperature": 1e-39},
                r"step 1 .*temperature is too low \(1e-39; default 1\), begin again with a larger",
            ),
            (DPO, {"lr": 1e30}, r"the (loss|gradient) of step 2 .*lr is too high \(1e\+30; default"),
        ],
        ids=["GRPO lr", "PPO lr", "PPO critic_lr", "temperature", "DPO lr"],
    )
    def test_it_stops_before_the_weights_are_lost(self, algorithm, settings, says, tmp_path):
        shape = {"steps": 5, "evaluate_every": 0, "lr_warmup_steps": 0, **settings}
        shape |= {"num_pairs": 20, "batch_size": 4} if algorithm is DPO else {"num_prompts": 8}
        run = start(default_settings(algorithm, **shape), algorithm, out=tmp_path / "run")
        with pytest.raises(FloatingPointError, match=says + ".*; the last checkpoint, of step 0, is as it was$"):
            list(run)
        assert all(bool(weight.isfinite().all()) for weight in run.policy.model.parameters())
        for file in (tmp_path / "run").glob("*.jsonl"):
            for line in file.read_text().splitlines():
                json.loads(line, parse_constant=pytest.fail)

    def test_weights_that_the_update_itself_made_infinite_are_not_saved(self, tmp_path):
        settings = replace(TINY, num_prompts=8, lr=1e300, lr_warmup_steps=0, checkpoint_every=1)
        with pytest.raises(FloatingPointError, match=r"lr is too high \(1e\+300.* of step 0, is as it was"):
            list(start(settings, out=tmp_path / "run"))
        assert all(
            tensor.isfinite().all() for tensor in load_file(tmp_path / "run/checkpoint/model.safetensors").values()
        )

    def test_near_the_defaults_no_setting_is_blamed(self):
        run = start()
        run.state.step = 3
        said = run._diverged("loss")
        assert "its settings are near their defaults, look at the pieces of GRPO" in said and "lr (0.0003)" in said

    def test_a_reward_that_is_no_number_is_named(self):
        class Broken(SoftOverlongPunishment):
            def __call__(self, rewards, *given, **named):
                return rewards * math.nan

        run = start(algorithm=replace(NO_KL, shape=Broken(max_length=8, cache=2)))
        with pytest.raises(FloatingPointError, match=r"the mean reward of step 1 .*a piece of your own gave that"):
            next(run)

    def test_a_policy_of_nan_weights_is_refused_at_resume_and_named_at_once(self, copied):
        file = copied / "checkpoint" / "model.safetensors"
        save_file({k: v * math.nan for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
        with pytest.raises(ValueError, match=r"the policy in .*checkpoint has weights that are not finite numbers"):
            resume(copied, steps=6, device="cpu")
        policy = load_policy(copied / "checkpoint", device="cpu")
        with pytest.raises(FloatingPointError, match="the policy that it began with has weights that are not finite"):
            next(train(policy, Chain(), NO_KL, TINY))

    def test_a_reference_of_nan_weights_is_named_at_resume(self, copied):
        file = copied / "reference" / "model.safetensors"
        save_file({k: v * math.nan for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
        with pytest.raises(ValueError, match=r"the policy in .*reference has weights that are not finite numbers"):
            resume(copied, steps=6, device="cpu")

    def test_a_healthy_run_may_have_metrics_that_are_no_numbers(self, monkeypatch, tmp_path):
        run = start(out=tmp_path / "run")
        numbers, odd = records.rollout_numbers, {"kl": math.inf, "entropy": math.nan}
        monkeypatch.setattr(records, "rollout_numbers", lambda rollout: numbers(rollout) | odd)
        assert len(list(run)) == 4
        assert all(row["kl"] is None and row["entropy"] is None for row in rows(tmp_path / "run"))

    def test_json_has_null_for_what_is_no_number(self):
        text = json_text({"a": [1.5, math.nan, {"b": -math.inf}], "c": (math.inf, "NaN")})
        assert json.loads(text, parse_constant=pytest.fail) == {"a": [1.5, None, {"b": None}], "c": [None, "NaN"]}

    def test_the_panel_shows_it(self):
        from rlviz.runs.panel import training_panel

        panel = training_panel(settings=replace(TINY, lr=1e30, lr_warmup_steps=0, num_prompts=8))
        panel.start(), panel.wait()
        assert "The run broke off: the log-probability of a sampled token of step 2" in panel.caption


EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


def in_fork(work):
    """Do some work in a fork of this process; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with warnings.catch_warnings():
                work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def until(crash, folder, log, work):
    """Return the work that ends its process, as SIGKILL does, before it writes to the folder for the time number `crash`."""

    def go():
        seen = [0]

        def hook(event, given):
            if event not in EVENTS or not given or not isinstance(given[0], str | os.PathLike):
                return
            reads = event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR)
            if reads or not os.fspath(given[0]).startswith(str(folder)):
                return
            seen[0] += 1
            if seen[0] == crash:
                os._exit(137)

        sys.addaudithook(hook)
        work()
        log.write_text(str(seen[0]))

    return go


def test_a_file_is_the_old_one_until_the_new_one_is_whole(tmp_path):
    file = tmp_path / "state.json"
    write_text(file, "old")
    writing = whole_file(file)
    writing.__enter__().write_text("ne")
    assert file.read_text() == "old"
    assert not writing.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"] and file.read_text() == "old"


@posix
@pytest.mark.parametrize("what", ["train", "resume"])
def test_a_crash_at_any_file_operation_leaves_a_folder_that_goes_on(what, tmp_path, whole):
    settings, out, log = replace(TINY, checkpoint_every=2), tmp_path / "run", tmp_path / "log"
    half = tmp_path / "half"
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
    operations, expected = int(log.read_text()), rows(whole)
    again = 0
    for crash in [*range(1, operations + 1, 11), operations]:
        fresh()
        assert in_fork(until(crash, out, log, work)) == 137
        if what == "train" and not (out / "config.json").exists():
            again += 1
            assert in_fork(begin) == 0, f"no new run may begin after a crash at operation {crash}"
        elif RunFolder.open(out).load_state("cpu", lambda where, policy, tensors, state: state["step"]) < 4:
            assert in_fork(go_on) == 0, f"no resuming after a crash at operation {crash}"
        assert rows(out) == expected, f"operation {crash} of {operations}"
        left = {path.name for path in out.rglob("*") if path.name.startswith(".") or path.suffix == ".new"}
        assert left <= {".lock"}, f"operation {crash}"
    assert again > 2 or what == "resume"
