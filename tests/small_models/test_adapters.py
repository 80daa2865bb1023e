"""LoRA policies: they sample, train, stop and go on as others do, and a plain folder stays plain."""

import json
import re
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlviz.algorithms import GRPO
from rlviz.training import TrainSettings, resume, train
from small_models import adapters
from small_models.policies import Policy, build_policy, load_policy
from small_models.sampling import encode_prompts, response_logits, sample, token_logp
from small_models.scorers import Scorer
from small_models.tasks import Chain

peft = pytest.importorskip("peft")
TASK = Chain()
SETTINGS = TrainSettings(steps=4, num_prompts=8, group_size=4, lr=1e-2, lr_warmup_steps=0, evaluate_every=0)


def lora_policy(**changed):
    """The shipped chain policy with an adapter that does something from the start (LoRA's own does nothing: B = 0)."""
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.5, **changed}
    policy = load_policy("chain", device="cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = peft.get_peft_model(policy.model, peft.LoraConfig(**settings))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.05)
    return Policy(model, policy.tokenizer, "chain with LoRA", policy.base)


def trainable(policy):
    return {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}


def test_a_lora_policy_is_read_as_it_was_saved(tmp_path):
    policy = lora_policy(modules_to_save=["lm_head"], use_rslora=True, rank_pattern={"v_proj": 2})
    policy.save(tmp_path)
    again = load_policy(tmp_path, device="cpu")
    weights, read = policy.model.state_dict(), again.model.state_dict()
    assert set(weights) == set(read)
    assert all(torch.equal(weights[name], read[name]) for name in weights)
    assert trainable(again) == trainable(policy)
    policy.save(tmp_path)  # over itself
    load_policy("chain", device="cpu").save(tmp_path)  # over it: the adapter is gone, and not read again
    assert not hasattr(load_policy(tmp_path, device="cpu").model, "peft_config")


def test_the_adapter_and_no_dropout_are_in_what_is_sampled():
    policy = lora_policy()
    samples = sample(
        policy, ["35271=", "1="], group_size=8, max_new_tokens=9, generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        logits = [response_logits(p, **samples.model_inputs) for p in (policy, load_policy("chain", device="cpu"))]
    with_it, without = (token_logp(values, samples.tokens)[samples.mask] for values in logits)
    torch.testing.assert_close(samples.logp[samples.mask], with_it, rtol=0, atol=1e-5)
    assert (with_it - without).abs().max() > 0.1


def test_a_scorer_begins_with_the_adapter_merged():
    policy = lora_policy()
    scorer, ids = Scorer.from_policy(policy), torch.tensor([[5, 6, 7]])
    policy.model.eval()
    with torch.no_grad():
        expected = policy.model(ids, output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(scorer.trunk(ids).last_hidden_state, expected, rtol=0, atol=1e-5)
    assert all(p.requires_grad for p in scorer.parameters())
    assert "lora" not in " ".join(scorer.state_dict())


def test_gradient_checkpointing_reaches_an_adapter():
    gradients = []
    for on in (False, True):
        policy = lora_policy()
        if on:
            policy.model.base_model.model.gradient_checkpointing_enable({"use_reentrant": True})
        run = train(policy, TASK, GRPO, SETTINGS)
        next(run)
        gradients.append({name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None})
    assert set(gradients[0]) == set(gradients[1]) == trainable(policy)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-7)


def test_without_peft_a_folder_with_an_adapter_says_so(tmp_path, monkeypatch):
    lora_policy().save(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ValueError, match=rf"is a LoRA adapter, which needs peft here; {re.escape(sys.executable)} -m pip install peft"
    ):
        load_policy(tmp_path, device="cpu")


def pickled(folder):
    torch.save(load_file(folder / adapters.WEIGHTS), folder / "adapter_model.bin")
    (folder / adapters.WEIGHTS).unlink()


def fewer_ranks(folder):
    tensors = load_file(folder / adapters.WEIGHTS)
    save_file({name: value[:, :3].contiguous() for name, value in tensors.items()}, folder / adapters.WEIGHTS)


@pytest.mark.parametrize("damage", [pickled, fewer_ranks])
def test_a_damaged_adapter_is_refused_in_a_sentence(damage, tmp_path):
    lora_policy().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match="cannot be read") as refused:
        load_policy(tmp_path, device="cpu")
    assert "\n" not in str(refused.value)


@pytest.fixture
def base(tmp_path):
    """A folder with a model of ours, as one has it from a hub."""
    load_policy("chain", device="cpu").save(tmp_path / "base")
    return tmp_path / "base"


def logits_of(policy):
    with torch.no_grad():
        return response_logits(
            policy, *encode_prompts(policy, ["352=", "9="]), torch.tensor([[[5, 6, 7]], [[8, 9, 5]]])
        )


def lora_run(base, out, **changed):
    settings = replace(SETTINGS, checkpoint_every=1, **changed)
    return train(load_policy(base, device="cpu", lora=4), TASK, GRPO, settings, out=out)


@pytest.mark.parametrize("changed", [{"reset_reference_every": 1}, {"sampler_lag": 1}], ids=str)
def test_a_run_keeps_adapters_and_goes_on_bit_for_bit(base, tmp_path, changed):
    unbroken = lora_run(base, tmp_path / "unbroken", **changed)
    expected = [record.loss for record in unbroken]
    cut_off = lora_run(base, tmp_path / "run", **changed)
    losses = [next(cut_off).loss for _ in range(2)]
    cut_off.close()
    resumed = resume(tmp_path / "run", device="cpu")
    assert losses + [record.loss for record in resumed] == expected
    assert len(set(expected)) == 4
    for got, weight in zip(resumed.policy.model.parameters(), unbroken.policy.model.parameters(), strict=True):
        assert torch.equal(got, weight)
    assert not list(tmp_path.glob("run/**/model.safetensors"))
    read = load_policy(tmp_path / "run" / "checkpoint", device="cpu")
    assert torch.equal(logits_of(read), logits_of(unbroken.policy))


def test_transformers_reads_the_adapter_of_a_run_and_a_merged_policy_is_plain(base, tmp_path):
    run = lora_run(base, tmp_path / "run")
    list(run)
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint").float().eval()
    before = logits_of(run.policy)
    with torch.no_grad():
        logits = read(torch.cat([encode_prompts(run.policy, ["352="])[0], torch.tensor([[5, 6]])], 1)).logits[:, -3:]
    torch.testing.assert_close(logits, before[0], rtol=0, atol=1e-5)
    assert (before - logits_of(load_policy(base, device="cpu"))).abs().max() > 0.01
    run.policy.merged().save(tmp_path / "merged")
    plain = load_policy(tmp_path / "merged", device="cpu")
    assert not adapters.has_adapter(plain.model)
    torch.testing.assert_close(logits_of(plain), before, rtol=0, atol=1e-5)
    assert torch.equal(logits_of(run.policy), before)  # merging is done to a copy


def test_the_reference_shares_the_base_and_is_the_policy_without_its_adapter(base, tmp_path):
    run = lora_run(base, tmp_path / "run")
    list(run)
    policy, reference = run.policy.model, run.start.model
    places = {weight.data_ptr() for weight in policy.parameters() if weight.requires_grad}
    unshared = {weight.data_ptr() for weight in reference.parameters()} - {w.data_ptr() for w in policy.parameters()}
    assert len(unshared) == len(places)  # as many of its weights as the adapter has
    torch.testing.assert_close(logits_of(run.start), logits_of(load_policy(base, device="cpu")), rtol=0, atol=1e-5)


def test_a_base_that_moved_or_changed_is_named(base, tmp_path):
    policy = load_policy(base, device="cpu", lora=2)
    policy.save(tmp_path / "adapter")
    moved = base.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"its base could not be loaded: .*base is not there; write where it is now"):
        load_policy(tmp_path / "adapter", device="cpu")
    recorded = json.loads((tmp_path / "adapter/base.json").read_text())
    (tmp_path / "adapter/base.json").write_text(json.dumps({**recorded, "name": str(moved)}))
    assert torch.equal(logits_of(load_policy(tmp_path / "adapter", device="cpu")), logits_of(policy))
    other = load_policy(moved, device="cpu")
    with torch.no_grad():
        other.model.lm_head.weight[0, 0] += 1
    other.save(moved)
    with pytest.raises(ValueError, match=r"was trained on another base than .* is now"):
        load_policy(tmp_path / "adapter", device="cpu")


