"""An algorithm carried into TRL's trainer: gradients, accumulation, history, LoRA, TRL's log, refusals. Skipped without TRL."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlviz import DAPO, DCPO, DUPO, GRPO, RunFolder
from rlviz.algorithms import find_algorithm
from rlviz.interop.carrying import check_options, in_one_rollout
from rlviz.runs import diagnose, import_run
from small_models.policies import load_policy

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")
pytest.importorskip("datasets", reason="datasets comes with TRL")
import trl

from rlviz.interop import carried
from tests.interop.batch import compared, frozen, ours
from tests.interop.carried_runs import OWN_LIMITS, SETTINGS, Precise, built, trained
from tests.interop.measure import in_trl

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "name", ["grpo", "dapo", "dupo", "gspo", "dcpo", "reinforce++", "kl-cov", "gdpo", "entropy-bonus", "tis", "own"]
)
def test_inside_trl_loss_and_gradient_are_ours(name):
    """On the frozen batch of `measure`: what TRL's trainer computes of it is what the algorithm alone computes."""
    algorithm = OWN_LIMITS if name == "own" else in_one_rollout(find_algorithm(name))
    apart = compared(ours(algorithm, frozen()), in_trl(algorithm, frozen(), carried(trl.GRPOTrainer, algorithm)))
    assert apart["gradient"] < 1e-6 and apart["loss"] < 1e-6


def weight_sums(trainer):
    """Return the sum of the weights of all tokens, of each update of the last rollout, which is in two parts."""
    sums = []
    for step, part in enumerate(trainer._buffered_inputs):
        trainer._step = step
        sums.append(float(trainer.weights_and_choice()["weights"][part["loss_mask"]].sum()))
    return [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]


@pytest.mark.parametrize("algorithm", [DCPO, OWN_LIMITS, find_algorithm("kl-cov")], ids=lambda a: a.name)
def test_accumulation_changes_nothing(algorithm, tmp_path):
    """16 updates by Adam, two minibatches, each whole or in two parts: rounding apart in float64."""
    settings = replace(SETTINGS, updates_per_rollout=4, minibatches=2)
    runs = [trained(built(algorithm, tmp_path, settings, parts, trainer=Precise)) for parts in (1, 2)]
    start = load_policy("chain", device="cpu").model.double()
    undivided, parts, before = ([*model.parameters()] for model in (runs[0].model, runs[1].model, start))
    apart = max(float((a - b).abs().max()) for a, b in zip(undivided, parts, strict=True))
    moved = max(float((a - b).abs().max()) for a, b in zip(undivided, before, strict=True))
    assert runs[0].state.global_step == runs[1].state.global_step == 16
    assert apart < 1e-12 and moved > 1e-3
    visits = sum(int(past.visits) for past in runs[0].history.values())
    assert visits == (16 if algorithm is DCPO else 0)  # four rollouts of four prompts
    if algorithm is OWN_LIMITS:  # a token mean: the weights of an update's tokens add up to 1
        assert weight_sums(runs[1]) == pytest.approx([1.0, 1.0])


def test_lora_trains_the_adapter_and_its_base_is_the_reference(tmp_path):
    peft = pytest.importorskip("peft", reason="peft comes with rlviz[trl]")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = trained(built(GRPO, tmp_path, replace(SETTINGS, steps=2), peft=lora, learning_rate=1.0))
    base = load_policy("chain", device="cpu").model.double().state_dict()
    weights = trainer.model.get_base_model().state_dict()
    assert torch.equal(
        weights["model.layers.0.self_attn.q_proj.base_layer.weight"], base["model.layers.0.self_attn.q_proj.weight"]
    )
    kls = [line["kl"] for line in trainer.state.log_history if "kl" in line]
    assert kls[0] == pytest.approx(0, abs=1e-9) and kls[-1] > 1e-6  # the adapter began as nothing


def above_a_quarter(rewards):
    return rewards - 0.25


def test_what_trl_logged_comes_back_with_the_algorithm_s_advantages(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow comes with rlviz[trl]")
    algorithm = replace(GRPO, name="Above", kl=None, advantage=above_a_quarter)
    trainer = trained(built(algorithm, tmp_path / "trl", log_completions=True))
    trainer.state.save_to_json(str(tmp_path / "trl" / "trainer_state.json"))
    import_run(tmp_path / "trl", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    steps = [record for record in run.records() if record.groups]
    responses = [response for record in steps for group in record.groups for response in group.responses]
    assert len(responses) >= 64 and {response.reward for response in responses} == {0.0, 1.0}
    assert all(one.advantage == pytest.approx(one.reward - 0.25, abs=1e-6) for one in responses)
    numbers = [line for line in trainer.state.log_history if "entropy" in line]
    # a rollout's first update has ratios of 1
    assert [line["clip_ratio/low_mean"] for line in numbers[::2]] == [0.0] * 4
    assert all(0 < line["entropy"] < 3 for line in numbers)
    assert diagnose(run).steps == len(run.records())


def test_groups_that_are_left_out_have_no_weight_and_none_is_sampled_in_their_place(tmp_path):
    trainer = trained(built(replace(in_one_rollout(DAPO), shape=None), tmp_path, replace(SETTINGS, steps=1)))
    (chunk,) = trainer._buffered_inputs
    groups = trainer.scores.view(4, 4)
    mixed = int((groups.amin(1) < groups.amax(1)).sum())
    assert 0 < mixed < 4 and len(chunk["loss_mask"]) == 16
    assert int(chunk["loss_mask"].any(1).sum()) == 4 * mixed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"entropy_coef": 0.01}, "^entropy_coef=0.01 would be left out"),
        ({"beta": 0.5, "loss_type": "bnpo", "scale_rewards": False}, "^beta=0.5, scale_rewards='none', loss_type='bnpo' would"),
        ({"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4, "steps_per_generation": 2},
         r"steps_per_generation must be a multiple of gradient_accumulation_steps \(4\)"),
    ],
)  # fmt: skip
def test_options_without_effect_are_refused_by_name(changed, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        built(DCPO, tmp_path, **changed)


def test_what_is_not_carried_is_refused_by_name(tmp_path, monkeypatch):
    trainer = built(DCPO, tmp_path)
    with pytest.raises(ValueError, match="resume_from_checkpoint must be None with DCPO: what its prompts earned"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(ValueError, match="text; the training set has a column of images"):
        trainer._generate_and_score_completions([{"prompt": "1=", "image": None}])
    with pytest.raises(ValueError, match="reward_funcs must have one named well_formed"):
        trained(built(DUPO, tmp_path))
    monkeypatch.setattr(trl.GRPOConfig, "world_size", property(lambda self: 2))
    with pytest.raises(ValueError, match="carried trains in one process; got 2"):
        check_options(DCPO, trainer.args)
