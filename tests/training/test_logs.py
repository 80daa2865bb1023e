"""Logs where people look: what is refused before training, one row a step, and a resumed run that goes on with its log."""

import importlib.machinery
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from rlviz import GRPO, TrainSettings, resume, train
from rlviz.training.logs import LOGGERS, check_log, log_of, logged
from tests.cli.conftest import rlviz  # noqa: F401

QUICK = TrainSettings(steps=3, num_prompts=4, group_size=2, evaluate_every=2, checkpoint_every=1)


class StandIn(ModuleType):
    """What wandb, trackio and mlflow are called with, as one module. seen: (what, arguments); rows: step → numbers."""

    def __init__(self, name):
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)
        self.seen, self.rows, self.fails_at = [], {}, None

    def init(self, **given):
        self.seen.append(("init", given))

    def start_run(self, **given):
        self.seen.append(("start_run", given))
        return SimpleNamespace(info=SimpleNamespace(run_id=given.get("run_id", "made-by-mlflow")))

    def set_experiment(self, name):
        self.seen.append(("experiment", name))

    def log_params(self, given):
        self.seen.append(("params", given))

    def log(self, numbers, *, step):
        if step == self.fails_at:
            raise ConnectionError("no route to host")
        self.rows[step] = numbers

    log_metrics = log

    def finish(self):
        self.seen.append(("finish", None))

    end_run = finish


@pytest.fixture
def stand_in(request, monkeypatch):
    module = StandIn(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    return module


@pytest.mark.parametrize("stand_in", ["wandb", "trackio", "mlflow"], indirect=True)
def test_a_resumed_run_goes_on_with_its_log(stand_in, tmp_path):
    name = stand_in.__name__
    records = []
    run = logged(train("chain", GRPO, QUICK, out=tmp_path / "run"), name)
    records += [next(run), next(run)]
    run.close()
    kept = json.loads((tmp_path / "run" / "log.json").read_text())
    assert log_of(tmp_path / "run") == kept["log"] == name
    records += logged(resume(tmp_path / "run"), name)
    begun = [given for what, given in stand_in.seen if what in ("init", "start_run")]
    assert [kept["id"] in given.values() for given in begun] == ([False, True] if name == "mlflow" else [True, True])
    assert [what for what, _ in stand_in.seen].count("finish") == 2
    config = next(given for what, given in stand_in.seen if what in ("init", "params"))
    config = config.get("config", config)
    assert config["task"] == "chain" and str(config["settings.num_prompts"]) == "4"
    assert config["algorithm.bounds.eps_high"] in (0.2, "0.2")
    assert sorted(stand_in.rows) == [1, 2, 3]
    for record in records:
        row = stand_in.rows[record.step]
        assert row["reward"] == record.reward and row["grad_norm"] == record.grad_norm
        assert ("held_out_accuracy" in row) is (record.step > 1)
        assert "step" not in row and "groups" not in row and all(isinstance(value, float) for value in row.values())


@pytest.mark.parametrize("stand_in", ["wandb"], indirect=True)
def test_a_log_that_fails_ends_and_the_run_goes_on(stand_in, tmp_path):
    stand_in.fails_at = 2
    said = []
    records = list(logged(train("chain", GRPO, QUICK, out=tmp_path / "run"), "wandb", warn=said.append))
    assert len(records) == 3 and list(stand_in.rows) == [1]
    assert said == ["log: wandb failed at step 2 (no route to host) and ends; the run goes on, and its folder has all"]
    stand_in.init = lambda **_: stand_in.log({}, step=2)
    with pytest.raises(
        ValueError, match=r"^log: wandb cannot begin \(no route to host\); WANDB_MODE=offline keeps it on this"
    ):
        next(logged(resume(tmp_path / "run", steps=4), "wandb"))


@pytest.mark.parametrize("name", LOGGERS)
def test_what_is_not_installed_is_refused_before_anything_begins(name, rlviz, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    result = rlviz("train", "--log", name, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert f"log: {name} is not installed; install it with: {sys.executable} -m pip install {name}" in " ".join(
        result.output.split()
    )
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_a_log_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"log 'tensorbord' is not known; did you mean tensorboard\?"):
        check_log("tensorbord")
    run = train("chain", GRPO, QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda package: package)
        with pytest.raises(ValueError, match="a run without a folder keeps nothing to go on with"):
            next(logged(run, "wandb"))
    for text, why in (("[]", "must be"), ('{"log": "os"}', "lacks id"), ('{"log": "os", "id": "1"}', "names no log"),
                      ('{"log": "wandb", "id": "a\\nb"}', "names no log"), ("{", "is not JSON")):  # fmt: skip
        (tmp_path / "log.json").write_text(text)
        with pytest.raises(ValueError, match=why):
            log_of(tmp_path)


def test_tensorboard_has_each_step_once(rlviz, tmp_path):  # noqa: F811
    pytest.importorskip("tensorboard", reason="tensorboard is not one of rlviz's packages")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    quick = "--steps", 2, "--num-prompts", 4, "--group-size", 2
    assert rlviz("train", "--log", "tensorboard", *quick, "--out", out).exit_code == 0
    assert rlviz("train", "--resume", out, "--steps", 4).exit_code == 0  # by log.json
    assert rlviz("train", "--resume", out, "--steps", 5, "--log", "none").exit_code == 0
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    logged_rewards = [(one.step, one.value) for one in events.Scalars("reward")]
    assert logged_rewards == [(row["step"], pytest.approx(row["reward"])) for row in rows[:4]]