def test_a_run_whose_base_moved_is_no_damage_and_goes_on_where_its_checkpoint_says_so(base, tmp_path):
    run = lora_run(base, tmp_path / "run")
    next(run)
    run.close()
    moved = base.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"write where it is now into .*checkpoint/base.json") as refused:
        resume(tmp_path / "run", device="cpu")
    assert "damaged" not in str(refused.value)
    file = tmp_path / "run/checkpoint/base.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "name": str(moved)}))
    assert [record.step for record in resume(tmp_path / "run", device="cpu")] == [2, 3, 4]


def test_an_adapter_on_a_base_that_is_found_nowhere_again_is_not_saved(base, tmp_path):
    policy = load_policy(base, device="cpu")
    with torch.no_grad():
        policy.weights.lm_head.weight[0, 0] += 1
    for adapted in (policy.with_lora(2), build_policy(device="cpu").with_lora(2)):
        with pytest.raises(ValueError, match="base of its LoRA adapter is found nowhere again; save the base"):
            adapted.save(tmp_path / "saved")
        assert not [*(tmp_path / "saved").iterdir()]


def test_an_adapter_within_its_base_s_folder_is_read_once_it_is_moved(base, tmp_path):
    policy, moved = load_policy(base, device="cpu", lora=2), tmp_path / "moved"
    policy.model.save_pretrained(base / "adapter")
    with pytest.raises(
        ValueError, match=r"move adapter/ out of it, name the model in adapter_config.json there, as base_"
    ):
        load_policy(base, device="cpu")
    (base / "adapter").rename(moved)
    config = json.loads((moved / adapters.CONFIG).read_text()) | {"base_model_name_or_path": str(base)}
    (moved / adapters.CONFIG).write_text(json.dumps(config))
    assert torch.equal(logits_of(load_policy(moved, device="cpu")), logits_of(policy))


