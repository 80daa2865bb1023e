"""LoRA policies: they sample, train, stop and go on as others do, and a plain folder stays plain."""

import json
import re
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.training import PairSettings, TrainSettings, resume, train
from rlviz.training.run_folder import metrics_of
from small_models import adapters
from small_models.policies import Policy, load_policy
from small_models.sampling import response_logits, sample, token_logp
from small_models.scorers import Scorer
from small_models.tasks import Chain

peft = pytest.importorskip("peft")
TASK = Chain()
SETTINGS = TrainSettings(
    steps=4,
    num_prompts=8,
    group_size=4,
    lr=1e-2,
    lr_warmup_steps=0,
    evaluate_every=0,
    checkpoint_every=2,
    details_every=0,
)


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
    return Policy(model, policy.tokenizer, "chain with LoRA")


def trainable(policy):
    return {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}


def curve(records):
    return [{name: value for name, value in metrics_of(r).items() if name != "seconds"} for r in records]


@pytest.mark.parametrize(
    "changed", [{}, {"modules_to_save": ["lm_head"], "use_rslora": True, "rank_pattern": {"v_proj": 2}}]
)
def test_a_lora_policy_is_read_as_it_was_saved(changed, tmp_path):
    policy = lora_policy(**changed)
    policy.save(tmp_path)
    again = load_policy(tmp_path, device="cpu")
    weights, read = policy.model.state_dict(), again.model.state_dict()
    assert set(weights) == set(read)
    assert all(torch.equal(weights[name], read[name]) for name in weights)
    assert trainable(again) == trainable(policy)
    base, shipped = load_file(tmp_path / "model.safetensors"), load_policy("chain", device="cpu").model.state_dict()
    assert set(base) == set(shipped) and all(torch.equal(base[name], shipped[name]) for name in base)
    policy.save(tmp_path)  # over itself
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [
            "adapter",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    )


def test_the_adapter_and_no_dropout_are_in_what_is_sampled():
    policy = lora_policy()
    samples = sample(
        policy, ["35271=", "1="], group_size=8, max_new_tokens=9, generator=torch.Generator().manual_seed(0)
    )
    place = samples.prompt_ids, samples.prompt_mask, samples.tokens
    with torch.no_grad():
        logits = [response_logits(p, *place) for p in (policy, load_policy("chain", device="cpu"))]
    with_it, without = (token_logp(each, samples.tokens)[samples.mask] for each in logits)
    torch.testing.assert_close(samples.logp[samples.mask], with_it, rtol=0, atol=1e-5)
    assert (with_it - without).abs().max() > 0.1


@pytest.mark.parametrize("algorithm", [GRPO, PPO, DPO], ids=lambda algorithm: algorithm.name)
def test_a_run_that_stopped_goes_on_to_the_same_curve(algorithm, tmp_path):
    settings = SETTINGS
    if algorithm is DPO:
        settings = PairSettings(
            steps=4, batch_size=8, num_pairs=16, lr=1e-2, lr_warmup_steps=0, checkpoint_every=2, evaluate_every=0
        )
    policy = lora_policy()
    frozen = {name: p.clone() for name, p in policy.model.named_parameters() if not p.requires_grad}
    whole = curve(train(policy, TASK, algorithm, settings))
    assert all(torch.equal(p, frozen[name]) for name, p in policy.model.named_parameters() if name in frozen)
    run = train(lora_policy(), TASK, algorithm, settings, out=tmp_path / "run")
    first = curve([next(run), next(run)])
    going_on = resume(tmp_path / "run", device="cpu")
    assert trainable(going_on.policy) == trainable(policy)
    assert first + curve(going_on) == whole
    assert whole[0]["grad_norm"] > 0
    last, here = going_on.policy.model.state_dict(), policy.model.state_dict()
    assert all(torch.equal(last[name], here[name]) for name in here)


def test_a_scorer_begins_with_the_adapter_merged():
    policy = lora_policy()
    scorer, ids = Scorer.of(policy), torch.tensor([[5, 6, 7]])
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


