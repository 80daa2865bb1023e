"""An algorithm carried into TRL's trainer: accumulation, history, LoRA, further prompts, its run folder. Skipped without
TRL."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from rlviz import DAPO, DCPO, DR_GRPO, DUPO, GRPO, TrainSettings, diagnose, inspect_run
from rlviz.interop import to_trl
from rlviz.training import RunFolder
from small_models.policies import load_policy

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")
pytest.importorskip("datasets", reason="datasets comes with TRL")
from tests.interop.carried_runs import OWN_LIMITS, TASK, CutOff, Precise, built as built_with, trained

pytestmark = pytest.mark.filterwarnings("ignore")


def built(algorithm, folder, accumulation=1, steps=4, **more):
    """Return a carried trainer of four groups of four, two updates a rollout."""
    settings = TrainSettings(
        num_prompts=4, group_size=4, steps=steps, updates_per_rollout=2, max_new_tokens=12, lr_warmup_steps=0
    )
    return built_with(algorithm, folder, settings, accumulation, **more)


def correct(prompts, completions, **_):
    """By chance in place of right answers: rewards differ within the groups of odd prompts alone."""
    return [float(place % 2 and int(p[0]) % 2) for place, p in enumerate(prompts)]


@pytest.mark.parametrize("algorithm", [DCPO, OWN_LIMITS], ids=lambda a: a.name)
def test_accumulation_changes_nothing_and_the_run_is_kept(algorithm, tmp_path):
    """20 updates by Adam: 2e-15 apart in float64. In float32 they are rounding apart, which Adam enlarges: 1e-6 to 1e-5."""
    whole = trained(built(algorithm, tmp_path / "a", out=tmp_path / "run", steps=10, trainer=Precise))
    parts = trained(built(algorithm, tmp_path / "b", accumulation=4, steps=10, trainer=Precise))
    assert whole.state.global_step == parts.state.global_step == 20
    before = load_policy("chain", device="cpu").model
    apart = [
        float((a - b).abs().max()) for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True)
    ]
    moved = [float((a - b).abs().max()) for a, b in zip(whole.model.parameters(), before.parameters(), strict=True)]
    assert max(apart) < 1e-12 and max(moved) > 1e-3
    visits = sum(int(history.visits) for history in whole._visits.values())
    assert visits == (40 if algorithm is DCPO else 0)  # 10 rollouts of 4 prompts
    folder = RunFolder.open(tmp_path / "run")
    records = folder.records()
    assert (
        [record.step for record in records] == [*range(1, 11)] and records[1].has_tokens and not records[0].has_tokens
    )
    tokens = [token for response in records[1].groups[0].responses for token in response.tokens]
    ratio = [token.new_prob / token.old_prob for token in tokens]
    assert all(token.ratio == pytest.approx(r, rel=1e-4) for token, r in zip(tokens, ratio, strict=True))
    _, upper = algorithm.bounds(torch.tensor([token.old_prob for token in tokens], dtype=torch.double).log())
    upper = torch.as_tensor(upper).expand(len(tokens))
    assert [token.upper for token in tokens] == pytest.approx(upper.tolist(), rel=1e-4)
    assert max(abs(ratio_ - 1) for ratio_ in ratio) > 1e-4  # as they are after the updates
    logged = [line for line in whole.state.log_history if "reward" in line]
    assert [record.reward for record in records] == pytest.approx([line["reward"] for line in logged])
    losses = torch.tensor([line["loss"] for line in whole.state.log_history if "loss" in line]).view(10, 2)
    assert [record.loss for record in records] == pytest.approx(losses.mean(1).tolist(), abs=1e-6)
    assert inspect_run(folder).caption.startswith("Step 10 of 10") and diagnose(folder).steps == 10
    assert records[0].gold == TASK.gold(records[0].prompt) and records[0].grad_norm > 0


def test_lora_trains_the_adapter_and_its_base_is_the_reference(tmp_path):
    peft = pytest.importorskip("peft", reason="peft comes with rlviz[trl]")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = trained(built(GRPO, tmp_path, peft=lora, out=tmp_path / "run", learning_rate=1.0, steps=2))
    base = load_policy("chain", device="cpu").model.double().state_dict()
    named = dict(trainer.model.named_parameters())
    assert {name for name, parameter in named.items() if parameter.requires_grad} == {n for n in named if "lora_" in n}
    weights = trainer.model.get_base_model().state_dict()
    assert torch.equal(
        weights["model.layers.0.self_attn.q_proj.base_layer.weight"], base["model.layers.0.self_attn.q_proj.weight"]
    )
    kls = [line["kl"] for line in trainer.state.log_history if "kl" in line]
    assert kls[0] == pytest.approx(0, abs=1e-9) and kls[-1] > 1e-6  # the adapter began as nothing
    assert RunFolder.open(tmp_path / "run").metrics["beta"].tolist() == [0.04, 0.04]


def test_dynamic_sampling_draws_further_prompts_and_dupo_repeats(tmp_path):
    """Rewards that differ within the groups of even prompts alone: the others are sampled in place of, or repeated over."""

    kept = [replace(DAPO, shape=None), replace(DUPO, shape=None)]
    for algorithm in kept:
        more = {"out": tmp_path / f"run {algorithm.name}", "rewards": (correct,), "prompts": 60, "steps": 2}
        trainer = trained(built(algorithm, tmp_path / algorithm.name, **more))
    records = {algorithm.name: RunFolder.open(tmp_path / f"run {algorithm.name}").records() for algorithm in kept}
    assert all(r.rounds > 1 and r.responses_used == 16 and r.responses_sampled > 16 for r in records["DAPO"])
    assert all(r.rounds == 1 and r.responses_sampled == 16 and 0 < r.responses_used < 16 for r in records["DUPO"])
    chunk = trainer._buffered_inputs[0]
    assert float(chunk["rlviz_weights"].sum()) == pytest.approx(1.0) and bool(chunk["rlviz_mask"].any(1).all())


def test_a_place_that_no_informative_group_fills_has_no_weight(tmp_path):
    odd = sum(int(prompt[0]) % 2 for prompt in TASK.train_prompts[:4])  # of the four prompts that there are
    trainer = trained(built(replace(DAPO, shape=None), tmp_path, rewards=(correct,), prompts=4, steps=1))
    chunk = trainer._buffered_inputs[0]
    assert 0 < odd < 4 and int(chunk["rlviz_mask"].any(1).sum()) == 4 * odd
    assert float(chunk["rlviz_weights"].sum()) == pytest.approx(1.0)


def test_history_is_in_the_checkpoint(tmp_path):
    first = built(DCPO, tmp_path)
    first.args.save_strategy, first.args.save_steps = "steps", 4
    trained(first)
    again = built(DCPO, tmp_path)
    again.create_optimizer_and_scheduler(4)
    again._load_optimizer_and_scheduler(str(tmp_path / "checkpoint-4"))
    assert sum(int(part.visits) for part in again._visits.values()) == 8  # two rollouts of four prompts


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"entropy_coef": 0.01}, "entropy_coef must be 0.0 with a carried algorithm"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile must be 1.0"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions must be False"),
        (
            {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4, "steps_per_generation": 2},
            r"steps_per_generation must be a multiple of gradient_accumulation_steps \(4\)",
        ),
    ],
)
def test_options_that_would_be_left_out_are_refused(changed, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        built(DCPO, tmp_path, **changed)


def test_options_that_stand_for_pieces_are_refused_all_by_name(tmp_path):
    changed = {"beta": 0.5, "epsilon": 0.01, "loss_type": "bnpo", "scale_rewards": False}
    with pytest.raises(ValueError, match="would be left out") as refused:
        built(GRPO, tmp_path, **changed)
    assert str(refused.value) == (
        "beta=0.5, epsilon=0.01, scale_rewards='none', loss_type='bnpo' would be left out: the pieces of GRPO say it. Take these "
        "options out of GRPOConfig, and change the algorithm instead, by its with_parameters or dataclasses.replace"
    )
    for name, value in {"epsilon_high": 0.3, "delta": 4.0, "importance_sampling_level": "sequence"}.items():
        with pytest.raises(ValueError, match=f"{name}={value!r} would be left out: the pieces of DCPO say it"):
            built(DCPO, tmp_path, **{name: value})


@pytest.mark.parametrize("algorithm", [GRPO, DR_GRPO, DAPO.with_parameters(eps_high=0.5)], ids=lambda a: a.name)
def test_options_that_say_what_the_algorithm_says_are_left_alone(algorithm, tmp_path):
    """All that an export has may be given: DAPO's loss_type is bnpo where there are two minibatches, else dapo."""
    settings = TrainSettings(num_prompts=4, group_size=4, updates_per_rollout=2, minibatches=2)
    fields = to_trl(algorithm, settings).fields
    assert built(algorithm, tmp_path, **fields).args.loss_type == fields["loss_type"]