def test_an_adapter_of_peft_alone_is_read_where_it_names_its_base(base, tmp_path):
    policy = load_policy(base, device="cpu", lora=2)
    policy.model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / adapters.CONFIG).read_text())
    assert torch.equal(logits_of(load_policy(tmp_path, device="cpu")), logits_of(policy))
    for name in (None, str(tmp_path)):
        (tmp_path / adapters.CONFIG).write_text(json.dumps({**config, "base_model_name_or_path": name}))
        with pytest.raises(ValueError, match=r"names no base_model_name_or_path|must be a whole model"):
            load_policy(tmp_path, device="cpu")


def test_a_rank_out_of_range_and_a_second_adapter_are_refused(base):
    for rank in (0, 2.5, 5000):
        with pytest.raises(ValueError, match=r"lora must be .*from 1 to 1024"):
            load_policy(base, device="cpu", lora=rank)
    with pytest.raises(ValueError, match="has an adapter already"):
        load_policy(base, device="cpu", lora=2).with_lora(2)


def test_adapters_that_could_not_be_resumed_are_refused_before_a_run_starts(tmp_path):
    other, by_transformers = (load_policy("chain", device="cpu") for _ in range(2))
    kinds = peft.get_peft_model(other.model, peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]))
    by_transformers.model.add_adapter(peft.LoraConfig(target_modules=["q_proj"]))
    for model in (kinds, by_transformers.model):
        with pytest.raises(ValueError, match=r"must come from peft.get_peft_model, with one LoRA adapter"):
            train(Policy(model, other.tokenizer, "other"), TASK, GRPO, SETTINGS, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
