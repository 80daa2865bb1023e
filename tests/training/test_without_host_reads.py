"""Ready for a GPU, shown without one: on torch's `meta` device, where reading a number is an error, and by counting reads."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DAPO, GRPO, PPO, base
from rlviz.algorithms.base import PolicyGradient
from rlviz.training import default_settings, step, train
from rlviz.types import Batch
from small_models import host
from small_models.policies import Policy, load_policy
from small_models.sampling import response_logits, response_logits_and_hidden, sample, token_logp
from small_models.scorers import Scorer
from small_models.tasks import Chain

META = torch.device("meta")
SAMPLING = [algorithm for algorithm in ALGORITHMS if isinstance(algorithm, PolicyGradient)]
POLICIES = "chain", "chain-experts"
PROMPTS = Chain().train_prompts[:5]
SMALL = {"num_prompts": 6, "group_size": 4, "evaluate_every": 0, "details_every": 1}


def policy_on_meta():
    policy = load_policy(
        "chain", device="cpu"
    )  # computed by the decoder: transformers' modules read whether there is padding
    return Policy(policy.weights.to(META), policy.vocabulary, policy.source)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Let the CPU be taken for a device that the host would wait for."""
    for module in (host, base):
        monkeypatch.setattr(module, "needs_sync", lambda device: True)


class TestMeta:
    def test_forward_and_backward(self):
        policy = policy_on_meta()
        ids = torch.zeros(4, 6, dtype=torch.long, device=META)
        tokens = torch.zeros(12, 1, 9, dtype=torch.long, device=META)
        place = {"prompt_ids": ids, "prompt_mask": ids.bool(), "tokens": tokens, "wanted": tokens.bool()}
        place["owner"] = tokens[:, 0, 0]
        logits, hidden = response_logits_and_hidden(policy, **place)
        assert logits.shape == (12, 1, 9, 48) and hidden.shape[:3] == (12, 1, 9) and logits.device == META
        token_logp(response_logits(policy, **place), tokens).sum().backward()
        assert all(weight.grad is not None and weight.grad.device == META for weight in policy.weights.parameters())
        assert Scorer.from_policy(policy).values(**place).shape == (12, 1, 9)

    @pytest.mark.parametrize("limits", [{"top_k": 5, "top_p": 0.9}, {"temperature": 0.0}], ids=str)
    def test_a_decode_of_a_fixed_length(self, limits):
        samples = sample(policy_on_meta(), PROMPTS, group_size=3, max_new_tokens=40, stop_at_end=False, **limits)
        assert samples.tokens.shape == samples.logp.shape == (5, 3, 40)
        assert samples.tokens.device == META

    @pytest.mark.parametrize("algorithm", SAMPLING, ids=lambda a: a.name)
    def test_every_loss_forward_and_backward(self, algorithm):
        logp = torch.zeros(2, 3, 5, device=META, requires_grad=True)
        values = torch.zeros(2, 3, 5, device=META)
        output = algorithm.loss(logp, Batch(values, values, values.bool(), values))
        output.loss.backward()
        assert logp.grad.device == output.clipped.device == META


class TestAsOnAGpu:
    """What is done where the host would wait gives what the CPU's own way gives."""

    @pytest.mark.parametrize(
        ("algorithm", "path"), [(DAPO, "transformers"), (PPO, "plain")], ids=lambda value: getattr(value, "name", value)
    )
    def test_a_curve(self, algorithm, path, monkeypatch):
        settings = {**SMALL, "steps": 3, "updates_per_rollout": 2, "lr": 1e-3, "lr_warmup_steps": 0}
        curves = []
        for waits in (False, True):
            for module in (host, base):
                monkeypatch.setattr(module, "needs_sync", lambda device, waits=waits: waits)
            policy = load_policy("chain", device="cpu")
            policy = policy.on_transformers() if path == "transformers" else policy
            run = train(policy, Chain(), algorithm, default_settings(algorithm, **settings))
            curves.append([vars(record) for record in run])
        for first, other in zip(*curves, strict=True):
            for name in ("reward", "loss", "grad_norm", "ratio_std", "entropy", "kl", "rows_used", "tokens_sampled"):
                assert first[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name
            texts = [[[r.text for r in group.responses] for group in record["groups"]] for record in (first, other)]
            assert texts[0] == texts[1]


def test_limits_that_are_none_make_the_loss_no_number_where_nobody_can_be_told(as_on_a_gpu):
    wrong = replace(
        GRPO, kl=None, bounds=lambda old_logp: (torch.ones_like(old_logp), torch.ones_like(old_logp) + old_logp + 9)
    )
    values = torch.full((1, 2, 3), -10.0)
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    assert wrong.loss(values, Batch(values, torch.ones_like(values), mask)).loss.isnan()
    fine = torch.full((1, 2, 3), -8.0)
    assert wrong.loss(fine, Batch(fine, torch.ones_like(fine), mask)).loss.isfinite()


def test_an_update_that_is_not_finite_changes_neither_model_nor_what_adam_remembers(monkeypatch):
    settings = default_settings(PPO, **{**SMALL, "updates_per_rollout": 3, "minibatches": 3})
    run = train(load_policy("chain", device="cpu"), Chain(), PPO, settings)
    next(run)
    models = {"policy": run.policy.model, "critic": run.state.critic}
    rollout, optimizer_step = run.collect(), step.optimizer_step

    def tensors():
        state = [v for o in run.state.optimizers for s in o.state.values() for v in s.values()]
        return [*models["policy"].parameters(), *models["critic"].parameters(), *state]

    def spoiling(state, settings, loss):
        before = [tensor.detach().clone() for tensor in tensors()]
        next(models["critic"].parameters()).grad[0] = float("inf")
        try:
            return optimizer_step(state, settings, loss)
        finally:
            assert all(torch.equal(a, b) for a, b in zip(before, tensors(), strict=True))

    monkeypatch.setattr(step, "optimizer_step", spoiling)
    with pytest.raises(FloatingPointError, match="gradient"):
        run.update(rollout)
