"""For models that outgrow the machine: micro-batches, bfloat16 with float32 masters, activations that are computed again."""

import json
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.training import default_settings, train
from rlviz.training.rollout import Rollout
from small_models.any_model import AnyModel
from small_models.precision import in_bfloat16
from tests.training.peak import peak_bytes

NO_KL = replace(GRPO, kl=None)
SMALL = {"num_prompts": 8, "group_size": 4, "evaluate_every": 0, "details_every": 0, "lr": 1e-3, "lr_warmup_steps": 0}


def rows_of(lengths, width=3, prompts=None):
    """Return rows of these lengths after prompts of `width` tokens, one a row unless `prompts` says whose they are."""
    owner = torch.arange(len(lengths)) if prompts is None else torch.tensor(prompts)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).unsqueeze(1)
    ids = torch.arange(int(owner.max()) + 1).unsqueeze(1).expand(-1, width)
    values = torch.arange(mask.numel(), dtype=torch.double).view(mask.shape)
    over = {"tokens": values.long(), "mask": mask, "old_logp": values, "advantages": values, "weights": values}
    return Rollout(None, None, 0.0, ids, ids >= 0, owner, **over)


class TestMicroBatches:
    def test_no_part_has_more_tokens_than_it_may(self):
        """Prompts of 3: rows of 2, 2, 4 tokens make 2 · 5 = 10, and 3 · 7 = 21 > 16 with the third; 4, 1: 14; 9 alone: 12."""
        parts = rows_of([2, 2, 4, 1, 9, 1]).split(16)
        assert [part.mask.sum((1, 2)).tolist() for part in parts] == [[2, 2], [4, 1], [9], [1]]
        assert [part.tokens.shape[-1] for part in parts] == [2, 4, 9, 1]
        assert all(len(part.tokens) * (3 + part.tokens.shape[-1]) <= 16 for part in parts)

    def test_they_lower_the_peak_of_an_update(self):
        peaks = []
        for tokens in (0, 512):
            run = train("chain", NO_KL, default_settings(NO_KL, num_prompts=16, micro_batch_tokens=tokens))
            run.update(run.collect())
            rollout = run.collect()
            peaks.append(peak_bytes(lambda run=run, rollout=rollout: run.update(rollout)))
        assert peaks[1] < 0.5 * peaks[0]


class TestPrecision:
    def test_bfloat16_trains_float32_weights_by_transformers_forward(self, tmp_path):
        settings = default_settings(NO_KL, **SMALL, precision="bfloat16", steps=3, updates_per_rollout=2)
        run = train("chain", NO_KL, settings, out=tmp_path / "run")
        _ = AnyModel(run.policy.model).head  # a first look, which is not part of the training
        kinds = []
        run.policy.model.lm_head.register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
        before = [weight.detach().clone() for weight in run.policy.model.parameters()]
        list(run)
        assert run.path == "transformers" == json.loads((tmp_path / "run/config.json").read_text())["path"]
        assert set(kinds) == {torch.bfloat16}
        for weight, old in zip(run.policy.model.parameters(), before, strict=True):
            assert weight.dtype == weight.grad.dtype == torch.float32 and not torch.equal(weight, old)
        assert all(v.dtype == torch.float32 for s in run.state.optimizers[0].state.values() for v in s.values())

    def test_the_second_update_sees_what_the_first_one_did(self):
        """autocast may keep weights that it has converted: then all updates of a rollout would have the ratio 1."""
        settings = default_settings(NO_KL, **SMALL, precision="bfloat16", updates_per_rollout=8)
        record = next(train("chain", NO_KL, settings))
        assert record.ratio_std > 0.03

    @pytest.mark.parametrize("critic", ["separate", "shared"])
    def test_a_critic_s_values_are_not_rounded(self, critic):
        settings = default_settings(PPO, **SMALL | {"group_size": 1}, precision="bfloat16", critic=critic)
        run = train("chain", PPO, settings)
        next(run)
        with in_bfloat16(torch.device("cpu")):
            values = run.collect().old_values
        assert values.dtype == torch.float32 and not torch.equal(values, values.bfloat16().float())

    def test_pairs_are_measured_against_a_reference_of_the_same_precision(self):
        settings = default_settings(DPO, precision="bfloat16", batch_size=8, num_pairs=8, evaluate_every=0)
        record = next(train("chain", DPO, settings))
        assert record.margin == 0 and record.loss == pytest.approx(0.6931, abs=1e-4)
