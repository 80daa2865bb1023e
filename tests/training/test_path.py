"""A run folder from before a field was written is read, with nothing in its place, and goes on as it was computed."""

import json

from rlviz import TIS
from rlviz.training import RunFolder, TrainSettings, resume, train
from small_models.policies import load_policy

SHORT = TrainSettings(steps=3, num_prompts=4, group_size=4, updates_per_rollout=2, evaluate_every=2, details_every=2)
YOUNG = (
    "mismatch_kl mismatch_std mismatch_outside token_ratio_std sequence_ratio_std routing_flips reward_parts reward_std "
    "held_out_reward"
).split()


def test_a_run_of_before_goes_on_as_it_was_computed(tmp_path):
    """How a shipped policy is computed stands in its config: before that field it was by transformers' modules."""
    run = train(load_policy("chain", device="cpu").on_transformers(), "chain", TIS, SHORT, out=tmp_path / "run")
    next(run), run.save(), run.close()
    config, metrics = (tmp_path / "run" / name for name in ("config.json", "metrics.jsonl"))
    saved, row = (json.loads(file.read_text(encoding="utf-8")) for file in (config, metrics))
    del saved["path"]
    settings = {name: value for name, value in saved["settings"].items() if not name.startswith("sampler_")}
    assert len(settings) == len(saved["settings"]) - 3
    config.write_text(json.dumps({**saved, "settings": settings}), encoding="utf-8")
    metrics.write_text(json.dumps({k: v for k, v in row.items() if k not in YOUNG}) + "\n", encoding="utf-8")
    (record,) = RunFolder.open(tmp_path / "run").records()
    assert [getattr(record, name) for name in YOUNG] == [None] * len(YOUNG)
    again = resume(tmp_path / "run", device="cpu")
    assert again.path == "transformers" and again.settings.policy_samples and len(list(again)) == 2
    assert json.loads(config.read_text(encoding="utf-8"))["path"] == "transformers"