def cut_off(algorithm, tmp_path, after, every, **more):
    """Return what builds a run's trainer anew, once it was cut off with a checkpoint every few updates."""

    def anew(algorithm=algorithm):
        saving = {"save_strategy": "steps", "save_steps": every}
        return built(algorithm, tmp_path / "trl", out=tmp_path / "run", **more, **saving)

    trainer = anew()
    trainer.add_callback(CutOff(after))
    with pytest.raises(KeyboardInterrupt):
        trained(trainer)
    return anew


@pytest.mark.parametrize(
    ("algorithm", "prompts"), [(DCPO, 6), (GRPO, 9), (replace(DAPO, shape=None), 60)], ids=["DCPO", "GRPO", "DAPO"]
)
def test_a_run_resumes_into_its_folder_as_if_it_had_not_been_cut_off(algorithm, prompts, tmp_path):
    """After update 7 of 12, from the checkpoint of update 6: in a later epoch, with a history, with draws of further prompts."""
    more = {"prompts": prompts, "steps": 6, "trainer": Precise}
    whole = trained(built(algorithm, tmp_path / "a", out=tmp_path / "whole", **more))
    again = cut_off(algorithm, tmp_path, after=7, every=6, **more)()
    trained(again, resume_from_checkpoint=str(tmp_path / "trl" / "checkpoint-6"))
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    one, two = (RunFolder.open(tmp_path / name).records() for name in ("whole", "run"))
    assert [record.step for record in two] == [1, 2, 3, 4, 5, 6]
    assert [replace(record, seconds=0.0) for record in one] == [replace(record, seconds=0.0) for record in two]


