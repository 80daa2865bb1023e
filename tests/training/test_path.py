"""How a run computes a shipped policy stands in its config: a run of before that field goes on by transformers' modules."""

import json

from rlviz import GRPO
from rlviz.training import TrainSettings, resume, train
from small_models.policies import load_policy
from small_models.tasks import Chain

SHORT = TrainSettings(steps=4, num_prompts=4, group_size=4, updates_per_rollout=2, evaluate_every=2, details_every=2)


def config(folder):
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_a_run_of_before_goes_on_as_it_was_computed(tmp_path):
    run = train(load_policy("chain", device="cpu").on_transformers(), Chain(), GRPO, SHORT, out=tmp_path / "run")
    next(run)
    run.close()
    before = config(tmp_path / "run")
    del before["path"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(before), encoding="utf-8")
    again = resume(tmp_path / "run", device="cpu")
    assert again.path == "transformers"
    again.close()
    assert config(tmp_path / "run")["path"] == "transformers"
