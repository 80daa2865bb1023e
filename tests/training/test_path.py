"""Which of the two ways to compute a policy a run takes: decided once, kept in its config, and kept when it goes on."""

import json

import pytest

from rlviz import GRPO
from rlviz.training import TrainSettings, resume, train
from small_models import paths
from small_models.paths import computing
from small_models.policies import load_policy
from small_models.tasks import Chain

SHORT = TrainSettings(steps=4, num_prompts=4, group_size=4, updates_per_rollout=2, evaluate_every=2, details_every=2)


def hooked():
    policy = load_policy("chain", device="cpu")
    policy.model.model.layers[0].register_forward_hook(lambda *_: None)
    return policy


def new_run(path, out=None):
    policy = load_policy("chain", device="cpu") if path == "plain" else hooked()
    return train(policy, Chain(), GRPO, SHORT, out=out)


def config(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_a_run_of_before_goes_on_as_it_was_computed(tmp_path):
    run = new_run("transformers", out=tmp_path / "run")
    next(run)
    run.close()
    before = config(tmp_path / "run")
    del before["path"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(before), encoding="utf-8")
    again = resume(tmp_path / "run", device="cpu")
    assert again.path == "transformers"
    again.close()
    assert config(tmp_path / "run")["path"] == "transformers"


def test_each_step_takes_the_run_s_path_whatever_is_asked_outside(monkeypatch):
    answers = []
    fits = paths.fits
    monkeypatch.setattr(paths, "fits", lambda model: (answers.append(fits(model)), answers[-1])[1])
    run = new_run("plain")
    with computing("transformers"):
        next(run)
    assert answers and all(answers)


def test_a_path_that_cannot_be_kept_is_refused(tmp_path, monkeypatch):
    run = new_run("plain", out=tmp_path / "run")
    next(run)
    run.close()
    monkeypatch.setattr(paths, "LARGEST", 10)
    with pytest.raises(
        ValueError, match=r"path: the run in .* was computed by plain tensors, which its policy here does not allow"
    ):
        resume(tmp_path / "run", device="cpu")
    monkeypatch.undo()
    assert resume(tmp_path / "run", device="cpu").step == 1