def test_a_checkpoint_in_the_midst_of_a_rollout_samples_it_anew(tmp_path):
    anew = cut_off(DCPO, tmp_path, after=6, every=3, steps=6)
    assert [record.step for record in RunFolder.open(tmp_path / "run").records()] == [1, 2]
    history = json.loads((tmp_path / "trl" / "checkpoint-3" / "rlviz_history.json").read_text())
    assert sum(told["visits"][0] for told in history.values()) == 4  # the second rollout's will be counted anew
    again = anew()
    with pytest.warns(UserWarning, match=r"checkpoint-3 is in the midst of a rollout.* step 2 is sampled anew"):
        trained(again, resume_from_checkpoint=str(tmp_path / "trl" / "checkpoint-3"))
    records = RunFolder.open(tmp_path / "run").records()
    assert [record.step for record in records] == [*range(1, len(records) + 1)]
    assert records[-1].tokens_sampled > records[0].tokens_sampled


def test_a_folder_with_a_run_is_not_written_over(tmp_path):
    anew = cut_off(DCPO, tmp_path, after=5, every=2)
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(FileExistsError, match=r"holds a run: go on with it by train\(resume_from_checkpoint"):
        trained(anew())
    with pytest.raises(ValueError, match="holds a run of another algorithm, DCPO"):
        trained(anew(GRPO), resume_from_checkpoint=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty"):
        built(DCPO, tmp_path / "trl", out=tmp_path / "other")


def test_a_model_that_is_cut_among_processes_is_refused(tmp_path, monkeypatch):
    import accelerate

    monkeypatch.setattr(accelerate.Accelerator, "num_processes", property(lambda self: 2))
    monkeypatch.setattr(accelerate.Accelerator, "distributed_type", property(lambda self: "FSDP"))
    with pytest.raises(ValueError, match=r"never tried with a model cut into parts.*; got 2 processes of FSDP"):
        built(DCPO, tmp_path)