def test_an_adapter_that_is_gone_is_not_read_again(tmp_path):
    lora_policy().save(tmp_path)
    load_policy("chain", device="cpu").save(tmp_path)
    assert not hasattr(load_policy(tmp_path, device="cpu").model, "peft_config")


def test_without_peft_a_folder_with_an_adapter_says_so(tmp_path, monkeypatch):
    lora_policy().save(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ValueError, match=rf"is a LoRA adapter, which needs peft here; {re.escape(sys.executable)} -m pip install peft"
    ):
        load_policy(tmp_path, device="cpu")


def endless(file):
    file.unlink()
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder, config: (folder / adapters.WEIGHTS).unlink(), "cannot be read"),
        (lambda folder, config: (folder / adapters.CONFIG).write_text("{"), "cannot be read"),
        (lambda folder, config: endless(folder / adapters.CONFIG), "cannot be read"),
        (lambda folder, config: endless(folder / adapters.WEIGHTS), "cannot be read"),
        (lambda folder, config: config.update(r="4"), "cannot be read"),
        (lambda folder, config: config.update(r=10**9), "its weights are not of rank 1000000000"),
        (lambda folder, config: config.update(target_modules=["q_proj"]), "there is no place for its"),
        (
            lambda folder, config: config.update(megatron_config={}, megatron_core="this"),
            "megatron_config = {} cannot be kept",
        ),
    ],
    ids=[
        "no weights",
        "no JSON",
        "endless config",
        "endless weights",
        "rank a text",
        "rank huge",
        "fewer modules",
        "a module to import",
    ],
)
def test_a_damaged_adapter_is_refused_in_a_sentence(damage, message, tmp_path):
    lora_policy().save(tmp_path)
    folder = tmp_path / adapters.FOLDER
    config = json.loads((folder / adapters.CONFIG).read_text())
    before = dict(config)
    damage(folder, config)
    if config != before:
        (folder / adapters.CONFIG).write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message) as refused:
        load_policy(tmp_path, device="cpu")
    assert "\n" not in str(refused.value)
    assert "this" not in sys.modules  # nothing that a config names is imported


def test_pickled_adapters_are_not_read(tmp_path):
    lora_policy().save(tmp_path)
    folder = tmp_path / adapters.FOLDER
    torch.save(load_file(folder / adapters.WEIGHTS), folder / "adapter_model.bin")
    (folder / adapters.WEIGHTS).unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        load_policy(tmp_path, device="cpu")


def other_kind(policy):
    return peft.get_peft_model(policy.model, peft.IA3Config(target_modules=["q_proj"], feedforward_modules=[]))


def two_adapters(policy):
    model = peft.get_peft_model(policy.model, peft.LoraConfig(target_modules=["q_proj"]))
    model.add_adapter("second", peft.LoraConfig(target_modules=["q_proj"]))
    return model


def put_in_by_transformers(policy):
    policy.model.add_adapter(peft.LoraConfig(target_modules=["q_proj"]))
    return policy.model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_kind, r"one LoRA adapter named 'default'; got a PeftModel with 'default' \(IA3\)"),
        (two_adapters, r"got a PeftModel with 'default' \(LORA\), 'second' \(LORA\)"),
        (put_in_by_transformers, "must come from peft.get_peft_model, .* got a LlamaForCausalLM with"),
    ],
)
def test_adapters_that_could_not_be_resumed_are_refused_before_a_run_starts(make, message, tmp_path):
    policy = load_policy("chain", device="cpu")
    policy = Policy(make(policy), policy.tokenizer, "other")
    with pytest.raises(ValueError, match=message):
        train(policy, TASK, GRPO, SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_adapter_alone_is_no_policy(tmp_path):
    lora_policy().model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a LoRA adapter without its base; load the base"):
        load_policy(tmp_path, device="cpu")


def test_weights_of_another_shape_are_refused(tmp_path):
    lora_policy().save(tmp_path)
    file = tmp_path / adapters.FOLDER / adapters.WEIGHTS
    tensors = load_file(file)
    save_file({name: value[:, :3].contiguous() for name, value in tensors.items()}, file)
    with pytest.raises(ValueError, match="cannot be read"):
        load_policy(tmp_path, device="cpu")
